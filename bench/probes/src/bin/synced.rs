//! How many single synced puts of 540 bytes a second several threads get, beside a bare append with
//! a sync each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::{Database, DatasetDef, Durability, KeyType, Options};

fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).expect("a folder"));
    let seconds: f64 = std::env::args().nth(2).map_or(2.0, |s| s.parse().unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    let text = "x".repeat(500);
    for zeros in [false, true] {
        let path = dir.join("bare");
        let mut file = std::fs::File::create(&path).unwrap();
        if zeros {
            file.write_all(&vec![0; 32 << 20]).unwrap();
            file.sync_all().unwrap();
            use std::io::Seek;
            file.rewind().unwrap();
        }
        let (start, mut n) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < seconds / 2.0 {
            file.write_all(&[1; 600]).unwrap();
            file.sync_data().unwrap();
            n += 1;
        }
        println!(
            "bare, zero-filled {zeros}: {:.0}",
            n as f64 / start.elapsed().as_secs_f64()
        );
        std::fs::remove_file(&path).unwrap();
    }
    for threads in [1, 4, 16, 64] {
        let path = dir.join("store");
        let db = Database::create_or_open(&path, Options::default()).unwrap();
        let def = DatasetDef::new("id", KeyType::Int);
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        let record =
                            format!("{{\"id\":{id},\"user\":{},\"text\":\"{text}\"}}", id % 1000);
                        let mut batch = dataset.batch();
                        batch.put_json(record.as_bytes()).unwrap();
                        batch.durability(Durability::Sync).commit().unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let start = Instant::now();
            std::thread::sleep(Duration::from_secs_f64(seconds));
            let rate = count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            println!("{threads} threads: {rate:.0} a second");
        });
        let syncs = db.group().stats().log_syncs;
        println!(
            "   {:.1} a sync",
            count.load(Ordering::Relaxed) as f64 / syncs as f64
        );
        drop(db);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
