//! Jobs that others overtake, or that fail half-way: flushes beside bulk loads, backups into one
//! folder, compactions beside a change of their tree.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{Builder, current, scope};

use super::reader::{contents, put};
use crate::common::{DIR, small};
use esker_lsm::{Batch, Durability, Group, Options, PlainTrees, TreeProvider};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "tbl")
}

/// Each tree has its own files.
fn open(fs: &Hooked, provider: Arc<dyn TreeProvider>) -> Group {
    let options = Options {
        share_from: usize::MAX,
        ..small(Arc::new(fs.clone()))
    };
    Group::open(Path::new(DIR), options, provider, true).unwrap()
}

/// Stops the thread called `name` where it creates its first table: returns the end that learns of
/// it, and the one that lets it go on.
fn stop_at_a_table(fs: &Hooked, name: &'static str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (stops, stopped) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let (first, wait) = (AtomicBool::new(true), Mutex::new(wait));
    fs.set(move |call, path| {
        let is_there = call == Call::Create && is_table(path) && current().name() == Some(name);
        if is_there && first.swap(false, Ordering::SeqCst) {
            stops.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        }
        Ok(())
    });
    (stopped, go)
}

/// A flush begins during a bulk load, and reaches the tree of the load only after that has ended.
#[test]
fn a_flush_that_a_bulk_load_overtakes_keeps_its_tombstones() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(&fs, Arc::new(PlainTrees));
    let names = ["first", "loaded"].map(|name| (name.to_string(), vec![]));
    let trees = group.create_trees(&names).unwrap();
    let keys: Vec<Vec<u8>> = (0..100_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let (stopped, go) = stop_at_a_table(&fs, "flush");
    scope(|scope| {
        let mut entries = keys.iter().enumerate().map(|(at, key)| {
            if at == 50 {
                let mut batch = Batch::new();
                batch.put(trees[0], b"k", b"v")?;
                batch.delete(trees[1], &keys[10])?;
                group.write(&mut batch, Durability::Os)?;
                let flush = Builder::new().name("flush".to_string());
                flush
                    .spawn_scoped(scope, || group.flush().unwrap())
                    .unwrap();
                stopped.recv().unwrap();
            }
            Ok((key.as_slice(), &b"loaded"[..]))
        });
        assert_eq!(group.ingest(trees[1], &mut entries).unwrap(), 100);
        go.send(()).unwrap();
    });
    for _ in 0..2 {
        let found = &contents(&group.snapshot())["loaded"];
        assert_eq!(found.len(), 99);
        assert!(!found.iter().any(|(key, _)| *key == keys[10]));
        group.compact(None).unwrap();
    }
}
