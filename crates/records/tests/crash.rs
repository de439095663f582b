//! Power cuts at every file-system call of a random life with an index of every kind, under each
//! maintenance strategy: what was acknowledged as durable is there afterwards, batches are whole, every
//! index agrees with the data, and no current record is among the writes that are over.
//! `ESKER_SEEDS=50 cargo test --test crash` tries thousands of cuts; `ESKER_SEED=17` repeats a life.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{
    Doing, INDEXED, Model, PATHS, Put, Wanted, check, check_set, expected, keys_in_every_way, open,
    path, rows, scan, seeds, upkeep,
};
use esker::fs::Fs;
use esker::fs::faulty::Faulty;
use esker::fs::memory::{Memory, PowerCut};
use esker::{
    Database, Dataset, DatasetDef, Durability, ErrorKind, KeyType, Op, Order, Type, Value,
};

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

const STEPS: usize = 45;
const KEYS: usize = 40;
const VALUES: i128 = 5;

/// What was done up to a point, and what of it may be found after a power cut.
struct History {
    /// The state before the first batch, and after each.
    states: Vec<Model<usize>>,
    /// The first of `states` that may be found.
    durable: usize,
    /// The last of `states` that was acknowledged.
    acknowledged: usize,
    created: bool,
}

fn def(seed: u64) -> DatasetDef {
    let def = upkeep(DatasetDef::new(path("id"), KeyType::Int), seed as usize);
    PATHS
        .iter()
        .zip(INDEXED)
        .fold(def, |def, (at, kind)| def.index(path(at), kind, Type::Int))
}

fn record(key: usize, value: i128, order: u64, pad: usize) -> Put {
    let fields: String = PATHS
        .iter()
        .map(|at| format!("\"{at}\":{value},"))
        .collect();
    let body = format!(
        "{{\"id\":{key},{fields}\"order\":{order},\"pad\":\"{}\"}}",
        "x7".repeat(pad)
    );
    let values = PATHS
        .iter()
        .map(|at| ((*at).to_string(), vec![Value::Int(value)]))
        .collect();
    Put {
        order,
        body,
        values,
    }
}

/// Lives until the end or the first failure. The same seed does the same.
fn live(fs: Arc<dyn Fs>, seed: u64) -> History {
    let mut history = History {
        states: vec![Model::new()],
        durable: 0,
        acknowledged: 0,
        created: false,
    };
    // An error ends the life; what may have been in flight is in the history.
    let _ = try_live(fs, seed, &mut history);
    history
}

fn try_live(fs: Arc<dyn Fs>, seed: u64, history: &mut History) -> esker::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut db = open(fs.clone())?;
    let mut dataset = db.create_dataset("d", def(seed))?;
    history.created = true;
    let mut order = 0;
    for _ in 0..STEPS {
        match rng.usize(0..20) {
            0 | 1 => db.flush()?,
            2 => {
                db.flush()?;
                db.group().settle_merges()?;
            }
            3 => db.compact(None)?,
            4 => {
                db.sync()?;
                history.durable = history.acknowledged;
            }
            5 => {
                drop(dataset);
                db.close()?;
                history.durable = history.acknowledged;
                db = open(fs.clone())?;
                dataset = db.dataset("d")?;
            }
            _ => {
                let mut batch = dataset.batch();
                let mut state = history.states.last().unwrap().clone();
                for _ in 0..rng.usize(1..12) {
                    let key = rng.usize(0..KEYS);
                    if rng.usize(0..4) == 0 {
                        batch.delete(&dataset.parse_key(&key.to_string())?)?;
                        state.remove(&key);
                    } else {
                        order += 1;
                        let put = record(key, rng.i128(0..VALUES), order, rng.usize(0..150));
                        batch.put(put.body.as_bytes())?;
                        state.insert(key, put);
                    }
                }
                history.states.push(state);
                let durability = match rng.usize(0..3) {
                    0 => Durability::Sync,
                    1 => Durability::Periodic(Duration::from_millis(10)),
                    _ => Durability::Os,
                };
                batch.commit(durability)?;
                history.acknowledged += 1;
                // Without threads of its own a store syncs at once what it may sync later.
                if durability != Durability::Os {
                    history.durable = history.acknowledged;
                }
            }
        }
    }
    Ok(())
}

/// Opens what a power cut left, and finds in it one of the states that may be there.
fn verify(left: Memory, history: &History, mode: PowerCut) {
    let db = open(Arc::new(left.clone())).unwrap();
    let dataset = match db.dataset("d") {
        Ok(dataset) => dataset,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnknownDataset);
            assert!(!history.created, "the dataset is gone");
            return;
        }
    };
    let found = scan(&dataset, &dataset.snapshot()).unwrap();
    let first = match mode {
        PowerCut::Kept => history.acknowledged,
        _ => history.durable,
    };
    let state = history.states[first..].iter().rev().find(|state| {
        let bodies = state.iter().map(|(key, put)| (key.to_string(), &put.body));
        bodies.eq(found.iter().map(|(key, body)| (key.clone(), body)))
    });
    let Some(state) = state else {
        let known = history.states.iter().position(|state| {
            let bodies = state.values().map(|put| &put.body);
            bodies.eq(found.iter().map(|row| &row.1))
        });
        panic!(
            "{} records, which is state {known:?}, not one of {first}..{}",
            found.len(),
            history.states.len()
        );
    };
    agree(&db, &dataset, state);
    // The store goes on: one more write, and a second opening.
    let mut state = state.clone();
    let put = record(KEYS, 0, u64::MAX, 10);
    dataset.put(put.body.as_bytes()).unwrap();
    state.insert(KEYS, put);
    agree(&db, &dataset, &state);
    drop(dataset);
    db.close().unwrap();
    let db = open(Arc::new(left)).unwrap();
    let dataset = db.dataset("d").unwrap();
    agree(&db, &dataset, &state);
}

/// Every index, and the check, agree with a state.
fn agree(db: &Database, dataset: &Dataset, state: &Model<usize>) {
    check(db);
    check_set(db);
    for at in PATHS {
        for value in 0..VALUES {
            let wanted = [Wanted {
                path: at.to_string(),
                op: Op::Eq,
                value: Value::Int(value),
            }];
            let found = rows(dataset, dataset.query().condition(wanted[0].condition()));
            let right = expected(state, &wanted, Order::Newest, None);
            assert_eq!(found, right, "{at} = {value}");
            let query = dataset.query().condition(wanted[0].condition());
            let keys: Vec<String> = right.into_iter().map(|row| row.0).collect();
            assert_eq!(keys_in_every_way(dataset, &query), keys, "{at} = {value}");
        }
        let range = dataset.query().between(&path(at), "1", "3");
        let wanted = [(Op::Ge, 1), (Op::Le, 3)].map(|(op, value)| Wanted {
            path: at.to_string(),
            op,
            value: Value::Int(value),
        });
        let right = expected(state, &wanted, Order::Newest, Some(7));
        assert_eq!(rows(dataset, range.limit(Some(7))), right, "{at} 1..3");
    }
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_durable_and_tears_no_batch_or_index() {
    let mut cases = 0;
    let mut by_mode = BTreeMap::new();
    for seed in seeds(5) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        let whole = live(Arc::new(quiet.clone()), seed);
        assert_eq!(whole.acknowledged + 1, whole.states.len(), "seed {seed}");
        let calls = quiet.calls();
        for cut in 1..=calls + 1 {
            let mode = MODES[(cut as usize + seed as usize) % MODES.len()];
            let _doing = Doing(format!("ESKER_SEED={seed}: cut at call {cut}, {mode:?}"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.short_writes(cut % 3 == 0);
            faulty.fail_from(cut);
            let history = live(Arc::new(faulty), seed);
            verify(memory.power_cut(seed ^ cut, mode), &history, mode);
            cases += 1;
            *by_mode.entry(format!("{mode:?}")).or_insert(0) += 1;
        }
    }
    println!("{cases} power cuts: {by_mode:?}");
}

#[test]
fn a_call_that_fails_once_loses_nothing_that_was_acknowledged() {
    for seed in seeds(1) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        live(Arc::new(quiet.clone()), seed);
        for at in 1..=quiet.calls() {
            let _doing = Doing(format!("ESKER_SEED={seed}: call {at} fails"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.fail_at(at);
            let history = live(Arc::new(faulty.clone()), seed);
            // The process ended; the machine did not.
            verify(
                memory.power_cut(at, PowerCut::Kept),
                &history,
                PowerCut::Kept,
            );
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_every_record_and_goes_on_when_there_is_room() {
    for seed in seeds(1) {
        for capacity in (4 << 10..200 << 10).step_by(4 << 10) {
            let _doing = Doing(format!("ESKER_SEED={seed}: {capacity} bytes"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            let mut rng = fastrand::Rng::with_seed(seed);
            let db = open(Arc::new(faulty.clone())).unwrap();
            let dataset = db.create_dataset("d", def(seed)).unwrap();
            faulty.set_capacity(capacity);
            let mut state = Model::new();
            let mut refused = 0;
            for order in 1..600 {
                let key = rng.usize(0..KEYS);
                let put = record(key, rng.i128(0..VALUES), order, rng.usize(0..300));
                let outcome = dataset.put(put.body.as_bytes());
                match outcome {
                    Ok(()) => {
                        state.insert(key, put);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        refused += 1;
                        if refused == 3 {
                            agree(&db, &dataset, &state);
                            faulty.clear();
                        }
                        // A flush that found no room is tried again.
                        let _ = db.flush();
                    }
                }
                if order % 100 == 0 {
                    let _ = db.flush();
                    let _ = db.group().settle_merges();
                }
            }
            agree(&db, &dataset, &state);
            faulty.clear();
            drop(dataset);
            db.close().unwrap();
            let db = open(Arc::new(memory)).unwrap();
            agree(&db, &db.dataset("d").unwrap(), &state);
        }
    }
}
