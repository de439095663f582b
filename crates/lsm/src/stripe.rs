//! Values that exist once per stripe, so that threads do not write to the same cache line:
//! counters, and reference counts of readers.
//!
//! Each thread has a number, the smallest that no living thread has, and uses the stripe of that
//! number. There are more stripes than cores, so threads share one only where there are more
//! threads than stripes. Sharing costs time but is never wrong: a value in a stripe must tolerate
//! several threads.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use parking_lot::Mutex;

/// Stripes per core, because some threads with a number are idle.
const PER_CORE: usize = 4;

const LEAST: usize = 8;
const MAX_STRIPES: usize = 256;

/// Two lines: some processors fetch them in pairs.
#[repr(align(128))]
struct Stripe<T>(T);

/// The number of stripes: a power of two. Computed once: the number of cores is read from system
/// files, and a store of many datasets has stripes by the thousand.
fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let cores = available_parallelism().map_or(1, usize::from);
        (PER_CORE * cores)
            .clamp(LEAST, MAX_STRIPES)
            .next_power_of_two()
    })
}

/// The calling thread's stripe, the same for the life of the thread; the length of `stripes` is a
/// power of two.
#[inline]
fn mine<T>(stripes: &[T]) -> &T {
    // A thread has no number any more while its thread-local values are dropped.
    let number = NUMBER.try_with(|number| number.0).unwrap_or(0);
    &stripes[number & (stripes.len() - 1)]
}

/// A value per stripe.
pub struct Striped<T>(Box<[Stripe<T>]>);

impl<T> Striped<T> {
    /// Stripes that hold what `make` makes.
    pub fn new(mut make: impl FnMut() -> T) -> Striped<T> {
        Striped((0..count()).map(|_| Stripe(make())).collect())
    }

    /// The value of the calling thread's stripe.
    #[inline]
    pub fn mine(&self) -> &T {
        &mine(&self.0).0
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

/// A value per stripe, created on first use: for values that are many and used by few threads.
pub struct LazyStriped<T>(Box<[OnceLock<Box<Stripe<T>>>]>);

impl<T: Default> LazyStriped<T> {
    /// The value of the calling thread's stripe.
    #[inline]
    pub fn mine(&self) -> &T {
        &mine(&self.0)
            .get_or_init(|| Box::new(Stripe(T::default())))
            .0
    }

    /// The values created so far.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|stripe| Some(&stripe.get()?.0))
    }
}

impl<T> Default for LazyStriped<T> {
    fn default() -> LazyStriped<T> {
        LazyStriped((0..count()).map(|_| OnceLock::new()).collect())
    }
}

/// The numbers that ended threads have released, and the first that was never used.
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
    fn no_count_is_lost_between_threads() {
        let counters = Striped::<AtomicU64>::default();
        let lazy = LazyStriped::<AtomicU64>::default();
        assert_eq!(lazy.iter().count(), 0);
        // More threads than stripes, and several rounds: numbers are reused.
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..MAX_STRIPES + 44 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            counters.mine().fetch_add(1, Relaxed);
                            lazy.mine().fetch_add(1, Relaxed);
                        }
                    });
                }
            });
        }
        let sum = |counters: &mut dyn Iterator<Item = &AtomicU64>| -> u64 {
            counters.map(|counter| counter.load(Relaxed)).sum()
        };
        let all = 3 * (MAX_STRIPES as u64 + 44) * 100;
        assert_eq!(sum(&mut counters.iter()), all);
        assert_eq!(sum(&mut lazy.iter()), all);
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
