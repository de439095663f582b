//! What a child process does: loads a store, asks it, and reports a row for each operation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::Value as Json;

use super::data::{Ahead, Data};
use super::store::{Spent, Store};
use super::{Task, cost};
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{self, Io, Latency, Measured, Meter, process_cpu};
use crate::model::digest;
use crate::run::Job;
use crate::suites::session::Questions;
use crate::workload::plan::Op;
use crate::workload::{Attribute, Find};

/// Records made ahead of being written.
const AHEAD: usize = 128;
/// Points of a line over time.
const WINDOWS: usize = 20;
/// Gets at most.
const GETS_MOST: u64 = 200_000;
/// Questions of a kind are repeated at most so often, and at least so often whatever they take.
const ASKED_MOST: u64 = 20_000;
const ASKED_LEAST: u64 = 3;
/// Questions whose cost is looked at, one by one.
const EXPLAINED: usize = 60;

/// Parameters of a row.
pub type Parameters = BTreeMap<String, Json>;

/// A store with data, in a child.
pub struct Session<'j> {
    job: &'j Job,
    pub(super) task: &'j Task,
    pub(super) data: &'j Data,
    pub(super) store: Store,
    pub(super) writes: usize,
    harness_memory: u64,
}

impl<'j> Session<'j> {
    /// Makes the store.
    pub fn create(job: &'j Job, task: &'j Task, data: &'j Data) -> Result<Session<'j>> {
        meter::forget_peak()?;
        let harness_memory = meter::memory()?.0;
        let store = Store::create(&job.scratch.join("store"), &task.set, &task.setup()?)?;
        Ok(Session {
            job,
            task,
            data,
            store,
            writes: 0,
            harness_memory,
        })
    }

    /// The parameters that all rows of this process have, and more.
    pub fn parameters(&self, more: &[(&str, Json)]) -> Parameters {
        let mut parameters = Parameters::from([("data".to_string(), self.task.set.name().into())]);
        parameters.extend(
            more.iter()
                .map(|(name, value)| (name.to_string(), value.clone())),
        );
        parameters
    }

    /// A row of these measurements.
    pub fn row(
        &self,
        experiment: &str,
        operation: &str,
        parameters: Parameters,
        measured: &Measured,
    ) -> Row {
        let latency = &measured.latency;
        Row {
            suite: self.job.suite.clone(),
            experiment: experiment.to_string(),
            subject: self.job.subject.clone(),
            operation: operation.to_string(),
            parameters,
            repeat: self.job.repeat,
            ops: latency.ops(),
            seconds: latency.wall().as_secs_f64(),
            cpu_us: measured.cpu.as_secs_f64() * 1e6 / latency.ops().max(1) as f64,
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            p999_us: latency.quantile_us(0.999),
            max_us: latency.quantile_us(1.0),
            figures: BTreeMap::new(),
        }
    }

    /// Hands a row to the parent.
    pub fn report(&self, row: &Row) -> Result<()> {
        self.job.report(row)
    }

    /// The attribute that the process's questions are about, for rows.
    pub fn indexed(&self) -> &'static [&'static str] {
        match self.task.attribute() {
            Some(Attribute::User) => &["user"],
            Some(Attribute::Time) => &["time"],
            // What no index costs is the baseline of both.
            None => &["user", "time"],
        }
    }

    /// Loads all records; reports the put, as a whole and as it goes on.
    pub fn load(&mut self, experiment: &str, over_time: Option<&str>) -> Result<()> {
        let load = self.data.load();
        let window = (load / WINDOWS).max(1);
        let mut feed = self.data.feed();
        let (mut ahead, mut all, mut bytes) = (Ahead::default(), Latency::new()?, 0);
        let (mut cpu, io) = (Duration::ZERO, Io::now()?);
        let mut rows = Vec::new();
        while self.writes < load {
            let mut meter = Meter::start()?;
            let end = load.min(self.writes + window);
            while self.writes < end {
                let count = AHEAD.min(end - self.writes);
                meter.aside(|| ahead.fill(&mut feed, count));
                for at in 0..count {
                    let body = ahead.body(at);
                    bytes += body.len();
                    let store = &mut self.store;
                    all.add(meter.time(|| store.put(body))?.1);
                }
                self.writes += count;
            }
            let measured = meter.finish()?;
            cpu += measured.cpu;
            if let Some(experiment) = over_time {
                for index in self.indexed() {
                    let more = [("index", (*index).into()), ("records", self.writes.into())];
                    let mut row = self.row(experiment, "put", self.parameters(&more), &measured);
                    let mean = measured.latency.wall().as_secs_f64() * 1e6 / row.ops.max(1) as f64;
                    row.figures.insert("mean_us".into(), mean);
                    rows.push(row);
                }
            }
        }
        let before = process_cpu();
        self.store.settle()?;
        cpu += process_cpu() - before;
        let measured = Measured {
            latency: all,
            cpu,
            io: Io::now()?.since(&io),
        };
        let (data, index) = self.store.shapes()?;
        let stats = self.store.stats();
        let puts = load.max(1) as f64;
        let merged = (stats.flush_bytes + stats.merge_write_bytes) as f64;
        let memory = meter::memory()?.1.saturating_sub(self.harness_memory);
        for name in self.indexed() {
            let mut more = vec![("index", Json::from(*name))];
            more.extend(self.task.shown());
            let mut row = self.row(experiment, "put", self.parameters(&more), &measured);
            row.figures.extend([
                ("records".to_string(), puts),
                ("disk_bytes".to_string(), (data.bytes + index.bytes) as f64),
                ("index_bytes".to_string(), index.bytes as f64),
                (
                    "bytes_per_record".to_string(),
                    (data.bytes + index.bytes) as f64 / puts,
                ),
                ("table_bytes_written_per_put".to_string(), merged / puts),
                (
                    "log_bytes_per_put".to_string(),
                    stats.log_bytes as f64 / puts,
                ),
                (
                    "write_amplification".to_string(),
                    (merged + stats.log_bytes as f64) / bytes.max(1) as f64,
                ),
                ("peak_memory_bytes".to_string(), memory as f64),
                ("data_runs".to_string(), data.runs as f64),
                ("index_runs".to_string(), index.runs as f64),
            ]);
            rows.push(row);
        }
        rows.iter().try_for_each(|row| self.report(row))
    }

    /// Asks a sample of everything and compares the answers with the model's.
    pub fn check(&self) -> Result<()> {
        let history = self.data.history();
        let mut rng = Rng::with_seed(self.job.seed ^ self.writes as u64);
        let keys = history.keys_after(self.writes);
        let differs = |what: String, given: &[u64], expected: &[u64]| {
            let same = given
                .iter()
                .zip(expected)
                .take_while(|(a, b)| a == b)
                .count();
            Failure::new(format!(
                "{} answers wrongly after {} writes: {what}: {} records of {}, the first {same} right",
                self.job.subject,
                self.writes,
                given.len(),
                expected.len(),
            ))
        };
        for _ in 0..50 {
            let (number, mut given) = (rng.usize(0..keys), Vec::new());
            let key = history.key(number);
            self.store
                .reader
                .get(key, &mut |body| given.push(digest(body)))?;
            let expected: Vec<u64> = history.get(number, self.writes).into_iter().collect();
            if given != expected {
                return Err(differs(format!("get of {key}"), &given, &expected));
            }
        }
        let questions = Questions::new(history, self.writes);
        let finds = match self.task.attribute() {
            None => return Ok(()),
            Some(Attribute::User) => [
                questions.user(&mut rng, Some(10)),
                questions.user(&mut rng, None),
                questions.users(&mut rng, 10, Some(10)),
                questions.users(&mut rng, 10, None),
            ],
            Some(Attribute::Time) => [
                questions.seconds(&mut rng, 1, Some(10)),
                questions.seconds(&mut rng, 1, None),
                questions.seconds(&mut rng, self.task.minute, Some(10)),
                questions.seconds(&mut rng, self.task.minute, None),
            ],
        };
        for find in finds {
            let mut given = Vec::new();
            self.store
                .reader
                .find(&find, &mut |body| given.push(digest(body)))?;
            let expected = history.find(&find, self.writes);
            if given != expected {
                return Err(differs(format!("{find:?}"), &given, &expected));
            }
        }
        Ok(())
    }

    /// Reads by primary key.
    pub fn gets(&self, experiment: &str) -> Result<()> {
        let history = self.data.history();
        let keys = history.keys_after(self.writes);
        let mut rng = Rng::with_seed(self.job.seed + 1);
        let before = self.store.stats();
        let mut meter = Meter::start()?;
        let mut bytes = 0;
        while meter.wall() < self.task.ask() && meter.ops() < GETS_MOST {
            let key = history.key(rng.usize(0..keys));
            meter.time(|| self.store.reader.get(key, &mut |body| bytes += body.len()))?;
        }
        std::hint::black_box(bytes);
        let measured = meter.finish()?;
        let after = self.store.stats();
        for name in self.indexed() {
            let parameters = self.parameters(&[("index", Json::from(*name))]);
            let mut row = self.row(experiment, "get", parameters, &measured);
            let blocks = (after.data_blocks - before.data_blocks) as f64 / row.ops.max(1) as f64;
            row.figures.insert("blocks".into(), blocks);
            self.report(&row)?;
        }
        Ok(())
    }

    /// What questions are drawn by: the same ones whenever they are asked.
    pub fn questioner(&self) -> Rng {
        Rng::with_seed(self.job.seed + 2)
    }

    /// Asks questions of one kind; the row tells what they cost too.
    pub fn finds(
        &self,
        experiment: &str,
        operation: &str,
        more: &[(&str, Json)],
        mut draw: impl FnMut(&Questions<'_>, &mut Rng) -> Find,
    ) -> Result<(Row, Spent)> {
        let questions = Questions::new(self.data.history(), self.writes);
        let mut rng = self.questioner();
        let mut meter = Meter::start()?;
        let (mut rows, mut bytes) = (0u64, 0usize);
        let enough = |meter: &Meter| {
            meter.ops() >= ASKED_MOST
                || meter.wall() >= self.task.ask() && meter.ops() >= ASKED_LEAST
        };
        while !enough(&meter) {
            let find = draw(&questions, &mut rng);
            let visit = &mut |body: &[u8]| {
                rows += 1;
                bytes += body.len();
            };
            meter.time(|| self.store.reader.find(&find, visit))?;
        }
        std::hint::black_box(bytes);
        let measured = meter.finish()?;
        let mut row = self.row(experiment, operation, self.parameters(more), &measured);
        let times = EXPLAINED.min(row.ops as usize).max(1);
        let spent = self.spent(times, &mut draw)?;
        row.figures.extend([
            ("rows".to_string(), rows as f64 / row.ops.max(1) as f64),
            ("data_blocks".to_string(), spent.data_blocks),
            ("index_blocks".to_string(), spent.index_blocks),
            ("blocks".to_string(), spent.data_blocks + spent.index_blocks),
            ("candidates".to_string(), spent.candidates),
            ("synopses_asked".to_string(), spent.synopses),
        ]);
        Ok((row, spent))
    }

    /// What questions of a kind cost on average.
    fn spent(
        &self,
        times: usize,
        draw: &mut impl FnMut(&Questions<'_>, &mut Rng) -> Find,
    ) -> Result<Spent> {
        let questions = Questions::new(self.data.history(), self.writes);
        let mut rng = self.questioner();
        let (mut sum, count) = (Spent::default(), times as f64);
        let start = Instant::now();
        let mut done = 0.0;
        for _ in 0..times {
            let cost = self.store.reader.cost(&draw(&questions, &mut rng))?;
            sum.answers += cost.answers;
            sum.candidates += cost.candidates;
            sum.data_blocks += cost.data_blocks;
            sum.index_blocks += cost.index_blocks;
            sum.synopses += cost.synopses;
            done += 1.0;
            if start.elapsed() > self.task.ask() && done < count {
                break;
            }
        }
        Ok(Spent {
            questions: done as usize,
            answers: sum.answers / done,
            candidates: sum.candidates / done,
            data_blocks: sum.data_blocks / done,
            index_blocks: sum.index_blocks / done,
            synopses: sum.synopses / done,
        })
    }

    /// Lookups and range lookups by each K and selectivity (figures 10 and 11), and what the cost
    /// model says of them (tables 3 and 5).
    pub fn questions(&self, attribute: Attribute) -> Result<()> {
        let (experiment, widths) = match attribute {
            Attribute::User => ("by-user", [("10 users", 10), ("100 users", 100)]),
            Attribute::Time => {
                let minute = self.task.minute;
                (
                    "by-time",
                    [("1 minute", minute), ("100 minutes", 100 * minute)],
                )
            }
        };
        let lookup = ("1 value", 1);
        for (selectivity, width) in std::iter::once(lookup).chain(widths) {
            let operation = if width == 1 { "lookup" } else { "range" };
            for limit in [Some(10), Some(100), None] {
                let k = limit.map_or(Json::from("all"), Json::from);
                let more = [("K", k), ("selectivity", selectivity.into())];
                let (row, spent) = self.finds(experiment, operation, &more, |questions, rng| {
                    draw(questions, rng, attribute, width, limit)
                })?;
                self.report(&row)?;
                cost::report(self, attribute, (operation, width, limit), &row, &spent)?;
            }
        }
        Ok(())
    }

    /// The mixed operations of the plan, reported window by window (figures 12 to 15).
    pub fn mixed(&mut self, experiment: &str) -> Result<()> {
        let (data, ops) = (self.data, self.data.ops());
        let history = data.history();
        let mut feed = data.feed();
        let mut ahead = Ahead::default();
        for _ in 0..self.data.load() {
            self.store.put(feed.next().body)?;
        }
        self.writes = self.data.load();
        // Data blocks read by gets and by lookups, since the start.
        let (mut accesses, mut done, mut bytes) = ([0u64; 2], 0, 0usize);
        for window in ops.chunks((ops.len() / WINDOWS).max(1)) {
            let mut kinds = [Latency::new()?, Latency::new()?, Latency::new()?];
            let mut meter = Meter::start()?;
            for ops in window.chunks(AHEAD) {
                let writes = ops
                    .iter()
                    .filter(|op| matches!(op, Op::Put | Op::Update(_)))
                    .count();
                meter.aside(|| ahead.fill(&mut feed, writes));
                let mut next = 0;
                for op in ops {
                    let store = &mut self.store;
                    let before = meter.aside(|| store.stats().data_blocks);
                    let visit = &mut |body: &[u8]| bytes += body.len();
                    let (kind, took) = match *op {
                        Op::Put | Op::Update(_) => {
                            next += 1;
                            (0, meter.time(|| store.put(ahead.body(next - 1)))?.1)
                        }
                        Op::Get(key) => {
                            let key = history.key(key as usize);
                            (1, meter.time(|| store.reader.get(key, visit))?.1)
                        }
                        Op::Lookup(write) => {
                            let user = history.user(write as usize);
                            let find = Find {
                                attribute: Attribute::User,
                                lo: user,
                                hi: user,
                                limit: Some(10),
                            };
                            (2, meter.time(|| store.reader.find(&find, visit))?.1)
                        }
                    };
                    kinds[kind].add(took);
                    if let Some(sum) = kind.checked_sub(1).and_then(|kind| accesses.get_mut(kind)) {
                        *sum += meter.aside(|| store.stats().data_blocks) - before;
                    }
                }
                self.writes += writes;
            }
            done += window.len();
            let measured = meter.finish()?;
            let parameters = self.parameters(&[("operations", done.into())]);
            let mut row = self.row(experiment, "all", parameters.clone(), &measured);
            let stats = self.store.stats();
            let written = stats.flush_bytes + stats.merge_write_bytes + stats.log_bytes;
            row.figures.insert("written_bytes".into(), written as f64);
            row.figures
                .insert("mean_us".into(), row.seconds * 1e6 / row.ops.max(1) as f64);
            self.report(&row)?;
            for (kind, (name, latency)) in
                ["put", "get", "lookup"].into_iter().zip(kinds).enumerate()
            {
                let measured = Measured {
                    latency,
                    cpu: Duration::ZERO,
                    io: Io::default(),
                };
                let mut row = self.row(experiment, name, parameters.clone(), &measured);
                if let Some(sum) = kind.checked_sub(1).and_then(|kind| accesses.get(kind)) {
                    row.figures.insert("accesses".into(), *sum as f64);
                }
                row.figures
                    .insert("mean_us".into(), row.seconds * 1e6 / row.ops.max(1) as f64);
                self.report(&row)?;
            }
        }
        std::hint::black_box(bytes);
        self.check()
    }

    /// Lookups of values that are there, and of values that are not: each block that is read for
    /// one of these is a false positive of its filter (table 8).
    pub fn filter_length(&self, experiment: &str) -> Result<()> {
        let bits = Json::from(self.task.value_filter_bits);
        for (limit, k) in [(Some(10), Json::from(10)), (None, "all".into())] {
            let more = [("bits", bits.clone()), ("K", k)];
            let (row, _) = self.finds(experiment, "lookup", &more, |q, rng| q.user(rng, limit))?;
            self.report(&row)?;
        }
        let users = self.data.history().users();
        let absent = |rng: &mut Rng| loop {
            // Between two values that are there, so that no zone map of a file rules it out.
            let value = users[rng.usize(0..users.len())] + 1;
            if users.binary_search(&value).is_err() {
                break Find {
                    attribute: Attribute::User,
                    lo: value,
                    hi: value,
                    limit: None,
                };
            }
        };
        let more = [("bits", bits), ("K", "all".into())];
        let (mut row, spent) =
            self.finds(experiment, "lookup of an absent value", &more, |_, rng| {
                absent(rng)
            })?;
        let share = spent.data_blocks * 100.0 / spent.synopses.max(1.0);
        row.figures.insert("false_positive_percent".into(), share);
        self.report(&row)
    }

    /// Lookups and ranges with blocks compressed or not (figures 18 and 19).
    pub fn compression(&self, experiment: &str) -> Result<()> {
        for (operation, width) in [("lookup", 1), ("range", 10)] {
            for limit in [Some(10), Some(100), None] {
                let k = limit.map_or(Json::from("all"), Json::from);
                let more = [("K", k), ("compression", self.task.compression())];
                let draw =
                    |q: &Questions<'_>, rng: &mut Rng| draw(q, rng, Attribute::User, width, limit);
                let (row, _) = self.finds(experiment, operation, &more, draw)?;
                self.report(&row)?;
            }
        }
        Ok(())
    }

    /// Lookups and ranges by so many threads at once (figure 20).
    pub fn threads(&self, experiment: &str) -> Result<()> {
        let questions = Questions::new(self.data.history(), self.writes);
        for (operation, width) in [("lookup", 1), ("range", 10)] {
            for threads in [1usize, 2, 4, 8] {
                let (time, cpu, start) = (self.task.ask(), process_cpu(), Instant::now());
                let ask = |thread: usize| -> Result<Latency> {
                    let reader = self.store.reader.clone();
                    let mut rng = Rng::with_seed(self.job.seed + 3 + thread as u64);
                    let (mut latency, mut bytes) = (Latency::new()?, 0usize);
                    while start.elapsed() < time {
                        let find = draw(&questions, &mut rng, Attribute::User, width, Some(10));
                        let begin = Instant::now();
                        reader.find(&find, &mut |body| bytes += body.len())?;
                        latency.add(begin.elapsed());
                    }
                    std::hint::black_box(bytes);
                    Ok(latency)
                };
                let latencies = std::thread::scope(|scope| {
                    let running: Vec<_> = (0..threads)
                        .map(|at| {
                            scope.spawn({
                                let ask = &ask;
                                move || ask(at)
                            })
                        })
                        .collect();
                    let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Latency>>| {
                        thread
                            .join()
                            .map_err(|_| Failure::new("a thread panicked"))?
                    };
                    running.into_iter().map(join).collect::<Result<Vec<_>>>()
                })?;
                let wall = start.elapsed().as_secs_f64();
                let ops: u64 = latencies.iter().map(Latency::ops).sum();
                let of = |share: f64| {
                    let sum: f64 = latencies.iter().map(|l| l.quantile_us(share)).sum();
                    sum / threads as f64
                };
                let parameters = self.parameters(&[("threads", threads.into())]);
                let measured = Measured {
                    latency: Latency::new()?,
                    cpu: Duration::ZERO,
                    io: Io::default(),
                };
                self.report(&Row {
                    ops,
                    seconds: wall,
                    cpu_us: (process_cpu() - cpu).as_secs_f64() * 1e6 / ops.max(1) as f64,
                    p50_us: of(0.5),
                    p99_us: of(0.99),
                    p999_us: of(0.999),
                    max_us: of(1.0),
                    ..self.row(experiment, operation, parameters, &measured)
                })?;
            }
        }
        Ok(())
    }
}

/// A question about so many values of an attribute that follow each other.
pub fn draw(
    questions: &Questions<'_>,
    rng: &mut Rng,
    attribute: Attribute,
    width: u64,
    limit: Option<usize>,
) -> Find {
    match attribute {
        Attribute::User if width == 1 => questions.user(rng, limit),
        Attribute::User => questions.users(rng, width as usize, limit),
        Attribute::Time if width == 1 => questions.second(rng, limit),
        Attribute::Time => questions.seconds(rng, width, limit),
    }
}
