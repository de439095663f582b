//! Consumers, beside the model: programs that follow datasets by their feeds and acknowledge
//! changes in the store. Each has the contents of its dataset at the acknowledged position and
//! resumes there. So it receives each change at least once, in order, across restarts and power
//! cuts, or an error if changes are lost. The same name in two datasets means two consumers.

use std::collections::BTreeMap;

use esker::{Database, ErrorKind, Position};

use crate::feed::{Copy, expired};
use crate::runner::count;
use crate::world::{Store, Uid, World};

/// The limits on the bytes of log that are kept for a consumer.
pub(crate) const BOUNDS: [u64; 5] = [u64::MAX, u64::MAX, 0, 4 << 10, 64 << 10];

/// The bytes of a log segment besides the appended records.
const SEGMENT: u64 = 200;

const NAMES: [&str; 2] = ["mirror", "mailer"];

pub(crate) fn name(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

/// The acknowledged state of a consumer: its copy of the dataset and its limit.
#[derive(Clone)]
struct Noted {
    copy: Copy,
    bytes: u64,
    /// True if a power cut took writes that the consumer has read, or if it belongs to the store
    /// from which this one was copied.
    lost: bool,
}

impl Noted {
    fn position(&self) -> Position {
        self.copy.from.position
    }
}

/// The consumers of a store.
#[derive(Clone, Default)]
pub(crate) struct Consumers {
    /// The possible states of each consumer, by dataset and name: several if calls failed. The last
    /// is the one that the store reports.
    all: BTreeMap<(Uid, &'static str), Vec<Option<Noted>>>,
}

impl Consumers {
    /// The consumers of a copy of the store, each of which may be missing there. Positions of the
    /// original store are invalid there.
    pub(crate) fn copied(&self) -> Consumers {
        let mut copied = self.clone();
        for may in copied.all.values_mut() {
            for noted in may.iter_mut().flatten() {
                noted.copy.from.life = u64::MAX;
            }
            may.insert(0, None);
        }
        copied
    }

    /// Removes the consumers of a dropped dataset.
    pub(crate) fn end(&mut self, of: Uid) {
        self.all.retain(|(uid, _), _| *uid != of);
    }

    fn get(&self, of: (Uid, &'static str)) -> Option<&Noted> {
        self.all.get(&of)?.last()?.as_ref()
    }

    /// Sets the only possible state.
    fn set(&mut self, of: (Uid, &'static str), noted: Option<Noted>) {
        self.all.insert(of, vec![noted]);
    }

    /// Adds a possible state, after a call failed that would have set it.
    fn may_be(&mut self, of: (Uid, &'static str), noted: Option<Noted>) {
        let may = self.all.entry(of).or_insert_with(|| vec![None]);
        may.insert(may.len() - 1, noted);
    }
}

/// Dataset, name, write number of the position, bytes.
type Listed = Vec<(Option<String>, String, u64, u64)>;

fn listed(db: &Database) -> esker::Result<Listed> {
    let all = db.change_consumers()?.into_iter();
    let mut all: Listed = all
        .map(|one| (one.dataset, one.name, one.position.seq, one.keeps_bytes))
        .collect();
    all.sort();
    Ok(all)
}

impl Store {
    /// Chooses the possible states that the opened store reports. After a power cut they are final.
    pub(crate) fn adopt_consumers(&mut self, db: &Database, cut: bool) {
        self.adopt_listed(db, &listed(db).unwrap(), cut);
    }

    fn adopt_listed(&mut self, db: &Database, listed: &Listed, cut: bool) {
        let now = db.group().position();
        for ((uid, name), may) in &mut self.consumers.all {
            let Some(set) = self.sets.iter().find(|set| set.uid == *uid) else {
                continue;
            };
            let mine = |(dataset, other, ..): &&(Option<String>, String, u64, u64)| {
                dataset.as_ref() == Some(&set.name) && other == name
            };
            let found = listed.iter().find(mine);
            let found = found.map(|(.., seq, bytes)| (*seq, *bytes));
            let fits = |noted: &Option<Noted>| {
                let noted = noted.as_ref();
                noted.map(|noted| (noted.position().seq, noted.bytes)) == found
            };
            let is = may.iter().rposition(fits);
            let is = is.unwrap_or_else(|| panic!("consumer {name} of {} at {found:?}", set.name));
            let mut is = may.remove(is);
            if let Some(noted) = &mut is {
                // A copy has positions of its own history.
                noted.copy.from.position.history = now.history;
            }
            if cut {
                may.clear();
            }
            may.push(is);
            for noted in may.iter_mut().flatten() {
                noted.lost |= !noted.copy.from.is_there(now);
            }
        }
    }

    /// Checks that the store reports the acknowledged position of each consumer, or that of a
    /// failed call.
    fn compare_consumers(&mut self, db: &Database) -> esker::Result<()> {
        let listed = listed(db)?;
        if self.excused {
            self.adopt_listed(db, &listed, false);
        }
        let mut right = Listed::new();
        for ((uid, name), may) in &self.consumers.all {
            if let Some(set) = self.sets.iter().find(|set| set.uid == *uid)
                && let Some(Some(noted)) = may.last()
            {
                let (dataset, name) = (Some(set.name.clone()), (*name).to_string());
                right.push((dataset, name, noted.position().seq, noted.bytes));
            }
        }
        right.sort();
        assert_eq!(listed, right, "the consumers");
        Ok(())
    }

    /// The largest number of log bytes after a flush; `None` if it is unlimited.
    fn most_log(&self) -> Option<u64> {
        let all = self.consumers.all.values().flatten().flatten();
        let bounds = all.map(|noted| noted.bytes);
        let most = bounds.chain([self.settings.keep_log().bytes]).max()?;
        let bounded = most < u64::MAX && !self.commits.holds_log() && !self.excused;
        bounded.then(|| most + SEGMENT)
    }

    /// True if changes that a consumer has not read may have been dropped.
    fn may_have_expired(&self, noted: &Noted) -> bool {
        let Some(db) = &self.db else { return false };
        let stats = db.group().stats();
        let (from, appended) = (&noted.copy.from, stats.log_bytes);
        // If the store has written less than the limit since it was opened, the whole log of this
        // time is there.
        let all = appended + SEGMENT * (stats.flushes + 2);
        let same_life = self.here().is_some_and(|here| here.life == from.life);
        let is_kept = noted.bytes == u64::MAX || same_life && all <= noted.bytes;
        !is_kept && self.may_expire(from)
    }
}

impl World {
    /// A consumer reads at most `most` changes and acknowledges them.
    pub(crate) fn consume(
        &mut self,
        at: usize,
        set: usize,
        name: &'static str,
        bytes: u8,
        most: Option<u64>,
    ) {
        let store = &self.stores[at];
        let (Some(db), Some(here)) = (store.db.clone(), store.here()) else {
            return;
        };
        if store.is_unsure {
            return;
        }
        let compared = self.stores[at].compare_consumers(&db);
        if self.decide(at, compared, &[]).is_none() {
            return;
        }
        let store = &self.stores[at];
        let known = &store.sets[set];
        let of = (known.uid, name);
        let dataset = db.dataset::<esker::Key>(&known.name).unwrap();
        let acted = expired(&store.acted, of.0);
        let bytes = BOUNDS[usize::from(bytes) % BOUNDS.len()];
        let noted = store.consumers.get(of).cloned();
        let Some(now) = self.present(at, set, &dataset) else {
            return;
        };
        let new = Noted {
            copy: Copy {
                from: here,
                rows: now.clone(),
            },
            bytes,
            lost: false,
        };
        let Some(mut noted) = noted else {
            count("consumer: new");
            return self.note_consumer(at, of, new);
        };
        let said = self.decide(at, dataset.change_consumer(name), &[]);
        let Some(said) = said else { return };
        let said = said.unwrap().position;
        assert_eq!(said.seq, noted.position().seq, "the place of {name}");
        let read = if noted.lost {
            dataset.changes(said).map(|_| 0)
        } else {
            noted.copy.from.position = said;
            let most = most.unwrap_or(u64::MAX);
            noted.copy.follow(&dataset, &acted, most)
        };
        let store = &self.stores[at];
        match read {
            Err(error) if error.kind() == ErrorKind::PositionExpired => {
                let may = store.may_have_expired(&noted);
                assert!(may, "{name}, of {} bytes: {error}", noted.bytes);
                let again = dataset.keep_changes_for(name, said, bytes);
                let kind = again.map_err(|error| error.kind());
                assert!(kind == Err(ErrorKind::PositionExpired) || store.excused);
                count("consumer: came too late");
                self.note_consumer(at, of, new);
            }
            Err(error) if error.kind() == ErrorKind::OtherHistory => {
                assert!(noted.lost, "{name}: {error}");
                count("consumer: read what is lost");
                self.note_consumer(at, of, new);
            }
            read => {
                let Some(read) = self.decide(at, read, &[]) else {
                    return;
                };
                assert!(!noted.lost, "{name} goes on behind what is lost");
                if most.is_none_or(|most| read < most) {
                    assert_eq!(noted.copy.rows, now, "what {name} has after {read}");
                    noted.copy.from = here;
                }
                count(match read {
                    0 => "consumer: read nothing",
                    _ => "consumer: read changes",
                });
                noted.bytes = bytes;
                self.note_consumer(at, of, noted);
            }
        }
    }

    fn note_consumer(&mut self, at: usize, of: (Uid, &'static str), noted: Noted) {
        let store = &self.stores[at];
        let set = store.sets.iter().find(|set| set.uid == of.0).unwrap();
        // In every second case, a separate read-only handle acknowledges. If calls fail, only the
        // writer may know the acknowledged writes.
        let is_beside = noted.position().seq % 2 == 1 && !store.excused && self.depth == 0;
        let result = if is_beside {
            store.open_reader().and_then(|reader| {
                count("consumer: noted beside the writer");
                let dataset = reader.dataset::<esker::Key>(&set.name)?;
                dataset.keep_changes_for(of.1, noted.position(), noted.bytes)
            })
        } else {
            let dataset = store.handle(&set.name).unwrap();
            dataset.keep_changes_for(of.1, noted.position(), noted.bytes)
        };
        let done = self.decide(at, result, &[]).is_some();
        let consumers = &mut self.stores[at].consumers;
        if done {
            consumers.set(of, Some(noted))
        } else {
            consumers.may_be(of, Some(noted))
        }
    }

    /// Flushes, and checks that no more log is kept than consumers need.
    pub(crate) fn flush(&mut self, at: usize) {
        let flushes = |world: &World| {
            let db = world.stores[at].db.as_ref();
            db.map(|db| db.group().stats().flushes)
        };
        let before = flushes(self);
        self.on_store(at, true, &[], |db| db.flush());
        let store = &self.stores[at];
        if flushes(self) != before
            && let Some(most) = store.most_log()
        {
            let group = store.db.as_ref().unwrap().group();
            let there = group.log_bytes_behind(group.oldest_position());
            assert!(there <= most, "{there} bytes of log, and {most} are kept");
            count("log: bounded");
        }
    }

    /// Releases a consumer.
    pub(crate) fn forget(&mut self, at: usize, set: usize, name: &'static str) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let compared = self.stores[at].compare_consumers(&db);
        if self.decide(at, compared, &[]).is_none() {
            return;
        }
        let store = &self.stores[at];
        let of = (store.sets[set].uid, name);
        let was = store.consumers.get(of).is_some();
        let result = store
            .handle(&store.sets[set].name)
            .unwrap()
            .release_changes(name);
        let released = self.decide(at, result, &[]);
        let store = &mut self.stores[at];
        let Some(released) = released else {
            return store.consumers.may_be(of, None);
        };
        assert_eq!(released, was, "{name} was known");
        store.consumers.set(of, None);
        if released {
            count("consumer: forgotten");
        }
    }

    /// Each consumer reads all its changes.
    pub(crate) fn all_consume(&mut self, at: usize) {
        for set in 0..self.stores[at].sets.len() {
            for name in NAMES {
                let of = (self.stores[at].sets[set].uid, name);
                if self.stores[at].consumers.get(of).is_some() {
                    self.consume(at, set, name, 0, None);
                }
            }
        }
    }
}
