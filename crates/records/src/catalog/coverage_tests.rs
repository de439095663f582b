//! Every combination of what a coverage is made of: what is promised of which candidates.

use super::{Complete, Coverage, Source};

fn all() -> impl Iterator<Item = Coverage> {
    (0..64).map(|bits: u32| {
        let bit = |at: u32| bits & (1 << at) != 0;
        Coverage {
            watermark: if bit(5) { 9 } else { 0 },
            converged: bit(0),
            by_writes: bit(1),
            from_the_first: bit(2),
            keeps_versions: bit(3),
            reports: bit(4),
        }
    })
}

#[test]
fn the_set_alone_tells_only_what_it_was_given() {
    for coverage in all() {
        let index = coverage.of(Source::IndexEntries);
        let data = coverage.of(Source::DataVersions);
        // Whoever trusts it for all versions may trust it for those that an index has entries of.
        assert!(index.is_always() || !data.is_always(), "{coverage:?}");
        let by_each_write = coverage.by_writes && coverage.converged;
        assert_eq!(index.is_always(), by_each_write, "{coverage:?}");
        // A repair by index says nothing of versions without index entries.
        let always = by_each_write && coverage.from_the_first;
        assert_eq!(data.is_always(), always, "{coverage:?}");
        assert!(coverage.of(Source::Records).is_always());
        assert!(coverage.has_converged() || !coverage.loses_nothing());
    }
}

#[test]
fn a_watermark_promises_up_to_itself_and_nothing_of_versions_that_are_kept() {
    for coverage in all() {
        for source in [Source::IndexEntries, Source::DataVersions] {
            let complete = coverage.of(source);
            match complete {
                Complete::Always => assert!(complete.includes(u64::MAX)),
                Complete::UpTo(watermark) => {
                    assert!(complete.includes(watermark));
                    assert!(!complete.includes(watermark + 1));
                    let promises = source == Source::IndexEntries && !coverage.keeps_versions;
                    assert!(promises || watermark == 0, "{coverage:?}");
                }
            }
        }
    }
}
