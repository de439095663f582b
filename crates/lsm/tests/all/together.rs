//! Batched reads through io_uring, when it refuses, fails, truncates or loses them: answers equal
//! those of single reads, or are the error of the file.

use std::path::Path;
use std::sync::Arc;

use esker_lsm::fs::disk::Disk;
use esker_lsm::fs::{Fs, ReadFile, ReadRequest, read_many};
use esker_lsm::{Batch, Cost, Durability, Error, Group, Options, PlainTrees, TreeId};
use esker_sim::faulty::{Faulty, TogetherFault};

const EIO: i32 = 5;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
const ENOSYS: i32 = 38;

/// False, with a message, where the system has no io_uring: nothing can fail then.
fn has_rings(faulty: &Faulty, read: &mut dyn FnMut()) -> bool {
    let before = faulty.reads_together();
    read();
    let has = faulty.reads_together() > before;
    if !has {
        eprintln!("there is no io_uring here: nothing is tested");
    }
    has
}

/// A file of 1 MiB, and reads all over it, together larger than the limit in flight.
struct File {
    _dir: tempfile::TempDir,
    faulty: Faulty,
    file: Arc<dyn ReadFile>,
    bytes: Vec<u8>,
    pieces: Vec<(usize, usize)>,
}

impl File {
    fn new() -> File {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let bytes: Vec<u8> = (0..1 << 20).map(|_| rng.u8(..)).collect();
        let path = dir.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        let faulty = Faulty::new(Arc::new(Disk::new()));
        let pieces = (0..200).map(|_| (rng.usize(..900 << 10), rng.usize(1..40_000)));
        File {
            file: faulty.open(&path).unwrap(),
            pieces: pieces.collect(),
            _dir: dir,
            faulty,
            bytes,
        }
    }

    /// Reads all ranges; returns how many were wrong or failed, and checks that each was visited
    /// once.
    fn failures(&self) -> usize {
        let requests = self.pieces.iter().map(|(offset, len)| ReadRequest {
            file: &*self.file,
            offset: *offset as u64,
            len: *len,
        });
        let requests: Vec<ReadRequest<'_>> = requests.collect();
        let (mut given, mut failed) = (vec![0; requests.len()], 0);
        read_many(&requests, &mut |at, read| {
            given[at] += 1;
            let (offset, len) = self.pieces[at];
            match read {
                Ok(bytes) => assert!(bytes == &self.bytes[offset..offset + len], "piece {at}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(EIO));
                    failed += 1;
                }
            }
        });
        assert!(given.iter().all(|times| *times == 1), "{given:?}");
        failed
    }
}

#[test]
fn failed_batched_reads_are_repeated_one_by_one() {
    let file = File::new();
    if !has_rings(&file.faulty, &mut || assert_eq!(file.failures(), 0)) {
        return;
    }
    let all = file.pieces.len() as u64;
    for error in [EIO, EINTR, EAGAIN] {
        for from in [1, 2, 64, 65, all] {
            let (reads, together) = (file.faulty.reads(), file.faulty.reads_together());
            file.faulty
                .fail_together(TogetherFault::Failed(from, error));
            assert_eq!(file.failures(), 0);
            // Each went to the kernel, and those that failed were read again.
            assert_eq!(file.faulty.reads_together() - together, all);
            assert_eq!(file.faulty.reads() - reads, all - from + 1);
        }
    }
    for bytes in [0, 1, 100, 20_000] {
        file.faulty.fail_together(TogetherFault::Short(1, bytes));
        assert_eq!(file.failures(), 0);
    }
    file.faulty.clear();
    let reads = file.faulty.reads();
    assert_eq!(file.failures(), 0);
    assert_eq!(file.faulty.reads(), reads, "all together again");
}

#[test]
fn a_file_error_is_reported_for_each_read_that_it_hits() {
    let file = File::new();
    if !has_rings(&file.faulty, &mut || assert_eq!(file.failures(), 0)) {
        return;
    }
    for from in [1, 70, file.pieces.len() as u64] {
        let hit = file.pieces.len() + 1 - from as usize;
        file.faulty.fail_together(TogetherFault::Failed(from, EIO));
        file.faulty.fail_reads_from(1);
        assert_eq!(file.failures(), hit);
        file.faulty.clear();
        // One of the repeated reads fails.
        file.faulty.fail_together(TogetherFault::Short(from, 0));
        file.faulty.fail_reads_at(1);
        assert_eq!(file.failures(), 1);
        file.faulty.clear();
        assert_eq!(file.failures(), 0);
    }
}

#[test]
fn a_refused_ring_is_retried_only_after_a_temporary_error() {
    for (error, passes) in [
        (ENOMEM, true),
        (EMFILE, true),
        (ENOSYS, false),
        (EAGAIN, false),
    ] {
        let file = File::new();
        let probe = File::new();
        if !has_rings(&probe.faulty, &mut || assert_eq!(probe.failures(), 0)) {
            return;
        }
        file.faulty.fail_together(TogetherFault::Refused(error));
        assert_eq!(file.failures(), 0);
        assert_eq!(file.faulty.reads_together(), 0);
        file.faulty.clear();
        assert_eq!(file.failures(), 0);
        assert_eq!(file.faulty.reads_together() > 0, passes, "error {error}");
    }
}

/// The memory of reads that may still be in flight is not reused, and neither is the ring.
#[test]
fn a_ring_that_lost_its_reads_is_not_used_again() {
    let file = File::new();
    if !has_rings(&file.faulty, &mut || assert_eq!(file.failures(), 0)) {
        return;
    }
    let together = file.faulty.reads_together();
    file.faulty.fail_together(TogetherFault::Lost(EIO));
    assert_eq!(file.failures(), 0);
    file.faulty.clear();
    assert_eq!(file.failures(), 0);
    assert_eq!(file.faulty.reads_together(), together);
}

const KEYS: u32 = 20_000;

fn value(key: u32) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.into());
    (0..100).map(|_| rng.u8(..)).collect()
}

fn open(dir: &Path, faulty: &Faulty) -> (Group, TreeId) {
    let options = Options {
        fs: Arc::new(faulty.clone()),
        // Next to nothing is cached.
        memory_budget: 1 << 20,
        background: false,
        ..Options::default()
    };
    let group = Group::open(dir, options, Arc::new(PlainTrees), true).unwrap();
    let tree = match group.tree("t") {
        Some(tree) => tree,
        None => group.create_trees(&[("t".into(), vec![])]).unwrap()[0],
    };
    (group, tree)
}

/// Looks up keys far apart, in a store that was just opened: nothing is cached. Faults are active
/// from then until the end.
fn look_up(dir: &Path, faulty: &Faulty, faults: &dyn Fn()) -> esker_lsm::Result<()> {
    let (group, tree) = open(dir, faulty);
    let wanted: Vec<u32> = (0..KEYS).step_by(211).collect();
    let keys: Vec<[u8; 4]> = wanted.iter().map(|key| key.to_be_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let mut found = Vec::new();
    let snapshot = group.snapshot();
    faults();
    let result = snapshot.get_batch(tree, &keys, &mut found, &Cost::default());
    faulty.clear();
    result?;
    for (found, key) in found.iter().zip(wanted) {
        let found = found.as_ref().expect("it was put");
        assert_eq!(*found.value, value(key), "key {key}");
    }
    Ok(())
}

#[test]
fn lookups_are_right_or_fail_with_the_file_whatever_becomes_of_their_reads() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = Faulty::new(Arc::new(Disk::new()));
    let (group, tree) = open(dir.path(), &faulty);
    let mut batch = Batch::new();
    for key in 0..KEYS {
        batch.put(tree, &key.to_be_bytes(), &value(key)).unwrap();
        if batch.bytes() > 100 << 10 {
            group.write(&mut batch, Durability::Os).unwrap();
            batch.clear();
        }
    }
    group.write(&mut batch, Durability::Os).unwrap();
    group.compact(None).unwrap();
    group.close().unwrap();
    drop(group);

    let look_up = |faults: &dyn Fn()| look_up(dir.path(), &faulty, faults);
    if !has_rings(&faulty, &mut || look_up(&|| ()).unwrap()) {
        return;
    }
    for fault in [
        TogetherFault::Failed(1, EIO),
        TogetherFault::Failed(7, EAGAIN),
        TogetherFault::Short(1, 0),
        TogetherFault::Short(3, 700),
    ] {
        let together = faulty.reads_together();
        look_up(&|| faulty.fail_together(fault)).unwrap();
        assert!(faulty.reads_together() > together, "{fault:?}");
        // The disk itself fails, from each read made then on.
        for from in [1, 2, 50] {
            let failed = look_up(&|| {
                faulty.fail_together(fault);
                faulty.fail_reads_from(from);
            });
            let error = failed.expect_err("the disk is gone");
            assert!(matches!(error, Error::Io { .. }), "{error:?}");
            assert!(error.to_string().contains(".tbl"), "{error}");
            look_up(&|| ()).unwrap();
        }
    }
    look_up(&|| faulty.fail_together(TogetherFault::Lost(EIO))).unwrap();
    let together = faulty.reads_together();
    look_up(&|| ()).unwrap();
    assert_eq!(
        faulty.reads_together(),
        together,
        "there is no ring any more"
    );
}
