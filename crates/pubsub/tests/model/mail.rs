//! Inboxes: they return the matches of publishers, whenever they are read.

use esker::{ErrorKind, Seq};
use esker_pubsub::{Inbox, Time};
use fastrand::Rng;

use crate::run::Run;
use crate::world::{Forgotten, Sub};

/// An open inbox.
pub(crate) struct Open {
    pub(crate) id: Seq,
    /// None while the store is closed.
    inbox: Option<Inbox>,
    /// The last number that it returned.
    seen: Seq,
    /// Its subscription did not exist any more when it was opened.
    is_empty: bool,
}

impl Open {
    /// Closes it with its store.
    pub(crate) fn close(self) -> Open {
        Open {
            inbox: None,
            ..self
        }
    }
}

/// The directory keeps this many places and ends.
const CHANGES: usize = 14;

fn is_told(sub: &Sub) -> bool {
    sub.change.is_none() && sub.changed < CHANGES
}

impl Run {
    fn is_gone(&self, sub: &Sub) -> bool {
        let forgotten = Forgotten {
            now: self.broker().now(),
            resolution: Time::from(self.config.resolution),
        };
        sub.user.is_empty() && (sub.over || forgotten.at(sub.to))
    }

    /// Opens the same inbox after the store was opened again.
    pub(crate) fn open_again(&mut self, closed: Open) {
        // The subscription may have been lost in a power cut.
        let Some(sub) = self.world.subscriptions.get(&closed.id) else {
            return;
        };
        let is_empty = closed.is_empty || self.is_gone(sub);
        let inbox = self.broker().inbox(closed.id, Some(closed.seen)).unwrap();
        self.mail.push(Open {
            inbox: Some(inbox),
            is_empty,
            ..closed
        });
    }

    /// Opens the inbox of a subscription, mostly of one with matches; and reads some open inboxes.
    pub(crate) fn read_mail(&mut self, rng: &mut Rng) {
        if self.mail.len() < 40 && rng.u8(0..3) == 0 {
            let told: Vec<Seq> = self.world.mail.keys().copied().collect();
            let told = rng.choice(told).filter(|_| rng.u8(0..4) > 0);
            let of = told.map(|id| self.world.subscriptions[&id].clone());
            if let Some(sub) = of.or_else(|| self.any_sub(rng)) {
                self.open_mail(&sub, rng);
            }
        }
        for _ in 0..4 {
            self.read_one(rng);
        }
    }

    pub(crate) fn open_mail(&mut self, sub: &Sub, rng: &mut Rng) {
        if !is_told(sub) {
            return;
        }
        let told = self.world.mail.get(&sub.id);
        let told = told.and_then(|told| rng.choice(told)).copied();
        let after = told.filter(|_| rng.bool());
        let is_empty = self.is_gone(sub);
        let inbox = self.broker().inbox(sub.id, after).unwrap();
        self.mail.push(Open {
            id: sub.id,
            inbox: Some(inbox),
            seen: after.unwrap_or(sub.id),
            is_empty,
        });
    }

    fn read_one(&mut self, rng: &mut Rng) {
        if self.mail.is_empty() {
            return;
        }
        let at = rng.usize(0..self.mail.len());
        let mut open = self.mail.swap_remove(at);
        let sub = &self.world.subscriptions[&open.id];
        if !is_told(sub) {
            return;
        }
        let now = self.broker().now();
        if rng.u8(0..3) == 0 {
            self.fail_reads(rng.usize(0..3));
        }
        let mut given = Vec::new();
        loop {
            match open.inbox.as_mut().unwrap().next() {
                Ok(Some(next)) => given.push(next.seq),
                Ok(None) => break,
                // A failed read loses nothing.
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io);
                    self.fs.clear();
                }
            }
        }
        self.fs.clear();
        let is_there = |seq: &&Seq| {
            let publications = &self.world.publications;
            let at = publications.binary_search_by_key(*seq, |p| p.seq).unwrap();
            let publication = &publications[at];
            let lives = publication.expires == Time::MAX || publication.expires > now;
            lives && !publication.retracted && !open.is_empty && **seq > open.seen
        };
        let told = self.world.mail.get(&open.id).into_iter().flatten();
        let expected: Vec<Seq> = told.filter(is_there).copied().collect();
        self.show(&given, &expected, &sub.user);
        assert_eq!(given, expected, "the inbox of {sub:?} at {now}");
        self.done[0] += given.len();
        open.seen = given.last().copied().unwrap_or(open.seen);
        if rng.u8(0..4) > 0 {
            self.mail.push(open);
        }
    }
}
