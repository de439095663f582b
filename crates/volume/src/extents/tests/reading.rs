//! Reading what is pending, being written and written; removal, pins, limits, failures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};

use super::common::{DISK, append, append_this, dir, formatted, open, segment, settings, sync};
use crate::command::checksum;
use crate::error::Error;
use crate::extents::{Extents, HEADER_BYTES, Kind, MOST_PAYLOAD};
use crate::ids::{Ballot, GroupId};
use crate::place::Place;

fn entry(extents: &mut Extents, slot: u64, payload: &[u8]) -> Place {
    let mut all = Vec::new();
    append_this(extents, Kind::Entry, GroupId(1), slot, payload, &mut all);
    all.last().unwrap().place
}

#[test]
fn data_are_readable_at_once_and_across_what_is_written() {
    for seed in esker_sim::seeds(200) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut extents, _) = open(Arc::new(formatted()), settings(2000), None).unwrap();
        let reader = extents.reader();
        let (mut all, mut batches) = (Vec::new(), std::collections::VecDeque::new());
        for _ in 0..40 {
            match rng.u32(..4) {
                0 | 1 => append(&mut extents, &mut rng, &mut all),
                2 => batches.extend(extents.take_batch()),
                _ => {
                    if let Some(batch) = batches.pop_front() {
                        assert!(batch.bytes() > 0);
                        extents.batch_done(batch.run().unwrap());
                    }
                }
            }
            for r in &all {
                assert_eq!(reader.read_record(r.place).unwrap().1, r.payload);
            }
            // Ranges of any length within a segment.
            if let Some(first) = all.first() {
                let number = first.place.segment + rng.u32(..3);
                let records = all.iter().filter(|r| r.place.segment == number);
                let records: Vec<_> = records.collect();
                let Some(last) = records.last() else { continue };
                let mut bytes = vec![0; last.end() as usize];
                let place = Place {
                    segment: number,
                    offset: 0,
                };
                reader.read(place, &mut bytes).unwrap();
                for r in records {
                    let from = r.place.offset as usize + HEADER_BYTES;
                    assert_eq!(bytes[from..from + r.payload.len()], r.payload[..]);
                }
                let beyond = reader.read(place, &mut vec![0; bytes.len() + 1]);
                assert!(matches!(beyond, Err(Error::Corruption { .. })));
            }
        }
    }
}

#[test]
fn blocks_are_verified() {
    let fs = formatted();
    let (mut extents, _) = open(Arc::new(fs.clone()), settings(1 << 20), None).unwrap();
    let (block, reader) = ([9; 4096], extents.reader());
    let record = entry(&mut extents, 1, &block);
    let place = Place {
        offset: record.offset + HEADER_BYTES as u32,
        ..record
    };
    let mut out = [0; 4096];
    reader
        .read_block(place, checksum(&block), &mut out)
        .unwrap();
    assert_eq!(out, block);
    let wrong = reader.read_block(place, 1, &mut out);
    assert!(matches!(wrong, Err(Error::Corruption { .. })));
    sync(&mut extents);
    let path = super::common::segment(record.segment);
    let mut bytes = fs.read(&path).unwrap();
    bytes[place.offset as usize + 4000] ^= 1;
    fs.write(&path, &bytes);
    let rotten = [
        reader.read_block(place, checksum(&block), &mut out).err(),
        reader.read_record(record).err(),
        reader.read_record(place).err(),
    ];
    for error in rotten {
        match error {
            Some(Error::Corruption {
                path: at, offset, ..
            }) => {
                assert_eq!(at, path);
                assert!(offset == u64::from(record.offset) || offset == u64::from(place.offset));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn segments_are_removed_when_later_ones_are_known_to_be_durable() {
    let fs = formatted();
    let (mut extents, _) = open(Arc::new(fs.clone()), settings(1000), None).unwrap();
    let reader = extents.reader();
    let mut places = Vec::new();
    for slot in 1..=3 {
        places.push(entry(&mut extents, slot, &[slot as u8; 700]));
    }
    let refused = |extents: &mut Extents, segment| {
        let removed = extents.remove(segment);
        assert!(matches!(removed, Err(Error::InUse { .. })), "{segment}");
    };
    refused(&mut extents, 1);
    sync(&mut extents);
    // Synced, but no record says so.
    refused(&mut extents, 1);
    places.push(entry(&mut extents, 4, &[4; 700]));
    refused(&mut extents, 1);
    sync(&mut extents);
    let pin = reader.pin(1).unwrap();
    let info = &extents.segments()[0];
    assert!(info.is_removable && info.pins == 1 && info.slots[&GroupId(1)] == 1);
    extents.remove(1).unwrap();
    let gone = reader.read_record(places[0]);
    assert!(matches!(gone, Err(Error::Gone { segment: 1 })));
    assert!(reader.pin(1).is_err() && extents.remove(1).is_err());
    let mut out = [0; 700];
    let offset = places[0].offset + HEADER_BYTES as u32;
    pin.read(offset, &mut out).unwrap();
    assert_eq!(out, [1; 700]);
    drop(pin);
    refused(&mut extents, 4);
    extents.remove(2).unwrap();
    drop(extents);
    let (extents, seen) = open(Arc::new(fs), settings(1000), None).unwrap();
    assert_eq!(seen.losses, []);
    let numbers: Vec<u32> = extents.segments().iter().map(|s| s.number).collect();
    assert_eq!(numbers, [3, 4]);
    assert_eq!(seen.records.len(), 8);
}

#[test]
fn a_failed_batch_ends_appending_and_what_was_synced_stays() {
    let fs = formatted();
    let faulty = Faulty::new(Arc::new(fs.clone()));
    let (mut extents, _) = open(Arc::new(faulty.clone()), settings(1 << 20), None).unwrap();
    // Too little to reserve any.
    faulty.set_capacity(faulty.used() + 2000);
    let first = entry(&mut extents, 1, b"first");
    sync(&mut extents);
    let second = entry(&mut extents, 2, b"second");
    let batch = extents.take_batch().unwrap();
    entry(&mut extents, 3, b"third");
    let behind = extents.take_batch().unwrap();
    faulty.set_capacity(faulty.used() + 10);
    let full = batch.run().unwrap_err();
    assert!(full.is_disk_full(), "{full}");
    faulty.clear();
    // What comes next fails for the same reason: there was no room.
    assert!(behind.run().is_err_and(|error| error.is_disk_full()));
    let refused = extents.append(Kind::Entry, GroupId(1), 4, Ballot(1), &[], &mut Vec::new);
    assert!(refused.is_err_and(|error| error.is_disk_full()));
    let reader = extents.reader();
    assert_eq!(reader.read_record(first).unwrap().1, b"first");
    assert_eq!(reader.read_record(second).unwrap().1, b"second");
    drop(extents);
    let (_, seen) = open(Arc::new(fs), settings(1 << 20), None).unwrap();
    assert_eq!((seen.records.len(), seen.losses), (4, Vec::new()));
}

/// A sync fails, the next process reads the bytes from the system's cache, and then the power
/// fails.
#[test]
fn what_is_found_is_durable() {
    let fs = formatted();
    let faulty = Faulty::new(Arc::new(fs.clone()));
    let (mut extents, _) = open(Arc::new(faulty.clone()), settings(1 << 20), None).unwrap();
    entry(&mut extents, 1, b"first");
    sync(&mut extents);
    entry(&mut extents, 2, b"second");
    faulty.fail_sync_once();
    assert!(extents.take_batch().unwrap().run().is_err());
    drop(extents);
    // The next sync of that file says nothing.
    let hooked = Hooked::new(Arc::new(fs.clone()));
    hooked.set(|call, path| {
        if call == Call::Sync && path == segment(1) {
            Err(std::io::ErrorKind::Other.into())
        } else {
            Ok(())
        }
    });
    let (_, seen) = open(Arc::new(hooked), settings(1 << 20), None).unwrap();
    assert_eq!(seen.records.len(), 5);
    let after = fs.power_cut(1, esker_sim::memory::PowerCut::Lost);
    let (_, again) = open(Arc::new(after), settings(1 << 20), None).unwrap();
    assert_eq!(again, seen);
}

#[test]
fn a_payload_has_a_limit() {
    let (mut extents, _) = open(Arc::new(formatted()), settings(1 << 20), None).unwrap();
    let part = vec![0; MOST_PAYLOAD as usize / 2 + 1];
    let parts: &[&[u8]] = &[&part, &part];
    let (kind, group) = (Kind::Entry, GroupId(1));
    let placed = extents.append(kind, group, 1, Ballot(1), parts, &mut Vec::new);
    assert!(matches!(placed, Err(Error::Limit { .. })));
    assert!(extents.take_batch().is_none());
    // A record that is larger than a segment is one by itself.
    let large = vec![5; 3 << 20];
    let place = entry(&mut extents, 1, &large);
    assert_eq!(entry(&mut extents, 2, b"next").segment, place.segment + 1);
}

/// Ends the readers when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn threads_read_while_the_log_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("segments");
    let fs = Arc::new(esker_fs::disk::Disk::new());
    Extents::format(fs.clone(), &path, DISK).unwrap();
    let mut ignore = |_: crate::extents::Found<'_>| Ok(());
    let mut extents = Extents::open(fs, &path, settings(40_000), None, &mut ignore).unwrap();
    assert_ne!(path, dir());
    let (send, receive) = std::sync::mpsc::channel::<crate::extents::Batch>();
    let (done, synced) = std::sync::mpsc::channel();
    let places = parking_lot::Mutex::new(Vec::<(Place, u64)>::new());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in receive {
                done.send(batch.run().unwrap()).unwrap();
            }
        });
        for thread in 0..2 {
            let (reader, places, is_over) = (extents.reader(), &places, &is_over);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                while !is_over.load(Ordering::SeqCst) {
                    let known = places.lock();
                    if known.is_empty() {
                        continue;
                    }
                    let (place, slot) = known[rng.usize(..known.len())];
                    drop(known);
                    match reader.read_record(place) {
                        Ok((header, payload)) => {
                            assert_eq!(header.slot, slot);
                            assert!(payload.iter().all(|b| *b == slot as u8));
                        }
                        Err(Error::Gone { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        // Also when this thread fails: the scope waits for the readers.
        let over = Over(&is_over);
        for slot in 1..=1500 {
            let place = entry(&mut extents, slot, &vec![slot as u8; 1000]);
            places.lock().push((place, slot));
            if slot % 7 == 0 {
                send.send(extents.take_batch().unwrap()).unwrap();
            }
            synced.try_iter().for_each(|end| extents.batch_done(end));
            if slot % 100 == 0 {
                for info in extents.segments().iter().filter(|s| s.is_removable).take(1) {
                    extents.remove(info.number).unwrap();
                }
            }
        }
        drop(over);
        drop(send);
    });
}

#[test]
fn space_is_reserved_in_steps_and_not_missed_where_there_is_none() {
    let memory = formatted();
    let fs = Hooked::new(Arc::new(Faulty::new(Arc::new(memory.clone()))));
    let (calls, fails) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(AtomicBool::new(false)),
    );
    let (noted, failing) = (calls.clone(), fails.clone());
    fs.set(move |call, path| match call {
        Call::Reserve => {
            noted.lock().unwrap().push(path.to_path_buf());
            if failing.load(Ordering::Relaxed) {
                Err(std::io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    });
    let (mut extents, _) = open(Arc::new(fs.clone()), settings(10_000), None).unwrap();
    for fail in [false, true] {
        fails.store(fail, Ordering::Relaxed);
        let first = entry(&mut extents, 1, &[1; 3000]);
        sync(&mut extents);
        let second = entry(&mut extents, 2, &[2; 3000]);
        sync(&mut extents);
        assert_eq!(first.segment, second.segment);
        let path = segment(first.segment);
        let count = calls.lock().unwrap().iter().filter(|p| **p == path).count();
        assert_eq!(count, 1, "once for the whole segment");
        let end = u64::from(second.offset) + 3064;
        assert_eq!(
            memory.read(&path).unwrap().len() as u64,
            end,
            "the length stays"
        );
        entry(&mut extents, 3, &[3; 9000]);
        sync(&mut extents);
    }
    drop(extents);
    let (_, seen) = open(Arc::new(memory), settings(10_000), None).unwrap();
    assert!(seen.losses.is_empty());
    assert_eq!(
        seen.records
            .iter()
            .filter(|r| r.kind == Kind::Entry)
            .count(),
        6
    );
}

#[test]
fn what_is_reserved_and_not_used_is_given_back() {
    let memory = formatted();
    let faulty = Faulty::new(Arc::new(memory.clone()));
    let (mut extents, _) = open(Arc::new(faulty.clone()), settings(10_000), None).unwrap();
    let beyond = |extents: &Extents| {
        let bytes: u64 = extents.segments().iter().map(|segment| segment.bytes).sum();
        faulty.used() as i64 - bytes as i64
    };
    let unused = |extents: &Extents| 10_000 - extents.segments().last().unwrap().bytes as i64;
    let before = beyond(&extents);
    for slot in 1..5 {
        // One to a segment.
        entry(&mut extents, slot, &[1; 6000]);
        sync(&mut extents);
        let reserved = beyond(&extents) - before;
        assert_eq!(reserved, unused(&extents), "the last segment's");
    }
    extents.unreserve();
    assert_eq!(beyond(&extents), before);
    entry(&mut extents, 5, &[1; 1000]);
    sync(&mut extents);
    assert_eq!(beyond(&extents) - before, unused(&extents));
}
