//! The pages of answers: each page of an answer reads the same snapshot.
//!
//! **Invariants.** A snapshot lives for [`LIFE`] after its last use, and for [`LONGEST`] at most.
//! There are at most [`MOST`], and [`MOST_OF_A_CALLER`] of a caller; beyond that, the one that was
//! not used for the longest time goes. The number in a token is
//! random, so that a caller cannot guess that of another.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use esker::PageToken;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::problem::Problem;

/// How long a snapshot lives after its last use.
pub(crate) const LIFE: Duration = Duration::from_secs(60);

/// A snapshot goes after this time, even if it is used: it keeps what was replaced since.
const LONGEST: Duration = Duration::from_secs(3600);

/// The most snapshots of a caller at the same time.
const MOST_OF_A_CALLER: usize = 500;

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
    /// Takes out those whose time has passed.
    fn over(&mut self, now: Instant) -> Vec<Kept> {
        let is_over = |_: &u64, one: &mut Kept| !one.lives(now);
        self.by_number
            .extract_if(is_over)
            .map(|(_, kept)| kept)
            .collect()
    }

    /// Takes out that of a caller which was not used for the longest time, if it has as many as it
    /// may have; or else of all, if there are as many as there may be.
    fn make_room(&mut self, caller: &str) -> Option<Kept> {
        let own = self
            .by_number
            .iter()
            .filter(|(_, one)| one.caller == caller);
        let oldest = |(_, one): &(&u64, &Kept)| one.used;
        let number = if own.clone().count() >= MOST_OF_A_CALLER {
            own.min_by_key(oldest).map(|(number, _)| *number)
        } else if self.by_number.len() >= MOST {
            self.by_number
                .iter()
                .min_by_key(oldest)
                .map(|(number, _)| *number)
        } else {
            None
        };
        self.by_number.remove(&number?)
    }
}

/// Drops snapshots: that may remove files, and so it has a thread.
fn drop_apart(gone: Vec<Kept>) {
    if gone.is_empty() {
        return;
    }
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || drop(gone))),
        // A test without a runtime.
        Err(_) => drop(gone),
    }
}

struct Kept {
    moment: Moment,
    caller: String,
    made: Instant,
    used: Instant,
}

impl Kept {
    fn lives(&self, now: Instant) -> bool {
        now - self.used < LIFE && now - self.made < LONGEST
    }
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
        format!("{}.{}", text_of(self.number), self.token)
    }
}

/// The number of a snapshot as text.
pub(crate) fn text_of(number: u64) -> String {
    format!("{number:016x}")
}

/// The number of a snapshot.
///
/// # Errors
/// 400 if it is none.
pub(crate) fn number_of(text: &str) -> Result<u64, Problem> {
    let number = u64::from_str_radix(text, 16);
    number.map_err(|_| Problem::bad_request(format!("`{text}` is no moment")))
}

impl Pages {
    /// Keeps a snapshot for further pages of a caller; returns its number.
    pub(crate) fn keep(&self, moment: Moment, caller: &str) -> u64 {
        let now = Instant::now();
        let (number, gone) = {
            let mut kept = self.kept.lock();
            let mut gone = kept.over(now);
            gone.extend(kept.make_room(caller));
            kept.made += 1;
            let mut hasher = self.random.build_hasher();
            hasher.write_u64(kept.made);
            let number = hasher.finish();
            let new = Kept {
                moment,
                caller: caller.to_string(),
                made: now,
                used: now,
            };
            gone.extend(kept.by_number.insert(number, new));
            (number, gone)
        };
        drop_apart(gone);
        number
    }

    /// The snapshot of this number, which is used once more.
    ///
    /// # Errors
    /// 410 if it has gone.
    pub(crate) fn moment(&self, number: u64) -> Result<Moment, Problem> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let found = kept.by_number.get_mut(&number).filter(|one| one.lives(now));
        let found = found.ok_or_else(|| {
            let detail = "the snapshot of this page or moment has gone: it is kept for 60 s after its last use";
            Problem::new(StatusCode::GONE, "page-expired", detail)
        })?;
        found.used = now;
        Ok(found.moment.clone())
    }

    /// Drops a snapshot: its caller needs it no more.
    pub(crate) fn end(&self, number: u64) {
        let gone = self.kept.lock().by_number.remove(&number);
        drop_apart(gone.into_iter().collect());
    }

    /// Drops the snapshots whose time has passed. Returns how many are left.
    pub(crate) fn sweep(&self) -> usize {
        let (left, gone) = {
            let mut kept = self.kept.lock();
            let gone = kept.over(Instant::now());
            (kept.by_number.len(), gone)
        };
        drop_apart(gone);
        left
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
