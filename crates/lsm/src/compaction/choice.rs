//! Choices common to all policies, and the validity check of a policy's choice.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Tiered;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};
use crate::version::{Action, Choice, CompactionPolicy, ComponentId, Run, TableFile, TreeVersion};

/// A choice that merges everything into one run, even without a gain; `None` when the tree is
/// empty.
pub(crate) fn all(tree: &TreeVersion) -> Option<Choice> {
    if tree.runs.is_empty() {
        return None;
    }
    let level = tree.options.policy.level_for(tree.size());
    let runs = tree.runs.iter().map(|run| run.tables.to_vec());
    Some(Choice::merge(runs.collect(), level))
}

/// Merges everything into one run: one step of `compact`. `None` when there is nothing to gain.
pub(crate) fn pick_all(tree: &TreeVersion, now: Time) -> Option<Choice> {
    let deletes = || tree.tables().any(|table| table.meta().deletes > 0);
    let expired = || tree.due.expiry.is_some_and(|first| first <= now);
    let worth = tree.runs.len() > 1 || deletes() || expired();
    worth.then(|| all(tree)).flatten()
}

/// Merges runs of level 0 that are newer than `above` among themselves: for trees whose older runs
/// cannot be read.
pub(crate) fn pick_above(tree: &TreeVersion, above: Seq) -> Option<(f64, Choice)> {
    let newer = |run: &&Run| run.level == 0 && run.component().min > above;
    let runs = tree.runs.iter().take_while(newer);
    let newer = TreeVersion {
        runs: runs.cloned().collect(),
        ..tree.clone()
    };
    Tiered::default().pick(&newer)
}

/// The level for a run of `bytes` that is older than the whole tree.
pub(crate) fn oldest_level(tree: &TreeVersion, bytes: u64) -> u32 {
    match tree.options.policy.level_for(bytes) {
        0 => 0,
        level => level.max(tree.runs.last().map_or(0, |run| run.level) + 1),
    }
}

/// The choice of the same components in a tree that follows the choice's tree. They go where the
/// follower's own policy has them: it may still have older runs of components that its lead has
/// nothing of any more, so a level below these is not free as it is there.
pub(crate) fn followed_by(choice: &Choice, follower: &TreeVersion) -> Choice {
    let spans = choice.tables().map(|table| table.component());
    let span = spans.reduce(ComponentId::hull);
    let runs = follower.runs.iter();
    let runs = runs.filter(|run| span.is_some_and(|span| span.includes(run.component())));
    let inputs: Vec<_> = runs.map(|run| run.tables.to_vec()).collect();
    let bytes = inputs.iter().flatten().map(|table| table.meta().size).sum();
    Choice::merge(inputs, follower.options.policy.level_for(bytes))
}

/// Refuses a choice that would place older entries in front of newer ones. Of one key, entries in
/// an earlier run are newer than those in a later one, and a run is placed by its level and its
/// sequence numbers; so each table that moves is compared with all tables that it overlaps and that
/// do not move with it.
pub(crate) fn check(tree: &TreeVersion, choice: &Choice) -> Result<()> {
    let refused = |what: &str| {
        let (name, policy) = (&tree.name, &tree.options.policy);
        Err(Error::Invalid(format!(
            "tree {name}: the choice of {policy:?} {what}"
        )))
    };
    let inputs: BTreeSet<u64> = choice.tables().map(|table| table.meta().number).collect();
    let is_input = |table: &Arc<TableFile>| inputs.contains(&table.meta().number);
    let known = tree.tables().filter(|table| is_input(table)).count();
    if known == 0 || known != choice.tables().count() {
        return refused("has tables that the tree does not have, or has them twice");
    }
    let spans = |tables: &mut dyn Iterator<Item = &Arc<TableFile>>| {
        let spans = tables.map(|table| table.component());
        spans.reduce(ComponentId::hull)
    };
    let (level, number) = choice.target();
    let is_target = |run: &Run| run.level == level && Some(run.number) == number;
    let added = spans(&mut choice.tables());
    // The place of each run after the choice, as `TreeVersion::normalise` orders them; empty runs
    // have none.
    let after = tree.runs.iter().map(|run| {
        let stays = spans(&mut run.tables.iter().filter(|table| !is_input(table)));
        let span = if is_target(run) {
            stays.into_iter().chain(added).reduce(ComponentId::hull)
        } else {
            stays
        };
        span.map(|span| Run::place(run.level, span, run.number))
    });
    let after: Vec<_> = after.collect();
    let target = tree.runs.iter().position(is_target);
    let joined = target.and_then(|at| after.get(at).copied().flatten());
    let fresh = added.map(|span| Run::place(level, span, number.unwrap_or(u64::MAX)));
    let Some(into) = joined.or(fresh) else {
        return refused("has no tables");
    };
    for (was, run) in tree.runs.iter().enumerate() {
        let along =
            target == Some(was) && Run::place(run.level, run.component(), run.number) != into;
        for table in run.tables.iter().filter(|table| along || is_input(table)) {
            for (at, other) in tree.runs.iter().enumerate().filter(|(at, _)| *at != was) {
                let Some(place) = after.get(at).copied().flatten() else {
                    continue;
                };
                let keeps_order = if at < was { place < into } else { into < place };
                let passes = || {
                    let overlapped = other.overlapped(std::iter::once(table));
                    overlapped.iter().any(|other| !is_input(other))
                };
                if !keeps_order && passes() {
                    return refused("puts a table past one that it overlaps");
                }
            }
        }
    }
    // The output tables may span the whole key range of the inputs.
    if let (Action::Merge { .. }, Some(at), None) =
        (choice.action, target, &tree.options.partitioner)
    {
        let between = tree
            .runs
            .get(at)
            .map(|run| run.overlapped(choice.inputs.iter().flatten()));
        if between.is_some_and(|tables| !tables.iter().all(is_input)) {
            return refused("leaves a table between those that it merges");
        }
    }
    Ok(())
}
