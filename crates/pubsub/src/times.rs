//! The times that tables are about: walks skip those that are about others, without reading them.
//!
//! A table's zone maps have the least and the greatest time of all its publications, and of all intervals that its subscriptions
//! ask for. They are exact for their table, whatever clocks did. What makes a publication or a subscription void counts with
//! the times of that one, so that both are skipped together or neither is.

use esker::extension::attributes::{Extractor, Summary};
use esker::extension::{Snapshot, TableMeta, Time as Tick};

use crate::element::{Elements, Time, Times};
use crate::keys::{List, ListKey};

/// The numbers of the attributes on disk: times of publications, and of subscriptions.
const IDS: [u32; 2] = [1, 2];
const PUBLICATIONS: usize = 0;
const SUBSCRIPTIONS: usize = 1;

/// From, and to, both included.
type Interval = (Time, Time);

/// Extracts the times of an operand: of either attribute the least and the greatest.
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
                // Damage is about every time, so that a read reports it.
                None => (PUBLICATIONS..=SUBSCRIPTIONS, (Time::MIN, Time::MAX)),
            };
            for bounds in all.get_mut(slots).unwrap_or_default() {
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

/// A time as bytes that sort as it does.
fn sortable(time: Time) -> [u8; 8] {
    (time as u64 ^ 1 << 63).to_be_bytes()
}

fn from_sortable(bytes: &[u8]) -> Option<Time> {
    let bytes = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ 1 << 63) as Time)
}

/// The time of the store's clock at a time of the broker.
pub(crate) fn tick(time: Time, resolution: u32) -> Tick {
    time.div_euclid(i64::from(resolution.max(1))).max(0) as Tick
}

/// The elements that a walk is for, by the times that they are about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    intervals: [Option<Interval>; 2],
    resolution: u32,
    /// Whatever the time is.
    is_everything: bool,
}

impl Wanted {
    /// Nothing yet, for a broker with this resolution.
    pub(crate) fn nothing(resolution: u32) -> Wanted {
        Wanted {
            intervals: [None; 2],
            resolution,
            is_everything: false,
        }
    }

    /// Everything: no table is skipped.
    pub(crate) fn everything() -> Wanted {
        Wanted {
            is_everything: true,
            ..Wanted::nothing(1)
        }
    }

    /// Publications from one time to another, too.
    pub(crate) fn publications(mut self, from: Time, to: Time) -> Wanted {
        self.intervals[PUBLICATIONS] = Some((from, to));
        self
    }

    /// Subscriptions that ask for some time from one to another, too.
    pub(crate) fn subscriptions(mut self, from: Time, to: Time) -> Wanted {
        self.intervals[SUBSCRIPTIONS] = Some((from, to));
        self
    }

    /// False when a table has nothing that is wanted, by its metadata: of the list with this key, or of any. Where that is because
    /// it has ended, this is written down, as if it had been read.
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

    /// Whose times say whether a table has something of a list.
    fn slots(&self, list: Option<&[u8]>) -> [Option<usize>; 2] {
        let both = [Some(PUBLICATIONS), Some(SUBSCRIPTIONS)];
        match (self.intervals, list) {
            // A list has either, and who wants one sort has named no list of the other.
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
            // It was built when nobody took times down.
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
