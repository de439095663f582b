//! Power cuts at any call of an operation, and backups that the run continues with.

use std::sync::{Arc, Mutex};

use esker::Seq;
use esker_pubsub::{Notification, Place, Subscription, Time, TopicFilter};
use esker_sim::memory::{Memory, PowerCut};
use fastrand::Rng;

use crate::run::Run;
use crate::world::{Sub, World};

/// The last operation, with what is needed to find out whether a power cut undid it.
pub(crate) enum Op {
    /// An operation that makes no difference.
    Nothing,
    /// Number, topic and time of each.
    Publish(Vec<(Seq, &'static str, Time)>),
    Subscribe(Seq),
    End(Seq),
    /// The new end, and the publications that it returned.
    Renew(Seq, Time, Vec<Seq>),
    Move(Seq, Place),
    Retract(Notification),
    Put(u64),
}

impl Run {
    /// An operation during which the power is cut before some call to the file system.
    pub(crate) fn cut_in_a_change(&mut self, rng: &mut Rng) {
        let before = self.world.clone();
        let left = Arc::new(Mutex::new((rng.u8(0..6), None::<Memory>)));
        let (cut, memory, seed) = (left.clone(), self.memory.clone(), rng.u64(..));
        let modes = [PowerCut::Lost, PowerCut::Reordered, PowerCut::Kept];
        let mode = modes[rng.usize(0..3)];
        self.fs.set(move |_, _| {
            let (calls, left) = &mut *cut.lock().unwrap();
            match calls.checked_sub(1) {
                Some(less) => *calls = less,
                None if left.is_none() => *left = Some(memory.power_cut(seed, mode)),
                None => {}
            }
            Ok(())
        });
        self.is_cut = true;
        self.change(rng);
        self.is_cut = false;
        self.fs.clear();
        let left = left.lock().unwrap().1.take();
        if let Some(left) = left {
            self.clock_is_kept();
            self.reopen(left);
            self.done[1] += 1;
            self.compare(before);
        }
    }

    /// Checks that the operation survived as a whole or not at all. An operation that can be
    /// repeated is repeated.
    fn compare(&mut self, before: World) {
        let taken = match std::mem::replace(&mut self.last, Op::Nothing) {
            Op::Nothing => false,
            Op::Publish(all) => {
                let mut lost = all.iter().map(|(seq, topic, time)| {
                    let topics = TopicFilter::exact(topic.parse().unwrap());
                    let asked = Subscription::to(topics).from(*time).until(*time);
                    let found = self.broker().query(&asked).unwrap();
                    found.iter().all(|found| found.seq != *seq)
                });
                let is_lost = lost.next().unwrap();
                assert!(lost.all(|other| other == is_lost), "lost in part: {all:?}");
                is_lost
            }
            Op::Subscribe(id) => {
                let sub = self.world.subscriptions[&id].clone();
                let now = self.broker().now();
                match self.broker().renew(id, sub.to).unwrap() {
                    None => true,
                    Some(missed) => {
                        let to = sub.to.max(now);
                        let renewed = Sub { to, ..sub };
                        let told = self.world.past(&renewed, now);
                        let missed: Vec<Seq> = missed.iter().map(|one| one.seq).collect();
                        assert_eq!(missed, told, "after a cut: {renewed:?}");
                        self.world.subscriptions.insert(id, renewed);
                        false
                    }
                }
            }
            Op::End(id) => {
                // Their contents depend on whether it had ended when they were opened.
                self.mail.retain(|open| open.id != id);
                self.broker().unsubscribe(id).unwrap();
                assert!(!self.broker().unsubscribe(id).unwrap());
                false
            }
            Op::Renew(id, until, told) => {
                let missed = self.broker().renew(id, until).unwrap().unwrap();
                let missed: Vec<Seq> = missed.iter().map(|one| one.seq).collect();
                assert!(missed.is_empty() || missed == told, "{missed:?}, {told:?}");
                false
            }
            Op::Move(id, place) => {
                assert!(self.broker().move_to(id, place).unwrap());
                false
            }
            Op::Retract(raw) => {
                assert!(self.broker().retract(&raw).unwrap());
                false
            }
            Op::Put(id) => {
                let found = self.record(id);
                let then = before.records.get(&id).copied();
                let is_taken = found == then.map(|n| text(id, n));
                is_taken && then != self.world.records.get(&id).copied()
            }
        };
        if taken {
            self.world = before;
            self.done[2] += 1;
        }
        self.compare_records();
    }

    fn record(&self, id: u64) -> Option<String> {
        let found = self.records().get(id).unwrap();
        found.map(|found| String::from_utf8(found.json().to_vec()).unwrap())
    }

    pub(crate) fn compare_records(&self) {
        for id in 0..20 {
            let expected = self.world.records.get(&id).map(|n| text(id, *n));
            assert_eq!(self.record(id), expected);
        }
    }

    /// Makes a backup, and mostly continues with it.
    pub(crate) fn back_up(&mut self, rng: &mut Rng) {
        self.backups += 1;
        let dir = format!("/backup-{}", self.backups);
        self.db().backup(&dir).unwrap();
        if rng.u8(0..3) > 0 {
            self.db().clone().close().unwrap();
            self.dir = dir.into();
            self.reopen(self.memory.clone());
            self.compare_records();
            self.done[3] += 1;
        }
    }
}

/// A record of the dataset in the same store.
pub(crate) fn text(id: u64, n: u64) -> String {
    format!("{{\"id\":{id},\"n\":{n}}}")
}
