//! What goes into a node's core, and what comes out.

use std::sync::Arc;

use crate::consensus::Time;
use crate::error::Error;
use crate::extents::Batch;
use crate::ids::{GroupId, LayerId, NodeId, VolumeId};
use crate::map::Image;
use crate::place::Place;
use crate::wire::{Change, Hello, Packet, Refusal, Reply, Source};

/// A connection of a user of volumes: of NBD, or of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What a user of a volume asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Read bytes, as they are at some moment between the question and the answer.
    Read {
        /// What is read.
        source: Source,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Read what this node has, which may be behind.
    ReadLocal {
        /// What is read.
        source: Source,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Which parts hold data.
    Allocation {
        /// What is looked at.
        source: Source,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Write bytes.
    Write {
        /// The volume.
        volume: VolumeId,
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<Vec<u8>>,
    },
    /// Make bytes read as zeros.
    Discard {
        /// The volume.
        volume: VolumeId,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// A command for the system group, encoded by `system`.
    System(Vec<u8>),
    /// A command for a group, encoded by `command`: a change of members, for example.
    Command(GroupId, Vec<u8>),
    /// The leader of a group hands over to another member.
    Transfer(GroupId, NodeId),
    /// A group's members change.
    Member(GroupId, Change),
}

/// How a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// How long the request may wait for a leader, in milliseconds. A discard that is long is asked
    /// for in parts, one after another; each may wait so long.
    pub wait: Time,
    /// Refused where this node does not lead the group, in place of being forwarded.
    pub direct: bool,
}

/// What happened.
pub enum Input {
    /// Time has passed. Wanted every ten milliseconds or so.
    Tick,
    /// A link to a node is up, from either side.
    Connected(Hello),
    /// No link to the node is left.
    Disconnected(NodeId),
    /// A frame from a node that has said hello.
    Frame(NodeId, Vec<u8>),
    /// The batch has ended: everything before this log sequence number is durable, or the disk
    /// failed.
    BatchDone(Result<u64, Error>),
    /// What may be done behind a batch ([`Ahead`](crate::extents::Ahead)) has failed: nothing more
    /// can be written.
    AheadFailed(Error),
    /// A read has ended.
    ReadDone(u64, Result<ReadResult, ReadFailure>),
    /// A user's connection begins.
    Open(ConnectionId),
    /// A user's connection has ended.
    Closed(ConnectionId),
    /// A user asks; the answer carries `ticket`.
    Request {
        /// The connection.
        connection: ConnectionId,
        /// Chosen by the user; comes back with the answer.
        ticket: u64,
        /// What is asked.
        work: Work,
        /// How.
        manner: Manner,
    },
}

/// What is to be done.
pub enum Action {
    /// Send a frame to a node. It may be lost.
    Send(NodeId, Packet),
    /// Run the batch on another thread; `Input::BatchDone` follows. There is one at a time.
    Batch(Batch),
    /// Run [`read`](super::reading::run) on another thread; `Input::ReadDone` with the number
    /// follows.
    Read(u64, ReadWork),
    /// The answer to a request.
    Answer {
        /// The connection.
        connection: ConnectionId,
        /// The request's ticket.
        ticket: u64,
        /// The answer.
        result: Result<Reply, Refusal>,
    },
    /// Links are wanted to these nodes, at these addresses.
    Peers(Vec<(NodeId, String)>),
    /// The user's session was forgotten by a group: end the connection.
    End(ConnectionId),
}

/// What is read from the disk of this node.
#[derive(Clone)]
pub struct ReadWork {
    /// The group.
    pub group: GroupId,
    /// What is read.
    pub kind: ReadKind,
}

/// What is read.
#[derive(Clone)]
pub enum ReadKind {
    /// Bytes of a volume or snapshot.
    Bytes {
        /// Of what.
        source: Source,
        /// Where.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// What is allocated there.
    Allocation {
        /// Of what.
        source: Source,
        /// Where.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// The newest block with this number and checksum, for another replica.
    Block {
        /// The layer.
        layer: LayerId,
        /// The block.
        block: u64,
        /// The checksum of its data.
        checksum: u64,
    },
    /// A piece of an image.
    Piece {
        /// The image.
        image: Arc<Image>,
        /// Where the piece begins.
        after: Option<Vec<u8>>,
    },
    /// Blocks of a segment that are live, for vacuum.
    Live {
        /// The segment.
        segment: u32,
        /// Where in it to begin.
        from: u32,
    },
    /// Blocks of the map, in its order, that are checked.
    Scrub {
        /// Behind which one to begin.
        after: Option<(GroupId, LayerId, u64)>,
    },
    /// The files of segments that nothing refers to are unlinked.
    Unlink {
        /// The segments.
        segments: Vec<u32>,
    },
    /// The map is written to tables.
    Flush,
    /// Layers of the map that are of no use any more are merged.
    Merge,
    /// What is left of a group's former state is removed, before an image is installed.
    Clear {
        /// The image.
        image: u64,
    },
}

/// A block that the map refers to, and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBlock {
    /// The group.
    pub group: GroupId,
    /// The layer.
    pub layer: LayerId,
    /// The block.
    pub block: u64,
    /// Where it is.
    pub place: Place,
    /// The checksum beside it, where there is one.
    pub checksum: Option<u64>,
    /// Its data, as they were read.
    pub data: Vec<u8>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadResult {
    /// A piece of an image, and where the next one begins.
    Piece(Vec<u8>, Option<Vec<u8>>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Lengths in bytes, and whether there is data.
    Runs(Vec<(u64, bool)>),
    /// Live blocks of a segment, and where the next ones begin.
    Live(Vec<LiveBlock>, Option<u32>),
    /// What scrub found.
    Scrubbed {
        /// Damaged blocks: group, layer, block, checksum, place.
        damaged: Vec<(GroupId, LayerId, u64, u64, Place)>,
        /// How many blocks were checked.
        checked: u64,
        /// The last of them; none where that was all.
        last: Option<(GroupId, LayerId, u64)>,
    },
    /// Some of the former state was removed, or all of it.
    Cleared {
        /// Nothing is left.
        is_all: bool,
    },
    /// It is done.
    Done,
}

/// Why it was not.
#[derive(Debug)]
pub enum ReadFailure {
    /// A block's bytes are not those that were written.
    Rot {
        /// The layer that has the block.
        layer: LayerId,
        /// The block.
        block: u64,
        /// The checksum of what was written.
        checksum: u64,
        /// Where the damaged bytes are.
        place: Place,
    },
    /// The volume or snapshot does not exist.
    NoVolume,
    /// The disk failed.
    Failed(Error),
}
