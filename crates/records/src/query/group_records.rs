//! Groups of records, for aggregates. Without an index the records are scanned in several parts
//! (`parallel.rs`). Each part has its own groups and entries, which are merged in the end, so the
//! result does not depend on the parts. A dataset whose bodies are stored separately is one part.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use esker_lsm::coding::Own;
use esker_lsm::sort::{Sorted, Sorter};
use esker_lsm::{Cost, Group, Seq};
use esker_model::query::{Compiled, Driver, Grouping, Groups, KeySpans};
use esker_model::record::RecordRef;

use super::bulk;
use super::explain::Steps;
use super::key_cursor::KeyCursor;
use super::parallel::{self, MIN_ENTRIES, Threads};
use super::run::Run;
use super::stages::{Admission, BulkOrder, Decision};
use crate::bodies;
use crate::error::{Error, Result};
use crate::store::View;

/// The entries of groups that left the memory, sorted in a file if they are many.
pub(super) struct Spill {
    sorter: Sorter,
    /// The number of the next entry, which keeps equal entries apart.
    entries: Seq,
}

impl Spill {
    /// An empty spill that holds up to `memory` bytes.
    pub(super) fn new(group: &Group, memory: usize) -> Spill {
        let fs = group.options().fs.clone();
        Spill {
            sorter: Sorter::new(fs, group.dir(), memory),
            entries: 0,
        }
    }

    /// Moves all groups to the sorter, as entries.
    pub(super) fn take(&mut self, groups: &mut Groups) -> Result<()> {
        groups.drain(&mut |entry| {
            self.entries += 1;
            Ok(self.sorter.add(entry, self.entries)?)
        })
    }

    /// Moves all groups to the sorter if they take more than `share` bytes.
    fn bound(&mut self, groups: &mut Groups, share: usize) -> Result<()> {
        if groups.bytes() > share {
            self.take(groups)?;
        }
        Ok(())
    }

    /// The entries in order.
    pub(super) fn finish(self) -> Result<Sorted> {
        Ok(self.sorter.finish()?)
    }
}

/// The entries of several parts in one order.
pub(super) struct MergedEntries {
    parts: Vec<SortedPart>,
    /// The part whose next entry was returned last.
    last: Option<usize>,
}

/// The entries of a part.
struct SortedPart {
    sorted: Sorted,
    /// The next entry; none at the end.
    head: Option<Vec<u8>>,
}

impl SortedPart {
    /// Moves to the next entry.
    fn advance(&mut self) -> Result<()> {
        match (self.sorted.next_pair()?, &mut self.head) {
            (Some((entry, _)), Some(head)) => {
                head.clear();
                head.extend_from_slice(entry);
            }
            (entry, head) => *head = entry.map(|(entry, _)| entry.to_vec()),
        }
        Ok(())
    }
}

impl MergedEntries {
    /// The entries of parts that are sorted each.
    pub(super) fn new(parts: Vec<Sorted>) -> Result<MergedEntries> {
        let mut entries = MergedEntries {
            parts: Vec::with_capacity(parts.len()),
            last: None,
        };
        for sorted in parts {
            let mut part = SortedPart { sorted, head: None };
            part.advance()?;
            entries.parts.push(part);
        }
        Ok(entries)
    }

    /// The least entry that is left; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        if let Some(last) = self.last.take() {
            self.parts.own_mut(last).advance()?;
        }
        let heads = self.parts.iter().map(|part| part.head.as_deref());
        let least = (heads.enumerate())
            .filter_map(|(at, head)| Some((at, head?)))
            .min_by(|(_, a), (_, b)| a.cmp(b));
        self.last = least.map(|(at, _)| at);
        Ok(least.map(|(_, head)| head))
    }
}

/// The query after it has run, and the entries of its groups.
pub(super) struct Grouped {
    pub(super) run: Run,
    pub(super) entries: Vec<Sorted>,
}

/// Groups the records of a query. Groups in memory take up to `share` bytes, and their entries as
/// many.
///
/// # Errors
/// Any read error; any error of the grouping, such as an overflow of a sum.
pub(super) fn group_records(run: Run, grouping: &Arc<Grouping>, share: usize) -> Result<Grouped> {
    let context = &run.context;
    let is_scan =
        context.plan.driver == Driver::Scan && !bodies::are_separate(&context.view.layout);
    if is_scan && !run.exhausted {
        return scan(run, grouping, share);
    }
    let store = context.view.dataset.store.clone();
    let stop = context.view.snapshot.cost();
    let mut groups = Groups::new(grouping.clone());
    let mut spill = Spill::new(&store.group, share);
    let run = bulk::visit_run(run, BulkOrder::Any, &mut |record| {
        groups.add_each(record.json(), &mut |groups| -> Result<()> {
            // A record may belong to so many groups that they fill the disk.
            stop.check()?;
            spill.bound(groups, share)
        })?;
        Ok(ControlFlow::Continue(()))
    })?;
    spill.take(&mut groups)?;
    let entries = vec![spill.finish()?];
    Ok(Grouped { run, entries })
}

/// Groups the records of a scan, in parallel.
fn scan(mut run: Run, grouping: &Arc<Grouping>, share: usize) -> Result<Grouped> {
    let parts = parts(&run)?;
    let context = &run.context;
    let task = ScanTask {
        view: &context.view,
        compiled: &context.compiled,
        grouping,
        share: share / parts.len(),
        has_failed: &AtomicBool::new(false),
    };
    let results = parallel::each(&parts, &|keys| task.scan(keys));
    let (mut entries, mut first_error) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(scanned) => {
                run.steps.candidates += scanned.steps.scanned;
                run.steps.scanned += scanned.steps.scanned;
                run.steps.answers += scanned.steps.answers;
                run.context.costs.data.absorb(&scanned.cost);
                entries.extend(scanned.entries);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    run.exhausted = true;
    match first_error {
        Some(error) => Err(error),
        None => Ok(Grouped { run, entries }),
    }
}

/// The keys of each part; at least one.
fn parts(run: &Run) -> Result<Vec<KeySpans>> {
    let context = &run.context;
    let keys = &context.compiled.keys;
    let threads = if keys.is_all() {
        Threads::of(&context.view.dataset.store.group)
    } else {
        Threads::One
    };
    let ranges = parallel::ranges(threads, &context.components, MIN_ENTRIES, None)?;
    if ranges.len() == 1 {
        return Ok(vec![keys.clone()]);
    }
    let spans = ranges.into_iter().map(|range| (range.lo, range.hi));
    Ok(spans.map(KeySpans::of_span).collect())
}

/// The scan of the records, shared by the threads that scan its parts.
#[derive(Clone, Copy)]
struct ScanTask<'a> {
    view: &'a View,
    compiled: &'a Compiled,
    grouping: &'a Arc<Grouping>,
    /// The bytes of groups, and of entries, that each part may hold.
    share: usize,
    /// Set when a part fails, so that the others end.
    has_failed: &'a AtomicBool,
}

/// The result of a part.
struct Scanned {
    steps: Steps,
    cost: Cost,
    /// The entries of its groups; `None` if another part has failed.
    entries: Option<Sorted>,
}

/// Why the groups of a record are not complete.
enum Ended {
    /// Another part has failed.
    Elsewhere,
    Failed(Error),
}

impl ScanTask<'_> {
    /// Scans a part. Its failure ends the other parts.
    fn scan(&self, keys: &KeySpans) -> Result<Scanned> {
        let scanned = self.scan_keys(keys);
        if scanned.is_err() {
            self.has_failed.store(true, Relaxed);
        }
        scanned
    }

    fn scan_keys(&self, keys: &KeySpans) -> Result<Scanned> {
        let view = self.view;
        let admission = Admission::of_all(view, self.compiled);
        let mut steps = Steps::default();
        let mut groups = Groups::new(self.grouping.clone());
        let mut spill = Spill::new(&view.dataset.store.group, self.share);
        let stop = view.snapshot.cost();
        // A record may belong to so many groups that they fill the disk.
        let mut after_each = |groups: &mut Groups| {
            if self.has_failed.load(Relaxed) {
                return Err(Ended::Elsewhere);
            }
            stop.check().map_err(|error| Ended::Failed(error.into()))?;
            spill.bound(groups, self.share).map_err(Ended::Failed)
        };
        let mut cursor = KeyCursor::new(keys, &view.snapshot, view.layout.data)?;
        while cursor.valid() && !self.has_failed.load(Relaxed) {
            steps.scanned += 1;
            if admission.decide(cursor.value())? == Decision::Admitted {
                steps.answers += 1;
                let json = RecordRef::body_of(cursor.value());
                let json = json.ok_or_else(|| Error::damaged("a stored record is malformed"))?;
                match groups.add_each(json, &mut after_each) {
                    Ok(()) => {}
                    Err(Ended::Elsewhere) => break,
                    Err(Ended::Failed(error)) => return Err(error),
                }
            }
            cursor.next()?;
        }
        let cost = cursor.cost();
        let entries = if self.has_failed.load(Relaxed) {
            None
        } else {
            spill.take(&mut groups)?;
            Some(spill.finish()?)
        };
        Ok(Scanned {
            steps,
            cost,
            entries,
        })
    }
}
