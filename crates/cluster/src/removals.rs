//! Removing versions of writers that died between an index entry and its record.
//!
//! Such a version is deleted at its own timestamp, so that its put stays dead if it arrives later.
//! But it may have arrived since a reader looked for it, and hidden an older version, so that a
//! repair has removed that one: the deletion would lose the record. So a reader announces what it
//! is about to delete, looks again, deletes, and withdraws the announcement. And a repair that
//! removes what a version hides reads the announcements after it has read the version, leaves
//! announced keys alone, and then looks whether the version is still there. Either it finds the
//! announcement, or the reader's second look finds the version, or the repair's second look misses
//! it.
//!
//! A reader that dies leaves an announcement. A repair finishes it when it is so old that the
//! reader does not run any more.

use std::collections::HashSet;

use esker_coding::Seq;
use serde::{Deserialize, Serialize};

use crate::bound::Bound;
use crate::catalog::{DatasetState, STATE};
use crate::cells::{Cell, Read, Swapped, Write};
use crate::error::{Error, Result};
use crate::rows::Version;
use crate::shared::Shared;
use crate::unique::unique;

/// A reader deletes within this time of its announcement, in milliseconds.
const DEADLINE: u64 = 60_000;
/// An announcement of this age is of a reader that does not run any more, in milliseconds.
const OLD: u64 = 3_600_000;

/// An announcement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    /// A number that makes each value of the row another.
    turn: u64,
    /// When it was made, by the cluster's clock.
    since: u64,
    /// Keys, and timestamps.
    versions: Vec<(Vec<u8>, Seq)>,
}

/// A version: its key, and its timestamp.
pub(crate) type Place = (Vec<u8>, Seq);

/// The partition of the announcements of a dataset.
pub(crate) fn partition(state: &DatasetState) -> Vec<u8> {
    format!("removals {}", state.data()).into_bytes()
}

fn rows(shared: &Shared, bound: &Bound) -> Result<Vec<(Cell, Announcement)>> {
    let rows = shared
        .cells
        .swapped(&STATE.into(), &partition(&bound.state))?;
    let announcement = |value: &[u8]| {
        serde_json::from_slice(value)
            .map_err(|error| Error::Damaged(format!("an announcement cannot be read: {error}")))
    };
    rows.into_iter()
        .map(|cell| {
            let read = announcement(&cell.value)?;
            Ok((cell, read))
        })
        .collect()
}

/// The keys of which versions may be deleted now: nothing that they hide may be removed.
pub(crate) fn announced(shared: &Shared, bound: &Bound) -> Result<HashSet<Vec<u8>>> {
    let rows = rows(shared, bound)?;
    let versions = rows.into_iter().flat_map(|(_, found)| found.versions);
    Ok(versions.map(|(key, _)| key).collect())
}

/// Deletes versions for good that were not there; returns those that are deleted. `now` is the
/// cluster's time.
pub(crate) fn forget(
    shared: &Shared,
    bound: &Bound,
    versions: Vec<Place>,
    now: u64,
) -> Result<HashSet<Place>> {
    let row = unique().to_be_bytes();
    finish(shared, bound, &row, None, versions, now)
}

/// Finishes what readers that do not run any more have announced.
pub(crate) fn finish_old(shared: &Shared, bound: &Bound) -> Result<()> {
    let now = shared.cells.now()?;
    for (cell, found) in rows(shared, bound)? {
        if found.since + OLD < now {
            let before = Some(&cell.value[..]);
            finish(shared, bound, &cell.row, before, found.versions, now)?;
        }
    }
    Ok(())
}

/// Announces in a row, deletes, and withdraws.
fn finish(
    shared: &Shared,
    bound: &Bound,
    row: &[u8],
    before: Option<&[u8]>,
    versions: Vec<Place>,
    since: u64,
) -> Result<HashSet<Place>> {
    let begun = shared.clocks().steady();
    let announcement = Announcement {
        turn: unique(),
        since,
        versions,
    };
    // A struct of numbers and bytes always serialises.
    let value = serde_json::to_vec(&announcement).unwrap_or_default();
    let (table, partition) = (STATE.into(), partition(&bound.state));
    let cells = &shared.cells;
    if cells.swap(&table, &partition, row, before, Some(&value))? != Swapped::Done {
        // Another process has taken it over.
        return Ok(HashSet::new());
    }
    let gone = absent(shared, bound, announcement.versions)?;
    let deletions = |(key, at): &Place| bound.forget(key, Version::record(*at));
    let deletions: Vec<Write> = gone.iter().map(deletions).collect();
    if shared.clocks().steady().saturating_sub(begun) >= DEADLINE {
        let what = "the removal of index entries took too long".to_string();
        return Err(Error::Unavailable(what));
    }
    cells.write(deletions).into_iter().collect::<Result<()>>()?;
    // Without an answer a repair withdraws it.
    let _ = cells.swap(&table, &partition, row, Some(&value), None);
    Ok(gone)
}

/// Those versions that are not there.
fn absent(shared: &Shared, bound: &Bound, versions: Vec<Place>) -> Result<HashSet<Place>> {
    let read = |(key, at): &Place| -> Read { bound.versions_of(key, *at, 1, true) };
    let found = shared.cells.read(versions.iter().map(read).collect());
    let mut gone = HashSet::new();
    for ((key, at), cells) in versions.into_iter().zip(found) {
        let newest = cells?.pop();
        let newest = newest.map(|cell| Version::of(&cell.row)).transpose()?;
        if newest != Some(Version::record(at)) {
            gone.insert((key, at));
        }
    }
    Ok(gone)
}
