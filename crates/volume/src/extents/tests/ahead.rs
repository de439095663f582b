//! Zeros that are written ahead of small batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

use super::common::{Written, append_this, formatted, open, segment, settings};
use crate::extents::{Extents, Kind};
use crate::ids::{Ballot, GroupId};

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

/// So many small batches come before the first zeros.
const MANY: u64 = 16;

fn entry(extents: &mut Extents, slot: u64, bytes: usize, all: &mut Vec<Written>) {
    let payload = vec![slot as u8; bytes];
    append_this(extents, Kind::Entry, GroupId(1), slot, &payload, all);
}

/// Runs a batch, and what may be done behind it.
fn sync(extents: &mut Extents) {
    let batch = extents.take_batch().unwrap();
    let ahead = batch.ahead();
    extents.batch_done(batch.run().unwrap());
    ahead.run().unwrap();
}

/// Bytes of the file of the last segment behind its records.
fn zeros(memory: &Memory, extents: &Extents) -> u64 {
    let last = extents.segments().pop().unwrap();
    memory.read(&segment(last.number)).unwrap().len() as u64 - last.bytes
}

/// What opening finds after a power cut, however much of what was not synced is left.
fn survives(memory: &Memory, all: &[Written]) {
    for (seed, mode) in MODES.into_iter().enumerate() {
        let left = memory.power_cut(seed as u64, mode);
        let (extents, seen) = open(Arc::new(left.clone()), settings(20_000), None).unwrap();
        assert!(seen.losses.is_empty() && seen.records == all, "{mode:?}");
        assert_eq!(zeros(&left, &extents), 0, "{mode:?}");
    }
}

#[test]
fn they_are_no_part_of_the_log_and_end_with_the_segment() {
    let memory = formatted();
    let (mut extents, _) = open(Arc::new(memory.clone()), settings(20_000), None).unwrap();
    let mut all = Vec::new();
    for slot in 1..=18 {
        entry(&mut extents, slot, 100, &mut all);
        sync(&mut extents);
        assert_eq!(zeros(&memory, &extents) > 0, slot >= MANY);
    }
    survives(&memory, &all);
    let first = extents.segments().pop().unwrap();
    // Larger than what the segment has left.
    entry(&mut extents, 19, 19_000, &mut all);
    sync(&mut extents);
    let bytes = memory.read(&segment(first.number)).unwrap().len() as u64;
    assert_eq!(bytes, extents.segments()[0].bytes, "the zeros are cut");
    assert_eq!(zeros(&memory, &extents), 0, "behind a large batch");
    survives(&memory, &all);
}

#[test]
fn those_that_a_disk_may_have_taken_in_part_are_cut_too() {
    let memory = formatted();
    let hooked = Hooked::new(Arc::new(memory.clone()));
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = cuts.clone();
    hooked.set(move |call, _| match call {
        Call::WriteAhead => Err(std::io::ErrorKind::StorageFull.into()),
        Call::Truncate => {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        _ => Ok(()),
    });
    let (mut extents, _) = open(Arc::new(hooked), settings(20_000), None).unwrap();
    let mut all = Vec::new();
    for slot in 1..=MANY {
        entry(&mut extents, slot, 100, &mut all);
        sync(&mut extents);
    }
    assert_eq!(cuts.load(Ordering::SeqCst), 0);
    // It begins a segment.
    entry(&mut extents, MANY + 1, 19_000, &mut all);
    sync(&mut extents);
    assert_eq!(cuts.load(Ordering::SeqCst), 1);
    survives(&memory, &all);
}

#[test]
fn a_disk_that_does_not_take_them_takes_data() {
    for fails in 1..=2 {
        let memory = formatted();
        let faulty = Faulty::new(Arc::new(memory.clone()));
        let (mut extents, _) = open(Arc::new(faulty.clone()), settings(20_000), None).unwrap();
        let mut all = Vec::new();
        for slot in 1..MANY {
            entry(&mut extents, slot, 100, &mut all);
            sync(&mut extents);
        }
        entry(&mut extents, MANY, 100, &mut all);
        let batch = extents.take_batch().unwrap();
        let ahead = batch.ahead();
        extents.batch_done(batch.run().unwrap());
        // The zeros, or their sync.
        faulty.fail_at(fails);
        assert_eq!(ahead.run().is_ok(), fails == 1);
        faulty.clear();
        let (kind, group, ballot) = (Kind::Entry, GroupId(1), Ballot(7));
        let next = extents.append(kind, group, MANY + 1, ballot, &[b"next"], &mut Vec::new);
        // One that fails to sync has failed for good.
        assert_eq!(next.is_ok(), fails == 1);
        if let Some(batch) = extents.take_batch() {
            batch.run().unwrap();
        }
        let (_, seen) = open(Arc::new(memory), settings(20_000), None).unwrap();
        let more = usize::from(fails == 1);
        assert!(seen.losses.is_empty() && seen.records.len() == all.len() + more);
        assert_eq!(seen.records[..all.len()], all);
    }
}
