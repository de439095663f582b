//! Many large queries, an index build, a repair and compactions at once stay within the memory
//! budget, measured as the resident memory of a separate process. Its allocator has one heap: with
//! one per thread, the default of the C library, memory that a thread frees stays with its heap,
//! which can double the resident memory.

use std::ops::ControlFlow;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common::{TextQuery, number, path};
use esker::maintain::RepairOptions;
use esker::request::Group;
use esker::schema::Maintenance;
use esker::{Database, DatasetDef, Durability, IndexKind, KeyType, Options, Order, Type, Value};
use esker_lsm::Account;

const BUDGET: usize = 32 << 20;
/// Set in the measured process.
const ALONE: &str = "ESKER_MEMORY_ALONE";
const NAME: &str =
    "memory::large_queries_a_build_a_repair_and_compactions_together_stay_within_the_budget";
const QUERIES: usize = 16;
/// Code pages, the test's own records, stacks, buffers of the log and of tables being written,
/// blocks that bypass the cache (up to half a megabyte per lookup: 8 MiB if all queries are in the
/// middle of one, as on a busy machine), overdrafts, and heap fragmentation.
const SLACK: usize = 32 << 20;

/// The peak of resident memory so far, in bytes.
fn highest() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

fn load(dataset: &esker::Dataset, from: usize, to: usize) {
    let mut batch = dataset.batch();
    for id in from..to {
        let body = format!(
            "{{\"id\":{id},\"v\":\"hot\",\"w\":{},\"text\":\"{:0>120}\"}}",
            id % 1000,
            id.wrapping_mul(0x9e37_79b9)
        );
        batch.put_json(body.as_bytes()).unwrap();
        if batch.len() == 100 {
            batch.durability(Durability::Os).commit().unwrap();
        }
    }
    batch.durability(Durability::Os).commit().unwrap();
}

/// True if a test passes in a process of its own.
fn passes_alone(test: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .envs([(ALONE, "1"), ("MALLOC_ARENA_MAX", "1")])
        .status();
    status.unwrap().success()
}

#[test]
fn large_queries_a_build_a_repair_and_compactions_together_stay_within_the_budget() {
    if std::env::var_os(ALONE).is_none() {
        // Fragmentation depends on how threads interleave; memory held beyond the budget shows in
        // every run.
        assert!((0..3).any(|_| passes_alone(NAME)));
        return;
    }
    let records = number("ESKER_RECORDS", 200_000);
    let folder = tempfile::tempdir().unwrap();
    let before = highest();
    let options = Options::new()
        .memory_budget(BUDGET)
        .table_size(2 << 20)
        .durability(Durability::Os);
    let db = Database::create_or_open(folder.path(), options).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("v"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::String),
        )
        .maintenance(Maintenance::Validation);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    load(&dataset, 0, records);
    let loaded = highest() - before;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut queries = Vec::new();
        for nth in 0..QUERIES {
            let dataset = &dataset;
            queries.push(scope.spawn(move || {
                let query = dataset.query().equals(&path("v"), "hot");
                let mut count = 0;
                match nth % 4 {
                    0 => count = query.run().unwrap().map(Result::unwrap).count(),
                    1 => {
                        let both = query.equals(&path("w"), "7");
                        count = both.count().unwrap() as usize * 1000;
                    }
                    kind => {
                        let order = [Order::Key, Order::Any][kind - 2].clone();
                        let mut visit = |_| {
                            count += 1;
                            ControlFlow::Continue(())
                        };
                        query.order(order.clone()).visit(&mut visit).unwrap();
                    }
                }
                assert_eq!(count, records);
            }));
        }
        // It writes the same records again, so that answers do not change.
        let writer = scope.spawn(|| {
            while !done.load(Relaxed) {
                load(&dataset, 0, 1000);
            }
        });
        let compactions = scope.spawn(|| {
            while !done.load(Relaxed) {
                db.compact(None).unwrap();
            }
        });
        dataset.repair(&RepairOptions::default()).run().unwrap();
        dataset
            .add_index(
                path("w"),
                esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
            )
            .run()
            .unwrap();
        for query in queries {
            query.join().unwrap();
        }
        done.store(true, Relaxed);
        writer.join().unwrap();
        compactions.join().unwrap();
    });
    let together = highest() - before;
    let memory = db.group().memory();
    println!(
        "MiB resident: load {}, together {}; {memory:?}",
        loaded >> 20,
        together >> 20
    );
    let held = |account| {
        let held = memory.held.iter().find(|(of, _)| *of == account);
        held.unwrap().1
    };
    assert_eq!(held(Account::Queries) + held(Account::Builds), 0);
    assert!(
        together <= BUDGET + SLACK,
        "{} KiB of {} KiB",
        together >> 10,
        (BUDGET + SLACK) >> 10
    );
}

#[test]
fn the_groups_of_one_record_leave_the_memory_before_there_are_a_million() {
    if std::env::var_os(ALONE).is_none() {
        assert!(passes_alone(
            "memory::the_groups_of_one_record_leave_the_memory_before_there_are_a_million"
        ));
        return;
    }
    const EACH: u64 = 700;
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().memory_budget(4 << 20);
    let db = Database::create_or_open(folder.path(), options).unwrap();
    let def = DatasetDef::key("id").index("id2", esker::Index::lazy().int());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let numbers: Vec<u64> = (0..EACH).collect();
    let record = format!("{{\"id\":1,\"id2\":1,\"a\":{numbers:?},\"b\":{numbers:?}}}");
    dataset.put_json(record).unwrap();
    let before = highest();
    // A scan, and the records of an index.
    for condition in ["id >= 0", "id2 = 1"] {
        let found = dataset.find(condition.parse().unwrap());
        let aggregate = found.aggregate(["count".parse().unwrap()]);
        let aggregate = aggregate.by("a".parse().unwrap()).by("b".parse().unwrap());
        let mut groups = 0;
        let mut visit = |group: Group| {
            assert_eq!(group.value("count"), Some(Value::Int(1)));
            groups += 1;
            ControlFlow::Continue(())
        };
        aggregate.visit(&mut visit).unwrap();
        assert_eq!(groups, EACH * EACH);
    }
    // All groups at once take 100 MB.
    let grown = highest() - before;
    println!("{} KiB", grown >> 10);
    assert!(grown <= 24 << 20, "{} KiB", grown >> 10);
}
