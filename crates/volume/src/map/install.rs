//! The state of a group, replaced by an image of another replica.

use std::collections::BTreeMap;

use super::core::{Clearing, Map, Plan, Writer};
use super::entries::{self, Extent};
use super::image::{ImageEntry, ImageMeta};
use super::sessions::Change;
use super::store::Status;
use super::walk::{LayerCursor, READAHEAD};
use crate::error::{Error, Result};
use crate::ids::{Ballot, GroupId, LayerId, Slot};

/// Entries that one batch removes.
const PIECE: usize = 4096;

impl Map {
    /// Begins to replace the state of a group. The group is incomplete from now on, across crashes
    /// too, until [`Map::finish_install`]. [`Map::clear_former`] comes next. An installation that
    /// had begun begins again.
    ///
    /// # Errors
    /// [`Error::OldImage`] where the group has applied more than the image (nothing has changed
    /// then); what writing the engine fails with. The group may be incomplete then.
    pub fn begin_install(&self, group: GroupId, meta: &ImageMeta) -> Result<()> {
        let mut writer = self.writer.lock();
        let applied = writer.groups.get(&group).map(|state| state.status.slot);
        if let Some(applied) = applied.filter(|applied| meta.slot < *applied) {
            return Err(Error::OldImage {
                group,
                slot: meta.slot,
                applied,
            });
        }
        writer.installing.remove(&group);
        // The image may have all of a layer that was merged in part here.
        writer.merged = None;
        let incomplete = Status {
            is_incomplete: true,
            ..Status::default()
        };
        let plan = Plan {
            status: Some(incomplete),
            ..Plan::default()
        };
        self.commit(&mut writer, group, plan)?;
        let (meta, next) = (meta.clone(), (LayerId(0), 0));
        writer.clearing.insert(group, Clearing { meta, next });
        Ok(())
    }

    /// Removes some `most` entries of the former state. True when none is left: then the entries of
    /// the image may be put.
    ///
    /// # Errors
    /// [`Error::NotInstalling`] where no installation has begun, and what reading and writing the
    /// engine fails with.
    pub fn clear_former(&self, group: GroupId, most: usize) -> Result<bool> {
        for _ in 0..most.div_ceil(PIECE).max(1) {
            // Others write in between.
            if self.clear_piece(group)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn clear_piece(&self, group: GroupId) -> Result<bool> {
        let mut writer = self.writer.lock();
        if writer.installing.contains_key(&group) {
            return Ok(true);
        }
        let clearing = writer.clearing.get(&group);
        let next = clearing.ok_or(Error::NotInstalling { group })?.next;
        let layers = writer.groups.get(&group).map(|g| g.layers.clone());
        let layers = layers.unwrap_or_default();
        let Some((layer, found)) = layers.layers.range(next.0..).next() else {
            return self.cleared(&mut writer, group).map(|()| true);
        };
        let (layer, size) = (*layer, i64::from(found.block_size));
        let from = if layer == next.0 { next.1 } else { 0 };
        let (store, snapshot) = (&*self.store, self.store.engine.snapshot());
        let of = (group, layer);
        let mut cursor = LayerCursor::new(store, &snapshot, of, (from..).into(), READAHEAD)?;
        let (mut plan, mut next) = (Plan::default(), (LayerId(layer.0.saturating_add(1)), 0));
        for count in 0..=PIECE {
            let Some((block, value)) = cursor.entry() else {
                break;
            };
            if count == PIECE {
                next = (layer, block);
                break;
            }
            if let Some(extent) = value {
                plan.count(extent.place.segment, -size);
            }
            plan.batch
                .delete(store.map, &entries::key(group, layer, block))?;
            cursor.advance(store)?;
        }
        self.commit(&mut writer, group, plan)?;
        if let Some(clearing) = writer.clearing.get_mut(&group) {
            clearing.next = next;
        }
        Ok(false)
    }

    /// No entry is left of the former state.
    fn cleared(&self, writer: &mut Writer, group: GroupId) -> Result<()> {
        let clearing = writer.clearing.get(&group);
        let meta = clearing.ok_or(Error::NotInstalling { group })?.meta.clone();
        // Sizes of blocks are known across a crash.
        let plan = Plan {
            layers: Some(meta.layers.clone()),
            ..Plan::default()
        };
        self.commit(writer, group, plan)?;
        writer.clearing.remove(&group);
        writer.installing.insert(group, meta);
        Ok(())
    }

    /// Puts entries of the image, with the places that their data have here. The data must be
    /// durable. Entries may come in any order, and again.
    ///
    /// # Errors
    /// [`Error::NotInstalling`], also after a crash; [`Error::UnknownLayer`] for an entry of a
    /// layer that the image does not name (nothing was put); what the engine fails with.
    pub fn install_chunk(&self, group: GroupId, entries: &[ImageEntry]) -> Result<()> {
        let mut writer = self.writer.lock();
        let meta = writer.installing.get(&group);
        let meta = meta.ok_or(Error::NotInstalling { group })?;
        let (store, snapshot) = (&*self.store, self.store.engine.snapshot());
        let mut plan = Plan::default();
        // Of an entry that is there twice, the last one counts.
        let mut layers = BTreeMap::<_, BTreeMap<u64, Option<Extent>>>::new();
        for entry in entries {
            let of = layers.entry(entry.layer).or_default();
            of.insert(entry.block, entry.extent);
        }
        for (layer, entries) in layers {
            let size = meta.block_size(layer);
            let size = i64::from(size.ok_or(Error::UnknownLayer { group, layer })?);
            let ends = entries.first_key_value().zip(entries.last_key_value());
            let Some(((first, _), (last, _))) = ends else {
                continue;
            };
            // Mostly there is nothing in the range: one look is enough.
            let range = (*first..last.saturating_add(1)).into();
            let mut old = LayerCursor::new(store, &snapshot, (group, layer), range, 0)?;
            while let Some((block, value)) = old.entry() {
                if let (Some(old), true) = (value, entries.contains_key(&block)) {
                    plan.count(old.place.segment, -size);
                }
                old.advance(store)?;
            }
            for (block, extent) in entries {
                if let Some(extent) = extent {
                    plan.count(extent.place.segment, size);
                }
                let (bytes, len) = entries::encode(extent);
                let value = bytes.get(..len).unwrap_or_default();
                plan.batch
                    .put(store.map, &entries::key(group, layer, block), value)?;
            }
        }
        self.commit(&mut writer, group, plan)
    }

    /// Ends the replacement: the group is in the state of the image, at `slot`, which was chosen in
    /// `ballot`. Flushes, so that the group does not become incomplete again in a crash.
    ///
    /// # Errors
    /// [`Error::NotInstalling`], and what writing the engine fails with. Where the flush fails the
    /// group is in the state of the image, until a crash.
    pub fn finish_install(&self, group: GroupId, slot: Slot, ballot: Ballot) -> Result<()> {
        let mut writer = self.writer.lock();
        let meta = writer.installing.get(&group);
        let meta = meta.ok_or(Error::NotInstalling { group })?.clone();
        let mut plan = Plan {
            status: Some(Status {
                slot,
                ballot,
                is_image: true,
                ..Status::default()
            }),
            members: Some(meta.members),
            system: meta.system.map(|system| (*system).clone()),
            ..Plan::default()
        };
        let known = writer.groups.get(&group).map(|g| &g.sessions);
        let closed = known.into_iter().flat_map(|s| s.open.keys().copied());
        plan.sessions = Some(Change {
            closed: closed.collect(),
            opened: meta.sessions.open,
            seen: meta.sessions.seen,
        });
        self.commit(&mut writer, group, plan)?;
        writer.installing.remove(&group);
        drop(writer);
        self.flush()
    }
}
