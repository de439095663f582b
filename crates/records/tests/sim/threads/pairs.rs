//! Batches over two datasets, each of which goes on from what both had, and whoever follows their
//! changes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use esker::{Change, Changes, Database, Dataset, DatasetDef, ErrorKind, KeyType};

use super::counters::counted;
use super::{Alarm, NAMES, Shared};
use crate::common::path;

/// Two datasets whose records of a key have the same number.
pub(super) const PAIR: [&str; 2] = ["left", "right"];
const KEYS: u64 = 2;

/// Datasets whose changes are followed, by consumers of one name.
pub(super) const FOLLOWED: [&str; 3] = [NAMES[0], PAIR[0], PAIR[1]];
const MIRROR: &str = "mirror";

/// By key: the write, and the record.
type Rows = BTreeMap<String, (u64, Vec<u8>)>;

/// What a consumer made of the changes, of each dataset that is followed; it outlives the store's
/// lives.
#[derive(Default)]
pub(super) struct Copies([Mutex<Rows>; FOLLOWED.len()]);

/// The datasets and the consumers.
pub(super) fn create(db: &Database) {
    let def = DatasetDef::new(path("id"), KeyType::Int);
    db.create_dataset::<u64>(PAIR[0], def.clone().keep_old_records())
        .unwrap();
    db.create_dataset::<u64>(PAIR[1], def).unwrap();
    for name in FOLLOWED {
        let dataset = db.dataset::<esker::Key>(name).unwrap();
        let begin = db.position();
        dataset.keep_changes_for(MIRROR, begin, u64::MAX).unwrap();
    }
}

fn find(dataset: &Dataset<u64>, id: u64) -> esker::Result<Option<(u64, u64)>> {
    let found = dataset.get(id)?;
    Ok(found.map(|record| (record.seq(), counted(record.json()))))
}

/// Changes of a pair's dataset give every number of a key, in order.
struct Numbers {
    before: BTreeMap<String, u64>,
}

impl Numbers {
    fn see(&mut self, change: &Change, has_old: bool) {
        let number = counted(change.record().unwrap().json());
        let before = self.before.insert(change.key().to_string(), number);
        if let Some(before) = before {
            assert_eq!(number, before + 1, "{change:?}");
        }
        if has_old {
            let old = change.old().map(|old| counted(old.json()));
            assert_eq!(old.unwrap_or(0) + 1, number, "{change:?}");
        }
    }
}

impl Copies {
    /// Takes over a change, which it may have already.
    fn apply(&self, which: usize, change: &Change) {
        let mut rows = self.0[which].lock().unwrap();
        let key = change.key().to_string();
        match change.record() {
            Some(record) => drop(rows.insert(key, (change.seq(), record.json().to_vec()))),
            None => drop(rows.remove(&key)),
        }
    }

    fn changes(&self, dataset: &Dataset, which: usize) -> esker::Result<Changes> {
        let at = dataset.change_consumer(MIRROR)?.unwrap().position;
        if FOLLOWED[which] == PAIR[0] {
            dataset.changes(at)?.with_old()
        } else {
            dataset.changes(at)
        }
    }

    /// Reads on from what is noted until there is nothing more: then it has what the datasets have.
    pub(super) fn catch_up(&self, db: &Database) {
        for (which, name) in FOLLOWED.into_iter().enumerate() {
            let dataset = db.dataset::<esker::Key>(name).unwrap();
            let mut changes = self.changes(&dataset, which).unwrap();
            while let Some(change) = changes.next().unwrap() {
                self.apply(which, &change);
            }
            let rows = dataset.scan(..).map(|record| {
                let record = record.unwrap();
                (
                    record.key().to_string(),
                    (record.seq(), record.json().to_vec()),
                )
            });
            let rows: Rows = rows.collect();
            assert_eq!(*self.0[which].lock().unwrap(), rows, "changes of {name}");
        }
    }
}

impl Shared {
    /// Adds to a key of both datasets in one batch, if both are as they were read. What is refused
    /// was written by others.
    pub(super) fn pair(&self, db: &Database, seed: u64, added: &AtomicU64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let open = || Ok((db.dataset::<u64>(PAIR[0])?, db.dataset::<u64>(PAIR[1])?));
        let Some((left, right)) = self.decide(open(), &[]) else {
            return;
        };
        while self.goes_on() {
            let id = rng.u64(0..KEYS);
            let read = || Ok((find(&left, id)?, find(&right, id)?, find(&left, id)?));
            let Some((first, other, again)) = self.decide(read(), &[]) else {
                return;
            };
            let number = |found: Option<(u64, u64)>| found.map_or(0, |(_, number)| number);
            let between = number(first)..=number(again);
            assert!(between.contains(&number(other)), "{between:?} {other:?}");
            let mut batch = db.batch();
            for (dataset, found) in [(&left, first), (&right, other)] {
                let record = format!("{{\"id\":{id},\"n\":{}}}", number(found) + 1);
                batch.put_json(dataset, record).unwrap();
                match found {
                    Some((seq, _)) => batch.if_seq(dataset, id, seq).unwrap(),
                    None => batch.if_absent(dataset, id).unwrap(),
                };
            }
            match batch.commit() {
                Ok(()) => {
                    assert_eq!(number(first), number(other), "they were read apart");
                    added.fetch_add(1, SeqCst);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    let Some((first_now, other_now, _)) = self.decide(read(), &[]) else {
                        return;
                    };
                    assert_ne!((first, other), (first_now, other_now), "{error}");
                }
                Err(error) => {
                    self.decide(Err::<(), _>(error), &[]);
                    return;
                }
            }
        }
    }

    /// Follows the changes of a dataset, and notes now and then how far it is.
    pub(super) fn follow(&self, db: &Database, which: usize, copies: &Copies) {
        let _alarm = Alarm(self);
        let (is_pair, has_old) = (which > 0, FOLLOWED[which] == PAIR[0]);
        let Some(dataset) = self.decide(db.dataset::<esker::Key>(FOLLOWED[which]), &[]) else {
            return;
        };
        let Some(mut changes) = self.decide(copies.changes(&dataset, which), &[]) else {
            return;
        };
        let (mut before, mut read) = (changes.position().seq, 0_u64);
        let mut numbers = Numbers {
            before: BTreeMap::new(),
        };
        while self.goes_on() {
            let next = changes.wait(Duration::from_millis(2));
            let Some(change) = self.decide(next, &[]) else {
                return;
            };
            let Some(change) = change else { continue };
            assert!(before < change.seq(), "{change:?} behind {before}");
            before = change.seq();
            if is_pair {
                numbers.see(&change, has_old);
            }
            copies.apply(which, &change);
            read += 1;
            if read.is_multiple_of(16) {
                let noted = dataset.keep_changes_for(MIRROR, changes.position(), u64::MAX);
                if self.decide(noted, &[]).is_none() {
                    return;
                }
            }
        }
    }

    /// Both datasets have the same, and as many additions as were acknowledged, or a few more that
    /// closing cut off.
    pub(super) fn holds_pairs(&self, db: &Database, added: &AtomicU64, threads: u64) {
        let of = |name: &str| {
            let dataset = db.dataset::<u64>(name).unwrap();
            let numbers = (0..KEYS).map(|id| find(&dataset, id).unwrap());
            let numbers = numbers.map(|found| found.map_or(0, |(_, number)| number));
            numbers.collect::<Vec<u64>>()
        };
        let (left, right) = (of(PAIR[0]), of(PAIR[1]));
        assert_eq!(left, right, "a batch fell apart");
        let (sum, sure) = (left.iter().sum(), added.load(SeqCst));
        assert!((sure..=sure + threads).contains(&sum), "{sum}, not {sure}");
        added.store(sum, SeqCst);
    }
}
