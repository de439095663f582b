//! Batched point lookups: keys in ascending order, looked up component by component with cursors
//! that stay where they are (Luo & Carey section 3.2). A key near the one before it costs a few
//! comparisons instead of a search from the top, and a block that holds several is read once.

use crate::batch::TreeId;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ};
use crate::error::Result;
use crate::read::RunCursor;
use crate::read::component::Component;
use crate::read::snapshot::{Found, Snapshot};
use crate::slice::Slice;
use crate::table::ReadOptions;

impl Snapshot {
    /// Looks up `keys`, which must ascend, and puts what is found into `found` at the same
    /// positions (`None` for keys without a value).
    pub fn get_batch(
        &self,
        tree: TreeId,
        keys: &[&[u8]],
        found: &mut Vec<Option<Found>>,
        cost: &Cost,
    ) -> Result<()> {
        found.clear();
        found.resize_with(keys.len(), || None);
        self.visit_batch(tree, keys, cost, &mut |at, entry| {
            if let Some(slot) = found.get_mut(at) {
                *slot = Some(entry);
            }
        })
    }

    /// Looks up `keys`, which must ascend, and gives `visit` the position and the newest entry of
    /// each that has a value, in no order: for callers that need not hold all values at once.
    pub fn visit_batch(
        &self,
        tree: TreeId,
        keys: &[&[u8]],
        cost: &Cost,
        visit: &mut dyn FnMut(usize, Found),
    ) -> Result<()> {
        debug_assert!(keys.is_sorted());
        // A deleted key is found as well: older components must not be asked for it.
        let mut visit = |at, entry: Found| {
            if entry.kind != Kind::Delete {
                visit(at, entry);
            }
        };
        let mut missing: Vec<usize> = (0..keys.len()).collect();
        for component in self.components(tree) {
            if missing.is_empty() {
                break;
            }
            match component {
                Component::Memtable(memtable) => missing.retain(|&at| {
                    let entry = keys.get(at).and_then(|key| memtable.get(key, self.seq()));
                    let Some(entry) = entry else { return true };
                    let (seq, kind, value) = (entry.seq, entry.kind, Slice::from(entry.value));
                    visit(at, Found { seq, kind, value });
                    false
                }),
                Component::Run(run) => {
                    let options = ReadOptions {
                        fill_cache: true,
                        readahead: 0,
                    };
                    let mut cursor = RunCursor::new(run.tables.clone(), options);
                    let mut error = None;
                    missing.retain(|&at| {
                        let (Some(key), None) = (keys.get(at), &error) else {
                            return true;
                        };
                        match lookup(&mut cursor, &run, key, cost) {
                            Ok(Some(entry)) => {
                                visit(at, entry);
                                false
                            }
                            Ok(None) => true,
                            Err(e) => {
                                error = Some(e);
                                true
                            }
                        }
                    });
                    cost.absorb(&cursor.cost());
                    if let Some(error) = error {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

fn lookup(
    cursor: &mut RunCursor,
    run: &crate::version::Run,
    key: &[u8],
    cost: &Cost,
) -> Result<Option<Found>> {
    // Keys ascend, and the cursor stands on the first entry at or after an earlier one.
    if cursor.valid() && cursor.key() > key {
        return Ok(None);
    }
    if !cursor.in_block(key) {
        let Some(table) = run.table_for(key) else {
            return Ok(None);
        };
        if !table.table()?.may_contain(key, cost)? {
            return Ok(None);
        }
    }
    cursor.seek(key, MAX_SEQ)?;
    if cursor.valid() && cursor.key() == key {
        return Ok(Some(Found {
            seq: cursor.seq(),
            kind: cursor.kind(),
            value: cursor.value_slice(),
        }));
    }
    Ok(None)
}
