//! Batched point lookups: keys in ascending order, looked up component by component (Luo & Carey
//! section 3.2). In a run, a key near the one before it costs a few comparisons instead of a search
//! from the top; a block that holds several is read once, and the blocks of many keys are read
//! together, neighbours in one piece.

use crate::batch::TreeId;
use crate::cost::Cost;
use crate::entry::Kind;
use crate::error::Result;
use crate::read::component::Component;
use crate::read::snapshot::{Found, Snapshot};
use crate::slice::Slice;
use crate::table::{Locator, WantedBlock, fetch};
use crate::version::Run;

/// Data blocks that are held at a time, and their bytes (but one block, however large, always is).
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 1 << 20;

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

    /// Looks up `keys`, which must ascend (some may be equal), and gives `visit` the position and the
    /// newest entry of each that has a value, in no order: for callers that need not hold all values
    /// at once.
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
                    missing = Lookup::new(&run, keys, cost).run(&missing, &mut visit)?;
                }
            }
        }
        Ok(())
    }
}

/// A batch in one run.
struct Lookup<'a> {
    run: &'a Run,
    keys: &'a [&'a [u8]],
    cost: &'a Cost,
    /// The table of the key before, and where in it.
    locator: Option<(usize, Locator<'a>)>,
    /// The blocks of the window, and the keys to look for: position, and place of the block.
    blocks: Vec<WantedBlock<'a>>,
    spots: Vec<(usize, usize)>,
    /// Bytes of the blocks.
    held: usize,
}

impl<'a> Lookup<'a> {
    fn new(run: &'a Run, keys: &'a [&'a [u8]], cost: &'a Cost) -> Lookup<'a> {
        Lookup {
            run,
            keys,
            cost,
            locator: None,
            blocks: Vec::new(),
            spots: Vec::new(),
            held: 0,
        }
    }

    /// Looks for the keys at the positions `wanted`; returns the positions of those that the run
    /// does not have.
    fn run(mut self, wanted: &[usize], visit: &mut dyn FnMut(usize, Found)) -> Result<Vec<usize>> {
        let mut missing = Vec::new();
        for &at in wanted {
            let before = self.blocks.len();
            let located = self.locate(at)?;
            self.held += self
                .blocks
                .iter()
                .skip(before)
                .map(WantedBlock::len)
                .sum::<usize>();
            match located {
                true => self.spots.push((at, self.blocks.len() - 1)),
                false => missing.push(at),
            }
            if self.blocks.len() >= WINDOW || self.held >= WINDOW_BYTES {
                self.look(&mut missing, visit)?;
            }
        }
        self.look(&mut missing, visit)?;
        missing.sort_unstable();
        Ok(missing)
    }

    /// Puts the block of a key at the end of the window; false when no block can have it.
    fn locate(&mut self, at: usize) -> Result<bool> {
        let Some(key) = self.keys.get(at) else {
            return Ok(false);
        };
        if let Some((_, locator)) = &self.locator
            && locator.in_block(key)
        {
            locator.again(&mut self.blocks)?;
            return Ok(true);
        }
        let position = match &self.locator {
            Some((position, _)) if self.covers(*position, key) => *position,
            _ => self.run.position(key),
        };
        if !self.covers(position, key) {
            return Ok(false);
        }
        if self.locator.as_ref().is_none_or(|(at, _)| *at != position) {
            let Some(file) = self.run.tables.get(position) else {
                return Ok(false);
            };
            self.locator = Some((position, Locator::new(file.table()?)));
        }
        match &mut self.locator {
            Some((_, locator)) => locator.locate(key, &mut self.blocks, self.cost),
            None => Ok(false),
        }
    }

    fn covers(&self, position: usize, key: &[u8]) -> bool {
        let file = self.run.tables.get(position);
        file.is_some_and(|file| file.covers(key))
    }

    /// Fetches the window's blocks, looks for its keys in them, and begins the next window.
    fn look(
        &mut self,
        missing: &mut Vec<usize>,
        visit: &mut dyn FnMut(usize, Found),
    ) -> Result<()> {
        fetch(&mut self.blocks, self.cost)?;
        let mut near = None;
        let mut last = usize::MAX;
        for (at, block) in self.spots.drain(..) {
            let (Some(key), Some(wanted)) = (self.keys.get(at), self.blocks.get(block)) else {
                continue;
            };
            if block != last {
                (last, near) = (block, None);
            }
            match wanted.get(key, &mut near)? {
                Some(found) => {
                    let (seq, kind, value) = (found.seq, found.kind, found.value);
                    visit(at, Found { seq, kind, value });
                }
                None => missing.push(at),
            }
        }
        self.blocks.clear();
        self.held = 0;
        Ok(())
    }
}
