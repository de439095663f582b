//! Work on the keys of a tree, split into ranges that several threads read at a time.
//!
//! Ranges begin where partitions of tables begin, so that no key is read to find them, and have
//! about as many partitions each. In a store without threads there is one range.

use esker_lsm::{Component, Group};

use crate::error::Result;

/// The number of entries from which a thread is worth its start.
pub(super) const MIN_ENTRIES: u64 = 8 << 10;

/// The most ranges of a query, which share its memory.
const MAX_RANGES: usize = 8;

/// The keys from `lo` on, and before `hi` if there is one.
pub(super) struct KeyRange {
    pub(super) lo: Vec<u8>,
    pub(super) hi: Option<Vec<u8>>,
}

/// How many threads may read for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    /// As many as the machine has cores, up to [`MAX_RANGES`].
    Several,
    /// The caller's alone.
    One,
}

impl Threads {
    /// Those of a store: one, if it was opened without background threads.
    pub(super) fn of(group: &Group) -> Threads {
        if group.options().background {
            Threads::Several
        } else {
            Threads::One
        }
    }
}

/// Splits the keys before `hi`, or all, into ascending, adjacent ranges of about `min_entries`
/// entries at least, one at most for each thread. Opens no table if there is one thread.
///
/// # Errors
/// Any error of opening a table.
pub(super) fn ranges(
    threads: Threads,
    components: &[Component],
    min_entries: u64,
    hi: Option<Vec<u8>>,
) -> Result<Vec<KeyRange>> {
    let entries: u64 = components.iter().map(Component::entries).sum();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let wanted = cores.min(MAX_RANGES).min((entries / min_entries) as usize);
    let mut cuts = Vec::new();
    if threads == Threads::Several && wanted > 1 {
        cuts = Component::cuts_of_all(components, wanted)?;
    }
    cuts.retain(|cut| hi.as_ref().is_none_or(|hi| cut < hi));
    debug_assert!(cuts.is_sorted(), "ranges are ascending");
    let mut ranges = Vec::with_capacity(cuts.len() + 1);
    let mut lo = Vec::new();
    for cut in cuts {
        let next = cut.clone();
        ranges.push(KeyRange {
            lo: std::mem::replace(&mut lo, next),
            hi: Some(cut),
        });
    }
    ranges.push(KeyRange { lo, hi });
    Ok(ranges)
}

/// Does the work of each range, the first one in this thread, and returns the results in order.
pub(super) fn each<P: Sync, T: Send>(
    ranges: &[P],
    work: &(dyn Fn(&P) -> Result<T> + Sync),
) -> Vec<Result<T>> {
    let [first, others @ ..] = ranges else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let start = |range| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || work(range));
            (range, thread)
        };
        let others: Vec<_> = others.iter().map(start).collect();
        let mut results = vec![work(first)];
        for (range, thread) in others {
            results.push(match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| {
                    std::panic::resume_unwind(panic);
                }),
                // If no thread could be started, this one does its work.
                Err(_) => work(range),
            });
        }
        results
    })
}
