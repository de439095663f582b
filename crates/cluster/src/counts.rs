//! Counts of entries by bucket, by which buckets are split.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Entries of a bucket that a process writes before it adds them to the count that all share.
const STEP: u64 = 4096;
/// The tokens that are kept of a bucket, evenly over the step.
const SAMPLE: u64 = 128;

/// An index's table, and the first token of a bucket.
pub(crate) type BucketId = (Arc<str>, Vec<u8>);

/// Entries that were written to a bucket.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) entries: u64,
    pub(crate) tokens: Vec<Vec<u8>>,
}

/// The counts of a process.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    buckets: Mutex<HashMap<BucketId, Counted>>,
}

impl Counts {
    /// Counts an entry; returns what was counted once that is worth sharing: then it begins anew.
    pub(crate) fn add(&self, bucket: BucketId, token: &[u8], split_at: u64) -> Option<Counted> {
        let step = STEP.min((split_at / 4).max(1));
        let mut buckets = self.buckets.lock();
        let counted = buckets.entry(bucket).or_default();
        counted.entries += 1;
        if counted.entries.is_multiple_of((step / SAMPLE).max(1)) {
            counted.tokens.push(token.to_vec());
        }
        (counted.entries >= step).then(|| std::mem::take(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_given_back_once_with_a_sample() {
        let counts = Counts::default();
        let id = || (Arc::from("t"), vec![1]);
        let mut found = Vec::new();
        for i in 0..10_000_u32 {
            found.extend(counts.add(id(), &i.to_be_bytes(), 1_000_000));
        }
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].entries, STEP);
        assert_eq!(found[0].tokens.len() as u64, SAMPLE);
    }
}
