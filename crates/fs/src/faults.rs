//! The faults that tests inject into batched reads.

/// Injects faults into batched reads, for tests. Errors are numbers (`errno`).
pub trait RingFaults: Send + Sync {
    /// The error of setting up a ring, if it fails: called for each set-up.
    fn set_up(&self) -> Option<i32>;
    /// The error that leaves the outcome of submitted reads unknown, if any: called for each
    /// submission.
    fn lose(&self) -> Option<i32>;
    /// Maps the `result` of a read: the number of bytes read, or a negative error.
    fn end(&self, result: i32) -> i32;
}
