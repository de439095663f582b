//! Openings that another process, a failure or foreign files come in between of: a store that
//! exists is never replaced, and nothing that the engine did not write is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::reader::put;
use crate::common::{DIR, open};
use esker_lsm::fs::Fs;
use esker_lsm::{Cost, Durability, Group, TreeId};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

fn create(group: &Group) -> TreeId {
    group.create_trees(&[("t".into(), vec![])]).unwrap()[0]
}

fn has(group: &Group, key: &[u8]) -> bool {
    let tree = group.tree("t").unwrap();
    let found = group.snapshot().get(tree, key, &Cost::default());
    found.unwrap().is_some()
}

fn in_store(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Both processes find no store; one creates it while the other is about to acquire the lock.
#[test]
fn a_store_that_another_process_creates_meanwhile_is_opened() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let (first, other) = (AtomicBool::new(true), memory.clone());
    fs.set(move |call, _| {
        if call == Call::Lock && first.swap(false, Ordering::SeqCst) {
            let group = open(Arc::new(other.clone())).unwrap();
            put(&group, create(&group), b"a", b"1", Durability::Sync);
            group.close().unwrap();
        }
        Ok(())
    });
    let group = open(Arc::new(fs.clone())).unwrap();
    let tree = group.tree("t").unwrap_or_else(|| create(&group));
    put(&group, tree, b"b", b"2", Durability::Sync);
    group.close().unwrap();
    let group = open(Arc::new(memory)).unwrap();
    assert!(has(&group, b"a") && has(&group, b"b"));
}

/// The same while it looks at the rest of a first opening that was cut off.
#[test]
fn a_store_that_is_created_while_its_folder_is_looked_at_is_opened() {
    let memory = Memory::new();
    let rest = Path::new(DIR).join("MANIFEST-000002");
    memory.write(&rest, b"ESKERMAN");
    let fs = Hooked::new(Arc::new(memory.clone()));
    let first = AtomicBool::new(true);
    fs.set(move |call, path| {
        if call == Call::Open && path == rest && first.swap(false, Ordering::SeqCst) {
            for key in [b"a", b"b"] {
                let group = open(Arc::new(memory.clone())).unwrap();
                let tree = group.tree("t").unwrap_or_else(|| create(&group));
                put(&group, tree, key, b"1", Durability::Sync);
                group.close().unwrap();
            }
        }
        Ok(())
    });
    let group = open(Arc::new(fs.clone())).unwrap();
    assert!(has(&group, b"a") && has(&group, b"b"));
}

/// Files whose names are like those of the engine, in a folder without a store and beside one.
#[test]
fn foreign_files_are_not_overwritten() {
    let memory = Memory::new();
    let mut foreign = Vec::new();
    let mut add = |name: String| {
        let text = format!("text of {name}").into_bytes();
        memory.write(&in_store(&name), &text);
        foreign.push((in_store(&name), text));
    };
    for number in 1..5 {
        add(format!("{number:06}.log"));
        add(format!("MANIFEST-{number:06}"));
    }
    let group = open(Arc::new(memory.clone())).unwrap();
    put(&group, create(&group), b"0", b"", Durability::Sync);
    group.flush().unwrap();
    group.close().unwrap();
    let mine = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let last = memory.paths().iter().filter_map(mine).max().unwrap();
    for number in last + 1..last + 20 {
        add(format!("MANIFEST-{number:06}"));
    }
    for round in 1..20_u8 {
        let group = open(Arc::new(memory.clone())).unwrap();
        assert!(has(&group, &[b'0' + round - 1]));
        let tree = group.tree("t").unwrap();
        put(&group, tree, &[b'0' + round], b"", Durability::Sync);
        group.flush().unwrap();
        group.close().unwrap();
    }
    for (path, text) in &foreign {
        let now = memory.read(path);
        assert_eq!(now.as_ref(), Some(text), "{}", path.display());
    }
}

/// A handle whose first write fails retries it with each further one.
#[test]
fn first_writes_that_fail_leave_no_files() {
    for is_new in [false, true] {
        for (failing, name) in [
            (Call::Append, "MANIFEST-"),
            (Call::Create, "CURRENT.new"),
            (Call::Rename, "CURRENT"),
            (Call::SyncDir, ""),
        ] {
            let memory = Memory::new();
            if !is_new {
                let group = open(Arc::new(memory.clone())).unwrap();
                put(&group, create(&group), b"a", b"1", Durability::Sync);
                group.close().unwrap();
            }
            let fs = Hooked::new(Arc::new(memory.clone()));
            let group = open(Arc::new(fs.clone())).unwrap();
            fs.set(move |call, path| {
                let path = path.to_str().unwrap_or_default();
                if call == failing && path.starts_with(&format!("{DIR}/{name}")) | name.is_empty() {
                    Err(io::Error::other("no"))
                } else {
                    Ok(())
                }
            });
            let before = memory.paths().len();
            for _ in 0..50 {
                group.create_trees(&[("u".into(), vec![])]).unwrap_err();
            }
            let paths = memory.paths();
            // `CURRENT.new` may stay.
            assert!(paths.len() <= before + 1, "{failing:?}: {paths:?}");
            fs.clear();
            group.create_trees(&[("u".into(), vec![])]).unwrap();
            group.close().unwrap();
            let group = open(Arc::new(memory)).unwrap();
            assert!(group.tree("u").is_some());
            assert_eq!(is_new, group.tree("t").is_none());
            assert!(is_new || has(&group, b"a"));
        }
    }
}

/// `CURRENT` was replaced and the sync of its name failed: what it names must stay.
#[test]
fn what_a_replaced_current_names_stays() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    put(&group, create(&group), b"a", b"1", Durability::Sync);
    group.close().unwrap();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let group = open(Arc::new(fs.clone())).unwrap();
    let renamed = AtomicBool::new(false);
    fs.set(move |call, _| {
        let was = renamed.fetch_or(call == Call::Rename, Ordering::SeqCst);
        match call {
            Call::SyncDir if was => Err(io::Error::other("no")),
            _ => Ok(()),
        }
    });
    for _ in 0..3 {
        group.create_trees(&[("u".into(), vec![])]).unwrap_err();
        for mode in [PowerCut::Kept, PowerCut::Lost] {
            let left = open(Arc::new(memory.power_cut(0, mode))).unwrap();
            assert!(has(&left, b"a"));
        }
    }
}

/// The process that made the folder may have ended before it made the name durable.
#[test]
fn the_name_of_a_folder_that_was_there_is_made_durable_with_the_store() {
    let memory = Memory::new();
    memory.create_dir(Path::new(DIR)).unwrap();
    let fs = Hooked::new(Arc::new(memory));
    let synced = Arc::new(Mutex::new(Vec::new()));
    let seen = synced.clone();
    fs.set(move |call, path| {
        if call == Call::SyncDir {
            seen.lock().unwrap().push(path.to_path_buf());
        }
        Ok(())
    });
    let group = open(Arc::new(fs.clone())).unwrap();
    put(&group, create(&group), b"a", b"1", Durability::Sync);
    fs.clear();
    let synced = synced.lock().unwrap();
    let parent = Path::new(DIR).parent().unwrap();
    assert!(synced.iter().any(|dir| dir == parent), "{synced:?}");
}
