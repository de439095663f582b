//! The records: tweets, and new versions of a part of them.

use fastrand::Rng;

use crate::failure::Result;
use crate::workload::Record;
use crate::workload::profile::Profile;
use crate::workload::tweets::Tweets;

/// The share of the records that is replaced.
const UPDATED: f64 = 0.3;

/// Passes the first version of each record to `put`.
pub(super) fn first(
    seed: u64,
    len: usize,
    put: &mut dyn FnMut(&Record<'_>) -> Result<()>,
) -> Result<()> {
    let mut tweets = Tweets::new(seed, Profile::synthetic(len as u64));
    (0..len).try_for_each(|_| put(&tweets.next(None)))
}

/// Passes the new versions to `put`.
pub(super) fn updates(
    seed: u64,
    len: usize,
    put: &mut dyn FnMut(&Record<'_>) -> Result<()>,
) -> Result<()> {
    let mut tweets = Tweets::new(seed, Profile::synthetic(len as u64));
    let keys: Vec<u64> = (0..len).map(|_| tweets.next(None).key).collect();
    let mut rng = Rng::with_seed(seed ^ 0x7570);
    for _ in 0..(len as f64 * UPDATED) as usize {
        if let Some(key) = rng.choice(&keys) {
            put(&tweets.next(Some(*key)))?;
        }
    }
    Ok(())
}
