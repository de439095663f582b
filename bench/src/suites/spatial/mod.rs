//! The experiments of Spatial-LSM (chapter 5 of the thesis; figures 5.3 and 5.4) on Esker's layouts of an index of points, the
//! same points beside SQLite's R*Tree, RocksDB with a table in z-order and an R*-tree in memory, and objects that move.

mod claims;
mod in_memory;
mod phases;
mod places;
#[cfg(feature = "rocksdb")]
mod rocks;
pub mod sheets;
mod sqlite;
mod store;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::places::{Moving, RECORD, Source};
use self::store::{Kind, Setup};
use super::upkeep::{self, LARGEST, Planned};
use crate::failure::Result;
use crate::run::Job;

/// The suite's name.
pub const SUITE: &str = "spatial";

/// Real points, and real moves.
const POINTS: &str = "points.ndjson.zst";
const AIRCRAFT: &str = "moves.ndjson.zst";
/// How often an object moves, on average.
const TIMES: usize = 5;
/// Tables in a budget: so that there are as many levels at every scale.
const TABLES: u64 = 64;

/// How the suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: upkeep::Options,

    /// Folder with `points.ndjson.zst` and `moves.ndjson.zst` [default: the project's, where there is one]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Options {
    /// Folder for the results.
    pub fn out(&self) -> &std::path::Path {
        &self.common.out
    }
}

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Figures 5.3 and 5.4: writes, and questions afterwards.
    Layouts,
    /// The same beside others, with memory for everything.
    Points,
    /// Objects that move.
    Moves,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Layouts => "layouts",
            What::Points => "points",
            What::Moves => "moves",
        }
    }
}

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Who {
    Esker(Setup),
    Sqlite,
    Rocks,
    InMemory,
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    what: What,
    who: Who,
    moving: Moving,
    /// Points at most.
    records: usize,
    /// Whether keys and arrival are in the order of place.
    by_place: bool,
    /// Bytes for the store, whoever it is.
    memory: usize,
    /// Milliseconds that questions of a kind take at most.
    time_ms: u64,
    /// And moves.
    moving_ms: u64,
}

impl Task {
    /// Where the points are.
    fn source(&self) -> Option<&Source> {
        match &self.moving {
            Moving::Objects(source, _) => Some(source),
            Moving::Real(_) => None,
        }
    }
}

/// The layouts under the conditions of the paper: levels as in LevelDB, memory for a quarter of the records. `stacked` does not
/// compact large components any more, as AsterixDB.
fn layouts(records: usize) -> Vec<(&'static str, Setup, bool)> {
    let memory = (records * RECORD / 4).max(1 << 20);
    let of = |kind, leveled| Setup {
        kind,
        leveled,
        memory,
        direct: true,
        table: Some((memory as u64 / TABLES).max(1 << 16)),
        largest: (kind == Kind::Stacked).then_some(((records * RECORD) as f64 * LARGEST) as u64),
        best: false,
    };
    let best = Setup {
        best: true,
        ..of(Kind::Mbr, true)
    };
    let unbounded = Setup {
        largest: None,
        ..of(Kind::Stacked, true)
    };
    vec![
        ("z", of(Kind::Z, true), false),
        ("mbr", of(Kind::Mbr, true), false),
        ("mbr pick-best", best, false),
        ("stacked", of(Kind::Stacked, true), false),
        ("embedded", of(Kind::Embedded, true), false),
        ("by key", of(Kind::Composite, true), false),
        ("stacked unbounded", unbounded, false),
        ("z lazy-leveled", of(Kind::Z, false), false),
        ("mbr lazy-leveled", of(Kind::Mbr, false), false),
        ("embedded by place", of(Kind::Embedded, true), true),
    ]
}

/// Memory for everything, whoever it is for.
fn ample(records: usize) -> usize {
    (records * RECORD * 3 / 2).max(64 << 20)
}

/// Esker as it comes.
fn usual(kind: Kind, records: usize) -> Who {
    Who::Esker(Setup {
        kind,
        leveled: false,
        memory: ample(records),
        direct: false,
        table: None,
        largest: None,
        best: false,
    })
}

/// Everybody who finds points.
fn everybody(records: usize) -> Vec<(&'static str, Who)> {
    vec![
        ("z", usual(Kind::Z, records)),
        ("mbr", usual(Kind::Mbr, records)),
        ("stacked", usual(Kind::Stacked, records)),
        ("embedded", usual(Kind::Embedded, records)),
        ("sqlite r*tree", Who::Sqlite),
        ("rocksdb z-order", Who::Rocks),
        ("rstar in memory", Who::InMemory),
    ]
}

/// Everything that a run does: subjects that are compared follow each other.
fn planned(options: &Options) -> Result<Vec<Planned<Task>>> {
    let (common, folder) = (&options.common, options.data.as_deref());
    let points = places::file(folder, POINTS)?;
    let aircraft = places::file(folder, AIRCRAFT)?;
    let spread = Source::Spread(points.clone());
    let sources = points.into_iter().map(Source::Real).chain([spread.clone()]);
    let mut all = Vec::new();
    let mut plan = |name: &str, subject: &str, cache, task| {
        all.push(Planned {
            experiment: name.to_string(),
            subject: subject.to_string(),
            cache,
            task,
        });
    };
    let task = |what, who, source: &Source, records, by_place| Task {
        what,
        who,
        moving: Moving::Objects(source.clone(), TIMES),
        records,
        by_place,
        memory: ample(records),
        time_ms: 3000,
        moving_ms: 60_000,
    };
    let sources: Vec<Source> = sources.collect();
    for source in &sources {
        let records = source.most(common.records(1.0))?;
        let name = format!("layouts {}", source.name());
        for (subject, setup, by_place) in layouts(records) {
            let who = Who::Esker(setup);
            let task = task(What::Layouts, who, source, records, by_place);
            plan(&name, subject, "direct", task);
        }
    }
    for source in &sources {
        let records = source.most(common.records(1.0))?;
        let name = format!("points {}", source.name());
        let without = [
            ("no index", usual(Kind::None, records)),
            ("composite", usual(Kind::Composite, records)),
        ];
        for (subject, who) in without.into_iter().chain(everybody(records)) {
            let task = task(What::Points, who, source, records, false);
            plan(&name, subject, "cached", task);
        }
    }
    // How questions grow with the points.
    let tenth = common.records(0.1);
    for (subject, who) in everybody(tenth) {
        let task = task(What::Points, who, &spread, tenth, false);
        plan("points tenth", subject, "cached", task);
    }
    let objects = Moving::Objects(spread.clone(), TIMES);
    for moving in aircraft.into_iter().map(Moving::Real).chain([objects]) {
        let records = common.records(0.2);
        let name = format!("moves {}", moving.name());
        for (subject, who) in everybody(records) {
            let task = Task {
                moving: moving.clone(),
                ..task(What::Moves, who, &spread, records, false)
            };
            plan(&name, subject, "cached", task);
        }
    }
    Ok(all)
}

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let planned = planned(options)?;
    let records = options.common.records(1.0);
    let is_real = planned
        .iter()
        .any(|planned| planned.experiment == "layouts real");
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / 1048576.0);
    let settings = [
        (
            "points",
            format!(
                "{records}, in records of {RECORD} bytes; {}",
                match is_real {
                    true => "`real`: populated places of the world, at most that many; `spread`: about these places, within 17 km",
                    false =>
                        "`spread`: about 2,000 invented towns; there is no file of real points, so `real` is left out",
                }
            ),
        ),
        (
            "direct",
            format!(
                "{} of memory, a quarter of the records; reads go round the page cache; tables of a 64th of the memory; levels as in \
                 LevelDB, or lazy-leveled where the subject says so; `stacked` does not compact components of more than a \
                 thirtieth of the records' bytes",
                mib(records * RECORD / 4)
            ),
        ),
        (
            "cached",
            format!(
                "{} of memory for each store (for SQLite and RocksDB as their cache), reads through the page cache; Esker as it \
                 comes",
                mib(ample(records))
            ),
        ),
        (
            "selectivity",
            "the share of the records that lie in a rectangle: a square of degrees about a random record, made to hold that many; \
             `point` is the place of a record"
                .to_string(),
        ),
        (
            "durability",
            "a thousand records a transaction; log written, never synced; SQLite likewise".to_string(),
        ),
    ];
    upkeep::run(SUITE, &options.common, &settings, &planned, claims::all)
}

/// Does one subject's share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    phases::run(job, &job.parameters()?)
}
