//! Who reads: snapshots, those that are kept, backups, and another process beside.

use std::collections::BTreeMap;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use esker::{Database, DatasetDef, DatasetSnapshot, KeyType};
use esker_sim::memory::PowerCut;

use super::{Alarm, KEYS, NAMES, Shared, VALUES, options};
use crate::action::{ABSENT, ONE, PATHS};
use crate::common::DIR;
use crate::model::{key, row};

impl Shared {
    pub(super) fn read(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut held: Option<(DatasetSnapshot, DatasetDef)> = None;
        while self.goes_on() {
            let name = NAMES[rng.usize(0..NAMES.len())];
            let Ok(dataset) = db.dataset::<esker::Key>(name) else {
                break;
            };
            // A definition and a snapshot that fit: where nothing changed in between.
            let def = dataset.def();
            let snapshot = dataset.snapshot();
            if dataset.def() != def {
                continue;
            }
            self.decide(self.agree(&snapshot, &def, &mut rng), &[]);
            if let Some((snapshot, def)) = &held {
                self.decide(self.agree(snapshot, def, &mut rng), &[]);
            }
            if rng.usize(0..4) == 0 {
                held = Some((snapshot, def));
            }
        }
    }

    /// Keeps snapshots under names, and asks and drops them: each shows what it did at first, by
    /// whichever way it is asked.
    pub(super) fn keep(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut seen: BTreeMap<(String, &str), Vec<u64>> = BTreeMap::new();
        while self.goes_on() {
            let kept = format!("k{}", rng.usize(0..3));
            if db.kept_snapshot(&kept).is_err() {
                let result = db.keep_snapshot(&kept);
                if self.decide(result, &[]).is_none() {
                    continue;
                }
            }
            // It can be read on when it is dropped.
            let snapshot = db.kept_snapshot(&kept).unwrap();
            let drops = rng.usize(0..4) == 0;
            let dropped = drops.then(|| self.decide(db.drop_snapshot(&kept), &[]));
            for name in NAMES {
                let dataset = snapshot.dataset::<esker::Key>(name).unwrap();
                self.decide(self.agree(&dataset, &dataset.def(), &mut rng), &[]);
                let Some(records) = self.decide(self.scanned(&dataset), &[]) else {
                    return;
                };
                let shown: Vec<u64> = records.rows().map(|(_, seq, _)| seq).collect();
                let first = seen.entry((kept.clone(), name)).or_insert(shown.clone());
                assert_eq!(*first, shown, "{kept}");
            }
            if let Some(Some(())) = dropped {
                seen.retain(|(name, _), _| *name != kept);
            }
        }
    }

    /// Backs up, and lives on in the copy.
    pub(super) fn back_up(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        while self.goes_on() {
            let dest = PathBuf::from(format!("/copy-{}", self.copies.fetch_add(1, SeqCst)));
            let result = db.backup(&dest);
            if self.decide(result, &[]).is_none() {
                continue;
            }
            let image = self.memory.power_cut(seed, PowerCut::Kept);
            let options = options(&image, &self.clock, &mut rng);
            let copy = Database::open(&dest, options).unwrap();
            self.is_sound(&copy, &mut rng);
            copy.close().unwrap();
            for path in self.memory.paths() {
                if path.starts_with(&dest) {
                    let _ = esker::fs::Fs::remove(&self.memory, &path);
                }
            }
        }
    }

    /// Reads beside the writers, as another process does: it sees what is acknowledged, neither
    /// less nor more, and gives each commit once.
    pub(super) fn beside(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let open = || {
            let options = options(
                &self.memory,
                &self.clock,
                &mut fastrand::Rng::with_seed(seed),
            );
            Database::open_reader(FsPath::new(DIR), options).unwrap()
        };
        // It looks again before it begins, and what it would begin with may have been flushed.
        let follow = |reader: &Database| loop {
            match reader.group().tail(reader.group().position()) {
                Err(esker_lsm::Error::PositionExpired { .. }) => {}
                tail => break tail.unwrap(),
            }
        };
        let mut reader = open();
        let mut tail = follow(&reader);
        let mut goes_on = true;
        while goes_on {
            // Once more when the writers are through.
            goes_on = self.goes_on();
            let acknowledged = db.group().position();
            reader.refresh().unwrap();
            let seen = reader.group().position();
            assert!(acknowledged.seq <= seen.seq, "{acknowledged}, not {seen}");
            let name = NAMES[rng.usize(0..NAMES.len())];
            let dataset = reader.dataset::<esker::Key>(name).unwrap();
            let (snapshot, def) = (dataset.snapshot(), dataset.def());
            self.agree(&snapshot, &def, &mut rng).unwrap();
            let mut before = tail.position();
            let expired = loop {
                match tail.next() {
                    Ok(Some(commit)) => {
                        let mut first = u64::MAX;
                        commit.each(&mut |_, seq, _, _, _| first = first.min(seq));
                        assert!(before.seq < first, "{first} behind {before}");
                        before = commit.position();
                    }
                    Ok(None) => break false,
                    Err(esker_lsm::Error::PositionExpired { .. }) => break true,
                    Err(error) => panic!("{error}"),
                }
            };
            if rng.usize(0..16) == 0 {
                reader = open();
            } else if !expired {
                continue;
            }
            tail = follow(&reader);
        }
    }

    /// The store is sound, also after it was written to and merged.
    pub(super) fn is_sound(&self, db: &Database, rng: &mut fastrand::Rng) {
        for round in 0..3 {
            let report = db.check().unwrap();
            assert_eq!(report.errors, Vec::<String>::new(), "round {round}");
            for name in NAMES {
                let dataset = db.dataset::<esker::Key>(name).unwrap();
                let snapshot = dataset.snapshot();
                let def = dataset.def();
                self.agree(&snapshot, &def, rng).unwrap();
                if round == 1 {
                    for id in 0..KEYS / 2 {
                        let number = self.number.fetch_add(1, SeqCst);
                        let key = key(KeyType::Int, id * 2);
                        let mut cells = [ONE + id % 3; PATHS.len()];
                        // Its values may be unique.
                        cells[0] = ABSENT;
                        let made = row(&key, &VALUES, &cells, (9, 0, None), None, number);
                        dataset.put_json(made.put.body.as_bytes()).unwrap();
                        let mut all = self.made.lock().unwrap();
                        all.insert(number, (key, Arc::new(made)));
                    }
                }
            }
            if round == 1 {
                db.compact(None).unwrap();
            }
        }
    }
}
