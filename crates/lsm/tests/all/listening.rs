//! Who listens is called for each commit and for each end, and never sleeps beside something to
//! find.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::{DIR, open, small};

use esker_lsm::{Batch, Durability, Error, Group, PlainTrees, Tail, Wake};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

const LONG: Duration = Duration::from_secs(60);

/// A function that counts its calls, and the calls as they come.
fn calls() -> (Arc<Wake>, Receiver<()>) {
    let (sender, receiver) = channel();
    let wake = move || {
        let _ = sender.send(());
    };
    (Arc::new(wake), receiver)
}

fn put(group: &Group, key: &[u8], durability: Durability) -> esker_lsm::Result<u64> {
    let mut batch = Batch::new();
    batch.put(group.tree("t").unwrap(), key, b"value")?;
    group.write(&mut batch, durability)
}

/// The commits that are there by now.
fn all(tail: &mut Tail) -> esker_lsm::Result<usize> {
    let mut count = 0;
    while tail.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_listener_is_called_for_commits_changes_of_trees_and_the_end() {
    let group = open(Arc::new(Memory::new())).unwrap();
    group
        .create_trees(&[("t".into(), vec![]), ("u".into(), vec![])])
        .unwrap();
    let mut tail = group.tail(group.position()).unwrap();
    let (wake, called) = calls();
    let listening = tail.listen(wake).unwrap();
    let (wake, ended) = calls();
    let ends = group.listen_for_end(wake);
    assert_eq!(all(&mut tail).unwrap(), 0);
    put(&group, b"a", Durability::Os).unwrap();
    called.recv_timeout(LONG).unwrap();
    assert_eq!(all(&mut tail).unwrap(), 1);
    group.drop_trees(&[group.tree("u").unwrap()]).unwrap();
    called.recv_timeout(LONG).unwrap();
    // Also called for what it finds nothing of.
    while called.try_recv().is_ok() {}
    assert!(!tail.is_ended() && ended.try_recv().is_err());
    group.close().unwrap();
    called.recv_timeout(LONG).unwrap();
    ended.recv_timeout(LONG).unwrap();
    assert!(tail.is_ended() && group.is_ended());
    assert_eq!(all(&mut tail).unwrap(), 0);
    drop((listening, ends));
}

#[test]
fn a_listener_is_called_when_writes_are_refused_from_then_on() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(Arc::new(fs.clone())).unwrap();
    group.create_trees(&[("t".into(), vec![])]).unwrap();
    put(&group, b"a", Durability::Sync).unwrap();
    let mut tail = group.tail(group.position()).unwrap();
    let (wake, called) = calls();
    let _listening = tail.listen(wake).unwrap();
    fs.set(|call, _| match call {
        Call::Sync => Err(io::Error::other("no")),
        _ => Ok(()),
    });
    put(&group, b"b", Durability::Sync).unwrap_err();
    called.recv_timeout(LONG).unwrap();
    assert!(tail.is_ended());
    assert_eq!(all(&mut tail).unwrap(), 0);
    fs.clear();
}

#[test]
fn a_listener_beside_the_writer_is_called_for_commits_errors_and_the_end() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    group.create_trees(&[("t".into(), vec![])]).unwrap();
    put(&group, b"a", Durability::Os).unwrap();
    let fs = Hooked::new(Arc::new(memory));
    let options = small(Arc::new(fs.clone()));
    let reader = Group::open_reader(Path::new(DIR), options, Arc::new(PlainTrees)).unwrap();
    let mut tail = reader.tail(reader.position()).unwrap();
    let (wake, called) = calls();
    let listening = tail.listen(wake).unwrap();
    assert_eq!(all(&mut tail).unwrap(), 0);
    put(&group, b"b", Durability::Os).unwrap();
    called.recv_timeout(LONG).unwrap();
    assert_eq!(all(&mut tail).unwrap(), 1);
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    fs.set(move |call, _| match call {
        Call::Open | Call::Read => {
            count.fetch_add(1, SeqCst);
            Err(io::Error::other("no"))
        }
        _ => Ok(()),
    });
    called.recv_timeout(LONG).unwrap();
    let error = all(&mut tail).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    // Once, not with each look.
    let before = refused.load(SeqCst);
    while refused.load(SeqCst) < before + 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(called.try_recv().is_err());
    fs.clear();
    put(&group, b"c", Durability::Os).unwrap();
    called.recv_timeout(LONG).unwrap();
    assert_eq!(all(&mut tail).unwrap(), 1);
    reader.close().unwrap();
    called.recv_timeout(LONG).unwrap();
    assert!(tail.is_ended());
    drop(listening);
}
