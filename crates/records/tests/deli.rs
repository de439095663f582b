//! DELI's API against a model that remembers every version of every key: versions by key and by value, for every
//! stand-alone kind of index with every tokenizer, with as many versions as are kept or fewer, now and in the past, by page,
//! over several attributes, on snapshots that are held, whatever is written, flushed, merged, built and reopened.
//! `ESKER_SEEDS=100 cargo test --test deli` tries more; `ESKER_SEED=17` repeats one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{Doing, check, keys, open, path, seeds, settle};
use esker::fs::Fs;
use esker::fs::faulty::Faulty;
use esker::fs::memory::{Memory, PowerCut};
use esker::{
    BulkOrder, Compaction, Condition, Database, Dataset, DatasetDef, DatasetSnapshot, Durability,
    ErrorKind, IndexKind, KeyType, Merging, Page, Repair, RepairMethod, RepairOptions, Tokenizer,
    Type,
};
use serde_json::{Value as Json, json};

const STANDALONE: [IndexKind; 4] = [
    IndexKind::Eager,
    IndexKind::Lazy,
    IndexKind::Composite,
    IndexKind::Recent,
];

const KEYS: u64 = 12;

/// Beginnings of each other, of one byte and more a character, and longer than the longest token.
fn texts() -> Vec<String> {
    let long = "x".repeat(32);
    ["", "a", "ab", "abc", "b", "é", "é€", "\0", "\0é"]
        .into_iter()
        .map(str::to_string)
        .chain([long.clone(), format!("{long}y"), format!("{long}yz")])
        .collect()
}

/// An entry of a key: the number of its write, and the record.
type Entry = (u64, Option<Json>);

/// Every entry of every key, oldest first.
#[derive(Default, Clone)]
struct Model {
    entries: BTreeMap<u64, Vec<Entry>>,
}

impl Model {
    /// What the documentation says: of the newest `kept` entries those up to `at`, down to a deletion, and of these the
    /// first `m`.
    fn versions(&self, key: u64, kept: usize, at: u64, m: usize) -> Vec<(u64, Json)> {
        let entries = self.entries.get(&key).into_iter().flatten().rev();
        let there = entries.take(kept).filter(|(seq, _)| *seq <= at);
        let versions = there.map_while(|(seq, record)| Some((*seq, record.clone()?)));
        versions.take(m).collect()
    }

    fn by_value(&self, wanted: &[(&str, String)], kept: usize, at: u64, m: usize) -> Vec<u64> {
        let all = self.entries.keys();
        let all = all.flat_map(|key| self.versions(*key, kept, at, m));
        let matching = all.filter(|(_, record)| {
            wanted
                .iter()
                .all(|(name, token)| values(record, name).any(|value| fits(name, &value, token)))
        });
        let mut seqs: Vec<u64> = matching.map(|(seq, _)| seq).collect();
        seqs.sort_unstable_by(|a, b| b.cmp(a));
        seqs
    }
}

fn values(record: &Json, name: &str) -> impl Iterator<Item = String> {
    let text = |value: &Json| match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let values: Vec<String> = match &record[name] {
        Json::Null => Vec::new(),
        Json::Array(values) => values.iter().map(text).collect(),
        value => vec![text(value)],
    };
    values.into_iter()
}

/// Prefixes are what the attributes of tests that begin with `p` have.
fn fits(name: &str, value: &str, token: &str) -> bool {
    match name.starts_with('p') {
        true => value.starts_with(token),
        false => value == token,
    }
}

/// What a condition accepts.
type Accepts = Box<dyn Fn(&str) -> bool>;

/// What a life is about.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: IndexKind,
    versions: u32,
    repair: Repair,
    merging: Merging,
}

struct Life {
    case: Case,
    fs: Arc<dyn Fs>,
    db: Database,
    dataset: Dataset,
    model: Model,
    /// Snapshots, what they show, and whether they know the late attribute.
    held: Vec<(DatasetSnapshot, Model, bool)>,
    rng: fastrand::Rng,
    /// An attribute that was declared late.
    late: bool,
}

impl Life {
    fn new(case: Case, seed: u64) -> Life {
        let fs: Arc<dyn Fs> = Arc::new(Memory::new());
        let db = open(fs.clone()).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("s"), case.kind, Type::String)
            .tokenized(path("p"), case.kind, Type::String, Tokenizer::Prefix)
            .tokenized(path("n"), case.kind, Type::Int, Tokenizer::Number)
            .index(path("e"), IndexKind::Embedded, Type::Int)
            .repair(case.repair)
            .merging(case.merging)
            .versions(case.versions);
        let dataset = db.create_dataset("d", def.clone()).unwrap();
        assert_eq!(dataset.def(), def);
        Life {
            case,
            fs,
            db,
            dataset,
            model: Model::default(),
            held: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            late: false,
        }
    }

    fn text(&mut self) -> String {
        let texts = texts();
        texts[self.rng.usize(0..texts.len())].clone()
    }

    fn record(&mut self, key: u64) -> Json {
        let n = self.rng.u64(0..4);
        let p = match self.rng.u8(0..4) {
            0 => json!([self.text(), self.text()]),
            1 => Json::Null,
            _ => json!(self.text()),
        };
        let pad = "-".repeat(self.rng.usize(0..400));
        json!({ "id": key, "s": self.text(), "p": p, "n": n, "e": n / 2, "u": n, "pl": self.text(), "pad": pad })
    }

    fn write(&mut self) {
        let mut batch = self.dataset.batch();
        let mut written = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let key = self.rng.u64(0..KEYS);
            if self.rng.usize(0..6) == 0 {
                batch
                    .delete(&self.dataset.parse_key(&key.to_string()).unwrap())
                    .unwrap();
                written.push((key, None));
            } else {
                let record = self.record(key);
                batch.put(record.to_string().as_bytes()).unwrap();
                written.push((key, Some(record)));
            }
        }
        batch.commit(Durability::Os).unwrap();
        let first = self.dataset.snapshot().seq() + 1 - written.len() as u64;
        for (seq, (key, record)) in (first..).zip(written) {
            self.model
                .entries
                .entry(key)
                .or_default()
                .push((seq, record));
        }
    }

    fn step(&mut self) {
        match self.rng.usize(0..40) {
            0 | 1 => self.db.flush().unwrap(),
            2 => settle(&self.db),
            3 => self.db.compact(Some("d")).unwrap(),
            4 => {
                let now = (self.dataset.snapshot(), self.model.clone(), self.late);
                self.held.push(now);
                if self.held.len() > 3 {
                    self.held.remove(0);
                }
            }
            5 => self.reopen(),
            6 if !self.late => {
                let progress = &mut |_: esker::IndexProgress| ControlFlow::Continue(());
                let (kind, ty) = (self.case.kind, Some(Type::String));
                self.dataset
                    .add_tokenized(&path("pl"), kind, ty, Tokenizer::Prefix, progress)
                    .unwrap();
                self.late = true;
            }
            7 => {
                let compaction = match self.rng.bool() {
                    true => Compaction::After,
                    false => Compaction::Without,
                };
                let options = RepairOptions {
                    method: match self.case.repair == Repair::None || self.rng.bool() {
                        true => RepairMethod::Auto,
                        false => RepairMethod::Primary { compaction },
                    },
                    ..RepairOptions::default()
                };
                let report = self
                    .dataset
                    .repair(&options, &mut |_| ControlFlow::Continue(()));
                assert!(report.unwrap().complete);
            }
            8..10 => self.ask_all(),
            _ => self.write(),
        }
    }

    fn reopen(&mut self) {
        self.held.clear();
        let old = std::mem::replace(&mut self.db, open(Arc::new(Memory::new())).unwrap());
        self.dataset = self
            .db
            .create_dataset("d", DatasetDef::new(path("id"), KeyType::Int))
            .unwrap();
        old.close().unwrap();
        self.db = open(self.fs.clone()).unwrap();
        self.dataset = self.db.dataset("d").unwrap();
    }

    fn ask_all(&mut self) {
        self.ask_newest();
        let now = (self.dataset.snapshot(), self.model.clone(), self.late);
        let held = self.held.clone();
        for (snapshot, model, late) in held.iter().chain([&now]) {
            self.ask(snapshot, model, *late);
        }
    }

    fn ask(&mut self, snapshot: &DatasetSnapshot, model: &Model, late: bool) {
        let kept = self.case.versions as usize;
        for _ in 0..12 {
            let last = snapshot.seq();
            let ts = self.rng.bool().then(|| self.rng.u64(last / 2..=last));
            let m = self.rng.usize(1..kept + 2);
            let at = ts.unwrap_or(last);
            let key = self.rng.u64(0..KEYS);
            let found =
                snapshot.read_key(&self.dataset.parse_key(&key.to_string()).unwrap(), ts, m);
            let found: Vec<(u64, Json)> = found
                .unwrap()
                .iter()
                .map(|r| (r.seq(), serde_json::from_slice(r.body()).unwrap()))
                .collect();
            assert_eq!(
                found,
                model.versions(key, kept, at, m),
                "key {key} at {ts:?}"
            );
            let mut wanted = Vec::new();
            for name in ["s", "p", "n", "e", "u", "pl"] {
                if self.rng.usize(0..4) == 0 {
                    let token = match name {
                        "s" | "p" | "pl" => self.text(),
                        _ => self.rng.u64(0..4).to_string(),
                    };
                    wanted.push((name, token));
                }
            }
            if !late {
                // Undeclared, it is compared as a whole.
                wanted.retain(|(name, _)| *name != "pl");
            }
            if wanted.is_empty() {
                continue;
            }
            let right = model.by_value(&wanted, kept, at, m);
            let paths: Vec<_> = wanted.iter().map(|(name, _)| path(name)).collect();
            let tokens: Vec<_> = paths
                .iter()
                .zip(&wanted)
                .map(|(path, (_, token))| (path, token.as_str()))
                .collect();
            let limit = self.rng.usize(1..6);
            let mut page = Page::newest(limit);
            let mut found = Vec::new();
            loop {
                let part = snapshot.read_values(&tokens, ts, m, page).unwrap();
                assert!(part.records.len() <= limit);
                found.extend(part.records.iter().map(|record| record.seq()));
                match part.next {
                    Some(next) => {
                        assert_eq!(part.records.len(), limit);
                        page = Page::newest(limit).after(next.to_string().parse().unwrap());
                    }
                    None => break,
                }
            }
            assert_eq!(found, right, "{wanted:?}, {m} versions at {ts:?}");
        }
    }

    /// Queries show the newest versions only.
    fn ask_newest(&mut self) {
        let mut conditions: Vec<(String, Accepts)> = Vec::new();
        for name in ["s", "p"] {
            for (op, text) in [("=", self.text()), ("^=", self.text()), (">=", self.text())] {
                let condition = format!("{name}{op}{text}");
                conditions.push(match op {
                    "=" => (condition, Box::new(move |v| v == text)),
                    "^=" => (condition, Box::new(move |v| v.starts_with(&text))),
                    _ => (condition, Box::new(move |v| v >= text.as_str())),
                });
            }
        }
        let n = self.rng.u64(0..4).to_string();
        let least = n.clone();
        conditions.push((format!("n={n}"), Box::new(move |v| v == n)));
        let n = least.clone();
        conditions.push((format!("e={n}"), Box::new(move |v| v == n)));
        conditions.push((format!("n>={least}"), Box::new(move |v| *v >= *least)));
        for (condition, accepts) in conditions {
            let name = &condition[..1];
            let mut right: Vec<(u64, String)> = Vec::new();
            for key in self.model.entries.keys() {
                let newest = self.model.versions(*key, 1, u64::MAX, 1);
                if let Some((seq, record)) = newest.first()
                    && values(record, name).any(|value| accepts(&value))
                {
                    right.push((*seq, key.to_string()));
                }
            }
            right.sort_by(|a, b| b.cmp(a));
            let right: Vec<String> = right.into_iter().map(|(_, key)| key).collect();
            let parsed: Condition = condition.parse().unwrap();
            let query = || self.dataset.query().condition(parsed.clone());
            assert_eq!(keys(&self.dataset, query()), right, "{condition:?}");
            let mut visited = Vec::new();
            query()
                .visit(BulkOrder::Any, &mut |record| {
                    visited.push((record.seq(), record.key_text(&self.dataset)));
                    ControlFlow::Continue(())
                })
                .unwrap();
            visited.sort_by(|a, b| b.cmp(a));
            let visited: Vec<String> = visited.into_iter().map(|(_, key)| key).collect();
            assert_eq!(visited, right, "{condition:?} in bulk");
            assert_eq!(
                query().count().unwrap().0,
                right.len() as u64,
                "{condition:?}"
            );
        }
        let there = (0..KEYS).filter(|key| !self.model.versions(*key, 1, u64::MAX, 1).is_empty());
        assert_eq!(
            self.dataset.query().count().unwrap().0,
            there.count() as u64
        );
    }
}

fn live(case: Case, seed: u64) {
    let _doing = Doing(format!("ESKER_SEED={seed}: {case:?}"));
    let mut life = Life::new(case, seed);
    for _ in 0..260 {
        life.step();
    }
    settle(&life.db);
    life.ask_all();
    check(&life.db);
    life.db.compact(None).unwrap();
    life.ask_all();
    life.reopen();
    life.ask_all();
    check(&life.db);
}

#[test]
fn versions_by_key_and_by_value_are_those_of_the_model() {
    for seed in seeds(1) {
        for kind in STANDALONE {
            for versions in 1..=4 {
                for (repair, merging) in [
                    (Repair::Merge, Merging::Leveled),
                    (Repair::Staged, Merging::Tiered),
                    (Repair::None, Merging::Correlated),
                ] {
                    let case = Case {
                        kind,
                        versions,
                        repair,
                        merging,
                    };
                    live(case, seed * 100 + u64::from(versions));
                }
            }
        }
    }
}

/// The numbers of writes that are known to be over, on disk and in memory.
fn over(db: &Database) -> impl Fn(u64) -> bool {
    let snapshot = db.group().snapshot();
    let tree = db.group().tree("d/superseded").unwrap();
    let set = snapshot.superseded(tree).unwrap();
    move |seq| set.contains(seq)
}

fn one(kind: IndexKind, versions: u32) -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int)
        .index(path("v"), kind, Type::String)
        .repair(Repair::None)
        .versions(versions)
}

#[test]
fn what_queries_find_to_be_over_is_made_durable_by_a_handle_that_writes_and_by_no_other() {
    let fs: Arc<dyn Fs> = Arc::new(Memory::new());
    let db = open(fs.clone()).unwrap();
    let dataset = db.create_dataset("d", one(IndexKind::Recent, 1)).unwrap();
    dataset.put(br#"{"id":1,"v":"old"}"#).unwrap();
    db.flush().unwrap();
    let first = dataset.snapshot();
    dataset.put(br#"{"id":1,"v":"new"}"#).unwrap();
    drop(dataset);
    let seq = first.seq();
    let ask = |db: &Database| {
        let dataset = db.dataset("d").unwrap();
        let count = |value| keys(&dataset, dataset.query().equals(&path("v"), value)).len();
        assert_eq!((count("old"), count("new")), (0, 1));
    };
    drop(first);
    db.close().unwrap();
    // A handle that only reads leaves nothing.
    let db = open(fs.clone()).unwrap();
    ask(&db);
    ask(&db);
    db.flush().unwrap();
    assert!(!over(&db)(seq));
    db.close().unwrap();
    let db = open(fs.clone()).unwrap();
    assert!(!over(&db)(seq));
    let before = db.dataset("d").unwrap().snapshot();
    ask(&db);
    db.dataset("d")
        .unwrap()
        .put(br#"{"id":2,"v":"x"}"#)
        .unwrap();
    assert!(!over(&db)(seq));
    db.flush().unwrap();
    assert!(over(&db)(seq));
    assert!(!over(&db)(seq + 1));
    ask(&db);
    db.compact(None).unwrap();
    ask(&db);
    check(&db);
    drop(before);
}

#[test]
fn a_snapshot_from_before_still_sees_what_later_queries_find_to_be_over() {
    for versions in [1, 2] {
        for kind in STANDALONE {
            let db = open(Arc::new(Memory::new())).unwrap();
            let dataset = db.create_dataset("d", one(kind, versions)).unwrap();
            dataset.put(br#"{"id":1,"v":"old"}"#).unwrap();
            db.flush().unwrap();
            let before = dataset.snapshot();
            for value in ["new", "newer"] {
                let record = format!("{{\"id\":1,\"v\":\"{value}\"}}");
                dataset.put(record.as_bytes()).unwrap();
            }
            let found = |snapshot: &DatasetSnapshot| {
                let page = snapshot.read_value(&path("v"), "old", None, 2, Page::newest(9));
                let versions = page.unwrap().records.len();
                let query = snapshot.query().equals(&path("v"), "old");
                (versions, keys(&dataset, query).len())
            };
            for _ in 0..2 {
                assert_eq!(found(&dataset.snapshot()), (0, 0), "{kind}");
                assert_eq!(found(&before), (1, 1), "{kind}");
                db.compact(None).unwrap();
            }
            check(&db);
        }
    }
}

#[test]
fn an_entry_without_its_record_is_not_shown_and_is_noted_unless_another_record_has_its_number() {
    for versions in [1, 3] {
        let db = open(Arc::new(Memory::new())).unwrap();
        let dataset = db
            .create_dataset("d", one(IndexKind::Composite, versions))
            .unwrap();
        dataset.put(br#"{"id":1,"v":"a"}"#).unwrap();
        dataset.put(br#"{"id":2,"v":"b"}"#).unwrap();
        // As a half-done write would leave it: an index entry, and no record.
        let index = db.group().tree("d/index/0").unwrap();
        let entry = |value: &str, key: u8| [value.as_bytes(), &[0, 1, 0x81, key]].concat();
        let mut batch = lsm::Batch::new();
        batch.put(index, &entry("a", 2), &[]).unwrap();
        let dangling = db.group().write(&mut batch, Durability::Os).unwrap();
        // As a mistake could leave it: an entry of a record under the key of another.
        dataset.put(br#"{"id":3,"v":"c"}"#).unwrap();
        let mut batch = lsm::Batch::new();
        let data = db.group().tree("d/data").unwrap();
        let stored = db.group().snapshot();
        let stored = stored.get(data, &[0x81, 3], &lsm::Cost::default());
        let stored = stored.unwrap().unwrap().value;
        batch.put(data, &[0x81, 4], &stored).unwrap();
        batch
            .also(lsm::Kind::Put, index, &entry("a", 1), &[])
            .unwrap();
        let written = db.group().write(&mut batch, Durability::Os).unwrap();
        for _ in 0..2 {
            let page = dataset.read_value(&path("v"), "a", None, 3, Page::newest(9));
            let found: Vec<u64> = page.unwrap().records.iter().map(|r| r.seq()).collect();
            assert!(!found.contains(&dangling) && !found.contains(&written));
            let query = dataset.query().equals(&path("v"), "a");
            assert!(!keys(&dataset, query).contains(&"2".to_string()));
            db.flush().unwrap();
        }
        let is_over = over(&db);
        assert!(is_over(dangling), "{versions} versions");
        assert!(!is_over(written), "{versions} versions");
    }
}

#[test]
fn tokenizers_go_with_their_types_and_with_indexes_that_stand_alone() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let make = |name: &str, kind, ty, tokenizer| {
        let def =
            DatasetDef::new(path("id"), KeyType::Int).tokenized(path("a"), kind, ty, tokenizer);
        let made = db.create_dataset(name, def);
        made.err().map(|error| error.kind())
    };
    let bad = Some(ErrorKind::BadInput);
    let (lazy, embedded) = (IndexKind::Lazy, IndexKind::Embedded);
    assert_eq!(make("x", lazy, Type::Int, Tokenizer::Prefix), bad);
    assert_eq!(make("x", lazy, Type::String, Tokenizer::Number), bad);
    assert_eq!(make("x", lazy, Type::Bool, Tokenizer::Number), bad);
    assert_eq!(make("x", embedded, Type::String, Tokenizer::Prefix), bad);
    assert_eq!(
        make("x", IndexKind::None, Type::Int, Tokenizer::Number),
        bad
    );
    assert_eq!(make("y", lazy, Type::Time, Tokenizer::Number), None);
    assert_eq!(make("z", lazy, Type::String, Tokenizer::Prefix), None);
    // A switch keeps it, where it can.
    let dataset = db.dataset("z").unwrap();
    dataset.put(br#"{"id":1,"a":"x"}"#).unwrap();
    let mut go_on = |_: esker::IndexProgress| ControlFlow::Continue(());
    let refused = dataset.switch_index(&path("a"), embedded, &mut go_on);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BadInput);
    dataset
        .switch_index(&path("a"), IndexKind::Eager, &mut go_on)
        .unwrap();
    assert_eq!(dataset.def().indexes[0].tokenizer, Tokenizer::Prefix);
    dataset.drop_index(&path("a")).unwrap();
    assert_eq!(dataset.def().indexes[0].tokenizer, Tokenizer::Exact);
}

/// Writes that are not synced, queries that find what they superseded, and flushes: whatever is lost in a power cut,
/// nothing that is left may be taken for over.
fn noted_life(fs: Arc<dyn Fs>, seed: u64, synced: &mut BTreeMap<u64, u64>) -> esker::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let db = open(fs)?;
    let dataset = db.create_dataset("d", one(IndexKind::Lazy, 1))?;
    for order in 1..60 {
        let key = rng.u64(0..5);
        let record = format!(
            "{{\"id\":{key},\"v\":\"{}\",\"order\":{order}}}",
            rng.u64(0..3)
        );
        let sync = rng.usize(0..4) == 0;
        let mut batch = dataset.batch();
        batch.put(record.as_bytes())?;
        batch.commit(if sync {
            Durability::Sync
        } else {
            Durability::Os
        })?;
        if sync {
            for key in 0..5 {
                if let Some(record) = dataset.get(&dataset.parse_key(&key.to_string())?)? {
                    synced.insert(key, order_of(&record));
                }
            }
        }
        for value in 0..3 {
            keys_of(&dataset, value)?;
        }
        if rng.usize(0..6) == 0 {
            db.flush()?;
        }
        if rng.usize(0..12) == 0 {
            db.compact(None)?;
        }
    }
    db.close()
}

fn order_of(record: &esker::Record) -> u64 {
    let json: Json = serde_json::from_slice(record.body()).unwrap();
    json["order"].as_u64().unwrap()
}

fn keys_of(dataset: &Dataset, value: u64) -> esker::Result<Vec<u64>> {
    let query = dataset.query().equals(&path("v"), &value.to_string());
    query.run()?.map(|record| Ok(record?.seq())).collect()
}

#[test]
fn a_power_cut_leaves_nothing_over_that_is_there() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    for seed in seeds(2) {
        let quiet = Faulty::new(Arc::new(Memory::new()));
        noted_life(Arc::new(quiet.clone()), seed, &mut BTreeMap::new()).unwrap();
        for cut in 1..=quiet.calls() {
            let mode = modes[(cut + seed) as usize % modes.len()];
            let _doing = Doing(format!("ESKER_SEED={seed}: cut at call {cut}, {mode:?}"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.fail_from(cut);
            let mut synced = BTreeMap::new();
            let _ = noted_life(Arc::new(faulty), seed, &mut synced);
            let db = open(Arc::new(memory.power_cut(seed ^ cut, mode))).unwrap();
            let Ok(dataset) = db.dataset("d") else {
                assert!(synced.is_empty());
                continue;
            };
            let is_over = over(&db);
            let read = || -> Vec<u64> {
                let scan = dataset.scan(None, None, false).unwrap();
                scan.map(|record| record.unwrap().seq()).collect()
            };
            let records = read();
            for record in dataset.scan(None, None, false).unwrap() {
                let record = record.unwrap();
                assert!(!is_over(record.seq()), "a record that is there is over");
                let key = record.key_text(&dataset).parse().unwrap();
                assert!(
                    synced
                        .remove(&key)
                        .is_none_or(|order| order_of(&record) >= order)
                );
            }
            assert!(synced.is_empty(), "records are gone: {synced:?}");
            // Merges leave out what is over.
            db.compact(None).unwrap();
            assert_eq!(read(), records);
            let mut found: Vec<u64> = (0..3).flat_map(|v| keys_of(&dataset, v).unwrap()).collect();
            found.sort_unstable();
            let mut records = records;
            records.sort_unstable();
            assert_eq!(found, records);
            check(&db);
        }
    }
}

/// A range filter gives the newest of each key and no other version: versions are looked for without it.
#[test]
fn a_range_filter_hides_no_version() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = one(IndexKind::Filter, 2).index(path("w"), IndexKind::Composite, Type::String);
    let dataset = db.create_dataset("d", def).unwrap();
    dataset.put(br#"{"id":1,"v":"a","w":"x"}"#).unwrap();
    dataset.put(br#"{"id":1,"v":"b","w":"x"}"#).unwrap();
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let of_a = dataset.read_value(&path("v"), "a", None, 2, Page::newest(9));
        assert_eq!(of_a.unwrap().records.len(), 1);
        let (v, w) = (path("v"), path("w"));
        let both = [(&v, "a"), (&w, "x")];
        let both = dataset.read_values(&both, None, 2, Page::newest(9));
        assert_eq!(both.unwrap().records.len(), 1);
    }
}
