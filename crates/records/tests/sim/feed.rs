//! Change feeds, beside the model: a copy of a dataset that follows its feed must equal the dataset
//! at every check, across restarts, power cuts, and changes of indexes and strategy.

use std::collections::BTreeMap;

use esker::{ChangeKind, Database, Dataset, ErrorKind, Position};

use crate::model::{K, Records};
use crate::runner::count;
use crate::tail::Place;
use crate::time::Acted;
use crate::world::{Uid, World};

/// Write number and body of each record, by key.
pub(crate) type Rows = BTreeMap<String, (u64, Vec<u8>)>;

/// The contents of a dataset, and the position of the next changes to apply.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) from: Place,
    pub(crate) rows: Rows,
}

fn rows(dataset: &Dataset) -> esker::Result<(u64, Rows)> {
    let snapshot = dataset.snapshot();
    let rows = snapshot.scan(..).map(|record| {
        let record = record?;
        let row = (record.seq(), record.json().to_vec());
        Ok((record.key().to_string(), row))
    });
    Ok((snapshot.seq(), rows.collect::<esker::Result<_>>()?))
}

/// The deletions of expired records, by the key and the write of the record, where their numbers
/// are known.
pub(crate) type Expired = BTreeMap<(String, u64), Option<u64>>;

pub(crate) fn expired(acted: &Acted, of: Uid) -> Expired {
    let mine = acted.iter().filter(|((uid, ..), _)| *uid == of);
    mine.map(|((_, key, seq), by)| ((key.to_string(), *seq), *by))
        .collect()
}

/// The stored records, expired or not.
fn stored(records: &Records) -> Rows {
    let body = |row: &crate::model::Row| row.put.body.clone().into_bytes();
    let rows = records.stored();
    rows.map(|(key, seq, row): (&K, _, _)| (key.to_string(), (seq, body(row))))
        .collect()
}

impl Copy {
    /// Applies at most `most` changes and returns their number. Changes of kind `Expired` must be
    /// in `acted`, by the key and the write of the record. Afterwards `from` is the position after
    /// them.
    pub(crate) fn follow(
        &mut self,
        dataset: &Dataset,
        acted: &Expired,
        most: u64,
    ) -> esker::Result<u64> {
        let mut changes = dataset.changes(self.from.position)?;
        let has_old = dataset.def().old_records;
        match dataset.changes(self.from.position)?.with_old() {
            Ok(with_old) if has_old => changes = with_old,
            Err(error) if !has_old => assert_eq!(error.kind(), ErrorKind::NoOldRecords),
            Ok(_) => panic!("old records that nobody asked for"),
            Err(error) => return Err(error),
        }
        let (mut applied, mut before) = (0, self.from.position.seq);
        while applied < most
            && let Some(change) = changes.next()?
        {
            assert!(
                change.seq() > before,
                "{} is given behind {before}",
                change.seq()
            );
            before = change.seq();
            assert!(changes.position().seq >= before);
            let key = change.key().to_string();
            let old = self.rows.get(&key).map(|(seq, _)| *seq);
            if has_old {
                let row = |old: &esker::Record| (old.seq(), old.json().to_vec());
                let given = change.old().map(row);
                assert_eq!(given.as_ref(), self.rows.get(&key), "what {key} replaced");
                if given.is_some() {
                    count("feed: old records");
                }
            }
            let acted = old.and_then(|old| acted.get(&(key, old)));
            match acted {
                None => assert_ne!(change.kind(), ChangeKind::Expired, "{change:?}"),
                Some(Some(by)) => assert_eq!(
                    change.kind() == ChangeKind::Expired,
                    *by == before,
                    "{change:?} of what expired by {by}"
                ),
                Some(None) => {}
            }
            match change.record() {
                Some(record) => {
                    assert_eq!((record.key(), record.seq()), (change.key(), before));
                    let row = (before, record.json().to_vec());
                    self.rows.insert(change.key().to_string(), row);
                }
                None => drop(self.rows.remove(&change.key().to_string())),
            }
            applied += 1;
        }
        self.from.position = changes.position();
        Ok(applied)
    }
}

impl World {
    /// The stored records of a dataset, expired or not, as a follower of its feed has them. `None`
    /// if they cannot be read.
    pub(crate) fn present(&mut self, at: usize, set: usize, dataset: &Dataset) -> Option<Rows> {
        let here = self.stores[at].here()?.position;
        let now = rows(dataset);
        let (seq, now) = self.decide(at, now, &[])?;
        assert_eq!(Position { seq, ..here }, here);
        let store = &self.stores[at];
        Some(if store.sets[set].is_timed {
            stored(&store.records(store.sets[set].uid))
        } else {
            now
        })
    }

    /// Brings the copies up to date by the feeds of `db`, and compares them with the model.
    pub(crate) fn look_at_feeds(&mut self, at: usize, db: &Database, rng: &mut fastrand::Rng) {
        let refreshed = db.refresh();
        if self.decide(at, refreshed, &[]).is_none() {
            return;
        }
        for set in 0..self.stores[at].sets.len() {
            let store = &mut self.stores[at];
            let Some(here) = store.here() else { return };
            let (uid, name) = (store.sets[set].uid, store.sets[set].name.clone());
            let dataset = db.dataset::<esker::Key>(&name).unwrap();
            let copy = store.commits.copies.remove(&uid);
            let Some(now) = self.present(at, set, &dataset) else {
                return;
            };
            let store = &self.stores[at];
            if store.is_unsure {
                continue;
            }
            let acted = expired(&store.acted, uid);
            let Some(mut copy) = copy else {
                if rng.usize(0..3) == 0 {
                    let copy = Copy {
                        from: here,
                        rows: now,
                    };
                    self.stores[at].commits.copies.insert(uid, copy);
                }
                continue;
            };
            match copy.follow(&dataset, &acted, u64::MAX) {
                Err(error) if error.kind() == ErrorKind::PositionExpired => {
                    assert!(self.stores[at].may_expire(&copy.from), "{error}");
                    count("feed: expired");
                }
                followed => {
                    let Some(applied) = self.decide(at, followed, &[]) else {
                        return;
                    };
                    let seq = here.position.seq;
                    assert_eq!(copy.rows, now, "{applied} changes of {name} to {seq}");
                    count(match applied {
                        0 => "feed: nothing",
                        _ => "feed: changes",
                    });
                    copy.from = here;
                    self.stores[at].commits.copies.insert(uid, copy);
                }
            }
        }
    }
}
