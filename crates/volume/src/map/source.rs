//! Lookups by what the rest of the node calls things: sources, layers, positions.

use std::collections::BTreeMap;

use super::core::Map;
use super::entries::Extent;
use super::walk;
use crate::error::Result;
use crate::ids::{Ballot, GroupId, LayerId, NodeId, SessionId, Slot, VolumeId};
use crate::system::Source;

impl Map {
    /// Where blocks of a volume or snapshot are; see [`Map::lookup`] and [`Map::lookup_layer`].
    ///
    /// # Errors
    /// Those of either.
    pub fn look(
        &self,
        group: GroupId,
        source: Source,
        first: u64,
        count: u32,
    ) -> Result<Vec<Option<Extent>>> {
        match source {
            Source::Volume(volume) => self.lookup(group, volume, first, count),
            Source::Layer(_, layer) => self.lookup_layer(group, layer, first, count),
        }
    }

    /// What one layer has of a block; `None` for a hole and for nothing.
    ///
    /// # Errors
    /// `Incomplete`, and what reading the engine fails with.
    pub fn at_layer(&self, group: GroupId, layer: LayerId, block: u64) -> Result<Option<Extent>> {
        let (_, snapshot) = self.pin(group)?;
        Ok(walk::get(&self.store, &snapshot, group, layer, block)?.flatten())
    }

    /// Where the block with this checksum is, in one layer or any other of the group, and its size:
    /// which layers are merged differs between replicas. `None` where no layer has it.
    ///
    /// # Errors
    /// As [`Map::at_layer`].
    pub fn with_checksum(
        &self,
        group: GroupId,
        layer: LayerId,
        block: u64,
        checksum: u64,
    ) -> Result<Option<(Extent, u32)>> {
        let (layers, snapshot) = self.pin(group)?;
        let others = layers.layers.keys().filter(|other| **other != layer);
        for layer in std::iter::once(&layer).chain(others) {
            let found = walk::get(&self.store, &snapshot, group, *layer, block)?.flatten();
            if let Some(extent) = found.filter(|extent| extent.checksum == checksum) {
                return Ok(Some((extent, layers.block_size(*layer))));
            }
        }
        Ok(None)
    }

    /// Bytes of a block of a layer, where the group has it.
    ///
    /// # Errors
    /// `Incomplete`.
    pub fn layer_block_size(&self, group: GroupId, layer: LayerId) -> Result<Option<u32>> {
        let (layers, _) = self.pin(group)?;
        Ok(Some(layers.block_size(layer)).filter(|size| *size > 0))
    }

    /// Bytes of a block of a volume or snapshot, where the group has it.
    ///
    /// # Errors
    /// `Incomplete`.
    pub fn source_block_size(&self, group: GroupId, source: Source) -> Result<Option<u32>> {
        match source {
            Source::Volume(volume) => self.block_size(group, volume),
            Source::Layer(_, layer) => self.layer_block_size(group, layer),
        }
    }

    /// Bytes of a block of a volume, where the group has it.
    ///
    /// # Errors
    /// `Incomplete`.
    pub fn block_size(&self, group: GroupId, volume: VolumeId) -> Result<Option<u32>> {
        let Some(head) = self.head_of(group, volume) else {
            return self.pin(group).map(|_| None);
        };
        self.layer_block_size(group, head)
    }

    /// Of each group the last slot that was applied, and its ballot.
    pub fn positions(&self) -> BTreeMap<GroupId, (Slot, Ballot)> {
        let groups = self.group_ids();
        let position = |group| (group, (self.applied(group), self.applied_ballot(group)));
        groups.into_iter().map(position).collect()
    }

    /// The open sessions of a node's lives up to `life` in a group.
    pub fn sessions_of(&self, group: GroupId, node: NodeId, life: u64) -> Vec<SessionId> {
        let writer = self.writer.lock();
        let Some(state) = writer.groups.get(&group) else {
            return Vec::new();
        };
        let of = |life| SessionId {
            node,
            life,
            connection: 0,
        };
        let open = state.sessions.open.range(of(0)..of(life.saturating_add(1)));
        open.map(|(id, _)| *id).collect()
    }

    /// Where a member listens, as far as this replica has come.
    pub fn address(&self, node: NodeId) -> Option<String> {
        let members = self.members(GroupId::SYSTEM);
        let member = members.as_ref().and_then(|members| members.get(node));
        let address = member.map(|member| member.address.clone());
        address.or_else(|| Some(self.system().wanted().get(node)?.address.clone()))
    }

    /// Bytes of tables that the engine wrote since it was opened.
    pub fn bytes_written(&self) -> u64 {
        let stats = self.store.engine.stats();
        stats.flush_bytes + stats.merge_write_bytes
    }

    /// True where [`Map::merge_layers`] has something to do.
    pub fn has_layers_to_merge(&self) -> bool {
        let writer = self.writer.lock();
        let mut groups = writer.groups.values();
        groups.any(|state| !state.status.is_incomplete && state.layers.work().is_some())
    }
}
