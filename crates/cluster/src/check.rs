//! Compares indexes with records: every version that counts has its entries, and every entry is of
//! a version that counts, or is known to be of no use.
//!
//! First both are scanned, and the entries that records should have are compared with the stored
//! ones by sums. Only the entries of sums that differ are read one by one, with their records:
//! those that are wrong, obsolete or written meanwhile, and some others of the same sums.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_coding::Seq;
use esker_model::Key;
use esker_model::record::RecordRef;
use parking_lot::Mutex;

use crate::bound::Bound;
use crate::cells::{Cell, Mark, Read, Write};
use crate::dataset::Dataset;
use crate::error::Result;
use crate::judge::{judge_all, remove};
use crate::pages::Pages;
use crate::rows::{Entry, Version, entry};
use crate::shared::Shared;
use crate::sketch::{Sketch, hash};
use crate::time::stamp;
use crate::verdict::{Candidate, Verdict};
use crate::view::View;

/// Rows of a page.
const PAGE: usize = 1000;
/// Parts that are scanned beside each other before the progress is reported.
const TOGETHER: u32 = 8;
/// Texts of errors that are kept.
const MOST_ERRORS: usize = 100;

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong, one text each; at most a hundred.
    pub errors: Vec<String>,
    /// Errors in all.
    pub wrong: u64,
    /// Records.
    pub records: u64,
    /// Index entries.
    pub entries: u64,
    /// Index entries of obsolete versions: no reader shows them, and a repair removes them.
    pub obsolete: u64,
    /// Index entries of writers that are gone, likewise.
    pub dangling: u64,
    /// Index entries of writers that may still put their record.
    pub pending: u64,
}

impl Checked {
    fn add(&mut self, error: String) {
        self.wrong += 1;
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(error);
        }
    }
}

impl Dataset {
    /// Compares the indexes with the records, entry by entry. `progress` gets what was found so
    /// far, and can stop it.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable). What is wrong is part of the report.
    pub fn check(&self, progress: &mut dyn FnMut(&Checked) -> ControlFlow<()>) -> Result<Checked> {
        let begun = stamp(self.shared.cells.now()?);
        let bound = self.shared.bound_now(&self.name)?;
        let mut walk = Walk {
            shared: &self.shared,
            bound: &bound,
            found: Checked::default(),
            mends: false,
            changed: (0, 0),
            begun,
            differing: Sketch::new(),
        };
        walk.all(progress)?;
        Ok(walk.found)
    }
}

/// Adds missing entries, and removes those of no use; returns how many were removed and added.
pub(crate) fn mend(
    dataset: &Dataset,
    progress: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(u64, u64)> {
    let begun = stamp(dataset.shared.cells.now()?);
    let bound = dataset.shared.bound_now(&dataset.name)?;
    let mut walk = Walk {
        shared: &dataset.shared,
        bound: &bound,
        found: Checked::default(),
        mends: true,
        changed: (0, 0),
        begun,
        differing: Sketch::new(),
    };
    walk.all(&mut |_| progress())?;
    Ok(walk.changed)
}

struct Walk<'s> {
    shared: &'s Arc<Shared>,
    bound: &'s Arc<Bound>,
    found: Checked,
    mends: bool,
    /// Entries removed, and added.
    changed: (u64, u64),
    /// The layouts of `bound` place all entries from before this moment.
    begun: Seq,
    differing: Sketch,
}

/// Which versions count of the keys that a scan comes by.
#[derive(Debug, Default)]
struct Counting {
    key: Vec<u8>,
    newer: usize,
    is_deleted: bool,
}

impl Counting {
    /// The version of a row; whether it counts, and whether it is the record of its key.
    fn see(&mut self, cell: &Cell, kept: usize) -> Result<(Seq, bool, bool)> {
        let version = Version::of(&cell.row)?;
        if cell.partition != self.key {
            (self.newer, self.is_deleted) = (0, false);
            self.key.clone_from(&cell.partition);
        }
        self.is_deleted |= version.is_deletion;
        let counts = !self.is_deleted && self.newer < kept;
        let is_record = !self.is_deleted && self.newer == 0;
        self.newer += 1;
        Ok((version.at, counts, is_record))
    }
}

impl Walk<'_> {
    fn all(&mut self, progress: &mut dyn FnMut(&Checked) -> ControlFlow<()>) -> Result<()> {
        if self.sums(progress)?.is_break() || self.differing.is_equal() {
            return Ok(());
        }
        for part in 0..self.shared.cells.parts() {
            self.records(part)?;
            if progress(&self.found).is_break() {
                return Ok(());
            }
        }
        for index in 0..self.bound.indexes.len() {
            for part in 0..self.shared.cells.parts() {
                self.entries(index, part)?;
                if progress(&self.found).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Adds up the entries that records should have, and the stored ones.
    fn sums(
        &mut self,
        progress: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let differing = std::mem::replace(&mut self.differing, Sketch::new());
        let sums = Mutex::new((differing, std::mem::take(&mut self.found)));
        let cells = &self.shared.cells;
        let (mut first, parts) = (0, cells.parts());
        let mut flow = ControlFlow::Continue(());
        while first < parts && flow.is_continue() {
            let behind = parts.min(first + TOGETHER);
            cells.beside(first..behind, &|part| {
                self.sum_records(part, &sums)?;
                let mut indexes = self.bound.indexes.iter();
                indexes.try_for_each(|index| self.sum_entries(&index.table, part, &sums))
            })?;
            flow = progress(&sums.lock().1);
            first = behind;
        }
        (self.differing, self.found) = sums.into_inner();
        Ok(flow)
    }

    fn sum_records(&self, part: u32, sums: &Mutex<(Sketch, Checked)>) -> Result<()> {
        let mut mark: Option<Mark> = None;
        let mut pages = Pages::of(PAGE);
        let mut counting = Counting::default();
        loop {
            let cells = &self.shared.cells;
            let page = cells.scan(&self.bound.data, part, mark.as_ref(), pages.rows(), false)?;
            pages.had_cells(&page.cells);
            let (mut expected, mut records, mut malformed) = (Vec::new(), 0, Vec::new());
            for cell in &page.cells {
                let (at, counts, is_record) = counting.see(cell, self.bound.versions())?;
                records += u64::from(is_record);
                if !counts || at >= self.begun {
                    continue;
                }
                let Some(record) = RecordRef::parse(&cell.value) else {
                    malformed.push(self.key(&cell.partition));
                    continue;
                };
                let mut tokens = self.bound.tokens(&record);
                tokens.sort_unstable();
                tokens.dedup();
                expected.extend(tokens.iter().filter_map(|(index, token)| {
                    let key = &cell.partition;
                    let write = self.bound.entry(*index, Entry { token, at, key }, true)?;
                    Some(hash(&write.table, &write.partition, &write.row))
                }));
            }
            let (sketch, found) = &mut *sums.lock();
            sketch.expect(&expected);
            found.records += records;
            for key in malformed {
                found.add(format!("the record of key {key} is malformed"));
            }
            mark = page.next;
            if mark.is_none() {
                return Ok(());
            }
        }
    }

    fn sum_entries(
        &self,
        table: &Arc<str>,
        part: u32,
        sums: &Mutex<(Sketch, Checked)>,
    ) -> Result<()> {
        let mut mark: Option<Mark> = None;
        loop {
            let cells = &self.shared.cells;
            let page = cells.scan(table, part, mark.as_ref(), PAGE, true)?;
            let found = page.cells.iter();
            let found = found.map(|cell| hash(table, &cell.partition, &cell.row));
            let found: Vec<u128> = found.collect();
            let (sketch, checked) = &mut *sums.lock();
            sketch.find(&found);
            checked.entries += found.len() as u64;
            mark = page.next;
            if mark.is_none() {
                return Ok(());
            }
        }
    }

    fn wrong(&mut self, text: String) {
        self.found.add(text);
    }

    fn key(&self, key: &[u8]) -> Key {
        Key::from_encoded(self.bound.key_type(), key.to_vec())
    }

    /// The records of a part: each version that counts has its entries.
    fn records(&mut self, part: u32) -> Result<()> {
        let mut mark: Option<Mark> = None;
        let mut pages = Pages::of(PAGE);
        let mut counting = Counting::default();
        loop {
            let cells = &self.shared.cells;
            let page = cells.scan(&self.bound.data, part, mark.as_ref(), pages.rows(), false)?;
            pages.had_cells(&page.cells);
            let mut expected = Vec::new();
            for cell in page.cells {
                let (at, counts, _) = counting.see(&cell, self.bound.versions())?;
                if counts && at < self.begun {
                    self.entries_of(at, &cell, &mut expected);
                }
            }
            self.look_for(expected)?;
            mark = page.next;
            if mark.is_none() {
                return Ok(());
            }
        }
    }

    /// Entries whose sums differ.
    fn entries_of(&self, at: Seq, cell: &Cell, expected: &mut Vec<Write>) {
        let Some(record) = RecordRef::parse(&cell.value) else {
            return;
        };
        for (index, token) in self.bound.tokens(&record) {
            let place = self.bound.indexes.get(index).map(|index| index.place);
            let attribute = place.and_then(|place| self.bound.stored.attributes.get(place));
            let state = attribute.and_then(|a| self.bound.state.indexes.get(&a.id));
            // An index that is being filled may lack entries.
            if state.is_some_and(|state| state.is_ready) {
                let (token, key) = (&token, &cell.partition);
                let entry = self.bound.entry(index, Entry { token, at, key }, true);
                expected.extend(
                    entry.filter(|write| self.differs(&write.table, &write.partition, &write.row)),
                );
            }
        }
    }

    fn differs(&self, table: &Arc<str>, partition: &[u8], row: &[u8]) -> bool {
        self.differing.differs(hash(table, partition, row))
    }

    fn look_for(&mut self, expected: Vec<Write>) -> Result<()> {
        let reads = expected.iter().map(|write| Read {
            table: write.table.clone(),
            partition: write.partition.clone(),
            from: write.row.clone(),
            to: None,
            most: 1,
            reverse: false,
            rows_only: true,
        });
        let found = self.shared.cells.read(reads.collect());
        let mut missing = Vec::new();
        for (write, cells) in expected.into_iter().zip(found) {
            let is_there = cells?.first().is_some_and(|cell| cell.row == write.row);
            if !is_there {
                missing.push(write);
            }
        }
        let missing = self.still_counting(missing)?;
        for write in &missing {
            let entry = entry(&write.row)?;
            let key = self.key(entry.key);
            let table = &write.table;
            self.wrong(format!("{table}: the record of key {key} has no entry"));
        }
        if self.mends && !missing.is_empty() {
            self.changed.1 += missing.len() as u64;
            let added = self.shared.cells.write(missing);
            added.into_iter().collect::<Result<()>>()?;
        }
        Ok(())
    }

    /// Of entries that are missing, those whose versions count still: of others, a reader may have
    /// removed them since the records were read.
    fn still_counting(&self, missing: Vec<Write>) -> Result<Vec<Write>> {
        let mut candidates = Vec::new();
        for write in &missing {
            let found = entry(&write.row)?;
            candidates.push(Candidate {
                at: found.at,
                key: found.key.to_vec(),
                index: 0,
                token: found.token.to_vec(),
            });
        }
        let verdicts = judge_all(self.shared, self.bound, &candidates, &View::LATEST, true)?;
        let counts = |verdict| matches!(verdict, Verdict::Newest(_) | Verdict::Kept(_));
        let all = missing.into_iter().zip(verdicts);
        let counting = all.filter_map(|(write, verdict)| counts(verdict).then_some(write));
        Ok(counting.collect())
    }

    /// The entries of an index in a part: each is of a version that counts, and of one of its
    /// tokens.
    fn entries(&mut self, index: usize, part: u32) -> Result<()> {
        let Some(bound_index) = self.bound.indexes.get(index) else {
            return Ok(());
        };
        let table = bound_index.table.clone();
        let mut mark: Option<Mark> = None;
        loop {
            let cells = &self.shared.cells;
            let mut page = cells.scan(&table, part, mark.as_ref(), PAGE, true)?;
            page.cells
                .retain(|cell| self.differs(&table, &cell.partition, &cell.row));
            let mut candidates = Vec::new();
            for cell in &page.cells {
                let found = entry(&cell.row)?;
                candidates.push(Candidate {
                    at: found.at,
                    key: found.key.to_vec(),
                    index,
                    token: found.token.to_vec(),
                });
            }
            let pending = self.judge(candidates)?;
            self.remove_misplaced(index, page.cells, &pending)?;
            mark = page.next;
            if mark.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes entries that lie elsewhere than readers look for them: those of a writer that did
    /// not know a split, and was not acknowledged. Of a version that counts, the right entry is
    /// there.
    fn remove_misplaced(
        &mut self,
        index: usize,
        cells: Vec<Cell>,
        pending: &HashSet<(Seq, Vec<u8>)>,
    ) -> Result<()> {
        let Some(of) = self.bound.indexes.get(index).filter(|_| self.mends) else {
            return Ok(());
        };
        let mut removed = Vec::new();
        for cell in cells {
            let found = entry(&cell.row)?;
            let place = of.layout.partition(found.token, found.at, found.key);
            let is_pending = pending.contains(&(found.at, found.key.to_vec()));
            if found.at < self.begun && place != cell.partition && !is_pending {
                removed.push(Write {
                    table: of.table.clone(),
                    at: found.at,
                    partition: cell.partition,
                    row: cell.row,
                    value: None,
                });
            }
        }
        self.changed.0 += removed.len() as u64;
        self.shared.cells.write(removed).into_iter().collect()
    }

    /// Judges entries; returns those of writers that may still put their record.
    fn judge(&mut self, candidates: Vec<Candidate>) -> Result<HashSet<(Seq, Vec<u8>)>> {
        let mut pending = HashSet::new();
        let verdicts = judge_all(self.shared, self.bound, &candidates, &View::LATEST, false)?;
        let (mut useless, mut strange) = (Vec::new(), Vec::new());
        for (candidate, verdict) in candidates.into_iter().zip(verdicts) {
            match &verdict {
                Verdict::Newest(stored) | Verdict::Kept(stored) => {
                    if self.is_strange(&candidate, stored) {
                        let key = self.key(&candidate.key);
                        self.wrong(format!("an entry of key {key} is not of its record"));
                        strange.push(candidate);
                    }
                    continue;
                }
                Verdict::Pending => {
                    self.found.pending += 1;
                    pending.insert((candidate.at, candidate.key));
                    continue;
                }
                Verdict::Obsolete => self.found.obsolete += 1,
                Verdict::Dangling => self.found.dangling += 1,
            }
            useless.push((candidate, verdict));
        }
        if self.mends {
            self.changed.0 += remove(self.shared, self.bound, &useless);
            self.remove_strange(strange)?;
        }
        Ok(pending)
    }

    /// True for an entry of another value than that of its record. What a record that cannot be
    /// read has is not known.
    fn is_strange(&self, candidate: &Candidate, stored: &[u8]) -> bool {
        RecordRef::parse(stored).is_some_and(|record| {
            let mut tokens = self.bound.tokens(&record).into_iter();
            !tokens.any(|(index, token)| index == candidate.index && token == candidate.token)
        })
    }

    /// Removes entries of other values than those of their records. No put of such an entry can be
    /// on its way: the version of a key and a timestamp has one value, and so it has its entries.
    fn remove_strange(&mut self, strange: Vec<Candidate>) -> Result<()> {
        let removals = strange
            .iter()
            .filter_map(|candidate| self.bound.entry(candidate.index, candidate.entry(), false));
        let removals: Vec<Write> = removals.collect();
        self.changed.0 += removals.len() as u64;
        self.shared.cells.write(removals).into_iter().collect()
    }
}
