//! What can happen to a cluster. A run is a list of steps; any part of the list is a run, too, so
//! that failing ones can be made small.

use esker_sim::memory::PowerCut;
use esker_sim::world;

use super::traps::{Cue, Then};

/// What a run begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Seed of delays and losses.
    pub(crate) seed: u64,
    pub(crate) nodes: u32,
    /// One more node has an empty disk, and may become a member.
    pub(crate) spare: bool,
    pub(crate) groups: u16,
    pub(crate) block_size: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) flush_bytes: u64,
    pub(crate) log_segments: u32,
    /// Bytes of entries that are under way to a follower, and of one message.
    pub(crate) window: u32,
    pub(crate) message: u32,
    pub(crate) live_percent: u8,
    /// Of a thousand frames, how many are lost, come twice, come out of order.
    pub(crate) lost: u32,
    pub(crate) twice: u32,
    pub(crate) late: u32,
    /// Milliseconds that frames and syncs take at most.
    pub(crate) delay: u64,
    pub(crate) sync: u64,
    /// After how many milliseconds the sessions of a node that is cut off end.
    pub(crate) session_loss: u64,
    /// Reads by lease are allowed.
    pub(crate) lease: bool,
    /// Clocks run wildly: reads by lease may be stale.
    pub(crate) wild: bool,
}

/// A step: what happens, so many milliseconds after the step before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) after: u64,
    pub(crate) what: What,
}

/// Sectors of a volume that clients share: an area, where in it, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct At {
    pub(crate) volume: u8,
    pub(crate) area: u8,
    pub(crate) from: u8,
    pub(crate) count: u8,
}

/// Through which connection, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) node: u8,
    pub(crate) connection: u8,
    pub(crate) wait: u16,
    pub(crate) direct: bool,
}

/// Nodes are numbers modulo those that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Write(By, At),
    Discard(By, At),
    Read(By, At),
    ReadLocal(By, At),
    /// A client's connection ends, and it has another one from now on.
    Hang(u8, u8),
    /// Power is cut, and comes back after some milliseconds. Before, the disk does so many more
    /// calls.
    Crash(u8, PowerCut, u8, u16),
    /// Power is cut everywhere at once, and comes back after some milliseconds, not everywhere at
    /// the same time.
    Blackout(PowerCut, u8, u16),
    /// No frames go from one node to another for some milliseconds.
    Block(u8, u8, u16),
    /// A node is cut off in both directions.
    Isolate(u8, u16),
    /// When a node sends such a message, after so many others, something happens to it.
    Trap(u8, Cue, u8, Then),
    /// The leader of a group is cut off for some milliseconds, and asked for what others write. It
    /// hands over before.
    Duel(u8, u16, bool),
    /// Several things come together: which, and for which group or volume.
    Plot(u8, u8),
    /// Three elections of a group, while entries are lost. The leader that comes back sends so many
    /// messages, and its power is cut so long.
    ThreeElections(u8, u8, u16),
    /// The disk of a group's leader is slow; then its map is written, and its power is cut for some
    /// milliseconds.
    FlushCut(u8, u16, u16),
    /// The connection from a node to another breaks.
    Break(u8, u8),
    /// A node stands still, its clock does not.
    Pause(u8, u16),
    /// The next syncs take so long.
    Slow(u8, u16),
    /// The next sync fails.
    FailSync(u8),
    /// The next sync of zeros that are written ahead fails, and the node hears of that so many
    /// milliseconds later.
    FailAhead(u8, u16),
    /// The disk has room for so many more bytes, for some milliseconds.
    Full(u8, u16, u16),
    /// From so many reads of the disk on, none succeeds for some milliseconds; only that one fails
    /// where they are none. The victim's disk cannot read its bytes, any other lacks descriptors.
    Unreadable(u8, u8, u16),
    /// A node is stopped as a process is, and started again after some milliseconds.
    Restart(u8, u16),
    /// Bytes of segments of the victim's disk change.
    Rot(u8),
    /// Bytes of a file of the victim's map change.
    RotMap(u8),
    /// The clock's speed, in thousandths.
    Clock(u8, u16),
    /// A group's leader hands over.
    Transfer(u8, u8),
    Scrub(u8),
    /// A snapshot of a volume.
    Snapshot(u8),
    /// A clone of a snapshot that was read.
    Clone(u8),
    /// A snapshot goes.
    Forget(u8),
    /// The victim gets an empty disk.
    Replace,
    /// A node that is no member becomes one: with an empty disk, or with the one that it had.
    Join(bool),
    /// A member is removed.
    Leave(u8),
    /// A volume is created, under one of a few names.
    Create(u8),
    /// A volume gets a larger size.
    Grow(u8),
    /// A volume gets another name.
    Rename(u8),
    /// A volume is deleted.
    Delete(u8),
}

impl world::Action for Step {
    fn weight(&self) -> usize {
        1 + self.after as usize
    }

    fn shrink(&mut self, fails: &mut dyn FnMut(&Step) -> bool) {
        for after in [0, self.after / 2] {
            let step = Step {
                after,
                ..self.clone()
            };
            if after < self.after && fails(&step) {
                *self = step;
                return;
            }
        }
    }
}
