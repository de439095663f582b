//! The kind beside a model that compares every record: random writes, every strategy, repair
//! setting and compaction policy, with index changes, repairs, reopenings and backups in between.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::maintain::Validation;
use esker::maintain::{RepairMethod, RepairOptions};
use esker::schema::{Maintenance, Merging, Repair, Tokenizer};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, Expr, Index, IndexKind, KeyType,
    Options, Order, Query, field,
};
use esker_sim::memory::Memory;

const DIR: &str = "/store";
const CITIES: [&str; 6] = ["Ulm", "Bonn", "", "Bo", "New York", "Ul\u{0}m"];
const ROUNDS: usize = 60;

/// A record, and its number in the order of writes.
#[derive(Debug, Clone, PartialEq)]
struct Put {
    order: u64,
    city: Option<&'static str>,
    ns: Vec<i64>,
}

type Model = BTreeMap<u64, Put>;

struct Life {
    memory: Memory,
    /// `None` during a reopening, because a handle keeps a store open.
    open: Option<(Database, Dataset<u64>)>,
    model: Model,
    rng: fastrand::Rng,
    order: u64,
    /// A snapshot and its state in the model; it must not change.
    pinned: Option<(DatasetSnapshot<u64>, Model)>,
    backups: usize,
}

fn options(memory: &Memory) -> Options {
    Options::new()
        .memory_budget(512 << 10)
        .durability(Durability::Os)
        .fs(Arc::new(memory.clone()))
        .background(false)
        .table_size(8 << 10)
        .index_types(kind_example::index_types().unwrap())
}

fn strategy(def: DatasetDef, number: usize) -> DatasetDef {
    let maintenance = Maintenance::ALL[number % Maintenance::ALL.len()];
    let turn = number / Maintenance::ALL.len() + number;
    let repair = match (turn % 3, maintenance) {
        (1, _) => Repair::None,
        (2, Maintenance::Deferred) => Repair::Staged,
        _ => Repair::Merge,
    };
    let merging = [
        Merging::Leveled,
        Merging::Tiered,
        Merging::Correlated,
        Merging::LazyLeveled,
    ][turn % 4];
    def.maintenance(maintenance).repair(repair).merging(merging)
}

impl Life {
    fn new(seed: u64) -> Life {
        let by_hash: IndexKind = kind_example::NAME.parse().unwrap();
        let memory = Memory::new();
        let db = Database::create_or_open(FsPath::new(DIR), options(&memory)).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .index("city", Index::new(by_hash).string())
            .index("ns", Index::new(by_hash).int())
            .index(
                "text",
                Index::new(by_hash).string().tokenizer(Tokenizer::Prefix),
            );
        let dataset = db
            .create_dataset("d", strategy(def, seed as usize))
            .unwrap();
        Life {
            memory,
            open: Some((db, dataset)),
            model: Model::new(),
            rng: fastrand::Rng::with_seed(seed),
            order: 0,
            pinned: None,
            backups: 0,
        }
    }

    fn db(&self) -> &Database {
        &self.open.as_ref().unwrap().0
    }

    fn dataset(&self) -> &Dataset<u64> {
        &self.open.as_ref().unwrap().1
    }

    fn write(&mut self) {
        let mut batch = self.dataset().batch();
        for _ in 0..self.rng.usize(1..40) {
            let key = self.rng.u64(0..60);
            if self.rng.usize(0..5) == 0 {
                batch.delete(key).unwrap();
                self.model.remove(&key);
                continue;
            }
            self.order += 1;
            let put = Put {
                order: self.order,
                city: (self.rng.usize(0..8) > 0).then(|| CITIES[self.rng.usize(0..CITIES.len())]),
                ns: (0..self.rng.usize(0..3))
                    .map(|_| self.rng.i64(-4..5))
                    .collect(),
            };
            batch.put_json(json(key, &put)).unwrap();
            self.model.insert(key, put);
        }
        batch.commit().unwrap();
    }

    fn step(&mut self) {
        let by_hash: IndexKind = kind_example::NAME.parse().unwrap();
        match self.rng.usize(0..12) {
            0..5 => self.write(),
            5 => self.db().flush().unwrap(),
            6 => self.db().compact(Some("d")).unwrap(),
            7 => {
                let methods = [RepairMethod::Auto, RepairMethod::Index, RepairMethod::Key];
                let method = methods[self.rng.usize(0..methods.len())];
                let options = RepairOptions {
                    method,
                    ..RepairOptions::default()
                };
                // Strategies without a primary-key index refuse `Key`.
                let _ = self.dataset().repair(&options).run();
            }
            8 => self.reopen(),
            9 => {
                let path = ["city", "ns", "text"][self.rng.usize(0..3)];
                let kind = self.kind(path);
                match self.rng.usize(0..4) {
                    0 if kind.is_indexed() => {
                        self.dataset().drop_index(path).unwrap();
                    }
                    1 if kind.is_indexed() => {
                        self.dataset().rebuild_index(path).run().unwrap();
                    }
                    _ if !kind.is_indexed() => {
                        let tokenizer = if path == "text" {
                            Tokenizer::Prefix
                        } else {
                            Tokenizer::Exact
                        };
                        let index = Index::new(by_hash).tokenizer(tokenizer);
                        assert!(
                            self.dataset()
                                .add_index(path, index)
                                .run()
                                .unwrap()
                                .complete
                        );
                    }
                    _ => {
                        let kinds = [IndexKind::Lazy, IndexKind::Composite, IndexKind::Recent];
                        let other = if kind == by_hash {
                            kinds[self.rng.usize(0..kinds.len())]
                        } else {
                            by_hash
                        };
                        assert!(
                            self.dataset()
                                .switch_index(path, other)
                                .run()
                                .unwrap()
                                .complete
                        );
                    }
                }
            }
            10 => {
                let strategies = Maintenance::ALL;
                let strategy = strategies[self.rng.usize(0..strategies.len())];
                // Staged repair works with one strategy only.
                let _ = self.dataset().set_maintenance(strategy).run();
            }
            _ => match self.rng.usize(0..3) {
                0 => self.pinned = Some((self.dataset().snapshot(), self.model.clone())),
                1 => self.backup(),
                _ => self.check(),
            },
        }
    }

    fn kind(&self, path: &str) -> IndexKind {
        let def = self.dataset().def();
        let index = def
            .indexes
            .iter()
            .find(|index| index.path.to_string() == path);
        index.unwrap().kind
    }

    fn reopen(&mut self) {
        self.pinned = None;
        let (db, dataset) = self.open.take().unwrap();
        drop(dataset);
        db.close().unwrap();
        let db = Database::open(FsPath::new(DIR), options(&self.memory)).unwrap();
        let dataset = db.dataset("d").unwrap();
        self.open = Some((db, dataset));
    }

    fn backup(&mut self) {
        let copy = format!("/copy-{}", self.backups);
        self.backups += 1;
        self.db().backup(FsPath::new(&copy)).unwrap();
        let copy = Database::open(FsPath::new(&copy), options(&self.memory)).unwrap();
        let dataset = copy.dataset::<u64>("d").unwrap();
        agree(&dataset.snapshot(), &self.model, &mut self.rng);
        assert_eq!(copy.check().unwrap().errors, Vec::<String>::new());
    }

    fn check(&self) {
        assert_eq!(self.db().check().unwrap().errors, Vec::<String>::new());
    }
}

fn json(key: u64, put: &Put) -> String {
    let city = put.city.map(|city| {
        let city = city.replace('\0', "\\u0000");
        format!(r#", "city": "{city}", "text": "{city} {city}"#) + "\""
    });
    let ns: Vec<String> = put.ns.iter().map(i64::to_string).collect();
    let city = city.unwrap_or_default();
    format!(r#"{{"id": {key}, "ns": [{}]{city}}}"#, ns.join(","))
}

/// The keys that the model answers, newest first.
fn expected(model: &Model, holds: &dyn Fn(&Put) -> bool) -> Vec<u64> {
    let mut found: Vec<(u64, u64)> = model
        .iter()
        .filter(|(_, put)| holds(put))
        .map(|(key, put)| (put.order, *key))
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, key)| key).collect()
}

fn keys(query: Query<u64>) -> Vec<u64> {
    let answer = query.run().unwrap();
    answer.map(|record| *record.unwrap().key()).collect()
}

/// Compares all forms of a query with the expected keys.
fn same(snapshot: &DatasetSnapshot<u64>, condition: &Expr, wanted: &[u64]) {
    let query = || snapshot.find(condition.clone());
    for validation in [Validation::Auto, Validation::Direct, Validation::Timestamp] {
        let query = || query().validation(validation);
        assert_eq!(keys(query()), wanted, "{condition}, {validation:?}");
        let alone: Vec<u64> = query().keys().unwrap().map(|key| key.unwrap()).collect();
        assert_eq!(alone, wanted, "keys of {condition}, {validation:?}");
        let count = query().count().unwrap();
        assert_eq!(
            count,
            wanted.len() as u64,
            "count of {condition}, {validation:?}"
        );
    }
    let few = wanted.len().min(3);
    assert_eq!(keys(query().limit(3)), wanted[..few], "{condition}, three");
    let mut oldest = wanted.to_vec();
    oldest.reverse();
    assert_eq!(
        keys(query().order(Order::Oldest)),
        oldest,
        "{condition}, oldest"
    );
    assert_eq!(
        keys(query().oldest().limit(3)),
        oldest[..few],
        "{condition}, oldest three"
    );
    let mut all = wanted.to_vec();
    all.sort_unstable();
    for order in [Order::Any, Order::Key] {
        let mut found = Vec::new();
        let visited = query().order(order.clone()).visit(&mut |record| {
            found.push(*record.key());
            std::ops::ControlFlow::Continue(())
        });
        visited.unwrap();
        found.sort_unstable();
        assert_eq!(found, all, "{condition}, in bulk");
    }
}

fn agree(snapshot: &DatasetSnapshot<u64>, model: &Model, rng: &mut fastrand::Rng) {
    let city = CITIES[rng.usize(0..CITIES.len())];
    let n = rng.i64(-4..5);
    let wanted = expected(model, &|put| put.city == Some(city));
    same(snapshot, &field("city").eq(city), &wanted);
    let wanted = expected(model, &|put| put.ns.contains(&n));
    same(snapshot, &field("ns").eq(n), &wanted);
    let wanted = expected(model, &|put| put.city == Some(city) && put.ns.contains(&n));
    same(
        snapshot,
        &(field("city").eq(city) & field("ns").eq(n)),
        &wanted,
    );
    let wanted = expected(model, &|put| put.city == Some(city) || put.ns.contains(&n));
    same(
        snapshot,
        &(field("city").eq(city) | field("ns").eq(n)),
        &wanted,
    );
    let wanted = expected(model, &|put| put.ns.iter().any(|other| *other >= n));
    same(snapshot, &field("ns").ge(n), &wanted);
    let wanted = expected(model, &|put| {
        put.city.is_some_and(|city| city.starts_with("Bo"))
    });
    same(snapshot, &field("city").prefix("Bo"), &wanted);
    same(snapshot, &field("text").prefix("Bo"), &wanted);
}

#[test]
fn all_strategies_give_what_a_model_gives() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("ESKER_SEED").unwrap_or(0_u64);
    for seed in first..first + number("ESKER_SEEDS").unwrap_or(esker_sim::by_tier(8, 20)) {
        let mut life = Life::new(seed);
        for round in 0..ROUNDS {
            let doing = std::panic::AssertUnwindSafe(|| {
                life.step();
                agree(&life.dataset().snapshot(), &life.model, &mut life.rng);
                if let Some((snapshot, model)) = &life.pinned {
                    agree(snapshot, model, &mut life.rng);
                }
            });
            if let Err(failure) = std::panic::catch_unwind(doing) {
                eprintln!("while: ESKER_SEED={seed}, round {round}");
                std::panic::resume_unwind(failure);
            }
        }
        life.check();
    }
}

#[test]
fn lookups_use_the_index_and_explain_names_it() {
    let mut life = Life::new(1);
    for _ in 0..10 {
        life.write();
    }
    let explain = life
        .dataset()
        .find(field("city").eq("Ulm"))
        .explain()
        .unwrap();
    let index = explain.plan.index.unwrap();
    assert_eq!(
        (index.kind.as_str(), index.index.as_str()),
        ("by-hash", "city")
    );
    let trees = life.dataset().stats().trees;
    assert!(
        trees
            .iter()
            .any(|tree| tree.name.contains("by-hash index of city"))
    );
    life.dataset().advise(None).unwrap();
}
