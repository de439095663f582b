//! The named consumers of changes that have connections, or changes that are not acknowledged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use esker::{ChangesFrom, Dataset, Error, ErrorKind, Expr, Key, Position};
use parking_lot::Mutex;

use super::group::{Activity, Group, Reads};
use super::worker::Worker;
use crate::access::{Caller, Role};
use crate::problem::Problem;

/// How much log is kept at most for a new consumer, in bytes: as on the command line.
const KEPT: u64 = 1 << 30;

/// The most connections that share a consumer.
const WORKERS: usize = 100;

/// What a connection asks of a consumer.
pub(crate) struct Joining {
    pub(crate) name: String,
    /// Where a new consumer begins.
    pub(crate) from: Option<ChangesFrom>,
    /// How much log is kept for it.
    pub(crate) keep: Option<u64>,
    pub(crate) condition: Option<Expr>,
    pub(crate) with_old: bool,
    /// After this time, a change that is not acknowledged is sent again. The connection shares the
    /// consumer with others then; without it, it is the only one.
    pub(crate) deadline: Option<Duration>,
    /// What the client has received (`Last-Event-ID`).
    pub(crate) received: Option<Position>,
}

/// The number of a dataset, which stays when it is renamed, and the name of a consumer.
type Name = (u64, String);

/// The consumers by their names.
#[derive(Default)]
pub(crate) struct Consumers {
    groups: Mutex<HashMap<Name, Arc<Group>>>,
}

impl Consumers {
    fn group(&self, name: &Name) -> Option<Arc<Group>> {
        let group = self.groups.lock().get(name).cloned();
        group.filter(|group| !group.has_ended())
    }

    /// Adds a connection to a consumer. Calls the store.
    ///
    /// # Errors
    /// 409 if another process uses the consumer, or the connections that share it read something
    /// else; 410 if the store does not keep its changes any more; 403 as [`may_change`]; any error
    /// of the store.
    pub(crate) fn join(
        &self,
        dataset: &Dataset<Key>,
        joining: Joining,
        caller: &Caller,
    ) -> Result<Worker, Problem> {
        may_change(dataset, &joining.name, caller)?;
        let name = (dataset.number(), joining.name.clone());
        let reads = Reads {
            condition: joining.condition.clone(),
            with_old: joining.with_old,
            is_shared: joining.deadline.is_some(),
        };
        if let Some(group) = self.group(&name)
            && let Some(worker) = join_shared(&group, &reads, &joining)?
        {
            return Ok(worker);
        }
        let group = Arc::new(begin(dataset, reads, &joining)?);
        let worker = Worker::of(&group, joining.deadline);
        let worker = worker.ok_or_else(|| Problem::internal("a new consumer has ended"))?;
        let mut groups = self.groups.lock();
        // Another connection may have been faster.
        let other = groups.get(&name).filter(|other| {
            other.has_workers() && other.reads().is_shared && group.reads().is_shared
        });
        if let Some(other) = other.cloned() {
            drop(groups);
            let joined = join_shared(&other, group.reads(), &joining)?;
            return joined.ok_or_else(|| Problem::busy("the consumer begins: try again", 1));
        }
        let before = groups.insert(name, group);
        groups.retain(|_, group| group.is_needed());
        drop(groups);
        if let Some(before) = before {
            before.end(Some(taken_over(&joining.name)));
        }
        Ok(worker)
    }

    /// Acknowledges changes; returns how many were outstanding, and the position of the consumer
    /// then, which is stored durably. Calls the store.
    ///
    /// # Errors
    /// 404 if there is no such consumer; 409 if it has neither a connection nor a change that is
    /// not acknowledged; any error of the store.
    pub(crate) fn acknowledge(
        &self,
        dataset: &Dataset<Key>,
        name: &str,
        received: &[Position],
    ) -> Result<(usize, Position), Problem> {
        if let Some(group) = self.group(&(dataset.number(), name.to_string())) {
            return group.acknowledge(received);
        }
        let known = dataset.change_consumer(name)?;
        let known = known.ok_or_else(|| unknown(name, &dataset.name()))?;
        // What it has read already may be acknowledged once more.
        if received.iter().all(|one| one.seq <= known.position.seq) {
            return Ok((0, known.position));
        }
        let detail = format!(
            "consumer `{name}` has no connection and no change that waits for this: after a restart of the server, connect first (with `Last-Event-ID`)"
        );
        Err(Problem::new(StatusCode::CONFLICT, "not-connected", detail))
    }

    /// Ends the connections of a consumer, and removes it. Calls the store.
    ///
    /// # Errors
    /// 404; 403 as [`may_change`]; any error of the store.
    pub(crate) fn forget(
        &self,
        dataset: &Dataset<Key>,
        name: &str,
        caller: &Caller,
    ) -> Result<(), Problem> {
        may_change(dataset, name, caller)?;
        let detail = format!("consumer `{name}` was forgotten");
        self.end(
            dataset,
            name,
            Problem::new(StatusCode::GONE, "forgotten", detail),
        );
        if dataset.release_changes(name)? {
            return Ok(());
        }
        Err(unknown(name, &dataset.name()))
    }

    /// Ends the connections of a consumer: a client that has its position by itself uses it now.
    ///
    /// # Errors
    /// 403 as [`may_change`]; any read error.
    pub(crate) fn take_over(
        &self,
        dataset: &Dataset<Key>,
        name: &str,
        caller: &Caller,
    ) -> Result<(), Problem> {
        may_change(dataset, name, caller)?;
        self.end(dataset, name, taken_over(name));
        Ok(())
    }

    fn end(&self, dataset: &Dataset<Key>, name: &str, why: Problem) {
        let key = (dataset.number(), name.to_string());
        let group = self.groups.lock().remove(&key);
        if let Some(group) = group {
            group.end(Some(why));
        }
    }

    /// Ends the connections of all consumers of a dataset that was dropped.
    pub(crate) fn dropped(&self, number: u64) {
        let of_dataset = |name: &Name, _: &mut Arc<Group>| name.0 == number;
        let gone: Vec<Arc<Group>> = {
            let mut groups = self.groups.lock();
            let gone = groups.extract_if(of_dataset);
            gone.map(|(_, group)| group).collect()
        };
        for group in gone {
            group.end(None);
        }
    }

    /// What a consumer of a dataset does.
    pub(crate) fn activity(&self, dataset: &Dataset<Key>, name: &str) -> Activity {
        let group = self.group(&(dataset.number(), name.to_string()));
        group.map_or_else(Activity::default, |group| group.activity())
    }
}

/// A consumer that an earlier version made for the whole store becomes one of the first dataset
/// that uses it, and no dataset has it when one forgets it. So only a caller that may write all
/// datasets can do either.
///
/// # Errors
/// 403; any read error.
fn may_change(dataset: &Dataset<Key>, name: &str, caller: &Caller) -> Result<(), Problem> {
    let known = dataset.change_consumer(name)?;
    if known.is_some_and(|known| known.dataset.is_none()) {
        caller.may_all(Role::Write)?;
    }
    Ok(())
}

fn unknown(name: &str, dataset: &str) -> Problem {
    let detail = format!("no consumer `{name}` of dataset `{dataset}`");
    Problem::new(StatusCode::NOT_FOUND, "unknown-consumer", detail)
}

fn taken_over(name: &str) -> Problem {
    let detail = format!(
        "consumer `{name}` was taken over by another connection: with `deadline`, connections share it"
    );
    Problem::new(StatusCode::CONFLICT, "taken-over", detail)
}

/// Joins a group that others share; `None` if it is not to be shared.
fn join_shared(
    group: &Arc<Group>,
    reads: &Reads,
    joining: &Joining,
) -> Result<Option<Worker>, Problem> {
    if !reads.is_shared || !group.reads().is_shared || group.has_ended() {
        return Ok(None);
    }
    if group.reads() != reads {
        if !group.has_workers() {
            return Ok(None);
        }
        let detail = format!(
            "the connections that share consumer `{}` have other `where` or `old`",
            joining.name
        );
        return Err(Problem::new(StatusCode::CONFLICT, "busy", detail));
    }
    if group.activity().connections >= WORKERS {
        let detail = format!("consumer `{}` has {WORKERS} connections", joining.name);
        return Err(Problem::too_many(detail, 10));
    }
    if let Some(received) = joining.received {
        group.acknowledge(&[received])?;
    }
    Ok(Worker::of(group, joining.deadline))
}

/// The state of a consumer that has no connections.
fn begin(dataset: &Dataset<Key>, reads: Reads, joining: &Joining) -> Result<Group, Problem> {
    let name = &joining.name;
    let known = dataset.change_consumer(name)?;
    let keep = joining
        .keep
        .or(known.as_ref().map(|known| known.keeps_bytes));
    let keep = keep.unwrap_or(KEPT);
    let mut begin = match (&known, joining.from) {
        (Some(known), _) => known.position,
        (None, from) => dataset
            .changes(from.unwrap_or(ChangesFrom::Now))?
            .position(),
    };
    // Of several that share it, others may have received earlier changes.
    if let Some(received) = joining.received.filter(|_| !reads.is_shared) {
        // Refuses one of another store.
        dataset.changes(received)?;
        if received.seq > begin.seq {
            begin = received;
        }
    }
    let is_stored = known.is_some_and(|known| {
        known.position == begin && known.keeps_bytes == keep && known.dataset.is_some()
    });
    let feed = dataset.changes(begin).map_err(|error| late(error, name))?;
    if reads.with_old {
        feed.with_old()?;
    }
    if !is_stored {
        dataset.keep_changes_for(name, begin, keep)?;
    }
    Ok(Group::new(
        dataset.clone(),
        name.clone(),
        keep,
        reads,
        begin,
    ))
}

/// Says what to do when changes were lost.
fn late(error: Error, name: &str) -> Problem {
    let is_late = error.kind() == ErrorKind::PositionExpired;
    let problem = Problem::from(error);
    if !is_late {
        return problem;
    }
    problem.saying(format!(
        "the store no longer keeps changes that consumer `{name}` has not read (`keep`): forget the consumer (DELETE), and begin anew"
    ))
}
