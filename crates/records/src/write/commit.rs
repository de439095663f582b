//! The commit of a batch. A batch has a part for each dataset that it writes to; the commit joins
//! the parts to one batch of the engine, which is written atomically.
//!
//! The state that a batch depends on is looked up before the append. Under the writer lock the
//! commit checks that this state is still current; if not, it repeats the lookup.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Batch, Durability, Group, Seq, Snapshot, Ticket, TreeId};

use super::batch::DatasetWrites;
use super::pre_images::{Conflict, Replaced};
use super::unique::Claims;
use crate::error::{Error, ErrorKind, Result};
use crate::index::Completion;
use crate::maintenance::{self, AtCommit};
use crate::store::{Store, append_completed};

/// Writes the parts atomically, and empties them. They belong to different datasets of one store.
/// Returns the number of the first write, if there is one.
///
/// # Errors
/// The parts then still have their writes, and none of these is visible. After a failed sync the
/// writes may be in the log all the same, and appear when the store is reopened.
pub(crate) fn commit(parts: &mut [DatasetWrites], durability: Durability) -> Result<Option<Seq>> {
    let Some(store) = parts.first().map(|part| part.dataset.store.clone()) else {
        return Ok(None);
    };
    debug_assert!(
        parts
            .iter()
            .all(|part| Arc::ptr_eq(&part.dataset.store, &store)),
        "the parts belong to one store"
    );
    debug_assert!(
        are_of_different_datasets(parts),
        "a dataset has one part, so that a key has one part"
    );
    if parts.iter().all(DatasetWrites::is_empty) {
        check_expected(parts, &store.group.snapshot())?;
        return Ok(None);
    }
    parts
        .iter_mut()
        .try_for_each(DatasetWrites::keep_last_versions)?;
    loop {
        parts.iter_mut().for_each(DatasetWrites::save);
        let appended = append(parts, &store, durability);
        let result = appended.and_then(|ticket| {
            // The batch is in the log now, even if its acknowledgement fails.
            store.group.acknowledge(ticket)?;
            Ok(ticket.first())
        });
        let refused = match result {
            Ok(first) => {
                for part in parts {
                    part.committed(&store);
                }
                return Ok(Some(first));
            }
            Err(refused) => refused,
        };
        parts.iter_mut().for_each(DatasetWrites::restore);
        match refused {
            // A sweep looks up the expired records again instead.
            Refused::Stale if parts.iter().all(|part| !part.is_sweep) => {}
            Refused::Stale => return Err(Error::overtaken("the dataset has changed")),
            Refused::Error(error) => {
                // The write that the batch conflicts with may still wait for its sync. After this
                // wait readers see it, so the caller's next read confirms the conflict. If its sync
                // fails, that is the error.
                let conflicts = [ErrorKind::Conflict, ErrorKind::Exists, ErrorKind::NotUnique];
                if conflicts.contains(&error.kind()) {
                    store.group.wait_for_appended()?;
                }
                return Err(error);
            }
        }
        parts.iter_mut().try_for_each(DatasetWrites::renew)?;
        // The new strategy may need the last versions only.
        parts
            .iter_mut()
            .try_for_each(DatasetWrites::keep_last_versions)?;
    }
}

/// True if no two parts belong to the same dataset.
fn are_of_different_datasets(parts: &[DatasetWrites]) -> bool {
    let trees: BTreeSet<TreeId> = parts.iter().map(|part| part.dataset.state.data).collect();
    trees.len() == parts.len()
}

/// For a batch without writes: checks all expectations against one snapshot.
fn check_expected(parts: &mut [DatasetWrites], snapshot: &Snapshot) -> Result<()> {
    for part in parts.iter().filter(|part| !part.expected.is_empty()) {
        let layout = part.dataset.state.layout_in(snapshot.version());
        if !snapshot.version().trees.contains_key(&layout.data) {
            return Err(Error::unknown_dataset(part.dataset.name()));
        }
        let replaced = Replaced::look_up(&layout, snapshot, &[], &part.expected)?;
        if let Some(record) = replaced.unexpected(&part.expected)? {
            return Err(part.unexpected_error(record));
        }
    }
    parts.iter_mut().for_each(DatasetWrites::clear);
    Ok(())
}

/// Looked-up state that a part depends on.
#[derive(Default)]
struct LookedUp {
    replaced: Option<Replaced>,
    /// The state of the indexes that the changes left to the commit depend on.
    deferred: Vec<Box<dyn Completion>>,
    /// Values that no other record may have.
    claims: Option<Claims>,
}

impl LookedUp {
    /// Looks up what the part depends on, and adds the cancellations of eager maintenance to it.
    fn look_up(part: &mut DatasetWrites, latest: &Snapshot) -> Result<LookedUp> {
        let mut looked_up = LookedUp {
            claims: Claims::look_up(part, latest)?,
            ..LookedUp::default()
        };
        if part.depends_on_records() {
            let layout = part.layout.clone();
            let replaced = Replaced::look_up(&layout, latest, &part.touched, &part.expected)?;
            let maintenance = layout.stored.settings.maintenance;
            if maintenance::strategy_of(maintenance).at_commit() == AtCommit::CancelsEntries {
                replaced.cancel(&layout, latest, &mut part.writes)?;
            }
            looked_up.replaced = Some(replaced);
        }
        looked_up.deferred = part.writes.prepare(latest)?;
        Ok(looked_up)
    }
}

/// Why a batch was not appended.
enum Refused {
    /// The trees have changed: the batch must be encoded again.
    Stale,
    Error(Error),
}

impl From<esker_lsm::Error> for Refused {
    fn from(error: esker_lsm::Error) -> Refused {
        match error {
            esker_lsm::Error::Stale => Refused::Stale,
            error => Refused::Error(error.into()),
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

/// Attempts before a batch commits alone. While it does, no other batch that depends on the current
/// state is committed.
const SHARED_ATTEMPTS: usize = 8;

/// Attempts before a batch is given up. When it commits alone, only a flush or a compaction of a
/// tree with deferred changes can still interfere.
const MAX_ATTEMPTS: usize = 1000;

/// Appends the batch to the log. If another writer changes the state that the batch depends on
/// between its lookup and the append, both are repeated.
fn append(
    parts: &mut [DatasetWrites],
    store: &Store,
    durability: Durability,
) -> std::result::Result<Ticket, Refused> {
    // The engine refuses the batch if trees have changed since.
    let tree_changes = parts.iter().map(|part| part.layout.valid_change()).min();
    let tree_changes = tree_changes.ok_or_else(|| Error::from(Misplaced::here()))?;
    parts.iter_mut().try_for_each(DatasetWrites::add_notes)?;
    if parts.iter().all(DatasetWrites::is_blind) {
        let mut joined;
        let batch = match parts {
            // Not moved out, which would allocate for every put.
            [part] => &mut part.writes.batch,
            parts => {
                joined = join(parts)?;
                &mut joined
            }
        };
        batch.made_for(tree_changes);
        return Ok(store.group.append(batch, durability)?);
    }
    for attempt in 0..MAX_ATTEMPTS {
        // Others can overtake a large batch again and again while it looks up its keys.
        let _with_others = (attempt < SHARED_ATTEMPTS).then(|| store.exclusive_commit.read());
        let _alone = (attempt >= SHARED_ATTEMPTS).then(|| store.exclusive_commit.write());
        if let Some(ticket) = try_append(parts, &store.group, tree_changes, durability)? {
            return Ok(ticket);
        }
        // `restore` removed the notes, too.
        parts.iter_mut().for_each(DatasetWrites::restore);
        parts.iter_mut().try_for_each(DatasetWrites::add_notes)?;
    }
    Err(Error::overtaken(format!(
        "other writers changed the same records {MAX_ATTEMPTS} times in a row: try again"
    ))
    .into())
}

/// One attempt: looks up the state that the batch depends on, and appends the batch if that state
/// is still current. `None` if another writer changed it. `tree_changes` is the count of tree
/// changes that the batch was encoded for.
fn try_append(
    parts: &mut [DatasetWrites],
    group: &Group,
    tree_changes: u64,
    durability: Durability,
) -> std::result::Result<Option<Ticket>, Refused> {
    let latest = group.latest();
    let mut looked_up = Vec::with_capacity(parts.len());
    for part in &mut *parts {
        // Another definition may allow values that this one refuses.
        if part.layout.has_unique() && !part.is_of(&latest) {
            return Err(Refused::Stale);
        }
        looked_up.push(LookedUp::look_up(part, &latest)?);
    }
    let mut batch = join(parts)?;
    batch.made_for(tree_changes);
    let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
        complete_parts(parts, &looked_up, batch, first, before)
    };
    let appended = append_completed(group, &mut batch, durability, complete);
    give_back(parts, batch);
    match appended? {
        Ok((ticket, ())) => {
            for (part, looked_up) in parts.iter_mut().zip(&looked_up) {
                part.note_replaced(looked_up.replaced.as_ref());
            }
            Ok(Some(ticket))
        }
        Err(PartConflict { at, conflict }) => match conflict {
            Conflict::Changed => Ok(None),
            Conflict::Exists(key) => Err(parts.own(at).exists_error(&key).into()),
            Conflict::Unexpected(record) => Err(parts.own(at).unexpected_error(record).into()),
            Conflict::Failed(error) => Err(error.into()),
        },
    }
}

/// A conflict of one part of a batch.
struct PartConflict {
    /// The index of the part.
    at: usize,
    conflict: Conflict,
}

/// Completes the joined batch under the writer lock, part by part: checks that the looked-up state
/// is current and meets the conditions of the part, and adds the writes that depend on it. `first`
/// is the batch's first sequence number; `snapshot` has everything before it.
fn complete_parts(
    parts: &[DatasetWrites],
    looked_up: &[LookedUp],
    batch: &mut Batch,
    first: Seq,
    snapshot: &Snapshot,
) -> std::result::Result<(), PartConflict> {
    debug_assert_eq!(parts.len(), looked_up.len());
    // Sequence numbers of the parts before this one.
    let mut offset = 0;
    // A batch of conditions alone is not appended, and any write takes a number.
    debug_assert!(batch.sequences() > 0, "a batch without writes");
    let last = first + Seq::from(batch.sequences()) - 1;
    for (at, (part, looked_up)) in parts.iter().zip(looked_up).enumerate() {
        let of_part = |conflict| PartConflict { at, conflict };
        if let Some(replaced) = &looked_up.replaced {
            let (layout, touched) = (&part.layout, &part.touched);
            let expected = &part.expected;
            let completed = replaced.complete(layout, touched, expected, batch, snapshot);
            completed.map_err(of_part)?;
        }
        if let Some(claims) = &looked_up.claims {
            claims.check_current(snapshot).map_err(of_part)?;
        }
        let seqs = first + Seq::from(offset)..=last;
        part.writes
            .complete(&looked_up.deferred, batch, &seqs, snapshot)
            .map_err(|error| of_part(error.into()))?;
        offset += part.sequences;
    }
    Ok(())
}

/// Joins the batches of all parts, in order. The batch of a single part is moved out, and must be
/// given back.
fn join(parts: &mut [DatasetWrites]) -> Result<Batch> {
    if let [part] = parts {
        part.sequences = part.writes.batch.sequences();
        return Ok(std::mem::take(&mut part.writes.batch));
    }
    let mut joined = Batch::new();
    for part in &mut *parts {
        part.sequences = part.writes.batch.sequences();
        joined.append(&part.writes.batch)?;
    }
    debug_assert_eq!(
        joined.sequences(),
        parts.iter().map(|part| part.sequences).sum::<u32>()
    );
    Ok(joined)
}

/// Returns the batch that [`join`] moved out of a single part.
fn give_back(parts: &mut [DatasetWrites], batch: Batch) {
    if let [part] = parts {
        part.writes.batch = batch;
    }
}
