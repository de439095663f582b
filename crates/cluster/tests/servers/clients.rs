//! Clients that write, query and repair while nodes fail, and what must be true afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_cluster::{Checked, Dataset, Error, RepairOptions};
use esker_model::Key;
use esker_model::condition::{Expr, field};
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::Request;
use esker_model::record::Update;
use esker_model::schema::{KeyType, Value};

use crate::nodes::{Nodes, store_by};

const WRITERS: i64 = 3;
const KEYS: i64 = 150;
const TEXTS: u32 = 20;

/// A record without its key: the values of `s` and `n`; `None` for none.
type State = Option<(String, i64)>;

/// What a key is by what was acknowledged last, and what it may be by writes since then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    last: State,
    maybe: Vec<State>,
}

pub(crate) type All = BTreeMap<i64, Known>;

pub(crate) fn definition() -> DatasetDef {
    DatasetDef::new("id", KeyType::Int)
        .index("s", Index::composite().string())
        .index("n", Index::composite().int())
        .index("tags", Index::composite().string())
}

pub(crate) fn key(id: i64) -> Key {
    Key::new(KeyType::Int, &Value::Int(i128::from(id))).unwrap()
}

pub(crate) fn json(id: i64, (s, n): &(String, i64)) -> String {
    format!(
        r#"{{"id":{id},"s":"{s}","n":{n},"tags":["{s}","t{}"]}}"#,
        n % 5
    )
}

#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    not: AtomicU64,
    queries: AtomicU64,
    failed_queries: AtomicU64,
    repairs: AtomicU64,
}

/// Processes that make a keyspace at the same moment, by different nodes, make one.
pub(crate) fn begin_at_once() {
    for turn in 0..3 {
        let keyspace = format!("esker_begin_{turn}");
        std::thread::scope(|scope| {
            for node in 1..=3 {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    let store = store_by(node, keyspace);
                    let dataset = store.create_dataset(&format!("d{node}"), &definition());
                    let mut batch = dataset.unwrap().batch();
                    let record = json(1, &("s".to_string(), 1));
                    batch.put_json(record.as_bytes()).unwrap();
                    batch.commit().unwrap();
                });
            }
        });
        let store = store_by(1, &keyspace);
        assert_eq!(store.dataset_names().unwrap(), ["d1", "d2", "d3"]);
        for name in store.dataset_names().unwrap() {
            let dataset = store.dataset(&name).unwrap();
            assert_eq!(found_by(&dataset, field("s").eq("s")), [1].into());
            checked(&dataset);
        }
    }
}

/// Runs clients while `trouble` does; returns what is known of each key.
pub(crate) fn run(nodes: &Nodes, dataset: &Dataset, trouble: impl FnOnce()) -> All {
    let (ends, counts) = (AtomicBool::new(false), Counts::default());
    let known: All = std::thread::scope(|scope| {
        let (ends, counts) = (&ends, &counts);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(nodes, writer, ends, counts)))
            .collect();
        scope.spawn(|| query(dataset, ends, counts));
        scope.spawn(|| repair(dataset, ends, counts));
        trouble();
        ends.store(true, Ordering::Relaxed);
        let all = writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap());
        all.collect()
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    eprintln!(
        "{} writes acknowledged, {} not; {} queries, {} failed; {} repairs",
        of(&counts.acknowledged),
        of(&counts.not),
        of(&counts.queries),
        of(&counts.failed_queries),
        of(&counts.repairs)
    );
    assert!(of(&counts.acknowledged) > 100 && of(&counts.queries) > 20);
    known
}

fn write(nodes: &Nodes, writer: i64, ends: &AtomicBool, counts: &Counts) -> All {
    let dataset = nodes.store("esker_test").dataset("d").unwrap();
    let mut random = fastrand::Rng::with_seed(writer as u64);
    let mut all = All::new();
    while !ends.load(Ordering::Relaxed) {
        let id = random.i64(0..KEYS) * WRITERS + writer;
        let record = (format!("s{}", random.u32(0..TEXTS)), random.i64(0..1000));
        let known = all.entry(id).or_default();
        let text = json(id, &record);
        let mut batch = dataset.batch();
        let (wanted, done) = match random.u32(0..10) {
            0..6 => {
                batch.put_json(text.as_bytes()).unwrap();
                (Some(record), batch.commit())
            }
            6 => {
                batch.delete(&key(id)).unwrap();
                (None, batch.commit())
            }
            7 => {
                batch.insert_json(text.as_bytes()).unwrap();
                (Some(record), batch.commit())
            }
            _ => {
                let put = Update::Put(text.clone().into_bytes());
                let mut before = None;
                let done = dataset.update::<Error>(&key(id), &mut |found| {
                    before = found.map(|found| String::from_utf8(found.json().to_vec()).unwrap());
                    Ok(put.clone())
                });
                let states = std::iter::once(&known.last).chain(&known.maybe);
                let texts = states.map(|state| state.as_ref().map(|record| json(id, record)));
                if done.is_ok() {
                    assert!(
                        texts.collect::<BTreeSet<_>>().contains(&before),
                        "key {id}: {before:?}"
                    );
                }
                (Some(record), done.map(|_| ()))
            }
        };
        match done {
            Ok(()) => {
                counts.acknowledged.fetch_add(1, Ordering::Relaxed);
                (known.last, known.maybe) = (wanted, Vec::new());
            }
            // Nothing was written, and there is a record.
            Err(Error::Exists(_)) => {
                let is_there = |state: &State| state.is_some();
                assert!(
                    is_there(&known.last) || known.maybe.iter().any(is_there),
                    "key {id}"
                );
            }
            Err(error) => {
                eprintln!("not acknowledged: {error}");
                counts.not.fetch_add(1, Ordering::Relaxed);
                known.maybe.push(wanted);
            }
        }
    }
    all
}

fn query(dataset: &Dataset, ends: &AtomicBool, counts: &Counts) {
    let mut longest = Duration::ZERO;
    for turn in 0.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let text = format!("s{}", turn % TEXTS);
        let all = || -> esker_cluster::Result<()> {
            let mut answer = dataset.find(&Request::of(field("s").eq(text.as_str())))?;
            let mut seen = BTreeSet::new();
            while let Some(record) = answer.next_record()? {
                let json = String::from_utf8(record.json().to_vec()).unwrap();
                assert!(json.contains(&format!(r#""s":"{text}""#)), "{text}: {json}");
                assert!(
                    seen.insert(record.key().as_bytes().to_vec()),
                    "twice: {json}"
                );
            }
            Ok(())
        };
        match all() {
            Ok(()) => counts.queries.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                eprintln!("a query failed: {error}");
                counts.failed_queries.fetch_add(1, Ordering::Relaxed)
            }
        };
        longest = longest.max(begun.elapsed());
    }
    eprintln!("the longest query took {} ms", longest.as_millis());
}

fn repair(dataset: &Dataset, ends: &AtomicBool, counts: &Counts) {
    while !ends.load(Ordering::Relaxed) {
        let options = RepairOptions {
            full: counts.repairs.load(Ordering::Relaxed) % 2 == 1,
            rows_per_second: Some(2000),
        };
        let repaired = dataset.repair(options, &mut |_| {
            if ends.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match repaired {
            Ok(_) => _ = counts.repairs.fetch_add(1, Ordering::Relaxed),
            Err(error) => eprintln!("a repair failed: {error}"),
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Every acknowledged write, or a later one whose outcome is not known, is found by its key and by
/// each index; and nothing else is.
pub(crate) fn all_found(dataset: &Dataset, all: &All) {
    let mut expected: BTreeMap<String, (Expr, BTreeSet<i64>)> = BTreeMap::new();
    for number in 0..TEXTS {
        let text = format!("s{number}");
        let by_text = field("s").eq(text.as_str());
        expected.insert(format!("s={text}"), (by_text, BTreeSet::new()));
    }
    let keys: Vec<Key> = all.keys().map(|id| key(*id)).collect();
    let records = dataset.get_many(&keys).unwrap();
    for ((id, known), record) in all.iter().zip(records) {
        let found = record.map(|record| String::from_utf8(record.json().to_vec()).unwrap());
        let mut states = std::iter::once(&known.last).chain(&known.maybe);
        let is_it = |state: &&State| state.as_ref().map(|of| json(*id, of)) == found;
        let state = states.find(is_it);
        let state = state.unwrap_or_else(|| panic!("key {id} has {found:?}: {known:?}"));
        let Some((s, n)) = state else { continue };
        let tag = format!("t{}", n % 5);
        for (name, by) in [
            (format!("s={s}"), field("s").eq(s.as_str())),
            (format!("n={n}"), field("n").eq(*n)),
            (format!("tags={s}"), field("tags").eq(s.as_str())),
            (format!("tags={tag}"), field("tags").eq(tag.as_str())),
        ] {
            let of = expected.entry(name).or_insert((by, BTreeSet::new()));
            of.1.insert(*id);
        }
    }
    for (name, (condition, ids)) in expected {
        assert_eq!(found_by(dataset, condition), ids, "{name}");
    }
}

/// The keys of an answer, below those of [`crate::dying`].
pub(crate) fn found_by(dataset: &Dataset, condition: Expr) -> BTreeSet<i64> {
    let mut answer = dataset.find(&Request::of(condition)).unwrap();
    let mut ids = BTreeSet::new();
    while let Some(record) = answer.next_record().unwrap() {
        let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
        ids.insert(json["id"].as_i64().unwrap());
    }
    ids.retain(|id| *id < crate::dying::FIRST);
    ids
}

pub(crate) fn repaired(dataset: &Dataset, full: bool) {
    let options = RepairOptions {
        full,
        rows_per_second: None,
    };
    let done = dataset.repair(options, &mut |_| ControlFlow::Continue(()));
    let done = done.unwrap();
    assert!(done.complete, "{done:?}");
    eprintln!("{done:?}");
}

pub(crate) fn checked(dataset: &Dataset) -> Checked {
    let checked = dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
    assert!(checked.errors.is_empty(), "{:?}", checked.errors);
    checked
}
