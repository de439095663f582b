//! Following what is published, from a sequence number on: what is stored, then what the log gets.
//!
//! A follower reads; it stores nothing, and works beside the process that publishes. Its place is the sequence number of
//! the last publication that it got: whoever keeps that and comes back with it misses nothing and gets nothing twice. One
//! that is so slow that the log does not go back to its place any more finds what it missed in the lists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker::extension::{Commit, Kind, Tail, Timed};
use esker::{Error, Result, Seq};

use crate::broker::{Broker, Inner};
use crate::element::{Element, Elements, NEVER};
use crate::keys::{List, ListKey};
use crate::matching::Subject;
use crate::message::{Notification, Subscription, bad_input};
use crate::subscribe::Ready;

/// Gives publications in the order of their numbers ([`Broker::follow`]).
pub struct Follow {
    inner: Arc<Inner>,
    ready: Ready,
    tail: Tail,
    found: VecDeque<Notification>,
    seen: Seq,
}

impl Broker {
    /// Follows what a subscription asks for without storing it: from the publication behind the one with the number
    /// `after` on, or, without it, from the first in its interval.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a subscription that depends on others: a self-join, one to changes; what reading fails
    /// with.
    pub fn follow(&self, subscription: &Subscription, after: Option<Seq>) -> Result<Follow> {
        let inner = &self.inner;
        if subscription.joins || subscription.change.is_some() {
            return bad_input(
                "what is only followed cannot depend on other publications or subscriptions",
            );
        }
        let ready = inner.ready(subscription)?;
        let tail = inner.store.tail(inner.store.position())?;
        let mut follow = Follow {
            inner: inner.clone(),
            ready,
            tail,
            found: VecDeque::new(),
            seen: after.unwrap_or(0),
        };
        follow.catch_up()?;
        Ok(follow)
    }
}

impl Follow {
    /// The next publication that is there.
    ///
    /// # Errors
    /// What reading fails with.
    #[allow(
        clippy::should_implement_trait,
        reason = "none now, and perhaps one later"
    )]
    pub fn next(&mut self) -> Result<Option<Notification>> {
        self.next_within(None)
    }

    /// The next publication, waiting so long for one.
    ///
    /// # Errors
    /// What reading fails with.
    pub fn wait(&mut self, most: Duration) -> Result<Option<Notification>> {
        self.next_within(Some(most))
    }

    /// The number of the last publication that it gave, and of those before it that were not for it.
    pub fn seen(&self) -> Seq {
        match self.found.front() {
            Some(next) => self.seen.min(next.seq - 1),
            None => self.seen,
        }
    }

    /// True when its interval has ended, and everything in it was given.
    pub fn is_over(&self) -> bool {
        self.found.is_empty() && self.inner.now() > self.ready.to
    }

    fn next_within(&mut self, most: Option<Duration>) -> Result<Option<Notification>> {
        loop {
            if let Some(next) = self.found.pop_front() {
                return Ok(Some(next));
            }
            let read = match most {
                Some(most) => match self.tail.next() {
                    Ok(None) => self.tail.wait(most),
                    read => read,
                },
                None => self.tail.next(),
            };
            match read.map_err(Error::from) {
                Ok(Some(commit)) => self.take(&commit)?,
                Ok(None) => return Ok(None),
                Err(Error::PositionExpired { .. }) => {
                    self.tail = self.inner.store.tail(self.inner.store.position())?;
                    self.catch_up()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds what the lists have behind its place.
    fn catch_up(&mut self) -> Result<()> {
        // After the tail was begun: what is in neither does not exist, what is in both is known by its number.
        let snapshot = self.inner.store.snapshot();
        let ready = Ready {
            made: self.inner.now(),
            ..self.ready.clone()
        };
        let past = self.inner.past(&snapshot, &ready, Seq::MAX)?;
        let seen = self.seen;
        self.found
            .extend(past.into_iter().filter(|found| found.seq > seen));
        self.seen = self.seen.max(snapshot.seq());
        Ok(())
    }

    /// Takes what a commit has.
    fn take(&mut self, commit: &Commit) -> Result<()> {
        let (inner, ready) = (&self.inner, &self.ready);
        let (mut found, mut seen) = (Vec::new(), self.seen);
        let mut failed = None;
        commit.each(&mut |tree, _, kind, key, value| {
            if tree != inner.trees.publications || kind != Kind::Timed {
                return;
            }
            let Some(timed) = Timed::parse(value) else {
                return;
            };
            match published(inner, ready, key, timed.value, &mut seen) {
                Ok(notification) => found.extend(notification),
                Err(error) => failed = Some(error),
            }
        });
        self.seen = seen;
        self.found.extend(found);
        failed.map_or(Ok(()), Err)
    }
}

/// The publication of an operand as it was written, if it is new and asked for.
fn published(
    inner: &Inner,
    ready: &Ready,
    key: &[u8],
    operand: &[u8],
    seen: &mut Seq,
) -> Result<Option<Notification>> {
    let Some(parsed) = ListKey::parse(key).filter(|key| key.list == List::Publications) else {
        return Ok(None);
    };
    let Some((raw, _)) = Elements::of(operand).next().transpose()? else {
        return Ok(None);
    };
    let Element::Publication(publication) = raw.decode()? else {
        return Ok(None);
    };
    // One that is in several cells is written several times.
    if raw.seq <= *seen {
        return Ok(None);
    }
    *seen = raw.seq;
    let place = inner.compiled.shape(&publication.place)?;
    let subject = Subject {
        time: publication.time,
        place: &place,
        body: publication.body,
    };
    let topic = parsed.topic().filter(|topic| ready.topics.matches(topic));
    let Some(topic) = topic else {
        return Ok(None);
    };
    if !publication.is_alive(inner.now())
        || !inner.compiled.admits(&ready.stored(raw.seq), &subject)?
    {
        return Ok(None);
    }
    Ok(Some(Notification {
        seq: raw.seq,
        topic,
        time: publication.time,
        expires: Some(publication.expires).filter(|expires| *expires != NEVER),
        place: publication.place.clone(),
        body: publication.body.to_vec(),
    }))
}
