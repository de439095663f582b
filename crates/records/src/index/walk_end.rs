//! How a walk over index entries ends before its last entry: its visitor fails, or breaks it off.

use esker_lsm::Seq;

use crate::error::Error;

/// The end of a walk that its visitor may break off.
pub(crate) enum WalkEnd {
    /// The visitor needs no further entries.
    Broken,
    /// A read failed, or the visitor.
    Failed(Error),
}

impl From<Error> for WalkEnd {
    fn from(error: Error) -> WalkEnd {
        WalkEnd::Failed(error)
    }
}

impl From<esker_lsm::Error> for WalkEnd {
    fn from(error: esker_lsm::Error) -> WalkEnd {
        WalkEnd::Failed(error.into())
    }
}

/// The errors of visitors: [`Error`], or [`WalkEnd`] of a visitor that may break the walk off.
pub(crate) trait VisitError: From<Error> + From<esker_lsm::Error> {}

impl<E: From<Error> + From<esker_lsm::Error>> VisitError for E {}

/// Receives value, key and sequence number of an index entry.
pub(crate) type VisitEntryOr<'v, E> = dyn FnMut(&[u8], &[u8], Seq) -> Result<(), E> + 'v;
