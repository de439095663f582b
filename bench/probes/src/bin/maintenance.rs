//! What maintenance strategies cost: CPU time of the process, and bytes on disk, under one kind of
//! use.
//!
//! ```text
//! cargo run --release -p probes --bin maintenance -- USE STRATEGY [RECORDS]
//! ```
//!
//! USE is `insert` (one index), `insert2` (two), `update` (as many puts again, of random keys, with
//! a lookup for each hundred), `lookup` (a tenth as many, with ten lookups of the newest ten for
//! each), `count` (as `update`, then 200 counts of a tenth of the records by the index), or `small`
//! (2,000 records, as many puts again and 500 lookups, twenty times over in new stores). STRATEGY
//! is `auto` or one by name. Kinds are composite, memory is 64 MiB.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use esker::{
    Database, Dataset, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Type, field,
};

const USERS: u64 = 10_000;

/// What the process has used, in hundredths of a second.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

fn record(key: u64, rng: &mut fastrand::Rng) -> String {
    static POOL: OnceLock<String> = OnceLock::new();
    let letters = || (0..1 << 20).map(|_| fastrand::alphanumeric()).collect();
    let from = rng.usize(..(1 << 20) - 440);
    let text = &POOL.get_or_init(letters)[from..from + 440];
    format!(
        r#"{{"id":{key},"user":{},"at":{},"text":"{text}"}}"#,
        rng.u64(..USERS),
        rng.u32(..)
    )
}

fn create(dir: &Path, strategy: &str, indexes: &[&str]) -> (Database, Dataset<u64>) {
    let options = Options::new()
        .durability(Durability::Os)
        .memory_budget(64 << 20);
    let db = Database::create_or_open(dir, options).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int);
    for path in indexes {
        def = def.index(*path, Index::new(IndexKind::Composite).of_type(Type::Int));
    }
    def = match strategy {
        "auto" => def.auto(),
        name => def.maintenance(name.parse().unwrap()),
    };
    let dataset = db.create_dataset("d", def).unwrap();
    (db, dataset)
}

fn insert(dataset: &Dataset<u64>, records: u64, rng: &mut fastrand::Rng) {
    for key in 0..records {
        dataset.put_json(record(key, rng)).unwrap();
    }
}

fn lookup(dataset: &Dataset<u64>, rng: &mut fastrand::Rng) -> usize {
    let query = dataset.query().filter(field("user").eq(rng.u64(..USERS)));
    query.limit(10).run().unwrap().map(Result::unwrap).count()
}

/// Puts random keys again, with lookups: so many for so many.
fn update(
    dataset: &Dataset<u64>,
    (puts, records): (u64, u64),
    (lookups, each): (u64, u64),
    rng: &mut fastrand::Rng,
) {
    for put in 0..puts {
        dataset.put_json(record(rng.u64(..records), rng)).unwrap();
        if put % each == 0 {
            (0..lookups).for_each(|_| assert!(lookup(dataset, rng) <= 10));
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (how, strategy) = (args[0].as_str(), args[1].as_str());
    let records: u64 = args.get(2).map_or(200_000, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    let indexes: &[&str] = match how {
        "insert2" => &["user", "at"],
        _ => &["user"],
    };
    let mut bytes = 0_u64;
    let stores = if how == "small" { 20 } else { 1 };
    for store in 0..stores {
        let dir = dir.path().join(store.to_string());
        let (db, dataset) = create(&dir, strategy, indexes);
        match how {
            "insert" | "insert2" => insert(&dataset, records, &mut rng),
            "update" => {
                insert(&dataset, records, &mut rng);
                update(&dataset, (records, records), (1, 100), &mut rng);
            }
            "lookup" => {
                insert(&dataset, records, &mut rng);
                update(&dataset, (records / 10, records), (10, 1), &mut rng);
            }
            "count" => {
                insert(&dataset, records, &mut rng);
                update(&dataset, (records, records), (1, 100), &mut rng);
                for _ in 0..200 {
                    let from = rng.u64(..USERS * 9 / 10);
                    let tenth = field("user").range(from..from + USERS / 10);
                    assert!(dataset.query().filter(tenth).count().unwrap() > 0);
                }
            }
            "small" => {
                insert(&dataset, 2000, &mut rng);
                update(&dataset, (2000, 2000), (1, 4), &mut rng);
            }
            other => panic!("{other}: see the head of the file"),
        }
        db.flush().unwrap();
        // What is due in the background is a part of the price.
        std::thread::sleep(Duration::from_millis(if stores > 1 { 0 } else { 1500 }));
        db.close().unwrap();
        let files = std::fs::read_dir(&dir).unwrap();
        bytes += files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum::<u64>();
    }
    println!(
        "{how} {strategy}: {:.2} s of CPU time, {} MiB",
        cpu() as f64 / 100.0,
        bytes >> 20
    );
}
