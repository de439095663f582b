//! Files of former segments that later ones are written over.

use std::sync::Arc;

use esker_fs::Fs;
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

use super::common::{Written, append_this, dir, formatted, open, segment, settings, sync};
use crate::extents::{Extents, Kind};
use crate::ids::GroupId;

const BYTES: u32 = 20_000;

fn entry(extents: &mut Extents, slot: u64, bytes: usize, all: &mut Vec<Written>) {
    let payload = vec![slot as u8; bytes];
    append_this(extents, Kind::Entry, GroupId(1), slot, &payload, all);
    sync(extents);
}

fn spares(memory: &Memory) -> usize {
    let names = memory.list(dir()).unwrap();
    let is_spare = |name: &&std::path::PathBuf| name.extension().is_some_and(|end| end == "free");
    names.iter().filter(is_spare).count()
}

/// A log of several segments, of which the first was given up.
fn used(memory: &Memory) -> (Extents, Vec<Written>) {
    let (mut extents, _) = open(Arc::new(memory.clone()), settings(BYTES), None).unwrap();
    let mut all = Vec::new();
    // Small records fill the first one: there are heads of old records everywhere in it.
    for slot in 1..=150 {
        entry(&mut extents, slot, 64, &mut all);
    }
    for slot in 151..=153 {
        entry(&mut extents, slot, 15_000, &mut all);
    }
    extents.remove(1).unwrap();
    all.retain(|record| record.place.segment > 1);
    assert_eq!(spares(memory), 1);
    (extents, all)
}

#[test]
fn what_a_former_segment_had_is_never_read_as_log() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    for bytes in [64, 500, 5000] {
        let memory = formatted();
        let (mut extents, mut all) = used(&memory);
        let last = extents.segments().pop().unwrap().number;
        let mut slot = 154;
        // It begins the next segment, in the file of the first one.
        entry(&mut extents, slot, 15_000, &mut all);
        let begun = extents.segments().pop().unwrap();
        assert_eq!((begun.number, spares(&memory)), (last + 1, 0));
        while extents.segments().pop().unwrap().number == begun.number {
            let left = memory.read(&segment(begun.number)).unwrap().len() as u64;
            let is_behind = left > extents.segments().pop().unwrap().bytes;
            assert!(
                is_behind || slot > 154,
                "it has what it had behind its records"
            );
            for seed in 0..12 {
                let left = memory.power_cut(seed, modes[seed as usize % 4]);
                let (opened, seen) = open(Arc::new(left.clone()), settings(BYTES), None).unwrap();
                assert!(seen.losses.is_empty() && seen.records == all, "slot {slot}");
                let found = opened.segments().pop().unwrap();
                let file = left.read(&segment(found.number)).unwrap().len() as u64;
                assert_eq!(file, found.bytes, "what was behind the records is cut");
            }
            slot += 1;
            entry(&mut extents, slot, bytes, &mut all);
        }
        let whole = extents.segments();
        let whole = whole.iter().find(|one| one.number == begun.number).unwrap();
        let file = memory.read(&segment(begun.number)).unwrap().len() as u64;
        assert_eq!(
            file, whole.bytes,
            "only the last one has bytes behind its records"
        );
    }
}

#[test]
fn a_segment_that_was_begun_in_part_is_none() {
    // At each call of the disk the power goes, and none of what was not synced is left, or all.
    for mode in [PowerCut::Lost, PowerCut::Kept, PowerCut::Torn] {
        for calls in 1..=8 {
            let memory = formatted();
            let (mut extents, all) = used(&memory);
            drop(extents);
            let faulty = Faulty::new(Arc::new(memory.clone()));
            let opened = open(Arc::new(faulty.clone()), settings(BYTES), None).unwrap();
            extents = opened.0;
            assert_eq!(spares(&memory), 0, "an earlier process's are removed");
            let mut more = all.clone();
            for slot in 154..=156 {
                entry(&mut extents, slot, 15_000, &mut more);
            }
            extents.remove(2).unwrap();
            assert_eq!(spares(&memory), 1);
            more.retain(|record| record.place.segment > 2);
            let kept = more.len();
            let payload = vec![1; 15_000];
            append_this(
                &mut extents,
                Kind::Entry,
                GroupId(1),
                157,
                &payload,
                &mut more,
            );
            faulty.fail_from(calls);
            let done = extents.take_batch().unwrap().run().is_ok();
            let left = memory.power_cut(calls, mode);
            let (_, seen) = open(Arc::new(left), settings(BYTES), None).unwrap();
            assert_eq!(seen.losses, [], "{mode:?} {calls}");
            let found = seen.records.len();
            assert!(
                found >= if done { more.len() } else { kept },
                "{mode:?} {calls}"
            );
            assert_eq!(seen.records, more[..found], "{mode:?} {calls}");
        }
    }
}

#[test]
fn few_are_kept_and_their_space_is_given_back_when_it_is_wanted() {
    let memory = formatted();
    let (mut extents, mut all) = used(&memory);
    for slot in 154..=160 {
        entry(&mut extents, slot, 15_000, &mut all);
    }
    for number in 2..=6 {
        extents.remove(number).unwrap();
    }
    assert_eq!(spares(&memory), 2);
    extents.unreserve();
    assert_eq!(spares(&memory), 0);
    entry(&mut extents, 161, 15_000, &mut all);
    all.retain(|record| record.place.segment > 6);
    let (_, seen) = open(Arc::new(memory), settings(BYTES), None).unwrap();
    assert!(seen.losses.is_empty() && seen.records == all);
}
