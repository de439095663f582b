//! Changing the maintenance strategy of a dataset in use: answers are those of a scan at every moment, through
//! snapshots, reopenings, power cuts at every file-system call, and with writers going on.
//! `ESKER_SEEDS=50 cargo test --test upkeep` tries more; `ESKER_SEED=17` repeats a life.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{DIR, Doing, check, path, scan, seeds, small};
use esker::fs::Fs;
use esker::fs::faulty::Faulty;
use esker::fs::memory::{Memory, PowerCut};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, IndexKind, KeyType, Maintenance,
    Merging, Options, Repair, RepairOptions, SwitchReport, Type, Validation,
};

const KEYS: u64 = 80;
const VALUES: u64 = 5;

const KINDS: [IndexKind; 5] = [
    IndexKind::Filter,
    IndexKind::Composite,
    IndexKind::Lazy,
    IndexKind::Recent,
    IndexKind::Eager,
];

/// By key: the value, and the order of the write.
type Model = BTreeMap<u64, (u64, u64)>;

fn open(fs: Arc<dyn Fs>) -> esker::Result<Database> {
    let options = Options {
        memory_budget: 64 << 10,
        table_size: 2 << 10,
        ..small(fs)
    };
    Database::create_or_open(FsPath::new(DIR), options)
}

fn body(key: u64, value: u64, order: u64) -> String {
    let pad = "p".repeat((key * 3) as usize);
    format!("{{\"id\":{key},\"a\":{value},\"b\":{value},\"order\":{order},\"pad\":\"{pad}\"}}")
}

fn definition(rng: &mut fastrand::Rng) -> DatasetDef {
    let mut kind = || KINDS[rng.usize(0..KINDS.len())];
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("a"), kind(), Type::Int)
        .index(path("b"), kind(), Type::Int);
    let merging = [Merging::Leveled, Merging::Tiered, Merging::Correlated][rng.usize(0..3)];
    let repair = [Repair::Merge, Repair::Merge, Repair::None][rng.usize(0..3)];
    def.maintenance(strategy(rng))
        .merging(merging)
        .repair(repair)
}

fn strategy(rng: &mut fastrand::Rng) -> Maintenance {
    Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())]
}

/// Everything that can be asked gives what the model has.
fn agree(snapshot: &DatasetSnapshot, model: &Model) {
    for at in ["a", "b"] {
        for value in 0..VALUES {
            let has = |put: &(u64, u64)| put.0 == value;
            let mut right: Vec<(u64, u64)> = model
                .iter()
                .filter(|(_, put)| has(put))
                .map(|(key, put)| (put.1, *key))
                .collect();
            right.sort_unstable_by(|a, b| b.cmp(a));
            let right: Vec<String> = right.iter().map(|(_, key)| key.to_string()).collect();
            let query = || snapshot.query().equals(&path(at), &value.to_string());
            for validation in [Validation::Auto, Validation::Direct, Validation::Timestamp] {
                let keys = query().validation(validation).keys().unwrap();
                let keys: Vec<String> = keys.map(|key| key.unwrap().to_string()).collect();
                assert_eq!(keys, right, "keys with {at} = {value}, {validation:?}");
                let count = query().validation(validation).count().unwrap().0;
                assert_eq!(count, right.len() as u64, "{at} = {value}, {validation:?}");
            }
            assert_eq!(
                query().run().unwrap().count(),
                right.len(),
                "{at} = {value}"
            );
        }
        let above = model.values().filter(|put| put.0 >= 2).count() as u64;
        let range = snapshot.query().between(&path(at), "2", "9");
        assert_eq!(range.count().unwrap().0, above, "{at} >= 2");
    }
}

struct Life {
    rng: fastrand::Rng,
    model: Model,
    order: u64,
}

impl Life {
    /// A batch with some puts, deletes and inserts, keys that come twice among them.
    fn write(
        &mut self,
        dataset: &Dataset,
        most: usize,
        durability: Durability,
    ) -> esker::Result<()> {
        let mut batch = dataset.batch();
        let after = self.fill(dataset, &mut batch, most)?;
        batch.commit(durability)?;
        self.model = after;
        Ok(())
    }

    fn fill(
        &mut self,
        dataset: &Dataset,
        batch: &mut esker::WriteBatch,
        most: usize,
    ) -> esker::Result<Model> {
        let mut after = self.model.clone();
        for _ in 0..self.rng.usize(1..most) {
            let key = self.rng.u64(0..KEYS);
            if self.rng.usize(0..6) == 0 {
                batch.delete(&dataset.parse_key(&key.to_string())?)?;
                after.remove(&key);
                continue;
            }
            self.order += 1;
            let value = self.rng.u64(0..VALUES);
            batch.put(body(key, value, self.order).as_bytes())?;
            after.insert(key, (value, self.order));
        }
        Ok(after)
    }
}

#[test]
fn a_life_with_changes_of_strategy_gives_the_answers_of_its_model() {
    let mut settled = 0;
    for seed in seeds(60) {
        let _doing = Doing(format!("ESKER_SEED={seed}"));
        settled += life(seed);
    }
    assert!(settled > 100, "{settled}");
}

/// Returns how many changes of strategy were brought to their end.
fn life(seed: u64) -> u64 {
    let fs = Memory::new();
    let mut db = open(Arc::new(fs.clone())).unwrap();
    let mut life = Life {
        rng: fastrand::Rng::with_seed(seed),
        model: Model::new(),
        order: 0,
    };
    let def = definition(&mut life.rng);
    let mut dataset = db.create_dataset("d", def).unwrap();
    let mut kept: Vec<(DatasetSnapshot, Model)> = Vec::new();
    let mut settled = 0;
    for _ in 0..90 {
        match life.rng.usize(0..22) {
            0..=8 => life.write(&dataset, 40, Durability::Os).unwrap(),
            9..=10 => db.flush().unwrap(),
            11 => db.compact(None).unwrap(),
            12 => db.group().settle_merges().unwrap(),
            13 => kept.push((dataset.snapshot(), life.model.clone())),
            14 => drop(kept.pop()),
            15..=16 => agree(&dataset.snapshot(), &life.model),
            17 => {
                if let Some((snapshot, model)) = kept.last() {
                    agree(snapshot, model);
                }
            }
            18 => {
                let report =
                    dataset.repair(
                        &RepairOptions::default(),
                        &mut |_| ControlFlow::Continue(()),
                    );
                assert!(report.unwrap().complete);
            }
            19 if kept.is_empty() => {
                drop(dataset);
                db.close().unwrap();
                db = open(Arc::new(fs.clone())).unwrap();
                dataset = db.dataset("d").unwrap();
            }
            _ => settled += u64::from(switch(&db, &dataset, &mut life, &mut kept)),
        }
    }
    agree(&dataset.snapshot(), &life.model);
    let def = dataset.def();
    dataset
        .set_maintenance(def.maintenance, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    agree(&dataset.snapshot(), &life.model);
    db.compact(None).unwrap();
    agree(&dataset.snapshot(), &life.model);
    for (snapshot, model) in &kept {
        agree(snapshot, model);
    }
    check(&db);
    settled
}

/// Changes the strategy, with life in the middle of it; now and then it is broken off.
fn switch(
    db: &Database,
    dataset: &Dataset,
    life: &mut Life,
    kept: &mut Vec<(DatasetSnapshot, Model)>,
) -> bool {
    let to = strategy(&mut life.rng);
    // Made for the strategy before, committed under the new one.
    let mut batch = dataset.batch();
    let after = life.fill(dataset, &mut batch, 30).unwrap();
    let mut batch = Some((batch, after));
    let report: SwitchReport = dataset
        .set_maintenance(to, &mut |_| {
            assert_eq!(dataset.def().maintenance, to);
            if let Some((mut batch, after)) = batch.take() {
                batch.commit(Durability::Os).unwrap();
                life.model = after;
            }
            match life.rng.usize(0..8) {
                0..=2 => life.write(dataset, 20, Durability::Os).unwrap(),
                3 => kept.push((dataset.snapshot(), life.model.clone())),
                4 => agree(&dataset.snapshot(), &life.model),
                5 => db.flush().unwrap(),
                6 => return ControlFlow::Break(()),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    if let Some((mut batch, after)) = batch.take() {
        batch.commit(Durability::Os).unwrap();
        life.model = after;
    }
    assert_eq!(report.to, to);
    agree(&dataset.snapshot(), &life.model);
    report.complete
}

/// What was done until the file system failed, and from which state on what may be found.
struct History {
    states: Vec<Model>,
    durable: usize,
    created: bool,
    life: Life,
}

impl History {
    fn write(&mut self, dataset: &Dataset, most: usize) -> esker::Result<()> {
        let mut batch = dataset.batch();
        let after = self.life.fill(dataset, &mut batch, most)?;
        let durable = self.life.rng.usize(0..3) == 0;
        // An error may leave it in the log.
        self.states.push(after.clone());
        batch.commit(match durable {
            true => Durability::Sync,
            false => Durability::Os,
        })?;
        self.life.model = after;
        if durable {
            self.durable = self.states.len() - 1;
        }
        Ok(())
    }
}

fn cut_life(fs: Arc<dyn Fs>, seed: u64) -> History {
    let mut history = History {
        states: vec![Model::new()],
        durable: 0,
        created: false,
        life: Life {
            rng: fastrand::Rng::with_seed(seed),
            model: Model::new(),
            order: 0,
        },
    };
    // An error ends the life.
    let _ = try_cut_life(fs, &mut history);
    history
}

fn try_cut_life(fs: Arc<dyn Fs>, history: &mut History) -> esker::Result<()> {
    let db = open(fs)?;
    let def = definition(&mut history.life.rng);
    let dataset = db.create_dataset("d", def)?;
    history.created = true;
    for _ in 0..3 {
        history.write(&dataset, 30)?;
    }
    db.flush()?;
    history.write(&dataset, 30)?;
    for _ in 0..3 {
        let to = strategy(&mut history.life.rng);
        let mut failed = None;
        let result = dataset.set_maintenance(to, &mut |_| {
            if history.life.rng.bool()
                && let Err(error) = history.write(&dataset, 6)
            {
                failed = Some(error);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        result?;
        history.write(&dataset, 10)?;
        if history.life.rng.usize(0..3) == 0 {
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
    let states = history.states[history.durable..].iter().rev();
    let mut states = states.filter(|state| {
        let rows = state.iter();
        rows.map(|(key, (value, order))| (key.to_string(), body(*key, *value, *order)))
            .eq(found.iter().cloned())
    });
    let mut state = states.next().expect("a state that may be there").clone();
    agree(&dataset.snapshot(), &state);
    check(&db);
    let put = |key, state: &mut Model, order| {
        dataset.put(body(key, 1, order).as_bytes()).unwrap();
        state.insert(key, (1, order));
    };
    put(KEYS, &mut state, 1_000_001);
    put(3, &mut state, 1_000_002);
    agree(&dataset.snapshot(), &state);
    let to = dataset.def().maintenance;
    let report = dataset.set_maintenance(to, &mut |_| ControlFlow::Continue(()));
    assert!(report.unwrap().complete);
    agree(&dataset.snapshot(), &state);
    put(4, &mut state, 1_000_003);
    drop(dataset);
    db.close().unwrap();
    let db = open(Arc::new(left)).unwrap();
    agree(&db.dataset("d").unwrap().snapshot(), &state);
    check(&db);
}

#[test]
fn a_power_cut_at_any_call_of_a_change_leaves_exact_answers_and_a_change_that_goes_on() {
    const MODES: [PowerCut; 4] = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    let mut cases = 0;
    for seed in seeds(4) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        cut_life(Arc::new(quiet.clone()), seed);
        for cut in 1..=quiet.calls() {
            let mode = MODES[(cut as usize + seed as usize) % MODES.len()];
            let _doing = Doing(format!("ESKER_SEED={seed}: cut at call {cut}, {mode:?}"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.short_writes(cut % 3 == 0);
            faulty.fail_from(cut);
            let history = cut_life(Arc::new(faulty), seed);
            verify(memory.power_cut(seed ^ cut, mode), &history);
            cases += 1;
        }
    }
    println!("{cases} power cuts");
}

#[test]
fn a_call_that_fails_once_leaves_exact_answers_and_a_change_that_goes_on() {
    for seed in seeds(1) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        cut_life(Arc::new(quiet.clone()), seed);
        for at in 1..=quiet.calls() {
            let _doing = Doing(format!("ESKER_SEED={seed}: call {at} fails"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.fail_at(at);
            let history = cut_life(Arc::new(faulty), seed);
            verify(memory.power_cut(at, PowerCut::Kept), &history);
        }
    }
}

#[test]
fn writers_and_readers_go_on_while_strategies_change() {
    for seed in seeds(3) {
        let _doing = Doing(format!("ESKER_SEED={seed}"));
        with_threads(seed);
    }
}

/// Each writer has keys of its own, and each write of one is newer than what any reader saw of it before.
fn with_threads(seed: u64) {
    let options = Options {
        background: true,
        memory_budget: 256 << 10,
        ..small(Arc::new(Memory::new()))
    };
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    let dataset = db.create_dataset("d", definition(&mut rng)).unwrap();
    let (stop, order) = (AtomicBool::new(false), AtomicU64::new(0));
    let models: Vec<Model> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let (dataset, stop, order) = (dataset.clone(), &stop, &order);
                let mut rng = fastrand::Rng::with_seed(seed * 10 + writer);
                scope.spawn(move || {
                    let mut model = Model::new();
                    while !stop.load(Ordering::Relaxed) {
                        let mut batch = dataset.batch();
                        for _ in 0..rng.usize(1..20) {
                            let key = rng.u64(0..KEYS) * 2 + writer;
                            let value = rng.u64(0..VALUES);
                            let order = order.fetch_add(1, Ordering::Relaxed);
                            batch.put(body(key, value, order).as_bytes()).unwrap();
                            model.insert(key, (value, order));
                        }
                        batch.commit(Durability::Os).unwrap();
                    }
                    model
                })
            })
            .collect();
        let reader = {
            let (dataset, stop) = (dataset.clone(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = dataset.snapshot();
                    let records = snapshot.scan(None, None, false).unwrap();
                    let mut counts = [0; VALUES as usize];
                    for record in records {
                        let json: serde_json::Value =
                            serde_json::from_slice(record.unwrap().body()).unwrap();
                        counts[json["a"].as_u64().unwrap() as usize] += 1;
                    }
                    for (value, count) in counts.into_iter().enumerate() {
                        let query = snapshot.query().equals(&path("a"), &value.to_string());
                        assert_eq!(query.count().unwrap().0, count, "a = {value}");
                    }
                }
            })
        };
        for _ in 0..12 {
            let to = strategy(&mut rng);
            // The store's own upkeep may be at the same.
            let _ = dataset.set_maintenance(to, &mut |_| ControlFlow::Continue(()));
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let found = scan(&dataset, &dataset.snapshot()).unwrap();
    let mut right: Vec<(u64, String)> = Vec::new();
    for (key, (value, order)) in models.into_iter().flatten() {
        right.push((key, body(key, value, order)));
    }
    right.sort();
    let right: Vec<(String, String)> = right.into_iter().map(|(k, b)| (k.to_string(), b)).collect();
    assert_eq!(found, right);
    check(&db);
}

#[test]
fn an_automatic_strategy_follows_the_workload_and_says_why() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("a"), IndexKind::Composite, Type::Int)
        .auto();
    assert!(def.to_string().ends_with("--maintenance auto"));
    let dataset = db.create_dataset("d", def).unwrap();
    let mut life = Life {
        rng: fastrand::Rng::with_seed(1),
        model: Model::new(),
        order: 0,
    };
    // Nobody asks: writes stay blind.
    for _ in 0..1200 {
        life.write(&dataset, 40, Durability::Os).unwrap();
    }
    assert_eq!(dataset.def().maintenance, Maintenance::Validation);
    let stats = dataset.stats();
    let choice = &stats["upkeep"]["choice"];
    assert_eq!(choice["strategy"], "validation", "{stats:#}");
    assert!(choice["would_change"].is_string(), "{stats:#}");
    assert!(
        stats["upkeep"]["last_repair"]["why"].is_string(),
        "{stats:#}"
    );
    assert!(
        stats["upkeep"]["update_ratio"].as_f64().unwrap() > 0.5,
        "{stats:#}"
    );
    // Many index-only queries.
    for _ in 0..1200 {
        life.write(&dataset, 40, Durability::Os).unwrap();
        for value in (0..VALUES).cycle().take(100) {
            let query = dataset.query().equals(&path("a"), &value.to_string());
            query.count().unwrap();
        }
    }
    let stats = dataset.stats();
    assert_ne!(
        dataset.def().maintenance,
        Maintenance::Validation,
        "{stats:#}"
    );
    assert_eq!(stats["upkeep"]["settled"], true, "{stats:#}");
    assert!(dataset.def().auto);
    let now = dataset.snapshot();
    for value in 0..VALUES {
        let right = life.model.values().filter(|put| put.0 == value).count() as u64;
        let query = now.query().equals(&path("a"), &value.to_string());
        assert_eq!(query.count().unwrap().0, right);
    }
}

/// Twenty records under deferred maintenance, with the value 1.
fn twenty() -> (Database, Dataset) {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let def = def.index(path("a"), IndexKind::Composite, Type::Int);
    let dataset = db.create_dataset("d", def).unwrap();
    (0..20).for_each(|id| dataset.put(body(id, 1, id).as_bytes()).unwrap());
    (db, dataset)
}

fn replace_five(dataset: &Dataset) {
    (5..10).for_each(|id| dataset.put(body(id, 2, id).as_bytes()).unwrap());
}

fn go<T>(_: T) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// What is replaced while the primary-key index is built has no older entry there: a repair that moved
/// the mark before must not let it pass for known.
#[test]
fn a_repair_before_the_keys_are_there_does_not_vouch_for_what_comes_after_it() {
    for is_cut_off in [true, false] {
        let (db, dataset) = twenty();
        if is_cut_off {
            let cut = &mut |_| ControlFlow::Break(());
            let report = dataset.set_maintenance(Maintenance::Validation, cut);
            assert!(!report.unwrap().complete);
        }
        dataset.repair(&RepairOptions::default(), &mut go).unwrap();
        let mut replaced = false;
        let report = dataset.set_maintenance(Maintenance::Validation, &mut |_| {
            if !std::mem::replace(&mut replaced, true) {
                replace_five(&dataset);
            }
            ControlFlow::Continue(())
        });
        assert!(report.unwrap().complete && replaced);
        db.compact(None).unwrap();
        let query = || dataset.query().equals(&path("a"), "1");
        assert_eq!(query().count().unwrap().0, 15);
        assert_eq!(query().keys().unwrap().count(), 15);
        check(&db);
    }
}

/// Merges tell what they leave out from the moment on in which the first index is begun.
#[test]
fn what_is_replaced_while_the_first_index_is_built_is_told() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let dataset = db
        .create_dataset("d", DatasetDef::new(path("id"), KeyType::Int))
        .unwrap();
    (0..20).for_each(|id| dataset.put(body(id, 1, id).as_bytes()).unwrap());
    let cut = &mut |_| ControlFlow::Break(());
    let kind = IndexKind::Composite;
    let change = dataset.add_index(&path("a"), kind, Some(Type::Int), cut);
    assert!(!change.unwrap().complete);
    for value in 2..6 {
        (0..20).for_each(|id| dataset.put(body(id, value, id).as_bytes()).unwrap());
        db.compact(None).unwrap();
    }
    dataset.resume_index(&mut go).unwrap();
    dataset.repair(&RepairOptions::default(), &mut go).unwrap();
    db.compact(None).unwrap();
    for value in 1..6 {
        let query = dataset.query().equals(&path("a"), &value.to_string());
        let (count, plan) = query.count().unwrap();
        assert_eq!(count, if value == 5 { 20 } else { 0 });
        assert_eq!(plan["steps"]["fetched"], count, "{value}: {plan}");
    }
}
