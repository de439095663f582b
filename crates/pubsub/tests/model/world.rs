//! The model: all publications and subscriptions, each compared with each.

use std::collections::{BTreeMap, BTreeSet};

use esker::Seq;
use esker_pubsub::{Cell, Place, Threshold, Time};

use crate::meaning::{Body, Condition, is_for, takes};

#[derive(Clone, Debug)]
pub(crate) struct Pub {
    pub(crate) seq: Seq,
    pub(crate) topic: &'static str,
    pub(crate) time: Time,
    pub(crate) expires: Time,
    pub(crate) place: Place,
    /// Its cells; none in a run without subscriptions to changes.
    pub(crate) cells: Vec<Cell>,
    pub(crate) body: Body,
    pub(crate) retracted: bool,
    pub(crate) raw: Option<esker_pubsub::Notification>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sub {
    pub(crate) id: Seq,
    pub(crate) filter: &'static str,
    pub(crate) exact: bool,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) place: Place,
    pub(crate) user: String,
    pub(crate) condition: Option<Condition>,
    pub(crate) joins: bool,
    pub(crate) change: Option<Threshold>,
    pub(crate) over: bool,
    /// It moved after this publication, and matches later ones only.
    pub(crate) moved: Seq,
    /// How often it was moved or renewed.
    pub(crate) changed: usize,
}

impl Sub {
    pub(crate) fn asks_for(&self, publication: &Pub) -> bool {
        takes(self.filter, self.exact, publication.topic)
            && self.from <= publication.time
            && publication.time <= self.to
            && is_for(&publication.place, &self.place)
            && self
                .condition
                .as_ref()
                .is_none_or(|condition| condition.holds(&publication.body))
    }

    pub(crate) fn takes_change(
        &self,
        all: &[Pub],
        publication: &Pub,
        met: (Time, Forgotten),
    ) -> bool {
        self.change
            .is_none_or(|threshold| has_changed(all, publication, threshold, met))
    }
}

/// Decides, by the store's clock, whether the store has dropped an element: for publications with
/// times in the past.
#[derive(Clone, Copy)]
pub(crate) struct Forgotten {
    pub(crate) now: Time,
    pub(crate) resolution: Time,
}

impl Forgotten {
    /// True for an element that ended at this time.
    pub(crate) fn at(self, end: Time) -> bool {
        let tick = |time: Time| time.div_euclid(self.resolution);
        end != Time::MAX && tick(end).saturating_add(2) <= tick(self.now)
    }
}

/// Compares the number of a publication with that of the previous one of its topic and cells.
pub(crate) fn has_changed(
    all: &[Pub],
    publication: &Pub,
    threshold: Threshold,
    (met, forgotten): (Time, Forgotten),
) -> bool {
    let Some(now) = publication.body.p else {
        return false;
    };
    let before = all.iter().rev().find(|earlier| {
        earlier.seq < publication.seq
            && earlier.topic == publication.topic
            && earlier
                .cells
                .iter()
                .any(|cell| publication.cells.contains(cell))
            && earlier.body.p.is_some()
            && earlier.expires > met.max(earlier.time)
            && !forgotten.at(earlier.expires)
            && !earlier.retracted
    });
    let Some(before) = before.and_then(|before| before.body.p) else {
        return false;
    };
    match threshold {
        Threshold::Absolute(by) => (now - before).abs() > by,
        Threshold::Percent(by) => (now - before).abs() * 100.0 > by * before.abs(),
        _ => unreachable!(),
    }
}

#[derive(Default, Clone)]
pub(crate) struct World {
    pub(crate) publications: Vec<Pub>,
    pub(crate) subscriptions: BTreeMap<Seq, Sub>,
    /// The publications that each user received.
    pub(crate) got: BTreeSet<(String, Seq)>,
    /// The publications that each subscription has met: none a second time.
    pub(crate) met: BTreeSet<(Seq, Seq)>,
    /// The matches of each subscription when they were published: the contents of its inbox.
    pub(crate) mail: BTreeMap<Seq, Vec<Seq>>,
    /// The records of the dataset in the same store, each with a number.
    pub(crate) records: BTreeMap<u64, u64>,
    pub(crate) counts: [usize; 2],
}

impl World {
    pub(crate) fn publish(&mut self, new: Pub, forgotten: Forgotten) -> Vec<Seq> {
        self.publications.push(new.clone());
        let mut told = Vec::new();
        for sub in self.subscriptions.values() {
            let is_gone = sub.over || sub.user.is_empty() && forgotten.at(sub.to);
            if is_gone || !sub.asks_for(&new) {
                continue;
            }
            self.met.insert((sub.id, new.seq));
            let met = (new.time, forgotten);
            if new.expires <= new.time || !sub.takes_change(&self.publications, &new, met) {
                continue;
            }
            let is_new = sub.user.is_empty() || !self.got.contains(&(sub.user.clone(), new.seq));
            if is_new || !sub.joins {
                told.push(sub.id);
                if sub.change.is_none() {
                    self.got.insert((sub.user.clone(), new.seq));
                }
            }
        }
        self.counts[0] += told.len();
        for id in &told {
            self.mail.entry(*id).or_default().push(new.seq);
        }
        told
    }

    /// The earlier publications that match.
    pub(crate) fn past(&mut self, sub: &Sub, now: Time) -> Vec<Seq> {
        let mut told = Vec::new();
        // A matching publication has not expired, so the store has not dropped it.
        let met = (now, Forgotten { now, resolution: 1 });
        for publication in &self.publications {
            let is_new =
                sub.user.is_empty() || !self.got.contains(&(sub.user.clone(), publication.seq));
            let is_alive = publication.expires > now.max(publication.time);
            let is_there = !publication.retracted && is_alive;
            if is_there
                && publication.seq > sub.moved
                && sub.asks_for(publication)
                && self.met.insert((sub.id, publication.seq))
                && sub.takes_change(&self.publications, publication, met)
                && (is_new || !sub.joins)
            {
                told.push(publication.seq);
            }
        }
        for seq in told.iter().filter(|_| sub.change.is_none()) {
            self.got.insert((sub.user.clone(), *seq));
        }
        self.counts[1] += told.len();
        told
    }
}
