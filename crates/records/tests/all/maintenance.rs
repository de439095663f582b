//! Migrations of the maintenance strategy while the dataset is in use: beside writers, by automatic
//! choice, and beside repairs. The simulation (`sim/`) changes it in the middle of everything else,
//! with power cuts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{DIR, Doing, TextQuery, check, path, scan, seeds, small};

use esker::fs::Fs;
use esker::maintain::{RepairMethod, RepairOptions};
use esker::schema::{Maintenance, Merging, Repair};
use esker::{Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;

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
    let options = small(fs).memory_budget(64 << 10).table_size(2 << 10);
    Database::create_or_open(FsPath::new(DIR), options)
}

fn body(key: u64, value: u64, order: u64) -> String {
    let pad = "p".repeat((key * 3) as usize);
    format!("{{\"id\":{key},\"a\":{value},\"b\":{value},\"order\":{order},\"pad\":\"{pad}\"}}")
}

fn definition(rng: &mut fastrand::Rng) -> DatasetDef {
    let mut kind = || KINDS[rng.usize(0..KINDS.len())];
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("a"), esker::Index::new(kind()).of_type(Type::Int))
        .index(path("b"), esker::Index::new(kind()).of_type(Type::Int));
    let merging = [
        Merging::Leveled,
        Merging::Tiered,
        Merging::Correlated,
        Merging::LazyLeveled,
    ][rng.usize(0..4)];
    let repair = [Repair::Merge, Repair::Merge, Repair::None][rng.usize(0..3)];
    def.maintenance(strategy(rng))
        .merging(merging)
        .repair(repair)
}

fn strategy(rng: &mut fastrand::Rng) -> Maintenance {
    Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())]
}

struct Life {
    rng: fastrand::Rng,
    model: Model,
    order: u64,
}

impl Life {
    /// A batch with some puts, deletes and inserts, and some repeated keys.
    fn write(
        &mut self,
        dataset: &Dataset,
        most: usize,
        durability: Durability,
    ) -> esker::Result<()> {
        let mut batch = dataset.batch();
        let after = self.fill(dataset, &mut batch, most)?;
        batch.durability(durability).commit()?;
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
            batch.put_json(body(key, value, self.order).as_bytes())?;
            after.insert(key, (value, self.order));
        }
        Ok(after)
    }
}

#[test]
fn writers_and_readers_go_on_while_strategies_change() {
    for seed in seeds(3) {
        let _doing = Doing(format!("ESKER_SEED={seed}"));
        with_threads(seed);
    }
}

/// Each writer has its own keys, and each write of a key is newer than all that readers have seen
/// of it.
fn with_threads(seed: u64) {
    let options = small(Arc::new(Memory::new()))
        .background(true)
        .memory_budget(256 << 10);
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    let dataset = db
        .create_dataset::<esker::Key>("d", definition(&mut rng))
        .unwrap();
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
                            batch.put_json(body(key, value, order).as_bytes()).unwrap();
                            model.insert(key, (value, order));
                        }
                        batch.durability(Durability::Os).commit().unwrap();
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
                    let records = snapshot.scan(..);
                    let mut counts = [0; VALUES as usize];
                    for record in records {
                        let json: serde_json::Value =
                            serde_json::from_slice(record.unwrap().json()).unwrap();
                        counts[json["a"].as_u64().unwrap() as usize] += 1;
                    }
                    for (value, count) in counts.into_iter().enumerate() {
                        let query = snapshot.query().equals(&path("a"), &value.to_string());
                        assert_eq!(query.count().unwrap(), count, "a = {value}");
                    }
                }
            })
        };
        for _ in 0..12 {
            let to = strategy(&mut rng);
            // Background maintenance may change the strategy at the same time.
            let _ = dataset.set_maintenance(to).run();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let found = scan(&dataset.snapshot()).unwrap();
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
        .index(
            path("a"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .auto();
    assert!(def.auto);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut life = Life {
        rng: fastrand::Rng::with_seed(1),
        model: Model::new(),
        order: 0,
    };
    // There are no queries, so writes stay blind.
    for _ in 0..1200 {
        life.write(&dataset, 40, Durability::Os).unwrap();
    }
    assert_eq!(dataset.def().maintenance, Maintenance::Validation);
    let stats = dataset.stats();
    let strategy = &stats.strategy;
    let choice = strategy.choice.as_ref().unwrap();
    assert_eq!(choice.strategy, "validation", "{stats:#?}");
    assert!(!choice.would_change.is_empty(), "{stats:#?}");
    let repair = strategy.last_repair.as_ref().unwrap();
    assert!(!repair.why.is_empty(), "{stats:#?}");
    assert!(strategy.update_ratio.unwrap() > 0.5, "{stats:#?}");
    // Many queries that only read the index.
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
        "{stats:#?}"
    );
    assert!(stats.strategy.converged, "{stats:#?}");
    assert!(dataset.def().auto);
    let now = dataset.snapshot();
    for value in 0..VALUES {
        let right = life.model.values().filter(|put| put.0 == value).count() as u64;
        let query = now.query().equals(&path("a"), &value.to_string());
        assert_eq!(query.count().unwrap(), right);
    }
}

/// Twenty records under deferred maintenance, with the value 1.
fn twenty() -> (Database, Dataset) {
    twenty_in(open(Arc::new(Memory::new())).unwrap(), Merging::Leveled)
}

fn twenty_in(db: Database, merging: Merging) -> (Database, Dataset) {
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let def = def
        .index(
            path("a"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .merging(merging);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    (0..20).for_each(|id| dataset.put_json(body(id, 1, id).as_bytes()).unwrap());
    (db, dataset)
}

fn replace_five(dataset: &Dataset) {
    (5..10).for_each(|id| dataset.put_json(body(id, 2, id).as_bytes()).unwrap());
}

/// A record replaced while the primary-key index is built has no older entry there. An earlier
/// repair, which moved the repair watermark, must not count it as known.
#[test]
fn a_repair_before_the_keys_are_there_does_not_vouch_for_what_comes_after_it() {
    for is_cut_off in [true, false] {
        let (db, dataset) = twenty();
        if is_cut_off {
            let cut = &mut |_| ControlFlow::Break(());
            let report = dataset
                .set_maintenance(Maintenance::Validation)
                .on_progress(cut)
                .run();
            assert!(!report.unwrap().complete);
        }
        dataset.repair(&RepairOptions::default()).run().unwrap();
        let mut replaced = false;
        let report = dataset
            .set_maintenance(Maintenance::Validation)
            .on_progress(|_| {
                if !std::mem::replace(&mut replaced, true) {
                    replace_five(&dataset);
                }
                ControlFlow::Continue(())
            })
            .run();
        assert!(report.unwrap().complete && replaced);
        db.compact(None).unwrap();
        let query = || dataset.query().equals(&path("a"), "1");
        assert_eq!(query().count().unwrap(), 15);
        assert_eq!(query().keys().unwrap().count(), 15);
        check(&db);
    }
}

/// While the primary-key index is built, compactions of neither tree report all drops: those of the
/// data no longer report them, and the primary-key index lacks the entries from before the change.
#[test]
fn a_repair_while_the_keys_are_brought_trusts_no_merge() {
    for method in [RepairMethod::Auto, RepairMethod::Index] {
        // The change does not resume automatically.
        let options = small(Arc::new(Memory::new())).automatic_maintenance(false);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let (db, dataset) = twenty_in(db, Merging::Tiered);
        let cut = &mut |_| ControlFlow::Break(());
        let report = dataset
            .set_maintenance(Maintenance::Validation)
            .on_progress(cut)
            .run();
        assert!(!report.unwrap().complete);
        let options = RepairOptions {
            method,
            ..RepairOptions::default()
        };
        // All obsolete writes before the change are known now.
        dataset.repair(&options).run().unwrap();
        replace_five(&dataset);
        db.flush().unwrap();
        let trees = db.group().snapshot().version().trees.clone();
        let data = trees.values().find(|tree| tree.name.ends_with("/data"));
        db.group().compact(data.map(|tree| tree.id)).unwrap();
        dataset.repair(&options).run().unwrap();
        check(&db);
        dataset
            .set_maintenance(Maintenance::Validation)
            .run()
            .unwrap();
        let query = || dataset.query().equals(&path("a"), "1");
        assert_eq!(query().count().unwrap(), 15);
        assert_eq!(query().keys().unwrap().count(), 15);
        check(&db);
    }
}

/// Compactions report their drops from the moment on when the first index build begins.
#[test]
fn records_replaced_while_the_first_index_is_built_are_reported() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let dataset = db
        .create_dataset::<esker::Key>("d", DatasetDef::new(path("id"), KeyType::Int))
        .unwrap();
    (0..20).for_each(|id| dataset.put_json(body(id, 1, id).as_bytes()).unwrap());
    let cut = &mut |_| ControlFlow::Break(());
    let kind = IndexKind::Composite;
    let change = dataset
        .add_index(path("a"), esker::Index::new(kind).of_type(Type::Int))
        .on_progress(cut)
        .run();
    assert!(!change.unwrap().complete);
    for value in 2..6 {
        (0..20).for_each(|id| dataset.put_json(body(id, value, id).as_bytes()).unwrap());
        db.compact(None).unwrap();
    }
    dataset.resume_index().run().unwrap();
    dataset.repair(&RepairOptions::default()).run().unwrap();
    db.compact(None).unwrap();
    for value in 1..6 {
        let query = dataset.query().equals(&path("a"), &value.to_string());
        let (count, plan) = query.count_explained().unwrap();
        assert_eq!(count, if value == 5 { 20 } else { 0 });
        assert_eq!(plan.steps.fetched, count, "{value}: {plan}");
    }
}
