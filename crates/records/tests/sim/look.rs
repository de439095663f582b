//! The checks after a step and at the end of a run.

use esker::maintain::RepairOptions;
use esker::schema::Repair;
use esker::{Database, ErrorKind};

use crate::ask;
use crate::runner::count;
use crate::world::World;

impl World {
    pub(crate) fn look(&mut self, store: Option<u8>, seed: u16) {
        let mut rng = fastrand::Rng::with_seed(u64::from(seed));
        let at = match store {
            Some(store) => self.store_at(store),
            None => rng.usize(0..self.stores.len()),
        };
        for set in 0..self.stores[at].sets.len() {
            self.look_at(at, set, &mut rng, 1);
        }
        if rng.usize(0..3) == 0 && !self.held.is_empty() {
            let which = rng.usize(0..self.held.len());
            self.ask_held(which, &mut rng);
        }
        if rng.usize(0..8) == 0 && self.stores.len() > 1 {
            let other = rng.usize(0..self.stores.len());
            for set in 0..self.stores[other].sets.len() {
                self.look_at(other, set, &mut rng, 1);
            }
        }
        if rng.usize(0..3) == 0 {
            self.look_at_tails(at, &mut rng);
        }
        if let Some(db) = self.stores[at].db.clone() {
            self.look_beside_datasets(at, &db);
        }
        if rng.bool()
            && let Some(db) = self.stores[at].db.clone()
        {
            self.ask_some_kept(at, &db, &mut rng);
        }
    }

    /// After a close, open snapshots answer `Closed`.
    pub(crate) fn held_is_closed(&mut self, at: usize) {
        let born = self.stores[at].born;
        for held in self.held.iter().filter(|held| held.store == born) {
            let counted = held.snapshot.query().count();
            let scanned = held.snapshot.scan(..).next();
            let errors = [counted.err(), scanned.and_then(Result::err)];
            for error in errors {
                assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Closed));
            }
        }
    }

    fn ask_held(&mut self, which: usize, rng: &mut fastrand::Rng) {
        let held = &self.held[which];
        let Some(at) = self.stores.iter().position(|s| s.born == held.store) else {
            return;
        };
        let asked = ask::some(&held.snapshot, &held.view, &held.records, rng, 1);
        let context = format!("a snapshot of dataset #{}", held.uid);
        held.known.hold();
        self.tell(|_| context);
        self.decide(at, asked, &[]);
    }

    fn look_at(&mut self, at: usize, set: usize, rng: &mut fastrand::Rng, times: usize) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        self.look_in(&db, at, set, rng, times);
        if rng.usize(0..4) == 0 {
            self.look_beside(at, set, rng);
        }
    }

    /// Queries a read-only handle, old or new, as another process would. If calls fail, only the
    /// writer may know the acknowledged writes.
    fn look_beside(&mut self, at: usize, set: usize, rng: &mut fastrand::Rng) {
        let store = &mut self.stores[at];
        if store.excused || self.depth > 0 {
            return;
        }
        let reader = store.reader.take().filter(|_| rng.usize(0..8) > 0);
        let reader = match reader {
            Some(reader) => reader.refresh().map(|()| reader),
            None => {
                store.commits.lose_reader();
                store.open_reader()
            }
        };
        let Some(reader) = self.decide(at, reader, &[]) else {
            return;
        };
        self.tell(|_| "a reader beside".to_string());
        self.look_in(&reader, at, set, rng, 1);
        self.ask_some_kept(at, &reader, rng);
        self.look_beside_datasets(at, &reader);
        self.stores[at].reader = Some(reader);
    }

    fn look_in(
        &mut self,
        db: &Database,
        at: usize,
        set: usize,
        rng: &mut fastrand::Rng,
        times: usize,
    ) {
        let store = &self.stores[at];
        let dataset = db.dataset::<esker::Key>(&store.sets[set].name).unwrap();
        let def = dataset.def();
        let known = &store.sets[set];
        if !known.doubt {
            assert_eq!(known.def, def, "the definition");
            assert_eq!(known.unfinished, dataset.unfinished_index());
        }
        if store.is_unsure {
            return;
        }
        store.compare_time(db);
        let stored = store.records(known.uid);
        let records = stored.at(db.group().time());
        let known = &store.sets[set];
        known.known.compare(db, &known.name, &stored, &known.def);
        let (snapshot, view) = (dataset.snapshot(), known.view());
        assert_eq!(snapshot.seq(), store.now().seq, "the last number");
        let notes = dataset.notes();
        let asked = ask::some(&snapshot, &view, &records, rng, times);
        let is_writer = !db.group().is_reader() && known.is_timed;
        let counted = if is_writer {
            snapshot.query().count().map(Some)
        } else {
            Ok(None)
        };
        self.decide(at, asked, &[]);
        if let Some(notes) = self.decide(at, notes, &[]) {
            assert_eq!(notes, stored.notes, "what is noted");
            if !notes.is_empty() {
                count("notes");
            }
        }
        if let Some(Some(counted)) = self.decide(at, counted, &[]) {
            assert_eq!(counted, records.rows().count() as u64, "all records");
            if stored.stored().count() > records.stored().count() {
                count("expiry: some have");
            }
            let store = &mut self.stores[at];
            if !store.excused {
                store.saw_expired(&stored);
            }
        }
    }

    /// Runs all queries on all datasets.
    pub(crate) fn ask_everything(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for at in 0..self.stores.len() {
            for set in 0..self.stores[at].sets.len() {
                self.look_at(at, set, &mut rng, 2);
                let store = &self.stores[at];
                let known = &store.sets[set];
                let dataset = store.handle(&known.name).unwrap();
                let (snapshot, view) = (dataset.snapshot(), known.view());
                let records = store.records(known.uid).at(store.time());
                let asked = ask::everything(&snapshot, &view, &records, &mut rng);
                self.decide(at, asked, &[]);
            }
            self.look_at_tails(at, &mut rng);
            self.ask_all_kept(at, &mut rng);
            self.all_consume(at);
            if let Some(db) = self.stores[at].db.clone() {
                self.look_beside_datasets(at, &db);
            }
            self.check(at);
        }
        for which in 0..self.held.len() {
            self.ask_held(which, &mut rng);
        }
    }

    /// The end of a run: without further faults, queries everything, compacts, queries, opens the
    /// stores again, and queries.
    pub(crate) fn end(&mut self) {
        for at in 0..self.stores.len() {
            let store = &mut self.stores[at];
            if let Some(armed) = &store.armed {
                let (image, mode) = (armed.cut(&store.memory), armed.cut.mode);
                self.let_go(at);
                self.recover(at, Some((image, mode)));
            } else if store.excused {
                store.faulty.clear();
                self.let_go(at);
                self.recover(at, None);
            }
        }
        self.ask_everything(1);
        for at in 0..self.stores.len() {
            self.on_store(at, false, &[], |db| db.compact(None));
        }
        self.ask_everything(2);
        for at in 0..self.stores.len() {
            self.reopen(at, true);
            self.finish_changes(at);
        }
        self.ask_everything(3);
        for at in 0..self.stores.len() {
            self.nothing_is_left(at);
        }
        self.ask_everything(4);
    }

    /// After a repair and a compaction, trees contain only current entries.
    fn nothing_is_left(&mut self, at: usize) {
        self.held.clear();
        self.prepared.clear();
        let store = &self.stores[at];
        let db = store.db.clone().unwrap();
        for set in &store.sets {
            let dataset = db.dataset::<esker::Key>(&set.name).unwrap();
            let options = RepairOptions {
                threads: 1,
                ..RepairOptions::default()
            };
            assert!(dataset.repair(&options).run().unwrap().complete);
            db.compact(Some(&set.name)).unwrap();
            if !self.has_faults {
                let stats = dataset.stats();
                assert_eq!((stats.strategy.error, stats.failures), (None, Vec::new()));
            }
            let records = store.records(set.uid).rows().count() as u64;
            for tree in dataset.stats().trees {
                let name = &tree.name;
                // A single run is not compacted again, whatever was repaired since.
                let kept = set.def.versions > 1 || set.def.repair == Repair::Staged;
                if kept || !["data", "primary-key index"].contains(&name.as_str()) {
                    continue;
                }
                let found: u64 = tree.levels.iter().map(|level| level.entries).sum();
                assert_eq!(found, records, "entries of the {name} of {}", set.name);
            }
        }
    }
}
