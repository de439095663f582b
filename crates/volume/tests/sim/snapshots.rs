//! Snapshots and clones: what takes several requests is asked for again until it is done.

use std::ops::Range;

use esker_volume::system::{SystemCommand, SystemOutcome};

use super::action::By;
use super::clients::{Answered, Kind, Volume};
use super::world::World;

/// A snapshot.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) name: String,
    pub(crate) volume: usize,
    /// The volume's areas and size then.
    areas: Vec<Range<u64>>,
    size: u64,
    /// When it was asked for first, and when it was known to be done.
    pub(crate) asked: Option<u64>,
    pub(crate) done: Option<u64>,
    call: Option<usize>,
    reads: Vec<usize>,
    /// Sectors of the areas that are used, and what they have; empty before it was read.
    pub(crate) contents: Vec<(u64, u64)>,
    clone: Option<Cloning>,
    /// It is being deleted.
    is_gone: bool,
}

#[derive(Debug)]
struct Cloning {
    name: String,
    call: Option<usize>,
    is_done: bool,
}

/// Most snapshots of a run.
const MOST: usize = 4;

impl Taken {
    /// It, or its clone, is not finished.
    fn is_open(&self) -> bool {
        self.contents.is_empty() || self.clone.as_ref().is_some_and(|clone| !clone.is_done)
    }
}

impl World {
    pub(crate) fn take_snapshot(&mut self, volume: u8) {
        if self.snapshots.len() < MOST {
            let volume = usize::from(volume) % self.volumes.len();
            // Its name and size stay as they are meanwhile.
            if self.volumes[volume].is_deleted || self.is_ordered(volume) {
                return;
            }
            self.snapshots.push(Taken {
                name: format!("s{}", self.snapshots.len()),
                volume,
                areas: self.areas(volume),
                size: self.volumes[volume].size,
                ..Taken::default()
            });
        }
    }

    pub(crate) fn make_clone(&mut self, number: u8) {
        let count = self.snapshots.len();
        let at = usize::from(number) % count.max(1);
        let volume = self.snapshots.get(at).map(|taken| taken.volume);
        if volume.is_none_or(|volume| self.is_ordered(volume)) {
            return;
        }
        let taken = &mut self.snapshots[at];
        if !taken.contents.is_empty() && taken.clone.is_none() && !taken.is_gone {
            let name = format!("c{}", usize::from(number) % count);
            taken.clone = Some(Cloning {
                name,
                call: None,
                is_done: false,
            });
        }
    }

    /// Deletes a snapshot that was read, once.
    pub(crate) fn forget_snapshot(&mut self, number: u8) {
        let count = self.snapshots.len();
        let Some(taken) = self.snapshots.get_mut(usize::from(number) % count.max(1)) else {
            return;
        };
        let is_busy = taken.clone.as_ref().is_some_and(|clone| !clone.is_done);
        if taken.contents.is_empty() || taken.is_gone || is_busy {
            return;
        }
        taken.is_gone = true;
        let (snapshot, volume) = (taken.name.clone(), taken.volume);
        let volume = self.volumes[volume].name.clone();
        self.command(number, &SystemCommand::DeleteSnapshot { volume, snapshot });
    }

    /// A snapshot or clone of the volume is being made.
    pub(crate) fn is_being_copied(&self, volume: usize) -> bool {
        let mut all = self.snapshots.iter();
        all.any(|taken| taken.volume == volume && taken.is_open())
    }

    /// The volume goes, and its snapshots with it.
    pub(crate) fn forget_snapshots_of(&mut self, volume: usize) {
        let all = self.snapshots.iter_mut();
        all.filter(|taken| taken.volume == volume)
            .for_each(|taken| taken.is_gone = true);
    }

    pub(crate) fn poll_snapshots(&mut self) {
        for at in 0..self.snapshots.len() {
            if self.snapshots[at].done.is_none() {
                self.poll_taking(at);
            } else if self.snapshots[at].contents.is_empty() {
                self.poll_reading(at);
            }
            self.poll_clone(at);
        }
    }

    /// The answer of a command, where there is one.
    fn outcome(&self, call: Option<usize>) -> Option<&Answered> {
        self.calls[call?].answered.as_ref()
    }

    fn some_node(&mut self) -> u8 {
        self.random.u8(..8)
    }

    fn poll_taking(&mut self, at: usize) {
        let call = self.snapshots[at].call;
        if let Some(Answered::System(SystemOutcome::Ok(Some(info)))) = self.outcome(call)
            && info.is_ready
        {
            let responded = self.calls[call.unwrap()].responded;
            self.snapshots[at].done = Some(responded);
            return;
        }
        if call.is_none() || self.outcome(call).is_some() {
            let node = self.some_node();
            let volume = self.volumes[self.snapshots[at].volume].name.clone();
            let snapshot = self.snapshots[at].name.clone();
            let invoked = self.count;
            let call = self.command(node, &SystemCommand::Snapshot { volume, snapshot });
            self.snapshots[at].asked.get_or_insert(invoked);
            self.snapshots[at].call = call;
        }
    }

    fn poll_reading(&mut self, at: usize) {
        let reads = self.snapshots[at].reads.clone();
        if reads.iter().any(|read| self.calls[*read].is_pending()) {
            return;
        }
        let mut contents = Vec::new();
        for read in &reads {
            let call = &self.calls[*read];
            if let Some(Answered::Values(values)) = &call.answered {
                contents.extend(call.sectors.clone().zip(values.iter().copied()));
            }
        }
        let areas = self.snapshots[at].areas.iter();
        let all: u64 = areas.map(|area| area.end - area.start).sum();
        if contents.len() as u64 == all {
            self.snapshots[at].contents = contents;
            return;
        }
        let node = self.some_node();
        let by = By {
            node,
            connection: 6,
            wait: 5000,
            direct: false,
        };
        self.snapshots[at].reads = self.read_snapshot(at, by);
    }

    /// The size of a snapshot, which is that of its volume when it began to be made: the volume may
    /// have been growing then.
    fn note_size(&mut self, at: usize, size: u64) {
        let volume = self.snapshots[at].volume;
        let areas = self.areas_within(size);
        let most = self.volumes[volume].most;
        let taken = &mut self.snapshots[at];
        if taken.contents.is_empty() {
            assert!(size == taken.size || size == most, "{taken:?} has {size}");
            (taken.size, taken.areas) = (size, areas);
        }
        assert_eq!(size, taken.size, "{taken:?}");
    }

    /// Asks for all sectors of a snapshot that are used.
    fn read_snapshot(&mut self, at: usize, by: By) -> Vec<usize> {
        let id = self.pick(by.node);
        let taken = &self.snapshots[at];
        let name = format!("{}@{}", self.volumes[taken.volume].name, taken.name);
        let Some((map, _)) = self.node(id).core.as_ref().map(|core| core.readers()) else {
            return Vec::new();
        };
        let system = map.system();
        let Some(source) = system.source(&name) else {
            return Vec::new();
        };
        if let Some(shape) = system.shape(source) {
            self.note_size(at, shape.size);
        }
        let volume = self.snapshots[at].volume;
        let areas = self.snapshots[at].areas.clone();
        let reads = areas
            .into_iter()
            .map(|area| self.ask_source(by, Kind::Taken(at), (volume, area), source));
        reads.flatten().collect()
    }

    /// Reads all snapshots that there are, to be compared with what was read first.
    pub(crate) fn read_snapshots(&mut self, by: By) {
        for at in 0..self.snapshots.len() {
            if !self.snapshots[at].contents.is_empty() && !self.snapshots[at].is_gone {
                self.read_snapshot(at, by);
            }
        }
    }

    fn poll_clone(&mut self, at: usize) {
        let taken = &self.snapshots[at];
        let Some(clone) = taken.clone.as_ref().filter(|clone| !clone.is_done) else {
            return;
        };
        if let Some(Answered::System(SystemOutcome::Ok(Some(info)))) = self.outcome(clone.call)
            && info.is_ready
        {
            let written = taken.contents.iter().filter(|(_, value)| *value != 0);
            assert_eq!(info.size, taken.size, "a clone has its snapshot's size");
            let volume = Volume {
                first: written.copied().collect(),
                ..Volume::new(clone.name.clone(), info.id, info.size)
            };
            self.volumes.push(volume);
            if let Some(clone) = &mut self.snapshots[at].clone {
                clone.is_done = true;
            }
            return;
        }
        if clone.call.is_none() || self.outcome(clone.call).is_some() {
            let (name, snapshot) = (clone.name.clone(), taken.name.clone());
            let volume = self.volumes[taken.volume].name.clone();
            let node = self.some_node();
            let call = self.command(
                node,
                &SystemCommand::Clone {
                    volume,
                    snapshot,
                    name,
                },
            );
            if let Some(clone) = &mut self.snapshots[at].clone {
                clone.call = call;
            }
        }
    }

    /// A snapshot or clone that is not finished.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let open = |taken: &&Taken| taken.is_open();
        self.snapshots.iter().find(open).map(|taken| {
            let call = taken.call.map(|call| &self.calls[call]);
            format!("{taken:?} is not finished: {call:?}")
        })
    }

    /// A snapshot does not change.
    pub(crate) fn check_contents(&self) {
        for call in &self.calls {
            let (Kind::Taken(at), Some(Answered::Values(values))) = (&call.kind, &call.answered)
            else {
                continue;
            };
            let contents = &self.snapshots[*at].contents;
            for found in call.sectors.clone().zip(values.iter().copied()) {
                assert!(
                    contents.contains(&found),
                    "snapshot {at} has changed: {found:?}"
                );
            }
        }
    }
}
