//! Damage: what was synced and is damaged is reported, what was not ends the log, and nothing is
//! read wrongly.

use std::sync::Arc;

use esker_fs::Fs;
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

use super::common::{Seen, Written, append, append_this, formatted, open, segment, settings, sync};
use crate::error::Error;
use crate::extents::{Extents, Kind, Loss, RecordHeader};
use crate::ids::GroupId;

/// A log in which all records but those of the last batch are known to be synced. Returns where
/// that batch begins.
fn filled(rng: &mut fastrand::Rng, fs: Arc<dyn Fs>, all: &mut Vec<Written>) -> (Extents, u64) {
    let segment_bytes = [600, 3000, 20_000][rng.usize(..3)];
    let (mut extents, _) = open(fs, settings(segment_bytes), None).unwrap();
    for _ in 0..rng.usize(1..8) {
        for _ in 0..rng.usize(1..12) {
            append(&mut extents, rng, all);
        }
        sync(&mut extents);
    }
    let synced = extents.synced();
    for _ in 0..rng.usize(1..6) {
        append(&mut extents, rng, all);
    }
    sync(&mut extents);
    (extents, synced)
}

fn flip(fs: &Memory, number: u32, offset: u32, rng: &mut fastrand::Rng) {
    let mut bytes = fs.read(&segment(number)).unwrap();
    bytes[offset as usize] ^= rng.u8(1..);
    fs.write(&segment(number), &bytes);
}

fn reopen(fs: &Memory) -> (Extents, Seen) {
    open(Arc::new(fs.clone()), settings(20_000), None).unwrap()
}

/// Compares what was found after one byte at `offset` of `number` was damaged, which was synced.
fn check_loss(seen: &Seen, all: &[Written], number: u32, offset: u32) {
    let is_hit = |r: &&Written| {
        let end = r.place.offset + 64 + r.payload.len() as u32;
        r.place.segment == number && (r.place.offset..end).contains(&offset)
    };
    let hit = all.iter().find(is_hit);
    let rest: Vec<Written> = all.iter().filter(|r| !is_hit(r)).cloned().collect();
    assert_eq!(seen.records, rest);
    match (hit, &seen.losses[..]) {
        (None, [(segment, 0, Loss::Header)]) => assert!(offset < 64 && *segment == number),
        // The zeros behind a payload say nothing.
        (None, []) => assert!(offset >= 64),
        (Some(hit), [(segment, at, loss)]) => {
            assert_eq!((*segment, *at), (number, hit.place.offset));
            match loss {
                Loss::Record(RecordHeader { kind, slot, .. }) => {
                    assert!(offset >= hit.place.offset + 64);
                    assert_eq!((*kind, *slot), (hit.kind, hit.slot));
                }
                Loss::Unknown { bytes } => {
                    assert!(offset < hit.place.offset + 64);
                    assert_eq!(*bytes, u64::from(hit.end() - hit.place.offset));
                }
                Loss::Header => panic!("{hit:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rot_of_what_was_synced_is_a_loss() {
    for seed in esker_sim::seeds(600) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = formatted();
        let mut all = Vec::new();
        let (extents, synced) = filled(&mut rng, Arc::new(fs.clone()), &mut all);
        drop(extents);
        let durable = all.iter().filter(|r| r.lsn_end <= synced);
        let durable: Vec<Written> = durable.cloned().collect();
        let at = &durable[rng.usize(..durable.len())];
        let number = at.place.segment;
        let offset = match rng.u32(..4) {
            0 => rng.u32(..64),
            1 => at.place.offset + rng.u32(..64),
            _ => rng.u32(at.place.offset..at.end()),
        };
        flip(&fs, number, offset, &mut rng);

        let (mut extents, seen) = reopen(&fs);
        check_loss(&seen, &all, number, offset);
        // A last segment that was only begun is begun again.
        let exists = |n: u32| extents.segments().iter().any(|s| s.number == n);
        all.retain(|r| exists(r.place.segment));
        // The log goes on, and the loss is reported again.
        for _ in 0..rng.usize(..10) {
            append(&mut extents, &mut rng, &mut all);
        }
        sync(&mut extents);
        let (_, seen) = reopen(&fs);
        check_loss(&seen, &all, number, offset);
    }
}

#[test]
fn rot_of_what_was_not_synced_ends_the_log() {
    for seed in esker_sim::seeds(400) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = formatted();
        let mut all = Vec::new();
        let (extents, synced) = filled(&mut rng, Arc::new(fs.clone()), &mut all);
        drop(extents);
        let tail: Vec<Written> = all.iter().filter(|r| r.lsn_end > synced).cloned().collect();
        let at = &tail[rng.usize(..tail.len())];
        let end = at.place.offset + 64 + at.payload.len() as u32;
        flip(
            &fs,
            at.place.segment,
            rng.u32(at.place.offset..end),
            &mut rng,
        );
        let (mut extents, seen) = reopen(&fs);
        assert_eq!(seen.losses, []);
        all.retain(|r| r.lsn_end < at.lsn_end);
        assert_eq!(seen.records, all);
        let exists = |n: u32| extents.segments().iter().any(|s| s.number == n);
        all.retain(|r| exists(r.place.segment));
        // Nothing of what was cut comes back.
        for _ in 0..rng.usize(..10) {
            append(&mut extents, &mut rng, &mut all);
        }
        sync(&mut extents);
        let (_, seen) = reopen(&fs);
        assert_eq!((seen.losses, seen.records), (Vec::new(), all));
    }
}

/// What is a loss depends on what is known to be synced, and that must not be forgotten when
/// records are cut.
#[test]
fn a_loss_stays_one_when_starts_fail() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    let mut losses = 0;
    for seed in esker_sim::seeds(600) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = formatted();
        let mut all = Vec::new();
        let faulty = Faulty::new(Arc::new(fs.clone()));
        let (mut extents, _) = filled(&mut rng, Arc::new(faulty.clone()), &mut all);
        for _ in 0..rng.usize(..20) {
            append(&mut extents, &mut rng, &mut all);
        }
        // The last batch is written, and its sync fails.
        faulty.fail_sync_once();
        let batch = extents.take_batch();
        assert!(batch.is_none_or(|batch| batch.run().is_err()));
        drop(extents);
        let mut fs = fs.power_cut(seed, modes[rng.usize(..4)]);
        for _ in 0..rng.usize(1..4) {
            let at = &all[rng.usize(..all.len())];
            let len = fs.read(&segment(at.place.segment)).map_or(0, |b| b.len());
            let offset = rng.u32(at.place.offset..at.end());
            if (offset as usize) < len {
                flip(&fs, at.place.segment, offset, &mut rng);
            }
        }
        let (_, expected) = reopen(&fs.power_cut(0, PowerCut::Kept));
        losses += expected.losses.len();
        for _ in 0..rng.usize(1..5) {
            let faulty = Faulty::new(Arc::new(fs.clone()));
            faulty.fail_from(rng.u64(1..12));
            faulty.short_writes(rng.bool());
            let _ = open(Arc::new(faulty), settings(20_000), None);
            fs = fs.power_cut(rng.u64(..), modes[rng.usize(..4)]);
        }
        let (_, seen) = reopen(&fs);
        assert_eq!(places(&seen), places(&expected));
        let matters = |r: &&Written| !matches!(r.kind, Kind::Base | Kind::Sync);
        let seen: Vec<&Written> = seen.records.iter().filter(matters).collect();
        let expected: Vec<&Written> = expected.records.iter().filter(matters).collect();
        assert_eq!(seen, expected);
    }
    assert!(losses > 0);
}

/// The losses, without the length of what is damaged beyond recognition: what was cut does not
/// count again.
fn places(seen: &Seen) -> Vec<(u32, u32, Loss)> {
    let places = seen.losses.iter().map(|loss| match loss {
        (segment, offset, Loss::Unknown { .. }) => (*segment, *offset, Loss::Unknown { bytes: 0 }),
        loss => *loss,
    });
    places.collect()
}

#[test]
fn much_rot_is_never_read_as_records() {
    for seed in esker_sim::seeds(400) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = formatted();
        let mut all = Vec::new();
        let (extents, _) = filled(&mut rng, Arc::new(fs.clone()), &mut all);
        let numbers: Vec<u32> = extents.segments().iter().map(|s| s.number).collect();
        drop(extents);
        for _ in 0..rng.usize(1..6) {
            let number = numbers[rng.usize(..numbers.len())];
            let mut bytes = fs.read(&segment(number)).unwrap();
            match rng.u32(..6) {
                0 => bytes.truncate(rng.usize(..=bytes.len())),
                1 => bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(rng_len(seed))),
                2 => {
                    let from = rng.usize(..=bytes.len());
                    bytes[from..].fill(0);
                }
                _ if bytes.is_empty() => {}
                _ => {
                    let at = rng.usize(..bytes.len());
                    bytes[at] ^= rng.u8(1..);
                }
            }
            fs.write(&segment(number), &bytes);
        }
        let (mut extents, seen) = reopen(&fs);
        let mut left = all.iter();
        for record in &seen.records {
            assert!(left.any(|r| r == record), "{record:?}");
        }
        let before = all.len();
        for _ in 0..5 {
            append(&mut extents, &mut rng, &mut all);
        }
        sync(&mut extents);
        let (_, again) = reopen(&fs);
        let new = &all[before..];
        assert_eq!(&again.records[again.records.len() - new.len()..], new);
        let old = &again.records[..again.records.len() - new.len()];
        assert!(old.iter().all(|r| seen.records.contains(r)));
    }
}

fn rng_len(seed: u64) -> usize {
    (seed % 200) as usize
}

/// Three segments, of which the first two are known to be synced.
fn three(fs: &Memory) -> Vec<Written> {
    let mut all = Vec::new();
    let (mut extents, _) = open(Arc::new(fs.clone()), settings(1000), None).unwrap();
    for slot in 1..=9 {
        let (kind, group) = (Kind::Entry, GroupId(1));
        append_this(
            &mut extents,
            kind,
            group,
            slot,
            &[slot as u8; 200],
            &mut all,
        );
        sync(&mut extents);
    }
    assert!(extents.segments().len() >= 4);
    all
}

#[test]
fn a_segment_without_a_readable_byte_is_a_loss_when_later_ones_say_that_it_was_synced() {
    let fs = formatted();
    let all = three(&fs);
    let len = fs.read(&segment(2)).unwrap().len();
    for damaged in [vec![0; len], Vec::new(), vec![7; len / 2]] {
        fs.write(&segment(2), &damaged);
        let (_, seen) = reopen(&fs);
        let rest: Vec<Written> = all
            .iter()
            .filter(|r| r.place.segment != 2)
            .cloned()
            .collect();
        assert_eq!(seen.records, rest);
        let (segment, offset, loss) = seen.losses[0];
        assert_eq!((segment, offset, seen.losses.len()), (2, 0, 1));
        assert!(matches!(loss, Loss::Unknown { .. }));
    }
}

#[test]
fn a_file_that_lost_its_end_is_a_loss_when_later_ones_say_that_it_was_synced() {
    let fs = formatted();
    let all = three(&fs);
    let bytes = fs.read(&segment(2)).unwrap();
    let last = all.iter().rfind(|r| r.place.segment == 2).unwrap();
    fs.write(&segment(2), &bytes[..last.place.offset as usize]);
    let (_, seen) = reopen(&fs);
    assert_eq!(seen.records.len(), all.len() - 1);
    let bytes = u64::from(last.end() - last.place.offset);
    let loss = (2, last.place.offset, Loss::Unknown { bytes });
    assert_eq!(seen.losses, [loss]);
}

#[test]
fn a_missing_last_segment_is_the_end() {
    let fs = formatted();
    let mut all = three(&fs);
    let last = all.last().unwrap().place.segment;
    fs.remove(&segment(last)).unwrap();
    all.retain(|r| r.place.segment != last);
    let (_, seen) = reopen(&fs);
    assert_eq!((seen.losses, seen.records), (Vec::new(), all));
}

#[test]
fn the_header_of_an_empty_segment_says_what_was_synced() {
    let fs = formatted();
    let all = three(&fs);
    let last = all.last().unwrap().place.segment;
    let bytes = fs.read(&segment(last)).unwrap();
    fs.write(&segment(last), &bytes[..64]);
    let hit = all.iter().rfind(|r| r.place.segment < last).unwrap();
    let place = hit.place;
    let mut rng = fastrand::Rng::with_seed(1);
    flip(&fs, place.segment, place.offset + 64, &mut rng);
    let (_, seen) = reopen(&fs);
    let [(number, offset, Loss::Record(header))] = seen.losses[..] else {
        panic!("{:?}", seen.losses);
    };
    assert_eq!((number, offset), (place.segment, place.offset));
    assert_eq!((header.kind, header.slot), (hit.kind, hit.slot));
}

/// A sector that the disk cannot read is as one that was damaged, where it is known to have been
/// synced; elsewhere it is no torn end: it may be what was synced last.
#[test]
fn a_sector_that_cannot_be_read_is_a_loss_or_an_error() {
    let (mut lost, mut refused) = (0, 0);
    for seed in esker_sim::seeds(300) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = formatted();
        let mut all = Vec::new();
        let (extents, synced) = filled(&mut rng, Arc::new(fs.clone()), &mut all);
        drop(extents);
        let at = &all[rng.usize(..all.len())];
        let number = at.place.segment;
        let path = segment(number);
        let start = rng.u32(at.place.offset..at.end()) / 512 * 512;
        let mut bytes = fs.read(&path).unwrap();
        let end = bytes.len().min(start as usize + 512);
        let faulty = Faulty::new(Arc::new(fs.clone()));
        faulty.fail_range(&path, u64::from(start)..end as u64);
        bytes[start as usize..end].fill(0);
        let zeroed = fs.power_cut(seed, PowerCut::Kept);
        zeroed.write(&path, &bytes);
        match open(Arc::new(faulty), settings(20_000), None) {
            Ok((_, seen)) => {
                // What nothing says to be synced is there, or is reported with what was.
                let mut last = all.iter().filter(|r| r.lsn_end > synced);
                let is_there = last.all(|r| seen.records.contains(r));
                let is_unknown = |loss: &(u32, u32, Loss)| {
                    loss.0 == number && matches!(loss.2, Loss::Unknown { .. })
                };
                assert!(is_there || seen.losses.iter().any(is_unknown), "{seen:?}");
                let (_, other) = reopen(&zeroed);
                assert_eq!(seen.records, other.records);
                assert_eq!(seen.losses, other.losses);
                lost += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }), "{error:?}");
                refused += 1;
            }
        }
    }
    assert!(lost > 0 && refused > 0, "{lost} lost, {refused} refused");
}
