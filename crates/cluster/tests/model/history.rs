//! What clients did and saw, and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};

use esker_cluster::{CLOCK_BOUND, millis};

/// A key: the place of its dataset, and its number.
pub(crate) type Place = (usize, u64);

/// What a write expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Nothing,
    /// That there is no record.
    New,
    /// That the record is of the write with this timestamp.
    Of(u64),
}

/// A write: the number of it is its place.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) key: Place,
    /// `None` for a deletion.
    pub(crate) value: Option<u64>,
    pub(crate) begun: u64,
    pub(crate) acknowledged: Option<u64>,
    pub(crate) expected: Expected,
    /// When it was refused because what it expected was not so.
    pub(crate) refused: Option<u64>,
    /// The number of the write that a conditional one was decided on.
    pub(crate) before: Option<Option<u64>>,
}

/// A record that was found: its key, the number of the write, the timestamp.
pub(crate) type Found = (Place, u64, u64);

/// What a read was to show.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// The newest record of each key, if it has one of the values.
    Records { is_find: bool, full: bool },
    /// The number of such records.
    Count(u64),
    /// The latest versions of each key that have one of the values, up to a timestamp.
    Versions { most: usize, until: Option<u64> },
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    /// For the text of a failure.
    pub(crate) what: String,
    pub(crate) asked: Asked,
    pub(crate) keys: Vec<Place>,
    pub(crate) values: BTreeSet<u64>,
    pub(crate) found: Vec<Found>,
    /// For each answer its rank: they ascend.
    pub(crate) ranks: Vec<u64>,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

/// A deletion by condition.
pub(crate) struct Deletion {
    /// The number of the write.
    pub(crate) write: u64,
    /// The values that satisfy the condition.
    pub(crate) values: BTreeSet<u64>,
    /// What the client's clock is ahead.
    pub(crate) ahead: i64,
}

#[derive(Default)]
pub(crate) struct History {
    pub(crate) writes: Vec<Written>,
    pub(crate) deletions: Vec<Deletion>,
    pub(crate) answers: Vec<Answered>,
    /// What was seen to be wrong at once.
    pub(crate) wrong: Vec<String>,
}

/// The writes of a key: timestamps and numbers. A conditional write that was tried again has
/// several timestamps.
pub(crate) type Stamps = BTreeMap<Place, Vec<(u64, u64)>>;

/// A history that is looked at.
pub(crate) struct Judge<'h> {
    pub(crate) history: &'h History,
    pub(crate) stamps: &'h Stamps,
    /// Versions that the datasets keep.
    pub(crate) kept: usize,
}

impl Judge<'_> {
    pub(crate) fn all(&self) {
        assert!(self.history.wrong.is_empty(), "{:?}", self.history.wrong);
        for answer in &self.history.answers {
            self.answer(answer);
        }
        for number in 0..self.history.writes.len() as u64 {
            self.conditional(number);
        }
        self.decisions();
        for deletion in &self.history.deletions {
            self.deletion(deletion);
        }
    }

    fn write(&self, number: u64) -> &Written {
        &self.history.writes[usize::try_from(number).unwrap()]
    }

    fn of(&self, key: Place) -> &[(u64, u64)] {
        self.stamps.get(&key).map_or(&[], Vec::as_slice)
    }

    fn is_deletion(&self, number: u64) -> bool {
        self.write(number).value.is_none()
    }

    /// The last write of a key that was acknowledged before a time.
    fn last(&self, key: Place, before: u64) -> Option<(u64, u64)> {
        let is_before = |number| {
            self.write(number)
                .acknowledged
                .is_some_and(|at| at < before)
        };
        let mine = self.of(key).iter();
        mine.filter(|(_, number)| is_before(*number)).max().copied()
    }

    /// Writes that began before a time and are later than a timestamp, but for one.
    fn later(&self, key: Place, at: u64, before: u64, but: u64) -> Vec<(u64, u64)> {
        let mine = self.of(key).iter().copied();
        let is_later = |(other, number): &(u64, u64)| {
            *other > at && self.write(*number).begun < before && *number != but
        };
        mine.filter(is_later).collect()
    }

    fn answer(&self, answer: &Answered) {
        let in_order = answer.ranks.windows(2).all(|two| two[0] < two[1]);
        assert!(in_order, "not in order: {answer:?}");
        for (key, number, _) in &answer.found {
            let of = self.write(*number);
            let fits = of.value.is_some_and(|value| answer.values.contains(&value));
            assert!(of.key == *key && fits, "{of:?} does not match: {answer:?}");
        }
        match answer.asked {
            Asked::Records { is_find, full } => {
                let keys: BTreeSet<Place> = answer.found.iter().map(|(key, ..)| *key).collect();
                assert!(keys.len() == answer.found.len(), "found twice: {answer:?}");
                for key in &answer.keys {
                    self.record(answer, *key, is_find, full);
                }
            }
            Asked::Count(count) => self.count(answer, count),
            Asked::Versions { most, until } => {
                for key in &answer.keys {
                    self.versions(answer, *key, most, until);
                }
            }
        }
    }

    fn record(&self, answer: &Answered, key: Place, is_find: bool, full: bool) {
        let Some((at, last)) = self.last(key, answer.begun) else {
            return;
        };
        let found = answer.found.iter().position(|(found, ..)| *found == key);
        if let Some(place) = found {
            let (.., seq) = answer.found[place];
            assert!(seq >= at, "stale: key {key:?}: {answer:?}");
            return;
        }
        let of = self.write(last);
        let is_due = of.value.is_some_and(|value| answer.values.contains(&value));
        let later = self.later(key, at, answer.ended, last);
        let is_hidden = if is_find {
            !later.is_empty()
        } else {
            later.iter().any(|(_, number)| self.is_deletion(*number))
        };
        // Behind the last answer of a page, in its order.
        let rank = if answer.what.starts_with("oldest") {
            at
        } else {
            u64::MAX - at
        };
        let is_behind = !full && answer.ranks.last().is_some_and(|last| rank > *last);
        let mine = self.of(key);
        assert!(
            !is_due || is_hidden || is_behind,
            "not found: key {key:?} at {at}: {of:?} {answer:?} {mine:?}"
        );
    }

    fn count(&self, answer: &Answered, count: u64) {
        let (mut least, mut most) = (0, 0);
        let fits = |number| {
            let value = self.write(number).value;
            value.is_some_and(|value| answer.values.contains(&value))
        };
        for key in &answer.keys {
            let last = self.last(*key, answer.begun);
            let at = last.map_or(0, |(at, _)| at);
            if let Some((at, last)) = last
                && fits(last)
                && self.later(*key, at, answer.ended, last).is_empty()
            {
                least += 1;
            }
            let mut mine = self.of(*key).iter();
            let is_possible = mine.any(|(stamp, number)| {
                *stamp >= at && fits(*number) && self.write(*number).begun < answer.ended
            });
            most += u64::from(is_possible);
        }
        assert!(
            (least..=most).contains(&count),
            "{count} of {least} to {most} are counted: {answer:?}"
        );
    }

    /// Versions of a key. Some may be hidden by writes of unknown outcome; none by fewer writes
    /// than are kept.
    fn versions(&self, answer: &Answered, key: Place, most: usize, until: Option<u64>) {
        if let Some(until) = until {
            self.version_of_then(answer, key, until);
        }
        let until = until.unwrap_or(u64::MAX);
        let found = answer.found.iter().filter(|(of, ..)| *of == key);
        let found: Vec<u64> = found.map(|(.., seq)| *seq).collect();
        assert!(found.iter().all(|at| *at <= until), "too new: {answer:?}");
        let is_acknowledged = |number| {
            let at = self.write(number).acknowledged;
            at.is_some_and(|at| at < answer.begun)
        };
        for (at, number) in self.of(key) {
            let (at, number) = (*at, *number);
            let newer = self.later(key, at, answer.ended, number);
            let acknowledged = newer.iter().filter(|(_, number)| is_acknowledged(*number));
            let then = newer.iter().filter(|(other, _)| *other <= until).count();
            let is_deleted = newer.iter().any(|(_, number)| self.is_deletion(*number));
            let is_hidden = is_deleted || then >= most || newer.len() >= self.kept;
            let value = self.write(number).value;
            let fits = value.is_some_and(|value| answer.values.contains(&value)) && at <= until;
            if is_acknowledged(number) && fits && !is_hidden {
                assert!(
                    found.contains(&at),
                    "no version {at} of key {key:?}: {answer:?}"
                );
            }
            if found.contains(&at) {
                let acknowledged: Vec<_> = acknowledged.collect();
                let before = acknowledged.iter().filter(|(other, _)| *other <= until);
                let is_old = before.count() >= most || acknowledged.len() >= self.kept;
                let mut deletions = acknowledged.iter();
                let is_deleted = deletions.any(|(_, number)| self.is_deletion(*number));
                assert!(
                    !is_old && !is_deleted,
                    "version {at} of {key:?} is obsolete: {answer:?}"
                );
            }
        }
    }

    /// What was current at a time is shown; a read that cannot know it is refused.
    fn version_of_then(&self, answer: &Answered, key: Place, until: u64) {
        let is_known = |(at, number): &&(u64, u64)| {
            let acknowledged = self.write(*number).acknowledged;
            *at <= until && acknowledged.is_some_and(|at| at < answer.begun)
        };
        let Some((at, number)) = self.of(key).iter().filter(is_known).max() else {
            return;
        };
        let later = self.later(key, *at, answer.ended, *number);
        let numbers = later.iter().map(|(_, number)| *number).chain([*number]);
        let is_deleted = numbers.into_iter().any(|number| self.is_deletion(number));
        let is_shown = answer.found.iter().any(|(.., seq)| seq >= at);
        assert!(
            is_deleted || is_shown,
            "nothing of {until}: {at} was current: {answer:?}"
        );
    }

    /// What a conditional write expected was so if it is acknowledged, and can have been otherwise
    /// if it was refused.
    fn conditional(&self, number: u64) {
        let of = self.write(number);
        let last = self.last(of.key, of.begun);
        let at = last.map_or(0, |(at, _)| at);
        if let Some(ended) = of.acknowledged {
            match (of.expected, last) {
                (Expected::New, Some((at, last))) if !self.is_deletion(last) => {
                    let later = self.later(of.key, at, ended, number);
                    let is_deleted = later.iter().any(|(_, other)| self.is_deletion(*other));
                    assert!(is_deleted, "{of:?} inserts over write {last}");
                }
                (Expected::Of(seq), _) => {
                    assert!(at <= seq, "{of:?} was over {at}: {:?}", self.of(of.key));
                }
                _ => {}
            }
        }
        if let Some(ended) = of.refused {
            let seq = match of.expected {
                Expected::Of(seq) => seq,
                _ => 0,
            };
            let newest = self.later(of.key, seq.max(at.saturating_sub(1)), ended, number);
            let is_possible = match of.expected {
                Expected::Of(_) => !newest.is_empty(),
                _ => newest.iter().any(|(_, other)| !self.is_deletion(*other)),
            };
            assert!(is_possible, "{of:?} was refused: {:?}", self.of(of.key));
        }
    }

    /// A deletion by condition hides no record that did not satisfy it, and was acknowledged before
    /// the deletion took its timestamp.
    fn deletion(&self, of: &Deletion) {
        // At least this long ago by any clock, also if its timestamp follows another one.
        let ahead = CLOCK_BOUND as i64 * 3 + of.ahead;
        for (key, stamps) in self.stamps {
            for (at, _) in stamps.iter().filter(|(_, number)| *number == of.write) {
                let begun = millis(*at).saturating_add_signed(-ahead);
                let Some((seen, last)) = self.last(*key, begun).filter(|(seen, _)| seen < at)
                else {
                    continue;
                };
                let meets = |number: u64| {
                    let value = self.write(number).value;
                    value.is_some_and(|value| of.values.contains(&value))
                };
                let mut between = self.later(*key, seen, u64::MAX, of.write).into_iter();
                let is_hidden = between.any(|(other, number)| other < *at && meets(number));
                assert!(
                    meets(last) || self.is_deletion(last) || is_hidden,
                    "{key:?}: {at} deletes {seen}, which is of {:?}, by {:?}",
                    self.write(last),
                    of.values
                );
            }
        }
    }

    /// No two acknowledged updates were decided on the same write.
    fn decisions(&self) {
        let mut decided = BTreeMap::new();
        for (number, of) in self.history.writes.iter().enumerate() {
            let (Some(Some(before)), Some(_)) = (of.before, of.acknowledged) else {
                continue;
            };
            if let Some(other) = decided.insert(before, number) {
                panic!("writes {other} and {number} were decided on {before}");
            }
        }
    }
}
