//! Tails, beside the model: from any position seen before, a tail must return the commits
//! acknowledged since, each once, in order, and no others. It must report positions whose log is
//! gone, which a power cut took, or which belong to another store.

use std::collections::BTreeMap;

use esker::Database;
use esker_lsm::{Commit, Error, Position, Tail};

use crate::feed::Copy;
use crate::runner::count;
use crate::world::{Store, Uid, World};

/// The commits that tails of a store must return.
#[derive(Default)]
pub(crate) struct Commits {
    /// The acknowledged commits that no power cut took: the last number of each, and its first.
    made: BTreeMap<u64, u64>,
    places: Vec<Place>,
    /// Positions of writes that a power cut took, or of the store from which this one was copied.
    others: Vec<Position>,
    /// Tails that continue from check to check: one in the writer, one in a reader.
    follows: [Option<Follow>; 2],
    /// Copies of datasets that follow their change feeds.
    pub(crate) copies: BTreeMap<Uid, Copy>,
    /// The number of times that the store was opened.
    life: u64,
}

/// A position, and when it was seen.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) position: Position,
    pub(crate) life: u64,
    flushes: u64,
}

impl Place {
    /// True if a store that was opened at `now` has the position: a power cut takes the last
    /// writes.
    pub(crate) fn is_there(&self, now: Position) -> bool {
        self.position.history == now.history && self.position.seq <= now.seq
    }
}

struct Follow {
    tail: Tail,
    from: Place,
    /// True if the tail holds the log.
    held: bool,
}

impl Commits {
    /// The commits of a copy made now: positions of the original store are invalid there.
    pub(crate) fn of_a_copy(&self) -> Commits {
        let positions = self.places.iter().map(|place| place.position);
        Commits {
            others: positions.chain(self.others.iter().copied()).collect(),
            ..Commits::default()
        }
    }

    /// The store was opened at `now`: later commits are lost.
    pub(crate) fn opened(&mut self, now: Position) {
        self.life += 1;
        self.made.retain(|last, _| *last <= now.seq);
        let is_there = |place: &Place| place.is_there(now);
        self.copies.retain(|_, copy| is_there(&copy.from));
        let (there, lost) = std::mem::take(&mut self.places)
            .into_iter()
            .partition(is_there);
        self.places = there;
        self.others
            .extend(lost.into_iter().map(|place: Place| place.position));
    }

    /// True if a reader holds the log.
    pub(crate) fn holds_log(&self) -> bool {
        self.follows.iter().flatten().any(|follow| follow.held)
    }

    /// The writer is about to be closed.
    pub(crate) fn let_go(&mut self) {
        self.follows[0] = None;
    }

    /// The reader is about to be closed, or a power cut will take its files.
    pub(crate) fn lose_reader(&mut self) {
        self.follows[1] = None;
    }

    /// Compares the commits that a tail returned after `from`, with writes visible up to `upto`,
    /// with those that were made.
    fn compare(&self, from: u64, upto: u64, given: &[Commit]) {
        let mut before = from;
        for commit in given {
            let last = commit.position().seq;
            assert!(before < last, "commit {last} is given behind {before}");
            assert!(last <= upto, "commit {last} is given, and {upto} is seen");
            let next = self.made.range(last..).next();
            let first = match next {
                Some((made, first)) if *made == last => *first,
                // A failed batch may be in the log, and is acknowledged when the store is opened
                // again.
                Some((_, first)) => {
                    assert!(*first > last, "{last} is in the midst of a commit");
                    before + 1
                }
                None => before + 1,
            };
            commit.each(&mut |_, seq, _, _, _| {
                assert!((first..=last).contains(&seq), "{seq} is not of {last}");
            });
            before = last;
        }
        let made = self.made.range(..=upto).map(|(last, _)| *last);
        let made: Vec<u64> = made.filter(|last| *last > from).collect();
        let mut given = given.iter().map(|commit| commit.position().seq);
        for last in &made {
            assert!(
                given.any(|given| given == *last),
                "commit {last} is not given, of {made:?} behind {from}"
            );
        }
    }
}

impl Store {
    /// A commit was acknowledged; `first` is its first number, `last` its last one, if that is
    /// known.
    pub(crate) fn note_commit(&mut self, first: u64, last: Option<u64>) {
        let Some(here) = self.here() else { return };
        if let Some(last) = last {
            self.commits.made.insert(last, first);
        }
        self.commits.places.push(here);
    }

    pub(crate) fn here(&self) -> Option<Place> {
        let group = self.db.as_ref()?.group();
        Some(Place {
            position: group.position(),
            life: self.commits.life,
            flushes: group.stats().flushes,
        })
    }

    /// True if the log after a position may have been dropped.
    pub(crate) fn may_expire(&self, place: &Place) -> bool {
        let same = |here: Place| (here.life, here.flushes) == (place.life, place.flushes);
        let flushed = self.excused || !self.here().is_some_and(same);
        flushed && self.settings.keep_log().bytes < u64::MAX
    }
}

/// Reads a tail to its current end.
fn read(tail: &mut Tail) -> esker_lsm::Result<Vec<Commit>> {
    let mut given = Vec::new();
    while let Some(commit) = tail.next()? {
        assert_eq!(commit.position(), tail.position());
        given.push(commit);
    }
    Ok(given)
}

impl World {
    /// Checks tails of the writer, and of the reader beside it, if that is possible.
    pub(crate) fn look_at_tails(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let store = &mut self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let here = store.here().unwrap();
        let last = store.commits.places.last();
        if last.is_none_or(|last| last.position != here.position) {
            store.commits.places.push(here);
        }
        self.ask_tails(at, &db, 0, rng);
        self.look_at_feeds(at, &db, rng);
        if self.stores[at].excused || self.depth > 0 {
            return;
        }
        if let Some(reader) = self.stores[at].reader.clone() {
            self.tell(|_| "tails of a reader beside".to_string());
            self.ask_tails(at, &reader, 1, rng);
            if rng.bool() {
                self.look_at_feeds(at, &reader, rng);
            }
        }
    }

    fn ask_tails(&mut self, at: usize, db: &Database, which: usize, rng: &mut fastrand::Rng) {
        let store = &self.stores[at];
        if let Some(other) = rng.choice(&store.commits.others) {
            let refused = db.group().tail(*other).err();
            let refused_so = matches!(refused, Some(Error::OtherHistory { .. }));
            assert!(refused_so, "{other} is of another history: {refused:?}");
            count("tail: of another history");
        }
        let from = *rng.choice(&store.commits.places).unwrap();
        let mut given = self.tail_from(at, db, &from);
        if let Some(Err(oldest)) = given {
            let from = Place {
                position: oldest,
                ..from
            };
            given = self.tail_from(at, db, &from);
            assert!(!matches!(given, Some(Err(_))), "the oldest has expired");
            count("tail: expired");
        }
        if let Some(Ok(given)) = given {
            count(match (given, which) {
                (0, _) => "tail: nothing",
                (_, 0) => "tail: commits",
                (_, _) => "tail: commits, of a reader",
            });
        }
        self.follow(at, db, which, rng);
    }

    /// Reads everything after a position and compares it: returns the number of commits, or the
    /// oldest position.
    fn tail_from(
        &mut self,
        at: usize,
        db: &Database,
        from: &Place,
    ) -> Option<Result<usize, Position>> {
        let tail = db.group().tail(from.position);
        let read = tail.and_then(|mut tail| read(&mut tail));
        self.given(at, from, read)
    }

    /// Compares the commits that a tail returned after a position.
    fn given(
        &mut self,
        at: usize,
        from: &Place,
        read: esker_lsm::Result<Vec<Commit>>,
    ) -> Option<Result<usize, Position>> {
        let store = &self.stores[at];
        let upto = store.here()?.position;
        let from_seq = from.position.seq;
        if let Err(Error::PositionExpired { oldest }) = read {
            assert!(store.may_expire(from), "{from_seq} has expired");
            assert_eq!(oldest.history, upto.history);
            assert!(from_seq < oldest.seq && oldest.seq <= upto.seq);
            return Some(Err(oldest));
        }
        let given = self.decide(at, read.map_err(esker::Error::from), &[])?;
        let commits = &self.stores[at].commits;
        commits.compare(from_seq, upto.seq, &given);
        Some(Ok(given.len()))
    }

    /// Continues the tail that is read from check to check.
    fn follow(&mut self, at: usize, db: &Database, which: usize, rng: &mut fastrand::Rng) {
        let store = &mut self.stores[at];
        let here = store.here().unwrap();
        let Some(mut follow) = store.commits.follows[which].take() else {
            let tail = db.group().tail(here.position);
            let Some(mut tail) = self.decide(at, tail.map_err(esker::Error::from), &[]) else {
                return;
            };
            let held = which == 0 && rng.bool();
            if held {
                tail.hold(u64::MAX);
            }
            self.stores[at].commits.follows[which] = Some(Follow {
                tail,
                from: here,
                held,
            });
            return;
        };
        let read = read(&mut follow.tail);
        match self.given(at, &follow.from, read) {
            Some(Ok(given)) => {
                count(match given {
                    0 => "tail: goes on, nothing",
                    _ => "tail: goes on, commits",
                });
                follow.from = here;
                // Drops the tail at some point, so that some tails do not hold the log.
                let goes_on = rng.usize(0..6) > 0;
                self.stores[at].commits.follows[which] = Some(follow).filter(|_| goes_on);
            }
            Some(Err(_)) => assert!(!follow.held, "the log is kept for it"),
            None => {}
        }
    }
}
