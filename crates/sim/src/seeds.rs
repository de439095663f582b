//! Which seeds a test runs.

use crate::by_tier;

/// The seeds to run: `ESKER_SEEDS` is their number (without it `usual`, four times as many in the
/// nightly tier), `ESKER_SEED` the first. Only the first is run where `ESKER_SEED` alone is set.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("ESKER_SEED").unwrap_or(0);
    let count = number("ESKER_SEEDS").unwrap_or(match number("ESKER_SEED") {
        Some(_) => 1,
        None => by_tier(usual, 4 * usual),
    });
    first..first + count
}
