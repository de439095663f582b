//! DELI's API: obsolete writes found by queries, which handles record them, and what earlier
//! snapshots see of them; tokenizers. The simulation (`sim/`) compares versions by key and by value
//! with a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Doing, TextQuery, check, keys, open, path, seeds};
use esker::fs::Fs;
use esker::schema::{Repair, Tokenizer};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType, Type,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};
use serde_json::Value as Json;

const STANDALONE: [IndexKind; 4] = [
    IndexKind::Eager,
    IndexKind::Lazy,
    IndexKind::Composite,
    IndexKind::Recent,
];

/// The numbers of writes known to be obsolete, on disk and in memory.
fn over(db: &Database) -> impl Fn(u64) -> bool {
    let snapshot = db.group().snapshot();
    let tree = db.group().tree("d/superseded").unwrap();
    let set = snapshot.superseded(tree).unwrap();
    move |seq| set.contains(seq)
}

fn one(kind: IndexKind, versions: u32) -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int)
        .index(path("v"), esker::Index::new(kind).of_type(Type::String))
        .repair(Repair::None)
        .versions(versions)
}

#[test]
fn what_queries_find_to_be_over_is_made_durable_by_a_handle_that_writes_and_by_no_other() {
    let fs: Arc<dyn Fs> = Arc::new(Memory::new());
    let db = open(fs.clone()).unwrap();
    let dataset = db
        .create_dataset::<esker::Key>("d", one(IndexKind::Recent, 1))
        .unwrap();
    dataset.put_json(br#"{"id":1,"v":"old"}"#).unwrap();
    db.flush().unwrap();
    let first = dataset.snapshot();
    dataset.put_json(br#"{"id":1,"v":"new"}"#).unwrap();
    drop(dataset);
    let seq = first.seq();
    let ask = |db: &Database| {
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        let count = |value| keys(dataset.query().equals(&path("v"), value)).len();
        assert_eq!((count("old"), count("new")), (0, 1));
    };
    drop(first);
    db.close().unwrap();
    // A reading handle records nothing.
    let db = open(fs.clone()).unwrap();
    ask(&db);
    ask(&db);
    db.flush().unwrap();
    assert!(!over(&db)(seq));
    db.close().unwrap();
    let db = open(fs.clone()).unwrap();
    assert!(!over(&db)(seq));
    let before = db.dataset::<esker::Key>("d").unwrap().snapshot();
    ask(&db);
    db.dataset::<esker::Key>("d")
        .unwrap()
        .put_json(br#"{"id":2,"v":"x"}"#)
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
            let dataset = db
                .create_dataset::<esker::Key>("d", one(kind, versions))
                .unwrap();
            dataset.put_json(br#"{"id":1,"v":"old"}"#).unwrap();
            db.flush().unwrap();
            let before = dataset.snapshot();
            for value in ["new", "newer"] {
                let record = format!("{{\"id\":1,\"v\":\"{value}\"}}");
                dataset.put_json(record.as_bytes()).unwrap();
            }
            let found = |snapshot: &DatasetSnapshot| {
                let page = snapshot
                    .versions_with(path("v"), "old")
                    .latest(2)
                    .limit(9)
                    .read();
                let versions = page.unwrap().records.len();
                let query = snapshot.query().equals(&path("v"), "old");
                (versions, keys(query).len())
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
            .create_dataset::<esker::Key>("d", one(IndexKind::Composite, versions))
            .unwrap();
        dataset.put_json(br#"{"id":1,"v":"a"}"#).unwrap();
        dataset.put_json(br#"{"id":2,"v":"b"}"#).unwrap();
        // Like an incomplete write: an index entry without its record.
        let index = db.group().tree("d/index/0").unwrap();
        let entry = |value: &str, key: u8| [value.as_bytes(), &[0, 1, 0x81, key]].concat();
        let mut batch = esker_lsm::Batch::new();
        batch.put(index, &entry("a", 2), &[]).unwrap();
        let dangling = db.group().write(&mut batch, Durability::Os).unwrap();
        // Like an error: an entry of a record under another record's key.
        dataset.put_json(br#"{"id":3,"v":"c"}"#).unwrap();
        let mut batch = esker_lsm::Batch::new();
        let data = db.group().tree("d/data").unwrap();
        let stored = db.group().snapshot();
        let stored = stored.get(data, &[0x81, 3], &esker_lsm::Cost::default());
        let stored = stored.unwrap().unwrap().value;
        batch.put(data, &[0x81, 4], &stored).unwrap();
        batch
            .also(esker_lsm::Kind::Put, index, &entry("a", 1), &[])
            .unwrap();
        let written = db.group().write(&mut batch, Durability::Os).unwrap();
        for _ in 0..2 {
            let page = dataset
                .versions_with(path("v"), "a")
                .latest(3)
                .limit(9)
                .read();
            let found: Vec<u64> = page.unwrap().records.iter().map(|r| r.seq()).collect();
            assert!(!found.contains(&dangling) && !found.contains(&written));
            let query = dataset.query().equals(&path("v"), "a");
            assert!(!keys(query).contains(&"2".to_string()));
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
        let def = DatasetDef::new(path("id"), KeyType::Int).index(
            path("a"),
            esker::Index::new(kind).of_type(ty).tokenizer(tokenizer),
        );
        let made = db.create_dataset::<esker::Key>(name, def);
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
    // A switch keeps the tokenizer if the new kind supports it.
    let dataset = db.dataset::<esker::Key>("z").unwrap();
    dataset.put_json(br#"{"id":1,"a":"x"}"#).unwrap();
    let refused = dataset.switch_index(path("a"), embedded).run();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BadInput);
    dataset
        .switch_index(path("a"), IndexKind::Eager)
        .run()
        .unwrap();
    assert_eq!(dataset.def().indexes[0].tokenizer, Tokenizer::Prefix);
    dataset.drop_index(path("a")).unwrap();
    assert_eq!(dataset.def().indexes[0].tokenizer, Tokenizer::Exact);
}

/// Writes without syncs, queries that find obsolete writes, and flushes. Whatever a power cut
/// loses, no surviving write may be taken for obsolete.
fn noted_life(fs: Arc<dyn Fs>, seed: u64, synced: &mut BTreeMap<u64, u64>) -> esker::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let db = open(fs)?;
    let dataset = db.create_dataset::<esker::Key>("d", one(IndexKind::Lazy, 1))?;
    for order in 1..60 {
        let key = rng.u64(0..5);
        let record = format!(
            "{{\"id\":{key},\"v\":\"{}\",\"order\":{order}}}",
            rng.u64(0..3)
        );
        let sync = rng.usize(0..4) == 0;
        let mut batch = dataset.batch();
        batch.put_json(record.as_bytes())?;
        batch
            .durability(if sync {
                Durability::Sync
            } else {
                Durability::Os
            })
            .commit()?;
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
    let json: Json = serde_json::from_slice(record.json()).unwrap();
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
        // In the usual tier a seed cuts at odd calls, or at even ones.
        let step = esker_sim::by_tier(2, 1);
        for cut in (1 + seed % step..=quiet.calls()).step_by(step as usize) {
            let mode = modes[(cut / step + seed) as usize % modes.len()];
            let _doing = Doing(format!("ESKER_SEED={seed}: cut at call {cut}, {mode:?}"));
            let memory = Memory::new();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            faulty.fail_from(cut);
            let mut synced = BTreeMap::new();
            let _ = noted_life(Arc::new(faulty), seed, &mut synced);
            let db = open(Arc::new(memory.power_cut(seed ^ cut, mode))).unwrap();
            let Ok(dataset) = db.dataset::<esker::Key>("d") else {
                assert!(synced.is_empty());
                continue;
            };
            let is_over = over(&db);
            let read = || -> Vec<u64> {
                let scan = dataset.scan(..);
                scan.map(|record| record.unwrap().seq()).collect()
            };
            let records = read();
            for record in dataset.scan(..) {
                let record = record.unwrap();
                assert!(!is_over(record.seq()), "a record that is there is obsolete");
                let key = record.key().to_string().parse().unwrap();
                assert!(
                    synced
                        .remove(&key)
                        .is_none_or(|order| order_of(&record) >= order)
                );
            }
            assert!(synced.is_empty(), "records were lost: {synced:?}");
            // Compactions drop obsolete entries.
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

/// A range filter finds only the newest version of each key, so versions are read without it.
#[test]
fn a_range_filter_hides_no_version() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = one(IndexKind::Filter, 2).index(
        path("w"),
        esker::Index::new(IndexKind::Composite).of_type(Type::String),
    );
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    dataset.put_json(br#"{"id":1,"v":"a","w":"x"}"#).unwrap();
    dataset.put_json(br#"{"id":1,"v":"b","w":"x"}"#).unwrap();
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let of_a = dataset
            .versions_with(path("v"), "a")
            .latest(2)
            .limit(9)
            .read();
        assert_eq!(of_a.unwrap().records.len(), 1);
        let both = dataset.versions_with(path("v"), "a").and(path("w"), "x");
        assert_eq!(both.latest(2).limit(9).read().unwrap().records.len(), 1);
    }
}
