//! Power cuts at every file-system call while indexes are added, switched and dropped and writes go
//! on: what was acknowledged as durable is there, every index agrees with the data at once, a change that was cut off
//! is known and resumed, and everything agrees again.
//! `ESKER_SEEDS=50 cargo test --test change_crash` tries more; `ESKER_SEED=17` repeats a life.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use common::{DIR, Doing, check, keys, path, scan, seeds, small};
use esker::fs::Fs;
use esker::fs::faulty::Faulty;
use esker::fs::memory::{Memory, PowerCut};
use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Maintenance, Options, Type,
};

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

const KEYS: u64 = 60;
const VALUES: u64 = 4;

/// By key: the value, and the order of the write.
type Model = BTreeMap<u64, (u64, u64)>;

/// What was done, and from which state on what may be found.
struct History {
    states: Vec<Model>,
    durable: usize,
    created: bool,
    rng: fastrand::Rng,
    order: u64,
}

/// Little memory, so that an index is built in many pieces.
fn open(fs: Arc<dyn Fs>) -> esker::Result<Database> {
    let options = Options {
        memory_budget: 16 << 10,
        table_size: 1 << 10,
        ..small(fs)
    };
    Database::create_or_open(FsPath::new(DIR), options)
}

impl History {
    fn write(&mut self, dataset: &Dataset, most: usize) -> esker::Result<()> {
        let mut batch = dataset.batch();
        let mut state = self.states.last().unwrap().clone();
        for _ in 0..self.rng.usize(1..most) {
            let key = self.rng.u64(0..KEYS);
            if self.rng.usize(0..5) == 0 {
                batch.delete(&dataset.parse_key(&key.to_string())?)?;
                state.remove(&key);
            } else {
                self.order += 1;
                let value = self.rng.u64(0..VALUES);
                batch.put(body(key, value, self.order).as_bytes())?;
                state.insert(key, (value, self.order));
            }
        }
        let durable = self.rng.usize(0..3) == 0;
        self.states.push(state);
        batch.commit(if durable {
            Durability::Sync
        } else {
            Durability::Os
        })?;
        if durable {
            self.durable = self.states.len() - 1;
        }
        Ok(())
    }
}

fn body(key: u64, value: u64, order: u64) -> String {
    let pad = "p".repeat((key * 3) as usize);
    format!("{{\"id\":{key},\"a\":{value},\"b\":{value},\"order\":{order},\"pad\":\"{pad}\"}}")
}

fn live(fs: Arc<dyn Fs>, seed: u64) -> History {
    let mut history = History {
        states: vec![Model::new()],
        durable: 0,
        created: false,
        rng: fastrand::Rng::with_seed(seed),
        order: 0,
    };
    // An error ends the life; what may have been in flight is in the history.
    let _ = try_live(fs, &mut history);
    history
}

fn try_live(fs: Arc<dyn Fs>, history: &mut History) -> esker::Result<()> {
    let db = open(fs)?;
    let kind = |history: &mut History| IndexKind::ALL[history.rng.usize(0..IndexKind::ALL.len())];
    let first = kind(history);
    let def = DatasetDef::new(path("id"), KeyType::Int).index(path("a"), first, Type::Int);
    let dataset = db.create_dataset("d", def)?;
    history.created = true;
    for _ in 0..4 {
        history.write(&dataset, 30)?;
    }
    db.flush()?;
    history.write(&dataset, 30)?;
    for (at, add) in [("b", true), ("a", false), ("b", false), ("a", false)] {
        let to = kind(history);
        let mut failed = None;
        let mut progress = |_| {
            if history.rng.bool()
                && let Err(error) = history.write(&dataset, 4)
            {
                failed = Some(error);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let at = path(at);
        let result = if add {
            dataset.add_index(&at, to, None, &mut progress)
        } else {
            dataset.switch_index(&at, to, &mut progress)
        };
        if let Some(error) = failed {
            return Err(error);
        }
        match result {
            // It was of this kind already.
            Err(error) if error.kind() == esker::ErrorKind::Exists => {}
            result => drop(result?),
        }
        history.write(&dataset, 10)?;
        if history.rng.usize(0..3) == 0 {
            db.flush()?;
            db.group().settle_merges()?;
        }
    }
    db.close()
}

/// Opens what a power cut left, and finds in it one of the states that may be there.
fn verify(left: Memory, history: &History) {
    let db = open(Arc::new(left.clone())).unwrap();
    let Ok(dataset) = db.dataset("d") else {
        assert!(!history.created, "the dataset is gone");
        return;
    };
    let found = scan(&dataset, &dataset.snapshot()).unwrap();
    let state = history.states[history.durable..]
        .iter()
        .rev()
        .find(|state| {
            let rows = state.iter();
            rows.map(|(key, (value, order))| (key.to_string(), body(*key, *value, *order)))
                .eq(found.iter().cloned())
        });
    let mut state = state.expect("a state that may be there").clone();
    agree(&db, &dataset, &state);
    // Life goes on, an unfinished change is resumed, and life goes on.
    let put = |key, state: &mut Model, order| {
        dataset.put(body(key, 1, order).as_bytes()).unwrap();
        state.insert(key, (1, order));
    };
    put(KEYS, &mut state, 1_000_001);
    put(3, &mut state, 1_000_002);
    agree(&db, &dataset, &state);
    let unfinished = dataset.unfinished_index();
    let done = dataset
        .resume_index(&mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(done.map(|done| done.to), unfinished.map(|def| def.kind));
    agree(&db, &dataset, &state);
    put(4, &mut state, 1_000_003);
    drop(dataset);
    db.close().unwrap();
    let db = open(Arc::new(left)).unwrap();
    let dataset = db.dataset("d").unwrap();
    assert_eq!(dataset.unfinished_index(), None);
    agree(&db, &dataset, &state);
}

fn agree(db: &Database, dataset: &Dataset, state: &Model) {
    check(db);
    for at in ["a", "b"] {
        for value in 0..VALUES {
            let mut right: Vec<(u64, u64)> = state
                .iter()
                .filter(|(_, put)| put.0 == value)
                .map(|(key, put)| (put.1, *key))
                .collect();
            right.sort_unstable_by(|a, b| b.cmp(a));
            let right: Vec<String> = right.iter().map(|(_, key)| key.to_string()).collect();
            let query = dataset.query().equals(&path(at), &value.to_string());
            assert_eq!(keys(dataset, query), right, "{at} = {value}");
        }
    }
}

#[test]
fn a_power_cut_at_any_call_of_a_change_leaves_exact_indexes_and_a_change_that_can_be_resumed() {
    let mut cases = 0;
    for seed in seeds(4) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        let whole = live(Arc::new(quiet.clone()), seed);
        let _doing = Doing(format!("ESKER_SEED={seed}"));
        verify(
            {
                let memory = Memory::new();
                live(Arc::new(memory.clone()), seed);
                memory.power_cut(seed, PowerCut::Kept)
            },
            &whole,
        );
        let calls = quiet.calls();
        for cut in 1..=calls {
            let mode = MODES[(cut as usize + seed as usize) % MODES.len()];
            let _doing = Doing(format!("ESKER_SEED={seed}: cut at call {cut}, {mode:?}"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.short_writes(cut % 3 == 0);
            faulty.fail_from(cut);
            let history = live(Arc::new(faulty), seed);
            verify(memory.power_cut(seed ^ cut, mode), &history);
            cases += 1;
        }
    }
    println!("{cases} power cuts");
}

#[test]
fn a_call_that_fails_once_leaves_a_change_that_can_be_resumed() {
    for seed in seeds(1) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        live(Arc::new(quiet.clone()), seed);
        for at in 1..=quiet.calls() {
            let _doing = Doing(format!("ESKER_SEED={seed}: call {at} fails"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.fail_at(at);
            let history = live(Arc::new(faulty), seed);
            verify(memory.power_cut(at, PowerCut::Kept), &history);
        }
    }
}

/// Carries out a change of a dataset, as long as the function says so.
type Change<'c> = dyn Fn(&Dataset, &mut dyn FnMut() -> ControlFlow<()>) + 'c;

/// Puts a hundred records, begins a change of the dataset and breaks it off before it has read anything, deletes or
/// replaces every record without a sync, resumes the change, and cuts the power.
fn begun_broken_off_emptied(what: &str, replaced: bool, cut: PowerCut, change: &Change<'_>) {
    let memory = Memory::new();
    let db = open(Arc::new(memory.clone())).unwrap();
    let def =
        DatasetDef::new(path("id"), KeyType::Int).index(path("a"), IndexKind::Composite, Type::Int);
    let dataset = db.create_dataset("d", def).unwrap();
    let mut batch = dataset.batch();
    for key in 0..100 {
        batch.put(body(key, key % VALUES, key).as_bytes()).unwrap();
    }
    batch.commit(Durability::Sync).unwrap();
    change(&dataset, &mut || ControlFlow::Break(()));
    for key in 0..100 {
        if replaced {
            batch.put(body(key, (key + 1) % VALUES, 100 + key).as_bytes())
        } else {
            batch.delete(&dataset.parse_key(&key.to_string()).unwrap())
        }
        .unwrap();
    }
    batch.commit(Durability::Os).unwrap();
    change(&dataset, &mut || ControlFlow::Continue(()));
    let left = memory.power_cut(1, cut);
    let db = open(Arc::new(left)).unwrap();
    let dataset = db.dataset("d").unwrap();
    let report = db.check().unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "{what}, {cut:?}");
    let scanned = scan(&dataset, &dataset.snapshot()).unwrap().len() as u64;
    for at in ["a", "b"] {
        let all = dataset.query().between(&path(at), "0", "9");
        assert_eq!(all.count().unwrap().0, scanned, "{what}, {at}, {cut:?}");
    }
}

#[test]
fn what_a_change_passed_over_because_it_was_replaced_does_not_come_back_by_a_power_cut() {
    for cut in MODES {
        for replaced in [false, true] {
            for kind in IndexKind::ALL {
                let add = |dataset: &Dataset, go: &mut dyn FnMut() -> ControlFlow<()>| {
                    let progress = &mut |_| go();
                    dataset.add_index(&path("b"), kind, None, progress).unwrap();
                };
                begun_broken_off_emptied(&kind.to_string(), replaced, cut, &add);
            }
            for to in Maintenance::ALL {
                let change = |dataset: &Dataset, go: &mut dyn FnMut() -> ControlFlow<()>| {
                    dataset.set_maintenance(to, &mut |_| go()).unwrap();
                };
                begun_broken_off_emptied(&to.to_string(), replaced, cut, &change);
            }
        }
    }
}
