//! Random sequences of commands beside a model: consumers of one name on two datasets that are
//! killed and restarted, and loads that are killed and resumed. A consumer receives each change at
//! least once, in order, and finally has the same records as its dataset. `ESKER_SEED=17` repeats a
//! run, `ESKER_SEEDS=100` runs this many.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::common::{command, esker, esker_fed};
use fastrand::Rng;
use serde_json::Value;

const DATASETS: [&str; 2] = ["orders", "users"];
/// The name of the program that follows all datasets.
const CONSUMER: &str = "mailer";
const KEYS: u64 = 12;
/// Lines of the file to load.
const LINES: u64 = 2_000;

/// The number in the record, by key.
type Rows = BTreeMap<i64, u64>;

struct Run {
    rng: Rng,
    folder: PathBuf,
    store: String,
    number: u64,
    rows: [Rows; 2],
    /// The state that the consumer has built from the changes.
    copies: [Option<Rows>; 2],
}

fn pair(record: &Value) -> (i64, u64) {
    let id = record["id"].as_i64().expect("a key");
    (id, record["n"].as_u64().expect("a number"))
}

impl Run {
    fn new(seed: u64, folder: &Path) -> Run {
        let run = Run {
            rng: Rng::with_seed(seed),
            folder: folder.to_path_buf(),
            store: folder.join("store").display().to_string(),
            number: 0,
            rows: Default::default(),
            copies: [None, None],
        };
        for name in DATASETS {
            esker(&["create", &run.store, name, "--key", "id:int"]).expect(0);
        }
        run
    }

    fn record(&mut self, which: usize) -> String {
        let id = self.rng.i64(0..KEYS as i64);
        self.number += 1;
        self.rows[which].insert(id, self.number);
        format!("{{\"id\":{id},\"n\":{}}}\n", self.number)
    }

    fn put(&mut self, which: usize) {
        let count = self.rng.usize(1..8);
        let lines: String = (0..count).map(|_| self.record(which)).collect();
        let args = ["put", &self.store, DATASETS[which]];
        let folder = self.folder.clone();
        esker_fed(&args, &folder, |input| {
            input.write_all(lines.as_bytes()).unwrap();
        })
        .expect(0);
    }

    fn delete(&mut self, which: usize) {
        let Some(id) = self.rows[which].keys().next().copied() else {
            return;
        };
        self.rows[which].remove(&id);
        let id = id.to_string();
        esker(&["delete", &self.store, DATASETS[which], &id]).expect(0);
    }

    /// Loads a file, is killed at a report or at once, and is run again until the load is complete.
    /// The consumer also sees the states in between.
    fn load(&mut self, which: usize) {
        let mut text = String::new();
        for _ in 0..LINES {
            let record = self.record(which);
            let _ = text.write_str(&record);
        }
        let file = self.folder.join(format!("{}.ndjson", self.number));
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let store = self.store.clone();
        let args = ["load", &store, DATASETS[which], &file];
        let args = [&args[..], &["--progress", "json"]].concat();
        for _ in 0..self.rng.usize(0..3) {
            let mut child = command(&args).spawn().unwrap();
            let reports = BufReader::new(child.stderr.take().unwrap()).lines();
            let _ = reports.take(self.rng.usize(0..3)).count();
            let _ = child.kill();
            child.wait().unwrap();
            if self.rng.bool() {
                self.consume(which);
            }
        }
        esker(&args).expect(0);
        assert_eq!(self.scanned(which), self.rows[which], "after a load");
    }

    fn scanned(&self, which: usize) -> Rows {
        let scan = esker(&["scan", &self.store, DATASETS[which]]);
        let is_empty = scan.stdout.is_empty();
        let scan = scan.expect(i32::from(is_empty));
        scan.rows().iter().map(pair).collect()
    }

    /// The consumer applies changes in order; some may be repeated.
    fn apply(&mut self, which: usize, lines: &str) {
        let copy = self.copies[which].as_mut().unwrap();
        let mut before = 0;
        // The last line of a killed process may be incomplete.
        for line in lines
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let change: Value = serde_json::from_str(line).expect(line);
            let seq = change["seq"].as_u64().unwrap();
            assert!(before < seq, "{seq} behind {before}");
            before = seq;
            match change.get("record") {
                Some(record) => {
                    let (id, n) = pair(record);
                    copy.insert(id, n);
                }
                None => drop(copy.remove(&change["key"].as_i64().unwrap())),
            }
        }
    }

    /// The consumer reads all changes, or is killed while it reads.
    fn consume(&mut self, which: usize) {
        if self.copies[which].is_none() || self.rng.usize(0..3) > 0 {
            return self.consume_all(which);
        }
        let args = ["changes", &self.store, DATASETS[which]];
        let args = [&args[..], &["--consumer", CONSUMER]].concat();
        let mut child = command(&args).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut read = String::new();
        for _ in 0..self.rng.usize(0..5) {
            output.read_line(&mut read).unwrap();
        }
        let _ = child.kill();
        child.wait().unwrap();
        // Lines written before the kill count as read.
        output.read_to_string(&mut read).unwrap();
        self.apply(which, &read);
    }

    fn consume_all(&mut self, which: usize) {
        let args = ["changes", &self.store, DATASETS[which]];
        let args = [&args[..], &["--consumer", CONSUMER]].concat();
        let is_new = self.copies[which].is_none();
        let read = esker(&args);
        let found = i32::from(read.stdout.is_empty() && !is_new);
        let read = read.expect(found);
        let there = self.scanned(which);
        if is_new {
            assert!(read.stderr.contains("is new"), "{}", read.stderr);
            self.copies[which] = Some(there);
            return;
        }
        self.apply(which, &read.stdout);
        let copy = self.copies[which].as_ref();
        assert_eq!(copy, Some(&there), "{}", DATASETS[which]);
    }

    fn forget(&mut self, which: usize) {
        let args = ["changes", &self.store, DATASETS[which]];
        let args = [&args[..], &["--consumer", CONSUMER, "--forget"]].concat();
        let code = match self.copies[which].take() {
            Some(_) => 0,
            None => 2,
        };
        esker(&args).expect(code);
    }

    fn live(&mut self) {
        for _ in 0..30 {
            let which = self.rng.usize(0..2);
            match self.rng.usize(0..16) {
                0..=4 => self.put(which),
                5 => self.delete(which),
                6 => self.load(which),
                7 => drop(esker(&["compact", &self.store, DATASETS[which]]).expect(0)),
                8 => self.forget(which),
                _ => self.consume(which),
            }
        }
        for which in 0..2 {
            assert_eq!(self.scanned(which), self.rows[which]);
            self.consume_all(which);
        }
        esker(&["check", &self.store]).expect(0);
    }
}

#[test]
fn consumers_of_two_datasets_and_killed_loads_lose_nothing() {
    let number = |name: &str, usual| {
        let said = std::env::var(name).ok();
        said.map_or(usual, |said| said.parse::<u64>().unwrap())
    };
    let (first, count) = (number("ESKER_SEED", 0), number("ESKER_SEEDS", 4));
    for seed in first..first + count {
        println!("ESKER_SEED={seed}");
        let dir = tempfile::tempdir().unwrap();
        Run::new(seed, dir.path()).live();
    }
}
