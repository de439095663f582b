//! What a put costs: CPU time of the process, and instructions where it is run under a tool that
//! counts them.
//!
//! ```text
//! cargo run --release -p probes --bin puts -- [KIND] [BATCH] [RECORDS] [EXPIRY]
//! ```
//!
//! Puts so many records of 540 bytes with rising keys into a dataset with two indexes of the kind
//! (`none`: without an index), so many a commit (0: each by itself, `Dataset::put_json`), in memory
//! of 128 MiB, then flushes. EXPIRY is `never`, `ttl` (a week from the write), or `own` (each
//! record has a time). All is done by the calling thread, so that a run repeats: `valgrind
//! --tool=callgrind '--toggle-collect=puts::load*'`, before the name of the compiled program,
//! counts the instructions of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::time::{Duration, Instant};

use esker::{Database, Dataset, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Type};

/// What the process has used, from the scheduler.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanos = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

fn record(n: u64, rng: &mut fastrand::Rng) -> String {
    let mut text = String::new();
    while text.len() < 340 {
        text.extend((0..rng.usize(2..=9)).map(|_| rng.lowercase()));
        text.push(' ');
    }
    text.truncate(340);
    format!(
        r#"{{"id":{},"user_id":{},"created_at":{},"lang":"en","source":"android","retweets":{},"likes":{},"reply_to":{},"expires":{},"text":"{text}"}}"#,
        ((1_700_000_000 + n / 35) << 32) | n,
        (rng.u64(0..40_000) * 2_654_435_761) & 0xffff_ffff,
        1_700_000_000 + n / 35,
        rng.u8(..64),
        rng.u16(..1024),
        ((1_699_999_940 + n / 35) << 32) | n,
        4_000_000_000 + rng.u64(..604_800),
    )
}

#[inline(never)]
fn load(db: &Database, dataset: &Dataset, records: &[String], batch_of: usize) {
    if batch_of == 0 {
        for record in records {
            dataset.put_json(record).unwrap();
        }
        return db.flush().unwrap();
    }
    let mut batch = dataset.batch();
    for chunk in records.chunks(batch_of) {
        for record in chunk {
            batch.put_json(record).unwrap();
        }
        batch.commit().unwrap();
    }
    db.flush().unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &str| args.get(at).map_or(default.to_string(), Clone::clone);
    let kind: IndexKind = arg(0, "none").parse().unwrap();
    let batch: usize = arg(1, "1").parse().unwrap();
    let number: u64 = arg(2, "100000").parse().unwrap();
    let expiry = arg(3, "never");

    let dir = tempfile::tempdir().unwrap();
    let options = Options::new()
        .durability(Durability::Os)
        .memory_budget(128 << 20)
        .background(false);
    let db = Database::create_or_open(dir.path(), options).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int);
    if kind != IndexKind::None {
        for path in ["user_id", "created_at"] {
            def = def.index(path, Index::new(kind).of_type(Type::Int));
        }
    }
    def = match expiry.as_str() {
        "never" => def,
        "ttl" => def.ttl(Duration::from_secs(7 * 86400)),
        "own" => def.expires_at("expires"),
        other => panic!("{other}: never, ttl or own"),
    };
    let dataset = db.create_dataset::<esker::Key>("tweets", def).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let records: Vec<String> = (0..number).map(|n| record(n, &mut rng)).collect();
    let bytes: usize = records.iter().map(String::len).sum();

    let (start, before) = (Instant::now(), cpu());
    load(&db, &dataset, &records, batch);
    let (took, used) = (start.elapsed(), cpu() - before);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / number as f64;
    println!(
        "{kind} {batch} {number} {expiry}: {} bytes a record, {:.2} us of CPU time a put, {:.2} us",
        bytes / number as usize,
        each(used),
        each(took)
    );
}
