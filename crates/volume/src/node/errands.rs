//! What a node does on its own: carries out the system group's to-do list, ends sessions of nodes
//! that are gone, spreads leaders, tells nodes of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::Command;
use crate::ids::{GroupId, NodeId, SessionId};
use crate::system::SystemCommand;

/// When each periodic task ran last.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    pub(super) announced: u64,
    pub(super) spread: u64,
    pub(super) ended: u64,
}

/// Milliseconds between two rounds of telling unformed nodes.
pub(super) const TELL: u64 = 200;
/// Milliseconds after which the end of a session is proposed again, where it is still open.
pub(super) const END_AGAIN: u64 = 5_000;
/// A disk that takes so many milliseconds for a batch hangs.
pub(super) const HANGS: u64 = 2_000;
/// Milliseconds between two looks at how leaders are spread.
pub(super) const SPREAD: u64 = 2_000;
/// For so many milliseconds no leadership is handed to a node that did not take one over.
pub(super) const DECLINED: u64 = 60_000;

/// An errand of the system group's list: of which item, and in which group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub(super) group: GroupId,
    pub(super) command: Vec<u8>,
}

impl Step {
    pub(super) fn of_system(command: &SystemCommand) -> Step {
        let mut bytes = Vec::new();
        Command::System(command.encode()).encode(&mut bytes);
        Step {
            group: GroupId::SYSTEM,
            command: bytes,
        }
    }
}

/// The errands under way.
#[derive(Debug, Default)]
pub(super) struct Errands {
    pub(super) next: u64,
    /// Errands of the list, by key.
    pub(super) running: BTreeMap<u64, Step>,
    /// Steps of the list that are done, until the list changes.
    pub(super) done: BTreeSet<Step>,
    /// There may be something to begin: the list, what of it is done, or the leader has changed.
    pub(super) is_changed: bool,
    /// When the end of a session was proposed, in which group.
    pub(super) ended: BTreeMap<(GroupId, SessionId), u64>,
    /// The last life of each node that was linked.
    pub(super) lives: BTreeMap<NodeId, u64>,
    /// The group that was handed over last, and to which node.
    pub(super) handed: Option<(GroupId, NodeId)>,
    /// Nodes that did not take a group over, and since when.
    pub(super) declined: BTreeMap<NodeId, u64>,
}

impl Errands {
    /// The system group's state has changed.
    pub(super) fn system_changed(&mut self) {
        self.is_changed = true;
    }
}
