//! What refers to a segment, and that it refers to a copy instead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_lsm::entry::MAX_SEQ;
use esker_lsm::{Cursor, Snapshot, TreeCursor};

use super::core::{Map, Plan};
use super::entries::{self, Extent};
use super::store::Store;
use super::walk::{self, READAHEAD};
use crate::error::Result;
use crate::ids::{GroupId, LayerId, VolumeId};
use crate::place::Place;

/// What a record names as the owner of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The volume: a record of an entry.
    Volume(VolumeId),
    /// The layer as of the copying: a record of a copy by vacuum.
    Layer(LayerId),
}

/// A block whose data were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The group.
    pub group: GroupId,
    /// The layer.
    pub layer: LayerId,
    /// The block.
    pub block: u64,
    /// Where its data were.
    pub from: Place,
    /// Where the copy is.
    pub to: Place,
}

/// An entry of the map that refers to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveBlock {
    /// The group.
    pub group: GroupId,
    /// The layer.
    pub layer: LayerId,
    /// The block.
    pub block: u64,
    /// Where its data are.
    pub extent: Extent,
}

/// The entries that refer to a segment, as of the moment when they were asked for. Reads the whole
/// map.
pub struct LiveBlocks {
    store: Arc<Store>,
    cursor: TreeCursor,
    /// None: entries of all segments.
    segment: Option<u32>,
    begun: bool,
    /// The entry behind which it begins.
    after: Option<(GroupId, LayerId, u64)>,
    _snapshot: Snapshot,
}

impl LiveBlocks {
    /// The next entry, in the order of groups, layers and blocks.
    ///
    /// # Errors
    /// What reading the engine fails with, and [`crate::error::Error::Corruption`].
    pub fn next_block(&mut self) -> Result<Option<LiveBlock>> {
        loop {
            match (std::mem::replace(&mut self.begun, true), &self.after) {
                (true, _) if !self.cursor.valid() => return Ok(None),
                (true, _) => self.cursor.next()?,
                (false, None) => self.cursor.seek_first()?,
                (false, Some((group, layer, block))) => {
                    let key = entries::key(*group, *layer, block.saturating_add(1));
                    self.cursor.seek(&key, MAX_SEQ)?;
                }
            }
            if !self.cursor.valid() {
                return Ok(None);
            }
            let key = entries::parse_key(self.cursor.key());
            let value = entries::parse(self.cursor.value());
            let entry = key
                .zip(value)
                .ok_or_else(|| self.store.damaged("an entry of the map"))?;
            let ((group, layer, block), Some(extent)) = entry else {
                continue;
            };
            if self
                .segment
                .is_none_or(|segment| segment == extent.place.segment)
            {
                return Ok(Some(LiveBlock {
                    group,
                    layer,
                    block,
                    extent,
                }));
            }
        }
    }
}

impl Map {
    /// The entries that refer to a segment; without one, all entries that have data.
    pub fn live_blocks(&self, segment: Option<u32>) -> LiveBlocks {
        let snapshot = self.store.engine.snapshot();
        LiveBlocks {
            cursor: snapshot.cursor(self.store.map, READAHEAD),
            store: self.store.clone(),
            segment,
            begun: false,
            after: None,
            _snapshot: snapshot,
        }
    }

    /// All entries that have data, in the order of groups, layers and blocks, behind one of them;
    /// without one, all.
    pub fn live_blocks_after(&self, after: Option<(GroupId, LayerId, u64)>) -> LiveBlocks {
        LiveBlocks {
            after,
            ..self.live_blocks(None)
        }
    }

    /// The layer whose entry for `block` refers to `place`, if one does: by lookups instead of a
    /// scan, for a caller that reads the segment's records.
    ///
    /// # Errors
    /// What reading the engine fails with.
    pub fn refers(
        &self,
        group: GroupId,
        source: Source,
        block: u64,
        place: Place,
    ) -> Result<Option<LayerId>> {
        let writer = self.writer.lock();
        let layers = writer.groups.get(&group).map(|state| state.layers.clone());
        let snapshot = self.store.engine.snapshot();
        drop(writer);
        let layers = layers.unwrap_or_default();
        let refers = |layer: LayerId| -> Result<bool> {
            let value = walk::get(&self.store, &snapshot, group, layer, block)?;
            Ok(value.flatten().is_some_and(|extent| extent.place == place))
        };
        if let Source::Layer(layer) = source {
            // A layer that is still there was not merged as a whole, but maybe in part.
            if refers(layer)? {
                return Ok(Some(layer));
            }
        }
        for (id, layer) in &layers.layers {
            let may = match source {
                Source::Volume(volume) => layer.writers.contains(&volume),
                Source::Layer(at) => *id != at,
            };
            if may && refers(*id)? {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    /// Notes that a block was copied: its entry refers to `to`, if it still refers to `from`.
    /// Returns whether it did. The copy must be durable. What reads the old place is free when that
    /// has been flushed ([`Map::is_free`]).
    ///
    /// # Errors
    /// What reading and writing the engine fails with. Nothing has changed then.
    pub fn moved(
        &self,
        group: GroupId,
        layer: LayerId,
        block: u64,
        from: Place,
        to: Place,
    ) -> Result<bool> {
        let one = Move {
            group,
            layer,
            block,
            from,
            to,
        };
        Ok(self.moved_all(&[one])? == 1)
    }

    /// As [`Map::moved`], for several blocks, those of each group in one batch. Returns how many
    /// entries referred to `from`. Where a block is given twice, only its first move counts.
    ///
    /// # Errors
    /// As [`Map::moved`]; blocks of earlier groups may be moved.
    pub fn moved_all(&self, moves: &[Move]) -> Result<usize> {
        let mut writer = self.writer.lock();
        let snapshot = self.store.engine.snapshot();
        let mut plans: BTreeMap<GroupId, Plan> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for Move {
            group,
            layer,
            block,
            from,
            to,
        } in moves
        {
            let old = walk::get(&self.store, &snapshot, *group, *layer, *block)?.flatten();
            let old = old.filter(|extent| extent.place == *from);
            let Some(old) = old.filter(|_| seen.insert((*group, *layer, *block))) else {
                continue;
            };
            let state = writer.groups.get(group);
            let size = state.map_or(0, |state| state.layers.block_size(*layer));
            let plan = plans.entry(*group).or_default();
            plan.count(from.segment, -i64::from(size));
            plan.count(to.segment, i64::from(size));
            let (bytes, len) = entries::encode(Some(Extent { place: *to, ..old }));
            let value = bytes.get(..len).unwrap_or_default();
            let key = entries::key(*group, *layer, *block);
            plan.batch.put(self.store.map, &key, value)?;
            count += 1;
        }
        for (group, plan) in plans {
            self.commit(&mut writer, group, plan)?;
        }
        Ok(count)
    }

    /// True where no entry refers to the segment, as of a durable flush: nothing that is found
    /// after a crash needs it.
    pub fn is_free(&self, segment: u32) -> bool {
        let writer = self.writer.lock();
        let durable = self.store.engine.durable_seq();
        writer.usage.is_free(segment, durable)
    }

    /// The segments that lost their last live byte since the map was opened, as of a durable flush.
    /// Segments that never had one, and those that lost it in an earlier life, are not among them:
    /// see [`Map::is_free`].
    pub fn free_segments(&self) -> Vec<u32> {
        let writer = self.writer.lock();
        let durable = self.store.engine.durable_seq();
        writer.usage.free(durable)
    }

    /// Forgets a segment that was removed: [`Map::free_segments`] does not list it any more.
    pub fn forget_segment(&self, segment: u32) {
        self.writer.lock().usage.forget(segment);
    }
}
