//! The clock of all that is open: it goes on, and steps back a little, at any time. A record that
//! lives for a while is there until then, and is gone from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use esker::Database;

use super::{Alarm, Shared};

/// A dataset of records that live for a while.
pub(super) const LASTING: &str = "lasting";
pub(super) const LIVES: u64 = 2_000;

/// So far it steps back, in milliseconds.
const BACK: u64 = 100;

#[derive(Clone)]
pub(super) struct Clock {
    /// The latest that it may say.
    upto: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock {
            upto: Arc::new(AtomicU64::new(1_700_000_000_000)),
            asked: Arc::default(),
        }
    }

    pub(super) fn get(&self) -> u64 {
        let back = self.asked.fetch_add(7, SeqCst) % (BACK + 1);
        self.upto.load(SeqCst) - back
    }

    fn latest(&self) -> u64 {
        self.upto.load(SeqCst)
    }

    fn earliest(&self) -> u64 {
        self.latest() - BACK
    }
}

impl Shared {
    /// Lets time pass.
    pub(super) fn tick(&self, _: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        while self.goes_on() {
            let millis = match rng.usize(0..10) {
                0 => rng.u64(0..1_000),
                _ => rng.u64(0..30),
            };
            self.clock.upto.fetch_add(millis, SeqCst);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Puts a record of its own again and again, and looks whether it is there.
    pub(super) fn last(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let id = seed % 100;
        let Some(lasting) = self.decide(db.dataset::<u64>(LASTING), &[]) else {
            return;
        };
        while self.goes_on() {
            let earliest = self.clock.earliest() + LIVES;
            let record = format!("{{\"id\":{id},\"n\":{}}}", rng.u32(..));
            if self.decide(lasting.put_json(&record), &[]).is_none() {
                return;
            }
            let latest = self.clock.latest() + LIVES;
            let mut gone = false;
            for _ in 0..rng.usize(1..200) {
                if rng.usize(0..50) == 0 && self.decide(lasting.expire_now(), &[]).is_none() {
                    return;
                }
                let begun = self.clock.earliest();
                let Some(found) = self.decide(lasting.get(id), &[]) else {
                    return;
                };
                match found {
                    Some(found) => {
                        assert_eq!(found.json(), record.as_bytes());
                        assert!(!gone, "{id} is back");
                        assert!(begun < latest, "{id} is there at {begun}, to {latest}");
                    }
                    None => {
                        let now = self.clock.latest();
                        assert!(earliest <= now, "{id} is gone at {now}, not {earliest}");
                        gone = true;
                    }
                }
                if !self.goes_on() {
                    return;
                }
            }
        }
    }
}
