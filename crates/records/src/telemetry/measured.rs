//! What is measured for background maintenance: counts of operations that old ones fade from, and the last repair.
//!
//! They fade by operations and not by time, so what follows from them is the same on every machine. Kept with the
//! counters of use (`usage.rs`), as statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker_lsm::Seq;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Writes and queries after which all counts are halved.
const WINDOW: u64 = 1 << 16;

/// Counts of the last operations: about as many as were half of the window ago count for half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    /// Records put, inserted and deleted.
    pub(crate) written: u64,
    /// Those of which it is known whether they replaced a record, and those that did.
    pub(crate) known: u64,
    pub(crate) replaced: u64,
    /// Queries that need no records but to know what is current; the index entries that they went through,
    /// and those whose keys were probed in the primary-key index.
    #[serde(rename = "index_only_queries")]
    pub(crate) bare: u64,
    pub(crate) entries: u64,
    pub(crate) probed: u64,
    /// Other queries of an index, the records that they fetched, and those of them that were obsolete.
    #[serde(rename = "fetching_queries")]
    pub(crate) fetching: u64,
    pub(crate) fetched: u64,
    pub(crate) wasted: u64,
    /// Records that scans of tables with summaries went through.
    pub(crate) scanned: u64,
}

impl Measured {
    /// How many counts there are.
    pub(crate) const COUNTS: usize = 10;

    pub(crate) fn values(&self) -> [u64; 10] {
        [
            self.written,
            self.known,
            self.replaced,
            self.bare,
            self.entries,
            self.probed,
            self.fetching,
            self.fetched,
            self.wasted,
            self.scanned,
        ]
    }

    pub(crate) fn from_values(values: [u64; 10]) -> Measured {
        let [
            written,
            known,
            replaced,
            bare,
            entries,
            probed,
            fetching,
            fetched,
            wasted,
            scanned,
        ] = values;
        Measured {
            written,
            known,
            replaced,
            bare,
            entries,
            probed,
            fetching,
            fetched,
            wasted,
            scanned,
        }
    }

    /// The share of writes that replaced a record; `None` where it is known of less than so many.
    pub(crate) fn update_ratio(&self, least: u64) -> Option<f64> {
        (self.known >= least.max(1)).then(|| (self.replaced as f64 / self.known as f64).min(1.0))
    }

    /// So small that no sum of them overflows.
    fn bounded(self) -> Measured {
        Measured::from_values(self.values().map(|n| n.min(1 << 32)))
    }
}

/// A completed repair and its findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LastRepair {
    /// All obsolete writes up to this sequence number were known when it ended.
    pub up_to: Seq,
    /// The number of records ever written before it.
    pub writes: u64,
    /// Obsolete writes known when it ended.
    #[serde(alias = "known_to_be_over")]
    pub known_obsolete: u64,
    /// Entries that it read.
    pub entries: u64,
    /// Obsolete writes that it found.
    pub found: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Why it ran.
    pub why: String,
}

/// The last choice of a maintenance strategy by measurements, with reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StrategyChoice {
    /// The strategy.
    pub strategy: String,
    /// Why, in words.
    pub why: String,
    /// The smallest measured change that would lead to another choice.
    pub would_change: String,
    /// The expected cost of each candidate: microseconds of one core per write, with the cost of queries divided among
    /// the writes.
    pub micros_per_write: BTreeMap<String, f64>,
}

/// What is kept of a dataset's maintenance when its handle is closed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptMaintenance {
    pub(crate) measured: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_repair: Option<LastRepair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) choice: Option<StrategyChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// What is remembered beside the counts.
#[derive(Default)]
pub(crate) struct Remembered {
    pub(crate) repair: Option<LastRepair>,
    /// Why the present strategy was chosen, and what would change it: for people.
    pub(crate) choice: Option<StrategyChoice>,
    /// What went wrong last, if nothing went well since.
    pub(crate) error: Option<String>,
    /// Operations that were counted when the strategy was last thought about.
    pub(crate) considered: u64,
    /// What went wrong when what queries found to be obsolete was last written, if it was not written since.
    pub(crate) not_kept: Option<String>,
    /// How often in a row it went wrong, and how many looks are still to be passed over.
    failures: u32,
    pause: u32,
}

/// At most so many looks are passed over after a failure: about two minutes.
const LONGEST_PAUSE: u32 = 255;

impl Remembered {
    /// To be called once a look: whether it is too early to try again. Counted in looks and not in time, so that without
    /// background threads a run is the same each time.
    pub(crate) fn pauses(&mut self) -> bool {
        let pauses = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        pauses
    }

    pub(crate) fn succeeded(&mut self) {
        self.error = None;
        self.failures = 0;
    }

    pub(crate) fn failed(&mut self, error: &Error) {
        self.error = Some(error.to_string());
        self.failures = self.failures.saturating_add(1);
        // 1, 3, 7 and so on.
        let pause = 1_u32.checked_shl(self.failures).unwrap_or(0);
        self.pause = pause.wrapping_sub(1).min(LONGEST_PAUSE);
    }
}

/// The live counts of a dataset.
#[derive(Default)]
pub(crate) struct Live {
    counts: [AtomicU64; 10],
    /// Writes and queries ever.
    operations: AtomicU64,
    /// Since the last repair: keys probed, and records fetched, of what was obsolete.
    probed: AtomicU64,
    wasted: AtomicU64,
    pub(crate) remembered: Mutex<Remembered>,
}

impl Live {
    pub(crate) fn add(&self, counts: Measured) {
        for (counter, n) in self.counts.iter().zip(counts.values()) {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
        let operations = counts.written + counts.bare + counts.fetching;
        for (counter, n) in [
            (&self.probed, counts.probed),
            (&self.wasted, counts.wasted),
            (&self.operations, operations),
        ] {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
        let now = self.read();
        if now.written + now.bare + now.fetching > WINDOW {
            for counter in &self.counts {
                counter.store(counter.load(Relaxed) / 2, Relaxed);
            }
        }
    }

    pub(crate) fn read(&self) -> Measured {
        Measured::from_values(std::array::from_fn(|at| {
            self.counts.get(at).map_or(0, |count| count.load(Relaxed))
        }))
    }

    /// Writes and queries since the dataset was opened.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Relaxed)
    }

    /// Since the last repair: keys probed, and records fetched of what was obsolete.
    pub(crate) fn wasted(&self) -> (u64, u64) {
        (self.probed.load(Relaxed), self.wasted.load(Relaxed))
    }

    /// Notes a repair. Of strategies that write blindly it tells how many writes replaced something.
    pub(crate) fn repaired(&self, repair: LastRepair, blind: bool) {
        self.probed.store(0, Relaxed);
        self.wasted.store(0, Relaxed);
        let mut remembered = self.remembered.lock();
        if let Some(last) = remembered.repair.as_ref().filter(|_| blind) {
            let known = repair.writes.saturating_sub(last.writes);
            self.add(Measured {
                known,
                replaced: (repair.known_obsolete)
                    .saturating_sub(last.known_obsolete)
                    .min(known),
                ..Measured::default()
            });
        }
        remembered.repair = Some(repair);
        remembered.error = None;
    }

    pub(crate) fn kept(&self) -> KeptMaintenance {
        let remembered = self.remembered.lock();
        let error = remembered.error.as_ref().or(remembered.not_kept.as_ref());
        KeptMaintenance {
            measured: self.read(),
            last_repair: remembered.repair.clone(),
            choice: remembered.choice.clone(),
            error: error.cloned(),
        }
    }

    pub(crate) fn new(kept: KeptMaintenance) -> Live {
        let counts = kept.measured.bounded().values();
        Live {
            counts: counts.map(AtomicU64::new),
            remembered: Mutex::new(Remembered {
                repair: kept.last_repair,
                choice: kept.choice,
                error: kept.error,
                ..Remembered::default()
            }),
            ..Live::default()
        }
    }
}
