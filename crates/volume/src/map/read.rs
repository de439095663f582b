//! Lookups, and what follows from the state of a group at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_lsm::Snapshot;
use xxhash_rust::xxh3::Xxh3;

use super::core::{GroupState, Map};
use super::entries::Extent;
use super::image::{Image, ImageMeta};
use super::layers::{Layers, Standing};
use super::walk::{self, READAHEAD, Resolved};
use crate::error::{Error, Result};
use crate::ids::{GroupId, LayerId, VolumeId};

/// Up to so many lookups of a block in a layer are done one by one; more are read in a row.
const FEW_LOOKUPS: usize = 8;

/// Blocks in a row that all have data, or that all read as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// How many.
    pub blocks: u64,
    /// True where they have data.
    pub is_data: bool,
}

impl Map {
    /// Where blocks of a volume are, as of now. `None` is a block that reads as zeros. Of this
    /// group only: what other groups have of the volume is `None` too.
    ///
    /// # Errors
    /// [`Error::UnknownVolume`], [`Error::Incomplete`], and what reading the engine fails with.
    pub fn lookup(
        &self,
        group: GroupId,
        volume: VolumeId,
        first: u64,
        count: u32,
    ) -> Result<Vec<Option<Extent>>> {
        let (layers, snapshot) = self.pin(group)?;
        let chain = layers.chain_of(volume);
        let chain = chain.ok_or(Error::UnknownVolume { group, volume })?;
        self.resolve(&snapshot, group, &chain, first, count)
    }

    /// As [`Map::lookup`], of a snapshot.
    ///
    /// # Errors
    /// [`Error::UnknownLayer`] where no snapshot has the layer, and as [`Map::lookup`].
    pub fn lookup_layer(
        &self,
        group: GroupId,
        layer: LayerId,
        first: u64,
        count: u32,
    ) -> Result<Vec<Option<Extent>>> {
        let (layers, snapshot) = self.pin(group)?;
        let chain = layers.chain_of_snapshot(layer);
        let chain = chain.ok_or(Error::UnknownLayer { group, layer })?;
        self.resolve(&snapshot, group, &chain, first, count)
    }

    fn resolve(
        &self,
        snapshot: &Snapshot,
        group: GroupId,
        chain: &[LayerId],
        first: u64,
        count: u32,
    ) -> Result<Vec<Option<Extent>>> {
        let store = &*self.store;
        let end = first.saturating_add(u64::from(count));
        if chain.len().saturating_mul(count as usize) <= FEW_LOOKUPS {
            return (first..end)
                .map(|block| {
                    for layer in chain {
                        if let Some(value) = walk::get(store, snapshot, group, *layer, block)? {
                            return Ok(value);
                        }
                    }
                    Ok(None)
                })
                .collect();
        }
        let mut found = vec![None; (end - first) as usize];
        let mut blocks = Resolved::new(store, snapshot, group, chain, (first..end).into(), 0)?;
        while let Some((block, extent)) = blocks.next(store)? {
            if let Some(place) = found.get_mut((block - first) as usize) {
                *place = Some(extent);
            }
        }
        Ok(found)
    }

    /// Which blocks from `first` on have data: runs of blocks that are alike, at most `most` of
    /// them (1 at least), and at most `count` blocks together. Of this group only.
    ///
    /// # Errors
    /// As [`Map::lookup`].
    pub fn allocated(
        &self,
        group: GroupId,
        volume: VolumeId,
        (first, count): (u64, u64),
        most: usize,
    ) -> Result<Vec<Run>> {
        let (layers, snapshot) = self.pin(group)?;
        let chain = layers.chain_of(volume);
        let chain = chain.ok_or(Error::UnknownVolume { group, volume })?;
        let end = first.saturating_add(count);
        let range = (first..end).into();
        let mut blocks = Resolved::new(&self.store, &snapshot, group, &chain, range, 0)?;
        let mut runs: Vec<Run> = Vec::new();
        let mut at = first;
        while at < end && runs.len() <= most {
            let data = blocks.next(&self.store)?.map(|(block, _)| block);
            let is_data = data.is_some();
            let data = data.unwrap_or(end);
            push(&mut runs, data - at, false);
            push(&mut runs, u64::from(is_data), true);
            at = data + u64::from(is_data);
        }
        runs.truncate(most.max(1));
        Ok(runs)
    }

    /// The live bytes of each segment: those that entries of the map refer to. Segments without any
    /// are not listed.
    pub fn usage(&self) -> BTreeMap<u32, u64> {
        self.writer.lock().usage.all().clone()
    }

    /// A hash of a group's logical state: members, sessions, volumes and snapshots with the
    /// checksums of their blocks, and the system group's state. It does not depend on where data
    /// are, nor on which layers were merged, so it is equal on all replicas that have applied the
    /// same slot. Reads all entries of the group.
    ///
    /// # Errors
    /// [`Error::Incomplete`], and what reading the engine fails with.
    pub fn state_hash(&self, group: GroupId) -> Result<u64> {
        let (meta, snapshot) = {
            let mut writer = self.writer.lock();
            let system = Arc::clone(&writer.system);
            let state = writer.groups.entry(group).or_default();
            let meta = meta(group, state, &system)?;
            (meta, self.store.engine.snapshot())
        };
        let mut hash = Xxh3::new();
        hash.update(&meta.encode_logical());
        for volume in meta.layers.volumes.keys() {
            hash.update(&volume.0.to_le_bytes());
            let chain = meta.layers.chain_of(*volume).unwrap_or_default();
            self.hash_blocks(&mut hash, &meta.layers, &snapshot, group, &chain)?;
        }
        let layers = meta.layers.layers.iter();
        let snapshots = layers.filter(|(_, layer)| layer.standing == Standing::Snapshot);
        for (id, _) in snapshots {
            hash.update(&id.0.to_le_bytes());
            let chain = meta.layers.chain_of_snapshot(*id).unwrap_or_default();
            self.hash_blocks(&mut hash, &meta.layers, &snapshot, group, &chain)?;
        }
        Ok(hash.digest())
    }

    fn hash_blocks(
        &self,
        hash: &mut Xxh3,
        layers: &Layers,
        snapshot: &Snapshot,
        group: GroupId,
        chain: &[LayerId],
    ) -> Result<()> {
        let size = chain.first().map_or(0, |top| layers.block_size(*top));
        hash.update(&size.to_le_bytes());
        let store = &*self.store;
        let mut blocks = Resolved::new(store, snapshot, group, chain, (0..).into(), READAHEAD)?;
        while let Some((block, extent)) = blocks.next(store)? {
            hash.update(&block.to_le_bytes());
            hash.update(&extent.checksum.to_le_bytes());
        }
        // The end, which is no block.
        hash.update(&u64::MAX.to_le_bytes());
        Ok(())
    }

    /// The state of a group as of now, to be read out in chunks while commands are applied. The
    /// segments that it refers to must stay until the image is dropped: [`Image::segments`].
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub fn image(&self, group: GroupId) -> Result<Image> {
        let mut writer = self.writer.lock();
        let system = Arc::clone(&writer.system);
        let state = writer.groups.entry(group).or_default();
        let meta = meta(group, state, &system)?;
        let segments = writer.usage.all().keys().copied().collect();
        let snapshot = self.store.engine.snapshot();
        Ok(Image::new(
            self.store.clone(),
            snapshot,
            group,
            meta,
            segments,
        ))
    }
}

fn push(runs: &mut Vec<Run>, blocks: u64, is_data: bool) {
    match runs.last_mut() {
        _ if blocks == 0 => {}
        Some(last) if last.is_data == is_data => last.blocks += blocks,
        _ => runs.push(Run { blocks, is_data }),
    }
}

/// What there is of a group beside the map's entries.
fn meta(
    group: GroupId,
    state: &GroupState,
    system: &Arc<crate::system::System>,
) -> Result<ImageMeta> {
    if state.status.is_incomplete {
        return Err(Error::Incomplete { group });
    }
    Ok(ImageMeta {
        slot: state.status.slot,
        ballot: state.status.ballot,
        members: state.members.clone(),
        layers: Layers::clone(&state.layers),
        sessions: state.sessions.clone(),
        system: (group == GroupId::SYSTEM).then(|| system.clone()),
    })
}
