//! Index entries that were read, and what is true of them.

use std::sync::Arc;

use esker_coding::Seq;
use parking_lot::Mutex;

use crate::bound::Bound;
use crate::rows::Entry;

/// An index entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) at: Seq,
    pub(crate) key: Vec<u8>,
    /// The place of its index in [`Bound::indexes`].
    pub(crate) index: usize,
    pub(crate) token: Vec<u8>,
}

impl Candidate {
    pub(crate) fn entry(&self) -> Entry<'_> {
        Entry {
            token: &self.token,
            at: self.at,
            key: &self.key,
        }
    }
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

/// An entry that is of no use, with the dataset as it was when the entry was read.
pub(crate) struct Useless {
    pub(crate) bound: Arc<Bound>,
    pub(crate) candidate: Candidate,
    pub(crate) verdict: Verdict,
}

/// The entries of no use that a process has found and not removed yet.
pub(crate) type Found = Mutex<Vec<Useless>>;
