//! Random lives of a log, with faults, restarts and power cuts in between: what was synced is found
//! again, of the rest a prefix.

use std::sync::Arc;

use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

use super::common::{Seen, Written, append, formatted, open, segment, settings};
use crate::extents::{Extents, Kind, Settings};

struct Run {
    rng: fastrand::Rng,
    fs: Memory,
    settings: Settings,
    /// What is or may be in the log.
    all: Vec<Written>,
    /// The LSN up to which a batch has returned.
    done: u64,
}

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

impl Run {
    fn copy(&mut self) -> Memory {
        self.fs.power_cut(0, PowerCut::Kept)
    }

    /// Opens, perhaps after starts that failed, and compares.
    fn open(&mut self) -> (Extents, Faulty) {
        while self.rng.u32(..3) == 0 {
            let faulty = Faulty::new(Arc::new(self.fs.clone()));
            faulty.fail_from(self.rng.u64(1..12));
            faulty.short_writes(self.rng.bool());
            let _ = open(Arc::new(faulty), self.settings, None);
            if self.rng.bool() {
                self.cut();
            }
        }
        let copy = self.copy();
        let (_, all) = open(Arc::new(copy), self.settings, None).unwrap();
        let from = self
            .rng
            .u32(..self.all.last().map_or(0, |r| r.place.segment) + 2);
        let copy = self.copy();
        let (_, later) = open(Arc::new(copy), self.settings, Some(from)).unwrap();
        let expected = all.records.iter().filter(|r| r.place.segment >= from);
        let expected: Vec<Written> = expected.cloned().collect();
        assert_eq!(later.records, expected, "from segment {from}");

        let faulty = Faulty::new(Arc::new(self.fs.clone()));
        let (extents, seen) = open(Arc::new(faulty.clone()), self.settings, None).unwrap();
        assert_eq!(seen, all);
        self.compare(&extents, seen);
        (extents, faulty)
    }

    fn compare(&mut self, extents: &Extents, seen: Seen) {
        assert_eq!(seen.losses, []);
        let found = seen.records.len();
        assert!(found <= self.all.len());
        assert_eq!(seen.records, self.all[..found]);
        // A last segment that was only begun is removed, perhaps by a start that failed then.
        let matters = |r: &&Written| !matches!(r.kind, Kind::Base | Kind::Sync);
        let mut lost = self.all[found..].iter().filter(matters);
        let lost = lost.find(|r| r.lsn_end <= self.done);
        assert_eq!(lost, None, "synced to {}", self.done);
        // What was found is durable now, except segments that were only begun.
        self.all.truncate(found);
        let segments = extents.segments();
        let exists = |number| segments.iter().any(|s| s.number == number);
        self.all.retain(|r| exists(r.place.segment));
        // Each segment begins with what all groups need.
        for s in &segments {
            let records = self.all.iter().filter(|r| r.place.segment == s.number);
            let kinds: Vec<Kind> = records.map(|r| r.kind).take(4).collect();
            assert!(kinds.len() > 3 && kinds[..3] == [Kind::Base; 3], "{s:?}");
        }
        self.done = extents.end();
        assert_eq!(extents.synced(), extents.end());
        for s in &segments {
            let bytes = self.fs.read(&segment(s.number)).unwrap().len() as u64;
            assert_eq!(s.bytes, bytes);
        }
        let reader = extents.reader();
        for r in &self.all {
            let (_, payload) = reader.read_record(r.place).unwrap();
            assert_eq!(payload, r.payload);
        }
    }

    fn cut(&mut self) {
        let mode = MODES[self.rng.usize(..4)];
        self.fs = self.fs.power_cut(self.rng.u64(..), mode);
    }

    /// Appends, writes and removes at random, until something fails or it is enough.
    fn live(&mut self) {
        let (mut extents, faulty) = self.open();
        if self.rng.u32(..4) == 0 {
            faulty.fail_at(self.rng.u64(1..30));
            faulty.short_writes(self.rng.bool());
        }
        let mut batches = std::collections::VecDeque::new();
        let steps = self.rng.usize(..80);
        for _ in 0..steps {
            match self.rng.u32(..10) {
                0..6 => append(&mut extents, &mut self.rng, &mut self.all),
                6 => batches.extend(extents.take_batch()),
                7 | 8 => {
                    let Some(batch) = batches.pop_front() else {
                        continue;
                    };
                    let ahead = batch.ahead();
                    match batch.run() {
                        Ok(end) => {
                            self.done = end;
                            extents.batch_done(end);
                            if self.rng.bool() && ahead.run().is_err() {
                                return;
                            }
                        }
                        Err(_) => {
                            assert!(batches.drain(..).all(|batch| batch.run().is_err()));
                            return;
                        }
                    }
                }
                _ => {
                    for info in extents.segments() {
                        if self.rng.u32(..4) != 0 {
                            continue;
                        }
                        match extents.remove(info.number) {
                            Ok(()) => {
                                assert!(info.is_removable);
                                self.all.retain(|r| r.place.segment != info.number);
                            }
                            Err(_) if !info.is_removable => {}
                            // The fault: the file may be there or not.
                            Err(_) => {
                                let is_there = self.fs.read(&segment(info.number)).is_some();
                                let number = info.number;
                                self.all.retain(|r| is_there || r.place.segment != number);
                                if is_there {
                                    return;
                                }
                            }
                        }
                    }
                    self.fs_sync();
                }
            }
        }
    }

    /// The model does not know removals that a power cut may undo.
    fn fs_sync(&self) {
        use esker_fs::Fs;
        self.fs.sync_dir(super::common::dir()).unwrap();
    }
}

#[test]
fn what_was_synced_is_found_again() {
    for seed in esker_sim::seeds(esker_sim::by_tier(200, 1000)) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let segment_bytes = [600, 3000, 20_000, 1 << 20][rng.usize(..4)];
        let mut run = Run {
            rng,
            fs: formatted(),
            settings: settings(segment_bytes),
            all: Vec::new(),
            done: 0,
        };
        for _ in 0..6 {
            run.live();
            if run.rng.u32(..3) != 0 {
                run.cut();
            }
        }
        run.open();
    }
}
