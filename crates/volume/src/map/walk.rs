//! Entries of a layer, and of a chain of layers, in the order of blocks.

use std::ops::{Range, RangeFrom};

use esker_lsm::entry::MAX_SEQ;
use esker_lsm::{Cost, Cursor, Snapshot, TreeCursor};

use super::entries::{self, Extent, Value};
use super::store::Store;
use crate::error::Result;
use crate::ids::{GroupId, LayerId};

/// Bytes that scans of whole layers read ahead.
pub(super) const READAHEAD: usize = 256 << 10;

/// What a layer has of a block; the outer `None` where it has nothing.
pub(super) fn get(
    store: &Store,
    snapshot: &Snapshot,
    group: GroupId,
    layer: LayerId,
    block: u64,
) -> Result<Option<Value>> {
    let key = entries::key(group, layer, block);
    let Some(found) = snapshot.get(store.map, &key, &Cost::default())? else {
        return Ok(None);
    };
    let value = entries::parse(&found.value).ok_or_else(|| damaged(store, group, layer, block))?;
    Ok(Some(value))
}

fn damaged(store: &Store, group: GroupId, layer: LayerId, block: u64) -> crate::error::Error {
    store.damaged(&format!(
        "the entry of group {group}, layer {layer}, block {block}"
    ))
}

/// Blocks of a volume from one on, before another.
#[derive(Clone, Copy)]
pub(super) struct BlockRange {
    pub(super) first: u64,
    /// `None`: to the last one.
    pub(super) end: Option<u64>,
}

impl From<Range<u64>> for BlockRange {
    fn from(range: Range<u64>) -> BlockRange {
        BlockRange {
            first: range.start,
            end: Some(range.end),
        }
    }
}

impl From<RangeFrom<u64>> for BlockRange {
    fn from(range: RangeFrom<u64>) -> BlockRange {
        BlockRange {
            first: range.start,
            end: None,
        }
    }
}

/// The entries of some blocks of a layer.
pub(super) struct LayerCursor {
    cursor: TreeCursor,
    group: GroupId,
    layer: LayerId,
    end: Option<u64>,
    current: Option<(u64, Value)>,
}

impl LayerCursor {
    /// On the first entry of these blocks. Reads `readahead` bytes ahead.
    pub(super) fn new(
        store: &Store,
        snapshot: &Snapshot,
        (group, layer): (GroupId, LayerId),
        blocks: BlockRange,
        readahead: usize,
    ) -> Result<LayerCursor> {
        let mut cursor = snapshot.cursor(store.map, readahead);
        cursor.seek(&entries::key(group, layer, blocks.first), MAX_SEQ)?;
        let mut cursor = LayerCursor {
            cursor,
            group,
            layer,
            end: blocks.end,
            current: None,
        };
        cursor.load(store)?;
        Ok(cursor)
    }

    /// The entry that the cursor is on.
    pub(super) fn entry(&self) -> Option<(u64, Value)> {
        self.current
    }

    /// Moves to the next entry.
    pub(super) fn advance(&mut self, store: &Store) -> Result<()> {
        self.cursor.next()?;
        self.load(store)
    }

    fn load(&mut self, store: &Store) -> Result<()> {
        self.current = None;
        if !self.cursor.valid() {
            return Ok(());
        }
        let key = entries::parse_key(self.cursor.key());
        let (group, layer, block) = key.ok_or_else(|| store.damaged("a key of the map"))?;
        let is_behind = self.end.is_some_and(|end| block >= end);
        if group == self.group && layer == self.layer && !is_behind {
            let value = entries::parse(self.cursor.value());
            let value = value.ok_or_else(|| damaged(store, group, layer, block))?;
            self.current = Some((block, value));
        }
        Ok(())
    }
}

/// The blocks that have data in a chain of layers.
pub(super) struct Resolved {
    /// Newest first.
    layers: Vec<LayerCursor>,
}

impl Resolved {
    /// These blocks of a chain, newest layer first.
    pub(super) fn new(
        store: &Store,
        snapshot: &Snapshot,
        group: GroupId,
        chain: &[LayerId],
        blocks: BlockRange,
        readahead: usize,
    ) -> Result<Resolved> {
        let layers = chain
            .iter()
            .map(|layer| LayerCursor::new(store, snapshot, (group, *layer), blocks, readahead));
        let layers = layers.collect::<Result<_>>()?;
        Ok(Resolved { layers })
    }

    /// The next block that has data.
    pub(super) fn next(&mut self, store: &Store) -> Result<Option<(u64, Extent)>> {
        loop {
            let entries = self.layers.iter().filter_map(LayerCursor::entry);
            // Of equal blocks the first is the newest layer's.
            let Some((block, value)) = entries.min_by_key(|(block, _)| *block) else {
                return Ok(None);
            };
            for layer in &mut self.layers {
                if layer.entry().is_some_and(|(at, _)| at == block) {
                    layer.advance(store)?;
                }
            }
            if let Some(extent) = value {
                return Ok(Some((block, extent)));
            }
        }
    }
}
