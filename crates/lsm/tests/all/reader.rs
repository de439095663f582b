//! Readers beside the writer: at each refresh they see everything acknowledged, whatever the writer
//! does with its files meanwhile; they write nothing, take no lock, and see nothing that the writer
//! itself does not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{DIR, Doing, bytes, is_mapped, seeds, small};
use esker_lsm::fs::Fs;
use esker_lsm::fs::disk::Disk;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, KeepLog, Options, PlainTrees, Snapshot, Tail,
    TreeId,
};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

const POLL: Duration = Duration::from_secs(1);

fn options(fs: &Memory) -> Options {
    Options {
        keep_log: KeepLog {
            bytes: 3000,
            age: None,
        },
        ..small(Arc::new(fs.clone()))
    }
}

pub(crate) fn write_to(fs: &Memory) -> Group {
    Group::open(Path::new(DIR), options(fs), Arc::new(PlainTrees), true).unwrap()
}

pub(crate) fn read_from(fs: Arc<dyn Fs>) -> esker_lsm::Result<Group> {
    Group::open_reader(Path::new(DIR), small(fs), Arc::new(PlainTrees))
}

/// A reader that maps tables or does not: the writer removes them beside it.
fn reader_of(fs: &Memory, seed: u64) -> Group {
    let options = Options {
        mapped_reads: is_mapped(seed),
        ..small(Arc::new(fs.clone()))
    };
    Group::open_reader(Path::new(DIR), options, Arc::new(PlainTrees)).unwrap()
}

fn reader(fs: &Memory) -> Group {
    read_from(Arc::new(fs.clone())).unwrap()
}

pub(crate) fn put(group: &Group, tree: TreeId, key: &[u8], value: &[u8], how: Durability) {
    let mut batch = Batch::new();
    batch.put(tree, key, value).unwrap();
    group.write(&mut batch, how).unwrap();
}

pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A reader, its tail, and the numbers and keys that it returned.
type Reader = (Arc<Group>, Tail, Vec<(u64, Vec<u8>)>);

/// Everything visible in a snapshot, by the names of its trees.
pub(crate) fn contents(snapshot: &Snapshot) -> BTreeMap<String, Entries> {
    let cost = Cost::default();
    let trees = snapshot.version().trees.values();
    trees
        .map(|tree| {
            let mut found = Vec::new();
            let mut cursor = snapshot.cursor(tree.id, 0);
            cursor.seek_first().unwrap();
            while cursor.valid() {
                found.push((cursor.key().to_vec(), cursor.value().to_vec()));
                cursor.next().unwrap();
            }
            for (key, value) in found.iter().step_by(7) {
                let got = snapshot.get(tree.id, key, &cost).unwrap().unwrap();
                assert_eq!(&got.value[..], &value[..]);
            }
            (tree.name.clone(), found)
        })
        .collect()
}

pub(crate) fn see_the_same(reader: &Group, writer: &Group) {
    reader.refresh().unwrap();
    assert_eq!(reader.position(), writer.position());
    assert_eq!(contents(&reader.snapshot()), contents(&writer.snapshot()));
}

#[test]
fn a_reader_sees_what_is_acknowledged_and_writes_nothing() {
    let fs = Memory::new();
    let writer = write_to(&fs);
    let tree = writer.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    put(&writer, tree, b"a", b"1", Durability::Os);
    put(&writer, tree, b"b", b"2", Durability::Sync);
    let before = fs.paths();
    let reader = reader(&fs);
    see_the_same(&reader, &writer);
    assert!(reader.is_reader() && !writer.is_reader());
    put(&writer, tree, b"c", b"3", Durability::Os);
    // Not before a refresh.
    assert_eq!(contents(&reader.snapshot())["t"].len(), 2);
    see_the_same(&reader, &writer);

    let mut batch = Batch::new();
    batch.put(tree, b"d", b"4").unwrap();
    let refused = [
        reader.write(&mut batch, Durability::Os).map(|_| ()),
        reader.sync(),
        reader.flush(),
        reader.compact(None),
        reader.create_trees(&[("u".into(), vec![])]).map(|_| ()),
        reader.drop_trees(&[tree]),
    ];
    for (at, refused) in refused.iter().enumerate() {
        assert!(matches!(refused, Err(Error::ReadOnly)), "{at}: {refused:?}");
    }
    reader.close().unwrap();
    assert!(matches!(reader.refresh(), Err(Error::Closed)));
    assert_eq!(fs.paths(), before);
    put(&writer, tree, b"d", b"4", Durability::Os);
}

/// The writer ends after a write that a reader has not read yet; the next one begins its own
/// segment behind that, and where the disk has no room does not flush the earlier one.
#[test]
fn a_reader_that_is_behind_finds_the_log_of_the_next_writer() {
    let mut written = 0;
    for room in (0..4000).step_by(50) {
        let fs = Memory::new();
        let first = write_to(&fs);
        let tree = first.create_trees(&[("t".into(), vec![])]).unwrap()[0];
        put(&first, tree, b"a", b"1", Durability::Os);
        let reader = reader(&fs);
        see_the_same(&reader, &first);
        put(&first, tree, b"b", b"2", Durability::Os);
        drop(first);
        let faulty = Faulty::new(Arc::new(fs.clone()));
        let options = Options {
            fs: Arc::new(faulty.clone()),
            ..options(&fs)
        };
        let open = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), false);
        let second = open.unwrap();
        faulty.set_capacity(faulty.used() + room);
        let mut batch = Batch::new();
        batch.put(tree, b"c", b"3").unwrap();
        if second.write(&mut batch, Durability::Os).is_ok() {
            written += 1;
            see_the_same(&reader, &second);
        }
    }
    assert!(written > 10);
}

#[test]
fn there_must_be_a_store() {
    let fs = Memory::new();
    assert!(matches!(
        read_from(Arc::new(fs.clone())),
        Err(Error::NoStore { .. })
    ));
    assert!(fs.paths().is_empty());
}

/// Writes that wait for a sync are not visible, nor are later ones; nor ever if the sync fails.
#[test]
fn what_is_not_acknowledged_is_not_seen() {
    for fails in [false, true] {
        let memory = Memory::new();
        let fs = Faulty::new(Arc::new(memory.clone()));
        let settings = Options {
            fs: Arc::new(fs.clone()),
            ..options(&memory)
        };
        let writer = Group::open(Path::new(DIR), settings, Arc::new(PlainTrees), true).unwrap();
        let tree = writer.create_trees(&[("t".into(), vec![])]).unwrap()[0];
        put(&writer, tree, b"a", b"1", Durability::Os);
        let early = reader(&memory);
        let mut tickets = Vec::new();
        for (key, how) in [(b"b", Durability::Sync), (b"c", Durability::Os)] {
            let mut batch = Batch::new();
            batch.put(tree, key, b"2").unwrap();
            tickets.push(writer.append(&mut batch, how).unwrap());
        }
        let late = reader(&memory);
        for reader in [&early, &late] {
            see_the_same(reader, &writer);
            assert_eq!(contents(&reader.snapshot())["t"].len(), 1);
        }
        if fails {
            fs.fail_sync_once();
        }
        let settled = tickets.into_iter().map(|ticket| writer.acknowledge(ticket));
        let settled: Vec<_> = settled.map(|settled| settled.is_ok()).collect();
        assert_eq!(settled, [!fails; 2]);
        for reader in [&early, &late, &reader(&memory)] {
            see_the_same(reader, &writer);
            let there = if fails { 1 } else { 3 };
            assert_eq!(contents(&reader.snapshot())["t"].len(), there);
        }
    }
}

/// The marker of a sync that was running when the log moved on to another segment is at the end of
/// the earlier one.
#[test]
fn what_was_synced_beside_the_end_of_a_segment_is_seen() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let settings = Options {
        fs: Arc::new(fs.clone()),
        background: true,
        ..options(&memory)
    };
    let writer = Group::open(Path::new(DIR), settings, Arc::new(PlainTrees), true);
    let writer = Arc::new(writer.unwrap());
    let tree = writer.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    put(&writer, tree, b"a", b"1", Durability::Sync);
    let early = Arc::new(reader(&memory));
    let is_log = |path: &Path| path.extension().is_some_and(|e| e == "log");
    let logs = {
        let memory = memory.clone();
        move || {
            let names = memory.list(Path::new(DIR)).unwrap();
            names.iter().filter(|name| is_log(Path::new(name))).count()
        }
    };
    let (before, held, flushes) = (logs(), AtomicBool::new(true), AtomicBool::new(true));
    let (go, wait) = mpsc::channel::<()>();
    let (wait, late) = (Mutex::new(wait), Arc::new(Mutex::new(None)));
    let tickets = Arc::new(Mutex::new(Vec::new()));
    let (other, opened, beside, behind) =
        (writer.clone(), late.clone(), early.clone(), tickets.clone());
    fs.set(move |call, path| {
        if call == Call::Sync && is_log(path) && held.swap(false, Ordering::SeqCst) {
            let mut tickets = Vec::new();
            while logs() == before {
                let mut batch = Batch::new();
                batch.put(tree, b"c", &[3; 500]).unwrap();
                tickets.push(other.append(&mut batch, Durability::Os).unwrap());
            }
            *behind.lock().unwrap() = tickets;
            beside.refresh().unwrap();
            *opened.lock().unwrap() = Some(reader(&memory));
        } else if call == Call::Create && !is_log(path) && flushes.swap(false, Ordering::SeqCst) {
            // Flushed writes are visible anyway.
            let _ = wait.lock().unwrap().recv();
        }
        Ok(())
    });
    put(&writer, tree, b"b", b"2", Durability::Sync);
    let tickets = std::mem::take(&mut *tickets.lock().unwrap());
    for ticket in tickets {
        writer.acknowledge(ticket).unwrap();
    }
    let late = late.lock().unwrap().take().unwrap();
    for reader in [&*early, &late] {
        see_the_same(reader, &writer);
        assert_eq!(contents(&reader.snapshot())["t"].len(), 3);
    }
    drop(go);
    fs.clear();
}

/// Without a writer, a reader sees what an opening would: no write waits any more.
#[test]
fn what_a_dead_writer_left_is_seen() {
    let fs = Memory::new();
    let writer = write_to(&fs);
    let tree = writer.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    put(&writer, tree, b"a", b"1", Durability::Os);
    let mut batch = Batch::new();
    batch.put(tree, b"b", b"2").unwrap();
    writer.append(&mut batch, Durability::Sync).unwrap();
    for mode in [
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Lost,
        PowerCut::Reordered,
    ] {
        for seed in 0..20 {
            let left = fs.power_cut(seed, mode);
            let reader = reader(&left);
            let seen = contents(&reader.snapshot());
            see_the_same(&reader, &write_to(&left.power_cut(0, PowerCut::Kept)));
            // Another writer continues from there.
            let writer = write_to(&left);
            assert_eq!(contents(&writer.snapshot()), seen);
            see_the_same(&reader, &writer);
            put(&writer, tree, b"c", b"3", Durability::Os);
            see_the_same(&reader, &writer);
        }
    }
}

#[test]
fn another_store_in_the_same_place_is_detected() {
    let fs = Memory::new();
    let writer = write_to(&fs);
    let tree = writer.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    put(&writer, tree, b"a", b"1", Durability::Os);
    let reader = reader(&fs);
    let seen = contents(&reader.snapshot());
    drop(writer);
    for path in fs.paths() {
        fs.remove(&path).unwrap();
    }
    for name in ["u", "v", "w"] {
        // Each writing handle has its own manifest.
        write_to(&fs)
            .create_trees(&[(name.into(), vec![])])
            .unwrap();
    }
    assert!(matches!(reader.refresh(), Err(Error::OtherHistory { .. })));
    assert_eq!(contents(&reader.snapshot()), seen);
}

/// Reads from a reader's tail, and restarts it where it must continue when it was too slow.
fn follow(tail: &mut Tail, reader: &Group, given: &mut Vec<(u64, Vec<u8>)>) {
    loop {
        match tail.next() {
            Ok(Some(commit)) => {
                commit.each(&mut |_, seq, _, key, _| given.push((seq, key.to_vec())))
            }
            Ok(None) => return,
            Err(Error::PositionExpired { .. }) => {
                // The log may be shorter by the next attempt.
                reader.refresh().unwrap();
                let oldest = reader.oldest_position();
                given.retain(|(seq, _)| *seq > oldest.seq);
                *tail = reader.tail(oldest).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Random work of a writer, and readers that open, read and close.
#[test]
fn readers_agree_with_the_writer_whatever_it_does() {
    for seed in seeds(60) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut fs = Memory::new();
        let mut writer = write_to(&fs);
        writer.create_trees(&[("0".into(), vec![])]).unwrap();
        let mut readers: Vec<Reader> = Vec::new();
        let mut held = Vec::new();
        let mut written: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in 0..200_u32 {
            let trees: Vec<TreeId> = writer.snapshot().version().trees.keys().copied().collect();
            match rng.u8(..24) {
                0..=9 => {
                    let mut batch = Batch::new();
                    let count = rng.usize(1..4);
                    let mut keys = Vec::new();
                    for _ in 0..count {
                        let key = rng.u16(..40).to_be_bytes();
                        let tree = trees[rng.usize(..trees.len())];
                        match rng.u8(..4) {
                            0 => batch.delete(tree, &key).unwrap(),
                            _ => batch
                                .put(tree, &key, &bytes(&mut rng, step as usize))
                                .unwrap(),
                        }
                        keys.push(key.to_vec());
                    }
                    let how = [Durability::Os, Durability::Sync][rng.usize(..2)];
                    let last = writer.write(&mut batch, how).unwrap();
                    let first = last + 1 - count as u64;
                    written.extend((first..).zip(keys));
                }
                10 | 11 => writer.flush().unwrap(),
                12 => writer.compact(None).unwrap(),
                13 => {
                    let name = format!("t{step}");
                    writer.create_trees(&[(name, vec![])]).unwrap();
                }
                14 if trees.len() > 1 => {
                    writer
                        .drop_trees(&[trees[rng.usize(..trees.len())]])
                        .unwrap();
                }
                15 => {
                    // Behind all existing keys.
                    let key = (1000 + step).to_be_bytes();
                    let mut run = [(&key[..], &b"run"[..])].into_iter().map(Ok);
                    let _ = writer.ingest(trees[0], &mut run);
                }
                16 => {
                    writer.close().unwrap();
                    drop(writer);
                    if rng.bool() && !readers.is_empty() {
                        readers[0].0.refresh().unwrap();
                    }
                    writer = write_to(&fs);
                }
                17 if rng.u8(..4) == 0 => {
                    let mode = [PowerCut::Lost, PowerCut::Kept, PowerCut::Torn][rng.usize(..3)];
                    let left = fs.power_cut(rng.u64(..), mode);
                    drop(writer);
                    (readers, fs) = (Vec::new(), left);
                    if rng.bool() {
                        let reader = Arc::new(reader_of(&fs, seed));
                        let tail = reader.tail(reader.position()).unwrap();
                        readers.push((reader, tail, Vec::new()));
                    }
                    writer = write_to(&fs);
                    let now = writer.position().seq;
                    written.retain(|(seq, _)| *seq <= now);
                }
                18 => {
                    let reader = Arc::new(reader_of(&fs, seed));
                    let tail = reader.tail(reader.position()).unwrap();
                    readers.push((reader, tail, Vec::new()));
                }
                19 if readers.len() > 2 => drop(readers.remove(0)),
                20 => {
                    if let Some((reader, ..)) = readers.first() {
                        let snapshot = reader.snapshot();
                        held.push((contents(&snapshot), snapshot, Arc::downgrade(reader)));
                    }
                }
                _ => {
                    if let Some((reader, tail, given)) = readers.last_mut() {
                        if rng.bool() {
                            follow(tail, reader, given);
                            let from = given.first().map_or(u64::MAX, |(seq, _)| *seq);
                            let rest = written.iter().filter(|(seq, _)| *seq >= from);
                            assert_eq!(given, &rest.cloned().collect::<Vec<_>>());
                        }
                        see_the_same(reader, &writer);
                    }
                }
            }
        }
        for (reader, ..) in &readers {
            see_the_same(reader, &writer);
        }
        // Held snapshots do not change, though the files are long removed, until their reader is
        // closed.
        for (seen, snapshot, reader) in &held {
            match reader.strong_count() {
                0 => {
                    let gone = snapshot.get(1, b"", &Cost::default());
                    assert!(matches!(gone, Err(Error::Closed)), "{gone:?}");
                }
                _ => assert_eq!(&contents(snapshot), seen),
            }
        }
    }
}

/// A reader and its tail at full speed beside a writer whose flushes and compactions constantly
/// remove files.
#[test]
fn a_reader_beside_a_busy_writer_on_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let settings = || Options {
        background: true,
        memory_budget: 1 << 20,
        ..small(Arc::new(Disk::new()))
    };
    let writer = Group::open(dir.path(), settings(), Arc::new(PlainTrees), true).unwrap();
    let trees = writer
        .create_trees(&[("a".into(), vec![]), ("b".into(), vec![])])
        .unwrap();
    let reader = Group::open_reader(dir.path(), settings(), Arc::new(PlainTrees)).unwrap();
    let mut tail = reader.tail(reader.position()).unwrap();
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let total = 6000_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..total {
                let mut batch = Batch::new();
                // For each number a pair, and one key with their count.
                batch
                    .put(trees[0], &n.to_be_bytes(), &[n as u8; 200])
                    .unwrap();
                batch
                    .put(trees[1], &n.to_be_bytes(), &[n as u8; 100])
                    .unwrap();
                batch
                    .put(trees[0], b"count", &(n + 1).to_be_bytes())
                    .unwrap();
                let how = if n % 50 == 0 {
                    Durability::Sync
                } else {
                    Durability::Os
                };
                writer.write(&mut batch, how).unwrap();
                written.store(n + 1, Ordering::SeqCst);
                if n % 1500 == 0 {
                    writer.compact(None).unwrap();
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            let cost = Cost::default();
            loop {
                let last = over.load(Ordering::SeqCst);
                let least = written.load(Ordering::SeqCst);
                reader.refresh().unwrap();
                let snapshot = reader.snapshot();
                let count = snapshot.get(trees[0], b"count", &cost).unwrap();
                let count = count.map_or(0, |found| {
                    u64::from_be_bytes(found.value[..].try_into().unwrap())
                });
                assert!(count >= least, "{count} of {least}");
                for n in [0, count / 2, count.saturating_sub(1), count] {
                    for tree in &trees {
                        let found = snapshot.get(*tree, &n.to_be_bytes(), &cost).unwrap();
                        assert_eq!(found.is_some(), n < count, "{n} of {count}");
                    }
                }
                if last {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let (mut next, mut skips) = (0, false);
            while next < total {
                let done = over.load(Ordering::SeqCst);
                match tail.wait(POLL) {
                    Ok(Some(commit)) => {
                        let mut keys = Vec::new();
                        commit.each(&mut |_, _, _, key, _| keys.push(key.to_vec()));
                        let found = u64::from_be_bytes(keys[0][..].try_into().unwrap());
                        assert!(found == next || (skips && found > next), "{found}, {next}");
                        (next, skips) = (found + 1, false);
                    }
                    // The rest was flushed, and the log is not retained.
                    Ok(None) if done && skips => return,
                    Ok(None) => assert!(!done, "{next} of {total}"),
                    Err(Error::PositionExpired { oldest }) => {
                        // It may have expired, too, by now.
                        if let Ok(later) = reader.tail(oldest) {
                            tail = later;
                        }
                        skips = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    });
    see_the_same(&reader, &writer);
}
