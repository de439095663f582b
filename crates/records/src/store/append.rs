//! The append of a batch that is completed under the writer lock, by a function with its own result
//! and its own error.

use esker_lsm::coding::Misplaced;
use esker_lsm::{Batch, Durability, Group, Seq, Snapshot, Ticket};

/// As [`Group::append_with`], with the result of `complete`. If `complete` returns an error, nothing
/// is appended, and this error is the inner result.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn append_completed<T, E>(
    group: &Group,
    batch: &mut Batch,
    durability: Durability,
    mut complete: impl FnMut(&mut Batch, Seq, &Snapshot) -> Result<T, E>,
) -> esker_lsm::Result<Result<(Ticket, T), E>> {
    // The engine passes on no result, and no error but its own: `outcome` has both.
    let mut outcome = None;
    let mut run = |batch: &mut Batch, first: Seq, before: &Snapshot| {
        let completed = complete(batch, first, before);
        let is_refused = completed.is_err();
        outcome = Some(completed);
        if is_refused {
            // Only ends the append: the caller gets the error of `complete` instead.
            return Err(esker_lsm::Error::Conflict("refused".to_string()));
        }
        Ok(())
    };
    let ticket = group.append_with(batch, durability, &mut run);
    match (outcome, ticket) {
        (Some(Err(refusal)), Err(_)) => Ok(Err(refusal)),
        (Some(Ok(completed)), Ok(ticket)) => Ok(Ok((ticket, completed))),
        (None | Some(Ok(_)), Err(error)) => Err(error),
        // The engine appends no batch without completing it, and none whose completion failed.
        (None | Some(Err(_)), Ok(_)) => Err(Misplaced::here().into()),
    }
}
