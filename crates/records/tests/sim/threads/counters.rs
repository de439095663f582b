//! Threads that update the same counters, insert and delete the same key, and let records expire.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker::{Database, ErrorKind};

use super::{Alarm, COUNTERS, COUNTS, PASSING, Shared};

impl Shared {
    /// Adds to counters that others add to: each addition that is acknowledged counts, and none is
    /// refused. A record with the additions of this thread is inserted, found and deleted: exactly
    /// once.
    pub(super) fn count(&self, db: &Database, seed: u64, added: &AtomicU64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some(counts) = self.decide(db.dataset::<u64>(COUNTS), &[]) else {
            return;
        };
        while self.goes_on() {
            let id = rng.u64(0..COUNTERS);
            let add = counts.update(id, |old| {
                let n = old.map_or(0, |record| counted(record.json()));
                format!("{{\"id\":{id},\"n\":{}}}", n + 1)
            });
            match self.decide(add, &[]) {
                Some(_) => drop(added.fetch_add(1, SeqCst)),
                None => return,
            }
            // Others insert and delete the same key.
            let shared = format!("{{\"id\":{},\"n\":{seed}}}", COUNTERS);
            let inserted = counts.insert_json(shared);
            let deleted = match inserted {
                Ok(()) => counts.delete(COUNTERS),
                // Whoever refused the insert is visible, unless it was deleted since.
                Err(error) if error.kind() == ErrorKind::Exists => counts.get(COUNTERS),
                Err(error) => Err(error),
            };
            if self.decide(deleted, &[]).is_none() {
                return;
            }
        }
    }

    /// Puts records that expire at once and again, and has them deleted; nobody but maintenance is
    /// beside it.
    pub(super) fn pass(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some(passing) = self.decide(db.dataset::<u64>(PASSING), &[]) else {
            return;
        };
        while self.goes_on() {
            for _ in 0..rng.usize(1..20) {
                let record = format!("{{\"id\":{},\"n\":1}}", rng.u64(0..8));
                if self.decide(passing.put_json(record), &[]).is_none() {
                    return;
                }
            }
            if self.decide(passing.expire_now(), &[]).is_none() {
                return;
            }
            let stats = passing.stats();
            if !self.closing.load(SeqCst) {
                assert_eq!(stats.strategy.error, None, "maintenance in the background");
            }
        }
    }
}

/// The number in a record.
pub(super) fn counted(json: &[u8]) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    json["n"].as_u64().unwrap()
}
