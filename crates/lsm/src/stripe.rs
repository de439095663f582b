//! Values that exist once per stripe, so that threads that write to them do not write to the same cache line: counters,
//! and what readers take a reference count on.
//!
//! Each thread has a number, the smallest that no living thread has, and uses the stripe of that number. There are more
//! stripes than cores, so threads share one only where there are more of them than stripes. Sharing costs time, and is
//! never wrong: whatever is in a stripe must bear use by several threads.

use std::collections::BTreeSet;
use std::thread::available_parallelism;

use parking_lot::Mutex;

/// Stripes per core, because not every thread that has a number is at work.
const PER_CORE: usize = 4;

const LEAST: usize = 8;
const MOST: usize = 256;

/// Two lines: some processors fetch them in pairs.
#[repr(align(128))]
struct Stripe<T>(T);

/// A value per stripe.
pub struct Striped<T>(Box<[Stripe<T>]>);

impl<T> Striped<T> {
    /// Stripes that hold what `make` makes.
    pub fn new(mut make: impl FnMut() -> T) -> Striped<T> {
        let cores = available_parallelism().map_or(1, usize::from);
        let count = (PER_CORE * cores).clamp(LEAST, MOST).next_power_of_two();
        Striped((0..count).map(|_| Stripe(make())).collect())
    }

    /// The value of the calling thread's stripe: the same one each time that the thread asks.
    #[inline]
    pub fn mine(&self) -> &T {
        // While a thread's own values are dropped it has no number any more.
        let number = NUMBER.try_with(|number| number.0).unwrap_or(0);
        // Their count is a power of two.
        &self.0[number & (self.0.len() - 1)].0
    }

    /// The values of all stripes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Stripe(value)| value)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Striped<T> {
        Striped::new(T::default)
    }
}

/// The numbers that threads have given back, and the first that none has had.
static NUMBERS: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

/// The number of a thread, until it ends.
struct Number(usize);

thread_local! {
    static NUMBER: Number = Number::take();
}

impl Number {
    fn take() -> Number {
        let (free, next) = &mut *NUMBERS.lock();
        Number(free.pop_first().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().0.insert(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn nothing_is_lost_whoever_counts() {
        let counters = Striped::<AtomicU64>::default();
        // More threads than stripes, and more than once: numbers are given out again.
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..MOST + 44 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            counters.mine().fetch_add(1, Relaxed);
                        }
                    });
                }
            });
        }
        let sum: u64 = counters.iter().map(|counter| counter.load(Relaxed)).sum();
        assert_eq!(sum, 3 * (MOST as u64 + 44) * 100);
    }

    #[test]
    fn threads_at_once_have_numbers_of_their_own_and_keep_them() {
        const THREADS: usize = 20;
        let mine = || NUMBER.with(|number| number.0);
        let all_there = Barrier::new(THREADS);
        let numbers: Vec<usize> = std::thread::scope(|scope| {
            let one = || {
                let number = mine();
                all_there.wait();
                assert_eq!(mine(), number);
                number
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let different: BTreeSet<usize> = numbers.iter().copied().collect();
        assert_eq!(different.len(), THREADS);
    }
}
