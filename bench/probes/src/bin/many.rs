//! A store of many datasets: what creating, writing, flushing and opening cost when the same
//! records go to ten, to three hundred or to a thousand of them.
//!
//! ```text
//! # numbers of datasets; MANY_PUTS=200000 records each time
//! cargo run --release -p probes --bin many -- 10 300 1000
//! ```
//!
//! With `MANY_VERBOSE=1` it tells of each put of more than 20 ms how long it waited for a core
//! (Linux): what is left of it was a wait for somebody else, or for the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use esker::{Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Options, Type};

fn main() {
    let puts = std::env::var("MANY_PUTS").map_or(200_000, |puts| puts.parse().unwrap());
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|n| n.parse().unwrap())
        .collect();
    println!(
        "{:>8} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "datasets",
        "create ms",
        "records/s",
        "p50 us",
        "p99.9 ms",
        "p99.99",
        "longest",
        "rest ms",
        "flush ms",
        "settle",
        "open ms",
        "files"
    );
    for number in numbers {
        measure(number, puts);
    }
}

fn options() -> Options {
    Options::new().durability(Durability::Os)
}

/// How long this thread has waited for a core so far.
fn waited() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().nth(1);
    Duration::from_nanos(nanos.map_or(0, |nanos| nanos.parse().unwrap_or(0)))
}

fn record(n: u64) -> String {
    let user = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    format!(
        r#"{{"id":{n},"user":"u{user}","at":{},"text":"{:0>80}"}}"#,
        1_700_000_000 + n,
        user * 31
    )
}

fn measure(number: usize, puts: u64) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let db = Database::create_or_open(&dir, options()).unwrap();
    let start = Instant::now();
    let sets: Vec<Dataset> = (0..number)
        .map(|n| {
            let def = DatasetDef::new("id", KeyType::Int)
                .index(
                    "user",
                    esker::Index::new(IndexKind::Composite).of_type(Type::String),
                )
                .index(
                    "at",
                    esker::Index::new(IndexKind::Composite).of_type(Type::Int),
                );
            db.create_dataset::<esker::Key>(&format!("d{n}"), def)
                .unwrap()
        })
        .collect();
    let created = start.elapsed();
    let records: Vec<String> = (0..puts).map(record).collect();
    let mut taken = Vec::with_capacity(records.len());
    let verbose = std::env::var("MANY_VERBOSE").is_ok();
    let mut slow = Vec::new();
    let start = Instant::now();
    for (n, record) in records.iter().enumerate() {
        let had_waited = if verbose { waited() } else { Duration::ZERO };
        let before = Instant::now();
        sets[n % number].put_json(record.as_bytes()).unwrap();
        let took = before.elapsed();
        taken.push(took);
        if verbose && took > Duration::from_millis(20) {
            slow.push((n, took, waited() - had_waited));
        }
    }
    let wrote = start.elapsed();
    taken.sort_unstable();
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize];
    let start = Instant::now();
    db.flush().unwrap();
    let rest = start.elapsed();
    // A flush by itself: as much as fills a generation, with nothing before it.
    let start = Instant::now();
    db.group().run_compactions().unwrap();
    let settled = start.elapsed();
    for (n, record) in records.iter().take(60_000).enumerate() {
        sets[n % number].put_json(record.as_bytes()).unwrap();
    }
    let start = Instant::now();
    db.flush().unwrap();
    let flush = start.elapsed();
    if verbose {
        for (n, took, waited) in slow {
            println!("put {n} took {took:.1?}, of which it waited {waited:.1?} for a core");
        }
        println!("{:?}", db.group().stats());
    }
    drop(sets);
    db.close().unwrap();
    let files = std::fs::read_dir(&dir).unwrap().count();
    let start = Instant::now();
    let db = Database::open(&dir, options()).unwrap();
    let opened = start.elapsed();
    assert_eq!(db.dataset_names().len(), number);
    let last = db
        .dataset::<esker::Key>(&format!("d{}", number - 1))
        .unwrap();
    assert!(last.query().count().unwrap() > 0);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{number:>8} {:>9.0} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>10.0} {:>9.0} {:>9.0} {:>9.1} {files:>9}",
        ms(created),
        puts as f64 / wrote.as_secs_f64(),
        at(0.5).as_secs_f64() * 1e6,
        ms(at(0.999)),
        ms(at(0.9999)),
        ms(*taken.last().unwrap()),
        ms(rest),
        ms(flush),
        ms(settled),
        ms(opened),
    );
}
