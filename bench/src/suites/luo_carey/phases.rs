//! What each child does.

use std::time::{Duration, Instant};

use esker::Order;
use esker::experimental::LookupOptions;
use esker::maintain::Compaction;
use esker::maintain::Validation;
use esker::maintain::{RepairMethod, RepairOptions};
use serde_json::Value as Json;

use super::{Method, Task, What};
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::run::Job;
use crate::suites::upkeep::session::{Limit, Parameters, Session};
use crate::suites::upkeep::store::{Cache, How, Range, Setup, Store, Strategy, Subject};
use crate::workload::upserts::{Skew, Upserts, VALUES};

/// Values of the ranges that are asked for, of 100,000: 0.001 % and up.
const WIDTHS: [u64; 6] = [1, 10, 100, 1_000, 10_000, 20_000];
/// Those of questions after upserts: 0.001 %, 0.1 %, 10 %.
const QUERY_WIDTHS: [u64; 3] = [1, 100, 10_000];
/// Ranges of time, in percent of all of it.
const TIME_SHARES: [f64; 2] = [1.0, 10.0];
/// Questions of a kind, at most.
const ASKED_MOST: u64 = 200;
/// And at least: the largest take long.
const ASKED_LEAST: u64 = 2;

/// Bytes of a batch that are tried.
const BATCHES: [usize; 5] = [16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Does the task.
pub fn run(job: &Job, task: &Task, upserts: &Upserts) -> Result<()> {
    let lab = |name: &str, setup: &Setup| -> Result<Lab<'_>> {
        let cache = Json::from(task.setup.cache.name());
        let parameters = Parameters::from([("cache".to_string(), cache)]);
        let dir = job.scratch.join(name);
        std::fs::create_dir_all(&dir)?;
        let session = Session::create(job, upserts, parameters, || Store::create(&dir, setup))?;
        Ok(Lab { task, session })
    };
    let mut store = lab("store", &task.setup)?;
    match task.what {
        What::Lookups => {
            let plain = Setup {
                blocked_filter: false,
                ..task.setup.clone()
            };
            store.lookups(lab("plain", &plain)?)
        }
        What::Inserts => store.inserts(),
        What::Upserts => store.upserts(),
        What::MergeSize => store.merge_size(),
        What::Indexes => store.indexes(),
        What::Queries => store.queries(),
        What::RangeFilter => store.range_filter(),
        What::Repair | What::RepairIndexes => store.repairs(),
    }
}

struct Lab<'j> {
    task: &'j Task,
    session: Session<'j, Store>,
}

impl<'j> Lab<'j> {
    fn limit(&self) -> Limit {
        Limit {
            most: ASKED_MOST,
            least: ASKED_LEAST,
            time: Duration::from_millis(self.task.ask_ms),
        }
    }

    /// Writes everything, and checks it: rows of a store that answers wrongly are not reported.
    fn ingest(&mut self, experiment: &str) -> Result<Row> {
        let row = match self.task.what {
            What::Inserts => self.session.insert(experiment, self.task.records)?,
            _ => self.session.upsert(experiment, self.task.records)?,
        };
        self.session.check()?;
        Ok(row)
    }

    /// Reports a row once for each kind of skew that it stands for: without updates, for both.
    fn report_by_skew(&self, mut row: Row) -> Result<()> {
        row.parameters
            .insert("updates".into(), self.task.updates.into());
        let skews = match self.task.updates {
            0 => vec![Skew::Uniform, Skew::Zipf],
            _ => vec![self.task.skew],
        };
        for skew in skews {
            row.parameters.insert("keys".into(), skew.name().into());
            self.session.report(&row)?;
        }
        Ok(())
    }

    fn upserts(&mut self) -> Result<()> {
        let row = self.ingest("upserts")?;
        self.report_by_skew(row)
    }

    fn inserts(&mut self) -> Result<()> {
        let mut row = self.ingest("inserts")?;
        row.parameters
            .insert("duplicates".into(), self.task.updates.into());
        self.session.report(&row)
    }

    fn merge_size(&mut self) -> Result<()> {
        let mut row = self.ingest("merge-size")?;
        row.parameters.insert(
            "largest".into(),
            ((self.task.largest * 1000.0).round() / 10.0).into(),
        );
        self.session.report(&row)
    }

    fn indexes(&mut self) -> Result<()> {
        let mut row = self.ingest("indexes")?;
        row.parameters
            .insert("indexes".into(), self.task.setup.indexes.into());
        self.session.report(&row)
    }

    /// With little memory a measurement begins with nothing in it; with much, with what the last of the
    /// questions left there.
    fn chill(&mut self) -> Result<()> {
        match self.task.setup.cache {
            Cache::Small => self.session.store.reopen(),
            Cache::All => Ok(()),
        }
    }

    /// Ranges of some values; what is counted as an operation gives whole records.
    fn find(
        &mut self,
        experiment: &str,
        width: u64,
        how: &How,
        more: &[(&str, Json)],
    ) -> Result<Row> {
        self.ask(experiment, "find", width, more, |store, range| {
            let (mut records, mut bytes) = (0, 0);
            store.visit(range, how, &mut |body| {
                records += 1;
                bytes += body.len();
            })?;
            std::hint::black_box(bytes);
            Ok(records)
        })
    }

    /// Asks about ranges of so many values, the same for every subject.
    fn ask(
        &mut self,
        experiment: &str,
        operation: &str,
        width: u64,
        more: &[(&str, Json)],
        ask: impl Fn(&Store, &Range) -> Result<u64>,
    ) -> Result<Row> {
        self.chill()?;
        let mut rng = self.session.rng(width);
        let ranges: Vec<Range> = (0..ASKED_MOST)
            .map(|_| self.session.range(&mut rng, width))
            .collect();
        let limit = self.limit();
        let warming = Instant::now();
        for range in ranges.iter().rev() {
            if self.task.setup.cache == Cache::Small || warming.elapsed() > limit.time / 10 {
                break;
            }
            ask(&self.session.store, range)?;
        }
        let mut next = ranges.iter().cycle();
        self.session
            .measure(experiment, operation, more, limit, |store| {
                next.next().map_or(Ok(0), |range| ask(store, range))
            })
    }

    /// Figure 10. Ways that are compared take turns; those with another kind of filter have a store of
    /// their own.
    fn lookups(&mut self, mut plain: Lab<'j>) -> Result<()> {
        self.ingest("lookups")?;
        plain.ingest("lookups")?;
        let way = |batch_bytes, stateful, hints| LookupOptions {
            batch_bytes,
            stateful,
            hints,
        };
        let batch = LookupOptions::default().batch_bytes;
        let ways = [
            ("naive", false, way(0, false, false)),
            ("+ batches", false, way(batch, false, false)),
            ("+ stateful search", false, way(batch, true, false)),
            ("+ blocked filters", true, way(batch, true, false)),
            ("+ component IDs", true, way(batch, true, true)),
        ];
        for width in WIDTHS {
            let more = [("percent", percent(width))];
            for (subject, blocked, lookup) in ways {
                let lab = match blocked {
                    true => &mut *self,
                    false => &mut plain,
                };
                let how = How {
                    lookup,
                    ..How::default()
                };
                let row = lab.find("lookups", width, &how, &more)?;
                lab.report_as(subject, row)?;
            }
            let row = self.scan("lookups", &more)?;
            self.report_as("scan", row)?;
        }
        for width in WIDTHS.into_iter().skip(2) {
            for batch_bytes in BATCHES {
                let more = [
                    ("percent", percent(width)),
                    ("batch", (batch_bytes as f64 / 1024.0).into()),
                ];
                let how = How {
                    lookup: way(batch_bytes, true, true),
                    ..How::default()
                };
                let row = self.find("batch-size", width, &how, &more)?;
                self.report_as(&format!("{} %", share(width)), row)?;
            }
            let more = [("percent", percent(width))];
            for (subject, lookup, order) in [
                ("naive, by key", way(0, true, true), Order::Key),
                ("batches, any order", way(batch, true, true), Order::Any),
                ("batches, by key", way(batch, true, true), Order::Key),
            ] {
                let how = How {
                    lookup,
                    order,
                    ..How::default()
                };
                let row = self.find("sorting", width, &how, &more)?;
                self.report_as(subject, row)?;
            }
            let row = self.ask("sorting", "find", width, &more, |store, range| {
                let mut records = 0;
                store.find(range, &mut |_| records += 1)?;
                Ok(records)
            })?;
            self.report_as("newest first", row)?;
        }
        Ok(())
    }

    fn report_as(&self, subject: &str, mut row: Row) -> Result<()> {
        row.subject = subject.to_string();
        self.session.report(&row)
    }

    /// Reads everything, once.
    fn scan(&mut self, experiment: &str, more: &[(&str, Json)]) -> Result<Row> {
        self.chill()?;
        let keys = self.session.current.keys() as u64;
        let limit = Limit {
            most: 1,
            least: 1,
            ..self.limit()
        };
        self.session
            .measure(experiment, "find", more, limit, |store| {
                let mut bytes = 0;
                let records = store.scan(&mut |body| bytes += body.len())?;
                std::hint::black_box(bytes);
                match records == keys {
                    true => Ok(records),
                    false => Err(Failure::new(format!("scanned {records} of {keys}"))),
                }
            })
    }

    /// Figures 14 and 15.
    fn queries(&mut self) -> Result<()> {
        self.ingest("queries")?;
        let name = self.task.setup.strategy.name();
        let ways = match self.task.setup.strategy {
            Strategy::Eager => vec![(name.to_string(), Validation::Auto)],
            _ => vec![
                (format!("{name}, direct"), Validation::Direct),
                (format!("{name}, timestamp"), Validation::Timestamp),
            ],
        };
        for width in QUERY_WIDTHS {
            let more = [
                ("percent", percent(width)),
                ("updates", self.task.updates.into()),
            ];
            for (subject, validation) in &ways {
                let how = How {
                    validation: *validation,
                    ..How::default()
                };
                let row = self.find("queries", width, &how, &more)?;
                self.report_as(subject, row)?;
                // Direct validation reads the records, so that it is no different here.
                if *validation == Validation::Direct {
                    continue;
                }
                let row = self.ask("index-only", "keys", width, &more, |store, range| {
                    store.keys(range, &how)
                })?;
                self.report_as(name, row)?;
                let row = self.ask("index-only", "count", width, &more, |store, range| {
                    store.count(range)
                })?;
                self.report_as(name, row)?;
            }
        }
        Ok(())
    }

    /// Figure 16.
    fn range_filter(&mut self) -> Result<()> {
        self.ingest("range-filter")?;
        let (first, last) = (
            self.session.upserts.time(0),
            self.session.upserts.time(self.task.records - 1),
        );
        for share in TIME_SHARES {
            let width = ((last - first) as f64 * share / 100.0) as u64;
            for (age, lo, hi) in [
                ("recent", last - width, last),
                ("old", first, first + width),
            ] {
                let expected = self.session.current.with_time(lo, hi).len() as u64;
                let more = [
                    ("percent", Json::from(share)),
                    ("updates", self.task.updates.into()),
                    ("age", age.into()),
                ];
                let limit = Limit {
                    most: 3,
                    ..self.limit()
                };
                self.chill()?;
                let row = self
                    .session
                    .measure("range-filter", "find", &more, limit, |store| {
                        let mut records = 0;
                        store.visit_time(lo, hi, &mut |_| records += 1)?;
                        match records == expected {
                            true => Ok(records),
                            false => Err(Failure::new(format!(
                                "{records} records from {lo} to {hi}, of {expected}"
                            ))),
                        }
                    })?;
                self.session.report(&row)?;
            }
        }
        Ok(())
    }

    /// Figures 17 and 18: after every tenth of the writes everything that is obsolete is found out.
    fn repairs(&mut self) -> Result<()> {
        let experiment = self.task.what.experiment();
        let primary = |compaction| RepairMethod::Primary { compaction };
        let options = RepairOptions {
            method: match self.task.method {
                Method::Secondary | Method::SecondaryBloom => RepairMethod::Index,
                Method::Key => RepairMethod::Key,
                Method::Primary => primary(Compaction::Without),
                Method::PrimaryMerge => primary(Compaction::After),
            },
            bloom: self.task.method == Method::SecondaryBloom,
            ..RepairOptions::default()
        };
        for tenth in 1..=10 {
            let until = self.task.records * tenth / 10;
            self.session.upsert(experiment, until)?;
            self.chill()?;
            let more = [
                ("records", Json::from(until)),
                ("updates", self.task.updates.into()),
                ("indexes", self.task.setup.indexes.into()),
            ];
            let limit = Limit {
                most: 1,
                least: 1,
                ..self.limit()
            };
            let row = self
                .session
                .measure(experiment, "repair", &more, limit, |store| {
                    Ok(store.repair(&options)?.found)
                })?;
            self.session.check()?;
            self.session.report(&row)?;
        }
        Ok(())
    }
}

/// The share of the values that a range has, in percent.
fn share(width: u64) -> f64 {
    width as f64 * 100.0 / VALUES as f64
}

fn percent(width: u64) -> Json {
    Json::from(share(width))
}
