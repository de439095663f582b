//! Measurements for background maintenance: operation counts, in which older operations count less,
//! and the last repair.
//!
//! Counts fade by operations, not by time, so that decisions are the same on every machine. They
//! are stored with the usage counters (`usage.rs`), as statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker_lsm::Seq;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The number of writes and queries after which all counts are halved.
const WINDOW: u64 = 1 << 16;

/// Counts of recent operations: operations half a window ago count about half.
///
/// A query is counted if the indexes of its candidates are all stand-alone, or all range filters
/// (`filter_scanned`). Other queries are not counted, because some of their candidates come with
/// the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    /// Records put, inserted and deleted.
    pub(crate) written: u64,
    /// Writes of which it is known whether they replaced a record.
    pub(crate) known: u64,
    /// Of these, writes that replaced one.
    pub(crate) replaced: u64,
    /// Index-only queries.
    #[serde(rename = "index_only_queries")]
    pub(crate) index_only: u64,
    /// The index entries that they visited.
    pub(crate) entries: u64,
    /// Of these, entries whose keys they probed in the primary-key index.
    pub(crate) probed: u64,
    /// Other queries of an index.
    #[serde(rename = "fetching_queries")]
    pub(crate) fetching: u64,
    /// The records that all these queries fetched.
    pub(crate) fetched: u64,
    /// Of these, records that were obsolete.
    pub(crate) wasted: u64,
    /// Records that scans by range filters visited.
    #[serde(rename = "scanned")]
    pub(crate) filter_scanned: u64,
}

impl Measured {
    /// The number of counts.
    pub(crate) const COUNTS: usize = 10;

    /// All counts, in the order of the fields.
    fn fields(&mut self) -> [&mut u64; Measured::COUNTS] {
        let Measured {
            written,
            known,
            replaced,
            index_only,
            entries,
            probed,
            fetching,
            fetched,
            wasted,
            filter_scanned,
        } = self;
        [
            written,
            known,
            replaced,
            index_only,
            entries,
            probed,
            fetching,
            fetched,
            wasted,
            filter_scanned,
        ]
    }

    /// The counts, in the order of the fields.
    pub(crate) fn values(mut self) -> [u64; Measured::COUNTS] {
        self.fields().map(|field| *field)
    }

    /// The inverse of [`Measured::values`].
    pub(crate) fn from_values(values: [u64; Measured::COUNTS]) -> Measured {
        let mut measured = Measured::default();
        for (field, value) in measured.fields().into_iter().zip(values) {
            *field = value;
        }
        measured
    }

    /// The share of writes that replaced a record; `None` if fewer than `least` writes are known.
    pub(crate) fn update_ratio(&self, least: u64) -> Option<f64> {
        // The counters are halved one after the other: in between, `replaced` may exceed `known`.
        (self.known >= least.max(1)).then(|| (self.replaced as f64 / self.known as f64).min(1.0))
    }

    /// Limits all counts so that sums do not overflow.
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
    /// The expected cost of each candidate: microseconds of one core per write, with the cost of
    /// queries divided among the writes.
    pub micros_per_write: BTreeMap<String, f64>,
}

/// The part of a dataset's maintenance state that is stored when its handle is closed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredMaintenance {
    pub(crate) measured: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_repair: Option<LastRepair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) choice: Option<StrategyChoice>,
    /// The last error of maintenance. Earlier versions stored that of
    /// [`StoredMaintenance::obsolete_save_error`] here if there was no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// See [`MaintenanceState::obsolete_save_error`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) obsolete_save_error: Option<String>,
}

/// The state of a dataset's maintenance, besides the counts.
#[derive(Default)]
pub(crate) struct MaintenanceState {
    pub(crate) repair: Option<LastRepair>,
    /// The last choice of the strategy.
    pub(crate) choice: Option<StrategyChoice>,
    /// The last error, unless a later attempt succeeded.
    pub(crate) error: Option<String>,
    /// The operation count when the strategy was last considered.
    pub(crate) considered_at: u64,
    /// The error of the last attempt to save the obsolete writes that queries found, unless a later
    /// one succeeded.
    pub(crate) obsolete_save_error: Option<String>,
    /// The number of failures in a row.
    failures: u32,
    /// The number of rounds still to skip.
    pause: u32,
}

/// The maximum number of rounds that are skipped after a failure: about two minutes.
const MAX_PAUSE: u32 = 255;

impl MaintenanceState {
    /// True if this round must be skipped. To be called once per round. Counted in rounds, not
    /// time, so that a store without background threads is deterministic.
    pub(crate) fn pauses(&mut self) -> bool {
        let pauses = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        pauses
    }

    /// Records that a round succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.error = None;
        self.failures = 0;
    }

    /// Records the error of a round, and lengthens the pause: 1, 3, 7 rounds and so on.
    pub(crate) fn failed(&mut self, error: &Error) {
        self.error = Some(error.to_string());
        self.failures = self.failures.saturating_add(1);
        let pause = 1_u32
            .checked_shl(self.failures)
            .map_or(MAX_PAUSE, |pause| pause - 1);
        self.pause = pause.min(MAX_PAUSE);
    }
}

/// The live counts of a dataset.
#[derive(Default)]
pub(crate) struct LiveMeasurements {
    counts: [AtomicU64; Measured::COUNTS],
    /// All writes and queries since the dataset was opened.
    operations: AtomicU64,
    /// Keys probed since the last repair.
    probed: AtomicU64,
    /// Obsolete records fetched since the last repair.
    wasted: AtomicU64,
    pub(crate) state: Mutex<MaintenanceState>,
}

/// The work that queries have wasted since the last repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WastedWork {
    /// Keys probed.
    pub(crate) probed: u64,
    /// Obsolete records fetched.
    pub(crate) fetched_obsolete: u64,
}

impl LiveMeasurements {
    /// Adds counts, and halves all of them if they are more than a window.
    pub(crate) fn add(&self, counts: Measured) {
        let operations = counts.written + counts.index_only + counts.fetching;
        let totals = [
            (&self.probed, counts.probed),
            (&self.wasted, counts.wasted),
            (&self.operations, operations),
        ];
        for (counter, n) in self.counts.iter().zip(counts.values()).chain(totals) {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
        let now = self.read();
        if now.written + now.index_only + now.fetching > WINDOW {
            for counter in &self.counts {
                counter.store(counter.load(Relaxed) / 2, Relaxed);
            }
        }
    }

    /// The counts now.
    pub(crate) fn read(&self) -> Measured {
        Measured::from_values(self.counts.each_ref().map(|count| count.load(Relaxed)))
    }

    /// Writes and queries since the dataset was opened.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Relaxed)
    }

    /// The work that queries have wasted since the last repair.
    pub(crate) fn wasted(&self) -> WastedWork {
        WastedWork {
            probed: self.probed.load(Relaxed),
            fetched_obsolete: self.wasted.load(Relaxed),
        }
    }

    /// Learns from a repair how many writes replaced a record, under a strategy that does not look
    /// them up. To be called before the repair is [recorded](LiveMeasurements::repaired).
    pub(crate) fn learn_update_ratio(&self, repair: &LastRepair) {
        let state = self.state.lock();
        let Some(last) = &state.repair else {
            return;
        };
        // All are statistics, which can be lost, and the obsolete set forgets writes.
        let known = repair.writes.saturating_sub(last.writes);
        let obsolete = repair.known_obsolete.saturating_sub(last.known_obsolete);
        self.add(Measured {
            known,
            replaced: obsolete.min(known),
            ..Measured::default()
        });
    }

    /// Records a repair.
    pub(crate) fn repaired(&self, repair: LastRepair) {
        self.probed.store(0, Relaxed);
        self.wasted.store(0, Relaxed);
        let mut state = self.state.lock();
        state.repair = Some(repair);
        state.error = None;
    }

    /// The part of the state that is stored.
    pub(crate) fn to_stored(&self) -> StoredMaintenance {
        let state = self.state.lock();
        StoredMaintenance {
            measured: self.read(),
            last_repair: state.repair.clone(),
            choice: state.choice.clone(),
            error: state.error.clone(),
            obsolete_save_error: state.obsolete_save_error.clone(),
        }
    }

    /// Counts that continue from the stored ones.
    pub(crate) fn new(stored: StoredMaintenance) -> LiveMeasurements {
        let counts = stored.measured.bounded().values();
        LiveMeasurements {
            counts: counts.map(AtomicU64::new),
            state: Mutex::new(MaintenanceState {
                repair: stored.last_repair,
                choice: stored.choice,
                error: stored.error,
                obsolete_save_error: stored.obsolete_save_error,
                ..MaintenanceState::default()
            }),
            ..LiveMeasurements::default()
        }
    }
}
