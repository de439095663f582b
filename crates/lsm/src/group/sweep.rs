//! Sweeps of the obsolete sets: they drop numbers that can no longer be probed (`obsolete/mod.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::failures::Attempt;
use super::install::{context, no_tree, shared_files, work};
use super::jobs::{JobDescription, JobKind, MAX_BATCH, TOGETHER, Why};
use super::report;
use super::rotate::start_writing;
use super::scheduler::{Claim, Scheduler};
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::compaction::context::CompactionContext;
use crate::compaction::sweep::{Sweep, allowance, has_converged};
use crate::error::{Error, Result};
use crate::obsolete::{self, SeqSet};
use crate::version::{ComponentId, Edit, SweptSet, TreeVersion, Version};

/// Bytes that a sweep reads before compactions take their turn.
const STEP: u64 = 64 << 20;

/// The trees that a sweep of `set` works on, or that must be unchanged at its end: the set and its
/// holders.
fn swept_with(version: &Version, set: TreeId) -> BTreeSet<TreeId> {
    let name = version.trees.get(&set).map(|set| set.name.as_str());
    let holders = name.into_iter().flat_map(|name| version.holders(name));
    holders.map(|tree| tree.id).chain([set]).collect()
}

fn about(set: &TreeVersion, why: Why) -> JobDescription {
    JobDescription {
        kind: JobKind::Sweep,
        tree: Some(set.name.clone()),
        trees: 1,
        levels: None,
        why,
        bytes_in: set.size(),
    }
}

/// A swept set, with its remaining numbers.
struct Swept {
    set: Arc<TreeVersion>,
    left: Arc<SeqSet>,
}

impl Swept {
    /// The span of the tables to be replaced, unless they already hold exactly the remaining
    /// numbers in one run.
    fn component(&self) -> Option<ComponentId> {
        let Swept { set, left } = self;
        let entries: u64 = set.tables().map(|table| table.meta().entries).sum();
        let is_one = set.runs.len() <= 1 && entries == obsolete::entries(left);
        if left.len() == set.bitmap().len() && is_one {
            return None;
        }
        let spans = set.tables().map(|table| table.component());
        spans.reduce(ComponentId::hull)
    }
}

/// Runs a step of a due sweep of an unclaimed set with unclaimed holders; false when there is none.
/// A set is due at `times` its allowance.
pub(super) fn sweep_due(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    times: usize,
) -> Result<bool> {
    let core = &*sequencer.core;
    let view = versions.view.load_full();
    let is_there = |id: &TreeId| view.version.trees.contains_key(id);
    let mut sweeps = scheduler.sweeps.lock();
    sweeps.under_way.retain(|id, _| is_there(id));
    sweeps.left.retain(|id, _| is_there(id));
    drop(sweeps);
    let slack = core.options.bitmap_slack;
    let is_due = |set: &TreeVersion| {
        let sweeps = scheduler.sweeps.lock();
        let left = sweeps.left.get(&set.id).copied().unwrap_or(0);
        let small = (2 * left).saturating_add(slack).saturating_mul(times);
        let memory = set.bitmap().memory();
        // A small set need not be compared with its holders.
        memory > small
            && memory > (allowance(&view.version, set, slack) + 2 * left).saturating_mul(times)
    };
    let sets = view.version.trees.values();
    let mut claimed = sets
        .filter(|set| set.options.bitmap && is_due(set))
        .filter(|set| has_converged(&view.version, set))
        .filter(|set| matches!(scheduler.failures.lock().attempt(set.id), Attempt::Any))
        .filter_map(|set| {
            let claim = scheduler.try_claim(swept_with(&view.version, set.id))?;
            Some((set, claim))
        });
    let Some((set, _claim)) = claimed.next() else {
        return Ok(false);
    };
    let mut job = scheduler.jobs.begin(about(set, Why::Space));
    let swept = sweep(sequencer, versions, scheduler, set.id, STEP);
    job.note(&swept);
    drop(job);
    match swept.and_then(|swept| replace(sequencer, versions, scheduler, swept.as_slice())) {
        Ok(()) => Ok(true),
        Err(error) if core.is_contained(&error) => {
            report::compaction_failed(core, versions, scheduler, &view.version, set, &error, true);
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Sweeps sets completely, and leaves each in one run; dropped ones are skipped. The remaining
/// numbers of small sets are written together. Returns the first failure that is not the store's.
pub(super) fn sweep_each(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    sets: Vec<TreeId>,
) -> Result<Option<Error>> {
    let core = &*sequencer.core;
    let mut first = None;
    let mut rest = sets.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut swept, mut memory) = (Vec::new(), 0);
        let mut claims: Vec<Claim<'_>> = Vec::new();
        while swept.len() < MAX_BATCH
            && memory < TOGETHER
            && let Some(id) = rest.peek().copied()
        {
            let trees = swept_with(&versions.view.load().version, id);
            if claims.is_empty() {
                claims.push(scheduler.claim(trees));
            } else {
                match scheduler.try_claim(trees) {
                    Some(claim) => claims.push(claim),
                    None => break,
                }
            }
            rest.next();
            let version = versions.view.load().version.clone();
            let Some(set) = version.trees.get(&id) else {
                continue;
            };
            let _job = scheduler.jobs.begin(about(set, Why::Asked));
            match sweep_whole(sequencer, versions, scheduler, id) {
                Ok(set) => {
                    memory += set.left.memory() as u64;
                    swept.push(set);
                }
                Err(error) => {
                    core.continue_after(&error)?;
                    first.get_or_insert(error);
                }
            }
        }
        if let Err(error) = replace(sequencer, versions, scheduler, &swept) {
            core.continue_after(&error)?;
            first.get_or_insert(error);
        }
    }
    Ok(first)
}

fn sweep_whole(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    set: TreeId,
) -> Result<Swept> {
    scheduler.sweeps.lock().under_way.remove(&set);
    loop {
        if let Some(swept) = sweep(sequencer, versions, scheduler, set, u64::MAX)? {
            return Ok(swept);
        }
    }
}

/// A step of a sweep of a set that is claimed with its holders. The last step returns the remaining
/// numbers, to replace the set.
fn sweep(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    id: TreeId,
    bytes: u64,
) -> Result<Option<Swept>> {
    let core = &*sequencer.core;
    let view = versions.view.load_full();
    let set = view.version.trees.get(&id).ok_or_else(|| no_tree(id))?;
    let mut sweep = scheduler.sweeps.lock().under_way.remove(&id);
    let mut sweep = sweep.take().unwrap_or_else(|| Sweep::new(set));
    let go_on = || {
        if core.closing.load(std::sync::atomic::Ordering::Relaxed) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    };
    let mut view = view.clone();
    loop {
        let set = view.version.trees.get(&id).ok_or_else(|| no_tree(id))?;
        if !sweep.read_tables(&view.version, set, bytes, &go_on)? {
            scheduler.sweeps.lock().under_way.insert(id, sweep);
            return Ok(None);
        }
        // Writers read lists and rewrite them under their lock, and each reads the view from its
        // own copy, none of which may be older than the one loaded here.
        let now = {
            let _no_write = sequencer.writer.lock();
            let _no_change = versions.view_change.lock();
            versions.view.load_full()
        };
        let same_tables = Arc::ptr_eq(&now.version, &view.version);
        view = now;
        // Otherwise a flush came in between.
        if same_tables {
            break;
        }
    }
    let set = view.version.trees.get(&id).ok_or_else(|| no_tree(id))?;
    let forgotten = if has_converged(&view.version, set) {
        sweep.finish(&view, set)?.unwrap_or_default()
    } else {
        SeqSet::new()
    };
    let mut left = SeqSet::clone(set.bitmap());
    left.remove_all(&forgotten);
    left.shrink();
    Ok(Some(Swept {
        set: set.clone(),
        left: Arc::new(left),
    }))
}

/// Writes the remaining numbers of sets in place of all their tables, with one edit.
fn replace(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    swept: &[Swept],
) -> Result<()> {
    let core = &*sequencer.core;
    let with_component = |swept| Some((swept, Swept::component(swept)?));
    let changed: Vec<_> = swept.iter().filter_map(with_component).collect();
    if !changed.is_empty() {
        start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
        let next_file = || versions.new_file();
        let shared = shared_files(core, changed.len());
        let context = CompactionContext {
            shared: shared.as_ref(),
            ..context(core, versions, scheduler, &next_file)
        };
        let write = |edit: &mut Edit| {
            for (Swept { set, left }, component) in changed {
                context.replace_set(set, left, component, edit)?;
                let forgotten = set.bitmap().len() - left.len();
                edit.forgotten.push((set.id, set.forgotten + forgotten));
                let swept = SweptSet {
                    before: set.bitmap().clone(),
                    left: left.clone(),
                };
                edit.swept.insert(set.id, swept);
            }
            shared.as_ref().map_or(Ok(()), |shared| shared.finish(edit))
        };
        work(sequencer, versions, scheduler, write, |view, version| {
            view.with(version)
        })?;
    }
    for Swept { set, left } in swept {
        report::compaction_succeeded(versions, scheduler, set.id);
        scheduler.sweeps.lock().left.insert(set.id, left.memory());
    }
    Ok(())
}
