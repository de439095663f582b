//! Splitting the buckets of indexes that have grown.

use std::sync::Arc;

use esker_coding::Seq;

use crate::bound::Bound;
use crate::catalog::STATE;
use crate::cells::{Read, Swapped};
use crate::counts::Counted;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::rows::entry;
use crate::shared::Shared;
use crate::time::{CLOCK_BOUND, DEADLINE, LEAD, stamp};
use crate::unique::unique;

const ROW: &[u8] = &[0];

/// Counts entries that were written, and splits buckets that have become large. An error does no
/// harm: the next count tries again.
pub(crate) fn count(shared: &Shared, bound: &Bound, written: &[(Arc<str>, Vec<u8>)]) {
    for (table, row) in written {
        let index = bound.indexes.iter().find(|index| index.table == *table);
        let (Some(index), Ok(entry)) = (index, entry(row)) else {
            continue;
        };
        let bucket = index.layout.bucket(entry.token, entry.at).at;
        let id = (table.clone(), bucket);
        let split_at = shared.options.split_at;
        if let Some(counted) = shared.counts.add(id.clone(), entry.token, split_at) {
            let _ = grown(shared, bound, index.place, &id.1, entry.at, counted);
        }
    }
}

/// Adds to the shared count of a bucket, and splits it if it is large.
fn grown(
    shared: &Shared,
    bound: &Bound,
    place: usize,
    bucket: &[u8],
    now: Seq,
    counted: Counted,
) -> Result<()> {
    let Some(attribute) = bound.stored.attributes.get(place) else {
        return Ok(());
    };
    let Some(index) = bound.index_at(place) else {
        return Ok(());
    };
    let shards = u64::from(index.layout.bucket(bucket, now).shards);
    let place = partition(&index.table, bucket);
    let total = add(shared, &place, counted.entries)?;
    if total < shared.options.split_at * shards || index.layout.is_splitting(bucket, now) {
        return Ok(());
    }
    let is_split = shared.catalogs.change(|catalog| {
        // The entry may be older than the lead: its writer may have been slow.
        let from = now.max(stamp(shared.cells.now()? + LEAD));
        let state = catalog.dataset_mut(&bound.name)?;
        let index = state.indexes.get_mut(&attribute.id);
        let Some(index) = index.filter(|index| !index.layout.is_splitting(bucket, now)) else {
            return Ok(false);
        };
        Ok(index.layout.split(bucket, counted.tokens.clone(), from))
    })?;
    if is_split {
        reset(shared, &place)?;
    }
    Ok(())
}

/// The partition of the count of a bucket of an index.
fn partition(table: &str, bucket: &[u8]) -> Vec<u8> {
    [b"count ", table.as_bytes(), &[0], bucket].concat()
}

/// The partitions of all counts of an index.
pub(crate) fn partitions(table: &str, layout: &Layout) -> Vec<Vec<u8>> {
    let buckets = layout.buckets(&[], None);
    let all = buckets.iter().map(|bucket| partition(table, &bucket.at));
    all.collect()
}

fn stored(shared: &Shared, place: &[u8]) -> Result<(Option<Vec<u8>>, u64)> {
    let rows = shared.cells.swapped(&STATE.into(), place)?;
    let value = rows.into_iter().next().map(|cell| cell.value);
    let count = value.as_deref().and_then(|value| {
        std::str::from_utf8(value)
            .ok()?
            .split(' ')
            .next()?
            .parse()
            .ok()
    });
    Ok((value, count.unwrap_or(0)))
}

/// Values of a row that is set by compare-and-set are never the same twice.
fn value(count: u64) -> Vec<u8> {
    format!("{count} {}", unique()).into_bytes()
}

fn add(shared: &Shared, place: &[u8], entries: u64) -> Result<u64> {
    for _ in 0..20 {
        let (before, count) = stored(shared, place)?;
        let total = count + entries;
        let to = value(total);
        let (table, cells) = (STATE.into(), &shared.cells);
        let done = cells.swap(&table, place, ROW, before.as_deref(), Some(&to))?;
        if done == Swapped::Done {
            return Ok(total);
        }
    }
    Err(Error::Busy(
        "many writers count the same bucket".to_string(),
    ))
}

fn reset(shared: &Shared, place: &[u8]) -> Result<()> {
    let (before, _) = stored(shared, place)?;
    let to = value(0);
    let (table, cells) = (STATE.into(), &shared.cells);
    // If another writer has counted meanwhile, the next split comes a little earlier.
    cells.swap(&table, place, ROW, before.as_deref(), Some(&to))?;
    Ok(())
}

/// Finds out what split buckets have, for splits whose writers have all ended, so that reads of
/// other tokens need not ask them.
pub(crate) fn close(shared: &Shared, bound: &Bound) -> Result<()> {
    let now = shared.cells.now()?;
    let before = stamp(now.saturating_sub(DEADLINE + 2 * CLOCK_BOUND));
    for index in &bound.indexes {
        let Some(attribute) = bound.stored.attributes.get(index.place) else {
            continue;
        };
        // A fill adds entries of earlier writes to what was split.
        let state = bound.state.indexes.get(&attribute.id);
        if state.is_none_or(|state| !state.is_ready) {
            continue;
        }
        for (at, parent) in index.layout.open_splits(before) {
            let reads = parent.partitions().map(|partition| Read {
                table: index.table.clone(),
                partition,
                from: Vec::new(),
                to: None,
                most: 1,
                reverse: true,
                rows_only: true,
            });
            let mut last = Vec::new();
            for rows in shared.cells.read(reads.collect()) {
                for cell in rows? {
                    last = last.max(entry(&cell.row)?.token.to_vec());
                }
            }
            shared.catalogs.change(|catalog| {
                let state = catalog.dataset_mut(&bound.name)?;
                let known = state.indexes.get(&attribute.id);
                // It may be another one by now.
                let is_same = known.is_some_and(|known| {
                    known.is_ready && state.index_table(attribute.id, known) == index.table
                });
                if let Some(index) = state.indexes.get_mut(&attribute.id).filter(|_| is_same) {
                    index.layout.close_split(&at, &last);
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}
