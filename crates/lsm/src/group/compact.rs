//! Compactions: the most urgent, all that are due, and those that are requested.
//!
//! A store of a thousand datasets has thousands of small trees to compact at a time. So a job takes
//! the most urgent compaction and, if that is small, other small ones with it: their tables share
//! files, and one manifest record installs all of them. They fail independently: where one tree's
//! compaction fails the others continue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::core::Core;
use super::failures::Attempt;
use super::install::{context, remove_files, shared_files, work};
use super::jobs::{JobDescription, JobKind, MAX_BATCH, TOGETHER, Why};
use super::report;
use super::rotate::start_writing;
use super::scheduler::{Claim, Scheduler};
use super::sequencer::Sequencer;
use super::space::move_tables;
use super::sweep::{sweep_due, sweep_each};
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::budget::{Account, Loan};
use crate::compaction::context::{CompactionContext, READAHEAD};
use crate::compaction::sweep::is_clean;
use crate::compaction::{all, expired, followed_by, has_stale_digests, pick_above, pick_all};
use crate::entry::Time;
use crate::error::{Error, Result};
use crate::generation::View;
use crate::version::{Choice, Edit, Run, TreeVersion, Version};

/// A compaction of at most this many bytes is batched with others.
const SMALL: u64 = 1 << 20;

/// A compaction has about this many output buffers, beside the read-ahead of each run.
const COMPACTION_BUFFERS: usize = 4;

/// A planned compaction.
pub(super) struct Planned {
    tree: Arc<TreeVersion>,
    choice: Choice,
    /// Whether its success means that the tree is healthy.
    whole: bool,
    why: Why,
}

/// Compactions that are due, with their claims.
struct Taken<'a> {
    together: Together,
    /// A view since which only additions have come to their trees.
    view: Arc<View>,
    _claims: Vec<Claim<'a>>,
}

/// Runs the compactions that are due. Failures are recorded with their trees, or hit the next
/// flush, too.
pub(super) fn compact_inline(sequencer: &Sequencer, versions: &VersionSet, scheduler: &Scheduler) {
    scheduler.failures.lock().begin_round();
    while let Ok(true) = compact_once(sequencer, versions, scheduler) {}
}

/// Runs the most urgent compactions of unclaimed trees; false when none is due. A failed compaction
/// is recorded with its tree, and counts as done: the next one is another tree's.
pub(super) fn compact_once(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<bool> {
    let core = &*sequencer.core;
    if core.closing.load(Ordering::Relaxed) {
        return Ok(false);
    }
    // A set that is far too large is swept before compactions.
    Ok(sweep_due(sequencer, versions, scheduler, 2)?
        || compact_some(sequencer, versions, scheduler, u64::MAX, &core.closing)?
        || sweep_due(sequencer, versions, scheduler, 1)?)
}

/// As [`compact_once`], for compactions of at most `bytes` each.
pub(super) fn compact_some(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    bytes: u64,
    closing: &AtomicBool,
) -> Result<bool> {
    let core = &*sequencer.core;
    move_tables(sequencer, versions, scheduler)?;
    let Some(due) = take_due(
        versions,
        scheduler,
        core.drop_time(&versions.view.load()),
        bytes,
        &|tree| scheduler.failures.lock().attempt(tree),
    ) else {
        return Ok(false);
    };
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    let failed = merge(
        sequencer,
        versions,
        scheduler,
        &due.view,
        &due.together.merges,
        closing,
    );
    let store = failed.into_iter().find(|(_, e)| !core.is_contained(e));
    store.map_or(Ok(true), |(_, error)| Err(error))
}

/// Compacts until no policy has work left. Includes trees whose compactions failed before; failures
/// now are skipped, and the first error is returned in the end.
pub(super) fn compact_due(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    let mut failed: BTreeMap<TreeId, Error> = BTreeMap::new();
    let mut first = None;
    loop {
        core.check_open()?;
        move_tables(sequencer, versions, scheduler)?;
        let attempt = |id: TreeId| {
            if failed.contains_key(&id) {
                Attempt::None
            } else {
                Attempt::Any
            }
        };
        let time = core.drop_time(&versions.view.load());
        let Some(taken) = take_due(versions, scheduler, time, u64::MAX, &attempt) else {
            let view = versions.view.load_full();
            let Some((_, id, _)) = due(&view, time, u64::MAX, &attempt).next() else {
                return first.map_or(Ok(()), Err);
            };
            // Another job has claimed it: wait for that.
            drop(scheduler.claim(compacted_with(&view.version, id)));
            continue;
        };
        start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
        let merges = &taken.together.merges;
        for (id, error) in merge(
            sequencer,
            versions,
            scheduler,
            &taken.view,
            merges,
            &core.closing,
        ) {
            core.continue_after(&error)?;
            first.get_or_insert_with(|| error.clone());
            failed.insert(id, error);
        }
    }
}

/// Borrows read-ahead and output buffers for a compaction of `runs` runs.
fn borrow_for_compaction(core: &Core, runs: usize) -> Loan {
    let bytes = (runs + COMPACTION_BUFFERS) * READAHEAD;
    let bytes = bytes.min(core.options.memory_budget / 16);
    let budget = &core.budget;
    budget.borrow(Account::Compactions, bytes, bytes)
}

/// Runs compactions, each with those of the same components of the trees that follow its tree, and
/// installs all results at once. Returns the failures: nothing of those is installed.
fn merge(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    view: &View,
    merges: &[Planned],
    closing: &AtomicBool,
) -> Vec<(TreeId, Error)> {
    let core = &*sequencer.core;
    let next_file = || versions.new_file();
    let runs = merges.iter().map(|merge| merge.tree.runs.len()).max();
    let _loan = borrow_for_compaction(core, runs.unwrap_or(0));
    let _slot = scheduler.slots.occupy();
    let shared = shared_files(core, merges.len());
    let mut job = scheduler.jobs.begin(about(merges));
    let running = job.running.clone();
    let context = CompactionContext {
        closing,
        shared: shared.as_ref(),
        // The small compactions at the end of a close are not rate-limited.
        pace: (!core.closing.load(Ordering::Relaxed)).then_some(&scheduler.pace),
        slots: Some(&scheduler.slots),
        written: Some(&running.written),
        ..context(core, versions, scheduler, &next_file)
    };
    let mut failed: BTreeMap<TreeId, Error> = BTreeMap::new();
    let write = |edit: &mut Edit| {
        for merge in merges {
            let mut part = Edit::default();
            let Err(error) = compact_one(&context, view, merge, &mut part) else {
                edit.absorb(part);
                continue;
            };
            remove_files(core, &part);
            let shared_failed = shared.as_ref().is_some_and(|shared| shared.failed());
            failed.insert(merge.tree.id, error.clone());
            if shared_failed || !core.is_contained(&error) || failed.len() == merges.len() {
                return Err(error);
            }
        }
        shared.as_ref().map_or(Ok(()), |shared| shared.finish(edit))
    };
    let done = work(sequencer, versions, scheduler, write, |view, version| {
        view.with(version)
    });
    job.note(&match failed.values().next() {
        Some(error) => Err(error.clone()),
        None => done.clone(),
    });
    if let Err(error) = done {
        for merge in merges {
            failed.entry(merge.tree.id).or_insert_with(|| error.clone());
        }
    }
    for Planned { tree, whole, .. } in merges {
        match failed.get(&tree.id) {
            Some(error) => report::compaction_failed(
                core,
                versions,
                scheduler,
                &view.version,
                tree,
                error,
                *whole,
            ),
            None if *whole => report::compaction_succeeded(versions, scheduler, tree.id),
            None => {}
        }
    }
    failed.into_iter().collect()
}

/// Compacts trees (all, or those of `only` that exist) into one run each. Trees that follow each
/// other are compacted together, the lead first. Obsolete sets come last: by then they have the
/// drops that compactions reported, and their holders have dropped the writes.
pub(super) fn compact(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    only: Option<&[TreeId]>,
) -> Result<()> {
    let core = &*sequencer.core;
    let version = versions.view.load().version.clone();
    let lead = |tree: &TreeVersion| match &tree.options.follows {
        Some(name) => version.tree_named(name).map_or(tree.id, |lead| lead.id),
        None => tree.id,
    };
    let every = || version.trees.keys().copied().collect();
    let ids: Vec<TreeId> = only.map_or_else(every, <[_]>::to_vec);
    let mut seen = BTreeSet::new();
    let (mut leads, mut followers, mut sets) = (Vec::new(), Vec::new(), Vec::new());
    for tree in ids.iter().filter_map(|id| version.trees.get(id)) {
        let Some(lead) = version.trees.get(&lead(tree)) else {
            continue;
        };
        if seen.insert(lead.id) {
            match lead.options.follows {
                None if lead.options.bitmap => sets.push(lead.id),
                None => leads.push(lead.id),
                Some(_) => followers.push(lead.id),
            }
            let of_it = version.followers(&lead.name).map(|tree| tree.id);
            followers.extend(of_it.filter(|id| *id != lead.id));
        }
    }
    let now = core.drop_time(&versions.view.load());
    let choose = |_: &Version, tree: &TreeVersion| {
        let renewed = || has_stale_digests(tree).then(|| all(tree)).flatten();
        pick_all(tree, now).or_else(renewed)
    };
    let merged = compact_each(sequencer, versions, scheduler, leads, &choose)?;
    let followed = compact_each(sequencer, versions, scheduler, followers, &choose)?;
    // A missing entry may also be due to damage, so a set is not swept while one of its trees is
    // damaged.
    let is_whole = |id: &TreeId| {
        version
            .trees
            .get(id)
            .is_some_and(|set| set.damage().is_none())
    };
    let (whole, damaged) = sets.into_iter().partition(is_whole);
    let remade = compact_each(sequencer, versions, scheduler, damaged, &choose)?;
    let swept = sweep_each(sequencer, versions, scheduler, whole)?;
    let failed = merged.or(followed).or(remade).or(swept);
    failed.map_or(Ok(()), Err)
}

/// Runs the choices of `choose` for trees, in their order; dropped trees are skipped. Returns the
/// first failure that is confined to one tree: it does not prevent the compaction of the others.
pub(super) fn compact_each(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    trees: Vec<TreeId>,
    choose: &dyn Fn(&Version, &TreeVersion) -> Option<Choice>,
) -> Result<Option<Error>> {
    let core = &*sequencer.core;
    let mut first = None;
    // No tree is compacted twice in one edit.
    let mut seen = BTreeSet::new();
    let mut rest = trees.into_iter().filter(|id| seen.insert(*id)).peekable();
    while let Some(first_of) = rest.peek() {
        let mut claims = vec![{
            let version = &versions.view.load_full().version;
            scheduler.claim(compacted_with(version, *first_of))
        }];
        let mut view = versions.view.load_full();
        let mut together = Together::default();
        let mut claimed = *first_of;
        while let Some(id) = rest.peek() {
            if *id != claimed {
                let trees = compacted_with(&view.version, *id);
                let Some(claim) = scheduler.try_claim(trees) else {
                    break;
                };
                (claimed, view) = (*id, versions.view.load_full());
                claims.push(claim);
            }
            let tree = view.version.trees.get(id);
            let chosen = tree.and_then(|tree| Some((tree, choose(&view.version, tree)?)));
            if let Some((tree, choice)) = chosen {
                if !together.takes(choice.size()) {
                    break;
                }
                together.add(tree, choice, true, Why::Asked);
            }
            rest.next();
        }
        if together.merges.is_empty() {
            continue;
        }
        start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
        for (_, error) in merge(
            sequencer,
            versions,
            scheduler,
            &view,
            &together.merges,
            &core.closing,
        ) {
            core.continue_after(&error)?;
            first.get_or_insert(error);
        }
    }
    Ok(first)
}

/// Compacts those trees into one run each that have a table with possible entries of a write in the
/// tree's set.
pub(super) fn drop_obsolete(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    trees: &[TreeId],
) -> Result<()> {
    let choose = |version: &Version, tree: &TreeVersion| {
        let by = tree.options.superseded.as_ref()?;
        let set = version.tree_named(&by.tree)?;
        let is_clean = |table: &Arc<_>| is_clean(tree, table, set.bitmap(), set.changed);
        let clean = set.bitmap().is_empty() || tree.tables().all(is_clean);
        (!clean).then(|| all(tree)).flatten()
    };
    let failed = compact_each(sequencer, versions, scheduler, trees.to_vec(), &choose)?;
    failed.map_or(Ok(()), Err)
}

/// A batch of compactions: one large, or several small ones.
#[derive(Default)]
struct Together {
    merges: Vec<Planned>,
    bytes: u64,
}

impl Together {
    /// True when nothing can be added.
    fn is_full(&self) -> bool {
        self.merges.len() >= MAX_BATCH || (self.merges.len() == 1 && self.bytes > SMALL)
    }

    fn takes(&self, bytes: u64) -> bool {
        let small = bytes <= SMALL && self.bytes + bytes <= TOGETHER;
        self.merges.is_empty() || (small && !self.is_full())
    }

    fn add(&mut self, tree: &Arc<TreeVersion>, choice: Choice, whole: bool, why: Why) {
        self.bytes += choice.size();
        self.merges.push(Planned {
            tree: tree.clone(),
            choice,
            whole,
            why,
        });
    }
}

/// Runs a compaction, and those of the same components of the trees that follow, into `edit`.
fn compact_one(
    context: &CompactionContext<'_>,
    view: &View,
    merge: &Planned,
    edit: &mut Edit,
) -> Result<()> {
    let Planned {
        tree, choice, why, ..
    } = merge;
    let anew = *why == Why::Asked;
    for follower in view.version.followers(&tree.name) {
        let choice = followed_by(choice, follower);
        if choice.tables().count() > 1 {
            context.merge(follower, &choice, anew, edit)?;
        }
    }
    context.merge(tree, choice, anew, edit)
}

/// Describes the job of a batch.
fn about(merges: &[Planned]) -> JobDescription {
    let first = merges.first();
    let levels = first.and_then(|merge| {
        let takes = |run: &&Run| {
            let mut tables = run.tables.iter();
            tables.any(|table| merge.choice.takes(table.meta().number))
        };
        let levels = || merge.tree.runs.iter().filter(takes).map(|run| run.level);
        Some(((levels().min()?, levels().max()?), merge.choice.target().0))
    });
    JobDescription {
        kind: JobKind::Compaction,
        tree: first.map(|merge| merge.tree.name.clone()),
        trees: merges.len(),
        levels,
        why: first.map_or(Why::Asked, |merge| merge.why),
        bytes_in: merges.iter().map(|merge| merge.choice.size()).sum(),
    }
}

/// The trees that a compaction of `tree` works on.
pub(super) fn compacted_with(version: &Version, tree: TreeId) -> BTreeSet<TreeId> {
    let name = version.trees.get(&tree).map(|tree| tree.name.as_str());
    let followers = name.into_iter().flat_map(|name| version.followers(name));
    followers.map(|tree| tree.id).chain([tree]).collect()
}

/// The score of a tree's next compaction, and the bytes that it reads.
fn due_of(tree: &TreeVersion, time: Time) -> Option<(f64, u64)> {
    match expired::pick(tree, time) {
        Some((score, choice)) => Some((score, choice.size())),
        None => tree.due.merge,
    }
}

/// The trees with compactions of at most `bytes` that are due, of those that `attempt` allows, by
/// descending score: score and bytes. Trees that follow others are compacted with them.
fn due(
    view: &View,
    time: Time,
    bytes: u64,
    attempt: &dyn Fn(TreeId) -> Attempt,
) -> impl Iterator<Item = (f64, TreeId, u64)> {
    let trees = view.version.trees.values();
    let leads = trees.filter(|tree| tree.options.follows.is_none());
    let due = leads.filter_map(|tree| {
        let (score, size) = match attempt(tree.id) {
            Attempt::Any => due_of(tree, time)?,
            Attempt::Newer(above) => {
                let (score, choice) = pick_above(tree, above)?;
                (score, choice.size())
            }
            Attempt::None => return None,
        };
        (size <= bytes).then_some((score, tree.id, size))
    });
    let mut due: Vec<_> = due.collect();
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    due.into_iter()
}

/// Claims the unclaimed tree with the most urgent compaction of at most `bytes`, and if it is small
/// other such trees, by descending score. The choice is made after the claim.
fn take_due<'s>(
    versions: &VersionSet,
    scheduler: &'s Scheduler,
    time: Time,
    bytes: u64,
    attempt: &dyn Fn(TreeId) -> Attempt,
) -> Option<Taken<'s>> {
    let mut view = versions.view.load_full();
    let mut together = Together::default();
    let mut claims = Vec::new();
    for (_, id, size) in due(&view.clone(), time, bytes, attempt) {
        if together.is_full() {
            break;
        }
        if !together.takes(size) {
            continue;
        }
        let Some(claim) = scheduler.try_claim(compacted_with(&view.version, id)) else {
            continue;
        };
        view = versions.view.load_full();
        let Some(tree) = view.version.trees.get(&id) else {
            continue;
        };
        let picked = match attempt(id) {
            Attempt::Any => {
                let expired = expired::pick(tree, time);
                let picked = expired.or_else(|| tree.options.policy.pick(tree));
                picked.map(|(score, choice)| (choice, true, Why::Due(score)))
            }
            Attempt::Newer(above) => {
                let picked = pick_above(tree, above);
                picked.map(|(_, choice)| (choice, false, Why::Newer))
            }
            Attempt::None => None,
        };
        if let Some((choice, whole, why)) = picked
            && choice.size() <= bytes
            && together.takes(choice.size())
        {
            together.add(tree, choice, whole, why);
            claims.push(claim);
        }
    }
    (!together.merges.is_empty()).then_some(Taken {
        together,
        view,
        _claims: claims,
    })
}
