//! The decision on one entry in a flush or compaction: a pure function of its circumstances. The
//! stream (`stream.rs`) determines these, combines operands and emits; all decisions are made here.
//!
//! An entry is dropped for one of four reasons ([`Reason`]), or because it is a tombstone that no
//! longer hides anything. Readers pin the components that they read, so nothing is kept for them.

use super::Decision;
use crate::entry::Kind;

/// Why an entry is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its number is in the obsolete set.
    Obsolete,
    /// Enough newer versions of its key are kept.
    Shadowed,
    /// It has expired.
    Expired,
    /// The tree's compaction filter drops it.
    Filtered,
}

/// The circumstances of an entry; for operands, of the combined piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Circumstances {
    /// Put, delete or operand.
    pub(super) kind: Kind,
    /// A put whose number is in the obsolete set.
    pub(super) is_obsolete: bool,
    /// The maximum number of newer versions of the key is kept already.
    pub(super) is_shadowed: bool,
    /// It has expired.
    pub(super) is_expired: bool,
    /// The key was written after the repair watermark that the tree waits for: its puts are kept
    /// until repair has found them.
    pub(super) awaits_repair: bool,
}

/// The decision on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is kept as it is.
    Keep,
    /// It is kept with another value.
    Rewrite(Vec<u8>),
    /// The key is deleted from here on: a tombstone replaces the entry, while an older entry may
    /// exist that it must hide. `None` for an entry that was a tombstone before.
    Delete(Option<Reason>),
    /// It is dropped without replacement.
    Drop(Reason),
}

/// Decides. `filter` is called at most once, and only for an entry that is kept otherwise.
pub(super) fn decide(entry: Circumstances, filter: impl FnOnce() -> Decision) -> Fate {
    use Reason::{Expired, Filtered, Obsolete, Shadowed};
    match entry.kind {
        // Its replacement represents the key.
        Kind::Put if entry.is_obsolete => Fate::Drop(Obsolete),
        Kind::Put if entry.is_shadowed && entry.awaits_repair => Fate::Keep,
        _ if entry.is_shadowed => Fate::Drop(Shadowed),
        Kind::Delete => Fate::Delete(None),
        // It replaced older entries, which must stay hidden.
        Kind::Put if entry.is_expired => Fate::Delete(Some(Expired)),
        // An operand replaced nothing.
        Kind::Operand if entry.is_expired => Fate::Drop(Expired),
        Kind::Put | Kind::Operand | Kind::Timed => match filter() {
            Decision::Keep => Fate::Keep,
            Decision::Rewrite(value) => Fate::Rewrite(value),
            Decision::Drop if entry.kind == Kind::Operand => Fate::Drop(Filtered),
            Decision::Drop => Fate::Delete(Some(Filtered)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decisions for a kind: for the 16 combinations of obsolete, shadowed, expired and
    /// awaiting repair (in this order, the first the most significant bit), the result where the
    /// filter keeps (`k`), rewrites (`r`) and drops (`d`). `K` keep, `R` rewrite, `A` tombstone as
    /// it was, `E` and `F` tombstones for expired or filtered entries, `o`, `s`, `e`, `f` dropped
    /// as obsolete, shadowed, expired, filtered.
    const PUTS: [&str; 16] = [
        "KRF", "KRF", "EEE", "EEE", // neither obsolete nor shadowed
        "sss", "KKK", "sss", "KKK", // shadowed
        "ooo", "ooo", "ooo", "ooo", // obsolete
        "ooo", "ooo", "ooo", "ooo", // both
    ];
    const DELETES: [&str; 16] = [
        "AAA", "AAA", "AAA", "AAA", //
        "sss", "sss", "sss", "sss", //
        "AAA", "AAA", "AAA", "AAA", //
        "sss", "sss", "sss", "sss", //
    ];
    const OPERANDS: [&str; 16] = [
        "KRf", "KRf", "eee", "eee", //
        "sss", "sss", "sss", "sss", //
        "KRf", "KRf", "eee", "eee", //
        "sss", "sss", "sss", "sss", //
    ];

    fn letter(fate: &Fate) -> char {
        match fate {
            Fate::Keep => 'K',
            Fate::Rewrite(value) => {
                assert_eq!(value, b"new");
                'R'
            }
            Fate::Delete(None) => 'A',
            Fate::Delete(Some(Reason::Expired)) => 'E',
            Fate::Delete(Some(Reason::Filtered)) => 'F',
            Fate::Delete(Some(Reason::Obsolete | Reason::Shadowed)) => '?',
            Fate::Drop(Reason::Obsolete) => 'o',
            Fate::Drop(Reason::Shadowed) => 's',
            Fate::Drop(Reason::Expired) => 'e',
            Fate::Drop(Reason::Filtered) => 'f',
        }
    }

    #[test]
    fn every_combination_has_its_fate() {
        let kinds = [
            (Kind::Put, PUTS),
            (Kind::Delete, DELETES),
            (Kind::Operand, OPERANDS),
        ];
        let verdicts = [
            Decision::Keep,
            Decision::Rewrite(b"new".to_vec()),
            Decision::Drop,
        ];
        for (kind, table) in kinds {
            for (bits, expected) in table.iter().enumerate() {
                let circumstances = Circumstances {
                    kind,
                    is_obsolete: bits & 8 != 0,
                    is_shadowed: bits & 4 != 0,
                    is_expired: bits & 2 != 0,
                    awaits_repair: bits & 1 != 0,
                };
                let fates = verdicts.iter();
                let fates = fates.map(|verdict| letter(&decide(circumstances, || verdict.clone())));
                assert_eq!(fates.collect::<String>(), *expected, "{circumstances:?}");
            }
        }
    }
}
