//! The append of a batch that is completed under the writer lock, by a function with its own result
//! and its own error.

use esker_lsm::coding::Misplaced;
use esker_lsm::{Batch, Durability, Group, Seq, Snapshot, Ticket};

/// As [`Group::append_with`], with the result of `complete`. If `complete` returns an error,
/// nothing is appended, and this error is the inner result.
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::{Database, DatasetDef, Key, KeyType, Options};

    fn database() -> Database {
        let fs = Arc::new(esker_sim::memory::Memory::new());
        let options = Options::new().fs(fs).background(false);
        Database::create_or_open(Path::new("/store"), options).unwrap()
    }

    #[test]
    fn the_result_and_the_error_of_a_completion_pass_the_engine() {
        let db = database();
        let group = &db.store.group;
        let def = DatasetDef::new("id", KeyType::Int);
        let dataset = db.create_dataset::<Key>("d", def).unwrap();
        let tree = dataset.handle.layout().data;
        let append = |refused: Option<&'static str>| {
            let mut batch = Batch::new();
            let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
                assert_eq!(before.seq() + 1, first);
                batch.put(tree, b"key", b"value").unwrap();
                refused.map_or(Ok(first), Err)
            };
            append_completed(group, &mut batch, Durability::Os, complete).unwrap()
        };
        let before = group.latest().seq();
        assert_eq!(append(Some("no")).err(), Some("no"));
        assert_eq!(group.latest().seq(), before, "nothing is appended");
        let (ticket, first) = append(None).unwrap();
        assert_eq!((ticket.last(), first), (before + 1, before + 1));
        group.acknowledge(ticket).unwrap();
    }

    #[test]
    fn an_error_of_the_engine_is_not_one_of_the_completion() {
        let db = database();
        let complete = |batch: &mut Batch, _: Seq, _: &Snapshot| {
            batch.put(u32::MAX, b"key", b"value").unwrap();
            Ok::<_, ()>(())
        };
        let mut batch = Batch::new();
        let appended = append_completed(&db.store.group, &mut batch, Durability::Os, complete);
        assert!(matches!(appended, Err(esker_lsm::Error::Invalid(_))));
    }
}
