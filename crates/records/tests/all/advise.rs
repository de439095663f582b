//! The advisor: its measurements of the data, and its counts of operations.

use std::sync::Arc;

use crate::common::{DIR, TextQuery, open, path};
use esker::advise::{Advice, AdvisedChange, AttributeAdvice, Mix, MixSource};
use esker::fs::Fs;
use esker::{Database, Dataset, DatasetDef, Durability, ErrorKind, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;

const RECORDS: i64 = 3000;

const MIX: Mix = Mix {
    puts: 85.0,
    gets: 5.0,
    lookups: 5.0,
    ranges: 5.0,
    limit: Some(10),
};

fn def() -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("at"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
        )
        .index(
            path("user"),
            esker::Index::new(IndexKind::Embedded).of_type(Type::String),
        )
        .index(
            path("rare"),
            esker::Index::new(IndexKind::None).of_type(Type::Int),
        )
}

fn body(id: i64) -> String {
    // The user of a record does not depend on its key.
    let user = (id.wrapping_mul(2_654_435_761) >> 7) % 97;
    let rare = if id % 10 == 0 { ",\"rare\":1" } else { "" };
    format!(
        "{{\"id\":{id},\"at\":{},\"user\":\"u{user}\",\"free\":{}{rare}}}",
        1000 + id * 3,
        id % 7
    )
}

fn fill(dataset: &Dataset, ids: std::ops::Range<i64>) {
    let mut batch = dataset.batch();
    for id in ids {
        batch.put_json(body(id).as_bytes()).unwrap();
    }
    batch.durability(Durability::Os).commit().unwrap();
}

fn of<'a>(advice: &'a Advice, name: &str) -> &'a AttributeAdvice {
    let found = advice.attributes.iter().find(|a| a.path == path(name));
    found.unwrap_or_else(|| panic!("no advice on {name}: {advice:?}"))
}

fn store(fs: &Memory) -> (Database, Dataset) {
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    (db, dataset)
}

/// The expected measurements, for records in memory and in tables.
fn assert_measured(dataset: &Dataset) {
    let advice = dataset.advise(Some(&MIX)).unwrap();
    assert_eq!(advice.source, MixSource::Given);
    assert_eq!(advice.records, RECORDS as u64);
    let at = of(&advice, "at");
    assert!(at.pruned.unwrap() > 0.99, "{at:?}");
    assert_eq!(at.distinct, RECORDS as u64);
    assert_eq!(
        (at.kind, at.change),
        (IndexKind::Embedded, AdvisedChange::Switch)
    );
    let user = of(&advice, "user");
    assert!(user.pruned.unwrap() < 0.5, "{user:?}");
    assert_eq!(user.distinct, 97);
    assert!(user.top_share < 0.05, "{user:?}");
    let rare = of(&advice, "rare");
    assert_eq!((rare.distinct, rare.top_share), (1, 1.0));
    assert!((250..=350).contains(&rare.records), "{rare:?}");
}

#[test]
fn the_advisor_knows_whether_an_attribute_grows_with_the_key() {
    let fs = Memory::new();
    let (db, dataset) = store(&fs);
    fill(&dataset, 0..RECORDS);
    assert_measured(&dataset);
    db.flush().unwrap();
    db.compact(None).unwrap();
    assert_measured(&dataset);
}

#[test]
fn an_empty_dataset_keeps_what_it_has() {
    let (_db, dataset) = store(&Memory::new());
    let advice = dataset.advise(None).unwrap();
    assert_eq!((advice.records, advice.source), (0, MixSource::Assumed));
    assert_eq!(advice.attributes.len(), 3);
    for attribute in &advice.attributes {
        assert_eq!(attribute.change, AdvisedChange::Keep, "{attribute:?}");
        assert_eq!(attribute.pruned, None);
    }
}

#[test]
fn a_mix_must_make_sense() {
    let (_db, dataset) = store(&Memory::new());
    for mix in [
        Mix { puts: -1.0, ..MIX },
        Mix {
            gets: f64::NAN,
            ..MIX
        },
        Mix {
            puts: 0.0,
            gets: 0.0,
            lookups: 0.0,
            ranges: 0.0,
            limit: None,
        },
    ] {
        let error = dataset.advise(Some(&mix)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput);
    }
}

/// Runs each sort of operation at least once.
fn use_it(dataset: &Dataset) {
    for id in 0..5 {
        let key = dataset.parse_key(&id.to_string()).unwrap();
        dataset.get(&key).unwrap();
    }
    for limit in [Some(10), Some(30), None] {
        let query = dataset.query().equals(&path("user"), "u5").limit(limit);
        query
            .run()
            .unwrap()
            .for_each(|record| drop(record.unwrap()));
    }
    let range = dataset.query().between(&path("at"), "1000", "1029");
    assert_eq!(range.run().unwrap().count(), 10);
    let free = dataset.query().equals(&path("free"), "3").limit(Some(2));
    assert_eq!(free.run().unwrap().count(), 2);
    assert_eq!(
        dataset.query().equals(&path("rare"), "1").count().unwrap(),
        10
    );
}

fn assert_counted(dataset: &Dataset, puts: u64) {
    let counts = dataset.usage();
    assert_eq!((counts.puts, counts.deletes, counts.gets), (puts, 1, 5));
    let attribute = |name: &str| counts.attributes[&path(name)];
    let user = attribute("user");
    assert_eq!((user.lookups, user.ranges, user.scans), (3, 0, 0));
    assert_eq!((user.limited, user.limits), (2, 40));
    let at = attribute("at");
    assert_eq!((at.lookups, at.ranges, at.range_rows), (0, 1, 10));
    assert_eq!((attribute("free").lookups, attribute("free").scans), (1, 1));
    assert_eq!((attribute("rare").lookups, attribute("rare").scans), (1, 1));
}

#[test]
fn what_is_counted_is_kept_by_a_handle_that_wrote() {
    for closed in [true, false] {
        let fs = Memory::new();
        let (db, dataset) = store(&fs);
        fill(&dataset, 0..100);
        let key = dataset.parse_key("99").unwrap();
        assert!(dataset.delete(&key).unwrap().is_some());
        use_it(&dataset);
        assert_counted(&dataset, 100);
        drop(dataset);
        if closed {
            db.close().unwrap();
        } else {
            drop(db);
        }
        let names = |fs: &Memory| fs.list(DIR.as_ref()).unwrap();
        let before = names(&fs);
        // Operations of a reading handle are not counted.
        let db = open(Arc::new(fs.clone())).unwrap();
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        assert_counted(&dataset, 100);
        dataset.query().equals(&path("user"), "u5").count().unwrap();
        assert_eq!(dataset.usage().attributes[&path("user")].lookups, 4);
        drop((db, dataset));
        assert_eq!(names(&fs), before);
        let db = open(Arc::new(fs.clone())).unwrap();
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        assert_counted(&dataset, 100);
        fill(&dataset, 0..1);
        drop((db, dataset));
        let db = open(Arc::new(fs.clone())).unwrap();
        assert_counted(&db.dataset::<esker::Key>("d").unwrap(), 101);
    }
}

#[test]
fn what_was_counted_is_what_is_advised_for() {
    let (_db, dataset) = store(&Memory::new());
    fill(&dataset, 0..RECORDS);
    assert_eq!(dataset.advise(None).unwrap().source, MixSource::Assumed);
    for _ in 0..300 {
        let free = dataset.query().equals(&path("free"), "3").limit(Some(2));
        assert_eq!(free.run().unwrap().count(), 2);
    }
    let advice = dataset.advise(None).unwrap();
    assert_eq!(advice.source, MixSource::Counted);
    // The use had no queries for these.
    let at = of(&advice, "at");
    assert_eq!((at.kind, at.change), (IndexKind::None, AdvisedChange::Drop));
    assert_eq!(of(&advice, "rare").change, AdvisedChange::Keep);
    // Queries for this one need a scan.
    let free = of(&advice, "free");
    assert_eq!((free.now, free.change), (None, AdvisedChange::Add));
    assert_ne!(free.kind, IndexKind::None);
    assert!((free.workload.lookups - 300.0 / 3300.0).abs() < 1e-9);
    assert_eq!((free.workload.limited, free.workload.limit), (1.0, 2.0));
    assert!(free.distinct == 7, "{free:?}");
}

#[test]
fn a_file_of_counters_that_cannot_be_read_is_nothing() {
    for content in [
        "",
        "{",
        "[]",
        "{\"d\":{\"puts\":-3,\"attributes\":{\"\":1,\"user\":7}}}",
    ] {
        let fs = Memory::new();
        let (db, dataset) = store(&fs);
        fill(&dataset, 0..10);
        drop(dataset);
        db.close().unwrap();
        let file = fs.create(&std::path::Path::new(DIR).join("USAGE")).unwrap();
        file.append(content.as_bytes()).unwrap();
        drop(file);
        let db = open(Arc::new(fs)).unwrap();
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        assert_eq!(
            (dataset.usage().puts, dataset.usage().gets),
            (0, 0),
            "{content}"
        );
        assert_eq!(dataset.advise(None).unwrap().source, MixSource::Assumed);
    }
}

#[test]
fn a_dropped_dataset_leaves_no_counters() {
    let fs = Memory::new();
    let (db, dataset) = store(&fs);
    fill(&dataset, 0..10);
    drop(dataset);
    db.close().unwrap();
    let db = open(Arc::new(fs.clone())).unwrap();
    db.drop_dataset("d").unwrap();
    db.create_dataset::<esker::Key>("d", def()).unwrap();
    drop(db);
    let db = open(Arc::new(fs)).unwrap();
    assert_eq!(db.dataset::<esker::Key>("d").unwrap().usage().puts, 0);
}

#[test]
fn paths_that_are_made_up_do_not_fill_the_memory() {
    let (_db, dataset) = store(&Memory::new());
    fill(&dataset, 0..10);
    for n in 0..300 {
        let made_up = path(&format!("p{n}"));
        assert_eq!(dataset.query().equals(&made_up, "1").count().unwrap(), 0);
    }
    let usage = dataset.usage();
    assert_eq!(usage.attributes.len(), 128);
    // There is no advice about a field that no record has.
    assert_eq!(dataset.advise(None).unwrap().attributes.len(), 3);
}
