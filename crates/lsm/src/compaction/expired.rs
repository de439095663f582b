//! Expired data, judged by table metadata: which tables can be dropped unread, and which are worth
//! rewriting without it.
//!
//! The metadata of a table has the number of its entries that expire, and when the first and the
//! last of them do. A table that has expired as a whole is dropped unread if all older tables with
//! keys of its range have expired, too. If by these figures more than a fifth of what is alive in a
//! tree has expired, the table with the most of it is rewritten in its place. Tables of level 0
//! that expire as a whole are left to be dropped unread, or merged, as long as no more has expired
//! in the tree than twice what is alive. This is evaluated before the policy, and again when the
//! choice is executed.

use std::sync::Arc;

use crate::coding::Own;
use crate::entry::Time;
use crate::error::{Error, Result};
use crate::version::{Action, Choice, DropPolicy, Run, TableFile, TreeVersion};

/// Share of expired bytes in the live ones at which tables are rewritten for expiry alone.
const SLACK: f64 = 0.2;

/// The same where all count, also those that will be dropped unread.
const MOST_SLACK: f64 = 2.0;

/// The score of dropping expired tables: it costs nothing.
const DROP_SCORE: f64 = 1e6;

/// The choice that reclaims expired data in a tree, if one is due.
pub(crate) fn pick(tree: &TreeVersion, now: Time) -> Option<(f64, Choice)> {
    if tree.due.expiry.is_none_or(|first| now < first) {
        return None;
    }
    let expired = droppable(tree, now);
    if !expired.is_empty() {
        let choice = Choice {
            inputs: expired,
            action: Action::Drop,
            cursor: None,
        };
        return Some((DROP_SCORE, choice));
    }
    // Of the tables that are worth rewriting, and of all.
    let mut worth = Expired::default();
    let mut any = Expired::default();
    let mut all = 0.0;
    for run in &tree.runs {
        for table in run.tables.iter() {
            let bytes = expired_bytes(table, now);
            all += table.meta().size as f64;
            any.add(bytes, run, table);
            if !is_let_expire(run, table, now) {
                worth.add(bytes, run, table);
            }
        }
    }
    let live = all - any.bytes;
    let score = |expired: &Expired<'_>, slack: f64| expired.bytes / (slack * live).max(1.0);
    let scores = [
        (score(&worth, SLACK), worth),
        (score(&any, MOST_SLACK), any),
    ];
    let (score, due) = scores.into_iter().find(|(score, _)| *score >= 1.0)?;
    let (_, run, table) = due.most?;
    let choice = Choice {
        inputs: vec![vec![table.clone()]],
        action: Action::Merge {
            level: run.level,
            run: Some(run.number),
        },
        cursor: None,
    };
    Some((score, choice))
}

/// Expired bytes of some tables, and the table with the most of them.
#[derive(Default)]
struct Expired<'t> {
    bytes: f64,
    most: Option<(f64, &'t Run, &'t Arc<TableFile>)>,
}

impl<'t> Expired<'t> {
    fn add(&mut self, bytes: f64, run: &'t Run, table: &'t Arc<TableFile>) {
        self.bytes += bytes;
        if bytes > 0.0 && self.most.is_none_or(|most| bytes > most.0) {
            self.most = Some((bytes, run, table));
        }
    }
}

/// Estimated expired bytes of a table, assuming that its entries expire evenly.
fn expired_bytes(table: &TableFile, now: Time) -> f64 {
    let meta = table.meta();
    let Some(expiry) = meta.expiry.filter(|expiry| expiry.min <= now) else {
        return 0.0;
    };
    let span = (expiry.max - expiry.min + 1) as f64;
    let passed = ((now - expiry.min + 1) as f64 / span).min(1.0);
    let share = expiry.entries as f64 / meta.entries.max(1) as f64;
    meta.size as f64 * share * passed
}

/// True for a table that will be dropped unread, or merged: of level 0, where tables have what was
/// written in a stretch of time, and all of it expires. What rewriting it would free until then is
/// seldom worth the work.
fn is_let_expire(run: &Run, table: &TableFile, now: Time) -> bool {
    let meta = table.meta();
    let expires = |expiry: crate::table::Expiry| expiry.entries == meta.entries && now < expiry.max;
    run.level == 0 && meta.expiry.is_some_and(expires)
}

/// The expired tables that hide nothing that could show again: every older table with some of their
/// keys has expired, too. By run, newest first.
fn droppable(tree: &TreeVersion, now: Time) -> Vec<Vec<Arc<TableFile>>> {
    let by = tree.options.superseded.as_ref();
    let reports = by.is_some_and(|by| by.drop_policy == DropPolicy::Record);
    // Drops that are reported must be read; and older data may still arrive.
    if reports || tree.options.incomplete || tree.options.bitmap {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, run) in tree.runs.iter().enumerate() {
        let older = tree.runs.own(at + 1..);
        let hides_nothing = |table: &&Arc<TableFile>| {
            let behind = |run: &crate::version::Run| run.overlapped(std::iter::once(*table));
            older
                .iter()
                .flat_map(behind)
                .all(|table| table.meta().is_expired(now))
        };
        let expired = run
            .tables
            .iter()
            .filter(|table| table.meta().is_expired(now));
        found.push(expired.filter(hides_nothing).cloned().collect::<Vec<_>>());
    }
    found.retain(|tables| !tables.is_empty());
    found
}

/// Refuses to drop tables that have not expired, or that hide something.
pub(crate) fn check(tree: &TreeVersion, choice: &Choice, now: Time) -> Result<()> {
    let may = droppable(tree, now);
    let may_go = |table: &Arc<TableFile>| {
        may.iter()
            .flatten()
            .any(|expired| Arc::ptr_eq(expired, table))
    };
    if choice.tables().all(may_go) {
        Ok(())
    } else {
        Err(Error::Invalid(format!(
            "tree {}: a table that is to be dropped has not expired, or hides something",
            tree.name
        )))
    }
}
