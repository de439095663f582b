#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use esker::*;
use std::time::Duration;
type Data = Dataset<u64>;
fn make(db: &Database, kind: IndexKind) -> Data {
    let mut def = DatasetDef::new("id", KeyType::Int);
    if kind != IndexKind::None {
        for path in ["user_id", "created_at"] {
            def = def.index(path, Index::new(kind).of_type(Type::Int));
        }
    }
    db.create_dataset("tweets", def).unwrap()
}
fn put(d: &Data, text: &str) {
    d.put_json(text).unwrap()
}
fn get(d: &Data, key: u64) -> usize {
    d.get(key).unwrap().unwrap().json().len()
}
fn find(d: &Data, path: &str, lo: u64, hi: u64, limit: Option<usize>) -> usize {
    let query = d.query();
    let query = if lo == hi {
        query.filter(field(path).eq(Operand::text(lo.to_string())))
    } else {
        query.filter(
            field(path).range(Operand::text(lo.to_string())..=Operand::text(hi.to_string())),
        )
    };
    let mut n = 0;
    for r in query.limit(limit).run().unwrap() {
        n += usize::from(r.unwrap().json().len() > 0);
    }
    n
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanos = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}
fn record(n: u64, rng: &mut fastrand::Rng) -> (u64, String) {
    let mut text = String::new();
    while text.len() < 340 {
        text.extend((0..rng.usize(2..=9)).map(|_| rng.lowercase()));
        text.push(' ');
    }
    text.truncate(340);
    let key = (1_700_000_000 + n / 35) << 32 | n;
    (
        key,
        format!(
            r#"{{"id":{key},"user_id":{},"created_at":{},"lang":"en","source":"android","retweets":{},"likes":{},"reply_to":{},"expires":{},"text":"{text}"}}"#,
            rng.u64(0..USERS) * 2_654_435_761 & 0xffff_ffff,
            1_700_000_000 + n / 35,
            rng.u8(..64),
            rng.u16(..1024),
            (1_699_999_940 + n / 35) << 32 | n,
            4_000_000_000 + rng.u64(..604_800u64),
        ),
    )
}
const USERS: u64 = 40_000;
#[inline(never)]
fn gets(d: &Data, keys: &[u64], rng: &mut fastrand::Rng, n: usize) -> usize {
    (0..n).map(|_| get(d, keys[rng.usize(..keys.len())])).sum()
}
#[inline(never)]
fn lookup_ten(d: &Data, rng: &mut fastrand::Rng, n: usize) -> usize {
    (0..n)
        .map(|_| {
            let u = rng.u64(0..USERS) * 2_654_435_761 & 0xffff_ffff;
            find(d, "user_id", u, u, Some(10))
        })
        .sum()
}
#[inline(never)]
fn lookup_all(d: &Data, rng: &mut fastrand::Rng, n: usize) -> usize {
    (0..n)
        .map(|_| {
            let u = rng.u64(0..USERS) * 2_654_435_761 & 0xffff_ffff;
            find(d, "user_id", u, u, None)
        })
        .sum()
}
#[inline(never)]
fn ten_users(d: &Data, rng: &mut fastrand::Rng, n: usize) -> usize {
    let width = (1u64 << 32) / USERS * 10;
    (0..n)
        .map(|_| {
            let u = rng.u64(0..(1u64 << 32) - width);
            find(d, "user_id", u, u + width, Some(10))
        })
        .sum()
}
#[inline(never)]
fn minute(d: &Data, rng: &mut fastrand::Rng, n: usize, records: u64) -> usize {
    (0..n)
        .map(|_| {
            let u = 1_700_000_000 + rng.u64(0..records / 35 - 60);
            find(d, "created_at", u, u + 59, None)
        })
        .sum()
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let kind: IndexKind = args[0].parse().unwrap();
    let number: u64 = args[1].parse().unwrap();
    let what = args[2].as_str();
    let n: usize = args[3].parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::Os,
        memory_budget: 128 << 20,
        background: false,
        ..Options::default()
    };
    let db = Database::create_or_open(dir.path(), options).unwrap();
    let d = make(&db, kind);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut keys = Vec::new();
    for i in 0..number {
        let (key, text) = record(i, &mut rng);
        keys.push(key);
        put(&d, &text);
    }
    if std::env::var("UPDATES").is_ok() {
        for _ in 0..number {
            let i = rng.u64(..number);
            put(&d, &record(i, &mut rng).1);
        }
    }
    db.flush().unwrap();
    db.group().run_compactions().unwrap();
    for warm in [true, false] {
        let _ = warm;
        let mut rng = fastrand::Rng::with_seed(8);
        if warm {
            ask(&d, what, &keys, &mut rng, n / 4, number);
        } else {
            let before = cpu();
            let found = measured(&d, what, &keys, &mut rng, n, number);
            let used = cpu() - before;
            println!(
                "{kind} {number} {what}: {:.2} found, {:.2} us of CPU time",
                found as f64 / n as f64,
                used.as_secs_f64() * 1e6 / n as f64
            );
        }
    }
}
#[inline(never)]
fn measured(
    d: &Data,
    what: &str,
    keys: &[u64],
    rng: &mut fastrand::Rng,
    n: usize,
    number: u64,
) -> usize {
    ask(d, what, keys, rng, n, number)
}
fn ask(
    d: &Data,
    what: &str,
    keys: &[u64],
    rng: &mut fastrand::Rng,
    n: usize,
    number: u64,
) -> usize {
    match what {
        "get" => gets(d, keys, rng, n),
        "ten" => lookup_ten(d, rng, n),
        "all" => lookup_all(d, rng, n),
        "users" => ten_users(d, rng, n),
        "minute" => minute(d, rng, n, number),
        other => panic!("{other}"),
    }
}
