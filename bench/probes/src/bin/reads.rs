//! What reads cost: CPU time of the process, and instructions where it is run under a tool that
//! counts them.
//!
//! ```text
//! cargo run --release -p probes --bin reads -- [KIND] [RECORDS] [WHAT] [TIMES]
//! ```
//!
//! Puts so many records of 540 bytes with rising keys, 35 a second, of 40,000 users, into a dataset
//! with two indexes of the kind (`none`: without an index) and memory of 128 MiB, flushes and
//! merges. Then asks so many times for WHAT, after the first quarter of these questions to warm up:
//! `get` (a random key), `ten` or `all` (the ten newest records of a user, or all), `users` (the
//! ten newest of ten neighbouring users), `minute` (all records of a minute). All is done by the
//! calling thread, so that a run repeats: `valgrind --tool=callgrind
//! '--toggle-collect=*::measured'`, before the name of the compiled program, counts the
//! instructions of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::time::Duration;

use esker::{
    Database, Dataset, DatasetDef, Durability, Expr, Index, IndexKind, KeyType, Operand, Options,
    Type, field,
};
use fastrand::Rng;

const USERS: u64 = 40_000;

/// What the process has used, from the scheduler.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanos = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

fn user(rng: &mut Rng) -> u64 {
    (rng.u64(0..USERS) * 2_654_435_761) & 0xffff_ffff
}

fn record(n: u64, rng: &mut Rng) -> (u64, String) {
    let mut text = String::new();
    while text.len() < 340 {
        text.extend((0..rng.usize(2..=9)).map(|_| rng.lowercase()));
        text.push(' ');
    }
    text.truncate(340);
    let key = (1_700_000_000 + n / 35) << 32 | n;
    let record = format!(
        r#"{{"id":{key},"user_id":{},"created_at":{},"lang":"en","source":"android","retweets":{},"likes":{},"reply_to":{},"expires":{},"text":"{text}"}}"#,
        user(rng),
        1_700_000_000 + n / 35,
        rng.u8(..64),
        rng.u16(..1024),
        (1_699_999_940 + n / 35) << 32 | n,
        4_000_000_000 + rng.u64(..604_800u64),
    );
    (key, record)
}

fn text(number: u64) -> Operand {
    Operand::text(number.to_string())
}

fn find(data: &Dataset<u64>, condition: Expr, limit: Option<usize>) -> usize {
    let found = data.query().filter(condition).limit(limit).run().unwrap();
    found
        .filter(|record| !record.as_ref().unwrap().json().is_empty())
        .count()
}

struct Asked<'a> {
    data: &'a Dataset<u64>,
    keys: &'a [u64],
}

impl Asked<'_> {
    /// Asks once; how many records were found, or bytes of the one.
    fn ask(&self, what: &str, rng: &mut Rng) -> usize {
        let data = self.data;
        match what {
            "get" => {
                let key = self.keys[rng.usize(..self.keys.len())];
                data.get(key).unwrap().unwrap().json().len()
            }
            "ten" => find(data, field("user_id").eq(text(user(rng))), Some(10)),
            "all" => find(data, field("user_id").eq(text(user(rng))), None),
            "users" => {
                let width = (1_u64 << 32) / USERS * 10;
                let from = rng.u64(0..(1_u64 << 32) - width);
                let range = text(from)..=text(from + width);
                find(data, field("user_id").range(range), Some(10))
            }
            "minute" => {
                let seconds = self.keys.len() as u64 / 35;
                let from = 1_700_000_000 + rng.u64(0..seconds.saturating_sub(60).max(1));
                find(
                    data,
                    field("created_at").range(text(from)..=text(from + 59)),
                    None,
                )
            }
            other => panic!("{other} is none of get, ten, all, users, minute"),
        }
    }

    #[inline(never)]
    fn measured(&self, what: &str, times: usize) -> usize {
        let mut rng = Rng::with_seed(8);
        (0..times).map(|_| self.ask(what, &mut rng)).sum()
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &str| args.get(at).map_or(default, String::as_str).to_owned();
    let kind: IndexKind = arg(0, "composite").parse().unwrap();
    let records: u64 = arg(1, "200000").parse().unwrap();
    let what = arg(2, "ten");
    let times: usize = arg(3, "10000").parse().unwrap();

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
    let data = db.create_dataset::<u64>("tweets", def).unwrap();
    let mut rng = Rng::with_seed(7);
    let mut keys = Vec::new();
    for n in 0..records {
        let (key, text) = record(n, &mut rng);
        keys.push(key);
        data.put_json(text).unwrap();
    }
    db.flush().unwrap();
    db.group().run_compactions().unwrap();

    let asked = Asked {
        data: &data,
        keys: &keys,
    };
    let mut rng = Rng::with_seed(8);
    for _ in 0..times / 4 {
        asked.ask(&what, &mut rng);
    }
    let before = cpu();
    let found = asked.measured(&what, times);
    let used = cpu() - before;
    println!(
        "{kind} {records} {what}: {:.2} found, {:.2} us of CPU time",
        found as f64 / times as f64,
        used.as_secs_f64() * 1e6 / times as f64
    );
}
