//! Repairs, changes of definitions, and datasets that come and go.

use std::ops::ControlFlow;
use std::time::Duration;

use esker::maintain::{Compaction, Lookups};
use esker::maintain::{RepairMethod, RepairOptions};
use esker::schema::Maintenance;
use esker::{Database, ErrorKind, IndexKind};

use super::pairs::PAIR;
use super::{Alarm, NAMES, Shared, TYPES, definition};
use crate::action::PATHS;
use crate::common::path;

impl Shared {
    pub(super) fn keep_up(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let busy = [ErrorKind::Busy, ErrorKind::BadInput, ErrorKind::Exists];
        while self.goes_on() {
            let all = [NAMES, PAIR].concat();
            let Ok(dataset) = db.dataset::<esker::Key>(all[rng.usize(0..all.len())]) else {
                break;
            };
            let mut left = [usize::MAX, usize::MAX, 0, 2][rng.usize(0..4)];
            let mut go = || {
                left = left.saturating_sub(1);
                if left > 0 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            };
            let at = rng.usize(0..PATHS.len());
            let kind = IndexKind::ALL[rng.usize(0..IndexKind::ALL.len())];
            match rng.usize(0..12) {
                0 => drop(self.decide(db.compact(None), &[])),
                1 | 2 => drop(self.decide(db.flush(), &[])),
                3 | 4 => {
                    let methods = [
                        RepairMethod::Auto,
                        RepairMethod::Key,
                        RepairMethod::Index,
                        RepairMethod::Primary {
                            compaction: Compaction::After,
                        },
                    ];
                    let options = RepairOptions {
                        method: methods[rng.usize(0..methods.len())],
                        memory: [1, 1 << 20][rng.usize(0..2)],
                        threads: rng.usize(1..3),
                        lookups: [Lookups::Auto, Lookups::Points][rng.usize(0..2)],
                        ..RepairOptions::default()
                    };
                    self.decide(dataset.repair(&options).on_progress(|_| go()).run(), &busy);
                }
                5 => drop(
                    self.decide(
                        dataset
                            .add_index(path(PATHS[at]), esker::Index::new(kind).of_type(TYPES[at]))
                            .on_progress(|_| go())
                            .run(),
                        &busy,
                    ),
                ),
                6 => drop(
                    self.decide(
                        dataset
                            .switch_index(path(PATHS[at]), kind)
                            .on_progress(|_| go())
                            .run(),
                        &busy,
                    ),
                ),
                7 => drop(self.decide(dataset.drop_index(path(PATHS[at])), &busy)),
                8 => drop(self.decide(dataset.resume_index().on_progress(|_| go()).run(), &busy)),
                9 => {
                    let to = Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())];
                    self.decide(
                        dataset.set_maintenance(to).on_progress(|_| go()).run(),
                        &busy,
                    );
                }
                _ => self.other(db, &format!("x{}", seed % 10), &mut rng),
            }
        }
    }

    /// A dataset that comes, is written to, gets another name, and goes.
    pub(super) fn other(&self, db: &Database, name: &str, rng: &mut fastrand::Rng) {
        let Some(dataset) = self.decide(
            db.create_dataset::<esker::Key>(name, definition(rng)),
            &[ErrorKind::Exists],
        ) else {
            // It could not be dropped the last time.
            self.decide(
                db.drop_dataset(name),
                &[ErrorKind::Busy, ErrorKind::UnknownDataset],
            );
            return;
        };
        for id in 0..rng.u64(0..30) {
            let body = format!("{{\"id\":{},\"a\":{id}}}", id % 9);
            if self
                .decide(dataset.put_json(body.as_bytes()), &[])
                .is_none()
            {
                return;
            }
        }
        let rows = dataset.query().count();
        let to = format!("y{name}");
        let renamed = db.rename_dataset(name, &to);
        // The one that had this name could not be dropped the last time.
        if matches!(&renamed, Err(error) if error.kind() == ErrorKind::Exists) {
            self.decide(db.drop_dataset(&to), &[ErrorKind::Busy]);
        }
        let renamed = self.decide(renamed, &[ErrorKind::Busy, ErrorKind::Exists]);
        if renamed.is_some()
            && let Some(rows) = self.decide(rows, &[])
            && let Some(now) = self.decide(dataset.query().count(), &[])
        {
            assert_eq!((dataset.name(), now), (to, rows));
        }
        let name = &dataset.name();
        drop(dataset);
        // Background maintenance may be at work in it.
        self.decide(db.drop_dataset(name), &[ErrorKind::Busy]);
        if db.dataset::<esker::Key>(name).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
            self.decide(db.drop_dataset(name), &[ErrorKind::Busy]);
        }
    }
}
