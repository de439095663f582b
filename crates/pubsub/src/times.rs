//! The times that a table covers: walks skip tables of other times without reading them.
//!
//! The zone maps of a table have the least and the greatest time of its publications, and of the
//! intervals of its subscriptions. They are exact for their table, even if clocks stepped back. A
//! tombstone has the times of its target, so a walk of these times reads both.

use esker::extension::attributes::{Extractor, Summary};
use esker::extension::{Snapshot, TableMeta, Time as Tick};
use esker_coding::Own;

use crate::element::{Elements, Time, Times};
use crate::keys::{List, ListKey};

/// The ids of the attributes on disk: times of publications, times of subscriptions.
const IDS: [u32; 2] = [1, 2];
const PUBLICATIONS: usize = 0;
const SUBSCRIPTIONS: usize = 1;

/// Both ends are included.
type Interval = (Time, Time);

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
        let mut all: [Option<Interval>; 2] = [None; 2];
        for element in Elements::of(operand) {
            let times = element.ok().and_then(|(raw, _)| raw.times());
            let (slots, (from, to)) = match times {
                Some(Times::Publication(time)) => (PUBLICATIONS..=PUBLICATIONS, (time, time)),
                Some(Times::Subscription(from, to)) => (SUBSCRIPTIONS..=SUBSCRIPTIONS, (from, to)),
                // A damaged element covers all times, so that a read reports it.
                None => (PUBLICATIONS..=SUBSCRIPTIONS, (Time::MIN, Time::MAX)),
            };
            for bounds in all.own_mut(slots) {
                let (least, greatest) = bounds.unwrap_or((from, to));
                *bounds = Some((least.min(from), greatest.max(to)));
            }
        }
        for (slot, bounds) in all.into_iter().enumerate() {
            if let Some((least, greatest)) = bounds {
                emit(slot, &sortable(least));
                if greatest != least {
                    emit(slot, &sortable(greatest));
                }
            }
        }
    }
}

/// Encodes a time so that the encodings sort as the times do.
fn sortable(time: Time) -> [u8; 8] {
    (time as u64 ^ 1 << 63).to_be_bytes()
}

fn from_sortable(bytes: &[u8]) -> Option<Time> {
    let bytes = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ 1 << 63) as Time)
}

/// Converts a time of the broker to the store's clock.
pub(crate) fn tick(time: Time, resolution: u32) -> Tick {
    time.div_euclid(i64::from(resolution.max(1))).max(0) as Tick
}

/// The elements that a walk needs, by their times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    intervals: [Option<Interval>; 2],
    resolution: u32,
    /// The walk needs elements of all times.
    is_everything: bool,
}

impl Wanted {
    /// No elements, for a broker with this resolution.
    pub(crate) fn nothing(resolution: u32) -> Wanted {
        Wanted {
            intervals: [None; 2],
            resolution,
            is_everything: false,
        }
    }

    /// All elements: no table is skipped.
    pub(crate) fn everything() -> Wanted {
        Wanted {
            is_everything: true,
            ..Wanted::nothing(1)
        }
    }

    /// Adds publications with times from `from` to `to`.
    pub(crate) fn publications(mut self, from: Time, to: Time) -> Wanted {
        self.intervals[PUBLICATIONS] = Some((from, to));
        self
    }

    /// Adds subscriptions whose interval overlaps that from `from` to `to`.
    pub(crate) fn subscriptions(mut self, from: Time, to: Time) -> Wanted {
        self.intervals[SUBSCRIPTIONS] = Some((from, to));
        self
    }

    /// False if, by its metadata, a table has no needed element: of the list with this key, or of
    /// any list. If the reason is that its elements have ended, the snapshot records the time, as a
    /// read would.
    pub(crate) fn may_be_in(
        &self,
        table: &TableMeta,
        snapshot: &Snapshot,
        list: Option<&[u8]>,
    ) -> bool {
        if self.is_everything {
            return true;
        }
        if table.is_expired(snapshot.time()) {
            return !table
                .expiry
                .is_some_and(|all| snapshot.has_expired(all.max));
        }
        let mut slots = self.slots(list).into_iter().flatten();
        slots.any(|slot| self.may_have(slot, table, snapshot))
    }

    /// The attributes that decide whether a table may have needed elements of a list.
    fn slots(&self, list: Option<&[u8]>) -> [Option<usize>; 2] {
        let both = [Some(PUBLICATIONS), Some(SUBSCRIPTIONS)];
        match (self.intervals, list) {
            // A list has elements of one sort only. A walk that needs one sort names no list of the
            // other.
            ([Some(_), Some(_)], Some(key)) => match ListKey::parse(key).map(|key| key.list) {
                Some(List::Publications) => [Some(PUBLICATIONS), None],
                Some(List::Subscriptions(..)) => [None, Some(SUBSCRIPTIONS)],
                None => both,
            },
            _ => both,
        }
    }

    fn may_have(&self, slot: usize, table: &TableMeta, snapshot: &Snapshot) -> bool {
        let (Some(id), Some(Some((from, to)))) = (IDS.get(slot), self.intervals.get(slot)) else {
            return false;
        };
        let zone = match table.zones.iter().find(|(of, _)| of == id) {
            // The table was written before tables recorded times.
            None => return true,
            Some((_, None)) => return false,
            Some((_, Some(zone))) => zone,
        };
        let bound = |bytes: &[u8], unknown| from_sortable(bytes).unwrap_or(unknown);
        let least = bound(&zone.0, Time::MIN);
        let greatest = zone
            .1
            .as_ref()
            .map_or(Time::MAX, |max| bound(max, Time::MAX));
        if greatest < *from && slot == SUBSCRIPTIONS {
            snapshot.has_expired(tick(greatest.saturating_add(1), self.resolution));
        }
        least <= *to && greatest >= *from
    }
}
