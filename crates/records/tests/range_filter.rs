//! Range filters (`IndexKind::Filter`): against brute force under every maintenance strategy and every way
//! of merging, with values that updates move far; and what they let a query pass over, as Luo & Carey
//! found it (section 6.4.2).
//! `ESKER_SEEDS=200 cargo test --test range_filter` tries more; `ESKER_SEED=17` repeats one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use common::{DIR, Doing, check, number, path, seeds, settle, small};
use esker::fs::memory::Memory;
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, IndexKind, KeyType, Maintenance,
    Merging, Options, Order, Type,
};
use serde_json::json;

const MERGINGS: [Merging; 3] = [Merging::Leveled, Merging::Tiered, Merging::Correlated];

/// What is there: by key the number of the write, the values of `at` and those of `tags`.
type Model = BTreeMap<u64, (u64, Option<i64>, Vec<i64>)>;

struct Life {
    rng: fastrand::Rng,
    fs: Memory,
    db: Option<Database>,
    dataset: Option<Dataset>,
    model: Model,
    writes: u64,
    kept: Vec<(DatasetSnapshot, Model)>,
}

const KEYS: u64 = 300;

fn open(fs: &Memory) -> Database {
    Database::create_or_open(FsPath::new(DIR), small(Arc::new(fs.clone()))).unwrap()
}

impl Life {
    fn begin(seed: u64, maintenance: Maintenance, merging: Merging) -> Life {
        let fs = Memory::new();
        let db = open(&fs);
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("at"), IndexKind::Filter, Type::Int)
            .index(path("tags"), IndexKind::Filter, Type::Int)
            .maintenance(maintenance)
            .merging(merging);
        let dataset = db.create_dataset("d", def).unwrap();
        Life {
            rng: fastrand::Rng::with_seed(seed),
            fs,
            db: Some(db),
            dataset: Some(dataset),
            model: Model::new(),
            writes: 0,
            kept: Vec::new(),
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn dataset(&self) -> Dataset {
        self.dataset.clone().unwrap()
    }

    /// Mostly the time, at times one long gone or still to come.
    fn value(&mut self) -> i64 {
        match self.rng.usize(0..5) {
            0 => self.rng.i64(0..3000),
            _ => self.writes as i64 + self.rng.i64(0..20),
        }
    }

    fn write(&mut self) {
        let dataset = self.dataset();
        let mut batch = dataset.batch();
        for _ in 0..self.rng.usize(1..40) {
            let id = self.rng.u64(0..KEYS);
            self.writes += 1;
            if self.rng.usize(0..6) == 0 {
                let key = dataset.parse_key(&id.to_string()).unwrap();
                batch.delete(&key).unwrap();
                self.model.remove(&id);
                continue;
            }
            let at = (self.rng.usize(0..10) > 0).then(|| self.value());
            let tags: Vec<i64> = (0..self.rng.usize(0..4)).map(|_| self.value()).collect();
            let pad = "x".repeat(self.rng.usize(0..200));
            let record = json!({ "id": id, "at": at, "tags": tags, "pad": pad }).to_string();
            batch.put(record.as_bytes()).unwrap();
            self.model.insert(id, (self.writes, at, tags));
        }
        batch.commit(Durability::Os).unwrap();
    }

    fn ask(&mut self, snapshot: &DatasetSnapshot, model: &Model) {
        let dataset = self.dataset();
        let attribute = ["at", "tags"][self.rng.usize(0..2)];
        let (lo, width) = (self.value(), self.rng.i64(0..200));
        let (lo, hi) = (lo - width, lo + width);
        let order = [Order::Newest, Order::Oldest][self.rng.usize(0..2)];
        let limit = [None, Some(1), Some(5)][self.rng.usize(0..3)];
        let mut right: Vec<(u64, u64)> = model
            .iter()
            .filter(|(_, (_, at, tags))| {
                let inside = |value: &i64| lo <= *value && *value <= hi;
                match attribute {
                    "at" => at.iter().any(inside),
                    _ => tags.iter().any(inside),
                }
            })
            .map(|(id, (write, ..))| (*write, *id))
            .collect();
        right.sort_unstable();
        if order == Order::Newest {
            right.reverse();
        }
        right.truncate(limit.unwrap_or(usize::MAX));
        let right: Vec<String> = right.into_iter().map(|(_, id)| id.to_string()).collect();
        let _doing = Doing(format!("asked {attribute} {lo}..={hi} {order:?} {limit:?}"));
        let query = snapshot
            .query()
            .between(&path(attribute), &lo.to_string(), &hi.to_string())
            .order(order)
            .limit(limit);
        assert_eq!(common::keys(&dataset, query.clone()), right);
        assert_eq!(query.count().unwrap().0, right.len() as u64);
    }

    fn reindex(&mut self) {
        let dataset = self.dataset();
        let at = path(["at", "tags"][self.rng.usize(0..2)]);
        let other = [IndexKind::Embedded, IndexKind::Composite, IndexKind::None];
        let other = other[self.rng.usize(0..3)];
        let mut go_on = |_| ControlFlow::Continue(());
        match other {
            IndexKind::None => dataset.drop_index(&at),
            other => dataset.switch_index(&at, other, &mut go_on),
        }
        .unwrap();
        for _ in 0..self.rng.usize(0..4) {
            self.write();
        }
        let mut rounds = self.rng.usize(0..4);
        let mut go_on = |_| {
            if rounds > 0 {
                rounds -= 1;
                self.write();
            }
            ControlFlow::Continue(())
        };
        match other {
            IndexKind::None => dataset.add_index(&at, IndexKind::Filter, None, &mut go_on),
            _ => dataset.switch_index(&at, IndexKind::Filter, &mut go_on),
        }
        .unwrap();
    }

    fn step(&mut self) {
        match self.rng.usize(0..100) {
            0..=49 => self.write(),
            50..=59 => self.db().flush().unwrap(),
            60..=65 => settle(self.db()),
            66 => self.db().compact(None).unwrap(),
            67..=70 => {
                if self.kept.len() == 3 {
                    self.kept.remove(0);
                }
                let now = self.dataset().snapshot();
                self.kept.push((now, self.model.clone()));
            }
            71 => {
                self.kept.clear();
                self.dataset = None;
                self.db = None;
                let db = open(&self.fs);
                self.dataset = Some(db.dataset("d").unwrap());
                self.db = Some(db);
            }
            72 => self.reindex(),
            _ => {
                let now = (self.dataset().snapshot(), self.model.clone());
                for (snapshot, model) in self.kept.clone().iter().chain([&now]) {
                    self.ask(snapshot, model);
                    self.ask(snapshot, model);
                }
            }
        }
    }
}

#[test]
fn answers_are_those_of_brute_force_whatever_is_replaced_merged_and_changed() {
    for seed in seeds(8) {
        for maintenance in Maintenance::ALL {
            for merging in MERGINGS {
                let _doing = Doing(format!("ESKER_SEED={seed} {maintenance} {merging}"));
                let mut life = Life::begin(seed, maintenance, merging);
                for _ in 0..number("ESKER_STEPS", 150) {
                    life.step();
                }
                let now = (life.dataset().snapshot(), life.model.clone());
                for _ in 0..50 {
                    life.ask(&now.0, &now.1);
                }
                check(life.db());
            }
        }
    }
}

/// Records in the order of their time, with keys that have none; half of the writes are updates or none.
fn history(maintenance: Maintenance, updates: bool) -> (Database, Dataset) {
    let mut options = Options {
        table_size: 1 << 20,
        ..small(Arc::new(Memory::new()))
    };
    // Many components, as a large dataset has them.
    options.tuning.largest_mergeable = 64 << 10;
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("at"), IndexKind::Filter, Type::Int)
        .maintenance(maintenance)
        .merging(Merging::Correlated);
    let dataset = db.create_dataset("d", def).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ids = Vec::new();
    for at in 0..WRITES {
        let id = if updates && rng.bool() && !ids.is_empty() {
            ids[rng.usize(0..ids.len())]
        } else {
            let id = rng.u32(..);
            ids.push(id);
            id
        };
        let pad: String = (0..200).map(|_| rng.alphanumeric()).collect();
        let record = json!({ "id": id, "at": at, "pad": pad }).to_string();
        dataset.put(record.as_bytes()).unwrap();
    }
    settle(&db);
    (db, dataset)
}

const WRITES: i64 = 8000;

/// Data blocks that a count of a range of times looks into.
fn blocks(dataset: &Dataset, lo: i64, hi: i64) -> u64 {
    let query = dataset
        .query()
        .between(&path("at"), &lo.to_string(), &hi.to_string());
    let (_, explain) = query.count().unwrap();
    assert_eq!(explain["plan"]["kind"], json!("filter"));
    explain["cost"]["data"]["data_blocks"].as_u64().unwrap()
}

/// Of a strategy: blocks of all, of old data, and of recent data.
fn shape(maintenance: Maintenance, updates: bool) -> [u64; 3] {
    let (_db, dataset) = history(maintenance, updates);
    let (_, all) = dataset.query().count().unwrap();
    let all = all["cost"]["data"]["data_blocks"].as_u64().unwrap();
    let old = blocks(&dataset, 0, WRITES / 10);
    let recent = blocks(&dataset, WRITES - WRITES / 50, WRITES);
    eprintln!("{maintenance} updates {updates}: all {all}, old {old}, recent {recent}");
    [all, old, recent]
}

#[test]
fn components_are_passed_over_as_the_strategy_lets_them() {
    let [eager, validation, bitmap] = [
        Maintenance::Eager,
        Maintenance::Validation,
        Maintenance::MutableBitmap,
    ]
    .map(|maintenance| [false, true].map(|updates| shape(maintenance, updates)));
    for [_, [all, _, recent]] in [eager, validation, bitmap] {
        assert!(recent * 5 < all, "recent data is in the newest components");
    }
    for [all, old, _] in validation {
        assert!(old * 10 > all * 9, "old data: all that is newer is read");
    }
    let [[all, old, _], [all_updated, old_updated, _]] = eager;
    assert!(old * 5 < all, "nothing was replaced");
    assert!(
        old_updated * 10 > all_updated * 8,
        "values of all times were replaced"
    );
    let [[_, old, recent], [_, old_updated, recent_updated]] = bitmap;
    assert!(old_updated * 10 <= old * 12 && recent_updated * 10 <= recent * 12);
    assert_eq!(old, eager[0][1]);
}
