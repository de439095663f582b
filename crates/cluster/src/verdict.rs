//! Index entries that were read, and what is true of them.

use esker_coding::Seq;

/// An index entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) at: Seq,
    pub(crate) key: Vec<u8>,
    /// The place of its index in [`Bound::indexes`].
    pub(crate) index: usize,
    pub(crate) token: Vec<u8>,
}

/// What is true of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Of the newest version: its value, unless rows alone were read.
    Newest(Vec<u8>),
    /// Of another version among those that are kept.
    Kept(Vec<u8>),
    /// Of a version that enough newer ones or a deletion have made obsolete.
    Obsolete,
    /// Of a write that has put no record, and cannot do so any more.
    Dangling,
    /// Of a write that may still put its record.
    Pending,
}
