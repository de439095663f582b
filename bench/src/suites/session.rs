//! A subject taken through the phases of an experiment, in a child process: load, questions, mixed
//! operations; checked against the model in between.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;

use super::threads;
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{self, Io, Latency, Measured, Meter};
use crate::model::{History, digest};
use crate::run::Job;
use crate::subjects::{self, Setup, Subject};
use crate::workload::plan::{Op, Plan, Stream};
use crate::workload::{Attribute, Find, Record};

/// Records made ahead of being written, so that making them is not timed.
const AHEAD: usize = 256;

/// K of the lookups in a mixed phase.
const TOP: usize = 10;

/// How long a phase of questions may take: whichever limit comes first, but never fewer than a
/// few operations.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Operations at most.
    pub ops: usize,
    /// Wall time after which none is begun.
    pub time: Duration,
}

/// A subject with the data of a plan.
pub struct Session<'p> {
    job: &'p Job,
    plan: &'p Plan,
    name: String,
    dir: PathBuf,
    subject: Box<dyn Subject>,
    stream: Stream<'p>,
    /// Writes done.
    writes: usize,
    /// Memory of the harness, which is not the subject's.
    harness_memory: u64,
    parameters: BTreeMap<String, serde_json::Value>,
}

impl<'p> Session<'p> {
    /// Opens the subject called `name`. `parameters` go into every row.
    pub fn open(
        job: &'p Job,
        plan: &'p Plan,
        name: &str,
        setup: &Setup,
        parameters: BTreeMap<String, serde_json::Value>,
    ) -> Result<Session<'p>> {
        std::fs::create_dir_all(&setup.dir)?;
        let stream = plan.stream();
        meter::forget_peak()?;
        let harness_memory = meter::memory()?.0;
        Ok(Session {
            job,
            plan,
            name: name.to_string(),
            dir: setup.dir.clone(),
            subject: subjects::open(name, setup)?,
            stream,
            writes: 0,
            harness_memory,
            parameters,
        })
    }

    /// Writes the load of the plan, one record at a time.
    pub fn load(&mut self) -> Result<()> {
        let load = self.plan.load;
        let mut bytes = 0;
        let mut meter = Meter::start()?;
        let mut ahead = Ahead::default();
        while self.writes < load {
            let count = AHEAD.min(load - self.writes);
            meter.aside(|| ahead.fill(&mut self.stream, count));
            for at in 0..count {
                let record = ahead.record(at);
                bytes += record.body.len();
                meter.time(|| self.subject.put(&record))?;
            }
            self.writes += count;
        }
        let row = self.written("load", meter, bytes)?;
        self.job.report(&row)
    }

    /// Ends a phase with writes: lets the subject settle, and measures what it holds.
    fn written(&mut self, operation: &str, meter: Meter, bytes: usize) -> Result<Row> {
        let before_settling = meter.cpu_so_far();
        let start = std::time::Instant::now();
        self.subject.settle()?;
        let settling = start.elapsed();
        let measured = meter.finish()?;
        let mut row = self.row(operation, &measured);
        let written = measured.io.written_bytes as f64;
        let memory = meter::memory()?.1.saturating_sub(self.harness_memory);
        let ops = measured.latency.ops().max(1) as f64;
        for (name, figure) in [
            ("settle_seconds", settling.as_secs_f64()),
            (
                "cpu_us_before_settling",
                before_settling.as_secs_f64() * 1e6 / ops,
            ),
            ("user_bytes", bytes as f64),
            ("written_bytes", written),
            ("disk_written_bytes", measured.io.disk_written_bytes as f64),
            ("write_amplification", written / bytes.max(1) as f64),
            ("disk_bytes", meter::disk_bytes(&self.dir)? as f64),
            ("peak_memory_bytes", memory as f64),
        ] {
            row.figures.insert(name.to_string(), figure);
        }
        for (name, count) in self.subject.counters() {
            row.figures.insert(format!("engine_{name}"), count);
        }
        Ok(row)
    }

    /// Reads random keys.
    pub fn gets(&mut self, operation: &str, limit: Limit) -> Result<()> {
        let keys = self.plan.history.keys_after(self.writes);
        let history = &self.plan.history;
        self.measure(operation, limit, |subject, rng, eat| {
            subject.get(history.key(rng.usize(0..keys)), eat)
        })
    }

    /// Asks questions, drawn by `draw`.
    pub fn finds(
        &mut self,
        operation: &str,
        limit: Limit,
        draw: impl Fn(&Questions<'_>, &mut Rng) -> Find,
    ) -> Result<()> {
        let questions = Questions::new(&self.plan.history, self.writes);
        self.measure(operation, limit, |subject, rng, eat| {
            subject.find(&draw(&questions, rng), eat)
        })
    }

    fn measure(
        &mut self,
        operation: &str,
        limit: Limit,
        ask: impl Fn(&mut dyn Subject, &mut Rng, subjects::Visit<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut rng = Rng::with_seed(self.job.seed ^ digest(operation.as_bytes()));
        let mut eaten = Eaten::default();
        // A tenth of the questions first, so that caches hold what they would hold.
        let mut warm = Meter::start()?;
        while warm.ops() < limit.ops as u64 / 10 && warm.wall() < limit.time / 10 {
            warm.time(|| ask(&mut *self.subject, &mut rng, &mut |body| eaten.eat(body)))?;
        }
        eaten.rows = 0;
        let before = self.subject.counters();
        let mut meter = Meter::start()?;
        while meter.ops() < limit.ops as u64 && (meter.wall() < limit.time || meter.ops() < 3) {
            meter.time(|| ask(&mut *self.subject, &mut rng, &mut |body| eaten.eat(body)))?;
        }
        let measured = meter.finish()?;
        let mut row = self.row(operation, &measured);
        let ops = measured.latency.ops() as f64;
        row.figures
            .insert("rows_per_op".into(), eaten.rows as f64 / ops);
        let after = self.subject.counters();
        for name in ["blocks_read", "blocks_cached", "bytes_read"] {
            if let (Some(after), Some(before)) = (after.get(name), before.get(name)) {
                row.figures
                    .insert(format!("{name}_per_op"), (after - before) / ops);
            }
        }
        let Io {
            reads,
            read_bytes,
            disk_read_bytes,
            ..
        } = measured.io;
        for (name, count) in [
            ("read_calls_per_op", reads),
            ("read_bytes_per_op", read_bytes),
            ("disk_read_bytes_per_op", disk_read_bytes),
        ] {
            row.figures.insert(name.into(), count as f64 / ops);
        }
        std::hint::black_box(eaten.sum);
        self.job.report(&row)
    }

    /// Gets by one thread and by two, in turn, of subjects that can be read so. The row is of the two.
    pub fn gets_by_two(&mut self, operation: &str) -> Result<()> {
        let keys = self.plan.history.keys_after(self.writes);
        let history = &self.plan.history;
        self.by_two(operation, &|reads, rng, eat| {
            reads.get(history.key(rng.usize(0..keys)), eat)
        })
    }

    /// The same of questions, drawn by `draw`.
    pub fn finds_by_two(
        &mut self,
        operation: &str,
        draw: impl Fn(&Questions<'_>, &mut Rng) -> Find + Sync,
    ) -> Result<()> {
        let questions = Questions::new(&self.plan.history, self.writes);
        self.by_two(operation, &|reads, rng, eat| {
            reads.find(&draw(&questions, rng), eat)
        })
    }

    fn by_two(&self, operation: &str, ask: &threads::Ask<'_>) -> Result<()> {
        let Some(reads) = self.subject.shared() else {
            return Ok(());
        };
        let seed = self.job.seed ^ digest(operation.as_bytes());
        let [one, two] = threads::one_and_two(reads, seed, ask)?;
        let mut row = self.row(
            operation,
            &Measured {
                latency: two.latency,
                cpu: two.cpu,
                io: Io::default(),
            },
        );
        row.seconds = two.wall.as_secs_f64();
        for (name, figure) in [
            ("speedup", two.per_second / one.per_second),
            ("one_thread_per_second", one.per_second),
            ("two_threads_per_second", two.per_second),
            ("one_thread_cpu_us", one.cpu_us),
        ] {
            row.figures.insert(name.to_string(), figure);
        }
        self.job.report(&row)
    }

    /// Does the mixed operations of the plan, the first at least of them if all would take longer
    /// than `time`. Without indexes, lookups are left out. Rows: `mixed` for all, and one for each
    /// kind of operation, which lacks CPU time.
    pub fn mixed(&mut self, time: Duration) -> Result<()> {
        let with_lookups = subjects::has_indexes(&self.name);
        let mut kinds = [
            Latency::new()?,
            Latency::new()?,
            Latency::new()?,
            Latency::new()?,
        ];
        let (mut bytes, mut eaten) = (0, Eaten::default());
        let mut ahead = Ahead::default();
        let history = &self.plan.history;
        let mut meter = Meter::start()?;
        for ops in self.plan.ops.chunks(AHEAD) {
            if meter.wall() > time {
                break;
            }
            let writes = ops
                .iter()
                .filter(|op| matches!(op, Op::Put | Op::Update(_)))
                .count();
            meter.aside(|| ahead.fill(&mut self.stream, writes));
            let mut next = 0;
            for op in ops {
                let subject = &mut self.subject;
                let (kind, took) = match *op {
                    Op::Put | Op::Update(_) => {
                        let record = ahead.record(next);
                        next += 1;
                        bytes += record.body.len();
                        let kind = usize::from(*op != Op::Put);
                        (kind, meter.time(|| subject.put(&record))?.1)
                    }
                    Op::Get(key) => {
                        let key = history.key(key as usize);
                        (
                            2,
                            meter
                                .time(|| subject.get(key, &mut |body| eaten.eat(body)))?
                                .1,
                        )
                    }
                    Op::Lookup(_) if !with_lookups => continue,
                    Op::Lookup(write) => {
                        let find = one_user(history.user(write as usize), Some(TOP));
                        (
                            3,
                            meter
                                .time(|| subject.find(&find, &mut |body| eaten.eat(body)))?
                                .1,
                        )
                    }
                };
                kinds[kind].add(took);
            }
            self.writes += writes;
        }
        std::hint::black_box(eaten.sum);
        let row = self.written("mixed", meter, bytes)?;
        self.job.report(&row)?;
        for (latency, kind) in kinds.into_iter().zip(["put", "update", "get", "lookup"]) {
            if latency.ops() > 0 {
                let measured = Measured {
                    latency,
                    cpu: Duration::ZERO,
                    io: Io::default(),
                };
                let row = self.row(&format!("mixed {kind}"), &measured);
                self.job.report(&row)?;
            }
        }
        Ok(())
    }

    /// Does all writes of the plan, without measuring, and checks a sample of `times` questions after
    /// every so many writes and after settling.
    pub fn check_writes(&mut self, every: usize, times: usize) -> Result<()> {
        while self.writes < self.plan.history.len() {
            let until = (self.writes + every).min(self.plan.history.len());
            for _ in self.writes..until {
                let record = self.stream.next();
                self.subject.put(&record)?;
            }
            self.writes = until;
            self.check(times)?;
            if (self.writes / every).is_multiple_of(3) {
                self.subject.settle()?;
                self.check(times)?;
            }
        }
        Ok(())
    }

    /// Takes the next write for done, without doing it.
    #[cfg(test)]
    pub fn lose_a_write(&mut self) {
        self.stream.next();
        self.writes += 1;
    }

    /// Asks a sample of everything and compares the answers with the model's. `times` is how often
    /// the cheapest operation is tried; dear ones less.
    pub fn check(&mut self, times: usize) -> Result<()> {
        let mut rng = Rng::with_seed(self.job.seed ^ self.writes as u64);
        let history = &self.plan.history;
        let keys = history.keys_after(self.writes);
        for _ in 0..times {
            let key = rng.usize(0..keys);
            let mut given = Vec::new();
            self.subject
                .get(history.key(key), &mut |body| given.push(digest(body)))?;
            let expected: Vec<u64> = history.get(key, self.writes).into_iter().collect();
            self.compare(&format!("get of {}", history.key(key)), &given, &expected)?;
        }
        if !subjects::has_indexes(&self.name) {
            return Ok(());
        }
        let questions = Questions::new(history, self.writes);
        for round in 0..times.div_ceil(10) {
            let mut asked = vec![
                questions.user(&mut rng, Some(TOP)),
                questions.any_user(&mut rng, Some(TOP)),
            ];
            if round % 5 == 0 {
                asked.push(questions.user(&mut rng, None));
                asked.push(questions.users(&mut rng, 10, Some(TOP)));
                asked.push(questions.seconds(&mut rng, 60, Some(TOP)));
            }
            if round % 10 == 0 {
                asked.push(questions.seconds(&mut rng, 60, None));
                asked.push(questions.users(&mut rng, 3, None));
            }
            for find in asked {
                let mut given = Vec::new();
                self.subject
                    .find(&find, &mut |body| given.push(digest(body)))?;
                let expected = history.find(&find, self.writes);
                self.compare(&format!("{find:?}"), &given, &expected)?;
            }
        }
        Ok(())
    }

    fn compare(&self, what: &str, given: &[u64], expected: &[u64]) -> Result<()> {
        if given == expected {
            return Ok(());
        }
        let same = given
            .iter()
            .zip(expected)
            .take_while(|(a, b)| a == b)
            .count();
        Err(Failure::new(format!(
            "{} answers wrongly after {} writes: {what}: {} records of {}, the first {same} right",
            self.name,
            self.writes,
            given.len(),
            expected.len()
        )))
    }

    fn row(&self, operation: &str, measured: &Measured) -> Row {
        let row = row(self.job, operation, &measured.latency, measured.cpu);
        Row {
            parameters: self.parameters.clone(),
            ..row
        }
    }
}

/// What was measured of an operation of a job.
pub(super) fn row(job: &Job, operation: &str, latency: &Latency, cpu: Duration) -> Row {
    Row {
        suite: job.suite.clone(),
        experiment: job.experiment.clone(),
        subject: job.subject.clone(),
        operation: operation.to_string(),
        parameters: BTreeMap::new(),
        repeat: job.repeat,
        ops: latency.ops(),
        seconds: latency.wall().as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / latency.ops().max(1) as f64,
        p50_us: latency.quantile_us(0.5),
        p99_us: latency.quantile_us(0.99),
        p999_us: latency.quantile_us(0.999),
        max_us: latency.quantile_us(1.0),
        figures: BTreeMap::new(),
    }
}

/// The records of one user, newest first.
pub fn one_user(user: u64, limit: Option<usize>) -> Find {
    Find {
        attribute: Attribute::User,
        lo: user,
        hi: user,
        limit,
    }
}

/// Draws questions by the distribution of the values that are there.
pub struct Questions<'p> {
    history: &'p History,
    writes: usize,
    users: Vec<u64>,
}

impl<'p> Questions<'p> {
    /// For the state after so many writes.
    pub fn new(history: &'p History, writes: usize) -> Questions<'p> {
        Questions {
            history,
            writes,
            users: history.users(),
        }
    }

    /// Some user, each as likely as the others.
    pub fn any_user(&self, rng: &mut Rng, limit: Option<usize>) -> Find {
        one_user(self.users[rng.usize(0..self.users.len())], limit)
    }

    /// The user of some record: those with many records are asked for as much more often.
    pub fn user(&self, rng: &mut Rng, limit: Option<usize>) -> Find {
        one_user(self.history.user(rng.usize(0..self.writes)), limit)
    }

    /// So many users that follow each other.
    pub fn users(&self, rng: &mut Rng, count: usize, limit: Option<usize>) -> Find {
        let count = count.clamp(1, self.users.len());
        let from = rng.usize(0..=self.users.len() - count);
        Find {
            attribute: Attribute::User,
            lo: self.users[from],
            hi: self.users[from + count - 1],
            limit,
        }
    }

    /// The second of some record.
    pub fn second(&self, rng: &mut Rng, limit: Option<usize>) -> Find {
        let second = self.history.second(rng.usize(0..self.writes));
        Find {
            attribute: Attribute::Time,
            lo: second,
            hi: second,
            limit,
        }
    }

    /// So many seconds.
    pub fn seconds(&self, rng: &mut Rng, count: u64, limit: Option<usize>) -> Find {
        let (first, last) = (self.history.second(0), self.history.second(self.writes - 1));
        let lo = rng.u64(first..=last.saturating_sub(count - 1).max(first));
        Find {
            attribute: Attribute::Time,
            lo,
            hi: lo + count - 1,
            limit,
        }
    }
}

/// Looks at every cache line of an answer, as an application would at least.
#[derive(Debug, Default)]
pub(super) struct Eaten {
    rows: u64,
    sum: u64,
}

impl Eaten {
    #[inline]
    pub(super) fn eat(&mut self, body: &[u8]) {
        self.rows += 1;
        for line in body.chunks(64) {
            self.sum = self
                .sum
                .wrapping_add(line.first().map_or(0, |&byte| u64::from(byte)));
        }
    }

    /// What it came to: to be used, so that looking is not left out.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }
}

/// Records made ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    bodies: Vec<u8>,
    /// Key, user, second, end of the body.
    records: Vec<(u64, u64, u64, usize)>,
}

impl Ahead {
    pub(super) fn fill(&mut self, stream: &mut Stream<'_>, count: usize) {
        self.bodies.clear();
        self.records.clear();
        for _ in 0..count {
            let record = stream.next();
            self.bodies.extend_from_slice(record.body);
            let end = self.bodies.len();
            self.records
                .push((record.key, record.user, record.second, end));
        }
    }

    pub(super) fn record(&self, at: usize) -> Record<'_> {
        let (key, user, second, end) = self.records[at];
        let start = at.checked_sub(1).map_or(0, |before| self.records[before].3);
        Record {
            key,
            user,
            second,
            body: &self.bodies[start..end],
        }
    }
}
