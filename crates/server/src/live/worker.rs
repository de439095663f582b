//! A connection to a named consumer, as a source of events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use esker::changes::{Listening, Wake};
use esker::{Error, Position};

use super::group::{Group, Taken};
use super::source::{Found, Next, STEP_TIME, Source, Step};
use crate::problem::Problem;

/// A connection to a consumer.
pub(crate) struct Worker {
    group: Arc<Group>,
    number: u64,
    deadline: Option<Duration>,
    /// It waited for another worker just now.
    has_yielded: bool,
    /// Where a reader continues that has everything so far, if that is known.
    place: Option<Position>,
}

impl Worker {
    /// A new worker of a group; `None` if the group has ended.
    pub(super) fn of(group: &Arc<Group>, deadline: Option<Duration>) -> Option<Worker> {
        let number = group.join()?;
        let is_shared = group.reads().is_shared;
        Some(Worker {
            group: group.clone(),
            number,
            deadline,
            has_yielded: false,
            place: Some(group.read()).filter(|_| !is_shared),
        })
    }

    /// Sends changes again that were not acknowledged in time. True if there were any.
    fn send_again(&mut self, step: &mut Step) -> Result<bool, Problem> {
        let group = &self.group;
        let due = group.take_due(self.number, self.deadline);
        let (Some((_, before)), Some((last, _))) = (due.first(), due.last()) else {
            return Ok(false);
        };
        let mut next = 0;
        let mut read = || -> Result<(), Error> {
            let mut feed = group.feed_from(*before)?;
            let until = Instant::now() + Duration::from_secs(3600);
            while let Found::Change(change) = feed.next(until)? {
                let place = due.iter().position(|(seq, _)| *seq == change.seq());
                if let Some(place) = place {
                    step.push(feed.event(&change));
                    next = place + 1;
                }
                if change.seq() >= *last || step.is_full() {
                    break;
                }
            }
            Ok(())
        };
        let result = read();
        let rest = due.get(next..).unwrap_or_default();
        if !rest.is_empty() {
            group.give_back(rest);
        }
        result?;
        if next == 0 {
            return Err(Problem::internal("a change that was sent is not there"));
        }
        Ok(true)
    }

    fn send_new(&mut self, step: &mut Step) -> Result<(), Problem> {
        let group = self.group.clone();
        let (mut reading, room) = match group.take_feed(self.number, !self.has_yielded) {
            Taken::Feed(reading, room) => {
                self.has_yielded = false;
                (reading, room)
            }
            Taken::Not(until) => {
                self.has_yielded = true;
                step.next = Next::Wait(until);
                return Ok(());
            }
        };
        let feed = reading.feed()?;
        let until = Instant::now() + STEP_TIME;
        let mut changes = Vec::new();
        let ended = loop {
            if step.is_full() || changes.len() >= room {
                break Ok(false);
            }
            let before = feed.position();
            match feed.next(until) {
                Ok(Found::Change(change)) => {
                    changes.push((change.seq(), before));
                    step.push(feed.event(&change));
                }
                Ok(Found::Skipped) => break Ok(false),
                Ok(Found::Nothing) => break Ok(true),
                Err(error) => break Err(error),
            }
        };
        let waits = !matches!(ended, Ok(false)) && changes.is_empty();
        let is_shared = group.reads().is_shared;
        self.place = Some(feed.position()).filter(|_| !is_shared);
        let due = reading.put_back(changes, self.deadline, waits);
        if ended? {
            step.next = Next::Wait(due);
        }
        Ok(())
    }

    /// What comes next, with what was found so far.
    fn find(&mut self, step: &mut Step) -> Result<(), Problem> {
        if self.send_again(step)? {
            return Ok(());
        }
        self.send_new(step)?;
        if self.group.has_skipped() {
            self.group.store()?;
        }
        Ok(())
    }
}

impl Source for Worker {
    fn step(&mut self) -> Step {
        let mut step = Step::default();
        if let Some(next) = self.group.ending() {
            step.next = next;
            return step;
        }
        if let Err(problem) = self.find(&mut step) {
            if problem.status() == StatusCode::NOT_FOUND {
                // The dataset was dropped, and the consumer with it.
                self.group.end(Some(problem.clone()));
            }
            step.next = Next::Fail(problem);
        }
        step
    }

    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem> {
        self.group.listen(wake)
    }

    fn place(&self) -> Option<String> {
        self.place.map(|place| self.group.id(place).to_string())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.group.leave(self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use esker::{Database, DatasetDef, Key, Options};

    use super::super::group::Reads;
    use super::*;

    #[test]
    fn a_panic_while_one_reads_leaves_the_feed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::create_or_open(dir.path(), Options::default()).unwrap();
        db.create_dataset::<u64>("d", DatasetDef::key("id"))
            .unwrap();
        let dataset = db.dataset::<Key>("d").unwrap();
        let reads = Reads {
            condition: None,
            with_old: false,
            is_shared: true,
        };
        let begin = db.position();
        let group = Group::new(dataset.clone(), "c".to_string(), 1 << 20, reads, begin);
        let group = Arc::new(group);
        let deadline = Some(Duration::from_secs(3600));
        let one = Worker::of(&group, deadline).unwrap();
        let mut other = Worker::of(&group, deadline).unwrap();
        dataset.put_json(br#"{"id": 1}"#).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let Taken::Feed(mut reading, _) = group.take_feed(one.number, false) else {
                return;
            };
            let feed = reading.feed().unwrap();
            let found = feed.next(Instant::now() + STEP_TIME).unwrap();
            assert!(matches!(found, Found::Change(_)));
            panic!("of the test");
        }));
        assert!(panicked.is_err());
        drop(one);
        // What the first one had read and not sent comes again.
        let step = other.step();
        assert_eq!(step.events.len(), 1);
    }
}
