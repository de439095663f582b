//! Counting: a number has no order, so one pass over the index or the data is enough, and nothing
//! needs to be kept.

use esker_lsm::{Component, Seq, SeqSet};

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

/// Numbers that are gathered before they go into a set.
const GATHERED: usize = 64 << 10;

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
        let mut counted = Distinct::default();
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
        let settle = |doubtful: &mut Vec<Candidate>, counted: &mut Distinct| {
            doubtful.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            let total = doubtful.len() as u64;
            validity.retain(doubtful, total, &keys_cost)?;
            doubtful
                .drain(..)
                .for_each(|index_entry| counted.add(index_entry.seq));
            Ok(())
        };
        let mut take = |_: &[u8], key: &[u8], seq: Seq| {
            steps.candidates += 1;
            if validity.is_over(seq) || expired.is_some_and(|expired| expired.contains(seq)) {
                steps.obsolete += 1;
            } else if validity.is_exact() {
                counted.add(seq);
            } else if let Some(superseded) = validity.knows_superseded(seq, key) {
                if !superseded {
                    counted.add(seq);
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
        self.steps.answers += counted.count();
        self.index_cost.absorb(&index_cost);
        self.keys_cost.absorb(&keys_cost);
        self.exhausted = true;
        Ok(self.steps.answers)
    }
}

/// Numbers of writes that are counted, each once. They come in the order of an index, which is none: a set would look for the place of
/// each and move what lies behind it.
#[derive(Default)]
struct Distinct {
    gathered: Vec<Seq>,
    /// Those before, where there are many.
    set: SeqSet,
}

impl Distinct {
    #[inline]
    fn add(&mut self, seq: Seq) {
        self.gathered.push(seq);
        if self.gathered.len() >= GATHERED {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.gathered.sort_unstable();
        self.set.extend(self.gathered.drain(..));
    }

    fn count(mut self) -> u64 {
        if self.set.is_empty() {
            return distinct(&mut self.gathered);
        }
        self.settle();
        self.set.len()
    }
}

/// How many different numbers there are: by a bit for each that there may be, where that is not much more than the numbers themselves
/// take.
fn distinct(numbers: &mut Vec<Seq>) -> u64 {
    let (least, most) = (numbers.iter().min(), numbers.iter().max());
    let (Some(&least), Some(&most)) = (least, most) else {
        return 0;
    };
    let words = usize::try_from((most - least) / 64).unwrap_or(usize::MAX);
    if words > numbers.len().saturating_mul(4) {
        numbers.sort_unstable();
        numbers.dedup();
        return numbers.len() as u64;
    }
    let (mut seen, mut count) = (vec![0u64; words + 1], 0);
    for number in numbers {
        let at = *number - least;
        if let Some(word) = seen.get_mut((at / 64) as usize) {
            let bit = 1 << (at % 64);
            count += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }
    count
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_are_counted_once_however_they_come() {
        let mut rng = fastrand::Rng::with_seed(3);
        for (len, most) in [
            (0, 1),
            (1, u64::MAX),
            (5, 3),
            (1000, 700),
            (1000, 300_000),
            (1000, u64::MAX),
            (GATHERED, 50_000),
            (2 * GATHERED + 7, 100_000),
            (2 * GATHERED + 7, 1 << 40),
        ] {
            let numbers: Vec<Seq> = (0..len).map(|_| rng.u64(..most)).collect();
            let mut counted = Distinct::default();
            numbers.iter().for_each(|seq| counted.add(*seq));
            let expected = numbers.iter().collect::<HashSet<_>>().len();
            assert_eq!(counted.count(), expected as u64, "{len} up to {most}");
        }
    }
}
