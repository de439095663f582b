//! A clock that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A clock in milliseconds that stands still until a test moves it. A clone is the same clock.
#[derive(Debug, Clone, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// A clock that shows `time`.
    pub fn new(time: u64) -> TestClock {
        TestClock(Arc::new(AtomicU64::new(time)))
    }

    /// The time that it shows.
    pub fn get(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Shows `time` from now on.
    pub fn set(&self, time: u64) {
        self.0.store(time, SeqCst);
    }

    /// Moves it forward by `millis`.
    pub fn add(&self, millis: u64) {
        self.0.fetch_add(millis, SeqCst);
    }

    /// Moves it by `millis`, forward or back, 0 at the least.
    pub fn step(&self, millis: i64) {
        self.set(self.get().saturating_add_signed(millis));
    }

    /// The function that a store takes for its clock.
    pub fn function(&self) -> Arc<dyn Fn() -> u64 + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || clock.get())
    }
}
