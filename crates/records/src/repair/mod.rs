//! Repair: finds obsolete writes, so that queries skip their index entries and compactions drop
//! them (Luo & Carey section 4.4; DELI section V).
//!
//! The findings go to the dataset's obsolete set, with a repair watermark: every write that was
//! superseded up to the watermark is in the set. Nothing else is written, so a repair can be
//! repeated, cancelled, and overtaken by another one. The findings of a cancelled repair are kept;
//! only the watermark does not move.
//!
//! | method | reads | in order of | probes |
//! | --- | --- | --- | --- |
//! | [`RepairMethod::Key`] (`by_key.rs`) | the primary-key index since the watermark | key | its older part |
//! | [`RepairMethod::Index`] (`by_index.rs`) | each index | key, sorted on disk (`esker_lsm::sort`) | the primary-key index since the watermark, deleted keys, or the data |
//! | [`RepairMethod::Primary`] (`primary.rs`) | the records, all versions | key | nothing |

mod against;
mod by_index;
mod by_key;
mod primary;
mod work;

use std::ops::ControlFlow;
use std::time::Duration;

use esker_lsm::version::TreeVersion;
use esker_lsm::{Component, Seq, Snapshot, TreeChange, TreeId};
use esker_model::definition::Repair;
use work::Work;

use crate::catalog::{Coverage, Layout, Role, Source, TreeConfig, superseded_tree};
use crate::error::{Error, Result};
use crate::index;
use crate::maintenance;
use crate::store::Handle;

/// Read-ahead of scans.
const READAHEAD: usize = 256 << 10;

/// A batched lookup of an existing key takes as long as scanning this many entries. Measured with a
/// million keys of twelve bytes: looking up a tenth of them was faster than a scan, looking up a
/// third slower.
const ENTRIES_PER_LOOKUP: u64 = 8;

/// How the repair finds obsolete writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RepairMethod {
    /// By key if compactions of the primary-key index report what they drop, otherwise from the
    /// records if their compactions do, otherwise by index.
    #[default]
    Auto,
    /// Reads the writes since the last repair, and the older writes that they replaced, from the
    /// primary-key index only, for all indexes at once.
    Key,
    /// Handles each index separately: sorts its entries by key and validates them (Luo & Carey,
    /// figure 7).
    Index,
    /// A pass over all versions of all records (DELI, algorithm 3).
    Primary {
        /// Whether the data is compacted, too.
        compaction: Compaction,
    },
}

/// When a repair from the records also compacts them to one sorted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compaction {
    /// Not at all.
    #[default]
    Without,
    /// The repair comes before the compaction, and reads many runs: the baseline that DELI
    /// measures.
    Before,
    /// The repair comes after the compaction, and reads one run: DELI's staged repair.
    After,
}

/// How the repair finds the entries of known keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Lookups {
    /// Chosen by the amount of data to read.
    #[default]
    Auto,
    /// By sorted batches of point lookups, always: for experiments.
    Points,
    /// By a pass over all entries, always: for experiments.
    MergeScan,
}

/// Settings of a repair.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// How the repair finds obsolete writes.
    pub method: RepairMethod,
    /// The largest memory of sorters and buffers together, in bytes, borrowed from the store's
    /// memory budget. Default 16 MiB.
    pub memory: usize,
    /// The number of reading threads, including the caller's. Default 0: one per core, or one if
    /// the store has no background threads ([`crate::Options::background`]). At most 64.
    pub threads: usize,
    /// The largest number of bytes to read per second, not 0. Default: no limit.
    pub bytes_per_second: Option<u64>,
    /// For a repair by index: do not sort keys that no newer key filter of the primary-key index
    /// contains. Default true; false is for experiments. Helps most if the trees are compacted
    /// together ([`crate::schema::Merging::Correlated`]).
    pub bloom: bool,
    /// How the repair finds the entries of known keys.
    pub lookups: Lookups,
}

impl Default for RepairOptions {
    fn default() -> RepairOptions {
        RepairOptions {
            method: RepairMethod::default(),
            memory: 16 << 20,
            threads: 0,
            bytes_per_second: None,
            bloom: true,
            lookups: Lookups::default(),
        }
    }
}

/// The progress of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairProgress {
    /// Entries read so far.
    pub done: u64,
    /// About how many entries there are.
    pub total: u64,
}

/// Called with the progress from time to time; returns whether to continue. It may use the dataset.
pub(crate) type OnRepair<'p> = dyn FnMut(RepairProgress) -> ControlFlow<()> + 'p;

impl RepairProgress {
    /// The progress of a repair in a store of another crate.
    pub fn new(done: u64, total: u64) -> RepairProgress {
        RepairProgress { done, total }
    }
}

/// The result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The method used; never [`RepairMethod::Auto`].
    pub method: RepairMethod,
    /// Entries read: of the primary-key index, the indexes, or the records.
    pub entries: u64,
    /// For a repair by index: how many of them were sorted; the others were known to be obsolete or
    /// valid.
    pub sorted: u64,
    /// Sorted pieces written to disk.
    pub spilled: u64,
    /// Keys looked up one by one.
    pub looked_up: u64,
    /// Obsolete writes found that were not known before.
    pub found: u64,
    /// The repair watermark before: all obsolete writes up to this number were known.
    pub mark_before: Seq,
    /// The repair watermark now: all obsolete writes up to this number are known.
    pub mark: Seq,
    /// Bytes read from files, without those that a compaction read.
    pub bytes_read: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// False if the task was cancelled: the findings are recorded, but the watermark has not moved.
    pub complete: bool,
}

impl Handle {
    /// See [`crate::Dataset::repair`].
    pub(crate) fn repair(
        &self,
        options: &RepairOptions,
        progress: &mut OnRepair<'_>,
    ) -> Result<RepairReport> {
        if options.bytes_per_second == Some(0) {
            return Err(Error::bad_input(
                "a repair needs a rate above 0 bytes a second",
            ));
        }
        self.superseded(Readable::Verified)?;
        self.shared.group.flush()?;
        self.repair_flushed(options, progress)
    }

    /// As [`Handle::repair`], for the writes that are flushed.
    pub(crate) fn repair_flushed(
        &self,
        options: &RepairOptions,
        progress: &mut OnRepair<'_>,
    ) -> Result<RepairReport> {
        let group = &self.shared.group;
        let superseded = self.superseded(Readable::AsOpened)?;
        self.current.keep_obsolete(group)?;
        let now = self.now();
        let layout = &now.layout;
        let before = watermark(&now.snapshot, superseded);
        let complete = Coverage::at(layout, Some(before)).loses_nothing();
        let method = choose(options.method, layout, complete)?;
        // An index under construction gets entries that the repair would not see.
        let _claim = match method {
            RepairMethod::Index => {
                let claim = self.current.claim()?;
                self.layout().refuse_unfinished()?;
                Some(claim)
            }
            _ => None,
        };
        let now = match method {
            RepairMethod::Primary {
                compaction: Compaction::After,
            } => {
                group.compact(Some(layout.data))?;
                let now = self.now();
                // If the strategy changed concurrently, compactions may have dropped writes without
                // a report.
                let before = watermark(&now.snapshot, superseded);
                let complete = Coverage::at(&now.layout, Some(before)).loses_nothing();
                choose(method, &now.layout, complete)?;
                now
            }
            // An index may have been added before the claim.
            RepairMethod::Index => self.now(),
            _ => now,
        };
        let layout = &now.layout;
        let known = now.snapshot.superseded(superseded);
        let known = known.ok_or_else(|| Error::damaged("the obsolete set is missing"))?;
        let work = Work::new(group, superseded, now.snapshot.clone(), known, options);
        // If every write records what it replaces, a repair finds nothing.
        let coverage = Coverage::at(layout, Some(before));
        let says = coverage.of(Source::IndexEntries).is_always();
        let result = match method {
            _ if says && options.method == RepairMethod::Auto => Ok(()),
            RepairMethod::Key => by_key::run(&work, layout, progress),
            RepairMethod::Index => {
                let watermark = watermark(&now.snapshot, superseded);
                let complete = Coverage::at(layout, Some(watermark)).loses_nothing();
                let drops_recorded = complete && layout.stored.settings.repair == Repair::Merge;
                let mut result = by_index::run(&work, layout, drops_recorded, progress);
                let filters = layout
                    .attributes
                    .iter()
                    .any(|a| index::is_filtered_scan(a.kind));
                if filters && !complete {
                    // The index entries of a range filter are the records themselves, in all stored
                    // versions.
                    result = result.and_then(|()| primary::run(&work, layout, progress));
                }
                result
            }
            RepairMethod::Primary { .. } => primary::run(&work, layout, progress),
            RepairMethod::Auto => Ok(()),
        };
        let finished = work.finish(result)?;
        if let RepairMethod::Primary {
            compaction: Compaction::Before,
        } = method
        {
            group.compact(Some(layout.data))?;
        }
        Ok(RepairReport {
            method,
            mark_before: before,
            mark: watermark(&group.snapshot(), superseded),
            ..finished
        })
    }

    /// The tree of the obsolete set. Creates it if the store is older than obsolete sets, and
    /// recreates it if its files cannot be read: then its numbers must be found again, as after a
    /// change of strategy.
    fn superseded(&self, wanted: Readable) -> Result<TreeId> {
        let readable = |layout: &Layout| {
            let snapshot = self.shared.group.snapshot();
            let id = layout.superseded?;
            let tree = snapshot.version().trees.get(&id)?;
            let is_readable =
                tree.damage().is_none() && (wanted == Readable::AsOpened || is_undamaged(tree));
            is_readable.then_some(id)
        };
        if let Some(tree) = readable(&self.layout()) {
            return Ok(tree);
        }
        let _claim = self.current.claim()?;
        let layout = self.layout();
        // Another thread may have created it by now.
        if let Some(tree) = readable(&layout) {
            return Ok(tree);
        }
        let config = TreeConfig::new(Role::Superseded, &layout.stored.settings);
        let mut stored = layout.stored.clone();
        let made = self.shared.group.change_trees(&mut |last| {
            if layout.superseded.is_some() {
                stored.settings.since = last;
            }
            Ok(TreeChange {
                created: vec![(superseded_tree(&self.name()), config.to_bytes())],
                // With the definition, so that layouts of it are computed again.
                configured: vec![(layout.data, stored.to_bytes())],
                dropped: layout.superseded.into_iter().collect(),
                ..TreeChange::default()
            })
        })?;
        let made = made.first().copied();
        made.ok_or_else(|| Error::damaged("the obsolete set was not created"))
    }
}

/// How thoroughly the files of the obsolete set are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    /// Their entries were readable when the store was opened.
    AsOpened,
    /// Also, every byte of them is correct now: after a repair `check` must find nothing.
    Verified,
}

fn is_undamaged(tree: &TreeVersion) -> bool {
    let mut tables = tree.runs.iter().flat_map(|run| run.tables.iter());
    tables.all(|table| {
        let mut errors = 0;
        table.table().is_ok_and(|table| {
            table.verify(&mut |_| errors += 1);
            errors == 0
        })
    })
}

/// The repair watermark: every write that was superseded up to it is in the set.
fn watermark(snapshot: &Snapshot, superseded: TreeId) -> Seq {
    let tree = snapshot.version().trees.get(&superseded);
    tree.map_or(0, |tree| tree.repair_watermark())
}

/// The method to use; an error if the requested one does not fit.
fn choose(method: RepairMethod, layout: &Layout, complete: bool) -> Result<RepairMethod> {
    let settings = &layout.stored.settings;
    let by_key = complete && layout.keys.is_some();
    let primary = complete && maintenance::of(settings.maintenance).data_reports();
    match method {
        RepairMethod::Auto if by_key => Ok(RepairMethod::Key),
        RepairMethod::Auto if primary => Ok(RepairMethod::Primary {
            compaction: Compaction::Without,
        }),
        RepairMethod::Auto => Ok(RepairMethod::Index),
        RepairMethod::Key if !by_key => Err(Error::bad_input(
            "a repair by key needs maintenance eager, validation or mutable-bitmap, and repair merge: only then do compactions of the primary-key index record what they drop",
        )),
        RepairMethod::Primary { .. } if !primary => Err(Error::bad_input(
            "a primary repair needs deferred maintenance, and repair merge or staged: only then do compactions record or keep replaced records",
        )),
        method => Ok(method),
    }
}

/// The runs of a tree, newest first, without memtables.
fn runs(work: &Work<'_>, tree: TreeId) -> Vec<Component> {
    let mut components = work.snapshot.components(tree);
    components.retain(|component| matches!(component, Component::Run(_)));
    components
}

fn entries(components: &[Component]) -> u64 {
    components.iter().map(Component::entries).sum()
}
