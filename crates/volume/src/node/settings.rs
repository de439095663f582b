//! What can be set of a node's core.

use std::collections::BTreeMap;

use crate::consensus;
use crate::ids::NodeId;

/// Settings of a node's core, with defaults for three machines in one room.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The nodes that form a cluster where none is formed yet, this one included, with their
    /// addresses.
    pub peers: BTreeMap<NodeId, String>,
    /// The identity of a cluster that this node forms: a random number.
    pub cluster_identity: u64,
    /// How many groups share the blocks of a cluster that this node forms.
    pub groups: u16,
    /// Seed of the random parts of election timeouts.
    pub seed: u64,
    /// The protocol's times and windows.
    pub consensus: consensus::Settings,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes of memory for the map: its memtables and its cache.
    pub map_bytes: usize,
    /// The map flushes and compacts on threads of its own. Without, a run is deterministic.
    pub background: bool,
    /// Bytes of commands in memory over all groups.
    pub log_bytes: usize,
    /// Bytes of memory for all of the node. See [`Settings::within`].
    pub memory: usize,
    /// Segments of the log that are kept for replicas that are behind.
    pub log_segments: u32,
    /// The map is flushed when this many bytes were appended since the last time: it bounds what is
    /// read again at a start.
    pub flush_bytes: u64,
    /// Vacuum copies what is live when less than this share of the segments' bytes is, in percent.
    pub live_percent: u8,
    /// Bytes that vacuum, scrub and images may each move in a second.
    pub background_bytes: u64,
    /// The least number of this node's life: milliseconds of the calendar, for example. A node that
    /// gets an empty disk has a later life than before by this alone, so that its sessions are not
    /// taken for those of the former disk.
    pub first_life: u64,
    /// A node that was gone for so many milliseconds loses its sessions.
    pub session_loss: u64,
}

/// Parts of a node's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The map's memtables and its cache.
    pub map: usize,
    /// Requests of users, of NBD and of clients, with their answers.
    pub requests: usize,
    /// Commands of the log.
    pub log: usize,
    /// Commands that this node leads and that are not applied.
    pub led: usize,
    /// Commands that are being written, led by this node and by two others.
    pub writing: usize,
    /// Frames that wait for other nodes.
    pub frames: usize,
    /// Pieces of images.
    pub images: usize,
}

impl Shares {
    /// The shares of so many bytes. A quarter is left for what is no data: the program, stacks of
    /// threads, and memory that was freed and is not used again yet, of which each thread has its
    /// own.
    fn of(memory: usize) -> Shares {
        let part = memory / 4 * 3 / 64;
        Shares {
            map: 20 * part,
            requests: 16 * part,
            log: 10 * part,
            led: 3 * part,
            writing: 9 * part,
            frames: 6 * part,
            images: 3 * part,
        }
    }
}

/// The bytes of memory of a node where nothing else is said.
pub const MEMORY: usize = 256 << 20;

impl Settings {
    /// These settings for a node that uses at most so many bytes. Of three quarters of them 20 of
    /// 64 parts are for the map, 16 for requests, 10 for the log, 9 for what is being written, 6
    /// for frames to other nodes, 3 for images; the last quarter is for what is no data.
    pub fn within(self, memory: usize) -> Settings {
        let shares = Shares::of(memory);
        Settings {
            memory,
            map_bytes: shares.map,
            log_bytes: shares.log,
            ..self
        }
    }

    /// The parts of the memory.
    pub fn shares(&self) -> Shares {
        Shares::of(self.memory)
    }

    /// How many groups share the memory for commands.
    pub(super) fn group_count(&self, formation: Option<&crate::wire::Formation>) -> usize {
        usize::from(formation.map_or(self.groups, |formation| formation.groups)) + 1
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            peers: BTreeMap::new(),
            cluster_identity: 1,
            groups: 8,
            seed: 0,
            consensus: consensus::Settings::default(),
            segment_bytes: 64 << 20,
            map_bytes: Shares::of(MEMORY).map,
            background: true,
            log_bytes: Shares::of(MEMORY).log,
            memory: MEMORY,
            log_segments: 4,
            flush_bytes: 256 << 20,
            live_percent: 50,
            background_bytes: 64 << 20,
            first_life: 1,
            session_loss: 10_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_the_whole() {
        let shares = Settings::default().shares();
        let Shares {
            map,
            requests,
            log,
            led,
            writing,
            frames,
            images,
        } = shares;
        // What is led is in the log, too.
        assert_eq!(
            map + requests + log + writing + frames + images,
            Settings::default().memory / 4 * 3
        );
        assert_eq!(3 * led, writing);
        let small = Settings::default().within(64 << 20);
        let data = 48 << 20;
        assert_eq!(small.map_bytes, data / 64 * 20);
        assert_eq!(small.log_bytes, data / 64 * 10);
        assert_eq!(small.shares().requests, data / 4);
    }
}
