//! How fast compactions write: a bound on their bytes per second, which all threads share.
//!
//! The bytes of each thread have a time at which they may have been written, behind those of the threads before; the thread
//! waits for it. So nobody is starved, and a pause is not made up for by a rush of more than a tenth of a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What was not used in so long is not made up for.
const BURST: Duration = Duration::from_millis(100);

/// How long a thread waits before it looks again whether the store is being closed.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(crate) struct Pace {
    rate: Option<u64>,
    /// When what was granted so far may have been written.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(rate: Option<u64>) -> Pace {
        Pace {
            rate,
            next: Mutex::default(),
        }
    }

    /// Waits until so many bytes may have been written, or somebody has raised `closing`.
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
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn grant(&self, bytes: u64, rate: u64, now: Instant) -> Instant {
        let takes = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64);
        // A day at most: the sum must be a time.
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
    fn what_threads_write_together_keeps_to_the_rate() {
        let pace = Pace::new(Some(1000));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // The first tenth of a second is free.
        assert_eq!(pace.grant(100, 1000, start), start);
        assert_eq!(pace.grant(500, 1000, start), at(500));
        assert_eq!(pace.grant(500, 1000, at(100)), at(1000));
        // A pause is not made up for.
        assert_eq!(pace.grant(200, 1000, at(5000)), at(5100));
    }

    #[test]
    fn nobody_waits_without_a_rate_or_when_the_store_is_closed() {
        let (open, closing) = (AtomicBool::new(false), AtomicBool::new(true));
        Pace::default().wait(u64::MAX, &open);
        Pace::new(Some(1)).wait(u64::MAX, &closing);
    }
}
