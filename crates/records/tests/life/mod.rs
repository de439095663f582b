//! A random life of a dataset beside a model that is a map: writes, flushes, merges, reopenings,
//! snapshots that are asked again later, and changes of indexes with more life in the middle of them.
#![allow(dead_code)]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::fs::memory::Memory;
use esker::{
    BulkOrder, Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind,
    Key, KeyType, LookupOptions, Op, Options, Order, Type, Value,
};
use serde_json::{Map, Value as Json, json};

use crate::common::{
    DIR, Doing, Model, Put, Row, Wanted, check, domain, expected, meets, open, path, place, row,
    rows, scan, settle, skewed, small, to_json,
};

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
    kept: Vec<(DatasetSnapshot, Model<K>)>,
}

fn open_with(fs: &Memory, table_size: u64, memory_budget: usize) -> Database {
    let options = Options {
        table_size,
        memory_budget,
        ..small(Arc::new(fs.clone()))
    };
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

impl Life {
    fn begin(seed: u64, kinds: &[IndexKind], changes: bool) -> Life {
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
        let db = open_with(&fs, table_size, memory);
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
        let mut def = DatasetDef::new(path("id"), key_type);
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
                self.kept
                    .push((self.dataset.snapshot(), self.model.clone()));
            }
            86..=89 if self.changes && !self.inside => self.change_index(),
            _ => {
                let now = self.dataset.snapshot();
                let model = std::mem::take(&mut self.model);
                self.ask(&now, &model, 2);
                self.model = model;
                if !self.kept.is_empty() {
                    let at = self.rng.usize(0..self.kept.len());
                    let (snapshot, model) = self.kept[at].clone();
                    self.ask(&snapshot, &model, 2);
                }
            }
        }
    }

    fn batch(&mut self) {
        let mut batch = self.dataset.batch();
        let mut after = self.model.clone();
        let mut refused = false;
        let mut inserted = Vec::new();
        for _ in 0..self.rng.usize(1..16) {
            let key = self.key();
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
                    if after.contains_key(&key) && !self.model.contains_key(&key) {
                        continue;
                    }
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
        let result = batch.commit(Durability::Os);
        if refused {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
        } else {
            result.unwrap();
            self.model = after;
        }
    }

    /// Adds, switches or drops an index, goes on with a change that was broken off, or takes it back.
    fn change_index(&mut self) {
        let kind = IndexKind::ALL[self.rng.usize(0..IndexKind::ALL.len())];
        if let Some((at, to, _)) = self.unfinished {
            let other = self.attributes.first().map_or("u", |attribute| attribute.0);
            match self.rng.usize(0..5) {
                0 => {
                    let change = self.dataset.drop_index(&path(at)).unwrap();
                    assert!(change.complete);
                    self.unfinished = None;
                }
                1 if (other, kind) != (at, to) && other != at => {
                    let error = self.dataset.drop_index(&path(other)).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                }
                _ => self.build(),
            }
            return;
        }
        if self.rng.usize(0..10) == 0 && !self.model.is_empty() {
            let def = self.dataset.def();
            let pad = (path("pad"), Some(Type::Int));
            let result = self
                .dataset
                .add_index(&pad.0, kind, pad.1, &mut |_| ControlFlow::Continue(()));
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadInput);
            let text = error.to_string();
            assert!(text.contains("field pad must be of type int"), "{text}");
            assert_eq!(
                (self.dataset.def(), self.dataset.unfinished_index()),
                (def, None)
            );
            return;
        }
        let declared = self.attributes.len();
        let at = self.rng.usize(0..declared + self.undeclared.len());
        let (at, from, ty) = match self.attributes.get(at) {
            Some((at, from, ty)) => (*at, *from, *ty),
            None => {
                let (at, ty) = self.undeclared[at - declared];
                self.unfinished = Some((at, kind, ty));
                return self.build();
            }
        };
        if kind == from {
            let mut go = |_| ControlFlow::Continue(());
            let error = self.dataset.switch_index(&path(at), kind, &mut go);
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Exists);
        } else if kind == IndexKind::None {
            let change = self.dataset.drop_index(&path(at)).unwrap();
            assert_eq!((change.from, change.to), (Some(from), kind));
            self.declared(at, kind, ty);
        } else {
            self.unfinished = Some((at, kind, ty));
            self.build();
        }
    }

    fn declared(&mut self, at: &'static str, kind: IndexKind, ty: Type) {
        self.undeclared.retain(|other| other.0 != at);
        self.attributes.retain(|other| other.0 != at);
        self.attributes.push((at, kind, ty));
        let def = self.dataset.def();
        let found = def.indexes.iter().find(|index| index.path == path(at));
        assert_eq!(found.map(|index| (index.kind, index.ty)), Some((kind, ty)));
    }

    /// Begins the change that is to be done, or goes on with it, with life going on meanwhile.
    fn build(&mut self) {
        let Some((at, kind, ty)) = self.unfinished else {
            return;
        };
        let _doing = Doing(format!("changed {at} to {kind}"));
        let dataset = self.dataset.clone();
        let known = self.attributes.iter().find(|attribute| attribute.0 == at);
        let from = known.map(|attribute| attribute.1);
        let begun = dataset.unfinished_index().is_some();
        let how = self.rng.usize(0..2);
        let mut left = [None, None, Some(0), Some(3)][self.rng.usize(0..4)];
        self.inside = true;
        let mut progress = |_| {
            for _ in 0..self.rng.usize(0..5) {
                self.step();
            }
            let go_on = left != Some(0);
            left = left.map(|left: usize| left.saturating_sub(1));
            if go_on {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let change = match (begun, how) {
            (true, 0) => dataset.resume_index(&mut progress).unwrap().unwrap(),
            _ if from.is_some_and(|from| from != IndexKind::None) => dataset
                .switch_index(&path(at), kind, &mut progress)
                .unwrap(),
            _ => dataset
                .add_index(&path(at), kind, Some(ty), &mut progress)
                .unwrap(),
        };
        self.inside = false;
        assert_eq!((change.from, change.to), (from, kind));
        let unfinished = dataset.unfinished_index();
        assert_eq!(change.complete, unfinished.is_none());
        if change.complete {
            self.unfinished = None;
            self.declared(at, kind, ty);
        }
        check(&self.db);
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
        self.db = open_with(&self.fs, self.table_size, self.memory);
        self.dataset = self.db.dataset("d").unwrap();
        assert_eq!(self.dataset.def(), def);
    }

    fn wanted(&mut self) -> Vec<Wanted> {
        let mut paths: Vec<(String, Type)> = self
            .attributes
            .iter()
            .map(|a| (a.0.to_string(), a.2))
            .collect();
        let none = paths.is_empty();
        if let Some((at, ty)) = self.rng.choice(&self.undeclared)
            && (none || self.rng.usize(0..4) == 0)
        {
            paths.push((at.to_string(), *ty));
        }
        self.rng.shuffle(&mut paths);
        let count = self.rng.usize(0..=paths.len());
        let mut wanted = Vec::new();
        for (at, ty) in paths.into_iter().take(count.max(1)) {
            let domain = domain(ty);
            let value = |rng: &mut fastrand::Rng| domain[skewed(rng, domain.len())].clone();
            let one = |op, value| Wanted {
                path: at.clone(),
                op,
                value,
            };
            match self.rng.usize(0..10) {
                0..=2 => wanted.push(one(Op::Eq, value(&mut self.rng))),
                3..=6 => {
                    let (mut lo, mut hi) = (value(&mut self.rng), value(&mut self.rng));
                    if lo > hi {
                        std::mem::swap(&mut lo, &mut hi);
                    }
                    let below = [Op::Ge, Op::Gt][self.rng.usize(0..2)];
                    let above = [Op::Le, Op::Lt][self.rng.usize(0..2)];
                    wanted.push(one(below, lo));
                    wanted.push(one(above, hi));
                }
                7 => {
                    let op = [Op::Ge, Op::Gt, Op::Le, Op::Lt][self.rng.usize(0..4)];
                    wanted.push(one(op, value(&mut self.rng)));
                }
                8 if ty == Type::String => wanted.push(one(Op::Prefix, value(&mut self.rng))),
                _ => {
                    wanted.push(one(Op::Eq, value(&mut self.rng)));
                    wanted.push(one(Op::Eq, value(&mut self.rng)));
                }
            }
        }
        wanted
    }

    /// Asks a snapshot `times` random questions.
    fn ask(&mut self, snapshot: &DatasetSnapshot, model: &Model<K>, times: usize) {
        for _ in 0..times {
            let wanted = self.wanted();
            let limit = [None, Some(0), Some(1), Some(3)][self.rng.usize(0..4)];
            self.ask_one(snapshot, model, &wanted, limit);
        }
        let key = self.key();
        let found = snapshot.get(&self.api_key(&key)).unwrap();
        let found = found.map(|record| String::from_utf8(record.body().to_vec()).unwrap());
        assert_eq!(found, model.get(&key).map(|put| put.body.clone()));
        self.scan_some(snapshot, model);
    }

    fn ask_one(
        &mut self,
        snapshot: &DatasetSnapshot,
        model: &Model<K>,
        wanted: &[Wanted],
        limit: Option<usize>,
    ) {
        let order = if self.rng.usize(0..3) == 0 {
            Order::Oldest
        } else {
            Order::Newest
        };
        let _doing = Doing(format!("asked {wanted:?} {order:?} limit {limit:?}"));
        let lookup = LookupOptions {
            batch_bytes: [0, 1000, 16 << 20][self.rng.usize(0..3)],
            stateful: self.rng.bool(),
            hints: self.rng.bool(),
        };
        let mut query = snapshot.query().order(order).lookup(lookup);
        for condition in wanted {
            query = query.condition(condition.condition());
        }
        let found = rows(&self.dataset, query.clone().limit(limit));
        let right = expected(model, wanted, order, limit);
        assert_eq!(found, right);
        let (count, _) = query.clone().limit(limit).count().unwrap();
        assert_eq!(count, right.len() as u64, "count");
        // The same, in other orders.
        let in_bulk = |order| {
            let mut found: Vec<Row> = Vec::new();
            let visit = &mut |record| {
                found.push(row(&self.dataset, Ok(record)).unwrap());
                ControlFlow::Continue(())
            };
            query.clone().limit(limit).visit(order, visit).unwrap();
            found
        };
        let meeting = model.iter().filter(|(_, put)| meets(put, wanted));
        let by_key: Vec<Row> = meeting
            .map(|(key, put)| (key.to_string(), put.body.clone()))
            .collect();
        let few = &by_key[..right.len()];
        assert_eq!(in_bulk(BulkOrder::Key), few, "by key, {lookup:?}");
        let any: BTreeSet<Row> = in_bulk(BulkOrder::Any).into_iter().collect();
        assert_eq!(any.len(), right.len(), "in any order, {lookup:?}");
        assert!(any.iter().all(|row| by_key.contains(row)), "{lookup:?}");
        // The same, page by page.
        if self.rng.usize(0..2) == 0 {
            let size = self.rng.usize(1..6);
            let mut pages: Vec<Row> = Vec::new();
            let mut token = None;
            loop {
                let mut page = query.clone().limit(Some(size));
                if let Some(token) = token {
                    page = page.after(token);
                }
                let mut answer = page.run().unwrap();
                let found: Vec<Row> = answer
                    .by_ref()
                    .map(|record| row(&self.dataset, record).unwrap())
                    .collect();
                if found.is_empty() {
                    break;
                }
                pages.extend(found);
                token = answer.token();
            }
            assert_eq!(pages, expected(model, wanted, order, None), "pages");
        }
    }

    fn scan_some(&mut self, snapshot: &DatasetSnapshot, model: &Model<K>) {
        let (mut from, mut to) = (self.key(), self.key());
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let from = self.rng.bool().then_some(from);
        let to = self.rng.bool().then_some(to);
        let reverse = self.rng.bool();
        let mut right: Vec<Row> = model
            .iter()
            .filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from))
            .filter(|(key, _)| to.as_ref().is_none_or(|to| *key <= to))
            .map(|(key, put)| (key.to_string(), put.body.clone()))
            .collect();
        if reverse {
            right.reverse();
        }
        let key = |key: &Option<K>| key.as_ref().map(|key| self.api_key(key));
        let found: Vec<Row> = snapshot
            .scan(key(&from), key(&to), reverse)
            .unwrap()
            .map(|record| row(&self.dataset, record).unwrap())
            .collect();
        assert_eq!(found, right, "scan {from:?} {to:?} reverse {reverse}");
    }

    /// Everything: each value of each attribute, and the whole range.
    fn ask_everything(&mut self) {
        let snapshot = self.dataset.snapshot();
        let model = std::mem::take(&mut self.model);
        for (at, _, ty) in self.attributes.clone() {
            for value in domain(ty) {
                for op in [Op::Eq, Op::Ge, Op::Gt, Op::Le, Op::Lt] {
                    let value = value.clone();
                    let path = at.to_string();
                    self.ask_one(&snapshot, &model, &[Wanted { path, op, value }], None);
                }
            }
        }
        let all = scan(&self.dataset, &snapshot).unwrap();
        let right: Vec<Row> = model
            .iter()
            .map(|(key, put)| (key.to_string(), put.body.clone()))
            .collect();
        assert_eq!(all, right);
        assert_eq!(rows(&self.dataset, snapshot.query()).len(), model.len());
        assert_eq!(snapshot.query().count().unwrap().0, model.len() as u64);
        self.model = model;
        check(&self.db);
    }
}

/// Lives a life with indexes of these kinds; with `changes` they do not stay so.
pub(crate) fn live(seed: u64, kinds: &[IndexKind], changes: bool) {
    let mut life = Life::begin(seed, kinds, changes);
    let _doing = Doing(format!(
        "ESKER_SEED={seed}: {}",
        life.dataset.def().to_string().replace(" --", ", ")
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
