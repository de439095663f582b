//! How a node is.

use super::core::Core;
use super::group::Group;
use crate::admin::{GroupStatus, Status};
use crate::consensus::Time;
use crate::members::Role;

impl Core {
    /// How this node is.
    pub fn status(&self) -> Status {
        let usage = self.map.usage();
        let segments = self.extents.segments();
        Status {
            node: self.me.node.0,
            disk: self.me.disk.0,
            cluster: self.me.cluster,
            life: self.me.life,
            failed: self
                .failed
                .as_ref()
                .map_or(String::new(), |error| error.to_string()),
            linked: self.peers.keys().map(|node| node.0).collect(),
            groups: self
                .groups
                .values()
                .map(|one| group(one, self.now))
                .collect(),
            segments: segments.len() as u64,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            live: usage.values().sum(),
            written: self.extents.bytes_written(),
            user: self.user_bytes,
            map_written: self.map.bytes_written(),
            moved: self.vacuum.moved,
            freed: self.vacuum.freed,
            scrubbed: self.vacuum.scrubbed,
            scrubbing: self.vacuum.is_scrubbing(),
            healed: self.healing.healed,
            lost: self.healing.lost,
            outstanding: self.router.outstanding() as u64,
        }
    }

    /// How many groups share the blocks; 0 where no cluster is formed.
    pub fn group_count(&self) -> u16 {
        self.formation
            .as_ref()
            .map_or(0, |formation| formation.groups)
    }
}

fn group(group: &Group, now: Time) -> GroupStatus {
    let core = &group.consensus;
    let member = |member: &crate::members::Member| {
        let matched = core.matched(member.node).map_or(0, |slot| slot.0);
        (
            member.node.0,
            member.role == Role::Learner,
            member.address.clone(),
            matched,
        )
    };
    GroupStatus {
        group: group.id.0,
        leader: core.leader().map_or(0, |node| node.0),
        ballot: core.ballot().0,
        chosen: group.chosen,
        applied: group.applied,
        last: group.log.last(),
        base: group.log.base().0,
        damaged: core.is_damaged(),
        age: group.current().map(|current| now.saturating_sub(current)),
        members: core.members().iter().map(member).collect(),
    }
}
