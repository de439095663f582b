//! Counting the records that answer a query. A number has no order, so one read of the index or the
//! data is enough, and no record is held.

use esker_lsm::coding::Own;
use esker_lsm::{Account, Loan, Seq, SeqSet};
use esker_model::query::{Driver, Lists};

use super::answer::RecentAnswer;
use super::bulk::{Bulk, Sink};
use super::combine::{ListsOutcome, WholeLists};
use super::current_entries::{CurrentEntries, TakeCurrentEntry};
use super::explain::{Explain, Steps};
use super::input::ViewQuery;
use super::run::{Context, DrivingIndex, Run};
use super::stages::{Admission, BulkOrder};
use crate::error::Result;
use crate::index::{self, Lookup, MatchVisitor};

/// The number of gathered numbers that are sorted and added to a set together.
const MAX_GATHERED: usize = 64 << 10;

/// Counts the records that answer a query, whose request is for keys only.
///
/// # Errors
/// If the condition or the page token does not fit the dataset; any read error.
pub(super) fn count(query: ViewQuery) -> Result<(u64, Explain)> {
    let run = Run::new(query)?;
    let run = if is_whole(&run) {
        count_whole(run)?
    } else {
        count_pages(run)?
    };
    Ok((run.steps.answers, run.explain()))
}

/// True if the query has no limit and begins at the first page.
fn is_whole(run: &Run) -> bool {
    run.remaining.is_none() && run.context.after.is_none() && !run.exhausted
}

/// Counts the keys of an answer in order of recency.
fn count_pages(run: Run) -> Result<Run> {
    let mut answer = RecentAnswer::new(run);
    while answer.step()?.is_some() {}
    Ok(answer.run)
}

/// Counts all records that answer a query.
fn count_whole(mut run: Run) -> Result<Run> {
    if run.context.plan.driver == Driver::Scan {
        return Bulk::new(run, BulkOrder::Any, Sink::Count).by_scan();
    }
    let Run { context, steps, .. } = &mut run;
    if let Some(lists) = context.whole_lists()? {
        if context.entries_suffice() {
            let before = steps.clone();
            let outcome = count_entries(context, steps, &lists)?;
            if outcome.is_exact {
                run.lists_read = outcome.lists_read;
                run.exhausted = true;
                return Ok(run);
            }
            // The memory did not suffice for the numbers of the lists.
            *steps = before;
        }
        return count_records(run);
    }
    let Some(DrivingIndex { attribute, range }) = context.driving_index() else {
        return count_pages(run);
    };
    // A head may not be enough to decide the other conditions.
    if !context.needs_bodies && attribute.is_filtered_scan() {
        let lookup = context.indexes();
        let mut matches = MatchCounter {
            lookup: &lookup,
            context,
            admission: context.admission(),
            steps,
        };
        let order = context.request.order.recency();
        index::each_match(&lookup, attribute, range, order, &mut matches)?;
        run.exhausted = true;
        return Ok(run);
    }
    count_pages(run)
}

/// Counts as an answer in bulk, by a stand-alone index.
fn count_records(run: Run) -> Result<Run> {
    let context = &run.context;
    let driving = context.driving_index();
    let brings = driving.is_some_and(|driving| driving.attribute.brings_records());
    // Records are read in any case, so that the keys are probed only if that has saved reads
    // before.
    let probes_keys =
        context.probes_keys && (brings || !context.chooses_validation() || context.is_wasteful());
    let mut bulk = Bulk::new(run, BulkOrder::Any, Sink::Count);
    bulk.probes_keys = probes_keys;
    bulk.by_index()
}

/// Counts without the records, where [`Context::entries_suffice`], by the write numbers of entries:
/// a record with several values in the range has one number, and a record that several indexes have
/// has the same one in all of them. The count is right only if the outcome is exact.
fn count_entries(context: &Context, steps: &mut Steps, lists: &Lists) -> Result<ListsOutcome> {
    let mut counted = DistinctWrites::default();
    let store = &context.view.dataset.store;
    let loan = matches!(lists, Lists::All { .. }).then(|| store.borrow(Account::Queries));
    let memory = loan
        .as_ref()
        .map_or(store.group.options().memory_budget / 32, Loan::bytes);
    let reader = WholeLists::new(context, memory / 2);
    // The reader of the lists counts the candidates.
    let mut decided = Steps::default();
    let (expired, cost) = (context.expired.as_deref(), &context.costs.keys);
    let mut current = CurrentEntries::new(&context.validity, expired, cost, &mut decided);
    current.prepare(reader.expected(&lists.base())?)?;
    let mut take = |key: &[u8], seq: Seq| current.offer(key, seq, &mut counted, |_| ());
    let outcome = reader.run(lists, steps, &mut take)?;
    current.finish(&mut counted)?;
    steps.obsolete += decided.obsolete;
    steps.probed += decided.probed;
    steps.answers += counted.count();
    Ok(outcome)
}

/// The different numbers of the writes that were added. They come in index order, not ascending:
/// inserted into a set one by one, each would move the larger numbers. So they are gathered, sorted
/// and then inserted.
#[derive(Default)]
pub(super) struct DistinctWrites {
    gathered: Vec<Seq>,
    /// The numbers that were gathered before.
    set: SeqSet,
}

impl DistinctWrites {
    /// Adds a write; again, if it was added before, to no effect.
    #[inline]
    pub(super) fn add(&mut self, seq: Seq) {
        self.gathered.push(seq);
        if self.gathered.len() >= MAX_GATHERED {
            self.flush();
        }
    }

    /// The bytes of the numbers that are not in the set yet.
    pub(super) fn gathered_bytes(&self) -> usize {
        size_of_val(self.gathered.as_slice())
    }

    fn flush(&mut self) {
        self.gathered.sort_unstable();
        self.set.extend(self.gathered.drain(..));
    }

    /// The different numbers.
    pub(super) fn into_set(mut self) -> SeqSet {
        self.flush();
        self.set
    }

    /// How many different numbers were added.
    pub(super) fn count(mut self) -> u64 {
        if self.set.is_empty() {
            return count_distinct(&mut self.gathered);
        }
        self.flush();
        self.set.len()
    }
}

/// Counts the records that have current entries.
impl TakeCurrentEntry for DistinctWrites {
    type Group = ();

    #[inline]
    fn take(&mut self, _: (), _: &[u8], seq: Seq) {
        self.add(seq);
    }
}

/// Counts the different items of `numbers`: by a bit for each number in their range, if that is
/// small enough, otherwise by sorting them.
fn count_distinct(numbers: &mut Vec<Seq>) -> u64 {
    let (least, greatest) = (numbers.iter().min(), numbers.iter().max());
    let (Some(&least), Some(&greatest)) = (least, greatest) else {
        return 0;
    };
    // More words than memory has are too many, too.
    let words = usize::try_from((greatest - least) / 64).unwrap_or(usize::MAX);
    if words > numbers.len().saturating_mul(4) {
        numbers.sort_unstable();
        numbers.dedup();
        return numbers.len() as u64;
    }
    let (mut seen, mut count) = (vec![0u64; words + 1], 0);
    for number in numbers {
        let at = *number - least;
        let word = seen.own_mut((at / 64) as usize);
        let bit = 1 << (at % 64);
        count += u64::from(*word & bit == 0);
        *word |= bit;
    }
    count
}

/// Counts the records that a filtered scan finds in a range, if they are current and satisfy the
/// other conditions.
struct MatchCounter<'a> {
    lookup: &'a Lookup<'a>,
    context: &'a Context,
    admission: Admission<'a>,
    steps: &'a mut Steps,
}

impl MatchVisitor for MatchCounter<'_> {
    fn wants(&mut self, _: Seq, _: Seq) -> bool {
        true
    }

    fn visit(&mut self, seq: Seq, key: &[u8], record: &[u8], is_current: bool) -> Result<()> {
        self.steps.candidates += 1;
        let Lookup { data, snapshot, .. } = *self.lookup;
        let (all, cost) = (&self.context.components, self.lookup.data_cost);
        if !is_current && !snapshot.is_newest(data, all, all.len(), key, seq, cost)? {
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
            (MAX_GATHERED, 50_000),
            (2 * MAX_GATHERED + 7, 100_000),
            (2 * MAX_GATHERED + 7, 1 << 40),
        ] {
            let numbers: Vec<Seq> = (0..len).map(|_| rng.u64(..most)).collect();
            let mut counted = DistinctWrites::default();
            numbers.iter().for_each(|seq| counted.add(*seq));
            let expected = numbers.iter().collect::<HashSet<_>>().len();
            assert_eq!(counted.count(), expected as u64, "{len} up to {most}");
        }
    }
}
