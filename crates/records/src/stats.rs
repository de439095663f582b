//! Statistics of a store, for people and programs.

mod tables;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use esker_lsm::NamedSnapshot;
use esker_lsm::table::TableMeta;
use esker_lsm::version::{Run, TreeVersion};
use esker_lsm::{Component, Job, JobDescription, JobFailure, Retry, Seq, Snapshot, Time, Why};
use esker_model::definition::{DatasetDef, IndexKind, Maintenance, Merging, Repair};
use esker_model::schema::{Path, Type};
use serde::{Deserialize, Serialize};

use crate::catalog::Layout;
use crate::consumer::ChangeConsumer;
use crate::store::{DatasetState, Handle, Store};
pub use crate::telemetry::{LastRepair, QueryStats, StrategyChoice, UsageCounts};
pub use tables::TableStats;

/// The state of a store ([`Database::stats`](crate::Database::stats)). Can be serialised, and read
/// again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoreStats {
    /// The datasets, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub datasets: BTreeMap<String, DatasetStats>,
    /// How the memory budget is used.
    pub memory: MemoryStats,
    /// The engine's counters since the store was opened, by name: blocks read, files created, syncs
    /// and so on.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
    /// The consumers of changes; empty if their files cannot be read.
    pub consumers: Vec<ConsumerStats>,
    /// The named snapshots.
    pub snapshots: Vec<SnapshotStats>,
    /// Bytes of tables that only snapshots need.
    pub snapshot_bytes: u64,
    /// The time of the clock in milliseconds since 1970, if the clock is so far ahead that the
    /// store drops no expired records until the program [confirms](crate::Database::confirm_time)
    /// the time.
    pub unconfirmed_time: Option<Time>,
    /// Failing background jobs.
    pub failures: Vec<FailedJob>,
    /// Running flushes and compactions.
    pub jobs: Vec<JobStats>,
    /// Recent flushes and compactions that ended, newest first.
    pub ended_jobs: Vec<JobStats>,
}

/// How the memory budget of a store is used. In bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The whole budget.
    pub budget_bytes: usize,
    /// Memory in use, by purpose.
    pub held_bytes: BTreeMap<Cow<'static, str>, usize>,
    /// Threads that wait for memory.
    pub waiting: usize,
    /// How often a thread had to wait for memory.
    pub waits: u64,
    /// How often the store exceeded the budget because a thread had waited too long.
    pub overdrafts: u64,
    /// The current limit of the block cache.
    pub cache_limit_bytes: usize,
    /// The memory that the block cache uses.
    pub cache_bytes: usize,
    /// The largest size that the block cache can grow to.
    pub cache_capacity_bytes: usize,
    /// Bytes of the tables that are mapped
    /// ([`Options::mapped_reads`](crate::Options::mapped_reads)), apart from the budget: address
    /// space, of which the system's page cache holds what is used.
    #[serde(default)]
    pub mapped_bytes: u64,
    /// The memory that memtables (the newest writes, in memory) use.
    pub memtable_bytes: usize,
}

/// A consumer of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Its name.
    pub name: String,
    /// The dataset that it belongs to. `None` if an earlier version registered it for the whole
    /// store and no dataset has used it since.
    pub dataset: Option<String>,
    /// The store keeps the changes after this position.
    pub position: String,
    /// The largest number of log bytes that the store keeps for it.
    pub keeps_bytes: u64,
    /// Bytes of log that it has not read, counted over all datasets.
    pub lag_bytes: u64,
    /// Age, in seconds, of the oldest change that it has not read; `None` if it has read
    /// everything, or if the age is unknown.
    pub unread_seconds: Option<u64>,
}

/// A named snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotStats {
    /// Its name.
    pub name: String,
    /// The number of the last write that it contains.
    pub seq: Seq,
    /// Bytes of its tables.
    pub bytes: u64,
    /// Of these, bytes of tables that only this snapshot needs.
    pub own_bytes: u64,
}

/// A failing background job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedJob {
    /// Its kind: `flush` or `merge`.
    pub job: Cow<'static, str>,
    /// The tree that it compacts; `None` for a flush.
    pub tree: Option<String>,
    /// How many times in a row it failed.
    pub times: u64,
    /// When it is tried again.
    pub next_attempt: String,
    /// The last error.
    pub error: String,
}

/// A flush or compaction, running or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobStats {
    /// `flush` or `merge`.
    pub job: Cow<'static, str>,
    /// The name of its tree, or of the first of several.
    pub tree: Option<String>,
    /// The number of its trees.
    pub trees: usize,
    /// The first and the last level that it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_levels: Option<[u32; 2]>,
    /// The level that it writes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_level: Option<u32>,
    /// Why it was started.
    pub why: String,
    /// Bytes to read.
    pub bytes_in: u64,
    /// Bytes written so far.
    pub bytes_written: u64,
    /// How many seconds it has been running, or took.
    pub seconds: f64,
    /// How many seconds ago it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_ago: Option<f64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of a dataset ([`Dataset::stats`](crate::Dataset::stats)). Can be serialised, and read
/// again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DatasetStats {
    /// Its definition.
    pub definition: DatasetDef,
    /// An index change that was started and is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedIndex>,
    /// The maintenance strategy of its indexes, and its cost.
    pub strategy: StrategyStats,
    /// Its trees: the records first.
    pub trees: Vec<TreeStats>,
    /// Failing background jobs of its trees.
    pub failures: Vec<FailedJob>,
}

/// An index change that is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnfinishedIndex {
    /// The attribute.
    pub path: Path,
    /// The kind that its index will have.
    pub kind: IndexKind,
    /// The type of its values.
    #[serde(rename = "type")]
    pub ty: Type,
}

/// The maintenance strategy of a dataset, and its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StrategyStats {
    /// The maintenance strategy.
    pub maintenance: Maintenance,
    /// True if the store chooses it by measurements.
    pub automatic: bool,
    /// False while queries still have to handle outdated index entries of an earlier strategy.
    pub converged: bool,
    /// When the store records which writes are obsolete (replaced or deleted since).
    pub repair: Repair,
    /// How the trees are compacted.
    pub merging: Merging,
    /// How many versions of each record the store keeps.
    pub versions: u32,
    /// The number of the store's last write.
    pub last_write: Seq,
    /// The store knows all obsolete writes up to this number.
    pub repaired_up_to: Seq,
    /// The number of known obsolete writes that some table still contains.
    pub known_obsolete: u64,
    /// The share of writes that replaced a record; `None` before enough writes were counted.
    pub update_ratio: Option<f64>,
    /// About how much time queries have spent on obsolete index entries since the last repair.
    pub wasted_micros: u64,
    /// About how long the next repair will take.
    pub next_repair_micros: u64,
    /// The last repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_repair: Option<LastRepair>,
    /// The last choice of a strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<StrategyChoice>,
    /// The last background error, unless a later attempt succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A tree of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TreeStats {
    /// Its contents, in words.
    pub name: String,
    /// The error of a table that cannot be opened. [`Database::check`](crate::Database::check)
    /// finds all damage.
    pub damage: Option<String>,
    /// The entries that are not in tables yet.
    pub memtable: MemtableStats,
    /// Its sorted runs, newest first; level 0 can have several.
    pub levels: Vec<LevelStats>,
    /// The bytes of its tables.
    pub bytes: u64,
}

/// The part of a tree that is in memory and in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemtableStats {
    /// Entries.
    pub entries: u64,
    /// Bytes of memory.
    pub bytes: usize,
}

/// A sorted run of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LevelStats {
    /// Its level.
    pub level: u32,
    /// Its files.
    pub files: usize,
    /// Its entries.
    pub entries: u64,
    /// Of these, deletions.
    pub deletes: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Its first write.
    pub min_seq: Seq,
    /// Its last write.
    pub max_seq: Seq,
}

impl Store {
    /// See [`crate::Database::stats`].
    pub(crate) fn stats(self: &Arc<Store>) -> StoreStats {
        let group = &self.group;
        let memory = group.memory();
        let held = memory.held.iter();
        let named_stats = |state: Arc<DatasetState>| {
            let name = state.name();
            (name, Handle::new(self.clone(), state, None).stats())
        };
        StoreStats {
            datasets: self.dataset_states().into_iter().map(named_stats).collect(),
            memory: MemoryStats {
                budget_bytes: group.options().memory_budget,
                held_bytes: held
                    .map(|(account, bytes)| (account.name().into(), *bytes))
                    .collect(),
                waiting: memory.waiting,
                waits: memory.waits,
                overdrafts: memory.overdrafts,
                cache_limit_bytes: memory.cache_limit,
                cache_bytes: group.cache().used_bytes(),
                cache_capacity_bytes: group.cache().capacity(),
                mapped_bytes: memory.mapped,
                memtable_bytes: group.memtable_bytes(),
            },
            counters: (group.stats().each().into_iter())
                .map(|(name, count)| (name.into(), count))
                .collect(),
            consumers: (self.consumers().unwrap_or_default().into_iter())
                .map(consumer_stats)
                .collect(),
            snapshots: group.snapshots().into_iter().map(snapshot_stats).collect(),
            snapshot_bytes: group.snapshot_bytes(),
            unconfirmed_time: group.unconfirmed_time(),
            failures: group.failures().iter().map(failed_job).collect(),
            jobs: (group.jobs().into_iter())
                .map(|job| {
                    let running = JobProgress {
                        bytes_written: job.written,
                        elapsed: job.age,
                        ended_ago: None,
                        error: None,
                    };
                    job_stats(job.about, running)
                })
                .collect(),
            ended_jobs: (group.ended_jobs().into_iter())
                .map(|job| {
                    let ended = JobProgress {
                        bytes_written: job.written,
                        elapsed: job.took,
                        ended_ago: Some(job.ago),
                        error: job.error.map(|error| error.to_string()),
                    };
                    job_stats(job.about, ended)
                })
                .collect(),
        }
    }
}

fn consumer_stats(consumer: ChangeConsumer) -> ConsumerStats {
    ConsumerStats {
        name: consumer.name,
        dataset: consumer.dataset,
        position: consumer.position.to_string(),
        keeps_bytes: consumer.keeps_bytes,
        lag_bytes: consumer.lag_bytes,
        unread_seconds: consumer.unread_for.map(|age| age.as_secs()),
    }
}

fn snapshot_stats(snapshot: NamedSnapshot) -> SnapshotStats {
    SnapshotStats {
        name: snapshot.name,
        seq: snapshot.seq,
        bytes: snapshot.bytes,
        own_bytes: snapshot.own_bytes,
    }
}

impl Handle {
    /// See [`crate::Dataset::stats`].
    pub(crate) fn stats(&self) -> DatasetStats {
        let snapshot = self.store.group.snapshot();
        let layout = self.state.layout_in(snapshot.version());
        let own = layout.trees();
        // A dataset that was dropped has no trees.
        let trees = own.iter().filter_map(|id| snapshot.version().trees.get(id));
        let failures = self.store.group.failures();
        let concerns = |failure: &&JobFailure| match &failure.tree {
            Some((id, _)) => own.contains(id),
            // A flush concerns all trees.
            None => true,
        };
        DatasetStats {
            definition: layout.stored.def(),
            unfinished: layout.stored.change.as_ref().map(|change| {
                let def = &change.attribute.def;
                UnfinishedIndex {
                    path: def.path.clone(),
                    kind: def.kind,
                    ty: def.ty,
                }
            }),
            strategy: self.strategy_stats(&layout, &snapshot),
            trees: trees
                .map(|tree| tree_stats(&layout, &snapshot, tree))
                .collect(),
            failures: failures.iter().filter(concerns).map(failed_job).collect(),
        }
    }

    fn strategy_stats(&self, layout: &Layout, snapshot: &Snapshot) -> StrategyStats {
        let settings = &layout.stored.settings;
        let trees = &snapshot.version().trees;
        let obsolete_set = layout.superseded.and_then(|tree| trees.get(&tree));
        // A partly readable set guarantees nothing.
        let watermark = obsolete_set
            .filter(|tree| tree.damage().is_none())
            .map(|tree| tree.repair_watermark());
        let history = self.state.usage.maintenance().to_stored();
        let pace = self.pace(layout, snapshot);
        StrategyStats {
            maintenance: settings.maintenance,
            automatic: settings.auto,
            converged: settings.keys_after.is_none()
                && layout.coverage_at(watermark).has_converged(),
            repair: settings.repair,
            merging: settings.merging,
            versions: settings.versions,
            last_write: snapshot.seq(),
            repaired_up_to: obsolete_set.map_or(0, |tree| tree.repair_watermark()),
            known_obsolete: obsolete_set.map_or(0, |tree| tree.bitmap().len()),
            update_ratio: pace.update_ratio,
            wasted_micros: pace.wasted_micros,
            next_repair_micros: pace.next_repair_micros,
            last_repair: history.last_repair,
            choice: history.choice,
            error: history.error.or(history.obsolete_save_error),
        }
    }
}

fn tree_stats(layout: &Layout, snapshot: &Snapshot, tree: &TreeVersion) -> TreeStats {
    let mut memtable = MemtableStats {
        entries: 0,
        bytes: 0,
    };
    for component in snapshot.components(tree.id) {
        if let Component::Memtable(entries) = component {
            memtable.entries += entries.len() as u64;
            memtable.bytes += entries.memory();
        }
    }
    let damage = tree.tables().find_map(|table| table.table().err());
    TreeStats {
        name: tree_label(layout, tree),
        damage: damage.map(|error| error.to_string()),
        memtable,
        levels: tree.runs.iter().map(level_stats).collect(),
        bytes: tree.size(),
    }
}

fn failed_job(failure: &JobFailure) -> FailedJob {
    FailedJob {
        job: match failure.job {
            Job::Flush => "flush".into(),
            Job::Merge => "merge".into(),
        },
        tree: failure.tree.as_ref().map(|(_, name)| name.clone()),
        times: failure.times,
        next_attempt: match failure.retry {
            Retry::In(pause) => format!("in {:.1} s", pause.as_secs_f64()),
            Retry::AfterFlushes(0) => "at the next flush".to_string(),
            Retry::AfterFlushes(n) => format!("after {n} flushes"),
        },
        error: failure.error.to_string(),
    }
}

/// The progress of a running job, or the result of one that ended.
struct JobProgress {
    bytes_written: u64,
    /// How long it has been running, or took.
    elapsed: Duration,
    /// How long ago it ended; `None` if it is running.
    ended_ago: Option<Duration>,
    /// Why it failed, if it did.
    error: Option<String>,
}

fn job_stats(job: JobDescription, progress: JobProgress) -> JobStats {
    JobStats {
        job: job.kind.name().into(),
        tree: job.tree,
        trees: job.trees,
        from_levels: job.levels.map(|((first, last), _)| [first, last]),
        to_level: job.levels.map(|(_, to)| to),
        why: match job.why {
            Why::Memtables => "memtables".to_string(),
            Why::Due(score) => format!("due, {score:.2}"),
            Why::Newer => "newer runs of a tree whose older runs cannot be read".to_string(),
            Why::Asked => "requested".to_string(),
            Why::Space => "unused space".to_string(),
        },
        bytes_in: job.bytes_in,
        bytes_written: progress.bytes_written,
        seconds: progress.elapsed.as_secs_f64(),
        seconds_ago: progress.ended_ago.map(|ago| ago.as_secs_f64()),
        error: progress.error,
    }
}

/// The contents of a tree, for people.
fn tree_label(layout: &Layout, tree: &TreeVersion) -> String {
    if tree.id == layout.data {
        return "data".to_string();
    }
    if layout.keys_written == Some(tree.id) {
        let built = if layout.keys.is_none() {
            ", being built"
        } else {
            ""
        };
        return format!("primary-key index{built}");
    }
    if layout.superseded == Some(tree.id) {
        return "obsolete writes".to_string();
    }
    if layout.notes == Some(tree.id) {
        return "notes".to_string();
    }
    if layout.old == Some(tree.id) {
        return "replaced records, only in the log".to_string();
    }
    if layout.expiry == Some(tree.id) {
        return "expiry times".to_string();
    }
    for (_, attribute) in layout.written() {
        if attribute.deleted == Some(tree.id) {
            return format!("keys written since the index of {} began", attribute.path);
        }
        if attribute.widened == Some(tree.id) {
            return format!("replaced values of {}", attribute.path);
        }
        if attribute.tree == Some(tree.id) {
            let built = if attribute.incomplete {
                ", being built"
            } else {
                ""
            };
            return format!("{} index of {}{built}", attribute.kind, attribute.path);
        }
    }
    debug_assert!(
        (layout.building.iter()).any(|building| building.staging == Some(tree.id)),
        "the remaining tree of a dataset is the staging tree of an index"
    );
    "entries of the index under construction".to_string()
}

fn level_stats(run: &Run) -> LevelStats {
    let component = run.component();
    let sum = |of_table: fn(&TableMeta) -> u64| {
        let counts = run.tables.iter().map(|table| of_table(table.meta()));
        counts.sum::<u64>()
    };
    LevelStats {
        level: run.level,
        files: run.tables.len(),
        entries: sum(|meta| meta.entries),
        deletes: sum(|meta| meta.deletes),
        bytes: run.size(),
        min_seq: component.min,
        max_seq: component.max,
    }
}
