//! The times that a table covers: walks skip tables of other times without reading them.
//!
//! The zone maps of a table have the least and the greatest time of its publications, and of the
//! intervals of its subscriptions. They are exact for their table, even if clocks stepped back. A
//! tombstone has the times of its target, so a walk of these times reads both.

use esker::extension::attributes::{Extractor, Summary};
use esker::extension::{Snapshot, TableMeta};

use crate::forms::element::{ElementTimes, Elements, Tick, Time};
use crate::forms::keys::{List, ListKey};

/// The sorts of elements, each an attribute of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementSort {
    Publications,
    Subscriptions,
}

impl ElementSort {
    const ALL: [ElementSort; 2] = [ElementSort::Publications, ElementSort::Subscriptions];

    /// The number of its attribute on disk.
    const fn id(self) -> u32 {
        match self {
            ElementSort::Publications => 1,
            ElementSort::Subscriptions => 2,
        }
    }
}

/// In the order of [`ElementSort::ALL`].
const IDS: [u32; 2] = [
    ElementSort::Publications.id(),
    ElementSort::Subscriptions.id(),
];

/// The times from `first` to `last`, both included.
#[derive(Debug, Clone, Copy)]
struct Interval {
    first: Time,
    last: Time,
}

/// The times of elements, by their sort.
#[derive(Debug, Clone, Copy, Default)]
struct Intervals {
    publications: Option<Interval>,
    subscriptions: Option<Interval>,
}

impl Intervals {
    fn of(&self, sort: ElementSort) -> Option<Interval> {
        match sort {
            ElementSort::Publications => self.publications,
            ElementSort::Subscriptions => self.subscriptions,
        }
    }
}

/// Extends an interval so that it includes the times from `from` to `to`.
fn include(interval: &mut Option<Interval>, from: Time, to: Time) {
    let before = interval.unwrap_or(Interval {
        first: from,
        last: to,
    });
    *interval = Some(Interval {
        first: before.first.min(from),
        last: before.last.max(to),
    });
}

/// Extracts the least and the greatest time of an operand, for either attribute.
pub(crate) struct ListTimes;

impl Extractor for ListTimes {
    fn ids(&self) -> &[u32] {
        &IDS
    }

    fn summary(&self, _: usize) -> Summary {
        Summary::Zones
    }

    fn extract(&self, _: &[u8], operand: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        let mut all = Intervals::default();
        for element in Elements::of(operand) {
            match element.ok().and_then(|raw| raw.times()) {
                Some(ElementTimes::Publication(time)) => include(&mut all.publications, time, time),
                Some(ElementTimes::Subscription { from, to }) => {
                    include(&mut all.subscriptions, from, to)
                }
                // A damaged element covers all times, so that a read reports it.
                None => {
                    include(&mut all.publications, Time::MIN, Time::MAX);
                    include(&mut all.subscriptions, Time::MIN, Time::MAX);
                }
            }
        }
        for (slot, sort) in ElementSort::ALL.into_iter().enumerate() {
            if let Some(Interval { first, last }) = all.of(sort) {
                emit(slot, &sortable(first));
                if last != first {
                    emit(slot, &sortable(last));
                }
            }
        }
    }
}

/// Encodes a time so that the encodings sort as the times do.
fn sortable(time: Time) -> [u8; 8] {
    (time as u64 ^ 1 << 63).to_be_bytes()
}

/// The time that [`sortable`] encoded; `None` if the bytes are no encoded time.
fn from_sortable(bytes: &[u8]) -> Option<Time> {
    let bytes = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ 1 << 63) as Time)
}

/// Converts a time of the broker, with `resolution` units per millisecond (at least one), to the
/// store's clock in milliseconds. Rounds down; 0 for times before 1970.
pub(crate) fn tick(time: Time, resolution: u32) -> Tick {
    time.div_euclid(i64::from(resolution)).max(0) as Tick
}

/// Selects the elements that a walk needs, by their times.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeFilter {
    /// All elements: no table is skipped.
    Everything,
    Within(NeededTimes),
}

/// The times of the elements that a walk needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeededTimes {
    intervals: Intervals,
    /// That of the broker.
    resolution: u32,
}

impl TimeFilter {
    /// No elements, for a broker with this resolution.
    pub(crate) fn nothing(resolution: u32) -> TimeFilter {
        TimeFilter::Within(NeededTimes {
            intervals: Intervals::default(),
            resolution,
        })
    }

    /// Adds publications with times from `from` to `to`.
    pub(crate) fn with_publications(mut self, from: Time, to: Time) -> TimeFilter {
        if let TimeFilter::Within(needed) = &mut self {
            needed.intervals.publications = Some(Interval {
                first: from,
                last: to,
            });
        }
        self
    }

    /// Adds subscriptions whose interval overlaps that from `from` to `to`.
    pub(crate) fn with_subscriptions(mut self, from: Time, to: Time) -> TimeFilter {
        if let TimeFilter::Within(needed) = &mut self {
            needed.intervals.subscriptions = Some(Interval {
                first: from,
                last: to,
            });
        }
        self
    }

    /// False if a table has no needed element by its metadata: of `list` (a key), or, without
    /// `list`, of any list. If the reason is that its elements have ended, the snapshot records the
    /// time, as a read would.
    pub(crate) fn may_be_in(
        &self,
        table: &TableMeta,
        snapshot: &Snapshot,
        list: Option<&[u8]>,
    ) -> bool {
        let TimeFilter::Within(needed) = self else {
            return true;
        };
        if table.is_expired(snapshot.time()) {
            return !table
                .expiry
                .is_some_and(|all| snapshot.has_expired(all.max));
        }
        let mut sorts = needed.sorts(list).into_iter().flatten();
        sorts.any(|sort| needed.may_have(sort, table, snapshot))
    }
}

impl NeededTimes {
    /// The sorts of elements that decide whether a table may have needed elements of a list.
    fn sorts(&self, list: Option<&[u8]>) -> [Option<ElementSort>; 2] {
        let both = ElementSort::ALL.map(Some);
        let needs_both =
            self.intervals.publications.is_some() && self.intervals.subscriptions.is_some();
        match list {
            // A list has elements of one sort only. A walk that needs one sort names no list of the
            // other.
            Some(key) if needs_both => match ListKey::parse(key).map(|key| key.list) {
                Ok(List::Publications) => [Some(ElementSort::Publications), None],
                Ok(List::Subscriptions(..)) => [None, Some(ElementSort::Subscriptions)],
                // A walk that meets it reports it.
                Err(_) => both,
            },
            _ => both,
        }
    }

    /// False if a table has no needed element of a sort, by its zone map.
    fn may_have(&self, sort: ElementSort, table: &TableMeta, snapshot: &Snapshot) -> bool {
        let Some(needed) = self.intervals.of(sort) else {
            return false;
        };
        // A bound that is missing or cannot be decoded excludes nothing.
        let bound = |bytes: &[u8], unknown| from_sortable(bytes).unwrap_or(unknown);
        let stored = match table.zones.iter().find(|(id, _)| *id == sort.id()) {
            // The table was written before tables recorded times.
            None => return true,
            Some((_, None)) => return false,
            Some((_, Some((least, greatest)))) => Interval {
                first: bound(least, Time::MIN),
                last: greatest
                    .as_ref()
                    .map_or(Time::MAX, |bytes| bound(bytes, Time::MAX)),
            },
        };
        if stored.last < needed.first && sort == ElementSort::Subscriptions {
            snapshot.has_expired(tick(stored.last.saturating_add(1), self.resolution));
        }
        stored.first <= needed.last && stored.last >= needed.first
    }
}
