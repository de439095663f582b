//! Named snapshots: their contents are checked repeatedly, whatever happens to the store.

use std::collections::BTreeMap;
use std::rc::Rc;

use esker::{Database, ErrorKind};

use crate::ask;
use crate::runner::count;
use crate::world::{Set, State, World};

/// The contents that a named snapshot must show.
#[derive(Clone)]
pub(crate) struct Seen {
    state: State,
    sets: Vec<Set>,
    /// The write number that the store assigned.
    seq: u64,
    /// The time at which it was kept: records expired by then are not visible.
    time: u64,
}

/// The snapshots of a store.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    there: BTreeMap<String, Rc<Seen>>,
    /// Other possible contents of a name, or none, after a call failed.
    instead: BTreeMap<String, Vec<Option<Rc<Seen>>>>,
}

impl Kept {
    /// A copy of the store has the same snapshots.
    pub(crate) fn copied(&self) -> Kept {
        Kept {
            there: self.there.clone(),
            instead: BTreeMap::new(),
        }
    }

    /// The current snapshots survive a power cut.
    pub(crate) fn is_durable(&mut self) {
        self.instead.clear();
    }

    /// Chooses among the possible contents by the snapshots of the opened store. After a power cut
    /// the choice is final.
    pub(crate) fn adopt(&mut self, db: &Database, cut: bool) {
        let listed = db.snapshots().into_iter();
        let found: BTreeMap<String, u64> = listed.map(|kept| (kept.name, kept.seq)).collect();
        let names = found.keys().chain(self.there.keys());
        let names: Vec<String> = names.chain(self.instead.keys()).cloned().collect();
        for name in names {
            let before = self.there.remove(&name);
            let mut all = self.instead.remove(&name).unwrap_or_default();
            all.push(before);
            let seq = found.get(&name).copied();
            let fits = |seen: &Option<Rc<Seen>>| seen.as_ref().map(|seen| seen.seq) == seq;
            let is = all.iter().rposition(fits);
            let is = is.unwrap_or_else(|| panic!("snapshot {name} of write {seq:?}"));
            if let Some(seen) = all.remove(is) {
                self.there.insert(name.clone(), seen);
            }
            if !cut && !all.is_empty() {
                self.instead.insert(name, all);
            }
        }
    }

    fn compare(&self, db: &Database) {
        let listed = db.snapshots().into_iter();
        let listed: Vec<(String, u64)> = listed.map(|kept| (kept.name, kept.seq)).collect();
        let there = self.there.iter();
        let there: Vec<(String, u64)> =
            there.map(|(name, seen)| (name.clone(), seen.seq)).collect();
        assert_eq!(listed, there, "the snapshots that are kept");
    }
}

impl World {
    /// Keeps a snapshot; if it exists, queries or drops it.
    pub(crate) fn snapshot(&mut self, at: usize, name: &str, drops: bool) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        let there = self.stores[at].kept.there.get(name).cloned();
        match there {
            None => self.keep(at, &db, name),
            Some(seen) if drops => self.drop_kept(at, &db, name, seen),
            Some(_) => {
                let again = db.keep_snapshot(name).map(|_| ());
                let refused = again.as_ref().is_err_and(|e| e.kind() == ErrorKind::Exists);
                assert!(refused || self.stores[at].excused, "{again:?}");
                self.ask_kept(at, &db, name, &mut fastrand::Rng::with_seed(1), 2);
            }
        }
    }

    fn keep(&mut self, at: usize, db: &Database, name: &str) {
        let store = &self.stores[at];
        let seen = |seq| {
            let (state, sets) = (store.now().clone(), store.sets.clone());
            let time = store.time();
            Some(Rc::new(Seen {
                state,
                sets,
                seq,
                time,
            }))
        };
        // A failed call may have kept the snapshot. Only writes take numbers, so its write is
        // known.
        let (maybe, result) = (seen(store.last_seq()), db.keep_snapshot(name));
        // A store that refuses writes has written nothing.
        let tried = !matches!(&result, Err(error) if error.kind() == ErrorKind::Poisoned);
        let seen = result.as_ref().ok().and_then(|seq| seen(*seq));
        let kept = self.decide(at, result, &[]);
        let store = &mut self.stores[at];
        match kept {
            Some(_) => {
                store
                    .kept
                    .there
                    .extend(seen.map(|seen| (name.to_string(), seen)));
                store.is_durable();
                count("snapshot: kept");
            }
            None if !tried => {}
            None => store
                .kept
                .instead
                .entry(name.to_string())
                .or_default()
                .push(maybe),
        }
    }

    fn drop_kept(&mut self, at: usize, db: &Database, name: &str, seen: Rc<Seen>) {
        // The snapshot can still be read.
        let held = db.kept_snapshot(name).unwrap();
        let result = db.drop_snapshot(name);
        let dropped = self.decide(at, result, &[]);
        let kept = &mut self.stores[at].kept;
        match dropped {
            Some(()) => {
                kept.there.remove(name);
                kept.instead.remove(name);
                let gone = db.kept_snapshot(name).map(|_| ()).unwrap_err();
                assert_eq!(gone.kind(), ErrorKind::UnknownSnapshot);
                count("snapshot: dropped");
                self.ask_seen(at, &held, &seen, &mut fastrand::Rng::with_seed(2), 1);
            }
            None => kept.instead.entry(name.to_string()).or_default().push(None),
        }
    }

    /// Queries one of the named snapshots, in this handle of the store or another.
    pub(crate) fn ask_some_kept(&mut self, at: usize, db: &Database, rng: &mut fastrand::Rng) {
        let kept = &self.stores[at].kept;
        kept.compare(db);
        let names: Vec<String> = kept.there.keys().cloned().collect();
        if !names.is_empty() {
            let name = names[rng.usize(0..names.len())].clone();
            self.ask_kept(at, db, &name, rng, 1);
        }
    }

    /// Queries all named snapshots.
    pub(crate) fn ask_all_kept(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        store.kept.compare(&db);
        let names: Vec<String> = store.kept.there.keys().cloned().collect();
        for name in names {
            self.ask_kept(at, &db, &name, rng, 3);
        }
    }

    fn ask_kept(
        &mut self,
        at: usize,
        db: &Database,
        name: &str,
        rng: &mut fastrand::Rng,
        times: usize,
    ) {
        let seen = self.stores[at].kept.there[name].clone();
        let snapshot = db.kept_snapshot(name);
        if let Some(snapshot) = self.decide(at, snapshot, &[]) {
            self.tell(|_| format!("the snapshot {name}"));
            count("snapshot: asked");
            self.ask_seen(at, &snapshot, &seen, rng, times);
        }
    }

    fn ask_seen(
        &mut self,
        at: usize,
        snapshot: &esker::StoreSnapshot,
        seen: &Seen,
        rng: &mut fastrand::Rng,
        times: usize,
    ) {
        let asked = ask(snapshot, seen, rng, times);
        self.decide(at, asked, &[]);
    }

    /// Queries the named snapshots of a damaged copy, which may return errors.
    pub(crate) fn ask_damaged(
        &self,
        at: usize,
        db: &Database,
        rng: &mut fastrand::Rng,
    ) -> esker::Result<()> {
        for (name, seen) in &self.stores[at].kept.there {
            // The end of a manifest may be lost.
            let listed = db.snapshots().into_iter();
            let mut listed = listed.filter(|kept| kept.name == *name);
            if listed.next().is_some_and(|kept| kept.seq == seen.seq) {
                ask(&db.kept_snapshot(name)?, seen, rng, 1)?;
            }
        }
        Ok(())
    }
}

fn ask(
    snapshot: &esker::StoreSnapshot,
    seen: &Seen,
    rng: &mut fastrand::Rng,
    times: usize,
) -> esker::Result<()> {
    assert_eq!(snapshot.seq(), seen.seq, "the last number of a snapshot");
    let names: Vec<String> = seen.sets.iter().map(|set| set.name.clone()).collect();
    assert_eq!(
        snapshot.dataset_names(),
        names,
        "the datasets of a snapshot"
    );
    for set in &seen.sets {
        let dataset = snapshot.dataset::<esker::Key>(&set.name)?;
        let mut view = set.view();
        if !set.doubt {
            assert_eq!(dataset.def(), view.def, "the definition in a snapshot");
        }
        view.def = dataset.def();
        let records = seen
            .state
            .records
            .get(&set.uid)
            .cloned()
            .unwrap_or_default();
        ask::some(&dataset, &view, &records.at(seen.time), rng, times)?;
    }
    Ok(())
}
