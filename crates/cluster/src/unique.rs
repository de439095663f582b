//! Numbers that are used once.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other call returns, in any process: hashers of the standard library begin with
/// random keys.
pub(crate) fn unique() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    RandomState::new().hash_one((call, std::process::id()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_number_comes_twice() {
        let numbers: std::collections::HashSet<u64> = (0..1000).map(|_| super::unique()).collect();
        assert_eq!(numbers.len(), 1000);
    }
}
