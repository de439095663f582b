//! A random life of a dataset beside a model that is a map: writes, flushes, merges, reopenings,
//! snapshots that are asked again later, and changes of indexes with more life in the middle of them.
#![allow(dead_code)]

mod asking;
mod changes;
pub(crate) mod upkeep;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::fs::memory::Memory;
use esker::{
    BulkOrder, Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind,
    Key, KeyType, LookupOptions, Op, Options, Order, Type, Value,
};
use serde_json::{Map, Value as Json, json};

use crate::common::{
    DIR, Doing, Model, Put, domain, open, path, place, settle, skewed, small, to_json,
};
use upkeep::Known;
pub(crate) use upkeep::Upkeep;

/// The paths of the attributes.
const PATHS: [&str; 2] = ["a", "n.b"];

/// Paths that no dataset declares to begin with.
const UNDECLARED: [(&str, Type); 2] = [("u", Type::Int), ("n.s", Type::String)];

const KEYS: usize = 70;
const STEPS: usize = 160;

/// A key, in the order of its dataset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum K {
    Int(i128),
    Text(String),
}

impl std::fmt::Display for K {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            K::Int(key) => write!(f, "{key}"),
            K::Text(key) => f.write_str(key),
        }
    }
}

struct Life {
    rng: fastrand::Rng,
    table_size: u64,
    memory: usize,
    fs: Memory,
    db: Database,
    dataset: Dataset,
    key_type: KeyType,
    attributes: Vec<(&'static str, IndexKind, Type)>,
    undeclared: Vec<(&'static str, Type)>,
    /// Whether indexes change.
    changes: bool,
    /// True while a step is done in the middle of a change.
    inside: bool,
    /// The change of an index that was broken off.
    unfinished: Option<(&'static str, IndexKind, Type)>,
    model: Model<K>,
    order: u64,
    kept: Vec<(DatasetSnapshot, Known, Model<K>)>,
    upkeep: Upkeep,
    /// What is known of the writes so far, and of those that are over.
    known: Known,
}

fn open_with(fs: &Memory, table_size: u64, memory_budget: usize, upkeep: &Upkeep) -> Database {
    let options = Options {
        table_size,
        memory_budget,
        tuning: upkeep.tuning(),
        ..small(Arc::new(fs.clone()))
    };
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

impl Life {
    fn begin(
        seed: u64,
        kinds: &[IndexKind],
        changes: bool,
        upkeep: &dyn Fn(&mut fastrand::Rng) -> Upkeep,
    ) -> Life {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Memory::new();
        // Small tables make a deep tree of many.
        let table_size = [300, 2 << 10, 8 << 10][rng.usize(0..3)];
        // Of little memory an index is built in many pieces.
        let memory = if changes && rng.bool() {
            24 << 10
        } else {
            512 << 10
        };
        let upkeep = upkeep(&mut rng);
        let db = open_with(&fs, table_size, memory, &upkeep);
        let key_type = if rng.bool() {
            KeyType::Int
        } else {
            KeyType::String
        };
        let attributes: Vec<_> = PATHS
            .iter()
            .zip(kinds)
            .map(|(path, kind)| (*path, *kind, Type::ALL[rng.usize(0..Type::ALL.len())]))
            .collect();
        let mut def = upkeep.of(DatasetDef::new(path("id"), key_type));
        for (at, kind, ty) in &attributes {
            def = def.index(path(at), *kind, *ty);
        }
        let dataset = db.create_dataset("d", def).unwrap();
        Life {
            rng,
            table_size,
            memory,
            fs,
            db,
            dataset,
            key_type,
            attributes,
            undeclared: UNDECLARED.to_vec(),
            changes,
            inside: false,
            unfinished: None,
            model: Model::new(),
            order: 0,
            kept: Vec::new(),
            known: Known::default(),
            upkeep,
        }
    }

    fn key(&mut self) -> K {
        let n = self.rng.usize(0..KEYS) as i128;
        match self.key_type {
            KeyType::Int if n == 0 => K::Int(i128::from(u64::MAX)),
            KeyType::Int => K::Int((n - 20) * (n % 3 * 1000 + 1)),
            KeyType::String if n == 0 => K::Text("\u{10ffff}".to_string()),
            KeyType::String => K::Text(format!("{}\"k\0{}", "p".repeat(n as usize % 4), n / 3)),
        }
    }

    fn api_key(&self, key: &K) -> Key {
        self.dataset.parse_key(&key.to_string()).unwrap()
    }

    /// The values of a field, and how they stand in the record.
    fn field(&mut self, ty: Type) -> (Vec<Value>, Option<Json>) {
        let domain = domain(ty);
        let rng = &mut self.rng;
        let one = |rng: &mut fastrand::Rng| {
            let value = domain[skewed(rng, domain.len())].clone();
            let json = to_json(&value, rng);
            (value, json)
        };
        match rng.usize(0..20) {
            0 | 1 => (vec![], None),
            2 => (vec![], Some(Json::Null)),
            3..=6 => {
                let (mut values, mut elements) = (Vec::new(), Vec::new());
                for _ in 0..rng.usize(0..5) {
                    if rng.usize(0..6) == 0 {
                        elements.push(Json::Null);
                        continue;
                    }
                    let (value, json) = one(rng);
                    values.push(value);
                    elements.push(json);
                }
                (values, Some(Json::Array(elements)))
            }
            _ => {
                let (value, json) = one(rng);
                (vec![value], Some(json))
            }
        }
    }

    fn record(&mut self, key: &K) -> Put {
        let mut object = Map::new();
        let mut values = BTreeMap::new();
        let id = match key {
            K::Int(key) => to_json(&Value::Int(*key), &mut self.rng),
            K::Text(key) => json!(key),
        };
        object.insert("id".to_string(), id);
        let declared: Vec<_> = self.attributes.iter().map(|a| (a.0, a.2)).collect();
        for (at, ty) in declared.into_iter().chain(self.undeclared.clone()) {
            let (found, field) = self.field(ty);
            if let Some(field) = field {
                let names: Vec<&str> = at.split('.').collect();
                place(&mut object, &names, field);
            }
            values.insert(at.to_string(), found);
        }
        let pad = match self.rng.usize(0..6) {
            0 => self.rng.usize(0..3000),
            _ => self.rng.usize(0..200),
        };
        let pad: String = (0..pad).map(|_| self.rng.alphanumeric()).collect();
        object.insert("pad".to_string(), json!(pad));
        let mut body = Json::Object(object).to_string();
        if self.rng.usize(0..4) == 0 {
            body = format!(" {} \t", body.replacen(':', " :  ", 1));
        }
        self.order += 1;
        Put {
            order: self.order,
            body,
            values,
        }
    }

    fn step(&mut self) {
        match self.rng.usize(0..100) {
            0..=37 => {
                let key = self.key();
                let put = self.record(&key);
                self.dataset.put(put.body.as_bytes()).unwrap();
                self.model.insert(key, put);
            }
            38..=45 => {
                let key = self.key();
                let put = self.record(&key);
                let result = self.dataset.insert(put.body.as_bytes());
                match self.model.entry(key) {
                    Entry::Occupied(_) => {
                        assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
                    }
                    Entry::Vacant(free) => {
                        result.unwrap();
                        free.insert(put);
                    }
                }
            }
            46..=56 => {
                let key = self.key();
                let there = self
                    .dataset
                    .delete(&self.api_key(&key), Durability::Os)
                    .unwrap();
                assert_eq!(there, self.model.remove(&key).is_some());
            }
            57..=68 => self.batch(),
            69..=74 => self.db.flush().unwrap(),
            75..=77 => settle(&self.db),
            78 => self.db.compact(None).unwrap(),
            79 => self.db.compact(Some("d")).unwrap(),
            80..=81 if !self.inside => self.reopen(),
            82..=85 => {
                if self.kept.len() == 3 {
                    let at = self.rng.usize(0..3);
                    self.kept.remove(at);
                }
                let known = self.known.pinned(&self.db);
                self.kept
                    .push((self.dataset.snapshot(), known, self.model.clone()));
            }
            86..=89 if self.changes && !self.inside => self.change_index(),
            _ => {
                let now = self.dataset.snapshot();
                let model = std::mem::take(&mut self.model);
                self.ask(&now, &model, 2);
                self.model = model;
                if !self.kept.is_empty() {
                    let at = self.rng.usize(0..self.kept.len());
                    let (snapshot, known, model) = self.kept[at].clone();
                    self.ask(&snapshot, &model, 2);
                    known.hold();
                }
            }
        }
        self.known.see(&self.db, self.upkeep.is_exact());
    }

    fn batch(&mut self) {
        let mut batch = self.dataset.batch();
        let mut after = self.model.clone();
        let mut refused = false;
        let mut inserted = Vec::new();
        // At times the same few keys again and again.
        let few: Option<[K; 3]> =
            (self.rng.usize(0..3) == 0).then(|| [self.key(), self.key(), self.key()]);
        for _ in 0..self.rng.usize(1..16) {
            let key = match &few {
                Some(few) => few[self.rng.usize(0..3)].clone(),
                None => self.key(),
            };
            match self.rng.usize(0..10) {
                0..=5 => {
                    let put = self.record(&key);
                    batch.put(put.body.as_bytes()).unwrap();
                    after.insert(key, put);
                }
                6 | 7 => {
                    batch.delete(&self.api_key(&key)).unwrap();
                    after.remove(&key);
                }
                8 => {
                    let put = self.record(&key);
                    // What is there when the batch is committed decides, not what the batch does.
                    refused |= self.model.contains_key(&key) || inserted.contains(&key);
                    batch.insert(put.body.as_bytes()).unwrap();
                    inserted.push(key.clone());
                    after.insert(key, put);
                }
                _ => {
                    let bad = [r#"{"id": "#, r#"[1]"#, "{}", r#"{"id": null}"#, "\u{1}"];
                    let bad = bad[self.rng.usize(0..bad.len())];
                    let len = batch.len();
                    let error = batch.put(bad.as_bytes()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BadInput);
                    assert_eq!(batch.len(), len);
                }
            }
        }
        let before = self.db.group().snapshot().seq();
        let result = batch.commit(Durability::Os);
        if refused {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
            assert_eq!(self.db.group().snapshot().seq(), before);
        } else {
            result.unwrap();
            self.model = after;
        }
    }

    fn reopen(&mut self) {
        self.kept.clear();
        let def = self.dataset.def();
        // All handles have to go before the folder can be opened again.
        let elsewhere = open(Arc::new(Memory::new())).unwrap();
        let nothing = elsewhere
            .create_dataset("d", DatasetDef::new(path("id"), self.key_type))
            .unwrap();
        self.dataset = nothing;
        let db = std::mem::replace(&mut self.db, elsewhere);
        if self.rng.bool() {
            db.close().unwrap();
        } else {
            drop(db);
        }
        self.db = open_with(&self.fs, self.table_size, self.memory, &self.upkeep);
        self.dataset = self.db.dataset("d").unwrap();
        assert_eq!(self.dataset.def(), def);
    }
}

/// Lives a life with indexes of these kinds, kept in order in any way; with `changes` they do not stay so.
pub(crate) fn live(seed: u64, kinds: &[IndexKind], changes: bool) {
    live_under(seed, kinds, changes, &Upkeep::any);
}

/// Lives a life of a dataset that is kept in order as `upkeep` says.
pub(crate) fn live_under(
    seed: u64,
    kinds: &[IndexKind],
    changes: bool,
    upkeep: &dyn Fn(&mut fastrand::Rng) -> Upkeep,
) {
    let mut life = Life::begin(seed, kinds, changes, upkeep);
    let _doing = Doing(format!(
        "ESKER_SEED={seed}: {}, {:?}",
        life.dataset.def().to_string().replace(" --", ", "),
        life.upkeep.bitmap_merges,
    ));
    for _ in 0..STEPS {
        life.step();
    }
    life.ask_everything();
    life.db.compact(None).unwrap();
    life.ask_everything();
    life.reopen();
    life.ask_everything();
    while life.unfinished.is_some() {
        life.build();
        life.ask_everything();
    }
}
