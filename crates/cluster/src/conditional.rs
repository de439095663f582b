//! Writes on a condition: inserts, updates, expectations.
//!
//! Each key that was ever written on a condition has a *head*, a row that is changed by
//! compare-and-set alone: the timestamp and the value of its last conditional write. A conditional
//! write reads the head and the newest version, checks what it expects, writes its index entries,
//! sets the head, and writes the version. Of several that began with the same head one succeeds. A
//! writer that meets a head without its version writes that version first, so that a writer that
//! dies between the two does not block the key. So a writer whose answer was lost, and whose head
//! others have replaced since, finds its version if its write has happened.
//!
//! Plain puts and deletions do not look at the head. Conditional writes of a key are in one order
//! with each other; a plain write that runs at the same time takes its place by its timestamp, and
//! the condition was checked without it.

use std::sync::Arc;

use esker_coding::Seq;
use esker_model::Key;
use esker_model::record::RecordRef;

use crate::bound::Bound;
use crate::cells::{Swapped, Write};
use crate::error::{Error, Result};
use crate::rows::{Entry, Version};
use crate::shared::Shared;
use crate::time::{GRACE, millis};
use crate::view::{Newest, View};
use crate::write::{Change, Operation};

/// The row of the head in its partition.
const ROW: &[u8] = &[0];
/// How often a write is tried while others change the head.
const TRIES: usize = 100;

/// The head of a key.
struct Head {
    at: Seq,
    /// The stored form of the record; `None` for a deletion.
    record: Option<Vec<u8>>,
}

impl Head {
    fn encode(at: Seq, record: Option<&[u8]>) -> Vec<u8> {
        let version = match record {
            Some(_) => Version::record(at),
            None => Version::deletion(at),
        };
        [version.row().as_slice(), record.unwrap_or_default()].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Head> {
        let (row, record) = bytes
            .split_at_checked(9)
            .ok_or_else(|| Error::Damaged("the head of a key is malformed".to_string()))?;
        let version = Version::of(row)?;
        Ok(Head {
            at: version.at,
            record: (!version.is_deletion).then(|| record.to_vec()),
        })
    }
}

/// Decides what to write for the present record: its timestamp and stored form. `None` writes
/// nothing.
pub(crate) type Decide<'d> =
    dyn FnMut(Option<(Seq, &[u8])>, &Arc<Bound>) -> Result<Option<Change>> + 'd;

/// Writes what `decide` makes of the present record; reads and decides again if another conditional
/// write was first.
pub(crate) fn write(
    shared: &Arc<Shared>,
    name: &str,
    key: &[u8],
    decide: &mut Decide<'_>,
) -> Result<()> {
    for _ in 0..TRIES {
        if attempt(shared, name, key, decide)? {
            return Ok(());
        }
    }
    let bound = shared.bound(name)?;
    let key = Key::from_encoded(bound.key_type(), key.to_vec());
    Err(Error::Conflict {
        what: format!("other writers keep changing the record of key {key}"),
        key: Some(Box::new(key)),
    })
}

fn attempt(shared: &Arc<Shared>, name: &str, key: &[u8], decide: &mut Decide<'_>) -> Result<bool> {
    let bound = shared.bound(name)?;
    let operation = Operation::begin(shared, &bound)?;
    let heads = shared.cells.swapped(&bound.heads, key)?;
    let stored_head = heads.into_iter().next().map(|cell| cell.value);
    let head = stored_head.as_deref().map(Head::decode).transpose()?;
    let mut newest = newest(shared, &bound, key)?;
    let known = newest.as_ref().map_or(0, |newest| newest.at);
    // Of an old head there is no version because its put was made to stay dead, or because it was
    // removed since, and all that came after it, too.
    let now = shared.checked_wall()?;
    let is_recent = |head: &&Head| millis(head.at) + GRACE > now;
    let unfinished = head.as_ref().filter(|head| head.at > known);
    if let Some(head) = unfinished.filter(is_recent) {
        // An index that was added since has been filled without it: entries go to all of them.
        operation.write(entries_of(&bound, key, head))?;
        let version = bound.version(key, head.at, head.record.as_deref());
        operation.write(vec![version])?;
        // It stays hidden if a repair has removed it for good: then it did not happen.
        newest = self::newest(shared, &bound, key)?;
    }
    let record = |newest: &'_ Newest| Some((newest.at, newest.record.clone()?));
    let present = newest.as_ref().and_then(record);
    let present = present.as_ref().map(|(at, record)| (*at, &record[..]));
    let Some(change) = decide(present, &bound)? else {
        return Ok(true);
    };
    let last = newest.as_ref().map_or(0, |newest| newest.at);
    let at = operation.stamp(last.max(head.map_or(0, |head| head.at)))?;
    let entries: Vec<_> = change.entries(at).collect();
    operation.write(entries.clone())?;
    operation.check()?;
    let to = Head::encode(at, change.record.as_deref());
    let swapped = shared
        .cells
        .swap(&bound.heads, key, ROW, stored_head.as_deref(), Some(&to))?;
    if swapped != Swapped::Done {
        // Without an answer, another writer may have followed since: it has written this version
        // before it has read it.
        let read = shared.cells.read(vec![bound.versions_of(key, at, 1, true)]);
        let found = read.into_iter().next().transpose()?.unwrap_or_default();
        let found = found
            .first()
            .map(|cell| Version::of(&cell.row))
            .transpose()?;
        if found.is_none_or(|version| version.at != at) {
            return Ok(false);
        }
    }
    operation.write_versions(vec![(change.version(at), entries)])?;
    operation.check()?;
    Ok(true)
}

/// The index entries of what a head says, of all indexes.
fn entries_of(bound: &Bound, key: &[u8], head: &Head) -> Vec<Write> {
    let record = head.record.as_deref().and_then(RecordRef::parse);
    let tokens = record
        .map(|record| bound.tokens(&record))
        .unwrap_or_default();
    let entries = tokens.iter().filter_map(|(index, token)| {
        let entry = Entry {
            token,
            at: head.at,
            key,
        };
        bound.entry(*index, entry, true)
    });
    entries.collect()
}

fn newest(shared: &Shared, bound: &Bound, key: &[u8]) -> Result<Option<Newest>> {
    let mut found = View::LATEST.newest(shared, bound, &[key]);
    Ok(found.pop().transpose()?.flatten())
}

/// The timestamp of the record of a key.
pub(crate) fn present(shared: &Shared, name: &str, key: &[u8]) -> Result<Option<Seq>> {
    let newest = newest(shared, &*shared.bound(name)?, key)?;
    Ok(newest.and_then(|Newest { at, record }| record.map(|_| at)))
}
