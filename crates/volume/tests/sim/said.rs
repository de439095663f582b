//! What replicas have said binds them. A vote that is given twice, or an entry that was accepted
//! and is not there any more, rarely does harm that a client sees: other failures have to come
//! within milliseconds. So it is checked message by message.

use std::collections::BTreeMap;

use esker_volume::consensus::Message;
use esker_volume::ids::{GroupId, NodeId, Slot};

use super::world::World;

/// A node with one of its disks, and a group.
type Replica = (NodeId, u64, GroupId);

/// What replicas have said.
#[derive(Default)]
pub(crate) struct Said {
    /// By ballot, for whom a replica has voted.
    votes: BTreeMap<(Replica, u64), NodeId>,
    /// The last ballot in which a replica has accepted entries, and up to which slot.
    accepted: BTreeMap<Replica, (u64, Slot)>,
}

impl Said {
    /// The replica is damaged: it says so, and is bound by nothing until it is restored.
    fn forget(&mut self, replica: Replica) {
        self.accepted.remove(&replica);
        self.votes.retain(|(of, _), _| *of != replica);
    }
}

impl World {
    /// A message is on its way.
    pub(crate) fn check_said(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        let Some((group, message)) = consensus(bytes) else {
            return;
        };
        let replica = (from, self.node(from).disk(), group);
        if from == self.victim() && self.end_of(from, group).is_none_or(|end| end.2) {
            return self.said.forget(replica);
        }
        let accepted = self.said.accepted.get(&replica).copied();
        let (ballot, last) = accepted.unwrap_or_default();
        let mut vote = None;
        match message {
            Message::Prepare {
                ballot: next,
                last: end,
                trial,
                ..
            } => {
                assert!(
                    next.0 > ballot + 1 || end.1 >= last,
                    "node {from} accepted slot {last} of group {group} in ballot {ballot}, and its \
                     log ends at {} now",
                    end.1
                );
                vote = (!trial).then_some((next, from));
            }
            Message::Promise {
                ballot,
                trial: false,
                granted: true,
            } => vote = Some((ballot, to)),
            Message::Accepted {
                ballot: of,
                through,
                damaged: false,
                ..
            } => {
                if of.0 > ballot || through >= last {
                    self.said.accepted.insert(replica, (of.0, through));
                } else {
                    self.check_end(from, group);
                }
            }
            Message::Refused { ballot: of, .. } if of.0 == ballot => self.check_end(from, group),
            _ => {}
        }
        if let Some((ballot, whom)) = vote {
            let first = *self.said.votes.entry((replica, ballot.0)).or_insert(whom);
            assert_eq!(
                first, whom,
                "node {from} votes for two in ballot {ballot} of group {group}"
            );
        }
    }

    /// The ballot and the last slot of a replica, and whether it is damaged.
    fn end_of(&mut self, id: NodeId, group: GroupId) -> Option<(u64, Slot, bool)> {
        let status = self.node(id).core.as_ref()?.status();
        let found = status.groups.iter().find(|of| of.group == group.0)?;
        Some((found.ballot, found.last, found.damaged))
    }

    /// A replica has what it accepted in its ballot.
    fn check_end(&mut self, id: NodeId, group: GroupId) {
        let replica = (id, self.node(id).disk(), group);
        let Some(&(accepted, slot)) = self.said.accepted.get(&replica) else {
            return;
        };
        let Some((ballot, last, is_damaged)) = self.end_of(id, group) else {
            return;
        };
        if is_damaged {
            return self.said.forget(replica);
        }
        assert!(
            ballot > accepted || (ballot == accepted && last >= slot),
            "node {id} accepted slot {slot} of group {group} in ballot {accepted}; now its log ends \
             at {last}, its ballot is {ballot}"
        );
    }

    /// A node has read its disk.
    pub(crate) fn check_ends(&mut self, id: NodeId) {
        for group in (0..=self.settings.groups).map(GroupId) {
            self.check_end(id, group);
        }
    }

    /// Where nothing rots, nothing is damaged, and who steps back has a reason.
    pub(crate) fn check_disks(&mut self) {
        let victim = self.victim();
        for node in &self.nodes {
            let Some(status) = node.core.as_ref().map(|core| core.status()) else {
                continue;
            };
            let counts = (status.healed, status.lost);
            assert!(
                node.id == victim || counts == (0, 0),
                "node {} found damage where nothing rots: {counts:?}",
                node.id
            );
            assert!(
                status.failed.is_empty() || node.may_fail,
                "node {} steps back without a reason: {}",
                node.id,
                status.failed
            );
        }
    }
}

impl World {
    /// Where nothing rots, the map of a node refers to nothing but blocks that are there.
    pub(crate) fn check_blocks(&mut self, id: NodeId) {
        let node = &self.nodes[id.0 as usize - 1];
        let Some(core) = &node.core else {
            return;
        };
        if id == self.victim() || self.now < node.unreadable_until {
            return;
        }
        let (map, reader) = core.readers();
        let mut blocks = map.live_blocks(None);
        let mut data = Vec::new();
        while let Some(found) = blocks.next_block().unwrap() {
            // What is left of a former state, which an image replaces.
            if map.is_incomplete(found.group) {
                continue;
            }
            let size = map
                .layer_block_size(found.group, found.layer)
                .unwrap()
                .unwrap_or(0);
            data.resize(size as usize, 0);
            let extent = found.extent;
            let read = reader.read_block(extent.place, extent.checksum, &mut data);
            assert!(
                read.is_ok(),
                "node {id} refers to a block that is not there: {read:?}"
            );
        }
    }
}

/// The message of a frame that has one.
fn consensus(bytes: &[u8]) -> Option<(GroupId, Message)> {
    const CONSENSUS: u8 = 3;
    let from = &mut esker_coding::Reader::new(bytes);
    let is_consensus = from.u8()? == CONSENSUS;
    let group = is_consensus.then(|| from.varint()).flatten()?;
    let is_accept = bytes.get(1 + varint_bytes(group)) == Some(&2);
    if is_accept {
        return None;
    }
    Some((GroupId(u16::try_from(group).ok()?), Message::decode(from)?))
}

/// Bytes of a number's encoding.
fn varint_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}
