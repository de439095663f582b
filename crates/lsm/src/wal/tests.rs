use std::path::Path;
use std::sync::Arc;

use super::format::*;
use super::*;
use crate::error::{Error, Result};
use crate::fs::Fs;
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

const NUMBER: u64 = 7;

fn path() -> &'static Path {
    Path::new("000007.log")
}

fn start(fs: &dyn Fs) -> LogWriter {
    let log = LogWriter::create(fs, path(), LogFormat::WAL, NUMBER, Some((6, 4321))).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    log
}

type Records = Vec<(u64, Vec<u8>)>;

fn read(fs: &dyn Fs, sealed: Option<u64>) -> (Records, Result<Replayed>) {
    let mut records = Vec::new();
    let replayed = replay(
        fs,
        path(),
        LogFormat::WAL,
        NUMBER,
        sealed,
        &mut |offset, record| {
            if let Record::Data { payload, .. } = record {
                records.push((offset, payload.to_vec()));
            }
            Ok(())
        },
    );
    (records, replayed)
}

fn read_bytes(bytes: &[u8], sealed: Option<u64>) -> (Records, Result<Replayed>) {
    let fs = Memory::new();
    fs.write(path(), bytes);
    read(&fs, sealed)
}

fn damaged_at(replayed: &Result<Replayed>) -> Option<u64> {
    match replayed {
        Err(Error::Corruption {
            offset, path: file, ..
        }) if file == path() => Some(*offset),
        _ => None,
    }
}

fn payload(rng: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    (0..rng.usize(..=most)).map(|_| rng.u8(..)).collect()
}

/// A small log with syncs, its records, and the offset in its last marker.
fn sample() -> (Vec<u8>, Records, u64) {
    let fs = Memory::new();
    let log = start(&fs);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut records = Vec::new();
    let mut marked = 0;
    for i in 0..6 {
        let payload = payload(&mut rng, 40);
        let end = log.append(&[&payload]).unwrap();
        records.push((end - payload.len() as u64 - PREFIX_LEN as u64, payload));
        if i == 1 || i == 3 {
            log.sync().unwrap();
            marked = log.synced_len();
        }
    }
    log.trim();
    (fs.read(path()).unwrap(), records, marked)
}

#[test]
fn what_is_appended_is_replayed() {
    for kind in [LogFormat::WAL, LogFormat::MANIFEST] {
        for previous in [None, Some((3, 99))] {
            let fs = Memory::new();
            let log = LogWriter::create(&fs, path(), kind, 9, previous).unwrap();
            assert!(log.is_empty() && log.len() == 48 && log.synced_len() == 0);
            let big = vec![7; 700_000];
            let inputs: [&[&[u8]]; 5] = [&[b"one"], &[b"t", b"", b"wo"], &[], &[&big], &[b"end"]];
            let mut marked = 0;
            for (i, parts) in inputs.iter().enumerate() {
                let end = log.append(parts).unwrap();
                assert_eq!(end, log.len());
                if i == 2 {
                    marked = end;
                }
                if i % 2 == 0 {
                    log.sync().unwrap();
                    assert_eq!(log.synced_len(), end);
                }
            }
            let mut found = Vec::new();
            let replayed = replay(&fs, path(), kind, 9, None, &mut |_, record| {
                if let Record::Data { payload, .. } = record {
                    found.push(payload.to_vec());
                }
                Ok(())
            });
            let header = Some(LogHeader {
                format: kind,
                number: 9,
                previous,
            });
            assert_eq!(
                replayed.unwrap(),
                Replayed {
                    header,
                    end: log.len(),
                    tail: Tail::Clean,
                    synced: marked,
                }
            );
            assert_eq!(found, inputs.map(|parts| parts.concat()));
        }
    }
}

#[test]
fn a_mark_follows_only_a_sync_that_advanced() {
    let fs = Memory::new();
    let log = start(&fs);
    let plain = log.append(&[b"x"]).unwrap() - 48;
    log.sync().unwrap();
    let grown = |before: u64| log.append(&[b"x"]).unwrap() - before;
    assert_eq!(grown(log.len()), plain + MARK_LEN as u64);
    assert_eq!(grown(log.len()), plain);
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(grown(log.len()), plain + MARK_LEN as u64);
    assert_eq!(grown(log.len()), plain);
}

#[test]
fn an_error_of_the_visitor_ends_the_replay() {
    let fs = Memory::new();
    fs.write(path(), &sample().0);
    let mut seen = 0;
    let replayed = replay(&fs, path(), LogFormat::WAL, NUMBER, None, &mut |_, _| {
        seen += 1;
        if seen == 3 {
            Err(Error::Invalid("enough".into()))
        } else {
            Ok(())
        }
    });
    assert!(matches!(replayed, Err(Error::Invalid(_))));
    assert_eq!(seen, 3);
}

#[test]
fn every_flipped_byte_of_a_sealed_log_is_damage() {
    let (bytes, records, _) = sample();
    let sealed = Some(bytes.len() as u64);
    assert_eq!(read_bytes(&bytes, sealed).0, records);
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let (found, replayed) = read_bytes(&bytes, sealed);
            let offset = damaged_at(&replayed).unwrap_or_else(|| panic!("{at}: {replayed:?}"));
            assert!(offset <= at as u64 && records.starts_with(&found), "{at}");
        }
    }
}

#[test]
fn every_other_length_of_a_sealed_log_is_damage() {
    let (bytes, _, _) = sample();
    let sealed = bytes.len() as u64;
    for len in 0..bytes.len() {
        let replayed = read_bytes(&bytes[..len], Some(sealed)).1;
        assert_eq!(damaged_at(&replayed), Some(len as u64));
    }
    let longer = [&bytes[..], &[0, 1]].concat();
    assert_eq!(
        damaged_at(&read_bytes(&longer, Some(sealed)).1),
        Some(sealed)
    );
}

#[test]
fn a_flipped_byte_that_a_mark_covers_is_damage_and_another_a_torn_tail() {
    let (bytes, records, marked) = sample();
    let mut torn = 0;
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let (found, replayed) = read_bytes(&bytes, None);
            assert!(records.starts_with(&found), "{at}");
            if (at as u64) < marked {
                let offset = damaged_at(&replayed);
                assert!(
                    offset.is_some_and(|offset| offset <= at as u64),
                    "{at}: {replayed:?}"
                );
                continue;
            }
            torn += 1;
            let replayed = replayed.unwrap();
            let Tail::Torn { offset, .. } = replayed.tail else {
                panic!("{at}: {replayed:?}")
            };
            // A marker in between is not the end of the log.
            let end = replayed.end;
            assert!(offset == end || offset == end + MARK_LEN as u64);
            assert!(offset <= at as u64 && offset >= marked);
            let durable = records
                .iter()
                .filter(|(offset, _)| *offset < marked)
                .count();
            assert!(found.len() >= durable);
        }
    }
    assert!(torn > 0);
}

#[test]
fn a_shorter_log_gives_its_whole_records() {
    let (bytes, records, _) = sample();
    for len in 0..bytes.len() {
        let (found, replayed) = read_bytes(&bytes[..len], None);
        let replayed = replayed.unwrap();
        let whole = |(offset, payload): &&(u64, Vec<u8>)| {
            *offset as usize + PREFIX_LEN + payload.len() <= len
        };
        assert_eq!(found.len(), records.iter().filter(whole).count(), "{len}");
        assert!(records.starts_with(&found));
        assert_eq!(replayed.header.is_some(), len >= 48);
        // It is clean after a record, and after a marker.
        let clean = replayed.tail == Tail::Clean;
        let behind = [0, MARK_LEN].map(|mark| replayed.end + mark as u64);
        assert!(!clean || behind.contains(&(len as u64)));
        assert!(clean || replayed.end != len as u64 || len == 0);
    }
}

#[test]
fn headers_of_others_are_refused() {
    let (bytes, _, _) = sample();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let sum = header_checksum(&bytes[..40]);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        read_bytes(&bytes, None).1
    };
    assert!(matches!(
        with(8, 5),
        Err(Error::NewerFormat {
            found: 5,
            supported: 4,
            ..
        })
    ));
    for (at, value) in [(0, b'X'), (8, 0), (12, 1), (16, 8)] {
        assert_eq!(damaged_at(&with(at, value)), Some(0), "{at}");
    }
    let fs = Memory::new();
    fs.write(path(), &bytes);
    let other = replay(
        &fs,
        path(),
        LogFormat::MANIFEST,
        NUMBER,
        None,
        &mut |_, _| Ok(()),
    );
    assert_eq!(damaged_at(&other), Some(0));
    let missing = replay(
        &fs,
        Path::new("no"),
        LogFormat::WAL,
        1,
        None,
        &mut |_, _| Ok(()),
    );
    assert!(matches!(missing, Err(Error::Io { op: "open", .. })));
}

#[test]
fn a_damaged_header_under_a_mark_is_damage() {
    let fs = Memory::new();
    let log = start(&fs);
    log.append(&[b"one"]).unwrap();
    let unmarked = fs.read(path()).unwrap();
    log.sync().unwrap();
    log.append(&[b"two"]).unwrap();
    let marked = fs.read(path()).unwrap();
    for at in 0..48 {
        let flipped = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 0x10;
            read_bytes(&bytes, None)
        };
        assert_eq!(damaged_at(&flipped(&marked).1), Some(0));
        let (records, replayed) = flipped(&unmarked);
        let replayed = replayed.unwrap();
        assert!(records.is_empty() && replayed.header.is_none() && replayed.end == 0);
        assert!(matches!(replayed.tail, Tail::Torn { offset: 0, .. }));
    }
}

#[test]
fn a_mark_far_behind_the_damage_is_found() {
    let fs = Memory::new();
    let log = start(&fs);
    for i in 0..40 {
        log.append(&[&vec![i; 40_000]]).unwrap();
    }
    log.sync().unwrap();
    log.append(&[b"marked"]).unwrap();
    log.append(&[&[9; 100_000]]).unwrap();
    let bytes = fs.read(path()).unwrap();
    // The last length is impossible, the one before is possible and huge.
    for (at, byte) in [(48 + 3, 0xff), (48 + 2, 0x0f), (100_000, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        assert!(damaged_at(&read_bytes(&bytes, None).1).is_some_and(|x| x <= at as u64));
    }
}

#[test]
fn marks_and_records_elsewhere_do_not_count() {
    let (bytes, records, _) = sample();
    // A log that contains another log as a payload, after a bad record.
    let fs = Memory::new();
    let log = start(&fs);
    let bad = log.len();
    log.append(&[b"bad"]).unwrap();
    log.append(&[&bytes]).unwrap();
    let mut outer = fs.read(path()).unwrap();
    outer[bad as usize + PREFIX_LEN] ^= 1;
    let replayed = read_bytes(&outer, None).1.unwrap();
    assert!(matches!(replayed.tail, Tail::Torn { offset, .. } if offset == bad));
    // A record moved to another offset, and the records of a log with another number.
    let (offset, first) = &records[0];
    let end = *offset as usize + PREFIX_LEN + first.len();
    let mut twice = bytes[..end].to_vec();
    twice.extend_from_slice(&bytes[*offset as usize..end]);
    let (found, replayed) = read_bytes(&twice, None);
    assert_eq!((found.len(), replayed.unwrap().end), (1, end as u64));
    let other = LogWriter::create(&fs, path(), LogFormat::WAL, NUMBER + 1, None).unwrap();
    other.append(&[first]).unwrap();
    let spliced = [&bytes[..48], &fs.read(path()).unwrap()[48..]].concat();
    assert_eq!(read_bytes(&spliced, None).1.unwrap().end, 48);
}

/// A log that is synced often, not trimmed, and the ends of its records.
fn written_ahead() -> (Vec<u8>, Records, usize) {
    let fs = Memory::new();
    let log = start(&fs);
    let mut records = Vec::new();
    for i in 0..5_u8 {
        let end = log.append(&[&[i; 30]]).unwrap();
        records.push((end - 30 - PREFIX_LEN as u64, vec![i; 30]));
        log.sync().unwrap();
    }
    let len = log.len() as usize;
    (fs.read(path()).unwrap(), records, len)
}

#[test]
fn a_log_that_is_synced_often_is_written_ahead_and_trimmed_in_the_end() {
    let (bytes, records, len) = written_ahead();
    assert!(bytes.len() > len + 8192 && bytes[len..].iter().all(|byte| *byte == 0));
    for sealed in [None, Some(len as u64)] {
        let (found, replayed) = read_bytes(&bytes, sealed);
        let replayed = replayed.unwrap();
        assert_eq!(found, records);
        assert_eq!((replayed.end, replayed.tail), (len as u64, Tail::Clean));
    }
    let sealed = read_bytes(&bytes, Some(len as u64 - 1)).1;
    assert_eq!(damaged_at(&sealed), Some(len as u64 - 1));

    // A log without syncs, or on a full disk, is not preallocated.
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let log = start(&fs);
    log.append(&[b"one"]).unwrap();
    log.append(&[b"two"]).unwrap();
    assert_eq!(memory.read(path()).unwrap().len() as u64, log.len());
    fs.set_capacity(fs.used() + 500);
    for _ in 0..3 {
        log.sync().unwrap();
        log.append(&[b"three"]).unwrap();
    }
    log.trim();
    assert_eq!(read(&memory, None).0.len(), 5);
}

#[test]
fn what_is_in_the_place_of_zeros_is_a_torn_tail_or_damage() {
    let (bytes, records, len) = written_ahead();
    for at in [len, len + 8, len + 5000, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] = 1;
        let (found, replayed) = read_bytes(&changed, None);
        assert_eq!(found, records);
        let Tail::Torn { offset, .. } = replayed.unwrap().tail else {
            panic!("{at}")
        };
        assert_eq!(offset as usize, len);
        assert_eq!(
            damaged_at(&read_bytes(&changed, Some(len as u64)).1),
            Some(len as u64)
        );
    }
    // A record replaced by zeros: later records prove that it existed, markers among them that it
    // was synced.
    for (place, (offset, payload)) in records.iter().enumerate() {
        let mut changed = bytes.clone();
        changed[*offset as usize..][..PREFIX_LEN + payload.len()].fill(0);
        let (found, replayed) = read_bytes(&changed, None);
        assert_eq!(found, records[..place]);
        // The marker of the previous record comes first, where there is one.
        if place + 1 < records.len() {
            assert!(damaged_at(&replayed).is_some_and(|at| at <= *offset))
        } else {
            assert_eq!(replayed.unwrap().tail, Tail::Clean)
        }
    }
}

#[test]
fn logs_of_the_first_format_are_read_and_have_no_zeros_behind_them() {
    let (bytes, records, len) = written_ahead();
    let mut old = bytes[..len].to_vec();
    old[8..12].copy_from_slice(&1_u32.to_le_bytes());
    reseal(&mut old, NUMBER);
    let (found, replayed) = read_bytes(&old, None);
    assert_eq!((found, replayed.unwrap().tail), (records, Tail::Clean));
    let longer = [&old[..], &[0; 100]].concat();
    let torn = read_bytes(&longer, None).1.unwrap().tail;
    assert!(matches!(torn, Tail::Torn { offset, .. } if offset as usize == len));
}

#[test]
fn random_bytes_never_pass_nor_panic() {
    let seed = 5;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (good, records, _) = sample();
    for _ in 0..3000 {
        let mut bytes = good.clone();
        bytes.truncate(rng.usize(..=bytes.len()));
        bytes.extend(payload(&mut rng, 200));
        for _ in 0..rng.usize(..4) {
            if !bytes.is_empty() {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
        }
        let (found, _) = read_bytes(&bytes, None);
        assert!(records.starts_with(&found), "seed {seed}");
    }
}

#[test]
fn a_failed_append_is_rolled_back() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let log = start(&fs);
    log.append(&[b"one"]).unwrap();
    log.sync().unwrap();
    let before = memory.read(path()).unwrap();
    fs.set_capacity(before.len() as u64 + 20);
    let failed = log.append(&[&[1; 100]]).unwrap_err();
    assert!(failed.rolled_back && failed.error.is_disk_full());
    assert_eq!(memory.read(path()).unwrap(), before);
    assert_eq!(log.len(), before.len() as u64);
    fs.set_capacity(u64::MAX);
    fs.short_writes(true);
    fs.fail_at(1);
    assert!(log.append(&[&[2; 100]]).unwrap_err().rolled_back);
    log.append(&[b"two"]).unwrap();
    let (records, replayed) = read(&fs, Some(log.len()));
    assert_eq!(replayed.unwrap().tail, Tail::Clean);
    assert_eq!(
        records.iter().map(|r| &r.1[..]).collect::<Vec<_>>(),
        [b"one", b"two"]
    );
    let bytes = memory.read(path()).unwrap();
    assert!(
        bytes.windows(8).any(|w| w == MARK_MAGIC),
        "the mark that failed is written again"
    );
}

#[test]
fn a_log_in_an_unknown_state_refuses() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let log = start(&fs);
    log.append(&[b"one"]).unwrap();
    fs.short_writes(true);
    fs.fail_from(1);
    assert!(!log.append(&[&[1; 100]]).unwrap_err().rolled_back);
    fs.clear();
    let failed = log.append(&[b"two"]).unwrap_err();
    assert!(matches!(failed.error, Error::Poisoned { .. }) && !failed.rolled_back);
    assert!(matches!(log.sync(), Err(Error::Poisoned { .. })));
    let (records, replayed) = read(&fs, None);
    assert_eq!(records.len(), 1);
    assert!(matches!(replayed.unwrap().tail, Tail::Torn { .. }));

    let log = start(&fs);
    fs.fail_sync_once();
    assert!(matches!(log.sync(), Err(Error::Io { op: "sync", .. })));
    assert!(matches!(log.sync(), Err(Error::Poisoned { .. })));
    assert_eq!(log.synced_len(), 0);
    log.append(&[b"x"]).unwrap_err();
}

#[test]
fn a_log_that_cannot_be_started_leaves_no_file() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    fs.set_capacity(10);
    let failed = LogWriter::create(&fs, path(), LogFormat::WAL, 1, None)
        .err()
        .unwrap();
    assert!(failed.is_disk_full() && memory.paths().is_empty());
}

#[test]
fn syncs_beside_appends() {
    let fs = Memory::new();
    let log = start(&fs);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            while log.synced_len() < log.len() || log.len() < 10_000 {
                log.sync().unwrap();
            }
        });
        for i in 0..1000_u32 {
            log.append(&[&i.to_le_bytes()]).unwrap();
        }
        syncing.join().unwrap();
    });
    let (records, replayed) = read(&fs, Some(log.len()));
    assert_eq!((records.len(), replayed.unwrap().tail), (1000, Tail::Clean));
}

/// After any power cut: no error, everything synced, nothing that was not appended.
#[test]
fn a_power_cut_is_never_damage_and_never_loses_what_was_synced() {
    for seed in 0..1500 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let fs = Faulty::new(Arc::new(memory.clone()));
        let log = start(&fs);
        let mut appended = Vec::new();
        let mut synced = 0;
        for _ in 0..rng.usize(..20) {
            match rng.u8(..10) {
                0..2 => {
                    log.sync().unwrap();
                    synced = appended.len();
                }
                2 => {
                    fs.short_writes(rng.bool());
                    fs.fail_at(1);
                    assert!(
                        log.append(&[&payload(&mut rng, 900)])
                            .unwrap_err()
                            .rolled_back
                    );
                }
                _ => {
                    let payload = payload(&mut rng, 1500);
                    log.append(&[&payload]).unwrap();
                    appended.push(payload);
                }
            }
        }
        for mode in [
            PowerCut::Lost,
            PowerCut::Kept,
            PowerCut::Torn,
            PowerCut::Reordered,
        ] {
            let (records, replayed) = read(&memory.power_cut(seed, mode), None);
            let replayed = replayed.unwrap_or_else(|e| panic!("seed {seed}, {mode:?}: {e}"));
            let found: Vec<_> = records.into_iter().map(|(_, payload)| payload).collect();
            assert!(
                found.len() >= synced && appended.starts_with(&found),
                "{seed} {mode:?}"
            );
            if mode == PowerCut::Kept {
                assert_eq!((found.len(), replayed.tail), (appended.len(), Tail::Clean));
            }
        }
    }
}
