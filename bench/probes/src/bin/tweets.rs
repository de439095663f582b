//! Measures single operations on the tweet workload, one configuration per process:
//!
//! ```text
//! cargo run --release -p probes --bin tweets -- KINDS [RECORDS] [BUDGET_MIB]
//! ```
//!
//! `KINDS` is the kind of index on `user_id` and on `created_at`, e.g. `lazy,composite` or
//! `none,none`. Prints operations per second, percentiles of the wall time, and CPU time per
//! operation of the whole process (background work included). One record per batch, with a log,
//! without syncs.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../../crates/cli/src/tweets.rs"]
#[allow(dead_code)]
mod tweets;

use std::time::{Duration, Instant};

use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Operand, Options, Path, Type,
    field,
};

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

fn measure(name: &str, count: usize, mut operation: impl FnMut(usize) -> usize) {
    let mut times: Vec<u64> = Vec::with_capacity(count);
    let mut rows = 0;
    let (before, start) = (cpu(), Instant::now());
    for at in 0..count {
        let begin = Instant::now();
        rows += operation(at);
        times.push(begin.elapsed().as_nanos() as u64);
    }
    let (wall, used) = (start.elapsed(), cpu() - before);
    times.sort_unstable();
    let at = |share: f64| times[((count - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{name:<28} {:>9.0}/s  p50 {:>8.1}  p99 {:>8.1}  p99.9 {:>8.1}  max {:>9.0}  cpu {:>8.2} us  rows {:>7.1}  peak {} MiB",
        count as f64 / wall.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        used.as_secs_f64() * 1e6 / count as f64,
        rows as f64 / count as f64,
        peak_mib(),
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let kinds: Vec<IndexKind> = args[1]
        .split(',')
        .map(|kind| kind.parse().unwrap())
        .collect();
    let records: usize = args.get(2).map_or(1_000_000, |n| n.parse().unwrap());
    let budget: usize = args.get(3).map_or(128, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().memory_budget(budget << 20);
    let db = Database::create_or_open(dir.path(), options.clone()).unwrap();
    let mut def = DatasetDef::new("id", KeyType::String);
    for (path, kind) in ["user_id", "created_at"].iter().zip(&kinds) {
        if *kind != IndexKind::None {
            def = def.index(*path, esker::Index::new(*kind).of_type(Type::Int));
        }
    }
    let tweets = db.create_dataset::<esker::Key>("tweets", def).unwrap();
    println!("{} x {records}, budget {budget} MiB", args[1]);

    let mut made = tweets::Tweets::new(7, records as u64);
    let mut ids: Vec<[u8; 20]> = Vec::with_capacity(records);
    let mut users: Vec<u32> = Vec::with_capacity(records);
    let mut record = Vec::new();
    let mut batch = tweets.batch();
    let generate = {
        let (before, mut made) = (cpu(), tweets::Tweets::new(7, records as u64));
        for _ in 0..records {
            made.next(&mut record);
        }
        (cpu() - before).as_secs_f64() * 1e6 / records as f64
    };
    println!("(generating a record takes {generate:.2} us)");
    let (mut first, mut last) = (u64::MAX, 0);
    measure("put", records, |_| {
        let second = made.next(&mut record);
        let text = std::str::from_utf8(&record).unwrap();
        ids.push(text.as_bytes()[7..27].try_into().unwrap());
        let user = &text[text.find("user_id\":").unwrap() + 9..];
        users.push(user[..user.find(',').unwrap()].parse().unwrap());
        (first, last) = (first.min(second), last.max(second));
        batch.put_json(&record).unwrap();
        batch.durability(Durability::Os).commit().unwrap();
        1
    });
    let (before, start) = (cpu(), Instant::now());
    db.flush().unwrap();
    db.group().run_compactions().unwrap();
    println!(
        "settled in {:.2} s, cpu {:.2} s",
        start.elapsed().as_secs_f64(),
        (cpu() - before).as_secs_f64()
    );
    let stats = db.group().stats();
    println!(
        "log {} MiB, flushed {} MiB, merged {} MiB, moves {}, slowed {} ms, stalled {} ms",
        stats.log_bytes >> 20,
        stats.flush_bytes >> 20,
        stats.merge_write_bytes >> 20,
        stats.moves,
        stats.slowed_micros / 1000,
        stats.stalled_micros / 1000
    );
    let disk: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    println!("disk {} MiB", disk >> 20);
    queries(&tweets, &kinds, &ids, &users, (first, last));
    println!(
        "cache {} MiB of {}",
        db.group().cache().used_bytes() >> 20,
        db.group().cache().capacity() >> 20
    );
    println!("peak {} MiB", peak_mib());
}

fn queries(
    tweets: &Dataset,
    kinds: &[IndexKind],
    ids: &[[u8; 20]],
    users: &[u32],
    span: (u64, u64),
) {
    let mut rng = fastrand::Rng::with_seed(9);
    let user: Path = "user_id".parse().unwrap();
    let at: Path = "created_at".parse().unwrap();
    let get = |tweets: &Dataset, rng: &mut fastrand::Rng| {
        let key = std::str::from_utf8(&ids[rng.usize(..ids.len())]).unwrap();
        tweets
            .get(tweets.parse_key(key).unwrap())
            .unwrap()
            .map_or(0, |r| r.json().len().min(1))
    };
    measure("get, first 50k", 50_000, |_| get(tweets, &mut rng));
    measure("get", 100_000, |_| get(tweets, &mut rng));
    if kinds[0] != IndexKind::None {
        let mut lookup = |limit| {
            let value = users[rng.usize(..users.len())].to_string();
            tweets
                .find(field(&user).eq(Operand::text(&value)))
                .limit(limit)
                .run()
                .unwrap()
                .fold(0, |n, r| r.map(|_| n + 1).unwrap())
        };
        let slow = kinds[0] == IndexKind::Embedded;
        measure("lookup K=10", if slow { 200 } else { 20_000 }, |_| {
            lookup(Some(10))
        });
        measure("lookup, no limit", if slow { 50 } else { 2_000 }, |_| {
            lookup(None)
        });
    }
    if kinds[1] != IndexKind::None {
        let mut range = |seconds: u64, limit| {
            let lo = rng.u64(span.0..span.1 - seconds);
            let (lo, hi) = (lo.to_string(), (lo + seconds - 1).to_string());
            tweets
                .find(field(&at).range(Operand::text(&lo)..=Operand::text(&hi)))
                .limit(limit)
                .run()
                .unwrap()
                .fold(0, |n, r| r.map(|_| n + 1).unwrap())
        };
        measure("range 60 s", 300, |_| range(60, None));
        measure("range 60 s, K=10", 2_000, |_| range(60, Some(10)));
    }
}
