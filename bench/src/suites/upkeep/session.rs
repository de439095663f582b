//! What a child process does with a store: writes, checks against the model, questions; a row for each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::Value as Json;

use super::current::Current;
use super::store::{Range, Store, Subject, Upsert};
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{self, Measured, Meter};
use crate::run::Job;
use crate::workload::upserts::{Upserts, VALUES};

/// Records made ahead of being written.
const AHEAD: usize = 128;
/// Bytes that count as one read of the disk.
const DISK_BLOCK: f64 = 4096.0;
/// Keys that a check reads.
const CHECKED_GETS: usize = 50;
/// Values in the ranges that a check asks for.
const CHECKED_WIDTHS: [u64; 3] = [1, 10, 1000];

/// Parameters of a row.
pub type Parameters = BTreeMap<String, Json>;

/// A store, its writes, and what must be in it.
pub struct Session<'j, S> {
    job: &'j Job,
    /// All writes of the run.
    pub upserts: &'j Upserts,
    /// The store.
    pub store: S,
    /// What must be in it.
    pub current: Current<'j>,
    /// What all rows say.
    parameters: Parameters,
    harness_memory: u64,
}

/// How many operations of a kind are measured.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// At most so many.
    pub most: u64,
    /// At least so many, whatever they take.
    pub least: u64,
    /// None is begun after this.
    pub time: Duration,
}

impl<'j, S: Subject> Session<'j, S> {
    /// Has `create` make a store.
    pub fn create(
        job: &'j Job,
        upserts: &'j Upserts,
        parameters: Parameters,
        create: impl FnOnce() -> Result<S>,
    ) -> Result<Session<'j, S>> {
        meter::forget_peak()?;
        let harness_memory = meter::memory()?.0;
        Ok(Session {
            job,
            upserts,
            store: create()?,
            current: Current::new(upserts),
            parameters,
            harness_memory,
        })
    }

    /// A row of these measurements.
    pub fn row(
        &self,
        experiment: &str,
        operation: &str,
        more: &[(&str, Json)],
        measured: &Measured,
    ) -> Row {
        let latency = &measured.latency;
        let ops = latency.ops().max(1) as f64;
        let mut parameters = self.parameters.clone();
        let more = more.iter().cloned();
        parameters.extend(more.map(|(name, value)| (name.to_string(), value)));
        Row {
            suite: self.job.suite.clone(),
            experiment: experiment.to_string(),
            subject: self.job.subject.clone(),
            operation: operation.to_string(),
            parameters,
            repeat: self.job.repeat,
            ops: latency.ops(),
            seconds: latency.wall().as_secs_f64(),
            cpu_us: measured.cpu.as_secs_f64() * 1e6 / ops,
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            p999_us: latency.quantile_us(0.999),
            max_us: latency.quantile_us(1.0),
            figures: BTreeMap::from([(
                "mean_ms".to_string(),
                latency.wall().as_secs_f64() * 1e3 / ops,
            )]),
        }
    }

    /// Hands a row to the parent.
    pub fn report(&self, row: &Row) -> Result<()> {
        self.job.report(row)
    }

    /// What is drawn, the same for every subject.
    pub fn rng(&self, of: u64) -> Rng {
        Rng::with_seed(self.job.seed.wrapping_mul(1000) + of)
    }

    /// Upserts until there were so many writes, then settles; the row's time is that of both, because
    /// what is left to merge is work that the writes made.
    pub fn upsert(&mut self, experiment: &str, until: usize) -> Result<Row> {
        self.ingest(experiment, until, |store, current, record| {
            current.upsert();
            store.upsert(record)
        })
    }

    fn ingest(
        &mut self,
        experiment: &str,
        until: usize,
        write: impl Fn(&mut S, &mut Current<'_>, &Upsert) -> Result<()>,
    ) -> Result<Row> {
        let (mut records, mut bytes) = (vec![Upsert::default(); AHEAD], 0);
        let before = self.store.counters()?;
        let mut meter = Meter::start()?;
        while self.current.writes() < until {
            let first = self.current.writes();
            let count = AHEAD.min(until - first);
            meter.aside(|| {
                self.fill(first, &mut records[..count]);
                bytes += records
                    .iter()
                    .take(count)
                    .map(|r| r.body.len())
                    .sum::<usize>();
            });
            let (store, current) = (&mut self.store, &mut self.current);
            for record in records.iter().take(count) {
                meter.time(|| write(store, current, record))?;
            }
        }
        let settling = Instant::now();
        self.store.settle()?;
        let settling = settling.elapsed().as_secs_f64();
        let measured = meter.finish()?;
        let after = self.store.counters()?;
        let mut row = self.row(experiment, "ingest", &[], &measured);
        let writing = row.seconds;
        row.seconds += settling;
        let ops = row.ops.max(1) as f64;
        let (data_runs, index_runs) = self.store.runs()?;
        let memory = meter::memory()?.1.saturating_sub(self.harness_memory);
        let written = measured.io.written_bytes as f64;
        row.figures.extend(
            [
                ("settle_seconds", settling),
                ("writes_per_second_before_settling", ops / writing.max(1e-9)),
                ("written_bytes", written),
                ("write_amplification", written / bytes.max(1) as f64),
                ("peak_memory_bytes", memory as f64),
                ("data_runs", data_runs as f64),
                ("index_runs", index_runs as f64),
                ("blocks", since(before.data_blocks, after.data_blocks) / ops),
                (
                    "blocks_read_per_op",
                    since(before.blocks_read, after.blocks_read) / ops,
                ),
                (
                    "stalled_micros",
                    since(before.stalled_micros, after.stalled_micros),
                ),
                (
                    "disk_reads",
                    measured.io.disk_read_bytes as f64 / DISK_BLOCK / ops,
                ),
            ]
            .map(|(name, figure)| (name.to_string(), figure)),
        );
        Ok(row)
    }

    /// Makes the records of the writes from `first` on. Beyond the last they stay
    /// as they are.
    pub fn fill(&self, first: usize, records: &mut [Upsert]) {
        let left = self.upserts.len().saturating_sub(first);
        for (at, record) in records.iter_mut().take(left).enumerate() {
            record.key = self.upserts.key(self.upserts.number(first + at));
            record.value = self.upserts.value(first + at, 0);
            self.upserts.record(first + at, &mut record.body);
        }
    }

    /// Asks a sample of everything and compares the answers with the model's.
    pub fn check(&self) -> Result<()> {
        self.check_records()?;
        self.check_index()
    }

    fn wrong(&self, what: String) -> Failure {
        Failure::new(format!(
            "{} answers wrongly after {} writes: {what}",
            self.job.subject,
            self.current.writes()
        ))
    }

    /// Reads a sample of keys and compares.
    pub fn check_records(&self) -> Result<()> {
        let mut rng = self.rng(self.current.writes() as u64);
        let (mut given, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..CHECKED_GETS {
            let number = rng.usize(0..self.current.keys());
            let key = self.upserts.key(number);
            given.clear();
            self.store
                .get(key, &mut |body| given.extend_from_slice(body))?;
            self.upserts.record(self.current.get(number), &mut expected);
            if given != expected {
                return Err(self.wrong(format!("get of {key}")));
            }
        }
        Ok(())
    }

    /// Asks for some ranges of the first attribute, and for their numbers, and compares.
    pub fn check_index(&self) -> Result<()> {
        let mut rng = self.rng(self.current.writes() as u64);
        let mut expected = Vec::new();
        for width in CHECKED_WIDTHS {
            let range = self.range(&mut rng, width);
            let writes = self.current.with_value(range.attribute, range.lo, range.hi);
            let mut given = Vec::new();
            self.store
                .find(&range, &mut |body| given.push(body.to_vec()))?;
            let same = given.len() == writes.len()
                && given.iter().zip(&writes).all(|(given, &write)| {
                    self.upserts.record(write, &mut expected);
                    *given == expected
                });
            if !same {
                let (given, expected) = (given.len(), writes.len());
                return Err(self.wrong(format!("{range:?}: {given} records, expected {expected}")));
            }
            let counted = self.store.count(&range)?;
            if counted != writes.len() as u64 {
                return Err(self.wrong(format!("{range:?}: counted {counted} of {}", writes.len())));
            }
        }
        Ok(())
    }

    /// A range of so many values of the first attribute.
    pub fn range(&self, rng: &mut Rng, width: u64) -> Range {
        let lo = rng.u64(0..=VALUES - width);
        Range {
            attribute: 0,
            lo,
            hi: lo + width - 1,
        }
    }

    /// Measures one kind of operation; `ask` tells how many records it got.
    pub fn measure(
        &mut self,
        experiment: &str,
        operation: &str,
        more: &[(&str, Json)],
        limit: Limit,
        mut ask: impl FnMut(&mut S) -> Result<u64>,
    ) -> Result<Row> {
        let before = self.store.counters()?;
        let (mut meter, mut records) = (Meter::start()?, 0);
        while meter.ops() < limit.least || meter.ops() < limit.most && meter.wall() < limit.time {
            records += meter.time(|| ask(&mut self.store))?.0;
        }
        let measured = meter.finish()?;
        let after = self.store.counters()?;
        let mut row = self.row(experiment, operation, more, &measured);
        let ops = row.ops.max(1) as f64;
        for (name, count) in [
            ("rows", records),
            ("blocks", after.data_blocks - before.data_blocks),
            ("blocks_read_per_op", after.blocks_read - before.blocks_read),
        ] {
            row.figures.insert(name.to_string(), count as f64 / ops);
        }
        let disk_reads = measured.io.disk_read_bytes as f64 / DISK_BLOCK / ops;
        row.figures.insert("disk_reads".to_string(), disk_reads);
        Ok(row)
    }
}

fn since(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

impl Session<'_, Store> {
    /// Inserts until there were so many writes, of which those of known keys are refused; then settles.
    pub fn insert(&mut self, experiment: &str, until: usize) -> Result<Row> {
        self.ingest(experiment, until, |store, current, record| {
            let (expected, done) = (current.insert(), store.insert(record)?);
            match expected == done {
                true => Ok(()),
                false => Err(Failure::new(format!(
                    "an insert was {}, against the model",
                    if done { "accepted" } else { "refused" }
                ))),
            }
        })
    }
}
