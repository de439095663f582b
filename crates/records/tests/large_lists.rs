//! One value that very many records share, with every kind of index, and aggregates of long values,
//! in bounded memory: all allocations of the process are counted. `ESKER_RECORDS=1000000 cargo test --release --test
//! large_lists` is the full measurement.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// `GlobalAlloc` is an unsafe trait.
#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{TextQuery, check, number, path};
use esker::request::Group;
use esker::schema::Maintenance;
use esker::{Database, DatasetDef, Durability, IndexKind, KeyType, Options, Order, Type, Value};
use esker_sim::by_tier;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The same, but never reset.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

impl Counting {
    fn grow(by: usize) {
        let now = NOW.fetch_add(by, Relaxed) + by;
        PEAK.fetch_max(now, Relaxed);
        HIGHEST.fetch_max(now, Relaxed);
    }
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::grow(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::grow(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() {
            Counting::grow(size - layout.size());
        } else {
            NOW.fetch_sub(layout.size() - size, Relaxed);
        }
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The peak of allocations during `work`, beyond those before it.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let done = work();
    (PEAK.load(Relaxed) - before, done)
}

const BUDGET: usize = 16 << 20;

/// Held by the test that runs, so that no other one allocates at the same time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_value_that_all_records_share_is_written_merged_and_found_in_bounded_memory() {
    let _alone = ALONE.lock();
    HIGHEST.store(NOW.load(Relaxed), Relaxed);
    let records = number("ESKER_RECORDS", by_tier(100_000, 200_000));
    for (kind, records) in [
        (IndexKind::Lazy, records),
        (IndexKind::Composite, records),
        (IndexKind::Recent, records),
        (IndexKind::Embedded, records),
        (IndexKind::Fingerprint, records),
        (IndexKind::Eager, records / 10),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new()
            .memory_budget(BUDGET)
            .table_size(2 << 20)
            .durability(Durability::Os);
        let start = std::time::Instant::now();
        let before = NOW.load(Relaxed);
        {
            let db = Database::create_or_open(folder.path(), options).unwrap();
            let def = DatasetDef::new(path("id"), KeyType::Int)
                .index(path("v"), esker::Index::new(kind).of_type(Type::String))
                .index(
                    path("w"),
                    esker::Index::new(IndexKind::None).of_type(Type::Int),
                );
            let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
            let (load, ()) = peak(|| {
                let mut batch = dataset.batch();
                for id in 0..records {
                    let body = format!("{{\"id\":{id},\"v\":\"hot\",\"w\":{}}}", id % 2);
                    batch.put_json(body.as_bytes()).unwrap();
                    if batch.len() == 100 {
                        batch.durability(Durability::Os).commit().unwrap();
                    }
                }
                batch.durability(Durability::Os).commit().unwrap();
            });
            let hot = || dataset.query().equals(&path("v"), "hot");
            let newest = |query: esker::Query| -> Vec<String> {
                let answer = query.limit(Some(10)).run().unwrap();
                answer
                    .map(|record| record.unwrap().key().to_string())
                    .collect()
            };
            let right: Vec<String> = (records - 10..records)
                .rev()
                .map(|id| id.to_string())
                .collect();
            for round in 0..2 {
                let (top, found) = peak(|| newest(hot()));
                assert_eq!(found, right, "{kind}");
                let (oldest, found) = peak(|| newest(hot().order(Order::Oldest)));
                let first: Vec<String> = (0..10).map(|id: usize| id.to_string()).collect();
                assert_eq!(found, first, "{kind}");
                let (all, count) = peak(|| hot().count().unwrap());
                assert_eq!(count, records as u64, "{kind}");
                let both = hot().equals(&path("w"), "1");
                let (half, count) = peak(|| both.count().unwrap());
                assert_eq!(count, records as u64 / 2, "{kind}");
                // The newest records are found without reading the rest of the list.
                let mut answer = hot().limit(Some(10)).run().unwrap();
                assert_eq!(answer.by_ref().count(), 10);
                let explain = answer.explain();
                let blocks = |cost: esker::explain::ReadCost| cost.blocks_read + cost.blocks_cached;
                let most = records as u64 / 40;
                assert!(
                    blocks(explain.cost.data) + blocks(explain.cost.index.unwrap()) < most,
                    "{kind}: {explain}"
                );
                println!(
                    "{kind} {round}: {records} records, {:.1} s; MiB at the peak: load {}, newest {}, oldest {}, count {}, two conditions {}",
                    start.elapsed().as_secs_f64(),
                    load >> 20,
                    top >> 20,
                    oldest >> 20,
                    all >> 20,
                    half >> 20
                );
                if round == 0 {
                    let (compact, ()) = peak(|| db.compact(None).unwrap());
                    let (checked, ()) = peak(|| check(&db));
                    println!("  compact {} check {}", compact >> 20, checked >> 20);
                }
            }
            drop(dataset);
            db.close().unwrap();
        }
        let whole = HIGHEST.load(Relaxed) - before;
        // The budget, ten percent, and a constant.
        let limit = BUDGET + BUDGET / 10 + (2 << 20);
        assert!(
            whole <= limit,
            "{kind}: {} KiB at the peak, over {} KiB",
            whole >> 10,
            limit >> 10
        );
    }
}

/// Groups whose entries are not all read, and entries whose keys are not looked up, are bounded by
/// their bytes, not by their number alone.
#[test]
fn long_values_and_long_keys_of_an_index_are_aggregated_in_bounded_memory() {
    const RECORDS: usize = 1500;
    const MOST: usize = 4 << 20;
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    // Without threads: a compaction beside the query would count.
    let options = Options::new()
        .memory_budget(4 << 20)
        .background(false)
        .durability(Durability::Os);
    let db = Database::create_or_open(folder.path(), options).unwrap();
    let create = |name: &str, key: KeyType, value: Type| {
        let index = esker::Index::new(IndexKind::Composite).of_type(value);
        // The keys of entries are looked up.
        let def = DatasetDef::new(path("id"), key)
            .index(path("v"), index)
            .maintenance(Maintenance::Validation);
        db.create_dataset::<esker::Key>(name, def).unwrap()
    };
    let values = create("values", KeyType::Int, Type::String);
    let keys = create("keys", KeyType::String, Type::Int);
    for id in 0..RECORDS {
        // They differ at the beginning, so that indexes of tables are small.
        let long = format!("{id:0>8}{:0>8000}", 0);
        let json = format!("{{\"id\":{id},\"v\":\"{long}\"}}");
        values.put_json(json.as_bytes()).unwrap();
        let json = format!("{{\"id\":\"{long}\",\"v\":{}}}", id % 10);
        keys.put_json(json.as_bytes()).unwrap();
    }
    for (dataset, groups) in [(&values, RECORDS), (&keys, 10)] {
        let (mut seen, mut records) = (0, 0);
        let (bytes, explain) = peak(|| {
            let asked = dataset.query().aggregate(["count".parse().unwrap()]);
            let mut visit = |group: Group| {
                let Some(Value::Int(count)) = group.value("count") else {
                    panic!("no count");
                };
                seen += 1;
                records += usize::try_from(count).unwrap();
                ControlFlow::Continue(())
            };
            asked.by("v".parse().unwrap()).visit(&mut visit).unwrap()
        });
        assert_eq!((seen, records), (groups, RECORDS), "{explain}");
        assert!(explain.steps.probed > 0, "{explain}");
        println!("{groups} groups: {} KiB at the peak", bytes >> 10);
        // All values or keys at once take 12 MB.
        assert!(bytes <= MOST, "{groups} groups: {} KiB", bytes >> 10);
    }
}
