//! The state of a group, as another replica is sent it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_coding::{Reader, put_varint};
use esker_lsm::Snapshot;

use super::entries::{Extent, KEY_LEN};
use super::layers::{Layers, Standing};
use super::sessions::{Seen, Session, Sessions};
use super::store::Store;
use super::walk::{LayerCursor, READAHEAD};
use crate::error::Result;
use crate::ids::{Ballot, GroupId, LayerId, SessionId, Slot};
use crate::members::Members;
use crate::system::System;

/// The state of a group but for its entries.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageMeta {
    /// The last slot that was applied.
    pub slot: Slot,
    /// The ballot in which it was chosen.
    pub ballot: Ballot,
    /// The members of the group.
    pub members: Option<Arc<Members>>,
    pub(super) layers: Layers,
    pub(super) sessions: Sessions,
    pub(super) system: Option<Arc<System>>,
}

impl ImageMeta {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.slot.0);
        put_varint(out, self.ballot.0);
        self.layers.encode(out);
        self.encode_rest(out);
    }

    /// Members, sessions and the system group's state.
    fn encode_rest(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.members.is_some()));
        if let Some(members) = &self.members {
            members.encode(out);
        }
        put_varint(out, self.sessions.open.len() as u64);
        for (id, session) in &self.sessions.open {
            id.encode(out);
            session.encode(out);
        }
        self.sessions.seen.encode(out);
        out.push(u8::from(self.system.is_some()));
        if let Some(system) = &self.system {
            system.encode(out);
        }
    }

    /// The part of the state that is equal on all replicas, without slot and ballot.
    pub(super) fn encode_logical(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.layers.encode_logical(&mut out);
        self.encode_rest(&mut out);
        out
    }

    /// Reads what `encode` wrote; `None` where the bytes are no such state.
    pub fn decode(from: &mut Reader<'_>) -> Option<ImageMeta> {
        let (slot, ballot) = (Slot(from.varint()?), Ballot(from.varint()?));
        let layers = Layers::decode(from)?;
        let members = match from.u8()? {
            0 => None,
            _ => Some(Arc::new(Members::decode(from)?)),
        };
        let mut open = BTreeMap::new();
        for _ in 0..from.varint()? {
            open.insert(SessionId::decode(from)?, Session::decode(from)?);
        }
        let seen = Seen::decode(from)?;
        let sessions = Sessions { open, seen };
        let system = match from.u8()? {
            0 => None,
            _ => Some(Arc::new(System::decode(from)?)),
        };
        Some(ImageMeta {
            slot,
            ballot,
            members,
            layers,
            sessions,
            system,
        })
    }

    /// Bytes of a block of a layer; `None` where the group has no such layer.
    pub fn block_size(&self, layer: LayerId) -> Option<u32> {
        self.layers.layers.get(&layer).map(|layer| layer.block_size)
    }

    /// The layers that snapshots have.
    pub fn snapshots(&self) -> impl Iterator<Item = LayerId> + '_ {
        let layers = self.layers.layers.iter();
        let snapshots = layers.filter(|(_, layer)| layer.standing == Standing::Snapshot);
        snapshots.map(|(id, _)| *id)
    }
}

/// An entry of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageEntry {
    /// The layer.
    pub layer: LayerId,
    /// The block.
    pub block: u64,
    /// Where its data are. `None` is a hole over a frozen layer.
    pub extent: Option<Extent>,
}

/// Some entries of an image, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// The entries.
    pub entries: Vec<ImageEntry>,
    /// With which to ask for the next chunk; `None` behind the last entry.
    pub after: Option<Vec<u8>>,
}

/// The state of a group at one moment.
pub struct Image {
    store: Arc<Store>,
    snapshot: Snapshot,
    group: GroupId,
    meta: ImageMeta,
    segments: BTreeSet<u32>,
}

impl Image {
    pub(super) fn new(
        store: Arc<Store>,
        snapshot: Snapshot,
        group: GroupId,
        meta: ImageMeta,
        segments: BTreeSet<u32>,
    ) -> Image {
        Image {
            store,
            snapshot,
            group,
            meta,
            segments,
        }
    }

    /// The state but for its entries.
    pub fn meta(&self) -> &ImageMeta {
        &self.meta
    }

    /// The group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The segments that had live bytes (of any group) when the image was made.
    pub fn segments(&self) -> &BTreeSet<u32> {
        &self.segments
    }

    /// The entries behind an earlier chunk's `after` (`None`: the first), until they and their data
    /// are `bytes` long: one entry at least. An `after` of another image of the same group is valid
    /// too, and skips what is before it.
    ///
    /// # Errors
    /// What reading the engine fails with.
    pub fn chunk(&self, after: Option<&[u8]>, bytes: usize) -> Result<Chunk> {
        let start = match after {
            None => (LayerId(0), 0),
            Some(after) => {
                let mut from = Reader::new(after);
                let place = from.u32().zip(from.u64());
                let (layer, block) = place.ok_or_else(|| self.store.damaged("a chunk's end"))?;
                (LayerId(layer), block)
            }
        };
        let (mut chunk, mut taken) = (Chunk::default(), 0usize);
        for (id, layer) in self.meta.layers.layers.range(start.0..) {
            let first = if *id == start.0 { start.1 } else { 0 };
            let of = (self.group, *id);
            let mut cursor =
                LayerCursor::new(&self.store, &self.snapshot, of, (first..).into(), READAHEAD)?;
            while let Some((block, extent)) = cursor.entry() {
                if taken >= bytes && !chunk.entries.is_empty() {
                    let mut after = id.0.to_le_bytes().to_vec();
                    after.extend_from_slice(&block.to_le_bytes());
                    chunk.after = Some(after);
                    return Ok(chunk);
                }
                let data = extent.map_or(0, |_| layer.block_size as usize);
                taken = taken.saturating_add(data + KEY_LEN + 16);
                let layer = *id;
                chunk.entries.push(ImageEntry {
                    layer,
                    block,
                    extent,
                });
                cursor.advance(&self.store)?;
            }
        }
        Ok(chunk)
    }
}
