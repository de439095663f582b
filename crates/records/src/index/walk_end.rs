//! How a walk over index entries ends before its last entry: its visitor fails, or breaks it off.

use esker_lsm::Seq;

use super::kind::VisitEntry;
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

/// Receives value, key and sequence number of an index entry. As [`VisitEntry`], for other errors.
pub(crate) type VisitEntryOr<'v, E> = dyn FnMut(&[u8], &[u8], Seq) -> Result<(), E> + 'v;

/// The errors of visitors: [`Error`], or [`WalkEnd`] of a visitor that may break the walk off.
pub(crate) trait VisitError: From<Error> + From<esker_lsm::Error> {
    /// Runs `read`, which passes index entries to a visitor that fails with [`Error`] only, so that
    /// `visit` receives them, until it fails.
    fn adapt(
        read: impl FnOnce(&mut VisitEntry<'_>) -> Result<(), Error>,
        visit: &mut VisitEntryOr<'_, Self>,
    ) -> Result<(), Self>;
}

impl VisitError for Error {
    #[inline]
    fn adapt(
        read: impl FnOnce(&mut VisitEntry<'_>) -> Result<(), Error>,
        visit: &mut VisitEntryOr<'_, Error>,
    ) -> Result<(), Error> {
        read(visit)
    }
}

impl VisitError for WalkEnd {
    fn adapt(
        read: impl FnOnce(&mut VisitEntry<'_>) -> Result<(), Error>,
        visit: &mut VisitEntryOr<'_, WalkEnd>,
    ) -> Result<(), WalkEnd> {
        let mut end = None;
        let outcome = read(&mut |value, key, seq| {
            if end.is_none() {
                end = visit(value, key, seq).err();
            }
            Ok(())
        });
        match end {
            Some(end) => Err(end),
            None => Ok(outcome?),
        }
    }
}
