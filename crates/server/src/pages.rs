//! The pages of answers: each page of an answer reads the same snapshot.
//!
//! **Invariants.** A snapshot lives for [`LIFE`] after its last use. There are at most [`MOST`];
//! beyond that, the one that was not used for the longest time goes. The number in a token is
//! random, so that a caller cannot guess that of another.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use esker::PageToken;
use parking_lot::Mutex;

use crate::problem::Problem;

/// How long a snapshot lives after its last use.
pub(crate) const LIFE: Duration = Duration::from_secs(60);

/// The most snapshots at the same time.
const MOST: usize = 1000;

/// A dataset as it was when the first page was read.
pub(crate) type Moment = esker::DatasetSnapshot;

#[derive(Default)]
pub(crate) struct Pages {
    kept: Mutex<Snapshots>,
    /// Its key is secret: the hashes of a counter cannot be guessed.
    random: RandomState,
}

#[derive(Default)]
struct Snapshots {
    by_number: HashMap<u64, Kept>,
    made: u64,
}

impl Snapshots {
    fn sweep(&mut self, now: Instant) {
        self.by_number.retain(|_, one| now - one.used < LIFE);
    }
}

struct Kept {
    moment: Moment,
    used: Instant,
}

/// A place in an answer: the number of its snapshot, and the place in its order.
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) token: PageToken,
}

impl Place {
    /// Reads a token.
    ///
    /// # Errors
    /// 400 if it is none.
    pub(crate) fn parse(text: &str) -> Result<Place, Problem> {
        let parts = text.split_once('.').and_then(|(number, token)| {
            let number = u64::from_str_radix(number, 16).ok()?;
            Some((number, token.parse().ok()?))
        });
        let (number, token) =
            parts.ok_or_else(|| Problem::bad_request("`after` is no token of a page"))?;
        Ok(Place { number, token })
    }

    pub(crate) fn text(&self) -> String {
        format!("{:016x}.{}", self.number, self.token)
    }
}

impl Pages {
    /// Keeps a snapshot for further pages; returns its number.
    pub(crate) fn keep(&self, moment: Moment) -> u64 {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.sweep(now);
        let by_age = kept.by_number.iter().min_by_key(|(_, one)| one.used);
        if kept.by_number.len() >= MOST
            && let Some(oldest) = by_age.map(|(number, _)| *number)
        {
            kept.by_number.remove(&oldest);
        }
        kept.made += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(kept.made);
        let number = hasher.finish();
        kept.by_number.insert(number, Kept { moment, used: now });
        number
    }

    /// The snapshot of this number, which is used once more.
    ///
    /// # Errors
    /// 410 if it has gone.
    pub(crate) fn moment(&self, number: u64) -> Result<Moment, Problem> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let found = kept
            .by_number
            .get_mut(&number)
            .filter(|one| now - one.used < LIFE);
        let found = found.ok_or_else(|| {
            let detail =
                "the snapshot of this page has gone: it is kept for 60 s after its last use";
            Problem::new(StatusCode::GONE, "page-expired", detail)
        })?;
        found.used = now;
        Ok(found.moment.clone())
    }

    /// Drops a snapshot: its last page was read.
    pub(crate) fn end(&self, number: u64) {
        self.kept.lock().by_number.remove(&number);
    }

    /// Drops the snapshots whose time is over. Returns how many are left.
    pub(crate) fn sweep(&self) -> usize {
        let mut kept = self.kept.lock();
        kept.sweep(Instant::now());
        kept.by_number.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_were_written() {
        let place = Place {
            number: 7,
            token: PageToken::Row(b"key".to_vec()),
        };
        let read = Place::parse(&place.text()).unwrap();
        assert_eq!((read.number, read.token), (7, place.token));
        for wrong in ["", "7", "x.1", "7.", "7.!"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }
}
