//! The observer of a copy: receives progress and notes, and can stop it.

/// What a copy does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStep {
    /// Records are copied.
    Copying,
    /// Both sides are read and compared; records of both are counted.
    Comparing,
    /// What differs is copied again.
    Mending,
}

/// The observer of a copy. Every method has a default that does nothing.
pub trait CopyObserver {
    /// Receives the progress: the records so far.
    fn progress(&mut self, step: CopyStep, records: u64) {
        let _ = (step, records);
    }

    /// Receives a sentence for people.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// True if the copy should return as soon as it can; it continues when it is run again.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Ignores everything.
impl CopyObserver for () {}
