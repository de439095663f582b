//! Faults (power cuts, failing calls, full disks, damaged bytes) and the states that may follow
//! them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker::{Database, ErrorKind};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

use crate::action::{Action, Fault};
use crate::ask;
use crate::beside;
use crate::contain;
use crate::runner::count;
use crate::world::{Set, State, Store, World};

pub(crate) const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

/// True for the call that makes an installed version of the store in `dir` durable.
pub(crate) fn is_install(call: Call, path: &Path, dir: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is_manifest = name.is_some_and(|name| name.starts_with("MANIFEST"));
    call == Call::Sync && is_manifest && path.starts_with(dir)
}

/// The files that a power cut takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) mode: PowerCut,
    pub(crate) seed: u64,
}

/// A power cut in the future.
#[derive(Clone)]
pub(crate) struct Armed {
    pub(crate) cut: Cut,
    faulty: Faulty,
    /// The number of the first call that no longer happens, once it is known.
    at: Arc<AtomicU64>,
    /// The files after the power cut, once it has happened.
    pub(crate) image: Option<Memory>,
}

impl Armed {
    pub(crate) fn is_due(&self) -> bool {
        self.image.is_some() || self.faulty.calls() >= self.at.load(SeqCst)
    }

    /// The power cut with the files as of now.
    pub(crate) fn stopped(&self, memory: &Memory) -> Armed {
        Armed {
            image: Some(self.cut(memory)),
            ..self.clone()
        }
    }

    pub(crate) fn cut(&self, memory: &Memory) -> Memory {
        match &self.image {
            Some(image) => image.clone(),
            None => memory.power_cut(self.cut.seed, self.cut.mode),
        }
    }
}

impl Store {
    /// Arms a power cut before the call number `first`; the caller can set the number later.
    fn arm(&mut self, first: u64, mode: u8, seed: u16) -> Arc<AtomicU64> {
        self.faulty.clear();
        self.faulty.short_writes(seed.is_multiple_of(3));
        (self.excused, self.failing) = (true, true);
        let at = Arc::new(AtomicU64::new(first));
        self.armed = Some(Armed {
            cut: Cut {
                mode: MODES[usize::from(mode) % MODES.len()],
                seed: u64::from(seed),
            },
            at: at.clone(),
            faulty: self.faulty.clone(),
            image: None,
        });
        at
    }
}

impl World {
    pub(crate) fn fault(&mut self, action: &Action) {
        self.has_faults |= !matches!(action, Action::Room { .. } | Action::Damage { .. });
        match action {
            Action::Cut {
                store,
                after,
                mode,
                seed,
            } => {
                let at = self.store_at(*store);
                let store = &mut self.stores[at];
                if store.armed.is_none() {
                    let after = u64::from(*after);
                    let first = store.faulty.calls() + after;
                    store.arm(first, *mode, *seed);
                    store.faulty.fail_from(after);
                }
            }
            Action::CutInstalled {
                store,
                after,
                mode,
                seed,
            } => {
                let at = self.store_at(*store);
                let store = &mut self.stores[at];
                if store.armed.is_none() {
                    let first = store.arm(u64::MAX, *mode, *seed);
                    let (faulty, syncs) = (store.faulty.clone(), AtomicU64::new(0));
                    let (after, dir) = (u64::from(*after), store.dir.clone());
                    store.hooked.set(move |call, path| {
                        if is_install(call, path, &dir) && syncs.fetch_add(1, SeqCst) == after {
                            // This call happens, and no later one.
                            first.store(faulty.calls() + 2, SeqCst);
                            faulty.fail_from(2);
                        }
                        Ok(())
                    });
                }
            }
            Action::Fail {
                store,
                after,
                fault,
            } => {
                let at = self.store_at(*store);
                let store = &mut self.stores[at];
                if store.armed.is_none() {
                    let after = u64::from(*after).max(1);
                    (store.excused, store.failing) = (true, true);
                    store.faulty.clear();
                    match fault {
                        Fault::Call => store.faulty.fail_at(after),
                        Fault::Short => {
                            store.faulty.short_writes(true);
                            store.faulty.fail_at(after);
                        }
                        Fault::Read => store.faulty.fail_reads_at(after),
                        Fault::Sync => store.faulty.fail_sync_once(),
                    }
                }
            }
            Action::Full { store, room } => {
                let at = self.store_at(*store);
                let store = &mut self.stores[at];
                if store.armed.is_none() {
                    store.excused = true;
                    let used = store.faulty.used();
                    store.faulty.set_capacity(used + u64::from(*room));
                }
            }
            Action::Room { store } => {
                let at = self.store_at(*store);
                let store = &mut self.stores[at];
                if store.armed.is_none() {
                    store.faulty.clear();
                }
            }
            Action::Damage {
                store,
                file,
                at,
                cut,
                seed,
            } => {
                let store = self.store_at(*store);
                self.damage(store, (*file, *at, *cut), u64::from(*seed));
            }
            _ => {}
        }
    }

    /// Opens a store again, with the files that a power cut left. The state found becomes the
    /// expected state.
    pub(crate) fn recover(&mut self, at: usize, cut: Option<(Memory, PowerCut)>) {
        let mode = cut.as_ref().map(|(_, mode)| *mode);
        let store = &mut self.stores[at];
        if let Some((image, _)) = cut {
            store.memory = image;
            store.reader = None;
            store.commits.lose_reader();
        }
        if mode.is_some() || store.excused {
            store.faulty = Faulty::new(Arc::new(store.memory.clone()));
            store.hooked = Hooked::new(Arc::new(store.faulty.clone()));
        }
        let after_fault = store.excused || mode.is_some();
        (store.excused, store.failing) = (false, false);
        store.armed = None;
        let db = match store.try_open(None) {
            Ok(db) => db,
            Err(error) => panic!("does not open: {error}"),
        };
        store.db = Some(db);
        if let Some(mode) = mode {
            self.tell(|_| format!("  power cut, {mode:?}"));
        }
        self.adopt_catalog(at, mode, after_fault);
        self.adopt_state(at, mode);
        self.stores[at].adopt_time(after_fault);
        let store = &mut self.stores[at];
        let db = store.db.clone().unwrap();
        store.kept.adopt(&db, mode.is_some());
        store.adopt_consumers(&db, mode.is_some());
        let attempts = std::mem::take(&mut store.attempts);
        let last = store.now().seq;
        store.acted.retain(|_, by| by.is_none_or(|by| by <= last));
        for set in &mut store.sets {
            set.known.forget(last);
        }
        self.compare_catalog(at);
        let known = self.stores[at].acted.clone();
        self.note_expired_in(at);
        self.stores[at].doubt_deletions(&known, &attempts);
    }

    /// The datasets and definitions are unchanged, except by changes that failed.
    fn adopt_catalog(&mut self, at: usize, mode: Option<PowerCut>, after_fault: bool) {
        let store = &mut self.stores[at];
        let db = store.db.clone().unwrap();
        let names = db.dataset_names();
        let lost = std::mem::take(&mut store.lost_sets);
        let made = std::mem::take(&mut store.made_sets);
        let (there, gone) = std::mem::take(&mut store.sets)
            .into_iter()
            .partition::<Vec<Set>, _>(|set| names.contains(&set.name));
        store.sets = there;
        for set in &gone {
            assert!(lost.contains(&set.uid), "{} is gone", set.name);
        }
        let mut back = Vec::new();
        for name in names {
            if !store.sets.iter().any(|set| set.name == name) {
                let def = db.dataset::<esker::Key>(&name).unwrap().def();
                let is_it = |set: &&Set| set.name == name && set.def == def;
                let may_be = |set: &&Set| {
                    let is_open = set.doubt || set.def.auto || after_fault && set.known.partial;
                    set.name == name && is_open
                };
                let set = made.iter().rev().find(is_it);
                let set = set.or_else(|| made.iter().rev().find(may_be));
                let set = set.unwrap_or_else(|| panic!("{name} is there, and was dropped"));
                back.push(set.uid);
                store.sets.push(set.clone());
            }
        }
        store.sets.sort_by(|a, b| a.name.cmp(&b.name));
        if mode.is_none() {
            // Failed changes may be visible now, and are no more durable than before.
            store.made_sets = made.into_iter().chain(gone).collect();
            store.lost_sets = lost.into_iter().chain(back).collect();
        }
        for set in &mut store.sets {
            let dataset = db.dataset::<esker::Key>(&set.name).unwrap();
            let (def, unfinished) = (dataset.def(), dataset.unfinished_index());
            if set.doubt || set.def.auto || after_fault && set.known.partial {
                set.def = def;
                set.unfinished = unfinished;
                set.doubt &= mode.is_none();
            }
        }
    }

    /// Checks that the datasets of a store and their definitions are as expected.
    pub(crate) fn compare_catalog(&mut self, at: usize) {
        let store = &self.stores[at];
        let db = store.db.as_ref().unwrap();
        let names: Vec<String> = store.sets.iter().map(|set| set.name.clone()).collect();
        assert_eq!(db.dataset_names(), names, "the datasets");
        for set in &store.sets {
            let dataset = db.dataset::<esker::Key>(&set.name).unwrap();
            let found = (dataset.def(), dataset.unfinished_index());
            assert_eq!(
                found,
                (set.def.clone(), set.unfinished.clone()),
                "{}",
                set.name
            );
        }
    }

    /// Finds the current state among the possible ones.
    fn adopt_state(&mut self, at: usize, mode: Option<PowerCut>) {
        let store = &self.stores[at];
        let db = store.db.as_ref().unwrap();
        let lossy = matches!(
            mode,
            Some(PowerCut::Lost | PowerCut::Torn | PowerCut::Reordered)
        );
        let first = if lossy { 0 } else { store.states.len() - 1 };
        let all: Vec<State> = store.states[first..]
            .iter()
            .chain(&store.attempts)
            .cloned()
            .collect();
        let seq = db.group().snapshot().seq();
        assert!(seq >= store.told, "write {} was synced", store.told);
        let right = |state: &&State| holds(db, store, state).unwrap();
        let mut candidates: Vec<&State> = all.iter().filter(right).collect();
        candidates.sort_by_key(|state| state.seq);
        let found = candidates.iter().rev().find(|state| state.seq == seq);
        let Some(found) = found.or(candidates.last()) else {
            let numbers: Vec<u64> = all.iter().map(|state| state.seq).collect();
            panic!("{}", self.differs(at, seq, &numbers));
        };
        count(match (mode.is_some(), found.seq == store.now().seq) {
            (true, true) => "recovered: all",
            (true, false) => "recovered: a part",
            (false, _) => "opened again",
        });
        if store.attempts.iter().any(|state| state.seq == found.seq) {
            count("recovered: what had failed");
        }
        let mut found = (*found).clone();
        // Deletions of missing keys leave no trace.
        found.seq = seq;
        let position = db.group().position();
        let store = &mut self.stores[at];
        store.commits.opened(position);
        match (mode, store.now().seq == seq) {
            (Some(_), _) => store.states = vec![found],
            (None, true) => *store.states.last_mut().unwrap() = found,
            // Failed changes may be visible now, and are no more durable than before.
            (None, false) => store.states.push(found),
        }
    }

    fn differs(&self, at: usize, seq: u64, numbers: &[u64]) -> String {
        let store = &self.stores[at];
        let db = store.db.as_ref().unwrap();
        let mut text = format!("no state of writes {numbers:?} is there, but one of write {seq}:");
        for set in &store.sets {
            let dataset = db.dataset::<esker::Key>(&set.name).unwrap();
            let scan = dataset.scan(..);
            let found: Vec<(u64, String)> = scan
                .map(|record| record.unwrap())
                .map(|record| (record.seq(), record.key().to_string()))
                .collect();
            let records = store.records(set.uid);
            let right: Vec<(u64, String)> = records
                .rows()
                .map(|(key, seq, _)| (seq, key.to_string()))
                .collect();
            text += &format!("\n{}: {found:?}\nlast was {right:?}", set.name);
        }
        text
    }

    /// Changes a byte of a copy: every answer of the copy must be right, or an error that names the
    /// damaged file.
    fn damage(&mut self, at: usize, (file, place, cut): (u16, u32, bool), seed: u64) {
        let store = &self.stores[at];
        if store.db.is_none() || store.excused {
            return;
        }
        let image = store.memory.power_cut(seed, PowerCut::Kept);
        let paths: Vec<_> = image
            .paths()
            .into_iter()
            .filter(|path| path.starts_with(&store.dir) && !path.ends_with("USAGE"))
            .collect();
        // Often the end of a log: only the manifest may show that it was synced.
        let is_log = |path: &Path| path.extension().is_some_and(|end| end == "log");
        let logs: Vec<_> = paths.iter().filter(|path| is_log(path)).collect();
        let (of_log, file) = (file % 3 == 0 && !logs.is_empty(), usize::from(file / 3));
        let path = if of_log {
            logs[file % logs.len()].clone()
        } else {
            paths[file % paths.len()].clone()
        };
        let mut bytes = image.read(&path).unwrap();
        if bytes.is_empty() {
            return;
        }
        let place = if of_log {
            bytes.len() - 1 - place as usize % bytes.len().min(80)
        } else {
            place as usize % bytes.len()
        };
        let damaged = if cut {
            place as u64..u64::MAX
        } else {
            place as u64..place as u64 + 1
        };
        if cut {
            bytes.truncate(place)
        } else {
            bytes[place] ^= 1 << (seed % 8)
        }
        image.write(&path, &bytes);
        let is_table = path.extension().is_some_and(|end| end == "tbl");
        self.tell(|_| format!("  {}, byte {place}", path.display()));
        let store = &self.stores[at];
        let named = |error: &esker::Error| {
            let fits = matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NoStore);
            let text = error.to_string();
            let names = text.contains('/') || text.contains("dataset");
            assert!(fits && names, "{:?}: {text}", error.kind());
        };
        let db = match store.try_open(Some(&image)) {
            Ok(db) => db,
            Err(error) => {
                count("damage: does not open");
                return named(&error);
            }
        };
        // Bytes after the last sync marker of an open log or manifest may count as a torn tail, but
        // not those that were synced before the manifest was written.
        let (last, told) = (db.group().snapshot().seq(), store.told);
        assert!(
            !is_log(&path) || last >= told,
            "write {told} was synced, and {last} is the last"
        );
        let states: &[State] = if is_table {
            &store.states[store.states.len() - 1..]
        } else {
            &store.states
        };
        let names = db.dataset_names();
        let same = store.sets.iter().map(|set| &set.name).eq(names.iter());
        if !same {
            assert!(!is_table, "{} datasets", names.len());
            return;
        }
        let mut found = None;
        for state in states.iter().rev() {
            match holds(&db, store, state) {
                Ok(true) => {
                    found = Some(state);
                    break;
                }
                Ok(false) => {}
                Err(error) => return named(&error),
            }
        }
        let Some(state) = found else {
            assert!(!is_table, "a damaged table shows other records");
            return;
        };
        if state.seq != store.now().seq {
            count("damage: a shorter log");
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        for set in &store.sets {
            let dataset = db.dataset::<esker::Key>(&set.name).unwrap();
            if dataset.def() != set.def {
                assert!(!is_table);
                return;
            }
            let records = state.records.get(&set.uid).cloned().unwrap_or_default();
            for _ in 0..3 {
                let now = dataset.snapshot();
                let view = set.view();
                let records = records.at(db.group().time());
                if let Err(error) = ask::some(&now, &view, &records, &mut rng, 1) {
                    count("damage: an error of an answer");
                    named(&error);
                }
            }
        }
        if let Err(error) = self.ask_damaged(at, &db, &mut rng) {
            count("damage: an error of a snapshot");
            named(&error);
        }
        if is_table {
            contain::live_on(db, &image, (store, state), (&path, &damaged), &mut rng);
        }
    }
}

/// True if the datasets of a store have the records of a state, each by the same write.
fn holds(db: &Database, store: &Store, state: &State) -> esker::Result<bool> {
    if !beside::holds(db, state)? {
        return Ok(false);
    }
    for set in &store.sets {
        let dataset = db.dataset::<esker::Key>(&set.name)?;
        let records = state.records.get(&set.uid).cloned().unwrap_or_default();
        if dataset.notes()? != records.notes {
            return Ok(false);
        }
        if set.is_timed {
            if !store.holds_stored(db, set, &records)? {
                return Ok(false);
            }
            continue;
        }
        let mut right = records.rows();
        for record in dataset.scan(..) {
            let record = record?;
            let same = right.next().is_some_and(|(_, seq, put)| {
                seq == record.seq() && put.body.as_bytes() == record.json()
            });
            if !same {
                return Ok(false);
            }
        }
        if right.next().is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}
