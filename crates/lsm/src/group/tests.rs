//! Threads that are not there.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::Group;
use crate::batch::Batch;
use crate::fs::memory::{Memory, PowerCut};
use crate::options::{Durability, Options, PlainTrees};

/// A group whose threads could not be started: where some thread is held, no others are started.
fn without_threads(memory: &Memory) -> Group {
    let options = Options {
        fs: Arc::new(memory.clone()),
        memory_budget: 1,
        background: true,
        ..Options::default()
    };
    let group = Group::open(Path::new("/store"), options, Arc::new(PlainTrees), true).unwrap();
    group.threads.lock().push(std::thread::spawn(|| {}));
    group
}

#[test]
fn writers_do_without_the_threads() {
    let memory = Memory::new();
    let store = memory.clone();
    let (done, ended) = mpsc::channel();
    let work = std::thread::spawn(move || {
        let group = without_threads(&store);
        let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
        let mut batch = Batch::new();
        for n in 0..2000_u32 {
            batch.clear();
            batch.put(tree, &n.to_be_bytes(), &[1; 500]).unwrap();
            group.write(&mut batch, Durability::Os).unwrap();
        }
        let runs = group.snapshot().version().trees[&tree].runs.len();
        batch.clear();
        batch.put(tree, b"last", b"").unwrap();
        let hour = Durability::Periodic(Duration::from_secs(3600));
        group.write(&mut batch, hour).unwrap();
        done.send((group, tree, runs)).unwrap();
    });
    let (group, tree, runs) = ended.recv_timeout(Duration::from_secs(60)).unwrap();
    work.join().unwrap();
    assert!((1..8).contains(&runs), "{runs} runs: nobody merges");
    // Nobody would have synced it later.
    let left = Options {
        fs: Arc::new(memory.power_cut(0, PowerCut::Lost)),
        ..Options::default()
    };
    let left = Group::open(Path::new("/store"), left, Arc::new(PlainTrees), false).unwrap();
    let found = left.snapshot().get(tree, b"last", &crate::Cost::default());
    assert!(found.unwrap().is_some());
    group.close().unwrap();
}
