//! What a query sees: the records as of its start.
//!
//! For each key the newest version that is not newer than `until` counts. Repairs remove versions,
//! one by one and in any order, but none that was current less than [`VIEW`](crate::time::VIEW)
//! ago. So what a read shows of the past is right for that long. A query that runs on reads the
//! versions as they are then, and counts every key that was written since its start as hidden by
//! that write.

use esker_coding::Seq;

use crate::bound::Bound;
use crate::cells::{Cell, Read};
use crate::error::Result;
use crate::rows::Version;
use crate::shared::Shared;
use crate::time::{CLOCK_BOUND, STAMP_LEAD, VIEW, millis, stamp};

/// The newest version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) at: Seq,
    /// The stored form of the record; `None` for a deletion.
    pub(crate) record: Option<Vec<u8>>,
}

/// What a query sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// Writes up to this timestamp.
    pub(crate) until: Seq,
    /// By the steady clock: what is read later may lack versions of the past.
    end: u64,
}

impl View {
    /// All writes that were acknowledged before this call.
    pub(crate) fn now(shared: &Shared) -> Result<View> {
        // Other writers' clocks may be ahead of this one.
        let until = stamp(shared.checked_wall()? + STAMP_LEAD);
        View::at(shared, until.min(esker_coding::MAX_SEQ))
    }

    /// Writes up to a timestamp.
    pub(crate) fn at(shared: &Shared, until: Seq) -> Result<View> {
        let now = shared.clocks().steady();
        let left = (millis(until) + VIEW).saturating_sub(shared.checked_wall()? + CLOCK_BOUND);
        let end = now.saturating_add(left);
        Ok(View { until, end })
    }

    /// True if what was read before this call is complete.
    pub(crate) fn holds(&self, shared: &Shared) -> bool {
        shared.clocks().steady() < self.end
    }

    /// The records as they are.
    pub(crate) const LATEST: View = View {
        until: Seq::MAX,
        end: u64::MAX,
    };

    /// Reads versions of keys: for each key at most `most`, newest first; without those that are
    /// newer than the view, as long as it holds.
    pub(crate) fn read(
        &self,
        shared: &Shared,
        bound: &Bound,
        keys: &[&[u8]],
        most: usize,
        rows_only: bool,
    ) -> Vec<Result<Vec<Cell>>> {
        let reads = |until: Seq| -> Vec<Read> {
            let read = |key: &&[u8]| bound.versions_of(key, until, most, rows_only);
            keys.iter().map(read).collect()
        };
        if self.holds(shared) {
            let found = shared.cells.read(reads(self.until));
            if self.holds(shared) {
                return found;
            }
        }
        shared.cells.read(reads(Seq::MAX))
    }

    /// The newest version of each key, a deletion, too; `None` where the view shows none.
    pub(crate) fn newest(
        &self,
        shared: &Shared,
        bound: &Bound,
        keys: &[&[u8]],
    ) -> Vec<Result<Option<Newest>>> {
        let found = self.read(shared, bound, keys, 1, false);
        let newest = found.into_iter().map(|cells| {
            let Some(cell) = cells?.pop() else {
                return Ok(None);
            };
            let Version { at, is_deletion } = Version::of(&cell.row)?;
            let record = (!is_deletion).then_some(cell.value);
            Ok((at <= self.until).then_some(Newest { at, record }))
        });
        newest.collect()
    }
}
