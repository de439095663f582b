//! How a dataset is used: counters for the advisor (`advise/`).
//!
//! They are statistics and no part of the store: a handle that wrote leaves them in the file `USAGE` when it is
//! closed, without a sync. A file that is missing or cannot be read is taken for "nothing was counted".

use std::collections::BTreeMap;
use std::io;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use lsm::fs::Fs;
use serde_json::{Map, Value as Json, json};

use crate::def::MAX_INDEXES;
use crate::schema::Path;

const NAME: &str = "USAGE";
const TEMPORARY: &str = "USAGE.new";

/// A larger file is not ours.
const MAX_BYTES: u64 = 16 << 20;

/// The most attributes of a dataset that are counted: queries may ask for any path, and a program that
/// makes paths up must not fill the memory.
const MAX_PATHS: usize = 2 * MAX_INDEXES;

/// Validations over which their counters are halved.
const WASTE_WINDOW: u64 = 1 << 20;

/// Gets are counted on cache lines of their own, so that readers do not slow each other down.
const SHARDS: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = NEXT_THREAD.fetch_add(1, Relaxed);
}

/// What was asked of an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Queries for one value that this attribute's index answered, or a scan for want of one.
    pub lookups: u64,
    /// Queries for a range of values, likewise.
    pub ranges: u64,
    /// Of both, those with a limit.
    pub limited: u64,
    /// The sum of the limits.
    pub limits: u64,
    /// Records that the ranges without a limit found.
    pub range_rows: u64,
    /// Of lookups and ranges, those that a scan answered.
    pub scans: u64,
}

/// The counters of one attribute, in the order of [`Asked::values`].
#[derive(Default)]
struct LiveAsked([AtomicU64; 6]);

impl Asked {
    const NAMES: [&str; 6] = [
        "lookups",
        "ranges",
        "limited",
        "limits",
        "range_rows",
        "scans",
    ];

    fn values(&self) -> [u64; 6] {
        [
            self.lookups,
            self.ranges,
            self.limited,
            self.limits,
            self.range_rows,
            self.scans,
        ]
    }

    fn from_values(values: [u64; 6]) -> Asked {
        let [lookups, ranges, limited, limits, range_rows, scans] = values;
        Asked {
            lookups,
            ranges,
            limited,
            limits,
            range_rows,
            scans,
        }
    }

    pub(crate) fn to_json(self) -> Json {
        let fields = Asked::NAMES.iter().zip(self.values());
        Json::Object(
            fields
                .map(|(name, n)| ((*name).to_string(), json!(n)))
                .collect(),
        )
    }

    fn from_json(json: &Json) -> Asked {
        Asked::from_values(Asked::NAMES.map(|name| number(json, name)))
    }
}

impl LiveAsked {
    fn new(asked: Asked) -> LiveAsked {
        LiveAsked(asked.values().map(AtomicU64::new))
    }

    fn add(&self, asked: Asked) {
        for (counter, n) in self.0.iter().zip(asked.values()) {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
    }

    fn read(&self) -> Asked {
        Asked::from_values(std::array::from_fn(|at| {
            self.0.get(at).map_or(0, |counter| counter.load(Relaxed))
        }))
    }
}

/// What was counted of a dataset at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageCounts {
    /// Records put or inserted, new or not.
    pub puts: u64,
    /// Keys deleted, there or not.
    pub deletes: u64,
    /// Gets by primary key.
    pub gets: u64,
    /// What was asked of each attribute, declared or not.
    pub attributes: BTreeMap<Path, Asked>,
}

impl UsageCounts {
    pub(crate) fn to_json(&self) -> Json {
        let attributes = self.attributes.iter();
        let attributes: Map<String, Json> = attributes
            .map(|(path, asked)| (path.to_string(), asked.to_json()))
            .collect();
        json!({
            "puts": self.puts,
            "deletes": self.deletes,
            "gets": self.gets,
            "attributes": attributes,
        })
    }

    fn from_json(json: &Json) -> UsageCounts {
        let attributes = json.get("attributes").and_then(Json::as_object);
        let attributes = attributes.into_iter().flatten();
        UsageCounts {
            puts: number(json, "puts"),
            deletes: number(json, "deletes"),
            gets: number(json, "gets"),
            attributes: attributes
                .take(MAX_PATHS)
                .filter_map(|(path, asked)| {
                    Some((Path::parse(path).ok()?, Asked::from_json(asked)))
                })
                .collect(),
        }
    }
}

/// Numbers are kept below 2^53, so that no sum of them overflows.
fn number(json: &Json, name: &str) -> u64 {
    let n = json.get(name).and_then(Json::as_u64).unwrap_or(0);
    n.min(1 << 53)
}

/// The live counters of a dataset, shared by its handles.
#[derive(Default)]
pub(crate) struct Usage {
    puts: AtomicU64,
    deletes: AtomicU64,
    gets: [Shard; SHARDS],
    attributes: ArcSwap<BTreeMap<Path, Arc<LiveAsked>>>,
    /// Candidates of indexes that turned out to be over, and all that were validated. Not kept.
    over: AtomicU64,
    validated: AtomicU64,
    /// Writes that were counted when the counters were last kept.
    kept: AtomicU64,
}

impl Usage {
    pub(crate) fn new(counts: &UsageCounts) -> Usage {
        let usage = Usage::default();
        usage.puts.store(counts.puts, Relaxed);
        usage.deletes.store(counts.deletes, Relaxed);
        usage.kept.store(counts.puts + counts.deletes, Relaxed);
        if let Some(Shard(first)) = usage.gets.first() {
            first.store(counts.gets, Relaxed);
        }
        let attributes = counts.attributes.iter();
        let live = attributes.map(|(path, asked)| (path.clone(), Arc::new(LiveAsked::new(*asked))));
        usage.attributes.store(Arc::new(live.collect()));
        usage
    }

    /// Counts a batch that was committed.
    pub(crate) fn wrote(&self, puts: u64, deletes: u64) {
        self.puts.fetch_add(puts, Relaxed);
        self.deletes.fetch_add(deletes, Relaxed);
    }

    /// Counts the candidates of a query: those that were over, and all that it had to validate.
    pub(crate) fn validated(&self, over: u64, all: u64) {
        // Old queries count for less and less.
        if self.validated.fetch_add(all, Relaxed) > WASTE_WINDOW {
            self.validated
                .store(self.validated.load(Relaxed) / 2, Relaxed);
            self.over.store(self.over.load(Relaxed) / 2, Relaxed);
        }
        self.over.fetch_add(over, Relaxed);
    }

    /// True when so many candidates turn out to be over that it pays to ask the primary-key index before
    /// records are fetched.
    pub(crate) fn is_wasteful(&self) -> bool {
        self.over.load(Relaxed).saturating_mul(8) > self.validated.load(Relaxed)
    }

    /// Counts a get.
    #[inline]
    pub(crate) fn got(&self) {
        let thread = THREAD.with(|thread| *thread);
        if let Some(Shard(gets)) = self.gets.get(thread % SHARDS) {
            gets.fetch_add(1, Relaxed);
        }
    }

    /// Counts what a query asked of an attribute.
    pub(crate) fn asked(&self, path: &Path, asked: Asked) {
        if let Some(live) = self.attributes.load().get(path) {
            return live.add(asked);
        }
        let fresh = Arc::new(LiveAsked::default());
        self.attributes.rcu(|known| {
            let mut next = BTreeMap::clone(known);
            if next.len() < MAX_PATHS {
                next.entry(path.clone()).or_insert_with(|| fresh.clone());
            }
            next
        });
        if let Some(live) = self.attributes.load().get(path) {
            live.add(asked);
        }
    }

    pub(crate) fn read(&self) -> UsageCounts {
        let attributes = self.attributes.load();
        UsageCounts {
            puts: self.puts.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            gets: self.gets.iter().map(|shard| shard.0.load(Relaxed)).sum(),
            attributes: attributes
                .iter()
                .map(|(path, live)| (path.clone(), live.read()))
                .collect(),
        }
    }

    /// True when something was written since the last call.
    pub(crate) fn take_written(&self) -> bool {
        let writes = self.puts.load(Relaxed) + self.deletes.load(Relaxed);
        self.kept.swap(writes, Relaxed) != writes
    }
}

/// What earlier handles counted, by dataset.
pub(crate) fn load(fs: &dyn Fs, dir: &FsPath) -> BTreeMap<String, UsageCounts> {
    let json = read(fs, &dir.join(NAME));
    let datasets = json.as_ref().and_then(Json::as_object);
    let datasets = datasets.into_iter().flatten();
    datasets
        .map(|(name, counts)| (name.clone(), UsageCounts::from_json(counts)))
        .collect()
}

fn read(fs: &dyn Fs, path: &FsPath) -> Option<Json> {
    if !fs.exists(path) {
        return None;
    }
    let file = fs.open(path).ok()?;
    let len = file.len().ok().filter(|len| *len <= MAX_BYTES)?;
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Replaces what is kept.
pub(crate) fn keep(
    fs: &dyn Fs,
    dir: &FsPath,
    datasets: &BTreeMap<String, UsageCounts>,
) -> io::Result<()> {
    let datasets = datasets.iter();
    let json: Map<String, Json> = datasets
        .map(|(name, counts)| (name.clone(), counts.to_json()))
        .collect();
    let temporary = dir.join(TEMPORARY);
    let file = fs.create(&temporary)?;
    file.append(Json::Object(json).to_string().as_bytes())?;
    drop(file);
    fs.rename(&temporary, &dir.join(NAME))
}
