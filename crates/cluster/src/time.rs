//! Timestamps and clocks.
//!
//! A timestamp is a [`Seq`] of 56 bits: milliseconds since 2020 (41 bits, until 2089), a counter
//! within the millisecond (6 bits), and the number of the writer (9 bits). No two writers have the
//! same number at the same time, so no two writes have the same timestamp, on any of the stores.
//! Timestamps of one writer ascend even if its clock does not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_coding::Seq;

use crate::error::{Error, Result};

/// 2020-01-01, in milliseconds since 1970.
pub(crate) const EPOCH: u64 = 1_577_836_800_000;
const COUNTER_BITS: u32 = 6;
const WRITER_BITS: u32 = 9;
/// The numbers of writers.
pub(crate) const WRITERS: u16 = 1 << WRITER_BITS;

/// The largest difference between the clock of a writer and that of the cluster, in milliseconds:
/// other writers are refused.
pub const CLOCK_BOUND: u64 = 2_000;
/// A timestamp may be ahead of its writer's clock by this, in milliseconds: the clock of another
/// writer, or of the same one before it was set, may have been ahead of the cluster's by the bound
/// while this one is behind it by the bound. A comparison of clocks is exact to some hundred
/// milliseconds.
pub(crate) const STAMP_LEAD: u64 = 2 * CLOCK_BOUND + 500;
/// A writer acknowledges no write that takes longer, in milliseconds.
pub(crate) const DEADLINE: u64 = 20_000;
/// An index entry without a record may be removed after this time, in milliseconds.
pub(crate) const GRACE: u64 = 60_000;
/// A query sees the records as of its start for this time, in milliseconds: repairs remove no
/// version that was made obsolete later than this.
pub(crate) const VIEW: u64 = 60_000;
/// A process uses the catalog for this time before it reads it again, in milliseconds.
pub(crate) const CATALOG_AGE: u64 = 15_000;
/// Changes of the catalog that all writers must know take effect after this time, in milliseconds.
pub(crate) const LEAD: u64 = 100_000;
/// The longest time from reading the cluster's clock for a change of the catalog to the change, in
/// milliseconds: a compare-and-set without an answer is sent again for half a minute, each attempt
/// has a timeout, and what became of it is read then.
const SLOWEST_CHANGE: u64 = 80_000;
// A writer that has read the catalog just before the change makes timestamps by its copy.
const _: () = assert!(LEAD >= SLOWEST_CHANGE + CATALOG_AGE + 2 * CLOCK_BOUND);
/// A deletion that is all that is left of a key is kept for this time, in milliseconds. A put that
/// was not acknowledged may lie at one node alone until the cluster's own repair finds it, which
/// must run at least every ten days.
pub(crate) const DELETIONS: u64 = 11 * 24 * 3_600_000;
/// A node that was down may receive writes for this time after they were made, in milliseconds.
pub(crate) const HINTS: u64 = 3 * 3_600_000;

/// The first timestamp of a millisecond since 1970.
pub(crate) fn stamp(millis: u64) -> Seq {
    millis.saturating_sub(EPOCH) << (COUNTER_BITS + WRITER_BITS)
}

/// The millisecond of a timestamp, since 1970.
pub fn millis(at: Seq) -> u64 {
    (at >> (COUNTER_BITS + WRITER_BITS)) + EPOCH
}

/// The clocks of a process.
pub trait Clocks: Send + Sync {
    /// The time of day, in milliseconds since 1970.
    fn wall(&self) -> u64;

    /// Milliseconds since some moment; never goes back, and counts the time that the machine was
    /// suspended.
    fn steady(&self) -> u64;

    /// Waits.
    fn sleep(&self, millis: u64);
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemClocks {
    begun: u64,
}

impl Default for SystemClocks {
    fn default() -> SystemClocks {
        SystemClocks { begun: running() }
    }
}

/// Milliseconds that the machine has run, or was suspended. The clock of [`std::time::Instant`]
/// stands still in suspension.
#[cfg(target_os = "linux")]
fn running() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the first call. Where this does not count suspension, writers compare it with
/// the wall clock.
#[cfg(not(target_os = "linux"))]
fn running() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

impl Clocks for SystemClocks {
    fn wall(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }

    fn steady(&self) -> u64 {
        running().saturating_sub(self.begun)
    }

    fn sleep(&self, millis: u64) {
        std::thread::sleep(Duration::from_millis(millis));
    }
}

/// The timestamps of a writer: a hybrid logical clock.
#[derive(Debug)]
pub(crate) struct Stamps {
    writer: u16,
    /// Milliseconds and counter of the last timestamp.
    last: AtomicU64,
}

impl Stamps {
    /// Timestamps that are later than those of the same process under another number.
    pub(crate) fn new(writer: u16, before: Option<&Stamps>) -> Stamps {
        let last = before.map_or(0, |before| before.last.load(Ordering::SeqCst));
        Stamps {
            writer,
            last: AtomicU64::new(last),
        }
    }

    /// A timestamp of the millisecond `wall`, or a later one: later than all before it, and than
    /// `after`. Fails if it would be ahead of `wall` by more than [`STAMP_LEAD`].
    pub(crate) fn next(&self, wall: u64, after: Seq) -> Result<Seq> {
        let now = stamp(wall) >> WRITER_BITS;
        let least = now.max((after >> WRITER_BITS).saturating_add(1));
        let most = stamp(wall + STAMP_LEAD) >> WRITER_BITS;
        let next = |last: u64| least.max(last + 1);
        let made = self
            .last
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| {
                Some(next(last)).filter(|next| *next <= most)
            });
        match made {
            Ok(last) => Ok(next(last) << WRITER_BITS | u64::from(self.writer)),
            Err(last) => Err(Error::TimestampAhead {
                ahead: millis(next(last) << WRITER_BITS).saturating_sub(wall),
                bound: STAMP_LEAD,
            }),
        }
    }

    /// The millisecond of the last timestamp.
    pub(crate) fn last_millis(&self) -> u64 {
        millis(self.last.load(Ordering::SeqCst) << WRITER_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_coding::MAX_SEQ;

    #[test]
    fn timestamps_ascend_whatever_the_clock_does() {
        let stamps = Stamps::new(3, None);
        let wall = 1_800_000_000_000;
        let mut last = 0;
        for wall in [wall, wall, wall - 4_000, wall + 1, wall - 4_400, wall + 1] {
            let next = stamps.next(wall, 0).unwrap();
            assert!(next > last);
            assert_eq!(next & u64::from(WRITERS - 1), 3);
            last = next;
        }
        assert_eq!(millis(last), wall + 1);
        assert!(stamps.next(wall, last + 10_000).unwrap() > last + 10_000);
        // A new number does not make them begin anew.
        let last = stamps.next(wall, 0).unwrap();
        let renewed = Stamps::new(2, Some(&stamps));
        assert!(renewed.next(wall - 4_000, 0).unwrap() > last);
    }

    #[test]
    fn a_timestamp_that_is_far_ahead_of_the_clock_is_refused() {
        let wall = 1_800_000_000_000;
        let stamps = Stamps::new(3, None);
        let first = stamps.next(wall, stamp(wall + STAMP_LEAD - 1)).unwrap();
        let refused = |made: Result<Seq>| matches!(made, Err(Error::TimestampAhead { .. }));
        // Of another writer's record.
        assert!(refused(stamps.next(wall, stamp(wall + STAMP_LEAD + 1))));
        assert!(refused(stamps.next(wall, Seq::MAX)));
        // Of its own, since the clock was set back: until the clock has come near again.
        assert!(refused(stamps.next(wall - 10, 0)));
        assert!(stamps.next(wall, 0).unwrap() > first);
    }

    /// The steady clock stood still while the machine was suspended.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_steady_clock_counts_from_the_start_of_the_machine() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
            (seconds * 1000.0) as u64
        };
        let before = uptime();
        let now = running();
        // The text has steps of ten milliseconds.
        assert!((before..=uptime() + 10).contains(&now), "{before} {now}");
    }

    #[test]
    fn a_timestamp_is_a_sequence_number_until_2089() {
        let end = EPOCH + (1 << 41) - 1;
        assert!(Stamps::new(WRITERS - 1, None).next(end, 0).unwrap() <= MAX_SEQ);
        assert!(end > 3_770_000_000_000, "{end}");
    }

    #[test]
    fn writers_never_share_a_timestamp() {
        let (a, b) = (Stamps::new(1, None), Stamps::new(2, None));
        for _ in 0..1000 {
            assert_ne!(a.next(EPOCH + 9, 0).unwrap(), b.next(EPOCH + 9, 0).unwrap());
        }
    }
}
