//! What each child does.

use std::time::Duration;

use serde_json::Value as Json;

use super::{Task, What};
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::run::Job;
use crate::suites::upkeep::session::{Limit, Parameters, Session};
use crate::suites::upkeep::store::{Cache, Store, Subject};
use crate::workload::upserts::{Skew, Upserts};

/// Values of the ranges that are asked for, of 100,000: 0.001 % and up.
const WIDTHS: [u64; 6] = [1, 10, 100, 1_000, 10_000, 20_000];
/// Those of questions after upserts: 0.001 %, 0.1 %, 10 %.
const QUERY_WIDTHS: [u64; 3] = [1, 100, 10_000];
/// Questions of a kind, at most.
const ASKED_MOST: u64 = 200;
/// And at least: the largest take long.
const ASKED_LEAST: u64 = 2;

/// Does the task.
pub fn run(job: &Job, task: &Task, upserts: &Upserts) -> Result<()> {
    let cache = Json::from(task.setup.cache.name());
    let parameters = Parameters::from([("cache".to_string(), cache)]);
    let session = Session::create(job, upserts, parameters, |dir| {
        Store::create(dir, &task.setup)
    })?;
    let mut lab = Lab { task, session };
    match task.what {
        What::Lookups => lab.lookups(),
        What::Inserts => lab.inserts(),
        What::Upserts => lab.upserts(),
        What::MergeSize => lab.merge_size(),
        What::Indexes => lab.indexes(),
        What::Queries => lab.queries(),
    }
}

struct Lab<'j> {
    task: &'j Task,
    session: Session<'j, Store>,
}

impl Lab<'_> {
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
        row.parameters
            .insert("largest".into(), (self.task.largest * 100.0).into());
        self.session.report(&row)
    }

    fn indexes(&mut self) -> Result<()> {
        let mut row = self.ingest("indexes")?;
        row.parameters
            .insert("indexes".into(), self.task.setup.indexes.into());
        self.session.report(&row)
    }

    /// With little memory a measurement begins with nothing in it.
    fn chill(&mut self) -> Result<()> {
        match self.task.setup.cache {
            Cache::Small => self.session.store.reopen(),
            Cache::All => Ok(()),
        }
    }

    /// Ranges of some values; what is counted as an operation gives whole records.
    fn find(&mut self, experiment: &str, width: u64, more: &[(&str, Json)]) -> Result<Row> {
        self.chill()?;
        let mut rng = self.session.rng(width);
        let ranges: Vec<_> = (0..ASKED_MOST)
            .map(|_| self.session.range(&mut rng, width))
            .collect();
        let mut next = ranges.iter().cycle();
        let limit = self.limit();
        self.session
            .measure(experiment, "find", more, limit, |store| {
                let (mut records, mut bytes) = (0, 0);
                if let Some(range) = next.next() {
                    store.find(range, &mut |body| {
                        records += 1;
                        bytes += body.len();
                    })?;
                }
                std::hint::black_box(bytes);
                Ok(records)
            })
    }

    /// The same, of which only the number is wanted.
    fn count(&mut self, experiment: &str, width: u64, more: &[(&str, Json)]) -> Result<Row> {
        self.chill()?;
        let mut rng = self.session.rng(width);
        let ranges: Vec<_> = (0..ASKED_MOST)
            .map(|_| self.session.range(&mut rng, width))
            .collect();
        let mut next = ranges.iter().cycle();
        let limit = self.limit();
        self.session
            .measure(experiment, "count", more, limit, |store| {
                next.next().map_or(Ok(0), |range| store.count(range))
            })
    }

    /// Figure 10.
    fn lookups(&mut self) -> Result<()> {
        self.ingest("lookups")?;
        for width in WIDTHS {
            let more = [("percent", percent(width))];
            let mut row = self.find("lookups", width, &more)?;
            row.subject = "index".to_string();
            self.session.report(&row)?;
            self.chill()?;
            let (limit, keys) = (self.limit(), self.session.current.keys() as u64);
            let limit = Limit {
                most: 1,
                least: 1,
                ..limit
            };
            let mut row = self
                .session
                .measure("lookups", "find", &more, limit, |store| {
                    let mut bytes = 0;
                    let records = store.scan(&mut |body| bytes += body.len())?;
                    std::hint::black_box(bytes);
                    match records == keys {
                        true => Ok(records),
                        false => Err(Failure::new(format!("scanned {records} of {keys}"))),
                    }
                })?;
            row.subject = "scan".to_string();
            self.session.report(&row)?;
        }
        Ok(())
    }

    /// Figures 14 and 15.
    fn queries(&mut self) -> Result<()> {
        self.ingest("queries")?;
        for width in QUERY_WIDTHS {
            let more = [
                ("percent", percent(width)),
                ("updates", self.task.updates.into()),
            ];
            let row = self.find("queries", width, &more)?;
            self.session.report(&row)?;
            let row = self.count("index-only", width, &more)?;
            self.session.report(&row)?;
        }
        Ok(())
    }
}

/// The share of the values that a range has, in percent.
fn percent(width: u64) -> Json {
    Json::from(width as f64 * 100.0 / crate::workload::upserts::VALUES as f64)
}
