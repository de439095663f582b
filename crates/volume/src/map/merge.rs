//! Unnamed layers, in the background: a layer that nothing stands on goes, one that a single layer
//! stands on is merged into that. What volumes and snapshots read stays the same after each batch.

use parking_lot::MutexGuard;

use super::core::{Map, Plan, Writer};
use super::entries::{self, Value};
use super::layers::{Layers, Work};
use super::walk::{self, LayerCursor, READAHEAD};
use crate::error::Result;
use crate::ids::{GroupId, LayerId};

/// Entries of a batch. Commands wait for that long.
const PIECE: usize = 256;

impl Map {
    /// Merges and drops unnamed layers, until about `budget` entries were read. True where there is
    /// more to do.
    ///
    /// # Errors
    /// What reading and writing the engine fails with.
    pub fn merge_layers(&self, budget: usize) -> Result<bool> {
        let mut left = budget.max(1);
        loop {
            let mut writer = self.writer.lock();
            let groups = writer.groups.iter();
            let mut groups = groups.filter(|(_, state)| !state.status.is_incomplete);
            let next = groups.find_map(|(id, state)| state.layers.work().map(|work| (*id, work)));
            let Some((group, work)) = next else {
                return Ok(false);
            };
            if left == 0 {
                return Ok(true);
            }
            let read = self.piece(&mut writer, group, work, left.min(PIECE))?;
            // Removing a layer counts as one entry.
            left = left.saturating_sub(read.max(1));
            MutexGuard::unlock_fair(writer);
        }
    }

    /// Does a part of the work, and returns how many entries it read.
    fn piece(&self, writer: &mut Writer, group: GroupId, work: Work, most: usize) -> Result<usize> {
        let (Work::Drop(from) | Work::Merge(from, _)) = work;
        let Some(state) = writer.groups.get(&group) else {
            return Ok(0);
        };
        let layers = state.layers.clone();
        let first = match writer.merged {
            Some((of, layer, next)) if (of, layer) == (group, from) => next,
            _ => 0,
        };
        let is_lowest = (layers.layers.get(&from)).is_none_or(|layer| layer.base.is_none());
        let mut plan = Plan::default();
        if let Work::Merge(from, into) = work {
            let mut next = Layers::clone(&layers);
            if next.begin_merge(from, into) {
                plan.layers = Some(next);
            }
        }
        let snapshot = self.store.engine.snapshot();
        let blocks = (first..).into();
        let mut cursor =
            LayerCursor::new(&self.store, &snapshot, (group, from), blocks, READAHEAD)?;
        let mut read = 0;
        while let Some((block, value)) = cursor.entry().filter(|_| read < most) {
            match work {
                Work::Drop(_) => forget(&mut plan, value, layers.block_size(from)),
                Work::Merge(_, into) => {
                    let over = walk::get(&self.store, &snapshot, group, into, block)?;
                    let merging = Merging {
                        group,
                        into,
                        is_lowest,
                        block_size: layers.block_size(from),
                    };
                    self.merge_entry(&mut plan, &merging, block, value, over)?;
                }
            }
            let key = entries::key(group, from, block);
            plan.batch.delete(self.store.map, &key)?;
            cursor.advance(&self.store)?;
            read += 1;
        }
        let next = cursor.entry().map(|(block, _)| (group, from, block));
        if next.is_none() {
            let mut without = Layers::clone(&layers);
            if let Work::Merge(from, into) = work {
                without.begin_merge(from, into);
            }
            without.remove(from);
            plan.layers = Some(without);
        }
        self.commit(writer, group, plan)?;
        writer.merged = next;
        Ok(read)
    }

    /// Puts an entry into the layer above, which has `over` in its place.
    fn merge_entry(
        &self,
        plan: &mut Plan,
        merging: &Merging,
        block: u64,
        value: Value,
        over: Option<Value>,
    ) -> Result<()> {
        let key = entries::key(merging.group, merging.into, block);
        match over {
            None if value.is_none() && merging.is_lowest => {}
            None => {
                let (bytes, len) = entries::encode(value);
                let value = bytes.get(..len).unwrap_or_default();
                plan.batch.put(self.store.map, &key, value)?;
            }
            Some(over) => {
                forget(plan, value, merging.block_size);
                if over.is_none() && merging.is_lowest {
                    plan.batch.delete(self.store.map, &key)?;
                }
            }
        }
        Ok(())
    }
}

/// A layer whose entries move into the one above.
struct Merging {
    group: GroupId,
    into: LayerId,
    /// No layer is below it: blocks without data need no entry.
    is_lowest: bool,
    block_size: u32,
}

fn forget(plan: &mut Plan, value: Value, block_size: u32) {
    if let Some(extent) = value {
        plan.count(extent.place.segment, -i64::from(block_size));
    }
}
