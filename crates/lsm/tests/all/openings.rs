//! Openings that another process, a failure or foreign files come in between of: a store that
//! exists is never replaced, and nothing that the engine did not write is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::reader::put;
use crate::common::{DIR, open};
use esker_lsm::{Cost, Durability, Group, TreeId};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

fn create(group: &Group) -> TreeId {
    group.create_trees(&[("t".into(), vec![])]).unwrap()[0]
}

fn has(group: &Group, key: &[u8]) -> bool {
    let tree = group.tree("t").unwrap();
    let found = group.snapshot().get(tree, key, &Cost::default());
    found.unwrap().is_some()
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
