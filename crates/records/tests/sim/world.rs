//! Where a run happens: stores in memory with what they must hold, snapshots that are held, batches that wait. Carries out
//! the actions that are about data; those about definitions are in `change.rs`, faults in `crash.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use esker::fs::faulty::Faulty;
use esker::fs::memory::Memory;
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexDef, KeyType,
    Maintenance, Options, Tuning, Type, WriteBatch,
};

use crate::action::{Action, Inside, PATHS, Settings, Step, Write};
use crate::ask::{self, View};
use crate::common::{DIR, small};
use crate::crash::Armed;
use crate::model::{Entry, K, Records, Row, key, row};
use crate::obsolete::Known;
use crate::runner;

pub(crate) const MOST_STORES: usize = 3;
const MOST_SETS: usize = 3;
const MOST_HELD: usize = 4;

/// What names a dataset of a run for ever; names are used again.
pub(crate) type Uid = u32;

/// What all datasets of a store hold after a batch.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) seq: u64,
    pub(crate) records: BTreeMap<Uid, Rc<Records>>,
}

/// A dataset and what it must hold.
#[derive(Clone)]
pub(crate) struct Set {
    pub(crate) uid: Uid,
    pub(crate) name: String,
    pub(crate) key_type: KeyType,
    pub(crate) types: [Type; PATHS.len()],
    pub(crate) def: DatasetDef,
    pub(crate) unfinished: Option<IndexDef>,
    /// A change of it failed: what it is now is seen when the store is opened again.
    pub(crate) doubt: bool,
    pub(crate) known: Known,
}

impl Set {
    pub(crate) fn kept(&self) -> usize {
        self.def.versions as usize
    }

    pub(crate) fn view(&self) -> View {
        View {
            key_type: self.key_type,
            types: self.types,
            def: self.def.clone(),
        }
    }
}

pub(crate) struct Store {
    pub(crate) dir: PathBuf,
    pub(crate) memory: Memory,
    pub(crate) faulty: Faulty,
    pub(crate) settings: Settings,
    pub(crate) db: Option<Database>,
    pub(crate) sets: Vec<Set>,
    /// The states that a power cut may leave: those from the durable one on. The last is the present one.
    pub(crate) states: Vec<State>,
    /// What a failed batch would have made of the present state, and a failed change of datasets of these.
    pub(crate) attempts: Vec<State>,
    pub(crate) lost_sets: BTreeSet<Uid>,
    pub(crate) made_sets: Vec<Set>,
    pub(crate) armed: Option<Armed>,
    /// Calls were made to fail since it was opened: errors that say so are right.
    pub(crate) excused: bool,
    /// Told apart from all stores that were in its place.
    pub(crate) born: u64,
}

impl Store {
    pub(crate) fn new(dir: &FsPath, memory: Memory, settings: Settings, born: u64) -> Store {
        Store {
            dir: dir.to_path_buf(),
            faulty: Faulty::new(Arc::new(memory.clone())),
            memory,
            settings,
            db: None,
            sets: Vec::new(),
            states: vec![State::default()],
            attempts: Vec::new(),
            lost_sets: BTreeSet::new(),
            made_sets: Vec::new(),
            armed: None,
            excused: false,
            born,
        }
    }

    pub(crate) fn try_open(&self, memory: Option<&Memory>) -> esker::Result<Database> {
        let fs: Arc<dyn esker::fs::Fs> = match memory {
            Some(memory) => Arc::new(memory.clone()),
            None => Arc::new(self.faulty.clone()),
        };
        let options = Options {
            table_size: self.settings.table_size,
            memory_budget: self.settings.memory,
            tuning: Tuning {
                bitmap_merges: self.settings.bitmap_merges(),
                ..Tuning::default()
            },
            ..small(fs)
        };
        Database::create_or_open(&self.dir, options)
    }

    pub(crate) fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    pub(crate) fn records(&self, uid: Uid) -> Rc<Records> {
        self.now().records.get(&uid).cloned().unwrap_or_default()
    }

    /// Everything up to now survives a power cut.
    pub(crate) fn is_durable(&mut self) {
        let states = self.states.len();
        self.states.drain(..states - 1);
    }

    pub(crate) fn handle(&self, name: &str) -> Option<Dataset> {
        Some(self.db.as_ref()?.dataset(name).unwrap())
    }
}

struct Held {
    store: u64,
    uid: Uid,
    snapshot: DatasetSnapshot,
    dataset: Dataset,
    view: View,
    records: Rc<Records>,
    known: Known,
}

/// A batch that waits: of the store, its dataset, with what it will do.
struct Prepared {
    store: u64,
    uid: Uid,
    batch: WriteBatch,
    effects: Effects,
}

/// What a batch does: keys with their records, and the keys that must be new.
#[derive(Default, Clone)]
struct Effects {
    writes: Vec<(K, Option<Rc<Row>>)>,
    inserts: Vec<K>,
}

pub(crate) struct World {
    pub(crate) stores: Vec<Store>,
    held: Vec<Held>,
    prepared: Vec<Prepared>,
    /// How many actions are at work, one inside the other.
    pub(crate) depth: usize,
    number: u64,
    next_uid: Uid,
    pub(crate) born: u64,
    settings: Settings,
    /// What was done, for people; only of a run that is told.
    pub(crate) story: Option<Vec<String>>,
}

/// Runs the steps that are to be done inside another action, and says whether that goes on.
pub(crate) struct Within<'a> {
    steps: std::slice::Iter<'a, Step>,
    left: Option<u8>,
}

impl<'a> Within<'a> {
    pub(crate) fn new(inside: &'a Inside) -> Within<'a> {
        Within {
            steps: inside.steps.0.iter(),
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
        match go_on {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
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
            story: None,
        };
        let mut store = Store::new(DIR.as_ref(), Memory::new(), settings, 0);
        store.db = Some(store.try_open(None).unwrap());
        world.stores.push(store);
        world
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce(&World) -> String) {
        if self.story.is_some() {
            let what = format!("{}{}", "    ".repeat(self.depth), what(self));
            self.story.as_mut().unwrap().push(what);
        }
    }

    pub(crate) fn new_uid(&mut self) -> Uid {
        self.next_uid += 1;
        self.next_uid
    }

    pub(crate) fn next_born(&mut self) -> u64 {
        self.born += 1;
        self.born
    }

    /// The store that a number means.
    pub(crate) fn store_at(&self, number: u8) -> usize {
        usize::from(number) % self.stores.len()
    }

    /// The dataset that a number means, if there is one and the store is open.
    pub(crate) fn set_at(&self, store: usize, number: u8) -> Option<usize> {
        let store = &self.stores[store];
        let sets = store.sets.len();
        (sets > 0 && store.db.is_some()).then(|| usize::from(number) % sets)
    }

    /// The result, where it is one; errors must be of these kinds, or due to calls that were made to fail.
    pub(crate) fn judge<T>(
        &mut self,
        store: usize,
        result: esker::Result<T>,
        allowed: &[ErrorKind],
    ) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        self.tell(|_| format!("  -> {error}"));
        let store = &self.stores[store];
        let closed = store.db.is_none()
            && matches!(error.kind(), ErrorKind::BadInput | ErrorKind::Unavailable);
        let excused = store.excused && error.kind() == ErrorKind::Unavailable;
        let right = closed || excused || allowed.contains(&error.kind());
        assert!(right, "{:?}: {error}", error.kind());
        None
    }

    /// Does a step and asks its questions.
    pub(crate) fn step(&mut self, Step(seed, action): &Step) {
        self.tell(|_| format!("{action:?}"));
        self.refresh();
        self.act(action);
        self.refresh();
        self.mend();
        if *seed != 0 {
            self.look(action.store(), *seed);
        }
    }

    /// In the middle of a change a definition is what the change has made of it so far.
    fn refresh(&mut self) {
        if self.depth == 0 {
            return;
        }
        for store in &mut self.stores {
            let Some(db) = store.db.clone() else { continue };
            for set in &mut store.sets {
                let dataset = db.dataset(&set.name).unwrap();
                (set.def, set.unfinished) = (dataset.def(), dataset.unfinished_index());
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Create { store, name, def } => {
                let at = self.store_at(*store);
                if self.stores[at].sets.len() < MOST_SETS {
                    self.create(at, &format!("d{}", name % 4), def);
                }
            }
            Action::DropSet { store, set } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.drop_set(at, set);
                }
            }
            Action::Batch {
                store,
                set,
                writes,
                durability,
            } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    let (mut batch, effects) = self.fill(at, set, &writes.0);
                    let uid = self.stores[at].sets[set].uid;
                    self.commit(at, uid, &mut batch, &effects, *durability);
                }
            }
            Action::Prepare { store, set, writes } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set)
                    && self.prepared.len() < 2
                {
                    let (batch, effects) = self.fill(at, set, &writes.0);
                    self.prepared.push(Prepared {
                        store: self.stores[at].born,
                        uid: self.stores[at].sets[set].uid,
                        batch,
                        effects,
                    });
                }
            }
            Action::Commit { which, durability } => {
                if !self.prepared.is_empty() {
                    let which = usize::from(*which) % self.prepared.len();
                    let mut prepared = self.prepared.remove(which);
                    let at = self.stores.iter().position(|s| s.born == prepared.store);
                    if let Some(at) = at
                        && self.stores[at].sets.iter().any(|s| s.uid == prepared.uid)
                        && self.stores[at].db.is_some()
                    {
                        let (batch, effects) = (&mut prepared.batch, &prepared.effects);
                        self.commit(at, prepared.uid, batch, effects, *durability);
                    }
                }
            }
            Action::Flush { store } => {
                let at = self.store_at(*store);
                self.on_store(at, true, &[], |db| db.flush());
            }
            Action::Settle { store } => {
                let at = self.store_at(*store);
                self.on_store(at, true, &[], |db| {
                    db.flush()?;
                    Ok(db.group().settle_merges()?)
                });
            }
            Action::Compact { store, set } => {
                let at = self.store_at(*store);
                let name = set.and_then(|set| self.set_at(at, set));
                let name = name.map(|set| self.stores[at].sets[set].name.clone());
                self.on_store(at, false, &[], |db| db.compact(name.as_deref()));
            }
            Action::SyncLog { store } => {
                let at = self.store_at(*store);
                self.on_store(at, true, &[], |db| db.sync());
            }
            Action::Check { store } => self.check(self.store_at(*store)),
            Action::Hold { store, set } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.hold(at, set);
                }
            }
            Action::Release { which } => {
                if !self.held.is_empty() {
                    let which = usize::from(*which) % self.held.len();
                    self.held.remove(which);
                }
            }
            Action::Look { .. } => {}
            Action::Index { .. } | Action::Strategy { .. } | Action::RepairSet { .. } => {
                self.change(action);
            }
            Action::Backup { store, kept } => self.backup(self.store_at(*store), *kept),
            Action::Reopen { store, close } => self.reopen(self.store_at(*store), *close),
            Action::Cut { .. }
            | Action::Fail { .. }
            | Action::Full { .. }
            | Action::Room { .. }
            | Action::Damage { .. } => self.fault(action),
        }
    }

    /// Calls something of an open store; with `durable`, everything is when it returns.
    fn on_store(
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
        if self.judge(at, result, allowed).is_some() && durable {
            self.stores[at].is_durable();
        }
    }

    /// The store's own check finds nothing.
    pub(crate) fn check(&mut self, at: usize) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let result = db.check();
        drop(db);
        let excused = self.stores[at].excused;
        if let Some(report) = self.judge(at, result, &[])
            && !excused
        {
            assert_eq!(report.errors, Vec::<String>::new(), "check");
        }
    }

    fn hold(&mut self, at: usize, set: usize) {
        if self.held.len() == MOST_HELD {
            self.held.remove(0);
        }
        let store = &self.stores[at];
        let set = &store.sets[set];
        let dataset = store.handle(&set.name).unwrap();
        let db = store.db.as_ref().unwrap();
        self.held.push(Held {
            store: store.born,
            uid: set.uid,
            snapshot: dataset.snapshot(),
            dataset,
            view: set.view(),
            records: store.records(set.uid),
            known: set
                .known
                .pinned(db)
                .with_current(&set.name, &store.records(set.uid)),
        });
    }

    /// Everything that keeps a store open is let go.
    pub(crate) fn let_go(&mut self, at: usize) {
        let born = self.stores[at].born;
        self.held.retain(|held| held.store != born);
        self.prepared.retain(|prepared| prepared.store != born);
        self.stores[at].db = None;
    }

    fn fill(&mut self, at: usize, set: usize, writes: &[Write]) -> (WriteBatch, Effects) {
        let store = &self.stores[at];
        let set = &store.sets[set];
        let dataset = store.handle(&set.name).unwrap();
        let records = store.records(set.uid);
        let mut batch = dataset.batch();
        let mut effects = Effects::default();
        for write in writes {
            match write {
                Write::Put {
                    key: number,
                    cells,
                    pad,
                    style,
                }
                | Write::Insert {
                    key: number,
                    cells,
                    pad,
                    style,
                } => {
                    let key = key(set.key_type, *number);
                    let old = records.current(&key).map(|(_, row)| row.as_ref());
                    self.number += 1;
                    let shape = (*pad, *style);
                    let row = row(&key, &set.types, cells, shape, old, self.number);
                    if matches!(write, Write::Insert { .. }) {
                        batch.insert(row.put.body.as_bytes()).unwrap();
                        effects.inserts.push(key.clone());
                    } else {
                        batch.put(row.put.body.as_bytes()).unwrap();
                    }
                    effects.writes.push((key, Some(Rc::new(row))));
                }
                Write::Delete { key: number } => {
                    let key = key(set.key_type, *number);
                    let api = dataset.parse_key(&key.to_string()).unwrap();
                    batch.delete(&api).unwrap();
                    effects.writes.push((key, None));
                }
                Write::Refused { which } => {
                    let bad = ["{\"id\": ", "[1]", "{}", "{\"id\": null}", "\u{1}"];
                    let bad = bad[usize::from(*which) % bad.len()];
                    let len = batch.len();
                    let error = batch.put(bad.as_bytes()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BadInput);
                    assert_eq!(batch.len(), len);
                }
            }
        }
        (batch, effects)
    }

    fn commit(
        &mut self,
        at: usize,
        uid: Uid,
        batch: &mut WriteBatch,
        effects: &Effects,
        durability: u8,
    ) {
        let store = &mut self.stores[at];
        let before = store.records(uid);
        // What is there when the batch is committed decides, not what the batch does.
        let mut inserted = BTreeSet::new();
        let refused = effects
            .inserts
            .iter()
            .any(|key| before.current(key).is_some() || !inserted.insert(key));
        let durability = match durability {
            0 => Durability::Sync,
            1 => Durability::Periodic(Duration::from_millis(10)),
            _ => Durability::Os,
        };
        let db = store.db.clone().unwrap();
        let last = db.group().snapshot().seq();
        let result = batch.commit(durability);
        let now = db.group().snapshot().seq();
        drop(db);
        if refused {
            assert_eq!(now, last, "a refused batch takes no numbers");
            let done = self.judge(at, result, &[ErrorKind::Exists]);
            assert!(done.is_none(), "an insert of a key that is there");
            return;
        }
        let acknowledged = self.judge(at, result, &[]).is_some();
        let store = &mut self.stores[at];
        if effects.writes.is_empty() {
            return;
        }
        let set = store.sets.iter().position(|set| set.uid == uid).unwrap();
        let kept = store.sets[set].kept();
        let mut records = Records::clone(&before);
        let first = last + 1;
        let mut over = Vec::new();
        // Writers that look at what they replace write only the last version of a key.
        let looks = matches!(
            store.sets[set].def.maintenance,
            Maintenance::Eager | Maintenance::MutableBitmap
        );
        let last_of = |at: usize, key: &K| {
            let later = &effects.writes[at + 1..];
            !looks || !later.iter().any(|(other, _)| other == key)
        };
        let writes = effects.writes.iter().enumerate();
        let writes: Vec<_> = writes
            .filter(|(at, (key, _))| last_of(*at, key))
            .map(|(_, write)| write)
            .collect();
        for (seq, (key, row)) in (first..).zip(&writes) {
            if let Some((old, _)) = records.current(key) {
                over.push((old, seq));
            }
            let row = row.clone();
            records.write(key.clone(), Entry { seq, row }, kept);
        }
        let mut state = store.now().clone();
        state.seq = now.max(last + writes.len() as u64);
        state.records.insert(uid, Rc::new(records));
        if !acknowledged {
            // It may be in the log, and nobody sees it before the store is opened again.
            assert_eq!(now, last, "a batch that failed is seen");
            store.attempts.push(state);
            return;
        }
        // Eager maintenance takes more numbers, for what it cancels.
        let eager = store.sets[set].def.maintenance == Maintenance::Eager;
        let numbers = writes.len() as u64;
        assert!(now == last + numbers || eager && now > last + numbers);
        store.sets[set].known.over(over);
        store.attempts.clear();
        store.states.push(state);
        // Without threads of its own a store syncs at once what it may sync later.
        if durability != Durability::Os {
            store.is_durable();
        }
    }

    fn backup(&mut self, at: usize, kept: bool) {
        if runner::is_known(3) {
            return;
        }
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let born = self.next_born();
        let dest = PathBuf::from(format!("/copy-{born}"));
        let result = db.backup(&dest);
        drop(db);
        if self.judge(at, result, &[]).is_none() {
            return;
        }
        self.stores[at].is_durable();
        let store = &self.stores[at];
        let mode = match kept {
            true => esker::fs::memory::PowerCut::Kept,
            false => esker::fs::memory::PowerCut::Lost,
        };
        let image = store.memory.power_cut(born, mode);
        for path in store.memory.paths() {
            if path.starts_with(&dest) {
                esker::fs::Fs::remove(&store.memory, &path).unwrap();
            }
        }
        let mut copy = Store::new(&dest, image, self.settings, born);
        copy.states = vec![store.now().clone()];
        copy.sets = store.sets.clone();
        // The numbers stay, and so does everything that was known.
        copy.db = Some(copy.try_open(None).unwrap());
        if self.stores.len() < MOST_STORES {
            self.stores.push(copy);
        } else {
            // Not one that is at work.
            let last = self.stores.len() - 1;
            if self.depth > 0 {
                return;
            }
            self.let_go(last);
            self.stores[last] = copy;
        }
        let last = self.stores.len() - 1;
        self.compare_catalog(last);
    }

    fn reopen(&mut self, at: usize, close: bool) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        if close {
            let result = db.close();
            if self.judge(at, result, &[]).is_some() {
                self.stores[at].is_durable();
                // What is held can still be read.
                self.look_at_held(at, 1);
            }
        } else {
            drop(db);
        }
        self.let_go(at);
        self.mend();
    }

    /// Opens what was closed, as soon as nobody is at work in it, and carries out the power cut that is due.
    fn mend(&mut self) {
        for at in 0..self.stores.len() {
            let cut = self.stores[at].armed.as_ref().is_some_and(Armed::is_due);
            let store = &mut self.stores[at];
            if cut && let Some(armed) = &store.armed {
                // The machine stops now: what others do meanwhile changes nothing any more.
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

    fn look(&mut self, store: Option<u8>, seed: u16) {
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
    }

    fn look_at_held(&mut self, at: usize, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for which in 0..self.held.len() {
            if self.held[which].store == self.stores[at].born {
                self.ask_held(which, &mut rng);
            }
        }
    }

    fn ask_held(&mut self, which: usize, rng: &mut fastrand::Rng) {
        let held = &self.held[which];
        let Some(at) = self.stores.iter().position(|s| s.born == held.store) else {
            return;
        };
        let asked = ask::some(
            &held.dataset,
            &held.snapshot,
            &held.view,
            &held.records,
            rng,
            1,
        );
        let context = format!("a snapshot of dataset #{}", held.uid);
        held.known.hold();
        self.tell(|_| context);
        self.judge(at, asked, &[]);
    }

    fn look_at(&mut self, at: usize, set: usize, rng: &mut fastrand::Rng, times: usize) {
        let store = &mut self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let dataset = db.dataset(&store.sets[set].name).unwrap();
        let def = dataset.def();
        // The upkeep changes it by itself.
        if store.sets[set].def.auto {
            store.sets[set].def.maintenance = def.maintenance;
        }
        let known = &store.sets[set];
        if !known.doubt {
            assert_eq!(known.def, def, "the definition");
            assert_eq!(known.unfinished, dataset.unfinished_index());
        }
        let records = store.records(known.uid);
        let known = &store.sets[set];
        known.known.compare(&db, &known.name, &records, &known.def);
        let (snapshot, view) = (dataset.snapshot(), known.view());
        assert_eq!(snapshot.seq(), store.now().seq, "the last number");
        let asked = ask::some(&dataset, &snapshot, &view, &records, rng, times);
        self.judge(at, asked, &[]);
    }

    /// Asks everything, of everything.
    pub(crate) fn ask_everything(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for at in 0..self.stores.len() {
            for set in 0..self.stores[at].sets.len() {
                self.look_at(at, set, &mut rng, 2);
                let store = &self.stores[at];
                let known = &store.sets[set];
                let dataset = store.handle(&known.name).unwrap();
                let (snapshot, view) = (dataset.snapshot(), known.view());
                let records = store.records(known.uid);
                let asked = ask::everything(&dataset, &snapshot, &view, &records, &mut rng);
                self.judge(at, asked, &[]);
            }
            self.check(at);
        }
        for which in 0..self.held.len() {
            self.ask_held(which, &mut rng);
        }
    }

    /// The end of a run: nothing fails any more, everything is asked, merged, asked, opened again, and asked.
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
    }
}
