//! The keys that differ between two sides, within the ranges whose sums differ.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use esker::{Error, Key, Result};
use esker_model::definition::Expiry;
use esker_model::record::RecordRef;
use esker_store::{Dataset, Records};

use super::items::{Versions, newer};
use super::sorted::{Sorted, Span};
use super::sums::Sums;
use super::transfer::put_anew;

/// Keys that are mended in one batch.
const BATCH: usize = 256;

/// How a key differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unequal {
    /// The target has no record of the key.
    Missing,
    /// The source has no record of the key.
    Extra,
    /// The records, or their versions, differ.
    Other,
}

/// A range of keys in which two sides differ.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Differing {
    /// Its first key; `None` for all up to `to`.
    pub from: Option<Key>,
    /// The first key behind it; `None` for all from `from` on.
    pub to: Option<Key>,
    /// The records of the source.
    pub at_source: u64,
    /// The records of the target.
    pub at_target: u64,
    /// The first key that differs, and how; `None` if the sides were equal when they were read
    /// again.
    pub first: Option<(Key, Unequal)>,
}

impl fmt::Display for Differing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.from, &self.to) {
            (None, None) => f.write_str("all keys")?,
            (None, Some(to)) => write!(f, "keys before {to}")?,
            (Some(from), None) => write!(f, "keys from {from}")?,
            (Some(from), Some(to)) => write!(f, "keys from {from} to before {to}")?,
        }
        write!(
            f,
            ": {} records at the source, {} at the target",
            self.at_source, self.at_target
        )?;
        match &self.first {
            None => f.write_str("; equal when they were read again"),
            Some((key, Unequal::Missing)) => write!(f, "; key {key} is missing at the target"),
            Some((key, Unequal::Extra)) => write!(f, "; key {key} is at the target alone"),
            Some((key, Unequal::Other)) => write!(f, "; the records of key {key} differ"),
        }
    }
}

/// The ranges that differ, without the keys.
pub(super) fn ranges(source: &Sums, target: &Sums, records: &dyn Records) -> Vec<Differing> {
    let key_type = records.def().key_type;
    let bounds = &source.bounds;
    let key = |at: Option<usize>| {
        let bound = bounds.get(at?)?;
        Some(Key::from_encoded(key_type, bound.clone()))
    };
    let count = |sums: &Sums, at: usize| sums.sums.get(at).map_or(0, |sum| sum.records);
    let differing = source.differing(target).into_iter().map(|at| Differing {
        from: key(at.checked_sub(1)),
        to: key(Some(at)),
        at_source: count(source, at),
        at_target: count(target, at),
        first: None,
    });
    differing.collect()
}

/// Neighbouring ranges as one: a store without an order is read for each.
pub(super) fn spans(differing: &[Differing]) -> Vec<Span> {
    let bytes = |key: &Option<Key>| key.as_ref().map(|key| key.as_bytes().to_vec());
    let mut spans: Vec<Span> = Vec::new();
    for range in differing {
        let (from, to) = (bytes(&range.from).unwrap_or_default(), bytes(&range.to));
        match spans.last_mut() {
            Some(last) if last.1.as_ref() == Some(&from) => last.1 = to,
            _ => spans.push((from, to)),
        }
    }
    spans
}

/// Passes each key that differs, ascending, until `each` fails.
pub(super) fn keys(
    (mut source, mut target): (Sorted<'_>, Sorted<'_>),
    each: &mut dyn FnMut(Vec<u8>, Unequal) -> Result<()>,
) -> Result<()> {
    let (mut a, mut b) = (source.next()?, target.next()?);
    loop {
        match (a.take(), b.take()) {
            (None, None) => return Ok(()),
            (Some((key, _)), None) => {
                each(key, Unequal::Missing)?;
                a = source.next()?;
            }
            (None, Some((key, _))) => {
                each(key, Unequal::Extra)?;
                b = target.next()?;
            }
            (Some(of_a), Some(of_b)) if of_a.0 < of_b.0 => {
                each(of_a.0, Unequal::Missing)?;
                (a, b) = (source.next()?, Some(of_b));
            }
            (Some(of_a), Some(of_b)) if of_a.0 > of_b.0 => {
                each(of_b.0, Unequal::Extra)?;
                (a, b) = (Some(of_a), target.next()?);
            }
            (Some(of_a), Some(of_b)) => {
                if of_a.1 != of_b.1 {
                    each(of_a.0, Unequal::Other)?;
                }
                (a, b) = (source.next()?, target.next()?);
            }
        }
    }
}

/// Both sides, for a second look at keys that differ.
pub(super) struct Sides<'a> {
    pub(super) source: &'a dyn Records,
    pub(super) target: &'a dyn Dataset,
    pub(super) versions: Versions,
    /// When records expire: those that have expired on one side meanwhile are not differences.
    pub(super) expiry: Expiry,
}

impl Sides<'_> {
    /// True if the record of a key has expired on one side, or may have.
    fn has_expired(&self, key: &Key, how: Unequal) -> Result<bool> {
        if !self.expiry.is_some() {
            return Ok(false);
        }
        let record = match how {
            Unequal::Missing => self.source.get(key)?,
            Unequal::Extra => self.target.get(key)?,
            Unequal::Other => return Ok(false),
        };
        let Some(record) = record else {
            return Ok(true);
        };
        let expiry = RecordRef::expiry_of(record.stored());
        // A time to live began anew at the target: the record of the source has expired before it.
        if how == Unequal::Extra && self.expiry.ttl.is_some() {
            return Ok(expiry.is_some());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        Ok(expiry.is_some_and(|at| at <= now))
    }

    /// Records the first key of each range that differs.
    pub(super) fn note(
        &self,
        (key, how): (Vec<u8>, Unequal),
        differing: &mut [Differing],
    ) -> Result<()> {
        let key = Key::from_encoded(self.source.def().key_type, key);
        let at = differing.partition_point(|range| {
            let from = range.from.as_ref();
            from.is_none_or(|from| from.as_bytes() <= key.as_bytes())
        });
        let range = at.checked_sub(1).and_then(|at| differing.get_mut(at));
        if let Some(range) = range.filter(|range| range.first.is_none())
            && !self.has_expired(&key, how)?
        {
            range.first = Some((key, how));
        }
        Ok(())
    }

    /// Makes keys of the target what they are at the source.
    fn mend(&self, keys: &[(Key, Unequal)]) -> Result<u64> {
        let all: Vec<Key> = keys.iter().map(|(key, _)| key.clone()).collect();
        let items = self.versions.of(self.source, &all)?;
        let known = if self.versions.0 > 1 {
            self.versions.of(self.target.records(), &all)?
        } else {
            Vec::new()
        };
        let mut gone = self.target.batch();
        let (mut changed, mut cut) = (Vec::new(), Vec::new());
        for (at, ((key, how), mut item)) in keys.iter().zip(items).enumerate() {
            if item.is_empty() {
                // Of a missing one there is nothing to delete, if the source has lost it since.
                if *how != Unequal::Missing {
                    gone.delete(key)?;
                }
                continue;
            }
            // A put adds a version: those that the target has stay below it, unless a deletion
            // cuts them off.
            let known = known.get(at).map_or(&[][..], Vec::as_slice);
            match newer(&item, known, self.versions.0) {
                Some(newer) => item.truncate(newer),
                None => cut.push(key.clone()),
            }
            if !item.is_empty() {
                changed.push(item);
            }
        }
        let deleted = gone.len() as u64;
        if deleted > 0 {
            gone.commit()?;
        }
        put_anew(self.target, &changed, &cut)?;
        Ok(deleted + changed.len() as u64)
    }
}

/// Mends keys in batches.
pub(super) struct Mending<'a> {
    pub(super) sides: Sides<'a>,
    pub(super) waiting: Vec<(Key, Unequal)>,
    /// Records that were put or deleted.
    pub(super) mended: u64,
}

impl Mending<'_> {
    pub(super) fn add(&mut self, key: Vec<u8>, how: Unequal) -> Result<()> {
        let key_type = self.sides.source.def().key_type;
        self.waiting.push((Key::from_encoded(key_type, key), how));
        if self.waiting.len() < BATCH {
            return Ok(());
        }
        self.finish()
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.mended += self.sides.mend(&std::mem::take(&mut self.waiting))?;
        Ok(())
    }
}

/// The error of a comparison that was stopped.
pub(super) fn stopped() -> Error {
    Error::Busy("the comparison was stopped".to_string())
}
