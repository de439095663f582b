//! Compares the planner's estimates with the results, on real commits and flights: two hundred
//! conditions for each kind of index in each state, after updates and deletes, before and after
//! compactions.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

#[path = "../../../records/tests/common/expected.rs"]
mod expected;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::real_data;
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Type};
use esker_sim::memory::Memory;
use expected::{EVEN, SKEWED, compare};
use serde_json::{Map, Value};

type Record = Map<String, Value>;

/// The first record that is read: in the middle of the file.
const FIRST: usize = 120_000;

fn records(folder: &Path, file: &str) -> Vec<Record> {
    let file = std::fs::File::open(folder.join(file)).unwrap();
    let lines = BufReader::new(zstd::stream::read::Decoder::new(file).unwrap()).lines();
    let lines = lines.skip(FIRST).take(esker_sim::by_tier(12_000, 20_000));
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

/// A field, its type, the form of conditions on it, and the allowed error of estimates.
struct Field {
    name: &'static str,
    ty: Type,
    is_skewed: bool,
    has_ranges: bool,
}

const fn field(name: &'static str, ty: Type, is_skewed: bool, has_ranges: bool) -> Field {
    Field {
        name,
        ty,
        is_skewed,
        has_ranges,
    }
}

const FLIGHTS: [Field; 5] = [
    field("time", Type::Int, true, true),
    field("origin", Type::String, true, false),
    field("dest", Type::String, true, false),
    field("delay", Type::Int, true, true),
    field("dist", Type::Int, true, true),
];

const COMMITS: [Field; 7] = [
    field("time", Type::Int, false, true),
    field("author", Type::String, true, true),
    field("repo", Type::String, true, false),
    field("dir", Type::String, true, false),
    field("path", Type::String, true, true),
    field("files", Type::Int, true, true),
    field("atime", Type::Int, false, true),
];

struct Conditions<'r> {
    rng: fastrand::Rng,
    records: &'r [Record],
    fields: &'static [Field],
}

impl Conditions<'_> {
    fn value(&mut self, name: &str) -> String {
        let at = self.rng.usize(..self.records.len());
        self.records[at][name].to_string()
    }

    /// A condition with values from the records, and the allowed error.
    fn next(&mut self) -> (String, f64) {
        let fields = self.fields;
        let field = &fields[self.rng.usize(..fields.len())];
        let name = field.name;
        let value = self.value(name);
        if !field.has_ranges || self.rng.bool() {
            let bound = if field.is_skewed { SKEWED } else { EVEN };
            return (format!("{name} = {value}"), bound);
        }
        // The tail of a skewed distribution has few records per value.
        let ends = if field.is_skewed { SKEWED } else { EVEN };
        match self.rng.u8(..3) {
            0 => (format!("{name} > {value}"), ends),
            1 => (format!("{name} <= {value}"), ends),
            _ => {
                let other = self.value(name);
                let number = |text: &str| text.parse::<i64>().ok();
                let is_less = match (number(&value), number(&other)) {
                    (Some(value), Some(other)) => value < other,
                    _ => value < other,
                };
                let (lo, hi) = if is_less {
                    (value, other)
                } else {
                    (other, value)
                };
                (format!("{name} >= {lo} and {name} <= {hi}"), EVEN)
            }
        }
    }
}

fn store(kind: IndexKind, fields: &[Field]) -> (Database, Dataset<u64>) {
    let options = Options::new()
        .memory_budget(8 << 20)
        .durability(Durability::Os)
        .fs(Arc::new(Memory::new()))
        .background(false)
        .table_size(1 << 20);
    let db = Database::create_or_open(PathBuf::from("/store"), options).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int).maintenance(Maintenance::Deferred);
    for field in fields {
        def = def.index(field.name, Index::new(kind).of_type(field.ty));
    }
    // With a condition on `all` beside it, the planner must estimate every other condition.
    def = def.index("all", Index::new(IndexKind::Composite).of_type(Type::Int));
    let dataset = db.create_dataset("d", def).unwrap();
    (db, dataset)
}

/// By day each kind is tried with one of the two files, one of them with that which takes `long`.
fn estimates_fit(long: bool, file: &str, fields: &'static [Field]) {
    let Some((folder, _)) = real_data(&format!("estimates on {file}")) else {
        return;
    };
    let all = records(&folder, file);
    let mut wrong = Vec::new();
    let kinds = IndexKind::ALL.into_iter().enumerate();
    let kinds = kinds.filter(|(at, _)| esker_sim::is_nightly() || (*at == 1) == long);
    for kind in kinds
        .map(|(_, kind)| kind)
        .filter(|kind| *kind != IndexKind::None)
    {
        let (db, dataset) = store(kind, fields);
        let put = |record: &Record, id: &Value| {
            let mut record = record.clone();
            record.insert("id".to_owned(), id.clone());
            record.insert("all".to_owned(), 1.into());
            dataset
                .put_json(serde_json::to_vec(&record).unwrap())
                .unwrap();
        };
        all.iter().for_each(|record| put(record, &record["id"]));
        let mut conditions = Conditions {
            rng: fastrand::Rng::with_seed(5),
            records: &all,
            fields,
        };
        let mut check = |state: &str| {
            let what = format!("{file}, {kind}, {state}");
            wrong.extend(compare(&dataset, &mut || conditions.next(), &what));
        };
        check("as written");
        db.compact(None).unwrap();
        check("merged");
        // Every third record is replaced or deleted.
        let mut rng = fastrand::Rng::with_seed(6);
        let number = all.len();
        for _ in 0..number / 3 {
            let id = &all[rng.usize(..number)]["id"];
            match rng.u8(..5) {
                0 => drop(dataset.delete(id.as_u64().unwrap()).unwrap()),
                _ => put(&all[rng.usize(..number)], id),
            }
        }
        check("updated");
        db.compact(None).unwrap();
        check("updated and merged");
    }
    let n = wrong.len();
    assert_eq!(n, 0, "{n} estimates do not fit: {wrong:#?}");
}

#[test]
fn estimates_fit_on_flights() {
    estimates_fit(false, "flights.ndjson.zst", &FLIGHTS);
}

#[test]
fn estimates_fit_on_commits() {
    estimates_fit(true, "events.ndjson.zst", &COMMITS);
}
