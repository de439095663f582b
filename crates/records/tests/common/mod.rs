//! Shared parts of the record store's tests. Each test file uses some of them.
#![allow(dead_code)]

pub(crate) mod tree;

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::fs::Fs;
use esker::maintain::Validation;
use esker::schema::{Maintenance, Merging, Repair};
use esker::{
    Database, DatasetDef, DatasetSnapshot, Durability, Expr, IndexKind, Op, Operand, Options,
    Order, Path, Query, Type, Value,
};
use esker_lsm::Cursor;
use esker_sim::memory::Memory;
use serde_json::{Map, Value as Json, json};

#[allow(unused_imports)]
pub(crate) use esker_sim::seeds;

/// Conditions with values as text, which is parsed as the attribute's type.
pub(crate) trait TextQuery {
    fn equals(self, path: &Path, value: &str) -> Self;
    fn between(self, path: &Path, lo: &str, hi: &str) -> Self;
}

impl<K: esker::PrimaryKey> TextQuery for Query<K> {
    fn equals(self, path: &Path, value: &str) -> Self {
        self.filter(Expr::compare(path.clone(), Op::Eq, Operand::text(value)))
    }

    fn between(self, path: &Path, lo: &str, hi: &str) -> Self {
        let bound = |op, text| Expr::compare(path.clone(), op, Operand::text(text));
        self.filter(bound(Op::Ge, lo) & bound(Op::Le, hi))
    }
}

/// The folder of stores in memory.
pub(crate) const DIR: &str = "/store";

/// A file system with a store of an earlier version in [`DIR`]. For each file, `store` has a line
/// with its name and length, then its bytes.
pub(crate) fn unpack(mut store: &[u8]) -> Memory {
    let fs = Memory::new();
    while let Some(end) = store.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&store[..end]).unwrap();
        let (name, len) = line.split_once(' ').unwrap();
        let (bytes, next) = store[end + 1..].split_at(len.parse().unwrap());
        fs.write(&FsPath::new(DIR).join(name), bytes);
        store = next;
    }
    fs
}

/// The kinds with an index.
pub(crate) const INDEXED: [IndexKind; 7] = [
    IndexKind::Embedded,
    IndexKind::Eager,
    IndexKind::Lazy,
    IndexKind::Composite,
    IndexKind::Recent,
    IndexKind::Fingerprint,
    IndexKind::Filter,
];

/// An attribute for each of [`INDEXED`], named after it.
pub(crate) const PATHS: [&str; INDEXED.len()] = [
    "embedded",
    "eager",
    "lazy",
    "composite",
    "recent",
    "fingerprint",
    "filter",
];

/// Settings that cause much activity with little data, deterministically: memtables of 64 KiB,
/// tables of 8 KiB, a first level of 16 KiB.
pub(crate) fn small(fs: Arc<dyn Fs>) -> Options {
    Options::new()
        .memory_budget(512 << 10)
        .durability(Durability::Os)
        .fs(fs)
        .background(false)
        .table_size(8 << 10)
}

/// Opens (or creates) a store in `fs`.
pub(crate) fn open(fs: Arc<dyn Fs>) -> esker::Result<Database> {
    Database::create_or_open(FsPath::new(DIR), small(fs))
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// A number from the environment.
pub(crate) fn number(name: &str, usual: usize) -> usize {
    let set = std::env::var(name).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Prints the current step of a test when it fails.
pub(crate) struct Doing(pub(crate) String);

impl Drop for Doing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while: {}", self.0);
        }
    }
}

/// A number in 0..`n`, mostly small ones.
pub(crate) fn skewed(rng: &mut fastrand::Rng, n: usize) -> usize {
    let below = rng.usize(0..n) + 1;
    rng.usize(0..below)
}

/// Compacts until nothing is left to compact.
pub(crate) fn converge(db: &Database) {
    db.flush().unwrap();
    db.group().run_compactions().unwrap();
}

/// Checks the store: no damage, and indexes that agree with the data.
pub(crate) fn check(db: &Database) {
    let report = db.check().unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
}

/// An invariant of the dataset `d` under any maintenance strategy: the obsolete set has no current
/// record.
pub(crate) fn check_set(db: &Database) {
    let snapshot = db.group().snapshot();
    let tree = |name| snapshot.version().tree_named(name).unwrap().id;
    let set = snapshot.superseded(tree("d/superseded")).unwrap();
    assert!(set.repair_watermark() <= snapshot.seq());
    let mut cursor = snapshot.cursor(tree("d/data"), 0);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        let seq = cursor.seq();
        assert!(!set.contains(seq), "write {seq} is current and in the set");
        cursor.next().unwrap();
    }
}

/// One of the maintenance settings that tests use: strategies, repair settings and compaction
/// policies in turn.
pub(crate) fn with_strategy(def: DatasetDef, number: usize) -> DatasetDef {
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

/// A query's keys in order, by every form of query; all must agree.
pub(crate) fn keys_in_every_way(query: &Query) -> Vec<String> {
    let found = keys(query.clone());
    for validation in [Validation::Auto, Validation::Direct, Validation::Timestamp] {
        let query = query.clone().validation(validation);
        let alone = query.clone().keys().unwrap();
        let alone: Vec<String> = alone.map(|key| key.unwrap().to_string()).collect();
        assert_eq!(alone, found, "keys alone, {validation:?}");
        assert_eq!(keys(query.clone()), found, "{validation:?}");
        let count = query.count().unwrap();
        assert_eq!(count, found.len() as u64, "count, {validation:?}");
    }
    found
}

/// A record of an answer: its key and its bytes.
pub(crate) type Row = (String, String);

/// The rows of a query.
pub(crate) fn rows(query: Query) -> Vec<Row> {
    try_rows(query).unwrap()
}

pub(crate) fn try_rows(query: Query) -> esker::Result<Vec<Row>> {
    query.run()?.map(row).collect()
}

/// The rows of a scan of a whole snapshot.
pub(crate) fn scan(snapshot: &DatasetSnapshot) -> esker::Result<Vec<Row>> {
    let records = snapshot.scan(..);
    records.map(row).collect()
}

pub(crate) fn row(record: esker::Result<esker::Record>) -> esker::Result<Row> {
    let record = record?;
    Ok((record.key().to_string(), body(&record)))
}

fn body(record: &esker::Record) -> String {
    std::str::from_utf8(record.json()).unwrap().to_string()
}

/// The keys of a query's answer.
pub(crate) fn keys(query: Query) -> Vec<String> {
    rows(query).into_iter().map(|row| row.0).collect()
}

/// A record of a model: its body, the order of its write, and its attributes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Put {
    /// Increases with each write.
    pub(crate) order: u64,
    pub(crate) body: String,
    /// The values by the text of their path, including undeclared ones.
    pub(crate) values: BTreeMap<String, Vec<Value>>,
}

/// The expected content of a dataset, by key (as a number or a string, in key order).
pub(crate) type Model<K> = BTreeMap<K, Put>;

/// A condition of a model's query.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) path: String,
    pub(crate) op: Op,
    pub(crate) value: Value,
}

impl Wanted {
    pub(crate) fn condition(&self) -> Expr {
        Expr::compare(
            path(&self.path),
            self.op,
            Operand::text(self.value.to_string()),
        )
    }

    fn accepts(&self, value: &Value) -> bool {
        if self.op == Op::Prefix {
            return match (value, &self.value) {
                (Value::String(value), Value::String(prefix)) => value.starts_with(prefix),
                _ => false,
            };
        }
        value
            .partial_cmp(&self.value)
            .is_some_and(|order| match self.op {
                Op::Eq => order.is_eq(),
                Op::Ge => order.is_ge(),
                Op::Le => order.is_le(),
                Op::Gt => order.is_gt(),
                Op::Lt => order.is_lt(),
                _ => false,
            })
    }

    fn bounds_a_range(&self) -> bool {
        matches!(self.op, Op::Ge | Op::Le | Op::Gt | Op::Lt)
    }
}

/// True if a record meets all conditions. Conditions that bound a range of one path must hold for
/// one value together, each other condition for some value.
pub(crate) fn meets(put: &Put, wanted: &[Wanted]) -> bool {
    wanted.iter().enumerate().all(|(at, first)| {
        let joined = |other: &&Wanted| {
            first.bounds_a_range() && other.bounds_a_range() && other.path == first.path
        };
        if wanted[..at].iter().any(|earlier| joined(&earlier)) {
            return true;
        }
        let with: Vec<&Wanted> = wanted[at + 1..].iter().filter(joined).collect();
        let values = put.values.get(&first.path);
        values.into_iter().flatten().any(|value| {
            first.accepts(value) && with.iter().all(|condition| condition.accepts(value))
        })
    })
}

/// The expected rows of a query.
pub(crate) fn expected<K: ToString>(
    model: &Model<K>,
    wanted: &[Wanted],
    order: Order,
    limit: Option<usize>,
) -> Vec<Row> {
    let mut found: Vec<(u64, Row)> = model
        .iter()
        .filter(|(_, put)| meets(put, wanted))
        .map(|(key, put)| (put.order, (key.to_string(), put.body.clone())))
        .collect();
    found.sort_by_key(|(order, _)| *order);
    if order == Order::Newest {
        found.reverse();
    }
    let rows = found.into_iter().map(|(_, row)| row);
    rows.take(limit.unwrap_or(usize::MAX)).collect()
}

/// The values of a type in tests: few, so that many records share one, and those that are critical
/// for an order or an encoding.
pub(crate) fn domain(ty: Type) -> Vec<Value> {
    match ty {
        Type::Int => [
            0,
            1,
            -1,
            5,
            7,
            10,
            100,
            255,
            256,
            -255,
            -256,
            i128::from(i64::MAX),
            i128::from(i64::MIN),
            i128::from(i64::MAX) + 1,
            i128::from(u64::MAX),
        ]
        .map(Value::Int)
        .to_vec(),
        Type::Float => [
            0.0,
            1.0,
            -1.5,
            0.1,
            40.712776123,
            1234567.891,
            -1e300,
            1e300,
            5e-324,
            -5e-324,
            9007199254740993.0,
        ]
        .map(Value::Float)
        .to_vec(),
        Type::String => [
            "a",
            "ab",
            "",
            "b",
            "a\0",
            "a\0b",
            "a\u{1}",
            "a\0\0",
            "New York",
            "New+York",
            "New",
            "quote\"d",
            "\u{e9}",
            "\u{ff}",
            "\u{10ffff}",
            "\u{10ffff}\u{10ffff}",
        ]
        .map(|text| Value::String(text.to_string()))
        .to_vec(),
        Type::Bool => [true, false].map(Value::Bool).to_vec(),
        Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => [
            0,
            1_700_000_000_000_000,
            1_700_000_000_000_001,
            1_700_000_060_000_000,
            -1,
            -62_135_596_800_000_000,
            253_402_300_799_999_999,
            1_700_000_000_500_000,
        ]
        .map(Value::Time)
        .to_vec(),
        Type::Point | Type::PlanePoint | Type::PointTime | Type::PlanePointTime => {
            panic!("points have tests of their own: space.rs")
        }
        Type::Compound => panic!("several fields have tests of their own: compound.rs"),
    }
}

/// A value as JSON, in one of its possible forms.
pub(crate) fn to_json(value: &Value, rng: &mut fastrand::Rng) -> Json {
    match value {
        Value::Int(v) => match i64::try_from(*v) {
            Ok(v) => json!(v),
            Err(_) => json!(u64::try_from(*v).unwrap()),
        },
        Value::Float(v) if *v == 1.0 && rng.bool() => json!(1),
        Value::Float(v) if *v == 0.0 && rng.bool() => json!(-0.0),
        Value::Float(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Time(v) if v % 1_000_000 == 0 && rng.bool() => json!(v / 1_000_000),
        Value::Time(_) => json!(value.to_string()),
        Value::Point(_, point) | Value::PointTime(_, point, _) => json!([point.x(), point.y()]),
    }
}

/// Puts `field` at the path `names` of an object; through arrays of objects if `many`.
pub(crate) fn place(object: &mut Map<String, Json>, names: &[&str], field: Json) {
    let Some((name, rest)) = names.split_first() else {
        return;
    };
    if rest.is_empty() {
        object.insert((*name).to_string(), field);
        return;
    }
    let inner = object
        .entry((*name).to_string())
        .or_insert_with(|| json!({}));
    if let Json::Object(inner) = inner {
        place(inner, rest, field);
    }
}
