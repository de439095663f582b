//! The memory of the cache.

use super::MatchCache;

/// Forty megabytes of conditions.
#[test]
fn long_conditions_do_not_fill_the_memory() {
    let cache = MatchCache::new(12);
    for number in 0..400 {
        let condition = format!("a = \"{number} {}\"", "x".repeat(100_000));
        cache.filter(&condition).unwrap();
    }
    let texts: usize = cache.filters.iter().map(|(text, _)| text.len()).sum();
    assert!(texts <= 16 << 20, "{texts} bytes");
    // Short ones are cached.
    for number in 0..1000 {
        cache.filter(&format!("a = {number}")).unwrap();
    }
    assert!(cache.filters.len() > 900, "{}", cache.filters.len());
}
