//! Offline repair: finds obsolete versions by a scan of the records, and removes their index
//! entries, then the versions themselves (DELI's staged repair, algorithm 3).
//!
//! The records are scanned part by part. Workers take parts by leases, so that several can run, and
//! a part that was repaired longest ago comes first, so that a run after an interrupted one goes on
//! where that has stopped. Each part has a mark, a timestamp: all versions that were made obsolete
//! before it are gone. A version is made obsolete by the write that came as the `m`-th after it, or
//! by a deletion; the mark is compared with the time of that write, not with that of the version,
//! which may have been current at the last repair. A version that was current less than [`VIEW`]
//! ago stays for queries that run, until a later repair. The mark moves when the whole part is
//! done, and stays behind what nodes that were down may still receive.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use esker_coding::Seq;
use esker_model::record::RecordRef;
use serde::{Deserialize, Serialize};

use crate::bound::Bound;
use crate::catalog::{DatasetState, STATE};
use crate::cells::{Cell, Mark, Swapped, Write};
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::pages::Pages;
use crate::rows::{Entry, Version};
use crate::shared::Shared;
use crate::time::{CLOCK_BOUND, DEADLINE, DELETIONS, HINTS, VIEW, stamp};
use crate::unique::unique;
use crate::{check, removals, split};

/// Rows of a page.
const PAGE: usize = 2000;
/// Obsolete versions that are collected before their entries are removed, sorted.
const TOGETHER: usize = 4096;
/// The lease of a part, in milliseconds; renewed with each page.
const LEASE: u64 = 60_000;

/// How a repair is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// True to look at all versions, whatever was repaired before, and to compare the indexes with
    /// the records in both directions.
    pub full: bool,
    /// At most this many rows a second; without it, as fast as the cluster answers.
    pub rows_per_second: Option<u64>,
}

/// What a repair has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Parts that are done, of all.
    pub parts: u32,
    /// The number of parts.
    pub of: u32,
    /// Parts that another worker is repairing.
    pub skipped: u32,
    /// Versions that were read.
    pub versions: u64,
    /// Obsolete versions that were removed.
    pub obsolete: u64,
    /// Index entries that were removed, without those of obsolete versions.
    pub entries: u64,
    /// Index entries that were missing, and are there now.
    pub added: u64,
    /// False if it was stopped.
    pub complete: bool,
}

/// The row of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    mark: Seq,
    /// A number that makes each value of the row another.
    turn: u64,
    /// The end of the lease, by the cluster's clock; 0 without one.
    until: u64,
}

struct Part {
    number: u32,
    row: Row,
    stored: Option<Vec<u8>>,
}

/// Observes a repair, and can stop it.
pub type OnRepair<'p> = dyn FnMut(&Repaired) -> ControlFlow<()> + 'p;

impl Dataset {
    /// Removes the index entries of obsolete versions, and these versions.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: what was repaired stays repaired, and no mark moves for the rest.
    pub fn repair(&self, options: RepairOptions, progress: &mut OnRepair<'_>) -> Result<Repaired> {
        self.shared.check_writes()?;
        let bound = self.shared.bound_now(&self.name)?;
        split::close(&self.shared, &bound)?;
        removals::finish_old(&self.shared, &bound)?;
        let mut repair = Repair {
            shared: self.shared.clone(),
            bound,
            options,
            done: Repaired {
                of: self.shared.cells.parts(),
                ..Repaired::default()
            },
            begun: self.shared.clocks().steady(),
            has_left: false,
        };
        let completed = repair.run(progress)?;
        if completed && options.full {
            let (entries, added) = check::mend(self, &mut || progress(&repair.done))?;
            (repair.done.entries, repair.done.added) = (entries, added);
        }
        repair.done.complete = completed && repair.done.skipped == 0;
        Ok(repair.done)
    }

    /// The timestamp before which everything is repaired; 0 before the first repair.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn repaired_to(&self) -> Result<Seq> {
        let bound = self.bound()?;
        let parts = parts(&self.shared, &bound)?;
        Ok(parts.iter().map(|part| part.row.mark).min().unwrap_or(0))
    }
}

/// The partition of the marks of a dataset.
pub(crate) fn partition(state: &DatasetState) -> Vec<u8> {
    format!("repair {}", state.data()).into_bytes()
}

/// All parts, those that were repaired longest ago first.
fn parts(shared: &Shared, bound: &Bound) -> Result<Vec<Part>> {
    let mut rows = shared
        .cells
        .swapped(&STATE.into(), &partition(&bound.state))?;
    let mut parts = Vec::new();
    for number in 0..shared.cells.parts() {
        let at = rows
            .iter()
            .position(|cell| cell.row == number.to_be_bytes());
        let stored = at.map(|at| rows.swap_remove(at).value);
        let row = match &stored {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| {
                Error::Damaged(format!("the mark of a repair cannot be read: {error}"))
            })?,
            None => Row::default(),
        };
        parts.push(Part {
            number,
            row,
            stored,
        });
    }
    parts.sort_by_key(|part| part.row.mark);
    Ok(parts)
}

struct Repair {
    shared: Arc<Shared>,
    bound: Arc<Bound>,
    options: RepairOptions,
    done: Repaired,
    begun: u64,
    /// True if obsolete versions of the part were left that must be looked at again.
    has_left: bool,
}

impl Repair {
    fn run(&mut self, progress: &mut OnRepair<'_>) -> Result<bool> {
        for mut part in parts(&self.shared, &self.bound)? {
            let now = self.shared.cells.now()?;
            let is_leased = part.row.until > now;
            if is_leased || !self.set(&mut part, |row| row.until = now + LEASE)? {
                self.done.skipped += 1;
                continue;
            }
            // What nodes that were down may still receive is looked at again.
            let mark = stamp(now.saturating_sub(HINTS + DEADLINE + 2 * CLOCK_BOUND));
            if !self.part(&mut part, now, progress)? {
                self.set(&mut part, |row| row.until = 0)?;
                return Ok(false);
            }
            let mark = if self.has_left { 0 } else { mark };
            self.set(&mut part, |row| {
                row.mark = row.mark.max(mark);
                row.until = 0;
            })?;
            self.done.parts += 1;
            if progress(&self.done).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Changes the row of a part; false if another worker has changed it.
    fn set(&self, part: &mut Part, change: impl Fn(&mut Row)) -> Result<bool> {
        let mut row = part.row.clone();
        change(&mut row);
        row.turn = unique();
        // A struct of numbers always serialises.
        let to = serde_json::to_vec(&row).unwrap_or_default();
        let number = part.number.to_be_bytes();
        let (table, partition) = (STATE.into(), partition(&self.bound.state));
        let swapped = self.shared.cells.swap(
            &table,
            &partition,
            &number,
            part.stored.as_deref(),
            Some(&to),
        )?;
        let is_done = swapped == Swapped::Done;
        if is_done {
            (part.row, part.stored) = (row, Some(to));
        }
        Ok(is_done)
    }

    fn part(
        &mut self,
        part: &mut Part,
        mut begun: u64,
        progress: &mut OnRepair<'_>,
    ) -> Result<bool> {
        self.has_left = false;
        let after = if self.options.full { 0 } else { part.row.mark };
        let mut mark: Option<Mark> = None;
        let mut pages = Pages::of(PAGE);
        let mut key = KeyVersions::default();
        let mut found = Vec::new();
        loop {
            let (cells, table) = (&self.shared.cells, &self.bound.data);
            let page = cells.scan(table, part.number, mark.as_ref(), pages.rows(), false)?;
            pages.had_cells(&page.cells);
            self.done.versions += page.cells.len() as u64;
            // What is obsolete for a moment may count in a query that runs.
            let before = stamp(begun.saturating_sub(VIEW));
            for cell in page.cells {
                if cell.partition != key.key {
                    found.extend(key.last_deletion(forgettable(begun)));
                    key = KeyVersions::new(cell.partition.clone());
                }
                found.extend(key.next(cell, self.bound.versions(), after..before)?);
            }
            if found.len() >= TOGETHER {
                self.remove(&mut found)?;
            }
            mark = page.next;
            if mark.is_none() {
                break;
            }
            let now = self.shared.cells.now()?;
            begun = now;
            if part.row.until < now + LEASE / 2 && !self.set(part, |row| row.until = now + LEASE)? {
                return Err(Error::Busy("another worker repairs this part".to_string()));
            }
            if progress(&self.done).is_break() {
                return Ok(false);
            }
            self.throttle();
        }
        found.extend(key.last_deletion(forgettable(begun)));
        self.remove(&mut found)?;
        Ok(true)
    }

    /// Removes the entries of obsolete versions, in the order of the index partitions; then the
    /// versions.
    fn remove(&mut self, found: &mut Vec<Obsolete>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let (mut entries, mut versions): (Vec<Write>, Vec<Write>) = (Vec::new(), Vec::new());
        // After the versions that hide them were read.
        let announced = removals::announced(&self.shared, &self.bound)?;
        // And what hid them may have been removed before that: only what does so still counts.
        let newest = self.newest_of(found)?;
        for obsolete in found.drain(..) {
            let is_obsolete = obsolete.is_left_over
                || newest.get(&obsolete.key).is_some_and(|newest| {
                    let kept = self.bound.versions();
                    let newer = newest.iter().filter(|other| other.at > obsolete.version.at);
                    let newer = Newer::of(newer.copied(), kept);
                    newer.made_obsolete(kept).is_some()
                });
            if announced.contains(&obsolete.key) || !is_obsolete {
                self.has_left = true;
                continue;
            }
            let at = obsolete.version.at;
            if let Some(record) = RecordRef::parse(&obsolete.stored) {
                let tokens = self.bound.tokens(&record);
                entries.extend(tokens.iter().filter_map(|(index, token)| {
                    let key = &obsolete.key;
                    self.bound.entry(*index, Entry { token, at, key }, false)
                }));
            }
            versions.push(self.bound.forget(&obsolete.key, obsolete.version));
        }
        entries.sort_by(|a, b| {
            (&a.table, &a.partition, &a.row).cmp(&(&b.table, &b.partition, &b.row))
        });
        self.done.obsolete += versions.len() as u64;
        for writes in [entries, versions] {
            self.shared
                .cells
                .write(writes)
                .into_iter()
                .collect::<Result<()>>()?;
        }
        Ok(())
    }

    /// The newest versions of the keys, as many as the dataset keeps.
    fn newest_of(&self, found: &[Obsolete]) -> Result<HashMap<Vec<u8>, Vec<Version>>> {
        let keys: BTreeSet<&[u8]> = found.iter().map(|found| found.key.as_slice()).collect();
        let kept = self.bound.versions();
        let reads = keys
            .iter()
            .map(|key| self.bound.versions_of(key, Seq::MAX, kept, true));
        let read = self.shared.cells.read(reads.collect());
        let mut newest = HashMap::new();
        for (key, cells) in keys.into_iter().zip(read) {
            let cells = cells?;
            let versions = cells.iter().map(|cell| Version::of(&cell.row));
            newest.insert(key.to_vec(), versions.collect::<Result<_>>()?);
        }
        Ok(newest)
    }

    fn throttle(&self) {
        let Some(rate) = self.options.rows_per_second.filter(|rate| *rate > 0) else {
            return;
        };
        let clocks = self.shared.clocks();
        let due = self.begun + self.done.versions * 1000 / rate;
        let now = clocks.steady();
        if due > now {
            clocks.sleep(due - now);
        }
    }
}

/// A deletion from before this time need not be kept: no put from before it arrives any more.
fn forgettable(now: u64) -> Seq {
    stamp(now.saturating_sub(DELETIONS))
}

/// A version that does not count any more.
struct Obsolete {
    key: Vec<u8>,
    version: Version,
    stored: Vec<u8>,
    /// It is a deletion of a key of which nothing else is left.
    is_left_over: bool,
}

/// The versions of a key, newest first, as far as they were read.
#[derive(Default)]
struct KeyVersions {
    key: Vec<u8>,
    newer: Newer,
    /// The only version so far.
    only: Option<Version>,
}

impl KeyVersions {
    fn new(key: Vec<u8>) -> KeyVersions {
        KeyVersions {
            key,
            ..KeyVersions::default()
        }
    }

    /// The next version, if the write that made it obsolete is `due`.
    fn next(&mut self, cell: Cell, kept: usize, due: Range<Seq>) -> Result<Option<Obsolete>> {
        let version = Version::of(&cell.row)?;
        let made_by = self.newer.made_obsolete(kept);
        self.only = self.newer.last.is_empty().then_some(version);
        self.newer.add(version, kept);
        let is_due = made_by.is_some_and(|by| due.contains(&by));
        Ok(is_due.then(|| Obsolete {
            key: self.key.clone(),
            version,
            stored: cell.value,
            is_left_over: false,
        }))
    }

    /// A deletion that is all that is left of the key, if it is from before a time.
    fn last_deletion(&self, before: Seq) -> Option<Obsolete> {
        let only = self
            .only
            .filter(|only| only.is_deletion && only.at < before)?;
        Some(Obsolete {
            key: self.key.clone(),
            version: only,
            stored: Vec::new(),
            is_left_over: true,
        })
    }
}

/// What is known of the newer versions of a version. They are added from the newest on.
#[derive(Debug, Default)]
struct Newer {
    /// The earliest deletion.
    deletion: Option<Seq>,
    /// The earliest ones, as many as are kept; the latest of them at the front.
    last: VecDeque<Seq>,
}

impl Newer {
    fn of(versions: impl Iterator<Item = Version>, kept: usize) -> Newer {
        let mut newer = Newer::default();
        versions.for_each(|version| newer.add(version, kept));
        newer
    }

    fn add(&mut self, version: Version, kept: usize) {
        if version.is_deletion {
            self.deletion = Some(version.at);
        }
        if self.last.len() == kept {
            self.last.pop_front();
        }
        self.last.push_back(version.at);
    }

    /// The write that made the next older version obsolete: the earliest of the deletions after it,
    /// and of the writes of which `kept` came after it. `None` while it counts.
    fn made_obsolete(&self, kept: usize) -> Option<Seq> {
        let pushed = self.last.front().filter(|_| self.last.len() == kept);
        self.deletion.into_iter().chain(pushed.copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_obsolete_by(newer: &[Version], kept: usize) -> Option<Seq> {
        Newer::of(newer.iter().copied(), kept).made_obsolete(kept)
    }

    #[test]
    fn a_version_is_obsolete_since_the_write_that_made_it_so() {
        let (record, deletion) = (Version::record, Version::deletion);
        assert_eq!(made_obsolete_by(&[], 1), None);
        assert_eq!(made_obsolete_by(&[record(9)], 2), None);
        // Of versions 9, 8, 7 the next older one became obsolete at 7 if one is kept, at 8 of two.
        let newer = [record(9), record(8), record(7)];
        assert_eq!(made_obsolete_by(&newer, 1), Some(7));
        assert_eq!(made_obsolete_by(&newer, 2), Some(8));
        assert_eq!(made_obsolete_by(&newer, 3), Some(9));
        assert_eq!(made_obsolete_by(&newer, 4), None);
        assert_eq!(made_obsolete_by(&[record(9), deletion(8)], 5), Some(8));
    }

    /// Algorithm 3 of the paper compares the version's own time with that of the last repair, and
    /// misses a version that was current then.
    #[test]
    fn a_version_that_was_current_at_the_last_repair_is_found_by_the_next() {
        let cell = |version: Version| Cell {
            partition: b"k".to_vec(),
            row: version.row(),
            value: vec![0, 0, b'{', b'}'],
        };
        let last_repair = 50;
        let mut versions = KeyVersions::new(b"k".to_vec());
        let newer = versions.next(cell(Version::record(60)), 1, last_repair..100);
        assert!(newer.unwrap().is_none());
        let old = versions.next(cell(Version::record(10)), 1, last_repair..100);
        assert_eq!(old.unwrap().unwrap().version.at, 10);
    }
}
