//! What each child does: writes, checks against the model, questions; a row for each.

use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::Value as Json;

use super::in_memory::InMemory;
use super::places::{Halves, Moves, Place, Rect, metres, record};
#[cfg(feature = "rocksdb")]
use super::rocks::Rocks;
use super::sqlite::Sqlite;
use super::store::{Cost, Esker, Item, Space, Written};
use super::{Task, What, Who};
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{self, Latency, Measured, Meter};
use crate::run::Job;
use crate::suites::session;

/// Records in a transaction.
const BATCH: usize = 1000;
/// Points of a line over time.
const WINDOWS: usize = 20;
/// Questions of a kind at most, and at least, whatever they take.
const ASKED_MOST: usize = 1000;
const ASKED_LEAST: u64 = 3;
/// Questions of a kind that a check compares.
const CHECKED: usize = 2;
/// Answers that are larger are not compared record by record.
const CHECKED_RECORDS: usize = 10_000;
/// How many of the nearest are asked for.
const NEAREST: usize = 10;
/// Bytes that count as one read of the disk.
const DISK_BLOCK: f64 = 4096.0;

/// Shares of the records that rectangles hold, by their names.
const SHARES: [(&str, f64); 6] = [
    ("point", 0.0),
    ("1e-6", 1e-6),
    ("1e-5", 1e-5),
    ("1e-4", 1e-4),
    ("1e-3", 1e-3),
    ("1e-1", 1e-1),
];
/// The share that is asked for while objects move.
const AMONG: &str = "1e-4";

/// Does the task.
pub fn run(job: &Job, task: &Task) -> Result<()> {
    let moves = match (task.what, task.source()) {
        (What::Moves, _) => task.moving.read(job.seed, task.records)?,
        (_, Some(source)) => Moves {
            start: source.read(job.seed, task.records)?,
            steps: Vec::new(),
        },
        (_, None) => return Err(Failure::new("there are no points")),
    };
    let Moves { mut start, steps } = moves;
    if task.by_place {
        start.sort_by_key(|at| at.z());
    }
    let mut questions = Questions::new(job.seed, &start);
    let moved = vec![0; start.len()];
    let mut session = Session::create(job, task, start, moved)?;
    session.load()?;
    if matches!(task.who, Who::Esker(setup) if !setup.kind.is_of_points()) {
        return Ok(());
    }
    session.check(&questions)?;
    if task.what == What::Moves {
        session.moves(&steps, &questions)?;
        questions = Questions::new(job.seed, &session.places);
        session.check(&questions)?;
    }
    let experiment = match task.what {
        What::Layouts => "query-time",
        what => what.name(),
    };
    session.finds(experiment, &questions)?;
    session.nearest(experiment)
}

/// Rectangles, by the share that they hold.
struct Questions(Vec<(&'static str, Vec<Rect>)>);

impl Questions {
    fn new(seed: u64, places: &[Place]) -> Questions {
        let halves = Halves::new(places);
        let mut rng = Rng::with_seed(seed ^ 2);
        let of = |(name, share): (&'static str, f64)| {
            let records = (places.len() as f64 * share).round().max(share.ceil()) as usize;
            let rects = (0..ASKED_MOST).map(|_| halves.square(&mut rng, records));
            (name, rects.collect())
        };
        Questions(SHARES.map(of).into())
    }

    fn of(&self, share: &str) -> &[Rect] {
        let found = self.0.iter().find(|(name, _)| *name == share);
        found.map_or(&[], |(_, rects)| rects)
    }
}

/// A store and what must be in it.
struct Session<'j> {
    job: &'j Job,
    task: &'j Task,
    space: Box<dyn Space>,
    places: Vec<Place>,
    /// How often each record moved.
    moved: Vec<u32>,
    harness_memory: u64,
}

impl<'j> Session<'j> {
    fn create(
        job: &'j Job,
        task: &'j Task,
        places: Vec<Place>,
        moved: Vec<u32>,
    ) -> Result<Session<'j>> {
        meter::forget_peak()?;
        let harness_memory = meter::memory()?.0;
        let dir = &job.scratch;
        let space: Box<dyn Space> = match &task.who {
            Who::Esker(setup) => Box::new(Esker::create(dir, setup)?),
            Who::Sqlite => Box::new(Sqlite::create(dir, task.memory)?),
            #[cfg(feature = "rocksdb")]
            Who::Rocks => Box::new(Rocks::create(dir, task.memory)?),
            #[cfg(not(feature = "rocksdb"))]
            Who::Rocks => return Err(Failure::new("built without RocksDB")),
            Who::InMemory => Box::new(InMemory::default()),
        };
        Ok(Session {
            job,
            task,
            space,
            places,
            moved,
            harness_memory,
        })
    }

    /// A row of these measurements.
    fn row(
        &self,
        experiment: &str,
        operation: &str,
        latency: &Latency,
        cpu: Duration,
    ) -> Result<Row> {
        let mut row = session::row(self.job, operation, latency, cpu);
        row.experiment = experiment.to_string();
        let data = match (self.task.what, self.task.source()) {
            (What::Moves, _) | (_, None) => self.task.moving.name(),
            (_, Some(source)) => source.name(),
        };
        row.parameters.insert("data".to_string(), data.into());
        let points = Json::from(self.places.len());
        row.parameters.insert("points".to_string(), points);
        let mean = row.seconds * 1e6 / row.ops.max(1) as f64;
        row.figures.insert("mean_us".to_string(), mean);
        let memory = meter::memory()?.1.saturating_sub(self.harness_memory);
        let budget = match self.task.who {
            Who::Esker(setup) => setup.memory,
            _ => self.task.memory,
        };
        for (name, bytes) in [
            ("peak_memory_bytes", memory as f64),
            ("budget_bytes", budget as f64),
        ] {
            row.figures.insert(name.to_string(), bytes);
        }
        Ok(row)
    }

    /// A row of transactions of so many writes together.
    fn of_writes(
        &self,
        (experiment, operation): (&str, &str),
        writes: usize,
        measured: &Measured,
        settling: Duration,
    ) -> Result<Row> {
        let mut row = self.row(experiment, operation, &measured.latency, measured.cpu)?;
        let writing = row.seconds;
        row.ops = writes as u64;
        row.seconds += settling.as_secs_f64();
        row.cpu_us = measured.cpu.as_secs_f64() * 1e6 / writes.max(1) as f64;
        let each = row.seconds * 1e6 / writes.max(1) as f64;
        row.figures.insert("mean_us".to_string(), each);
        let bytes = (writes * super::RECORD) as f64;
        let written = measured.io.written_bytes as f64;
        for (name, figure) in [
            ("settle_seconds", settling.as_secs_f64()),
            (
                "writes_per_second_before_settling",
                writes as f64 / writing.max(1e-9),
            ),
            ("written_bytes", written),
            ("write_amplification", written / bytes.max(1.0)),
            ("disk_bytes", meter::disk_bytes(&self.job.scratch)? as f64),
            ("index_runs", self.space.runs() as f64),
        ] {
            row.figures.insert(name.to_string(), figure);
        }
        Ok(row)
    }

    /// Writes all records, then lets the store settle: what is left to compact is work that the writes made.
    fn load(&mut self) -> Result<()> {
        let experiment = match self.task.what {
            What::Layouts => "write-amplification",
            what => what.name(),
        };
        let places = std::mem::take(&mut self.places);
        let window = places.len().div_ceil(WINDOWS).max(1);
        let (mut items, mut next) = (Vec::new(), window);
        let mut written = None;
        let mut meter = Meter::start()?;
        let mut rows: Vec<(usize, Written)> = Vec::new();
        for (part, chunk) in places.chunks(BATCH).enumerate() {
            let first = part * BATCH;
            meter.aside(|| fill(&mut items, first, chunk));
            let space = &mut self.space;
            meter.time(|| space.put(&items, true))?;
            written = meter.aside(|| space.written());
            let done = first + chunk.len();
            if let Some(written) = written
                && done >= next
            {
                rows.push((done, written));
                next = done + window;
            }
        }
        self.places = places;
        let settling = Instant::now();
        self.space.settle()?;
        let settling = settling.elapsed();
        let measured = meter.finish()?;
        if self.task.what == What::Layouts {
            for (done, written) in rows {
                let mut row = self.row(experiment, "ingest", &Latency::new()?, Duration::ZERO)?;
                row.parameters.insert("records".to_string(), done.into());
                amplification(&mut row, written);
                self.job.report(&row)?;
            }
        }
        let writes = self.places.len();
        let mut row = self.of_writes((experiment, "insert"), writes, &measured, settling)?;
        if written.is_some()
            && let Some(written) = self.space.written()
        {
            amplification(&mut row, written);
        }
        self.job.report(&row)
    }

    /// Moves objects, and asks for a rectangle after each transaction.
    fn moves(&mut self, steps: &[(u32, Place)], questions: &Questions) -> Result<()> {
        let limit = Duration::from_millis(self.task.moving_ms);
        let mut asked = questions.of(AMONG).iter().cycle();
        let (mut finds, mut found) = (Latency::new()?, 0);
        let (mut items, mut writes): (Vec<Item>, _) = (Vec::new(), 0);
        let mut meter = Meter::start()?;
        for chunk in steps.chunks(BATCH) {
            if meter.wall() > limit {
                break;
            }
            let (places, moved) = (&mut self.places, &mut self.moved);
            meter.aside(|| {
                items.resize_with(chunk.len(), Item::default);
                for (item, (object, at)) in items.iter_mut().zip(chunk) {
                    if let Some(place) = places.get_mut(*object as usize) {
                        *place = *at;
                    }
                    let times = moved.get_mut(*object as usize);
                    let times = times.map_or(0, |times| {
                        *times += 1;
                        *times
                    });
                    item.set(*object, *at, times);
                }
            });
            let space = &mut self.space;
            meter.time(|| space.put(&items, false))?;
            writes += chunk.len();
            if let Some(rect) = asked.next() {
                let begin = Instant::now();
                meter.aside(|| space.find(rect, &mut |_| found += 1))?;
                finds.add(begin.elapsed());
            }
        }
        let settling = Instant::now();
        self.space.settle()?;
        let settling = settling.elapsed();
        let measured = meter.finish()?;
        let row = self.of_writes(("moves", "move"), writes, &measured, settling)?;
        self.job.report(&row)?;
        let mut row = self.row("moves", "find among moves", &finds, Duration::ZERO)?;
        let each = f64::from(found) / finds.ops().max(1) as f64;
        row.figures.insert("rows".to_string(), each);
        self.job.report(&row)
    }

    /// Counts and finds what lies in rectangles.
    fn finds(&mut self, experiment: &str, questions: &Questions) -> Result<()> {
        for (share, rects) in &questions.0 {
            let row = self.ask(experiment, "count", rects.len(), |space, at| {
                space.count(&rects[at])
            })?;
            self.report(row, share)?;
            let row = self.ask(experiment, "find", rects.len(), |space, at| {
                let mut bytes = 0;
                let mut records = 0;
                space.find(&rects[at], &mut |body| {
                    bytes += body.len();
                    records += 1;
                })?;
                std::hint::black_box(bytes);
                Ok(records)
            })?;
            self.report(row, share)?;
        }
        Ok(())
    }

    fn report(&self, mut row: Row, share: &str) -> Result<()> {
        let share = Json::from(share);
        row.parameters.insert("selectivity".to_string(), share);
        self.job.report(&row)
    }

    /// Finds the nearest few of places near records.
    fn nearest(&mut self, experiment: &str) -> Result<()> {
        let mut rng = Rng::with_seed(self.job.seed ^ 3);
        let about = |_| self.places.get(rng.usize(0..self.places.len().max(1)));
        let places: Vec<Place> = (0..ASKED_MOST).filter_map(about).copied().collect();
        let mut answers = true;
        let row = self.ask(experiment, "nearest", places.len(), |space, at| {
            let mut records = 0;
            answers = space.nearest(places[at], NEAREST, &mut |_| records += 1)?;
            Ok(records)
        })?;
        match answers {
            true => self.job.report(&row),
            false => Ok(()),
        }
    }

    /// Measures questions of a kind, by their numbers; `ask` tells how many records each got.
    fn ask(
        &mut self,
        experiment: &str,
        operation: &str,
        most: usize,
        mut ask: impl FnMut(&mut dyn Space, usize) -> Result<u64>,
    ) -> Result<Row> {
        let limit = Duration::from_millis(self.task.time_ms);
        let before = self.space.cost();
        let (mut meter, mut records) = (Meter::start()?, 0);
        for at in 0..most {
            if meter.ops() >= ASKED_LEAST && meter.wall() > limit {
                break;
            }
            records += meter.time(|| ask(&mut *self.space, at))?.0;
        }
        let measured = meter.finish()?;
        let Cost {
            index_blocks,
            blocks,
            blocks_read,
        } = self.space.cost();
        let mut row = self.row(experiment, operation, &measured.latency, measured.cpu)?;
        let ops = row.ops.max(1) as f64;
        let disk_reads = measured.io.disk_read_bytes as f64 / DISK_BLOCK;
        for (name, count) in [
            ("rows", records as f64),
            ("index_blocks", (index_blocks - before.index_blocks) as f64),
            ("blocks", (blocks - before.blocks) as f64),
            (
                "blocks_read_per_op",
                (blocks_read - before.blocks_read) as f64,
            ),
            ("disk_reads", disk_reads),
        ] {
            row.figures.insert(name.to_string(), count / ops);
        }
        let runs = self.space.runs() as f64;
        row.figures.insert("index_runs".to_string(), runs);
        Ok(row)
    }

    fn wrong(&self, what: String) -> Failure {
        Failure::new(format!("{} answers wrongly: {what}", self.job.subject))
    }

    /// Asks for some rectangles, and for some nearest records, and compares.
    fn check(&mut self, questions: &Questions) -> Result<()> {
        for (share, rects) in &questions.0 {
            for rect in rects.iter().take(CHECKED) {
                self.check_rect(share, rect)?;
            }
        }
        let mut rng = Rng::with_seed(self.job.seed ^ 4);
        for _ in 0..CHECKED {
            let from = self.places.get(rng.usize(0..self.places.len().max(1)));
            if let Some(from) = from.copied()
                && matches!(self.task.who, Who::Esker(_))
            {
                self.check_nearest(from)?;
            }
        }
        Ok(())
    }

    fn check_rect(&mut self, share: &str, rect: &Rect) -> Result<()> {
        let numbered = self.places.iter().zip(&self.moved).enumerate();
        let inside = numbered.filter(|(_, (at, _))| rect.holds(**at));
        let expected: Vec<(usize, (&Place, &u32))> = inside.collect();
        let mut given = Vec::new();
        let mut records = 0;
        self.space.find(rect, &mut |body| {
            records += 1;
            if given.len() <= CHECKED_RECORDS {
                given.push(body.to_vec());
            }
        })?;
        let what = format!("a rectangle of {share}, {:?}", rect.degrees());
        if records != expected.len() {
            return Err(self.wrong(format!("{what}: {records} records of {}", expected.len())));
        }
        // SQLite's count is as exact as its boxes.
        let counted = self.space.count(rect)? as usize;
        let is_close = counted == records || self.task.who == Who::Sqlite && counted > records;
        if !is_close {
            return Err(self.wrong(format!("{what}: counted {counted} of {records}")));
        }
        if records > CHECKED_RECORDS {
            return Ok(());
        }
        let body = |(id, (at, moved)): &(usize, (&Place, &u32))| {
            let mut body = Vec::new();
            record(*id as u64, **at, **moved, &mut body);
            body
        };
        let mut bodies: Vec<Vec<u8>> = expected.iter().map(body).collect();
        bodies.sort_unstable();
        given.sort_unstable();
        match bodies == given {
            true => Ok(()),
            false => Err(self.wrong(format!("{what}: other records"))),
        }
    }

    fn check_nearest(&mut self, from: Place) -> Result<()> {
        let mut given = Vec::new();
        self.space.nearest(from, NEAREST, &mut |body| {
            let json: std::result::Result<Json, _> = serde_json::from_slice(body);
            let id = json.ok().and_then(|json| json.get("id")?.as_u64());
            let at = id.and_then(|id| self.places.get(id as usize));
            given.push(at.map_or(f64::NAN, |at| metres(from, *at)));
        })?;
        let mut all: Vec<f64> = self.places.iter().map(|at| metres(from, *at)).collect();
        let few = NEAREST.min(all.len());
        if few > 0 {
            all.select_nth_unstable_by(few - 1, f64::total_cmp);
        }
        all.truncate(few);
        all.sort_by(f64::total_cmp);
        let is_same = given.len() == few
            && given
                .iter()
                .zip(&all)
                .all(|(given, expected)| (given - expected).abs() < 0.01);
        match is_same {
            true => Ok(()),
            false => Err(self.wrong(format!("nearest to {from:?}: {given:?} instead of {all:?}"))),
        }
    }
}

impl Item {
    fn set(&mut self, id: u32, at: Place, moved: u32) {
        (self.id, self.at) = (id, at);
        self.body.clear();
        record(u64::from(id), at, moved, &mut self.body);
    }
}

/// New records at these places, numbered from `first`.
fn fill(items: &mut Vec<Item>, first: usize, places: &[Place]) {
    items.resize_with(places.len(), Item::default);
    for (item, (at, id)) in items.iter_mut().zip(places.iter().zip(first..)) {
        item.set(id as u32, *at, 0);
    }
}

/// Adds how often each byte of a flush was written, to the index and to everything.
fn amplification(row: &mut Row, written: Written) {
    for (name, (flushed, all)) in [
        ("index_table_amplification", written.index),
        ("table_amplification", written.all),
    ] {
        if flushed > 0 {
            let times = all as f64 / flushed as f64;
            row.figures.insert(name.to_string(), times);
        }
    }
}
