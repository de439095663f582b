//! The log of a group, without commands, and the members that are in force.

use std::collections::VecDeque;
use std::sync::Arc;

use super::message::Meta;
use crate::ids::{Ballot, Slot};
use crate::members::Members;

/// The log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Metas {
    base: (Slot, Ballot),
    entries: VecDeque<Meta>,
    /// The members by the slot from which on they are in force; the first as of the base.
    members: Vec<(Slot, Arc<Members>)>,
}

impl Metas {
    pub(super) fn new(base: (Slot, Ballot), members: Arc<Members>) -> Metas {
        let members = vec![(base.0, members)];
        Metas {
            base,
            entries: VecDeque::new(),
            members,
        }
    }

    /// The last entry before the log.
    pub(super) fn base(&self) -> (Slot, Ballot) {
        self.base
    }

    /// The last entry, or the base.
    pub(super) fn last(&self) -> (Slot, Ballot) {
        self.entries
            .back()
            .map_or(self.base, |meta| (meta.slot, meta.ballot))
    }

    fn index(&self, slot: Slot) -> Option<usize> {
        usize::try_from(slot.0.checked_sub(self.base.0.0)?.checked_sub(1)?).ok()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Meta> {
        self.entries.get(self.index(slot)?)
    }

    /// The ballot of the entry at `slot`, or of the base.
    pub(super) fn ballot_at(&self, slot: Slot) -> Option<Ballot> {
        if slot == self.base.0 {
            Some(self.base.1)
        } else {
            self.get(slot).map(|meta| meta.ballot)
        }
    }

    /// Appends the next entry. False where it is not the next one.
    pub(super) fn push(&mut self, meta: Meta) -> bool {
        if meta.slot != self.last().0.next() {
            return false;
        }
        if let Some(members) = &meta.members {
            self.members.push((meta.slot, members.clone()));
        }
        self.entries.push_back(meta);
        true
    }

    /// Removes the entries from `slot` on.
    pub(super) fn truncate(&mut self, slot: Slot) {
        if let Some(index) = self.index(slot) {
            self.entries.truncate(index);
            let base = self.base.0;
            self.members
                .retain(|(from, _)| *from < slot || *from == base);
        }
    }

    /// Forgets the entries up to `slot`.
    pub(super) fn cut(&mut self, slot: Slot) {
        while self.base.0 < slot {
            let Some(meta) = self.entries.pop_front() else {
                break;
            };
            self.base = (meta.slot, meta.ballot);
        }
        let base = self.base.0;
        while self.members.get(1).is_some_and(|(from, _)| *from <= base) {
            self.members.remove(0);
        }
        if let Some(first) = self.members.first_mut() {
            first.0 = base;
        }
    }

    /// The members in force.
    pub(super) fn members(&self) -> &Arc<Members> {
        // There is one as of the base.
        match self.members.last() {
            Some((_, members)) => members,
            None => unreachable_members(),
        }
    }

    /// The members in force as of the entry at `slot`, or of the base.
    pub(super) fn members_at(&self, slot: Slot) -> &Arc<Members> {
        let behind = self.members.partition_point(|(from, _)| *from <= slot);
        match self.members.get(behind.saturating_sub(1)) {
            Some((_, members)) => members,
            None => unreachable_members(),
        }
    }

    /// The members that were in force before.
    pub(super) fn members_before(&self) -> Option<&Arc<Members>> {
        let before = self.members.len().checked_sub(2)?;
        self.members.get(before).map(|(_, members)| members)
    }

    /// The slot of the entry that put them in force, or the base.
    pub(super) fn members_since(&self) -> Slot {
        self.members.last().map_or(self.base.0, |(from, _)| *from)
    }
}

/// A group without members has no leader.
fn unreachable_members() -> &'static Arc<Members> {
    static NONE: std::sync::OnceLock<Arc<Members>> = std::sync::OnceLock::new();
    debug_assert!(false, "members are known as of the base");
    NONE.get_or_init(Arc::default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DiskId, NodeId};
    use crate::members::{Member, Role};

    #[test]
    fn members_are_known_as_of_each_slot() {
        let of = |node: u32| {
            Arc::new(Members::new([Member {
                node: NodeId(node),
                disk: DiskId(node.into()),
                address: String::new(),
                role: Role::Voter,
            }]))
        };
        let mut log = Metas::new((Slot(3), Ballot(1)), of(1));
        for (slot, members) in [(4, None), (5, Some(of(2))), (6, None)] {
            assert!(log.push(Meta {
                slot: Slot(slot),
                ballot: Ballot(1),
                bytes: 0,
                members,
            }));
        }
        for (slot, node) in [(1, 1), (3, 1), (4, 1), (5, 2), (6, 2), (9, 2)] {
            assert_eq!(*log.members_at(Slot(slot)), of(node), "slot {slot}");
        }
        assert_eq!(*log.members(), of(2));
    }
}
