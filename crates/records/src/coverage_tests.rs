//! The guarantees of all combinations of a coverage's fields.

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
fn the_set_alone_decides_only_with_the_writes_of_the_strategy() {
    for coverage in all() {
        let index = coverage.complete_for(Source::IndexEntries);
        let data = coverage.complete_for(Source::DataVersions);
        // A set that is complete for all versions is complete for those with index entries.
        assert!(index.is_always() || !data.is_always(), "{coverage:?}");
        let by_each_write = coverage.by_writes && coverage.converged;
        assert_eq!(index.is_always(), by_each_write, "{coverage:?}");
        // A repair by index finds no versions without index entries.
        let always = by_each_write && coverage.from_the_first;
        assert_eq!(data.is_always(), always, "{coverage:?}");
        assert!(coverage.complete_for(Source::Records).is_always());
        assert!(coverage.has_converged() || !coverage.loses_nothing());
    }
}

#[test]
fn a_watermark_guarantees_writes_up_to_itself_but_no_kept_versions() {
    for coverage in all() {
        for source in [Source::IndexEntries, Source::DataVersions, Source::Mixed] {
            let complete = coverage.complete_for(source);
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
