//! Counting: a number has no order, so one pass over the index or the data is enough, and nothing
//! needs to be kept.

use lsm::{Component, Seq, SeqSet};

use super::answer::Answer;
use super::bulk::{BulkOrder, Sink};
use super::explain::Steps;
use super::plan::Driver;
use super::stages::Admission;
use crate::catalog::{Attribute, Layout};
use crate::error::Result;
use crate::index::{self, Candidate, Looks, Lookup, Range, Take};

/// Index entries whose keys are looked up together.
const DOUBTFUL: usize = 64 << 10;

impl Answer {
    /// Counts what is left of the answer.
    pub(super) fn count_rest(&mut self) -> Result<u64> {
        let layout = self.snapshot.layout.clone();
        if self.remaining.is_none() && self.after.is_none() && !self.exhausted {
            match &self.plan.driver {
                Driver::Scan => {
                    self.visit_scan(BulkOrder::Any, Sink::Count)?;
                    return Ok(self.steps.answers);
                }
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
                        // A stub may not tell whether the other conditions hold.
                        let tells = !self.predicates.needs_json;
                        if tells && index::is_filtered_scan(attribute.kind) {
                            return self.count_matches(&layout, attribute, &sought);
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

    /// Goes through the records that a range filter lets in.
    fn count_matches(
        &mut self,
        layout: &Layout,
        attribute: &Attribute,
        range: &Range,
    ) -> Result<u64> {
        let mut steps = std::mem::take(&mut self.steps);
        let lookup = Lookup {
            layout,
            snapshot: &self.snapshot.snapshot,
            data_cost: &self.data_cost,
            index_cost: &self.index_cost,
            looks: Looks::default(),
        };
        let mut matches = Matches {
            lookup: &lookup,
            components: &self.components,
            admission: Admission::of(self),
            steps: &mut steps,
        };
        let result = index::each_match(&lookup, attribute, range, self.order, &mut matches);
        self.steps = steps;
        result?;
        self.exhausted = true;
        Ok(self.steps.answers)
    }

    /// Counts by a stand-alone index: without the records where the index answers everything and the strategy knows without them
    /// which entries are current, otherwise as an answer in bulk, of which nothing is kept.
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
        // Records are read in any case: then the keys are probed only where that has been worth it.
        if !index::brings_records(attribute.kind) {
            self.probes_keys &= !self.chooses_validation() || self.is_wasteful();
        }
        self.visit_index((driver, attribute), BulkOrder::Any, Sink::Count)?;
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
        let lookup = Lookup {
            layout,
            snapshot: &snapshot,
            data_cost: &self.data_cost,
            index_cost: &index_cost,
            looks: Looks::default(),
        };
        let expected = match index::of(attribute.kind) {
            Some(index) => index.estimate(&lookup, attribute, range)?,
            None => 0,
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
                steps.obsolete += 1;
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
                steps.probed += 1;
                if doubtful.len() >= DOUBTFUL {
                    return settle(&mut doubtful, &mut counted);
                }
            }
            Ok(())
        };
        index::each_fact(&lookup, attribute, Some(range), 0, &mut take)?;
        settle(&mut doubtful, &mut counted)?;
        self.steps.answers += counted.len();
        self.index_cost.absorb(&index_cost);
        self.keys_cost.absorb(&keys_cost);
        self.exhausted = true;
        Ok(self.steps.answers)
    }
}

/// Counts the records of a range that meet the other conditions.
struct Matches<'a> {
    lookup: &'a Lookup<'a>,
    components: &'a [Component],
    admission: Admission<'a>,
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
        if !current && !snapshot.is_newest(layout.data, all, all.len(), key, seq, cost)? {
            self.steps.obsolete += 1;
        } else if self.admission.admits(record, self.steps)? {
            self.steps.answers += 1;
        }
        Ok(())
    }
}
