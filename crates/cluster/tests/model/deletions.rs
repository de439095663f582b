//! Deletion by condition beside other writers, one situation a test.

use std::ops::ControlFlow;

use esker_cluster::cells::Write;
use esker_cluster::{Dataset, Store};
use esker_model::condition::field;
use esker_model::query::Request;
use parking_lot::Mutex;

use crate::hooked::Hooked;
use crate::hooks::Writes;
use crate::scenes::{dataset, key, options, put, scene};

/// The `n` of a record.
fn n(dataset: &Dataset, id: u32) -> Option<u64> {
    let record = dataset.get(&key(i128::from(id))).unwrap()?;
    let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
    json["n"].as_u64()
}

/// The query of a deletion shows the records as of its start: a record that was replaced since was
/// deleted, though its new version did not match.
#[test]
fn a_deletion_by_condition_leaves_what_was_replaced_since_it_began() {
    const RECORDS: u32 = 520;
    scene(|net| {
        let dataset = dataset(net, 1);
        let mut batch = dataset.batch();
        for id in 0..RECORDS {
            let json = format!(r#"{{"id":{id},"n":1}}"#);
            batch.put_json(json.as_bytes()).unwrap();
        }
        batch.commit().unwrap();
        net.sleep(10_000);
        let mut left = Vec::new();
        let deleted = dataset.delete_where(&Request::of(field("n").eq(1)), &mut |count| {
            if left.is_empty() {
                assert_eq!(count, 512);
                left = (0..RECORDS)
                    .filter(|id| n(&dataset, *id).is_some())
                    .collect();
                net.sleep(10_000);
                let mut batch = dataset.batch();
                batch.delete(&key(i128::from(left[0]))).unwrap();
                batch.commit().unwrap();
                put(&dataset, left[1], 1);
                for id in &left[2..] {
                    put(&dataset, *id, 2);
                }
            }
            ControlFlow::Continue(())
        });
        assert_eq!(left.len(), 8);
        let now: Vec<Option<u64>> = left.iter().map(|id| n(&dataset, *id)).collect();
        assert_eq!(now, [vec![None; 2], vec![Some(2); 6]].concat());
        // One was deleted by another writer, one was replaced and still matched.
        assert_eq!(deleted.unwrap(), 513);
        for id in (0..RECORDS).filter(|id| !left.contains(id)) {
            assert_eq!(n(&dataset, id), None);
        }
    });
}

/// A record of a later write is not among those that matched when the deletion began, unless it
/// replaces one of them.
#[test]
fn a_deletion_by_condition_leaves_what_did_not_match_when_it_began() {
    const RECORDS: u32 = 520;
    scene(|net| {
        let dataset = dataset(net, 1);
        let mut batch = dataset.batch();
        for id in 0..RECORDS {
            let json = format!(r#"{{"id":{id},"n":1}}"#);
            batch.put_json(json.as_bytes()).unwrap();
        }
        batch.put_json(br#"{"id":1000,"n":2}"#).unwrap();
        batch.commit().unwrap();
        net.sleep(10_000);
        let mut turns = 0;
        let deleted = dataset.delete_where(&Request::of(field("n").eq(1)), &mut |_| {
            turns += 1;
            if turns == 1 {
                let left = (0..RECORDS).find(|id| n(&dataset, *id).is_some());
                net.sleep(10_000);
                put(&dataset, left.unwrap(), 1);
                // One that did not match, and a new one.
                put(&dataset, 1000, 1);
                put(&dataset, 1001, 1);
            }
            ControlFlow::Continue(())
        });
        assert_eq!(deleted.unwrap(), u64::from(RECORDS));
        assert_eq!((0..RECORDS).find(|id| n(&dataset, *id).is_some()), None);
        assert_eq!([n(&dataset, 1000), n(&dataset, 1001)], [Some(1); 2]);
    });
}

/// A write that begins after a deletion has read the newest versions is later than the deletion.
#[test]
fn a_put_that_begins_before_a_deletion_is_sent_counts() {
    scene(|net| {
        let dataset = dataset(net, 1);
        for id in 1..=2 {
            put(&dataset, id, 1);
        }
        net.sleep(10_000);
        let mut other = Some(dataset.clone());
        let on_writes = Box::new(move |writes: &[Write]| {
            if writes.iter().any(|write| !write.table.contains("index"))
                && let Some(other) = other.take()
            {
                put(&other, 1, 2);
            }
            Vec::new()
        });
        let cells = Hooked::new(net.clone(), Writes(Mutex::new(on_writes)));
        let store = Store::open(cells, false, options(net, 0)).unwrap();
        let deleting = store.dataset("d").unwrap();
        let ones = Request::of(field("n").eq(1));
        let deleted = deleting.delete_where(&ones, &mut |_| ControlFlow::Continue(()));
        assert_eq!(deleted.unwrap(), 2);
        assert_eq!([n(&dataset, 1), n(&dataset, 2)], [Some(2), None]);
    });
}
