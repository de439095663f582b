//! Stopping reads of the engine with a `Stop`: cursors, walks and lookups, in memtables and in
//! tables.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{DIR, small};
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Expected, Group, LookupOptions, Options, PlainTrees,
    Result, Snapshot, Stop, TreeId,
};
use esker_sim::memory::Memory;

const KEYS: u32 = 20_000;

/// A tree of two components, tables and a memtable, or of a memtable alone.
fn filled(flushed: bool) -> (Group, TreeId) {
    let options = Options {
        memory_budget: 64 << 20,
        ..small(Arc::new(Memory::new()))
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
    let tree = group
        .create_trees(&[("t".to_string(), Vec::new())])
        .unwrap()[0];
    for round in 0..2 {
        let mut batch = Batch::new();
        for key in 0..KEYS {
            batch.put(tree, &key.to_be_bytes(), &[b'x'; 20]).unwrap();
        }
        group.write(&mut batch, Durability::Os).unwrap();
        if round == 0 && flushed {
            group.flush().unwrap();
        }
    }
    (group, tree)
}

fn cancelled<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Cancelled { deadline: false }),
        "{error}"
    );
}

fn stopped(group: &Group) -> (Snapshot, Stop) {
    let stop = Stop::new();
    (group.snapshot().with_stop(Some(stop.clone())), stop)
}

#[test]
fn a_cursor_of_a_memtable_stops_at_once_and_one_of_tables_at_the_next_block() {
    for flushed in [false, true] {
        let (group, tree) = filled(flushed);
        if flushed {
            group.flush().unwrap();
        }
        for readahead in [0, 64 << 10] {
            for forward in [true, false] {
                let (snapshot, stop) = stopped(&group);
                let mut cursor = snapshot.entries(tree, readahead);
                if forward {
                    cursor.seek_first().unwrap()
                } else {
                    cursor.seek_last().unwrap()
                }
                stop.cancel();
                let mut steps = 0;
                let error = loop {
                    let step = if forward {
                        cursor.next()
                    } else {
                        cursor.prev()
                    };
                    match step {
                        Ok(()) => steps += 1,
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::Cancelled { deadline: false }));
                // A block of 512 bytes.
                let most = if flushed { 100 } else { 0 };
                assert!(steps <= most, "{steps} steps");
                cancelled(snapshot.entries(tree, readahead).seek_first());
                cancelled(snapshot.cursor(tree, readahead).seek_last());
            }
        }
    }
}

#[test]
fn a_walk_of_one_key_stops_between_its_entries() {
    let (group, tree) = filled(true);
    let (snapshot, stop) = stopped(&group);
    let mut walk = snapshot.walk(tree, &7u32.to_be_bytes());
    assert!(walk.next_entry().unwrap().is_some());
    stop.cancel();
    cancelled(walk.next_entry());
    // A snapshot without it is not affected.
    let mut walk = group.snapshot().walk(tree, &7u32.to_be_bytes());
    while walk.next_entry().unwrap().is_some() {}
}

#[test]
fn a_lookup_of_many_keys_stops_in_the_middle() {
    for flushed in [false, true] {
        let (group, tree) = filled(flushed);
        if flushed {
            group.flush().unwrap();
        }
        let (snapshot, stop) = stopped(&group);
        let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_be_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut visited = 0;
        cancelled(
            snapshot.visit_batch(tree, &keys, &snapshot.cost(), &mut |_, _| {
                visited += 1;
                stop.cancel();
            }),
        );
        // A memtable stops at the next key, tables after the blocks that were fetched together.
        let most = if flushed { KEYS } else { 2 };
        assert!((1..most).contains(&visited), "{visited} keys");
        let components = snapshot.components(tree);
        let (cost, options) = (snapshot.cost(), LookupOptions::default());
        let lookup = snapshot.lookup(&components, &keys, Expected::Unknown, options, &cost);
        cancelled(lookup.visit_all(&mut |_, _| panic!("it was stopped before")));
        let cost = Cost::default();
        let mut found = Vec::new();
        snapshot.get_batch(tree, &keys, &mut found, &cost).unwrap();
        assert!(found.iter().all(Option::is_some));
    }
}

#[test]
fn a_deadline_is_noticed_once_it_has_passed() {
    let (group, tree) = filled(false);
    let deadline = Instant::now() + Duration::from_millis(1);
    let stop = Stop::at(deadline);
    let cost = Cost::until(Some(&stop));
    while Instant::now() < deadline {
        let _ = cost.check();
    }
    // The clock is not read at each check.
    let noticed = (0..64).find_map(|_| cost.check().err());
    assert!(matches!(noticed, Some(Error::Cancelled { deadline: true })));
    assert!(stop.check().is_err());
    let snapshot = group.snapshot().with_stop(Some(stop));
    let error = snapshot.cursor(tree, 0).seek_first().unwrap_err();
    assert!(matches!(error, Error::Cancelled { deadline: true }));
    let never = group.snapshot().with_stop(Some(Stop::after(Duration::MAX)));
    let mut cursor = never.cursor(tree, 0);
    cursor.seek_first().unwrap();
    let mut keys = 0;
    while cursor.valid() {
        keys += 1;
        cursor.next().unwrap();
    }
    assert_eq!(keys, KEYS);
}

#[test]
fn a_check_that_is_stopped_reports_no_damage() {
    let (group, _) = filled(true);
    let stop = Stop::new();
    assert!(group.check_until(Some(&stop)).unwrap().errors.is_empty());
    stop.cancel();
    cancelled(group.check_until(Some(&stop)));
    assert!(group.check().errors.is_empty());
}
