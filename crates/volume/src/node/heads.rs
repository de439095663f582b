//! What each segment begins with, so that reading back may begin there: of each group its position,
//! ballot, vote and members; of the node its life and how its cluster was formed.

use std::sync::Arc;

use esker_coding::{Reader as Bytes, put_varint};

use super::group::Group;
use crate::consensus::Damage;
use crate::extents::Head;
use crate::ids::{Ballot, GroupId, NodeId, Slot};
use crate::members::Members;
use crate::wire::{Formation, Hello};

/// A group that has the node's life, and how its cluster was formed, in the heads of segments.
pub(super) const NODE: GroupId = GroupId(u16::MAX);

/// What a segment begins with.
pub(super) fn heads<'g>(
    me: &Hello,
    formation: Option<&Formation>,
    groups: impl Iterator<Item = &'g Group>,
) -> Vec<Head> {
    let node = node_head(me, formation);
    let mut heads = vec![Head {
        group: NODE,
        slot: 0,
        ballot: Ballot(0),
        payload: node,
    }];
    for group in groups {
        let (last, ballot) = group.log.last_entry();
        heads.push(Head {
            group: group.id,
            slot: last.0,
            ballot,
            payload: head(group, last),
        });
    }
    heads
}

/// What a group needs to be read from behind the entry at `slot`.
pub(super) fn head(group: &Group, slot: Slot) -> Vec<u8> {
    let mut head = Vec::new();
    put_varint(&mut head, group.consensus.ballot().0);
    put_varint(
        &mut head,
        group.consensus.vote().map_or(0, |node| u64::from(node.0)),
    );
    group.consensus.members_at(slot).encode(&mut head);
    put_varint(
        &mut head,
        match group.damage.max(group.consensus.damage()) {
            None => 0,
            Some(Damage::Unknown) => 1,
            Some(Damage::Through(slot)) => slot.0.saturating_add(2),
        },
    );
    head
}

/// The node's life, and how its cluster was formed.
pub(super) fn node_head(me: &Hello, formation: Option<&Formation>) -> Vec<u8> {
    let mut node = Vec::new();
    put_varint(&mut node, me.life);
    if let Some(formation) = formation {
        formation.encode(&mut node);
    }
    node
}

/// What the head of a group says.
pub(super) struct GroupHead {
    pub(super) ballot: Ballot,
    pub(super) vote: Option<NodeId>,
    pub(super) members: Arc<Members>,
    pub(super) damage: Option<Damage>,
}

pub(super) fn decode_head(payload: &[u8]) -> Option<GroupHead> {
    let from = &mut Bytes::new(payload);
    let ballot = Ballot(from.varint()?);
    let vote = u32::try_from(from.varint()?).ok()?;
    let members = Arc::new(Members::decode(from)?);
    let damage = match from.varint().unwrap_or(0) {
        0 => None,
        1 => Some(Damage::Unknown),
        slot => Some(Damage::Through(Slot(slot - 2))),
    };
    Some(GroupHead {
        ballot,
        vote: (vote != 0).then_some(NodeId(vote)),
        members,
        damage,
    })
}
