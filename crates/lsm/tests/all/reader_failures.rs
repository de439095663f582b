//! Readers beside the writer whose reads fail, or that the writer overtakes between two of them: a
//! refresh that fails changes nothing that is shown, and one that succeeds shows everything
//! acknowledged, and nothing else.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::reader::{contents, put, read_from, see_the_same, write_to};
use crate::common::{DIR, small};
use esker_lsm::{
    Batch, Durability, Error, Group, PlainTrees, Result, Ticket, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

fn create(group: &Group, name: &str) -> TreeId {
    group.create_trees(&[(name.into(), vec![])]).unwrap()[0]
}

fn hooked_reader(fs: &Memory) -> (Hooked, Group) {
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let reader = read_from(Arc::new(hooked.clone())).unwrap();
    (hooked, reader)
}

fn is(path: &Path, name: &str) -> bool {
    let path = path.file_name().and_then(|name| name.to_str());
    path.is_some_and(|path| path.contains(name))
}

/// Knows the trees called `x/...` only later.
#[derive(Default)]
struct Program(AtomicBool);

impl TreeProvider for Program {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        if name.starts_with("x/") && !self.0.load(Ordering::SeqCst) {
            return Err(Error::Unsupported("extension `x` is not registered".into()));
        }
        Ok(TreeOptions::default())
    }
}

#[test]
fn a_change_that_a_reader_cannot_apply_is_an_error_of_each_refresh() {
    let fs = Memory::new();
    let writer = write_to(&fs);
    let tree = create(&writer, "t");
    put(&writer, tree, b"a", b"1", Durability::Os);
    writer.flush().unwrap();
    put(&writer, tree, b"b", b"2", Durability::Os);
    let program = Arc::new(Program::default());
    let options = small(Arc::new(fs.clone()));
    let reader = Group::open_reader(Path::new(DIR), options, program.clone()).unwrap();
    create(&writer, "x/1");
    for round in 0..3 {
        let refused = reader.refresh();
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
        let seen = contents(&reader.snapshot());
        assert_eq!(seen["t"].len(), 2, "round {round}");
        if round > 0 {
            put(&writer, tree, &[round], b"3", Durability::Os);
        }
    }
    program.0.store(true, Ordering::SeqCst);
    see_the_same(&reader, &writer);
}

/// Any one call of a refresh fails. The edits of the manifest are read in several chunks.
#[test]
fn a_reader_sees_everything_after_any_failure() {
    let kinds = [
        io::ErrorKind::NotFound,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::Other,
    ];
    for kind in kinds {
        for failing in 1.. {
            let fs = Memory::new();
            let writer = write_to(&fs);
            let tree = create(&writer, "t");
            put(&writer, tree, b"a", b"1", Durability::Os);
            writer.flush().unwrap();
            let (hooked, reader) = hooked_reader(&fs);
            put(&writer, tree, b"b", b"2", Durability::Sync);
            writer.flush().unwrap();
            for name in ["c", "d", "e", "f"] {
                writer
                    .create_trees(&[(name.into(), vec![7; 6000])])
                    .unwrap();
            }
            put(&writer, tree, b"c", b"3", Durability::Sync);
            let calls = Arc::new(AtomicU64::new(0));
            let count = calls.clone();
            hooked.set(move |_, _| match count.fetch_add(1, Ordering::SeqCst) + 1 {
                now if now == failing => Err(kind.into()),
                _ => Ok(()),
            });
            if reader.refresh().is_err() {
                reader.refresh().unwrap();
            }
            let last = calls.load(Ordering::SeqCst) < failing;
            hooked.clear();
            assert_eq!(reader.position(), writer.position(), "{kind:?}, {failing}");
            let (seen, there) = (reader.snapshot(), writer.snapshot());
            assert_eq!(contents(&seen), contents(&there), "{kind:?}, {failing}");
            if last {
                assert!(failing > 8, "{failing}");
                break;
            }
        }
    }
}

/// A read of the manifest fails behind edits that were applied, and what follows them is an edit
/// that is not durable yet: the refresh tries again, and finds nothing more to apply.
#[test]
fn edits_that_were_applied_before_a_failure_are_shown() {
    let mut failed = 0;
    for failing in 1..6 {
        let fs = Memory::new();
        let below = Hooked::new(Arc::new(fs.clone()));
        let options = small(Arc::new(below.clone()));
        let writer = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
        create(&writer, "t");
        let (hooked, reader) = hooked_reader(&fs);
        let new = |name: &str| {
            let trees = [(name.into(), vec![7; 6000])];
            writer.create_trees(&trees).unwrap();
        };
        new("c");
        new("d");
        let reads = Arc::new(AtomicU64::new(0));
        let count = reads.clone();
        hooked.set(move |call, path| {
            let is_read = call == Call::Read && is(path, "MANIFEST");
            if is_read && count.fetch_add(1, Ordering::SeqCst) + 1 == failing {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(())
        });
        let shown = Arc::new(Mutex::new(Vec::new()));
        let names = shown.clone();
        below.set(move |call, path| {
            if call == Call::Sync && is(path, "MANIFEST") {
                reader.refresh().unwrap();
                let trees = contents(&reader.snapshot()).into_keys();
                *names.lock().unwrap() = trees.collect();
            }
            Ok(())
        });
        new("e");
        below.clear();
        failed += u64::from(reads.load(Ordering::SeqCst) >= failing);
        assert_eq!(*shown.lock().unwrap(), ["c", "d", "t"], "{failing}");
    }
    assert!(failed > 1, "{failed}");
}

fn append(group: &Group, tree: TreeId, key: &[u8]) -> Ticket {
    let mut batch = Batch::new();
    batch.put(tree, key, b"waits").unwrap();
    group.append(&mut batch, Durability::Sync).unwrap()
}

/// A writer that goes on in another manifest gives up the lock of the one that a reader has read.
#[test]
fn a_writer_that_renews_its_manifest_is_not_gone() {
    let fs = Memory::new();
    let writer = Arc::new(write_to(&fs));
    let tree = create(&writer, "t");
    // Long keys make long edits.
    put(&writer, tree, &[b'a'; 1000], b"1", Durability::Sync);
    writer.flush().unwrap();
    let (hooked, reader) = hooked_reader(&fs);
    let ticket = append(&writer, tree, b"b");
    let manifests = |fs: &Memory| {
        let paths = fs.paths().into_iter();
        paths
            .filter(|path| is(path, "MANIFEST"))
            .collect::<Vec<_>>()
    };
    let (first, renews) = (AtomicBool::new(true), writer.clone());
    let before = manifests(&fs);
    hooked.set(move |call, path| {
        if call == Call::Read && is(path, ".log") && first.swap(false, Ordering::SeqCst) {
            while manifests(&fs) == before {
                renews.rewrite_table(tree, &|_| true).unwrap().unwrap();
            }
        }
        Ok(())
    });
    reader.refresh().unwrap();
    assert_eq!(reader.position(), writer.position());
    assert_eq!(contents(&reader.snapshot())["t"].len(), 1);
    writer.acknowledge(ticket).unwrap();
    see_the_same(&reader, &writer);
    hooked.clear();
}

/// A writer begins after a reader has read that the store was closed.
#[test]
fn a_writer_that_begins_meanwhile_is_not_gone() {
    let fs = Memory::new();
    let first = write_to(&fs);
    let tree = create(&first, "t");
    put(&first, tree, b"a", b"1", Durability::Sync);
    first.close().unwrap();
    let (hooked, reader) = hooked_reader(&fs);
    let writer = Arc::new(write_to(&fs));
    let (begins, other) = (AtomicBool::new(true), writer.clone());
    let ticket = Arc::new(Mutex::new(None));
    let taken = ticket.clone();
    hooked.set(move |call, path| {
        // The open file is the one that was replaced.
        if call == Call::Read && is(path, "CURRENT") && begins.swap(false, Ordering::SeqCst) {
            *taken.lock().unwrap() = Some(append(&other, tree, b"b"));
        }
        Ok(())
    });
    reader.refresh().unwrap();
    assert_eq!(reader.position(), writer.position());
    assert_eq!(contents(&reader.snapshot())["t"].len(), 1);
    let ticket = ticket.lock().unwrap().take().unwrap();
    writer.acknowledge(ticket).unwrap();
    see_the_same(&reader, &writer);
    hooked.clear();
}
