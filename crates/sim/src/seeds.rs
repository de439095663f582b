//! Which seeds a test runs.

/// The seeds to run: `ESKER_SEEDS` is their number (`usual` without it), `ESKER_SEED` the first.
/// Only the first is run where `ESKER_SEED` alone is set.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("ESKER_SEED").unwrap_or(0);
    let count = number("ESKER_SEEDS").unwrap_or(match number("ESKER_SEED") {
        Some(_) => 1,
        None => usual,
    });
    first..first + count
}
