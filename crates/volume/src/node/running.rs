//! What is under way within a node.

use std::collections::BTreeMap;

use super::input::{ConnectionId, ReadWork};
use super::leader::Origin;
use crate::body::Body;
use crate::consensus::Time;
use crate::ids::{GroupId, NodeId, Slot};

/// Commands that came with a message, by slot.
pub(super) type Bodies = BTreeMap<Slot, Body>;

/// What a read is for.
pub(super) enum ReadFor {
    /// The answer to a request.
    Origin(Origin),
    /// A part of a block is merged with what was read.
    Merge(GroupId),
    /// A request that asked for what this node has, and when that was all.
    Local(ConnectionId, u64, Option<Time>),
    /// Another replica's damaged block: its node, and the number of its question.
    Fetch(NodeId, u64),
    /// A piece of an image for another replica, and the image's number.
    Piece(NodeId, u64),
    /// Vacuum, scrub, flushes and merges.
    Upkeep,
}

/// A read that is running, or that waits for a block to be healed.
pub(super) struct RunningRead {
    pub(super) whom: ReadFor,
    pub(super) work: ReadWork,
    /// How often it was tried again after a block was healed.
    pub(super) tries: u32,
}
