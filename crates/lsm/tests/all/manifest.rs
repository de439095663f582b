//! The manifest of a long-lived handle is rewritten, and a power cut or a failing call at any
//! moment of that leaves the old or the new one.

use crate::common;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Doing, open};
use esker_lsm::fs::Fs;
use esker_lsm::{Batch, Cost, Durability, Error, Group, Result, TreeId, TreeOptions, TreeProvider};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

/// Long keys, because they are in the manifest.
fn key(n: u64) -> Vec<u8> {
    let mut key = vec![b'k'; 3000];
    key.extend((n % 7).to_be_bytes());
    key
}

fn is_manifest(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_str().unwrap().starts_with("MANIFEST-"))
}

/// Writes, flushes and compacts; returns the acknowledged writes.
fn live(group: &Group, tree: TreeId, rounds: u64) -> (u64, Result<()>) {
    let mut batch = Batch::new();
    for n in 1..=rounds {
        batch.clear();
        batch.put(tree, &key(n), &n.to_be_bytes()).unwrap();
        if let Err(error) = group.write(&mut batch, Durability::Sync) {
            return (n - 1, Err(error));
        }
        let done = group.flush().and_then(|()| group.run_compactions());
        if done.is_err() {
            return (n, done);
        }
    }
    (rounds, Ok(()))
}

fn assert_holds(fs: Arc<dyn Fs>, tree: TreeId, acknowledged: u64) {
    let group = open(fs).unwrap();
    assert!(group.check().errors.is_empty());
    let from = acknowledged.saturating_sub(6).max(1);
    for n in from..=acknowledged {
        let found = group
            .snapshot()
            .get(tree, &key(n), &Cost::default())
            .unwrap();
        let value = u64::from_be_bytes(*found.unwrap().value.first_chunk().unwrap());
        assert!(value == n || value == acknowledged + 1, "{n}: {value}");
    }
    let next = group
        .create_trees(&[(format!("next {acknowledged}"), vec![])])
        .unwrap();
    assert!(next[0] > tree);
    let (_, result) = live(&group, tree, 3);
    result.unwrap();
    group.close().unwrap();
}

#[test]
fn a_manifest_does_not_grow_for_ever() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    for _ in 0..10 {
        let (_, result) = live(&group, tree, 40);
        result.unwrap();
        let manifests: Vec<_> = memory
            .paths()
            .into_iter()
            .filter(|p| is_manifest(p))
            .collect();
        assert_eq!(manifests.len(), 1);
        let len = memory.read(&manifests[0]).unwrap().len();
        assert!(len < 400_000, "{len} bytes");
    }
    drop(group);
    assert_holds(Arc::new(memory), tree, 40);
}

#[test]
fn a_manifest_that_is_written_anew_is_whole_or_not_there() {
    // The calls at which it happens.
    let run = |fs: &Faulty, at: &Arc<AtomicU64>| {
        let hooked = Hooked::new(Arc::new(fs.clone()));
        let group = open(Arc::new(hooked.clone())).unwrap();
        let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
        let (seen, counted) = (at.clone(), fs.clone());
        hooked.set(move |call, path| {
            if call == Call::Create && is_manifest(path) {
                let _ =
                    seen.compare_exchange(0, counted.calls(), Ordering::SeqCst, Ordering::SeqCst);
            }
            Ok(())
        });
        (group, tree)
    };
    let at = Arc::new(AtomicU64::new(0));
    let fs = Faulty::new(Arc::new(Memory::new()));
    let (group, tree) = run(&fs, &at);
    live(&group, tree, 40).1.unwrap();
    drop(group);
    let first = at.load(Ordering::SeqCst);
    assert!(first > 0, "never written anew");
    for call in first - 3..first + 16 {
        for mode in [
            PowerCut::Lost,
            PowerCut::Kept,
            PowerCut::Torn,
            PowerCut::Reordered,
        ] {
            let _doing = Doing(&|| format!("stopped at call {call}, {mode:?}"));
            let memory = Memory::new();
            let fs = Faulty::new(Arc::new(memory.clone()));
            let (group, tree) = run(&fs, &Arc::default());
            fs.fail_from(call + 1 - fs.calls());
            let (acknowledged, result) = live(&group, tree, 40);
            assert!(result.is_err());
            let left = memory.power_cut(call, mode);
            drop(group);
            assert_holds(Arc::new(left), tree, acknowledged);
        }
        let _doing = Doing(&|| format!("call {call} fails"));
        let memory = Memory::new();
        let fs = Faulty::new(Arc::new(memory.clone()));
        let (group, tree) = run(&fs, &Arc::default());
        fs.fail_at(call + 1 - fs.calls());
        let (acknowledged, result) = live(&group, tree, 40);
        assert_eq!(result.is_ok(), acknowledged == 40);
        let left = memory.power_cut(call, PowerCut::Lost);
        drop(group);
        assert_holds(Arc::new(left), tree, acknowledged);
    }
}

/// Refuses a configuration that it accepted before.
struct Picky;

impl TreeProvider for Picky {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        Err(Error::Invalid(format!("tree {name} is not readable")))
    }
}

#[test]
fn a_configuration_that_cannot_be_read_any_more_is_damage_of_the_manifest() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    group
        .create_trees(&[("a".to_string(), b"configuration".to_vec())])
        .unwrap();
    drop(group);
    let options = common::small(Arc::new(memory));
    let error = Group::open(Path::new(common::DIR), options, Arc::new(Picky), false).err();
    match error.unwrap() {
        Error::Corruption { path, what, .. } => {
            assert!(is_manifest(&path), "{}", path.display());
            assert_eq!(what, "tree a is not readable");
        }
        other => panic!("{other:?}"),
    }
}
