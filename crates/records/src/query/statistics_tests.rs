//! The counts that a query leaves for background maintenance and for the advisor.

use std::path::Path as FsPath;
use std::sync::Arc;

use esker_model::definition::{DatasetDef, Index, IndexKind, Maintenance};
use esker_model::query::Validation;
use esker_model::schema::KeyType;
use esker_sim::memory::Memory;

use crate::telemetry::{Measured, QueryStats};
use crate::{Database, Dataset, Expr, Options};

const RECORDS: u64 = 2000;
/// Of these, those with one value of `b`.
const OF_B: u64 = RECORDS / 100;

fn create(def: DatasetDef) -> Dataset {
    let options = Options::new().fs(Arc::new(Memory::new())).background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    db.create_dataset("d", def).unwrap()
}

/// Records of which `a` has 10 values and `b` has 100.
fn record(id: u64) -> String {
    format!("{{\"id\":{id},\"a\":{},\"b\":{}}}", id % 10, id % 100)
}

fn dataset(maintenance: Maintenance) -> Dataset {
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(maintenance)
        .index("a", Index::composite().int())
        .index("b", Index::composite().int());
    let dataset = create(def);
    for id in 0..RECORDS {
        dataset.put_json(record(id)).unwrap();
    }
    dataset.handle.store.group.flush().unwrap();
    dataset
}

/// The records that a query finds.
fn found(dataset: &Dataset, condition: &str) -> u64 {
    let condition: Expr = condition.parse().unwrap();
    let records = dataset.find(condition).run().unwrap();
    records.inspect(|record| assert!(record.is_ok())).count() as u64
}

/// What background maintenance knows of the queries.
fn measured(dataset: &Dataset) -> Measured {
    dataset.handle.state.usage.maintenance().read()
}

/// How queries used an attribute.
fn used(dataset: &Dataset, attribute: &str) -> Option<QueryStats> {
    let path = attribute.parse().unwrap();
    dataset.usage().attributes.get(&path).copied()
}

#[test]
fn queries_of_several_ranges_or_indexes_are_measured() {
    for (condition, driver) in [
        ("b in (1, 2)", "union"),
        ("b = 1 or a = 2", "union"),
        ("a = 2 and (b = 12 or b = 22)", "any"),
    ] {
        let dataset = dataset(Maintenance::Deferred);
        // Their entries are obsolete.
        for id in [12, 112, 212] {
            let moved = record(id).replace("\"a\":2,\"b\":12", "\"a\":3,\"b\":13");
            dataset.put_json(moved).unwrap();
        }
        let answers = found(&dataset, condition);
        let measured = measured(&dataset);
        assert_eq!(measured.fetching, 1, "{condition}, {driver}: {measured:?}");
        assert!(measured.fetched >= answers, "{condition}: {measured:?}");
        assert_eq!(
            measured.wasted,
            measured.fetched - answers,
            "{condition}: {measured:?}"
        );
    }
}

#[test]
fn an_answer_of_keys_that_reads_records_is_measured_as_one() {
    let dataset = dataset(Maintenance::Validation);
    for id in [3, 103] {
        let moved = record(id).replace("\"b\":3", "\"b\":4");
        dataset.put_json(moved).unwrap();
    }
    let condition: Expr = "b = 3".parse().unwrap();
    let query = dataset.find(condition).validation(Validation::Direct);
    assert_eq!(query.keys().unwrap().count() as u64, OF_B - 2);
    let measured = measured(&dataset);
    assert_eq!((measured.index_only, measured.fetching), (0, 1));
    assert_eq!((measured.fetched, measured.wasted), (OF_B, 2));
}

#[test]
fn an_answer_of_keys_from_entries_is_measured_as_index_only() {
    let dataset = dataset(Maintenance::Validation);
    let condition: Expr = "b in (3, 4)".parse().unwrap();
    assert_eq!(
        dataset.find(condition).keys().unwrap().count() as u64,
        2 * OF_B
    );
    let measured = measured(&dataset);
    assert_eq!((measured.index_only, measured.fetching), (1, 0));
    assert_eq!((measured.entries, measured.fetched), (2 * OF_B, 0));
}

#[test]
fn a_query_counts_once_for_an_attribute() {
    let dataset = dataset(Maintenance::Deferred);
    found(&dataset, "b = 1 or b = 2 or a = 3");
    let of_b = used(&dataset, "b").unwrap();
    assert_eq!((of_b.lookups, of_b.ranges, of_b.scans), (1, 0, 0));
    // A range needs more of an index than a value.
    found(&dataset, "b = 1 or b > 98");
    let of_b = used(&dataset, "b").unwrap();
    assert_eq!((of_b.lookups, of_b.ranges, of_b.scans), (1, 1, 0));
    found(&dataset, "x = 1 or not x = 2");
    let of_x = used(&dataset, "x").unwrap();
    assert_eq!((of_x.lookups, of_x.scans), (1, 1));
}

/// A dataset whose key has the fields `f` and `g`.
fn keyed_by_fields() -> Dataset {
    let def = DatasetDef::new("f,g", KeyType::Fields).index("f", Index::new(IndexKind::None).int());
    let dataset = create(def);
    for id in 0..100 {
        let record = format!("{{\"f\":{},\"g\":{id},\"n\":{}}}", id / 10, id % 3);
        dataset.put_json(record).unwrap();
    }
    dataset
}

#[test]
fn conditions_on_fields_of_the_key_count_as_no_query_of_an_attribute() {
    let dataset = keyed_by_fields();
    assert_eq!(found(&dataset, "f = 3 and g = 31"), 1);
    assert_eq!(used(&dataset, "f"), None);
    assert_eq!(used(&dataset, "g"), None);
    // The other field does not narrow the scan.
    assert_eq!(found(&dataset, "g = 31"), 1);
    let of_g = used(&dataset, "g").unwrap();
    assert_eq!((of_g.lookups, of_g.scans), (1, 1));
}

#[test]
fn the_advice_has_no_index_for_the_order_of_the_records() {
    let def = DatasetDef::new("f,g", KeyType::Fields);
    let dataset = create(def);
    for id in 0..100 {
        let record = format!("{{\"f\":{},\"g\":{id}}}", id / 10);
        dataset.put_json(record).unwrap();
    }
    found(&dataset, "not f = 3");
    found(&dataset, "g = 31");
    assert!(used(&dataset, "f").is_some());
    let advice = dataset.advise(None).unwrap();
    let paths = advice.attributes.iter().map(|a| a.path.to_string());
    assert_eq!(paths.collect::<Vec<_>>(), ["g"]);
}
