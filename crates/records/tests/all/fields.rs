//! The fields of a dataset beside those of a walk through its records: they have all of the records
//! that are there, none that was never written, and are exact once the dataset was compacted.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::fs::Fs;
use esker::maintain::RepairOptions;
use esker::schema::{Fields, JsonTypes, Layout};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Index, IndexKind, KeyType, Type, Update,
};
use esker_sim::memory::Memory;
use serde_json::{Map, Value as Json, json};

use crate::common::{DIR, Doing, INDEXED, check, converge, open, path, seeds, small, unpack};

/// Types by path.
type Types = BTreeMap<String, JsonTypes>;

fn walk(value: &Json, at: &str, types: &mut Types) {
    let ty = match value {
        Json::Null => JsonTypes::NULL,
        Json::Bool(_) => JsonTypes::BOOL,
        Json::Number(number) if number.is_i64() => JsonTypes::INT,
        Json::Number(number) if number.is_u64() => JsonTypes::BIG_INT,
        Json::Number(_) => JsonTypes::FLOAT,
        Json::String(_) => JsonTypes::TEXT,
        Json::Array(elements) => {
            for element in elements {
                walk(element, &format!("{at}[]"), types);
            }
            JsonTypes::ARRAY
        }
        Json::Object(fields) => {
            let above = if at.is_empty() {
                String::new()
            } else {
                format!("{at}.")
            };
            for (name, value) in fields {
                walk(value, &format!("{above}{name}"), types);
            }
            JsonTypes::OBJECT
        }
    };
    if !at.is_empty() {
        *types.entry(at.to_string()).or_default() |= ty;
    }
}

fn types_of<'r>(records: impl Iterator<Item = &'r Json>) -> Types {
    let mut types = Types::new();
    records.for_each(|record| walk(record, "", &mut types));
    types
}

fn listed(fields: &Fields) -> Types {
    assert!(!fields.has_more());
    let all = fields.list();
    all.map(|field| (field.path().to_string(), field.types()))
        .collect()
}

/// True if `all` has each type that `part` has.
fn includes(all: &Types, part: &Types) -> bool {
    part.iter().all(|(path, types)| {
        let known = all.get(path).copied().unwrap_or_default();
        types.without(known).is_empty()
    })
}

fn value(rng: &mut fastrand::Rng, depth: usize) -> Json {
    match rng.u8(..if depth == 0 { 6 } else { 9 }) {
        0 => Json::Null,
        1 => Json::from(rng.bool()),
        2 => Json::from(rng.i64(-9..9)),
        3 => Json::from(rng.f64()),
        4 => Json::from("x".repeat(rng.usize(..200))),
        5 => Json::from(u64::MAX),
        6 => (0..rng.usize(..3)).map(|_| value(rng, depth - 1)).collect(),
        _ => Json::Object(fields(rng, depth - 1)),
    }
}

fn fields(rng: &mut fastrand::Rng, depth: usize) -> Map<String, Json> {
    let mut fields = Map::new();
    for _ in 0..rng.usize(..4) {
        // Rare ones come and go.
        let name = format!("f{}", rng.u8(..8) * rng.u8(..8));
        fields.insert(name, value(rng, depth));
    }
    fields
}

fn record(rng: &mut fastrand::Rng, id: u64) -> Json {
    let mut record = fields(rng, 2);
    record.insert("id".to_string(), json!(id));
    if rng.u8(..8) > 0 {
        let at = [rng.i32(-170..170), rng.i32(-80..80)];
        record.insert("at".to_string(), json!(at));
    }
    Json::Object(record)
}

/// A store beside a model.
struct Run {
    fs: Memory,
    db: Option<Database>,
    live: BTreeMap<u64, Json>,
    /// Everything that was ever written.
    ever: Types,
    /// Snapshots with the types that were there.
    held: Vec<(DatasetSnapshot, Types)>,
}

impl Run {
    fn dataset(&self) -> Dataset {
        self.db.as_ref().unwrap().dataset("d").unwrap()
    }

    fn write(&mut self, rng: &mut fastrand::Rng) {
        let dataset = self.dataset();
        let mut batch = dataset.batch();
        for _ in 0..rng.usize(1..12) {
            let id = rng.u64(..40);
            if rng.u8(..4) == 0 {
                let key = dataset.parse_key(&id.to_string()).unwrap();
                batch.delete(&key).unwrap();
                self.live.remove(&id);
                continue;
            }
            let record = record(rng, id);
            walk(&record, "", &mut self.ever);
            batch.put_json(record.to_string().as_bytes()).unwrap();
            self.live.insert(id, record);
        }
        batch.commit().unwrap();
        let id = rng.u64(..40);
        let key = dataset.parse_key(&id.to_string()).unwrap();
        if let Some(record) = self.live.get_mut(&id) {
            record["updated"] = value(rng, 1);
            walk(record, "", &mut self.ever);
            let json = record.to_string().into_bytes();
            dataset.update(&key, |_| Update::Put(json.clone())).unwrap();
        }
    }

    fn step(&mut self, rng: &mut fastrand::Rng) {
        match rng.u8(..24) {
            0 => self.db.as_ref().unwrap().flush().unwrap(),
            1 => converge(self.db.as_ref().unwrap()),
            2 => {
                self.held.clear();
                self.db.take().unwrap().close().unwrap();
                self.db = Some(open(Arc::new(self.fs.clone())).unwrap());
            }
            3 => {
                let then = types_of(self.live.values());
                self.held.push((self.dataset().snapshot(), then));
            }
            4 => {
                let dataset = self.dataset();
                let def = dataset.def();
                let mut indexes = def.indexes.iter();
                let has = indexes.any(|i| i.path == path("f1") && i.kind.is_indexed());
                if has {
                    dataset.drop_index(path("f1")).unwrap();
                } else {
                    let kind = [IndexKind::Lazy, IndexKind::Composite][rng.usize(..2)];
                    let index = Index::new(kind).of_type(Type::Int).lenient();
                    dataset.add_index(path("f1"), index).run().unwrap();
                }
            }
            _ => self.write(rng),
        }
        let all = listed(&self.dataset().fields().unwrap().unwrap());
        assert!(includes(&all, &types_of(self.live.values())), "{all:?}");
        assert!(includes(&self.ever, &all), "{all:?}");
        for (snapshot, then) in &self.held {
            let all = listed(&snapshot.fields().unwrap().unwrap());
            assert!(includes(&all, then) && includes(&self.ever, &all));
        }
    }

    /// The fields of a copy, of a kept snapshot, of a reader, and after a compaction.
    fn finish(mut self) {
        self.held.clear();
        let db = self.db.take().unwrap();
        let now = types_of(self.live.values());
        db.keep_snapshot("kept").unwrap();
        db.backup("/copy").unwrap();
        let disk: Arc<dyn Fs> = Arc::new(self.fs.clone());
        let copy = Database::open(FsPath::new("/copy"), small(disk.clone())).unwrap();
        let of_copy = copy.dataset::<esker::Key>("d").unwrap().fields().unwrap();
        assert!(includes(&listed(&of_copy.unwrap()), &now));
        copy.close().unwrap();

        let dataset: Dataset = db.dataset("d").unwrap();
        dataset.repair(&RepairOptions::default()).run().unwrap();
        db.compact(None).unwrap();
        assert_eq!(listed(&dataset.fields().unwrap().unwrap()), now);
        check(&db);
        let kept = db.kept_snapshot("kept").unwrap();
        let kept = kept.dataset::<esker::Key>("d").unwrap().fields().unwrap();
        assert!(includes(&listed(&kept.unwrap()), &now));
        let reader = Database::open_reader(FsPath::new(DIR), small(disk)).unwrap();
        let dataset = reader.dataset::<esker::Key>("d").unwrap();
        assert_eq!(listed(&dataset.fields().unwrap().unwrap()), now);
    }
}

#[test]
fn fields_are_those_of_the_records() {
    for seed in seeds(24) {
        let _doing = Doing(format!("seed {seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Memory::new();
        let db = open(Arc::new(fs.clone())).unwrap();
        let mut def = DatasetDef::new(path("id"), KeyType::Int);
        match rng.u8(..3) {
            // Records are stored by location, with their bodies in another tree.
            0 => def = def.index("at", Index::new(IndexKind::Spatial(Layout::Clustered))),
            1 => {
                let kind = INDEXED[rng.usize(..INDEXED.len())];
                def = def.index("f2", Index::new(kind).of_type(Type::Int).lenient());
            }
            _ => {}
        }
        db.create_dataset::<esker::Key>("d", def).unwrap();
        let mut run = Run {
            fs,
            db: Some(db),
            live: BTreeMap::new(),
            ever: Types::new(),
            held: Vec::new(),
        };
        for _ in 0..rng.usize(10..150) {
            run.step(&mut rng);
        }
        run.finish();
    }
}

#[test]
fn a_dataset_without_records_has_no_fields() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    assert!(dataset.fields().unwrap().unwrap().is_empty());
    dataset.put_json(br#"{"id":1,"a":2}"#).unwrap();
    db.flush().unwrap();
    dataset.delete(1).unwrap();
    db.compact(None).unwrap();
    assert!(dataset.fields().unwrap().unwrap().is_empty());
}

/// A store from before there were statistics: nothing is said of what its tables have, until they
/// are compacted.
#[test]
fn the_fields_of_tables_from_before_are_unknown_until_a_compaction() {
    let fs = unpack(include_bytes!("../fixtures/obsolete-numbers.store"));
    let db = open(Arc::new(fs)).unwrap();
    let dataset: Dataset = db.dataset(&db.dataset_names()[0]).unwrap();
    assert_eq!(dataset.fields().unwrap(), None);
    db.compact(None).unwrap();
    let records = dataset.scan(..).map(|record| record.unwrap());
    let records: Vec<Json> = records.map(|record| record.parse().unwrap()).collect();
    let fields = listed(&dataset.fields().unwrap().unwrap());
    assert_eq!(fields, types_of(records.iter()));
    assert!(!fields.is_empty());
}
