//! Blocks whose bytes on this disk are damaged are fetched from another replica, by their checksum,
//! and written anew. The read that met the damage goes on then.

use std::collections::{BTreeMap, VecDeque};

use super::running::RunningRead;
use crate::ids::{GroupId, LayerId, NodeId};
use crate::place::Place;

/// How long a replica may take to answer, in milliseconds.
pub(super) const PATIENCE: u64 = 2_000;
/// How often all replicas are asked again, and after how many milliseconds: one may not know yet
/// that what it was sent is chosen.
pub(super) const ROUNDS: u32 = 10;
pub(super) const PAUSE: u64 = 100;
/// More damaged blocks than this are not healed within one read.
pub(super) const MOST_TRIES: u32 = 4_096;

/// A damaged block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) group: GroupId,
    pub(super) layer: LayerId,
    pub(super) block: u64,
    pub(super) checksum: u64,
    pub(super) place: Place,
}

/// A block that other replicas are asked for, one after the other.
pub(super) struct Asked {
    pub(super) wanted: Wanted,
    pub(super) left: Vec<NodeId>,
    pub(super) since: u64,
    /// All were asked so many times, and did not have it.
    pub(super) rounds: u32,
    /// None is asked now.
    pub(super) is_paused: bool,
    /// The read that goes on then; none for scrub.
    pub(super) read: Option<(u64, RunningRead)>,
}

/// The blocks that are being healed.
#[derive(Default)]
pub(super) struct Healing {
    pub(super) next: u64,
    pub(super) asked: BTreeMap<u64, Asked>,
    pub(super) moves: VecDeque<Move>,
    /// Blocks that were healed since the start.
    pub(super) healed: u64,
    /// Blocks that no replica had.
    pub(super) lost: u64,
}

impl Healing {
    /// Gives up what is being healed: the reads that wait for it.
    pub(super) fn take_reads(&mut self) -> Vec<(u64, RunningRead)> {
        let moves = std::mem::take(&mut self.moves).into_iter();
        let asked = std::mem::take(&mut self.asked).into_values();
        let moves = moves.filter_map(|moved| moved.read);
        moves.chain(asked.filter_map(|asked| asked.read)).collect()
    }
}

/// A block that was written anew and is not durable yet.
pub(super) struct Move {
    pub(super) end: u64,
    pub(super) wanted: Wanted,
    pub(super) to: Place,
    /// Its bytes were damaged.
    pub(super) heals: bool,
    pub(super) read: Option<(u64, RunningRead)>,
}
