//! Compares the planner's estimates with the results: two hundred conditions on skewed records for
//! each kind of index, in memory and in tables, after updates and deletes, before and after
//! compactions.

#[path = "../common/expected.rs"]
mod expected;

use crate::common;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{converge, number};
use esker::schema::{Layout, Maintenance};
use esker::{Database, Dataset, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Type};
use esker_sim::memory::Memory;
use esker_sim::{by_tier, is_nightly};
use expected::{EVEN, SKEWED, compare};

/// Commits with skewed authors and repositories, in bursts.
struct Commits {
    rng: fastrand::Rng,
    authors: Vec<String>,
    repo: usize,
    time: i64,
    next: u64,
}

impl Commits {
    fn new(seed: u64) -> Commits {
        let mut rng = fastrand::Rng::with_seed(seed);
        let authors = (0..4000).map(|_| format!("u{:08x}", rng.u32(..))).collect();
        Commits {
            rng,
            authors,
            repo: 0,
            time: 961_272_614,
            next: 0,
        }
    }

    /// A number below `n` with a logarithmic distribution.
    fn skewed(&mut self, n: usize) -> usize {
        let exponent = self.rng.f64();
        ((n as f64).powf(exponent) - 1.0) as usize
    }

    fn author(&mut self) -> String {
        // One author is hot, and the others have skewed frequencies.
        if self.rng.f64() < 0.3 {
            "hot".to_owned()
        } else {
            let at = self.skewed(4000);
            self.authors[at].clone()
        }
    }

    fn record(&mut self, id: u64) -> String {
        if self.rng.f64() < 0.01 {
            self.repo = self.skewed(6);
        }
        self.time += self.rng.i64(0..900);
        let author = self.author();
        let (dir, files) = (self.skewed(150), 1 + self.skewed(500));
        let delay: f64 = -30.0 * (1.0 - self.rng.f64()).ln();
        let (repo, time, number) = (self.repo, self.time, self.rng.u32(..20_000));
        let text = "initial revision ".repeat(1 + self.rng.usize(..6));
        format!(
            r#"{{"id":{id},"time":{time},"author":"{author}","repo":"repo{repo}","dir":"dir{dir}","files":{files},"delay":{},"number":{number},"all":{},"text":"{text}"}}"#,
            delay as i64 - 10,
            id % 3,
        )
    }

    fn new_record(&mut self) -> String {
        self.next += 1;
        self.record(self.next)
    }
}

const ATTRIBUTES: [(&str, Type); 7] = [
    ("time", Type::Int),
    ("author", Type::String),
    ("repo", Type::String),
    ("dir", Type::String),
    ("files", Type::Int),
    ("delay", Type::Int),
    ("number", Type::Int),
];

fn store(
    kind: IndexKind,
    maintenance: Maintenance,
    layout: Option<Layout>,
) -> (Database, Dataset<u64>) {
    let options = Options::new()
        .memory_budget(8 << 20)
        .durability(Durability::Os)
        .fs(Arc::new(Memory::new()))
        .background(false)
        .table_size(256 << 10);
    let db = Database::create_or_open(FsPath::new(common::DIR), options).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int).maintenance(maintenance);
    for (path, ty) in ATTRIBUTES.into_iter().filter(|_| layout.is_none()) {
        def = def.index(path, Index::new(kind).of_type(ty));
    }
    if let Some(layout) = layout {
        let index = Index::new(IndexKind::Spatial(layout));
        def = def.index("at", index.of_type(Type::Point));
    }
    // With a condition on `all` beside it, the planner must estimate every other condition.
    def = def.index("all", Index::new(IndexKind::Composite).of_type(Type::Int));
    let dataset = db.create_dataset("d", def).unwrap();
    (db, dataset)
}

/// A condition that one index answers, and the allowed error.
fn condition(commits: &mut Commits) -> (String, f64) {
    let rng = &mut commits.rng;
    match rng.u32(..12) {
        0 => {
            let (lo, days) = (961_272_614 + rng.i64(0..20_000_000), rng.i64(1..200));
            let hi = lo + days * days * 60;
            (format!("time >= {lo} and time < {hi}"), EVEN)
        }
        1 | 2 => (format!("author = {}", commits.author()), SKEWED),
        3 => {
            let at = rng.usize(..4000);
            (format!("author = {}", commits.authors[at]), SKEWED)
        }
        4 => {
            let (lo, width) = (rng.u32(..), 1 << rng.u32(20..30));
            let hi = lo.saturating_add(width);
            (
                format!("author >= u{lo:08x} and author < u{hi:08x}"),
                SKEWED,
            )
        }
        5 => (format!("repo = repo{}", commits.skewed(6)), SKEWED),
        6 => (format!("dir = dir{}", commits.skewed(150)), SKEWED),
        7 => (format!("files = {}", 1 + commits.skewed(500)), SKEWED),
        8 => (format!("files >= {}", rng.u32(1..450)), EVEN),
        9 => (format!("delay > {}", rng.u32(..120)), EVEN),
        10 => (format!("number = {}", rng.u32(..20_000)), EVEN),
        _ => {
            let (lo, width) = (rng.u32(..20_000), 1 << rng.u32(4..14));
            (format!("number >= {lo} and number < {}", lo + width), EVEN)
        }
    }
}

fn estimates_fit(kind: IndexKind, maintenance: Maintenance, seed: u64) {
    let records = number("ESKER_RECORDS", by_tier(12_000, 30_000)) as u64;
    let (db, dataset) = store(kind, maintenance, None);
    let mut commits = Commits::new(seed);
    let mut wrong = Vec::new();
    let what = |state: &str| format!("{kind}, {maintenance}, seed {seed}, {state}");
    let next = |commits: &mut Commits| {
        let (text, bound) = condition(commits);
        // Samples of data tables contain too few rare values.
        let bound = if kind.is_standalone() { bound } else { SKEWED };
        (text, bound)
    };
    for _ in 0..records / 50 {
        dataset.put_json(commits.new_record()).unwrap();
    }
    wrong.extend(compare(
        &dataset,
        &mut || next(&mut commits),
        &what("in memory"),
    ));
    while commits.next < records {
        dataset.put_json(commits.new_record()).unwrap();
    }
    wrong.extend(compare(
        &dataset,
        &mut || next(&mut commits),
        &what("as written"),
    ));
    converge(&db);
    db.compact(None).unwrap();
    wrong.extend(compare(
        &dataset,
        &mut || next(&mut commits),
        &what("merged"),
    ));
    for _ in 0..records / 3 {
        let id = commits.rng.u64(1..=records);
        match commits.rng.u8(..5) {
            0 => drop(dataset.delete(id).unwrap()),
            _ => {
                let record = commits.record(id);
                dataset.put_json(record).unwrap();
            }
        }
    }
    wrong.extend(compare(
        &dataset,
        &mut || next(&mut commits),
        &what("updated"),
    ));
    converge(&db);
    wrong.extend(compare(
        &dataset,
        &mut || next(&mut commits),
        &what("updated and merged"),
    ));
    let n = wrong.len();
    assert_eq!(n, 0, "{n} estimates do not fit: {wrong:#?}");
}

/// Points around towns of different sizes, and a few anywhere.
fn place(rng: &mut fastrand::Rng, towns: &[(f64, f64)]) -> (f64, f64) {
    if rng.f64() < 0.05 {
        return (rng.f64() * 360.0 - 180.0, rng.f64() * 170.0 - 85.0);
    }
    let at = (towns.len() as f64).powf(rng.f64()) as usize - 1;
    let (lon, lat) = towns[at];
    let mut near = || (rng.f64() + rng.f64() - 1.0) * 0.5;
    (lon + near(), lat + near())
}

fn estimates_of_areas_fit(layout: Layout, seed: u64) -> Vec<String> {
    let records = number("ESKER_RECORDS", by_tier(12_000, 30_000)) as u64;
    let (db, dataset) = store(IndexKind::None, Maintenance::Deferred, Some(layout));
    let mut rng = fastrand::Rng::with_seed(7 + seed);
    let town = |rng: &mut fastrand::Rng| (rng.f64() * 340.0 - 170.0, rng.f64() * 140.0 - 70.0);
    let towns: Vec<_> = (0..300).map(|_| town(&mut rng)).collect();
    let put = |rng: &mut fastrand::Rng, id: u64| {
        let (lon, lat) = place(rng, &towns);
        let text = "a place ".repeat(1 + rng.usize(..8));
        let record = format!(r#"{{"id":{id},"at":[{lon},{lat}],"all":1,"text":"{text}"}}"#);
        dataset.put_json(record).unwrap();
    };
    let areas = |rng: &mut fastrand::Rng| {
        let (lon, lat) = place(rng, &towns);
        let (x, y) = (
            0.02 * 300_f64.powf(rng.f64()),
            0.02 * 300_f64.powf(rng.f64()),
        );
        let (w, s) = ((lon - x).max(-180.0), (lat - y).max(-90.0));
        let (e, n) = ((lon + x).min(180.0), (lat + y).min(90.0));
        (format!("within(at, rect({w},{s},{e},{n}))"), SKEWED)
    };
    let what = |state: &str| format!("{layout:?}, seed {seed}, {state}");
    (1..=records).for_each(|id| put(&mut rng, id));
    let mut wrong = compare(&dataset, &mut || areas(&mut rng), &what("as written"));
    converge(&db);
    db.compact(None).unwrap();
    wrong.extend(compare(&dataset, &mut || areas(&mut rng), &what("merged")));
    for _ in 0..records / 3 {
        let id = rng.u64(1..=records);
        put(&mut rng, id);
    }
    wrong.extend(compare(&dataset, &mut || areas(&mut rng), &what("updated")));
    wrong
}

#[test]
fn of_areas() {
    let mut wrong = Vec::new();
    for seed in common::seeds(1) {
        let all = [Layout::Z, Layout::Mbr, Layout::Stacked, Layout::Embedded];
        for layout in by_tier(vec![Layout::Mbr, Layout::Embedded], all.to_vec()) {
            wrong.extend(estimates_of_areas_fit(layout, seed));
        }
    }
    let n = wrong.len();
    assert_eq!(n, 0, "{n} estimates do not fit: {wrong:#?}");
}

/// Ten thousand records with one of five states, in one run, and of each the day. Then some move to
/// another state, in several runs.
struct Moved {
    db: Database,
    dataset: Dataset<u64>,
}

const STATES: u64 = 5;
const DAYS: u64 = 40;

impl Moved {
    fn new(maintenance: Maintenance) -> Moved {
        let db = common::open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .maintenance(maintenance)
            .index("state", Index::composite().string())
            .index("day", Index::composite().int());
        let dataset = db.create_dataset("d", def).unwrap();
        let moved = Moved { db, dataset };
        for id in 0..10_000 {
            moved.put(id, &format!("s{}", id % STATES));
        }
        moved.db.compact(None).unwrap();
        moved
    }

    fn put(&self, id: u64, state: &str) {
        let day = id % DAYS;
        let json = format!(r#"{{"id":{id},"state":"{state}","day":{day}}}"#);
        self.dataset.put_json(json).unwrap();
    }

    /// The entries that are expected of a state, and the plan of a query for it and a day.
    fn expected(&self, state: &str) -> (u64, esker::Explain) {
        let condition = format!("state = {state} and day = 7").parse().unwrap();
        let mut answer = self.dataset.find(condition).run().unwrap();
        assert!(answer.by_ref().all(|row| row.is_ok()));
        let explain = answer.explain();
        let mut compared = explain.plan.compared.iter();
        let of_state = compared.find(|one| one.index == "state").unwrap();
        (of_state.expected, explain)
    }
}

#[test]
fn a_new_value_is_expected_as_often_as_it_is_there() {
    for maintenance in [Maintenance::Deferred, Maintenance::Eager] {
        for flushes in [1, 3] {
            // `s2x` is between the states that are there: their blocks may have it.
            for (state, before) in [("s2x", 0), ("s2x", 2), ("s9", 0)] {
                let what = format!("{maintenance}, {state}, {before} before, {flushes} flushes");
                let moved = Moved::new(maintenance);
                let mut next = (0..).map(|at| at * 61 % 10_000);
                for id in next.by_ref().take(before) {
                    moved.put(id, state);
                }
                moved.db.compact(None).unwrap();
                // Other records move among the states that there were.
                for _ in 0..flushes {
                    for (at, id) in next.by_ref().take(155).enumerate() {
                        moved.put(id, state);
                        for other in 0..3 {
                            let other = (at as u64 * 3 + other) * 7;
                            moved.put(other, &format!("s{}", (other + 1) % STATES));
                        }
                    }
                    moved.db.flush().unwrap();
                }
                let there = (before + flushes * 155) as u64;
                let (expected, explain) = moved.expected(state);
                assert!(
                    expected >= there / 2 && expected <= 2 * there,
                    "{what}: {expected} expected, {there} there: {explain}"
                );
                // A value that is nowhere is expected to be rare.
                let (expected, explain) = moved.expected("s3x");
                assert!(expected <= 25, "{what}: {expected}: {explain}");
            }
        }
    }
}

/// What runs in the usual tier: each way of counting once.
const USUAL: [&str; 4] = [
    "of_composite_eagerly",
    "of_lazy",
    "of_recent_with_a_set",
    "of_fingerprint",
];

macro_rules! kinds {
    ($($name:ident: $kind:expr, $maintenance:expr;)*) => {
        $(#[test]
        fn $name() {
            if !is_nightly() && !USUAL.contains(&stringify!($name)) {
                return;
            }
            for seed in common::seeds(1) {
                estimates_fit($kind, $maintenance, seed);
            }
        })*
    };
}

kinds! {
    of_composite: IndexKind::Composite, Maintenance::Deferred;
    of_composite_eagerly: IndexKind::Composite, Maintenance::Eager;
    of_lazy: IndexKind::Lazy, Maintenance::Deferred;
    of_lazy_eagerly: IndexKind::Lazy, Maintenance::Eager;
    of_eager: IndexKind::Eager, Maintenance::Deferred;
    of_eager_validated: IndexKind::Eager, Maintenance::Validation;
    of_recent: IndexKind::Recent, Maintenance::Deferred;
    of_recent_with_a_set: IndexKind::Recent, Maintenance::MutableBitmap;
    of_embedded: IndexKind::Embedded, Maintenance::Deferred;
    of_fingerprint: IndexKind::Fingerprint, Maintenance::Deferred;
    of_filter: IndexKind::Filter, Maintenance::Deferred;
}
