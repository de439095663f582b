//! The state of a run: stores in memory with their expected contents, open snapshots, prepared
//! batches. Carries out the actions on data; those on definitions are in `change.rs`, faults in
//! `crash.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use esker::schema::IndexDef;
use esker::{Database, Dataset, DatasetDef, DatasetSnapshot, ErrorKind, KeyType, Options};
use esker_sim::clock::TestClock;
use esker_sim::faulty::Faulty;
use esker_sim::hooked::Hooked;
use esker_sim::memory::Memory;

use crate::action::{Inside, Settings, Step};
use crate::ask::View;
use crate::beside::Things;
use crate::common::{DIR, small};
use crate::consumers::Consumers;
use crate::crash::Armed;
use crate::data::Prepared;
use crate::model::{Records, Types};
use crate::obsolete::Known;
use crate::runner::count;
use crate::snapshots::Kept;
use crate::tail::Commits;
use crate::time::{Acted, START, Times};

pub(crate) const MOST_STORES: usize = 3;
pub(crate) const MOST_SETS: usize = 3;
const MOST_HELD: usize = 4;

/// Identifies a dataset of a run for ever; names are reused.
pub(crate) type Uid = u32;

/// The contents of all datasets of a store after a batch.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) seq: u64,
    pub(crate) records: BTreeMap<Uid, Rc<Records>>,
    /// The data of the extension.
    pub(crate) beside: Things,
}

/// A dataset and its expected state.
#[derive(Clone)]
pub(crate) struct Set {
    pub(crate) uid: Uid,
    pub(crate) name: String,
    pub(crate) key_type: KeyType,
    pub(crate) types: Types,
    pub(crate) def: DatasetDef,
    pub(crate) unfinished: Option<IndexDef>,
    /// A change of the dataset failed: its definition is unknown until the store is opened again.
    pub(crate) doubt: bool,
    pub(crate) known: Known,
    /// Records of the dataset may expire.
    pub(crate) is_timed: bool,
}

impl Set {
    pub(crate) fn kept(&self) -> usize {
        self.def.versions as usize
    }

    pub(crate) fn view(&self) -> View {
        View {
            key_type: self.key_type,
            types: self.types.of,
            def: self.def.clone(),
        }
    }
}

pub(crate) struct Store {
    pub(crate) dir: PathBuf,
    pub(crate) memory: Memory,
    pub(crate) faulty: Faulty,
    /// The file system of the store, with hooks at its calls.
    pub(crate) hooked: Hooked,
    pub(crate) settings: Settings,
    pub(crate) db: Option<Database>,
    /// A read-only handle beside `db` that does not see the failing calls.
    pub(crate) reader: Option<Database>,
    pub(crate) sets: Vec<Set>,
    /// The states that a power cut may leave, from the durable one on. The last is the current one.
    pub(crate) states: Vec<State>,
    /// The current state with the effects of a failed batch, or of a failed change of datasets.
    pub(crate) attempts: Vec<State>,
    pub(crate) lost_sets: BTreeSet<Uid>,
    pub(crate) made_sets: Vec<Set>,
    /// The last write at the latest change of datasets or definitions, which syncs the log: a log
    /// that ends before it is damaged.
    pub(crate) told: u64,
    pub(crate) armed: Option<Armed>,
    /// Calls were made to fail since the store was opened, so their errors are allowed.
    pub(crate) excused: bool,
    /// Some of them failed for other reasons than a full disk.
    pub(crate) failing: bool,
    pub(crate) commits: Commits,
    /// The named snapshots.
    pub(crate) kept: Kept,
    pub(crate) consumers: Consumers,
    /// Distinguishes the store from earlier stores in its place.
    pub(crate) born: u64,
    pub(crate) hand: TestClock,
    pub(crate) times: Times,
    pub(crate) acted: Acted,
    /// A read failed, so the deletions of expired records are not known.
    pub(crate) is_unsure: bool,
}

impl Store {
    pub(crate) fn new(
        dir: &FsPath,
        memory: Memory,
        settings: Settings,
        born: u64,
        hand: &TestClock,
    ) -> Store {
        let faulty = Faulty::new(Arc::new(memory.clone()));
        Store {
            dir: dir.to_path_buf(),
            hooked: Hooked::new(Arc::new(faulty.clone())),
            faulty,
            memory,
            settings,
            db: None,
            reader: None,
            sets: Vec::new(),
            states: vec![State::default()],
            attempts: Vec::new(),
            lost_sets: BTreeSet::new(),
            made_sets: Vec::new(),
            told: 0,
            armed: None,
            excused: false,
            failing: false,
            commits: Commits::default(),
            kept: Kept::default(),
            consumers: Consumers::default(),
            born,
            hand: hand.clone(),
            times: Times::default(),
            acted: Acted::new(),
            is_unsure: false,
        }
    }

    pub(crate) fn try_open(&self, memory: Option<&Memory>) -> esker::Result<Database> {
        Database::create_or_open(&self.dir, self.options(memory))
    }

    /// A handle that reads beside the writer.
    pub(crate) fn open_reader(&self) -> esker::Result<Database> {
        Database::open_reader(&self.dir, self.options(Some(&self.memory)))
    }

    fn options(&self, memory: Option<&Memory>) -> Options {
        let fs: Arc<dyn esker::fs::Fs> = match memory {
            Some(memory) => Arc::new(memory.clone()),
            None => Arc::new(self.hooked.clone()),
        };
        small(fs)
            .clock(self.hand.function())
            .table_size(self.settings.table_size)
            .memory_budget(self.settings.memory)
            .keep_log(self.settings.keep_log())
            .extension(crate::beside::extension())
            .engine(|engine| {
                engine.bitmap_merges = self.settings.bitmap_merges();
                engine.share_from = self.settings.share_from();
                engine.bitmap_slack = self.settings.bitmap_slack();
                engine.piece_bytes = self.settings.piece_bytes;
                engine.mapped_reads = self.settings.mapped_reads();
            })
            .operations_per_choice(self.settings.choose_every)
    }

    pub(crate) fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    pub(crate) fn records(&self, uid: Uid) -> Rc<Records> {
        self.now().records.get(&uid).cloned().unwrap_or_default()
    }

    /// The current state survives a power cut.
    pub(crate) fn is_durable(&mut self) {
        let states = self.states.len();
        self.states.drain(..states - 1);
        self.lost_sets.clear();
        self.made_sets.clear();
        self.kept.is_durable();
        for set in &mut self.sets {
            set.doubt = false;
        }
    }

    /// The number of the last write, including writes without changes.
    pub(crate) fn last_seq(&self) -> u64 {
        let seq = |db: &Database| db.group().snapshot().seq();
        self.db.as_ref().map_or(0, seq)
    }

    pub(crate) fn handle(&self, name: &str) -> Option<Dataset> {
        Some(self.db.as_ref()?.dataset::<esker::Key>(name).unwrap())
    }
}

pub(crate) struct Held {
    pub(crate) store: u64,
    pub(crate) uid: Uid,
    pub(crate) snapshot: DatasetSnapshot,
    pub(crate) view: View,
    /// The records visible at the store's time.
    pub(crate) records: Rc<Records>,
    pub(crate) known: Known,
}

pub(crate) struct World {
    pub(crate) stores: Vec<Store>,
    pub(crate) held: Vec<Held>,
    pub(crate) prepared: Vec<Prepared>,
    /// The nesting depth of running actions.
    pub(crate) depth: usize,
    number: u64,
    next_uid: Uid,
    pub(crate) born: u64,
    pub(crate) settings: Settings,
    pub(crate) hand: TestClock,
    /// Calls were made to fail, or the power was cut: background errors are expected.
    pub(crate) has_faults: bool,
    /// A log of the run for people, if requested.
    pub(crate) story: Option<Vec<String>>,
}

/// Runs the inner steps of an action, and decides whether it continues.
pub(crate) struct Within<'a> {
    steps: std::slice::Iter<'a, Step>,
    left: Option<u8>,
}

impl<'a> Within<'a> {
    pub(crate) fn new(inside: &'a Inside) -> Within<'a> {
        Within {
            steps: inside.steps.iter(),
            left: inside.stop_after,
        }
    }

    pub(crate) fn go_on(&mut self, world: &mut World) -> ControlFlow<()> {
        world.depth += 1;
        for step in self.steps.by_ref().take(2) {
            world.step(step);
        }
        world.depth -= 1;
        let go_on = self.left != Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        if go_on {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        let mut world = World {
            stores: Vec::new(),
            held: Vec::new(),
            prepared: Vec::new(),
            depth: 0,
            number: 0,
            next_uid: 0,
            born: 0,
            settings,
            hand: TestClock::new(START),
            has_faults: false,
            story: None,
        };
        let mut store = Store::new(DIR.as_ref(), Memory::new(), settings, 0, &world.hand);
        store.db = Some(store.try_open(None).unwrap());
        store.adopt_time(false);
        world.stores.push(store);
        world
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce(&World) -> String) {
        if self.story.is_none() {
            return;
        }
        let what = format!("{}{}", "    ".repeat(self.depth), what(self));
        if let Some(story) = &mut self.story {
            story.push(what);
        }
    }

    pub(crate) fn new_uid(&mut self) -> Uid {
        self.next_uid += 1;
        self.next_uid
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn next_born(&mut self) -> u64 {
        self.born += 1;
        self.born
    }

    /// The store with this number.
    pub(crate) fn store_at(&self, number: u8) -> usize {
        usize::from(number) % self.stores.len()
    }

    /// The dataset with this number, if it exists and the store is open.
    pub(crate) fn set_at(&self, store: usize, number: u8) -> Option<usize> {
        let store = &self.stores[store];
        let sets = store.sets.len();
        (sets > 0 && store.db.is_some()).then(|| usize::from(number) % sets)
    }

    /// The result, if it is `Ok`; errors must have one of these kinds, or come from calls that were
    /// made to fail.
    pub(crate) fn decide<T>(
        &mut self,
        store: usize,
        result: esker::Result<T>,
        allowed: &[ErrorKind],
    ) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        count(match error.kind() {
            ErrorKind::Busy => "error: busy",
            ErrorKind::Closed => "error: closed",
            ErrorKind::DiskFull => "error: disk full",
            ErrorKind::Poisoned => "error: poisoned",
            ErrorKind::Io => "error: input or output",
            ErrorKind::BadInput => "error: bad input",
            ErrorKind::Exists => "error: exists",
            ErrorKind::NotUnique => "error: not unique",
            _ => "error: other",
        });
        self.tell(|_| format!("  -> {error}"));
        let store = &self.stores[store];
        let closed = store.db.is_none() && error.kind() == ErrorKind::Closed;
        let failed = [ErrorKind::Io, ErrorKind::DiskFull, ErrorKind::Poisoned];
        let excused = store.excused && failed.contains(&error.kind());
        let right = closed || excused || allowed.contains(&error.kind());
        assert!(right, "{:?}: {error}", error.kind());
        None
    }

    /// Runs a step and its checks.
    pub(crate) fn step(&mut self, Step(seed, action): &Step) {
        self.tell(|_| format!("{action:?}"));
        self.refresh();
        count(action.name());
        if self.depth > 0 {
            count("inside");
        }
        self.act(action);
        self.note_expired();
        self.refresh();
        self.mend();
        if *seed != 0 {
            self.look(action.store(), *seed);
        }
    }

    /// During a change, a definition is as the change has made it so far.
    fn refresh(&mut self) {
        let inside = self.depth > 0;
        for store in &mut self.stores {
            let Some(db) = store.db.clone() else { continue };
            for set in &mut store.sets {
                // A store with an automatic strategy changes it by itself.
                if !inside && !set.def.auto {
                    continue;
                }
                let Ok(dataset) = db.dataset::<esker::Key>(&set.name) else {
                    continue;
                };
                let (def, unfinished) = (dataset.def(), dataset.unfinished_index());
                if inside {
                    (set.def, set.unfinished) = (def, unfinished);
                } else if set.def.maintenance != def.maintenance {
                    count("strategy: chosen");
                    set.def.maintenance = def.maintenance;
                }
            }
        }
    }

    /// Calls an open store; with `durable`, everything is durable when the call returns.
    pub(crate) fn on_store(
        &mut self,
        at: usize,
        durable: bool,
        allowed: &[ErrorKind],
        call: impl FnOnce(&Database) -> esker::Result<()>,
    ) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        let result = call(&db);
        drop(db);
        if self.decide(at, result, allowed).is_some() && durable {
            self.stores[at].is_durable();
        }
    }

    /// Runs the store's own check, which must find nothing.
    pub(crate) fn check(&mut self, at: usize) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let result = db.check();
        drop(db);
        let excused = self.stores[at].excused;
        if let Some(report) = self.decide(at, result, &[])
            && !excused
        {
            let duplicates = report.errors.iter();
            let duplicates = duplicates.filter(|error| error.contains("must be unique"));
            assert_eq!(duplicates.count(), self.stores[at].duplicates());
            let mut errors = report.errors;
            errors.retain(|error| !error.contains("must be unique"));
            assert_eq!(errors, Vec::<String>::new(), "check");
        }
    }

    pub(crate) fn hold(&mut self, at: usize, set: usize) {
        if self.held.len() == MOST_HELD {
            self.held.remove(0);
        }
        let store = &self.stores[at];
        // What the store has deleted meanwhile could not be read.
        if store.is_unsure {
            return;
        }
        let set = &store.sets[set];
        let dataset = store.handle(&set.name).unwrap();
        let db = store.db.as_ref().unwrap();
        self.held.push(Held {
            store: store.born,
            uid: set.uid,
            snapshot: dataset.snapshot(),
            view: set.view(),
            records: store.records(set.uid).at(store.time()),
            known: set
                .known
                .pinned(db)
                .with_current(&set.name, &store.records(set.uid)),
        });
    }

    /// Drops everything that keeps a store open.
    pub(crate) fn let_go(&mut self, at: usize) {
        let born = self.stores[at].born;
        self.held.retain(|held| held.store != born);
        self.prepared.retain(|prepared| prepared.store != born);
        self.stores[at].commits.let_go();
        self.stores[at].db = None;
    }

    pub(crate) fn reopen(&mut self, at: usize, close: bool) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        if close {
            let result = db.close();
            if self.decide(at, result, &[]).is_some() {
                self.stores[at].is_durable();
                self.held_is_closed(at);
            } else if !self.stores[at].failing {
                // The log is synced before any step that a full disk can prevent.
                self.stores[at].is_durable();
            }
        } else {
            drop(db);
        }
        self.let_go(at);
        self.mend();
    }

    /// Opens closed stores once no action uses them, and carries out power cuts that are due.
    fn mend(&mut self) {
        for at in 0..self.stores.len() {
            let cut = self.stores[at].armed.as_ref().is_some_and(Armed::is_due);
            let store = &mut self.stores[at];
            if cut && let Some(armed) = &store.armed {
                // The machine stops now: later steps of outer actions have no effect.
                store.armed = Some(armed.stopped(&store.memory));
            }
            if self.depth > 0 {
                continue;
            }
            if cut {
                let armed = self.stores[at].armed.take().unwrap();
                self.let_go(at);
                let (image, mode) = (armed.image.unwrap(), armed.cut.mode);
                self.recover(at, Some((image, mode)));
            } else if self.stores[at].db.is_none() {
                self.recover(at, None);
            }
        }
    }
}
