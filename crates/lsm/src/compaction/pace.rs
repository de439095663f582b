//! The write rate limit of compactions: bytes per second, shared by all threads.
//!
//! The bytes of each thread are scheduled behind those of earlier requests, and the thread waits
//! for its slot. So no thread is starved, and after a pause a burst is at most a tenth of a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Unused capacity older than this is lost.
const BURST: Duration = Duration::from_millis(100);

/// How long a thread waits before it checks again whether the store is closing.
const POLL: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(crate) struct Pace {
    rate: Option<u64>,
    /// The end of the last granted slot.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(rate: Option<u64>) -> Pace {
        Pace {
            rate,
            next: Mutex::default(),
        }
    }

    /// Waits until `bytes` may have been written, or `closing` is set.
    pub(crate) fn wait(&self, bytes: u64, closing: &AtomicBool) {
        let Some(rate) = self.rate else {
            return;
        };
        let until = self.grant(bytes, rate, Instant::now());
        while !closing.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    fn grant(&self, bytes: u64, rate: u64, now: Instant) -> Instant {
        let takes = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64);
        // At most a day, so that the sum is a valid time.
        let takes = takes
            .unwrap_or(Duration::MAX)
            .min(Duration::from_secs(86_400));
        let mut next = self.next.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let from = next.map_or(earliest, |next| next.max(earliest));
        *next.insert(from + takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_together_keep_to_the_rate() {
        let pace = Pace::new(Some(1000));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // The first tenth of a second is free.
        assert_eq!(pace.grant(100, 1000, start), start);
        assert_eq!(pace.grant(500, 1000, start), at(500));
        assert_eq!(pace.grant(500, 1000, at(100)), at(1000));
        // Unused capacity is lost.
        assert_eq!(pace.grant(200, 1000, at(5000)), at(5100));
    }

    #[test]
    fn no_thread_waits_without_a_rate_or_when_the_store_is_closed() {
        let (open, closing) = (AtomicBool::new(false), AtomicBool::new(true));
        Pace::default().wait(u64::MAX, &open);
        Pace::new(Some(1)).wait(u64::MAX, &closing);
    }
}
