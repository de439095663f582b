//! Repair: finding the obsolete writes, so that queries skip what they left in the indexes and
//! compactions drop it (Luo & Carey section 4.4; DELI section V).
//!
//! What is found goes to the dataset's obsolete set, with a repair watermark: every write that was
//! superseded up to it is in the set. Nothing else is written, so a repair can be repeated, cancelled
//! and overtaken by another; what it has found by then stays found, only the watermark has not moved.
//!
//! | method | reads | in order of | probes |
//! | --- | --- | --- | --- |
//! | [`RepairMethod::Key`] (`by_key.rs`) | the primary-key index since the watermark | key | its older part |
//! | [`RepairMethod::Index`] (`by_index.rs`) | each index | key, sorted on disk (`lsm::sort`) | the primary-key index since the watermark, deleted keys, or the data |
//! | [`RepairMethod::Primary`] (`primary.rs`) | the records, all versions | key | nothing |

mod against;
mod by_index;
mod by_key;
mod primary;
mod work;

use std::ops::ControlFlow;
use std::time::Duration;

use lsm::version::TreeVersion;
use lsm::{Component, Seq, Snapshot, TreeChange, TreeId};
use model::definition::Repair;
use work::Work;

use crate::catalog::{Coverage, Layout, Role, Source, TreeConfig, superseded_tree};
use crate::error::{Error, Result};
use crate::index;
use crate::maintenance;
use crate::store::Handle;

/// Bytes that passes over entries read ahead.
const READAHEAD: usize = 256 << 10;

/// A batched lookup of a key that is there takes as long as passing about so many entries by, measured on a
/// million keys of twelve bytes: lookups of a tenth of them were quicker than a pass, of a third slower.
const ENTRIES_PER_LOOKUP: u64 = 8;

/// How the obsolete writes are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RepairMethod {
    /// By key where compactions of the primary-key index report what they drop, else from the records where theirs do,
    /// else by index.
    #[default]
    Auto,
    /// What was written since the last repair, and what of older writes it replaced: from the primary-key index
    /// alone, for all indexes at once.
    Key,
    /// Each index by itself: its index entries, sorted by key, are validated (Luo & Carey, figure 7).
    Index,
    /// A pass over all versions of all records (DELI, algorithm 3).
    Primary {
        /// Whether the data is compacted, too.
        compaction: Compaction,
    },
}

/// When a repair from the records compacts them to one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compaction {
    /// Not at all.
    #[default]
    Without,
    /// The repair goes before the compaction, and reads many runs: the baseline that DELI measures.
    Before,
    /// The repair goes after the compaction, and reads one run: DELI's staged repair.
    After,
}

/// How the entries of known keys are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Lookups {
    /// As what there is to read suggests.
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
    /// How the obsolete writes are found.
    pub method: RepairMethod,
    /// Bytes of sorters and buffers together, at most: they are borrowed from the store's memory budget. Default 16 MiB.
    pub memory: usize,
    /// Threads that read; one is the thread of the caller. Default 0: as many as the machine has, or one where the store
    /// has no background threads ([`crate::Options::background`]). More than 64 count as 64.
    pub threads: usize,
    /// Bytes that are read in a second at most, not 0. Default: as many as can be.
    pub bytes_per_second: Option<u64>,
    /// By index: keys that no key filter of the primary-key index since the watermark knows are not sorted. Default
    /// true; false is for experiments. Helps most where the trees are compacted together ([`crate::Merging::Correlated`]).
    pub bloom: bool,
    /// How the entries of known keys are found.
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

/// How far a repair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairProgress {
    /// Entries that were gone through.
    pub done: u64,
    /// How many there are, about.
    pub total: u64,
}

/// Called with the progress from time to time; says whether to continue. It may use the dataset.
pub(crate) type OnRepair<'p> = dyn FnMut(RepairProgress) -> ControlFlow<()> + 'p;

/// What came of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The method; never [`RepairMethod::Auto`].
    pub method: RepairMethod,
    /// Entries that were gone through: of the primary-key index, the indexes, or the data.
    pub entries: u64,
    /// By index: those among them that were sorted, the others being known to be obsolete or valid.
    pub sorted: u64,
    /// Sorted pieces that went to disk.
    pub spilled: u64,
    /// Keys that were looked up one by one.
    pub looked_up: u64,
    /// Writes that were found to be obsolete and not known to be.
    pub found: u64,
    /// The repair watermark before: every write that was superseded up to it was known.
    pub mark_before: Seq,
    /// The repair watermark now.
    pub mark: Seq,
    /// Bytes that were read from files, without those that a compaction read.
    pub bytes_read: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// False when the task was cancelled: what was found counts, but the watermark has not moved.
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
                "a repair that may read 0 bytes a second never ends",
            ));
        }
        self.superseded(Readable::Verified)?;
        self.shared.group.flush()?;
        self.repair_flushed(options, progress)
    }

    /// The same for what was flushed.
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
        // An index that is being built gets index entries that this would not see.
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
                // The strategy may have changed meanwhile, and then compactions have dropped writes without a report.
                let before = watermark(&now.snapshot, superseded);
                let complete = Coverage::at(&now.layout, Some(before)).loses_nothing();
                choose(method, &now.layout, complete)?;
                now
            }
            // Before it was claimed, an index may have been added.
            RepairMethod::Index => self.now(),
            _ => now,
        };
        let layout = &now.layout;
        let known = now.snapshot.superseded(superseded);
        let known = known.ok_or_else(|| Error::damaged("the obsolete set is gone"))?;
        let work = Work::new(group, superseded, now.snapshot.clone(), known, options);
        // Where each write says what it replaces there is nothing to be found.
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
                    // A range filter's index entries are the records themselves, all versions that are there.
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

    /// The tree of the obsolete set. It is made where a store that was created before there was one lacks it, and recreated
    /// where its files cannot be read: what was in it is searched again then, as after a change of strategy.
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
        // Somebody else may have made it meanwhile.
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
        made.ok_or_else(|| Error::damaged("the obsolete set was not made"))
    }
}

/// When the files of the obsolete set pass for readable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    /// Their entries could be read when the store was opened.
    AsOpened,
    /// Besides, every byte of them is right now: after a repair `check` must find nothing.
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

/// Every write that was superseded up to here is in the set.
fn watermark(snapshot: &Snapshot, superseded: TreeId) -> Seq {
    let tree = snapshot.version().trees.get(&superseded);
    tree.map_or(0, |tree| tree.repair_watermark())
}

/// The method that is meant, if it fits.
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
            "a repair by key needs a primary-key index whose compactions record what they drop (maintenance eager, validation or mutable-bitmap; repair merge)",
        )),
        RepairMethod::Primary { .. } if !primary => Err(Error::bad_input(
            "a primary repair needs deferred maintenance, and compactions that record or keep what was replaced (repair merge or staged)",
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
