//! Counting: a number has no order, so one pass over the index or the data is enough, and nothing
//! needs to be kept.

use lsm::{Account, Component, Cursor, Expected, Seq, SeqSet};
use model::tokens::Tokenizer;

use super::answer::{Answer, parse};
use super::explain::Steps;
use super::plan::Driver;
use super::predicate::Predicates;
use super::scan;
use crate::catalog::{Attribute, Layout};
use crate::error::Result;
use crate::index::{self, Candidate, Lookup, Range, Take};
use crate::store::hides;

/// Index entries whose keys are asked about together.
const DOUBTFUL: usize = 64 << 10;

/// What an index entry takes beside its bytes.
const FACT_BYTES: usize = size_of::<(Vec<u8>, Seq, Vec<u8>)>() + 32;

impl Answer {
    /// Counts what is left of the answer.
    pub(super) fn count_rest(&mut self) -> Result<u64> {
        let layout = self.snapshot.layout.clone();
        if self.remaining.is_none() && self.after.is_none() && !self.exhausted {
            match &self.plan.driver {
                Driver::Scan => return self.count_scan(&layout),
                Driver::Union(_) => {}
                Driver::Index(at) => {
                    let at = *at;
                    let driver = self.predicates.declared.get(at);
                    let attribute = driver.and_then(|p| layout.attributes.get(p.attribute));
                    if let (Some(driver), Some(attribute)) = (driver, attribute)
                        && let Some(sought) = driver.sought_range().cloned()
                    {
                        if attribute.kind.is_standalone() {
                            return self.count_index(&layout, at, attribute, &sought);
                        }
                        if index::is_filtered_scan(attribute.kind) {
                            return self.count_matches(&layout, at, attribute, &sought);
                        }
                    }
                }
            }
        }
        let mut count = 0;
        while self.step()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    fn count_scan(&mut self, layout: &Layout) -> Result<u64> {
        let snapshot = &self.snapshot.snapshot;
        let mut cursor = snapshot.cursor(layout.data, scan::READAHEAD);
        cursor.seek_first()?;
        while cursor.valid() {
            self.steps.candidates += 1;
            let record = parse(cursor.value())?;
            let expired = self.snapshot.hides(cursor.value());
            if !expired && self.predicates.confirm(&record, layout, None) {
                self.steps.answers += 1;
            }
            cursor.next()?;
        }
        self.data_cost.absorb(&cursor.cost());
        self.exhausted = true;
        Ok(self.steps.answers)
    }

    /// Goes through the records that a range filter lets in.
    fn count_matches(
        &mut self,
        layout: &Layout,
        driver: usize,
        attribute: &Attribute,
        range: &Range,
    ) -> Result<u64> {
        let lookup = Lookup {
            layout,
            snapshot: &self.snapshot.snapshot,
            data_cost: &self.data_cost,
            index_cost: &self.index_cost,
        };
        let mut matches = Matches {
            lookup: &lookup,
            components: &self.components,
            predicates: &self.predicates,
            driver,
            steps: &mut self.steps,
        };
        index::each_match(&lookup, attribute, range, self.order, &mut matches)?;
        self.exhausted = true;
        Ok(self.steps.answers)
    }

    /// Goes through the index entries of the range in the order of the index, and probes the data in batches
    /// which of them are current.
    fn count_index(
        &mut self,
        layout: &Layout,
        driver: usize,
        attribute: &Attribute,
        range: &Range,
    ) -> Result<u64> {
        let direct = self.is_direct();
        if !direct && self.validity.can_tell() && self.predicates.is_answered_by(&self.plan.driver)
        {
            return self.count_entries(layout, attribute, range);
        }
        let snapshot = self.snapshot.snapshot.clone();
        let index_cost = snapshot.cost();
        let mut index_entries: Vec<(Vec<u8>, Seq, Vec<u8>)> = Vec::new();
        // Index entries whose records are looked up together: the more, the closer to each other they are.
        let loan = self.snapshot.dataset.shared.borrow(Account::Queries);
        let room = loan.bytes() / 2;
        self.lookup.batch_bytes = self.lookup.batch_bytes.min(room);
        let mut bytes = 0;
        let validity = self.validity.clone();
        let mut over = 0;
        let mut take = |value: &[u8], key: &[u8], seq| {
            if validity.is_over(seq) {
                over += 1;
                return Ok(());
            }
            bytes += key.len() + value.len() + FACT_BYTES;
            index_entries.push((key.to_vec(), seq, value.to_vec()));
            if bytes < room {
                return Ok(());
            }
            bytes = 0;
            self.count_current(layout, driver, attribute, range, &mut index_entries)
        };
        index::each_fact(&snapshot, attribute, Some(range), 0, &index_cost, &mut take)?;
        self.steps.candidates += over;
        self.steps.superseded += over;
        self.count_current(layout, driver, attribute, range, &mut index_entries)?;
        self.index_cost.absorb(&index_cost);
        self.exhausted = true;
        Ok(self.steps.answers)
    }

    /// Counts without the records: by the index entries of the index and what is known of their writes. A record
    /// with several values in the range has one number.
    fn count_entries(
        &mut self,
        layout: &Layout,
        attribute: &Attribute,
        range: &Range,
    ) -> Result<u64> {
        let snapshot = self.snapshot.snapshot.clone();
        let (index_cost, keys_cost) = (snapshot.cost(), snapshot.cost());
        let (validity, steps) = (&self.validity, &mut self.steps);
        let expired = self.expired.as_deref();
        let mut counted = SeqSet::new();
        let mut doubtful: Vec<Candidate> = Vec::new();
        let expected = {
            let lookup = Lookup {
                layout,
                snapshot: &snapshot,
                data_cost: &self.data_cost,
                index_cost: &index_cost,
            };
            match index::of(attribute.kind) {
                Some(index) => index.estimate(&lookup, attribute, range)?,
                None => 0,
            }
        };
        validity.prepare(expected, &keys_cost)?;
        let settle = |doubtful: &mut Vec<Candidate>, counted: &mut SeqSet| {
            doubtful.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            let total = doubtful.len() as u64;
            validity.retain(doubtful, total, &keys_cost)?;
            counted.extend(doubtful.drain(..).map(|index_entry| index_entry.seq));
            Ok(())
        };
        let mut take = |_: &[u8], key: &[u8], seq: Seq| {
            steps.candidates += 1;
            if validity.is_over(seq) || expired.is_some_and(|expired| expired.contains(seq)) {
                steps.superseded += 1;
            } else if validity.is_exact() {
                counted.insert(seq);
            } else if let Some(superseded) = validity.knows_superseded(seq, key) {
                if !superseded {
                    counted.insert(seq);
                }
            } else {
                doubtful.push(Candidate {
                    seq,
                    key: key.to_vec(),
                    record: None,
                });
                steps.asked += 1;
                if doubtful.len() >= DOUBTFUL {
                    return settle(&mut doubtful, &mut counted);
                }
            }
            Ok(())
        };
        index::each_fact(&snapshot, attribute, Some(range), 0, &index_cost, &mut take)?;
        settle(&mut doubtful, &mut counted)?;
        self.steps.answers += counted.len();
        self.index_cost.absorb(&index_cost);
        self.keys_cost.absorb(&keys_cost);
        self.exhausted = true;
        Ok(self.steps.answers)
    }

    /// Counts the index entries whose records are still those that they were written for, and meet the other
    /// conditions. A record with several values in the range counts once: by the first of them.
    fn count_current(
        &mut self,
        layout: &Layout,
        driver: usize,
        attribute: &Attribute,
        range: &Range,
        index_entries: &mut Vec<(Vec<u8>, Seq, Vec<u8>)>,
    ) -> Result<()> {
        index_entries.sort();
        let keys: Vec<&[u8]> = index_entries
            .iter()
            .map(|(key, ..)| key.as_slice())
            .collect();
        let seqs: Vec<Seq> = index_entries.iter().map(|(_, seq, _)| *seq).collect();
        let (predicates, steps) = (&self.predicates, &mut self.steps);
        let mut damage = None;
        steps.candidates += keys.len() as u64;
        steps.fetched += keys.len() as u64;
        let mut confirmed = 0;
        let snapshot = &self.snapshot.snapshot;
        let components = snapshot.components(layout.data);
        let (expected, cost) = (Expected::AtLeast(&seqs), &self.data_cost);
        let lookup = snapshot.lookup(&components, &keys, expected, self.lookup, cost);
        lookup.visit_all(&mut |at, found| {
            let Some((_, seq, value)) = index_entries
                .get(at)
                .filter(|index_entry| index_entry.1 == found.seq)
            else {
                return;
            };
            debug_assert_eq!(*seq, found.seq);
            match parse(&found.value) {
                Ok(record) => {
                    confirmed += 1;
                    // Of one token a record has one index entry, of values as many as lie in the range.
                    let mut first = attribute.tokenizer == Tokenizer::Prefix;
                    if !first {
                        attribute.any_value(&record, |other| {
                            let inside = range.contains(other);
                            first = inside && other == value.as_slice();
                            inside
                        });
                    }
                    let first = first && !hides(snapshot, &found.value);
                    if first && predicates.confirm(&record, layout, Some(driver)) {
                        steps.answers += 1;
                    }
                }
                Err(error) => damage = Some(error),
            }
        })?;
        steps.superseded += keys.len() as u64 - confirmed;
        steps.wasted += keys.len() as u64 - confirmed;
        index_entries.clear();
        damage.map_or(Ok(()), Err)
    }
}

/// Counts the records of a range that meet the other conditions.
struct Matches<'a> {
    lookup: &'a Lookup<'a>,
    components: &'a [Component],
    predicates: &'a Predicates,
    driver: usize,
    steps: &'a mut Steps,
}

impl Take for Matches<'_> {
    fn wants(&mut self, _: Seq, _: Seq) -> bool {
        true
    }

    fn take(&mut self, seq: Seq, key: &[u8], record: &[u8], current: bool) -> Result<()> {
        self.steps.candidates += 1;
        let Lookup {
            layout, snapshot, ..
        } = *self.lookup;
        let (all, cost) = (self.components, self.lookup.data_cost);
        let expired = hides(snapshot, record);
        if expired
            || !current && !snapshot.is_newest(layout.data, all, all.len(), key, seq, cost)?
        {
            self.steps.superseded += 1;
        } else if self
            .predicates
            .confirm(&parse(record)?, layout, Some(self.driver))
        {
            self.steps.answers += 1;
        } else {
            self.steps.discarded += 1;
        }
        Ok(())
    }
}
