//! Scans: all records of a dataset, part by part; in an order if need be.

use std::collections::VecDeque;

use esker_coding::Seq;
use esker_model::query::Recency;

use crate::bound::Bound;
use crate::cells::{Cell, Mark};
use crate::error::Result;
use crate::hit::Hit;
use crate::pages::Pages;
use crate::ranked::{FirstInRoom, ROOM};
use crate::rows::Version;
use crate::shared::Shared;
use crate::view::View;

/// The most rows of a page.
const PAGE: usize = 1000;

/// The order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sorted {
    /// As the partitions come.
    No,
    /// By timestamp.
    ByTime(Recency),
    /// By key, ascending or descending.
    ByKey { reverse: bool },
}

/// The place of an answer in an order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Time(u64),
    Key(Vec<u8>),
    /// Of a descending order: greater keys come first.
    Reversed(std::cmp::Reverse<Vec<u8>>),
}

/// A place in a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The last partition whose answer is known: it may continue on the next page.
    pub(crate) last: Option<Vec<u8>>,
    /// The next page; `None` for the first.
    pub(crate) mark: Option<Mark>,
}

/// A scan.
pub(crate) struct Scan {
    sorted: Sorted,
    view: View,
    keys_only: bool,
    /// Keys from the first on, before the second.
    span: (Vec<u8>, Option<Vec<u8>>),
    behind: Option<Rank>,
    is_end: bool,
    /// Of a scan without an order: where it is.
    part: u32,
    mark: Option<Mark>,
    pages: Pages,
    /// The last partition of the last page whose answer is known.
    last: Option<Vec<u8>>,
    /// The last partition with a version that is newer than the view.
    changed: Option<Vec<u8>>,
    /// Keys that were read.
    pub(crate) keys: u64,
}

impl Scan {
    fn new(sorted: Sorted, view: View) -> Scan {
        Scan {
            sorted,
            view,
            keys_only: false,
            span: (Vec::new(), None),
            behind: None,
            is_end: false,
            part: 0,
            mark: None,
            pages: Pages::of(PAGE),
            last: None,
            changed: None,
            keys: 0,
        }
    }

    /// By timestamp, behind `after`.
    pub(crate) fn in_order(
        order: Recency,
        view: View,
        after: Option<Seq>,
        keys_only: bool,
    ) -> Scan {
        Scan {
            behind: after.map(|after| Rank::Time(order.rank(after))),
            keys_only,
            ..Scan::new(Sorted::ByTime(order), view)
        }
    }

    /// In no order.
    pub(crate) fn unordered(view: View) -> Scan {
        Scan::new(Sorted::No, view)
    }

    /// In no order, from a place on ([`Scan::place`]).
    pub(crate) fn from_place(view: View, part: u32, place: Place) -> Scan {
        Scan {
            part,
            mark: place.mark,
            last: place.last,
            ..Scan::new(Sorted::No, view)
        }
    }

    /// The part that the next page belongs to, and the place in it.
    pub(crate) fn place(&self) -> (u32, Place) {
        let (last, mark) = (self.last.clone(), self.mark.clone());
        (self.part, Place { last, mark })
    }

    /// By key, from `lo` on, before `hi`.
    pub(crate) fn by_key(lo: Vec<u8>, hi: Option<Vec<u8>>, reverse: bool, view: View) -> Scan {
        Scan {
            span: (lo, hi),
            ..Scan::new(Sorted::ByKey { reverse }, view)
        }
    }

    /// The next answers: the newest versions that `confirm` accepts; `None` at the end.
    pub(crate) fn next(
        &mut self,
        shared: &Shared,
        bound: &Bound,
        confirm: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<VecDeque<Hit>>> {
        if self.sorted == Sorted::No {
            return self.page(shared, bound, confirm);
        }
        if self.is_end {
            return Ok(None);
        }
        (self.part, self.mark, self.last, self.changed) = (0, None, None, None);
        let mut first = FirstInRoom::new(ROOM);
        while let Some(hits) = self.page(shared, bound, confirm)? {
            for hit in hits {
                let rank = self.rank(&hit);
                if self.behind.as_ref().is_some_and(|behind| rank <= *behind) {
                    continue;
                }
                first.add(rank, hit.stored.len() + hit.key.len(), hit);
            }
        }
        self.is_end = !first.is_cut();
        let mut hits = VecDeque::new();
        for (rank, hit) in first.finish() {
            self.behind = Some(rank);
            hits.push_back(hit);
        }
        Ok(Some(hits))
    }

    fn rank(&self, hit: &Hit) -> Rank {
        match self.sorted {
            Sorted::ByKey { reverse: false } => Rank::Key(hit.key.clone()),
            Sorted::ByKey { reverse: true } => Rank::Reversed(std::cmp::Reverse(hit.key.clone())),
            Sorted::ByTime(order) => Rank::Time(order.rank(hit.at)),
            Sorted::No => Rank::Time(0),
        }
    }

    /// A page, as the partitions come.
    fn page(
        &mut self,
        shared: &Shared,
        bound: &Bound,
        confirm: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<VecDeque<Hit>>> {
        if self.part >= shared.cells.parts() {
            return Ok(None);
        }
        let (table, mark) = (&bound.data, self.mark.as_ref());
        let rows = self.pages.rows();
        let page = shared.cells.scan(table, self.part, mark, rows, false)?;
        self.pages.had_cells(&page.cells);
        // Of keys that were changed since, the former versions may be gone.
        let is_complete = self.view.holds(shared);
        self.mark = page.next;
        if self.mark.is_none() {
            self.part += 1;
        }
        let mut hits = VecDeque::new();
        for cell in page.cells {
            if self.last.as_ref() == Some(&cell.partition) {
                continue;
            }
            let version = Version::of(&cell.row)?;
            if version.at > self.view.until {
                self.changed = Some(cell.partition);
                continue;
            }
            if !is_complete && self.changed.as_ref() == Some(&cell.partition) {
                continue;
            }
            self.keys += 1;
            self.last = Some(cell.partition.clone());
            hits.extend(self.hit(version, cell, confirm));
        }
        Ok(Some(hits))
    }

    fn hit(&self, version: Version, cell: Cell, confirm: &dyn Fn(&[u8]) -> bool) -> Option<Hit> {
        let (lo, hi) = &self.span;
        let is_in = cell.partition >= *lo && hi.as_ref().is_none_or(|hi| cell.partition < *hi);
        let is_hit = is_in && !version.is_deletion && confirm(&cell.value);
        is_hit.then(|| Hit {
            at: version.at,
            key: cell.partition,
            stored: if self.keys_only {
                Vec::new()
            } else {
                cell.value
            },
        })
    }
}
