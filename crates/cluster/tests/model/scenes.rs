//! What must hold in situations that random runs rarely meet, one test each.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_cluster::cells::{Cells, Write};
use esker_cluster::{Dataset, Error, Options, RepairOptions, Repaired, Store};
use esker_model::Key;
use esker_model::condition::field;
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::{Order, Request};
use esker_model::record::Update;
use esker_model::schema::{KeyType, Value};
use parking_lot::Mutex;

use crate::hooked::Hooked;
use crate::hooks::{AfterScan, Counted, OnWrites, Superseded, Writes};
use crate::net::{Net, Skewed, Trouble};

pub(crate) const MINUTE: u64 = 60_000;

/// A store that works.
pub(crate) const CALM: Trouble = Trouble {
    seed: 1,
    bad: 0,
    pauses: 0,
    mends: true,
    coarse: 1,
};

/// Runs a test as the one client of a store that works.
pub(crate) fn scene(test: impl FnOnce(&Arc<Net>) + Send) {
    let net = Net::new(CALM, 1);
    net.run(vec![Box::new(|| test(&net))]);
}

pub(crate) fn options(net: &Arc<Net>, ahead: i64) -> Options {
    let net = net.clone();
    Options {
        clocks: Arc::new(Skewed { net, ahead }),
        is_reader: false,
        split_at: 1_000,
        intersect_from: 1,
        remove_from: 1,
    }
}

/// The dataset `d`, of which `versions` are kept; created if need be.
pub(crate) fn dataset(net: &Arc<Net>, versions: u32) -> Dataset {
    let store = Store::open(net.clone(), true, options(net, 0)).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .versions(versions)
        .index("n", Index::composite().int());
    match store.create_dataset("d", &def) {
        Err(Error::Exists(_)) => store.dataset("d").unwrap(),
        created => created.unwrap(),
    }
}

/// The same dataset in another process, whose writes a test sees.
fn hooked(net: &Arc<Net>, on_writes: OnWrites) -> Dataset {
    let cells = Hooked::new(net.clone(), Writes(Mutex::new(on_writes)));
    let store = Store::open(cells, false, options(net, 0)).unwrap();
    store.dataset("d").unwrap()
}

pub(crate) fn key(number: i128) -> Key {
    Key::new(KeyType::Int, &Value::Int(number)).unwrap()
}

pub(crate) fn put(dataset: &Dataset, id: u32, n: u32) {
    let mut batch = dataset.batch();
    let json = format!(r#"{{"id":{id},"n":{n}}}"#);
    batch.put_json(json.as_bytes()).unwrap();
    batch.commit().unwrap();
}

pub(crate) fn repair(dataset: &Dataset, full: bool) -> esker_cluster::Result<Repaired> {
    let rows_per_second = None;
    let options = RepairOptions {
        full,
        rows_per_second,
    };
    dataset.repair(options, &mut |_| ControlFlow::Continue(()))
}

/// The rest of an answer: `id` and `n`.
pub(crate) fn rest(answer: &mut esker_cluster::Answer) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    while let Some(record) = answer.next_record().unwrap() {
        let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
        found.push((json["id"].as_u64().unwrap(), json["n"].as_u64().unwrap()));
    }
    found
}

/// True for the removal of a version.
fn removes(write: &Write) -> bool {
    write.value.is_none() && !write.table.contains("index")
}

/// A repair removes versions one by one. It was stopped when the version that a paused query sees
/// was removed, and an older one was not: the query showed that one.
#[test]
fn a_query_that_is_paused_does_not_show_a_version_that_was_hidden_when_it_began() {
    scene(|net| {
        let dataset = dataset(net, 1);
        for n in 1..=2 {
            put(&dataset, 1, n);
        }
        let all = || Request::of(field("n").ge(0));
        let mut unordered = Request::default();
        unordered.order = Order::Any;
        let mut paused = vec![
            dataset.find(&all()).unwrap(),
            dataset.find(&Request::default()).unwrap(),
            dataset.find(&unordered).unwrap(),
            dataset.find(&Request::of(field("id").eq(1))).unwrap(),
        ];
        let mut scanned = dataset.scan(all_keys(), false).unwrap();
        net.sleep(10_000);
        put(&dataset, 1, 3);
        // For a while, the queries see what was current when they began, whatever a repair does.
        let _ = repair(&dataset, false);
        let during: Vec<_> = dataset.versions(&key(1), None, 9).unwrap();
        assert_eq!(during.len(), 1);
        net.sleep(2 * MINUTE);
        let older = Box::new(|writes: &[Write]| {
            let removed = (0..writes.len()).filter(|at| removes(&writes[*at]));
            removed.skip(1).collect()
        });
        assert!(repair(&hooked(net, older), false).is_err());
        for answer in &mut paused {
            assert_eq!(rest(answer), []);
        }
        assert!(scanned.next_record().unwrap().is_none());
        assert_eq!(rest(&mut dataset.find(&all()).unwrap()), [(1, 3)]);
    });
}

/// All keys.
fn all_keys() -> (std::ops::Bound<Key>, std::ops::Bound<Key>) {
    (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
}

/// The version that was current when a query began stays for a minute, so the query shows it.
#[test]
fn a_query_shows_what_was_current_when_it_began_despite_a_repair() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 1);
        let mut running = dataset.find(&Request::of(field("n").eq(1))).unwrap();
        net.sleep(10_000);
        put(&dataset, 1, 2);
        net.sleep(10_000);
        assert_eq!(repair(&dataset, false).unwrap().obsolete, 0);
        assert_eq!(rest(&mut running), [(1, 1)]);
        net.sleep(2 * MINUTE);
        assert_eq!(repair(&dataset, false).unwrap().obsolete, 1);
    });
}

/// Pages of queries by key, and counts behind a page, began at the first answer.
#[test]
fn pages_of_keys_and_counts_begin_behind_the_token() {
    scene(|net| {
        let dataset = dataset(net, 1);
        for id in 1..=5 {
            put(&dataset, id, 7);
            net.sleep(50);
        }
        let one_of = |ids: std::ops::RangeInclusive<i64>| {
            let all = ids.map(|id| field("id").eq(id));
            all.reduce(|a, b| a | b).unwrap()
        };
        for order in [Order::Newest, Order::Oldest] {
            for condition in [
                one_of(1..=5),
                field("n").eq(7),
                field("n").ge(1) & one_of(1..=5),
            ] {
                let mut request = Request::of(condition.clone());
                (request.order, request.limit) = (order.clone(), Some(2));
                let mut seen = Vec::new();
                loop {
                    let mut page = dataset.find(&request).unwrap();
                    let found = rest(&mut page);
                    let mut counted = request.clone();
                    counted.limit = None;
                    let behind = 5 - seen.len() as u64;
                    assert_eq!(dataset.count(&counted).unwrap().0, behind, "{condition}");
                    if found.is_empty() {
                        break;
                    }
                    seen.extend(found);
                    request.after = page.token();
                }
                seen.sort_unstable();
                assert_eq!(seen, (1..=5).map(|id| (id, 7)).collect::<Vec<_>>());
            }
        }
    });
}

/// Of a version that was removed, what was current at its time is not known: an older version that
/// still lies there was shown.
#[test]
fn a_record_of_a_time_is_one_that_is_kept_or_refused() {
    scene(|net| {
        let dataset = dataset(net, 2);
        let mut times = Vec::new();
        for n in 1..=4 {
            put(&dataset, 1, n);
            times.push(dataset.get(&key(1)).unwrap().unwrap().seq());
            net.sleep(1_000);
        }
        let at = |until: u64| dataset.versions(&key(1), Some(until), 2);
        assert_eq!(at(times[3]).unwrap().len(), 2);
        assert_eq!(at(times[2]).unwrap().len(), 1);
        for until in &times[..2] {
            let refused = at(*until).unwrap_err();
            assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        }
        assert_eq!(dataset.versions(&key(2), Some(times[0]), 1).unwrap(), []);
    });
}

/// The clock of a process that only reads was not compared: one that was behind missed records.
#[test]
fn a_reader_whose_clock_is_off_is_refused() {
    scene(|net| {
        put(&dataset(net, 1), 1, 1);
        for ahead in [-1_900, 1_900, -2_100, 2_100, -60_000] {
            let options = Options {
                is_reader: true,
                ..options(net, ahead)
            };
            let store = Store::open(net.clone(), false, options).unwrap();
            let dataset = store.dataset("d").unwrap();
            let found = dataset.find(&Request::of(field("n").eq(1)));
            if i64::abs(ahead) <= 2_000 {
                assert_eq!(rest(&mut found.unwrap()), [(1, 1)])
            } else {
                assert!(matches!(found, Err(Error::ClockOff { .. })), "{ahead}")
            }
        }
    });
}

/// A writer dies between its entry and its record, and its put arrives late. A reader was paused
/// after it had looked for the record, and deleted it when a repair had removed, on its account,
/// the version before: the record was lost.
#[test]
fn removing_a_version_of_a_dead_writer_loses_no_version_that_it_hid() {
    for moment in 0..3 {
        scene(|net| {
            let dataset = dataset(net, 1);
            put(&dataset, 1, 1);
            net.sleep(1_000);
            // The writer dies: its entry is there, its record is not.
            let lost = Arc::new(Mutex::new(None));
            let keep = lost.clone();
            let dying = Box::new(move |writes: &[Write]| {
                let data = writes
                    .iter()
                    .position(|write| !write.table.contains("index"));
                let data = data.filter(|at| writes[*at].value.is_some());
                *keep.lock() = data.map(|at| writes[at].clone());
                data.into_iter().collect()
            });
            let mut batch = hooked(net, dying).batch();
            batch.put_json(br#"{"id":1,"n":2}"#).unwrap();
            assert!(batch.commit().is_err());
            let late = lost.lock().take().unwrap();
            net.sleep(2 * MINUTE);
            let other = dataset.clone();
            let net_of = net.clone();
            let race = move || {
                net_of.arrive(0, &late);
                // Reads show it from now on.
                for _ in 0..4 {
                    let _ = other.get(&key(1));
                }
                let done = repair(&other, false).unwrap();
                let _ = rest(&mut other.find(&Request::of(field("n").ge(0))).unwrap());
                net_of.sleep(2 * MINUTE);
                done
            };
            let mut race = Some(race);
            let mut calls = 0;
            let paused = Box::new(move |writes: &[Write]| {
                // The calls of a removal: the deletion of the version, that of its entry.
                calls += usize::from(!writes.is_empty());
                if calls == moment + 1
                    && let Some(race) = race.take()
                {
                    race();
                }
                Vec::new()
            });
            let reader = hooked(net, paused);
            let found = rest(&mut reader.find(&Request::of(field("n").eq(2))).unwrap());
            assert_eq!(found, []);
            let now = dataset.get(&key(1)).unwrap().unwrap();
            let n: serde_json::Value = serde_json::from_slice(now.json()).unwrap();
            let n = n["n"].as_i64().unwrap();
            // Whichever it is, its index has it.
            assert_eq!(
                rest(&mut dataset.find(&Request::of(field("n").eq(n))).unwrap()).len(),
                1
            );
            assert!(repair(&dataset, true).unwrap().complete);
            let checked = dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(checked.errors, [""; 0]);
        });
    }
}

/// A put whose writer dies before the record arrives, which it does two minutes later.
fn arrives_late(net: &Arc<Net>, dataset: &Dataset, json: &[u8]) -> Write {
    let lost = Arc::new(Mutex::new(None));
    let keep = lost.clone();
    let dying = Box::new(move |writes: &[Write]| {
        let is_record = |write: &Write| !write.table.contains("index") && write.value.is_some();
        let data = writes.iter().position(is_record);
        *keep.lock() = data.map(|at| writes[at].clone());
        data.into_iter().collect()
    });
    let mut batch = hooked(net, dying).batch();
    batch.put_json(json).unwrap();
    assert!(batch.commit().is_err());
    let late = lost.lock().take().unwrap();
    net.sleep(2 * MINUTE);
    net.arrive(0, &late);
    for _ in 0..4 {
        let _ = dataset.get(&key(1));
    }
    net.sleep(2 * MINUTE);
    late
}

/// Deletes a version for good.
fn deletes(net: &Arc<Net>, version: &Write) -> Box<dyn FnOnce() + Send> {
    let (net, mut deletion) = (net.clone(), version.clone());
    deletion.value = None;
    Box::new(move || {
        let outcomes = Cells::write(&*net, vec![deletion]);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    })
}

/// A repair had read the version of a dead writer, which arrived late. A reader that had looked
/// for it before deleted it, and withdrew its announcement before the repair read announcements:
/// the repair removed what the version had hidden, and the record was lost.
#[test]
fn a_repair_keeps_what_was_hidden_by_a_version_that_is_deleted_meanwhile() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 1);
        net.sleep(1_000);
        let late = arrives_late(net, &dataset, br#"{"id":1,"n":2}"#);
        let cells = Hooked::new(net.clone(), AfterScan::new(deletes(net, &late)));
        let store = Store::open(cells, false, options(net, 0)).unwrap();
        let repaired = repair(&store.dataset("d").unwrap(), false).unwrap();
        assert_eq!(repaired.obsolete, 0);
        let now = dataset.get(&key(1)).unwrap().unwrap();
        assert_eq!(now.json(), br#"{"id":1,"n":1}"#);
        assert!(repair(&dataset, true).unwrap().complete);
        let checked = dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(checked.errors, [""; 0]);
    });
}

/// The same with a query in the place of the repair: it removed the entry of the record that the
/// version had hidden, so that queries did not find the record any more.
#[test]
fn a_query_keeps_the_entry_that_was_hidden_by_a_version_that_is_deleted_meanwhile() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 1);
        net.sleep(1_000);
        let late = arrives_late(net, &dataset, br#"{"id":1,"n":2}"#);
        let cells = Hooked::new(net.clone(), AfterScan::at_once(deletes(net, &late)));
        let store = Store::open(cells, false, options(net, 0)).unwrap();
        let one = Request::of(field("n").eq(1));
        let reader = store.dataset("d").unwrap();
        assert_eq!(rest(&mut reader.find(&one).unwrap()), []);
        assert_eq!(rest(&mut dataset.find(&one).unwrap()), [(1, 1)]);
        let checked = dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(checked.errors, [""; 0]);
    });
}

/// A head of long ago was written again when its version and the deletion after it had been
/// removed for good, and the record came back.
#[test]
fn an_insert_after_a_deletion_that_is_forgotten_finds_no_record() {
    scene(|net| {
        let dataset = dataset(net, 1);
        let insert = |n: u32| {
            let mut batch = dataset.batch();
            let json = format!(r#"{{"id":1,"n":{n}}}"#);
            batch.insert_json(json.as_bytes()).unwrap();
            batch.commit()
        };
        insert(1).unwrap();
        assert!(matches!(insert(2), Err(Error::Exists(_))));
        let mut batch = dataset.batch();
        batch.delete(&key(1)).unwrap();
        batch.commit().unwrap();
        for _ in 0..2 {
            net.sleep(12 * 24 * 60 * MINUTE);
            repair(&dataset, false).unwrap();
            net.compact(net.now() - 24 * 60 * MINUTE);
        }
        assert_eq!(net.rows(false), []);
        insert(3).unwrap();
        assert_eq!(
            rest(&mut dataset.find(&Request::of(field("n").ge(0))).unwrap()),
            [(1, 3)]
        );
    });
}

/// The servers refused it again and again until the write's deadline had passed.
#[test]
fn a_record_that_the_servers_do_not_take_is_refused_at_once() {
    scene(|net| {
        let dataset = dataset(net, 1);
        for (bytes, is_taken) in [(7 << 20, true), (8 << 20, false)] {
            let text = "x".repeat(bytes);
            let mut batch = dataset.batch();
            let json = format!(r#"{{"id":1,"text":"{text}"}}"#);
            let put = batch.put_json(json.as_bytes());
            assert!(put.is_ok() == is_taken, "{bytes}: {put:?}");
            if let Err(error) = put {
                assert!(matches!(error, Error::BadInput(_)), "{error:?}");
            }
        }
    });
}

/// A lookup of several records makes two calls, for the entries of the value and for the records.
#[test]
fn a_lookup_makes_two_calls() {
    scene(|net| {
        let _ = dataset(net, 1);
        let cells = Hooked::new(net.clone(), Counted::default());
        let store = Store::open(cells.clone(), false, options(net, 0)).unwrap();
        let dataset = store.dataset("d").unwrap();
        for id in 0..10 {
            put(&dataset, id, 7);
        }
        // The first one also reads the catalog, or compares clocks.
        for calls in [None, Some(2)] {
            let before = cells.hook.calls.load(Ordering::Relaxed);
            let found = rest(&mut dataset.find(&Request::of(field("n").eq(7))).unwrap());
            assert_eq!(found.len(), 10);
            let made = cells.hook.calls.load(Ordering::Relaxed) - before;
            assert!(calls.is_none_or(|calls| calls == made), "{made} calls");
        }
    });
}

/// Adds one to `n` of key 1.
fn add_one(dataset: &Dataset) {
    let done = dataset.update::<Error>(&key(1), &mut |record| {
        let json: serde_json::Value = serde_json::from_slice(record.unwrap().json()).unwrap();
        let n = json["n"].as_u64().unwrap() + 1;
        Ok(Update::Put(format!(r#"{{"id":1,"n":{n}}}"#).into_bytes()))
    });
    done.unwrap();
}

/// An update had no answer to the change of its key's head, and another one had followed before it
/// looked: it was made once more.
#[test]
fn an_update_that_another_follows_is_made_once() {
    for versions in [1, 2] {
        scene(|net| {
            let dataset = dataset(net, versions);
            put(&dataset, 1, 1);
            let other = dataset.clone();
            let then = Box::new(move || add_one(&other));
            let cells = Hooked::new(net.clone(), Superseded::new("_heads", 0, then));
            let store = Store::open(cells, false, options(net, 0)).unwrap();
            add_one(&store.dataset("d").unwrap());
            let now = dataset.get(&key(1)).unwrap().unwrap();
            assert_eq!(now.json(), br#"{"id":1,"n":3}"#);
        });
    }
}

#[test]
fn answers_in_an_order_of_fields_or_keys_have_pages_offsets_and_projections() {
    scene(|net| {
        let dataset = dataset(net, 1);
        for id in 0..40 {
            put(&dataset, id, id * 7 % 10);
        }
        for id in [3, 11] {
            put(&dataset, id, 4);
        }
        let n = |id: u64| {
            if [3, 11].contains(&id) {
                4
            } else {
                id * 7 % 10
            }
        };
        for (condition, meets) in [
            (None, (|_| true) as fn(u64) -> bool),
            (Some(field("n").ge(3)), |n| n >= 3),
            (Some(field("id").ge(0) & field("n").lt(8)), |n| n < 8),
        ] {
            let mut right: Vec<(u64, u64)> = (0..40).map(|id| (id, n(id))).collect();
            right.retain(|(_, n)| meets(*n));
            let by_key = right.clone();
            right.sort_by_key(|(id, n)| (std::cmp::Reverse(*n), *id));
            for (order, right) in [("n:desc", &right), ("key", &by_key)] {
                let mut request = Request::default();
                request.condition.clone_from(&condition);
                request.order = order.parse().unwrap();
                assert_eq!(rest(&mut dataset.find(&request).unwrap()), *right);
                request.offset = 2;
                request.limit = Some(5);
                assert_eq!(rest(&mut dataset.find(&request).unwrap()), right[2..7]);
                assert_eq!(dataset.count(&request).unwrap().0, 5);
                request.keys_only = true;
                let mut keys = dataset.find(&request).unwrap();
                for (id, _) in &right[2..7] {
                    let found = keys.next_key().unwrap().unwrap();
                    assert_eq!(found.to_string(), id.to_string());
                }
                assert!(keys.next_key().unwrap().is_none());
                request.keys_only = false;
                // The offset is that of the first page.
                request.limit = Some(7);
                let mut found = Vec::new();
                loop {
                    let mut page = dataset.find(&request).unwrap();
                    let rows = rest(&mut page);
                    if rows.is_empty() {
                        break;
                    }
                    found.extend(rows);
                    request.after = page.token();
                    let left = (right.len() - 2 - found.len()).min(7);
                    assert_eq!(dataset.count(&request).unwrap().0, left as u64);
                }
                assert_eq!(found, right[2..]);
                (request.offset, request.after) = (0, None);
                request.select = vec!["n".parse().unwrap()];
                let first = dataset.find(&request).unwrap().next_record();
                let json = format!("{{\"n\":{}}}", right[0].1);
                assert_eq!(first.unwrap().unwrap().json(), json.as_bytes());
            }
        }
        let mut wrong = Request::default();
        wrong.order = "n".parse().unwrap();
        wrong.after = Some("7".parse().unwrap());
        assert!(matches!(dataset.find(&wrong), Err(Error::BadInput(_))));
    });
}

#[test]
fn an_answer_in_an_order_of_fields_may_be_larger_than_the_memory_it_is_sorted_in() {
    const RECORDS: u64 = 72;
    scene(|net| {
        let dataset = dataset(net, 1);
        // Together more than 64 MiB.
        let text = "x".repeat(1 << 20);
        let n = |id: u64| id * 7 % 10;
        for id in 0..RECORDS {
            let body = format!("{{\"id\":{id},\"n\":{},\"text\":\"{text}\"}}", n(id));
            let mut batch = dataset.batch();
            batch.put_json(body.as_bytes()).unwrap();
            batch.commit().unwrap();
        }
        let mut right: Vec<(u64, u64)> = (0..RECORDS).map(|id| (id, n(id))).collect();
        right.sort_by_key(|(id, n)| (*n, *id));
        let mut request = Request::default();
        request.order = "n".parse().unwrap();
        let mut found = Vec::new();
        let mut answer = dataset.find(&request).unwrap();
        while let Some(record) = answer.next_record().unwrap() {
            let id = record.key().to_string().parse().unwrap();
            found.push((id, n(id)));
            if found.len() == 10 {
                // Newer than the query by more than clocks may differ: no pass shows it.
                net.sleep(10_000);
                put(&dataset, RECORDS as u32, 9);
            }
        }
        assert_eq!(found, right);
        let keys = answer.explained().keys;
        assert!(keys >= 2 * RECORDS, "one pass was enough: {keys}");
        assert_eq!(answer.explained().answers, RECORDS);
    });
}

#[test]
fn a_record_that_is_updated_while_its_answer_is_read_comes_once() {
    const RECORDS: u32 = 72;
    for order in ["oldest", "n"] {
        scene(|net| {
            let dataset = dataset(net, 1);
            // Together more than 64 MiB, so that the answer is read in several passes.
            let text = "x".repeat(1 << 20);
            for id in 0..RECORDS {
                let body = format!("{{\"id\":{id},\"n\":{id},\"text\":\"{text}\"}}");
                let mut batch = dataset.batch();
                batch.put_json(body.as_bytes()).unwrap();
                batch.commit().unwrap();
            }
            let mut request = Request::default();
            request.order = order.parse().unwrap();
            let mut answer = dataset.find(&request).unwrap();
            let first = answer.next_record().unwrap().unwrap();
            assert_eq!(first.key().to_string(), "0");
            put(&dataset, 0, 1_000);
            let rest = rest(&mut answer);
            assert_eq!(rest.len() as u32, RECORDS - 1, "{order}");
            assert!(rest.iter().all(|(id, _)| *id != 0), "{order}");
            let keys = answer.explained().keys;
            assert!(
                keys >= u64::from(2 * RECORDS),
                "one pass was enough: {keys}"
            );
        });
    }
}

/// An index of a cluster is by one field: a compound index is refused, and a copy is without.
#[test]
fn compound_indexes_are_refused_and_a_copy_is_without() {
    scene(|net| {
        let store = Store::open(net.clone(), true, options(net, 0)).unwrap();
        let index = Index::composite().compound();
        let def = DatasetDef::new("id", KeyType::Int)
            .index("v", Index::none().int())
            .index("w", Index::none().int())
            .index("v,w", index);
        let refused = store.create_dataset("u", &def).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        assert!(
            refused.to_string().contains("no compound indexes"),
            "{refused}"
        );
        let (adapted, notes) = esker_cluster::adapted(&def);
        assert_eq!((notes.len(), adapted.indexes.len()), (1, 2), "{notes:?}");
        let dataset = store.create_dataset("u", &adapted).unwrap();
        let path = "v,w".parse().unwrap();
        let added = dataset.add_index(path, index, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(added, Err(Error::Unsupported(_))));
    });
}

/// Writers of a cluster cannot keep values unique, so a definition that says so is refused.
#[test]
fn unique_values_are_refused_and_a_copy_is_without() {
    scene(|net| {
        let store = Store::open(net.clone(), true, options(net, 0)).unwrap();
        let index = Index::composite().int().unique();
        let def = DatasetDef::new("id", KeyType::Int).index("v", index);
        let refused = store.create_dataset("u", &def).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        assert!(refused.to_string().contains("not kept unique"), "{refused}");
        let (adapted, notes) = esker_cluster::adapted(&def);
        assert!(notes.len() == 1 && !adapted.indexes[0].unique, "{notes:?}");
        let dataset = store.create_dataset("u", &adapted).unwrap();
        let path = "w".parse().unwrap();
        let added = dataset.add_index(path, index, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(added, Err(Error::Unsupported(_))));
    });
}

/// What a batch holds fits the definition that it began with.
#[test]
fn a_batch_does_not_go_to_a_dataset_that_was_made_since() {
    scene(|net| {
        let first = dataset(net, 1);
        let mut batch = first.batch();
        batch.put_json(br#"{"id":1,"n":5}"#).unwrap();
        let store = Store::open(net.clone(), true, options(net, 0)).unwrap();
        store.drop_dataset("d").unwrap();
        let def = DatasetDef::new("id", KeyType::Int).index("m", Index::composite().int());
        let second = store.create_dataset("d", &def).unwrap();
        net.sleep(20_000);
        let committed = batch.commit();
        assert!(matches!(committed, Err(Error::Busy(_))), "{committed:?}");
        let found = rest(&mut second.find(&Request::of(field("m").eq(5))).unwrap());
        assert!(found.is_empty());
    });
}
