//! A store that is opened for one write at a time, as on the command line, stays compact.

use std::path::Path;
use std::sync::Arc;

use esker_lsm::{Batch, Cost, Durability, Group, Options, PlainTrees};
use esker_sim::memory::Memory;

#[test]
fn opening_for_one_write_at_a_time_does_not_gather_runs() {
    let fs = Memory::new();
    for background in [false, true] {
        let dir = format!("/store-{background}");
        let open = || {
            let options = Options {
                fs: Arc::new(fs.clone()),
                background,
                ..Options::default()
            };
            Group::open(Path::new(&dir), options, Arc::new(PlainTrees), true).unwrap()
        };
        let tree = open().create_trees(&[("t".into(), vec![])]).unwrap()[0];
        for write in 0..150u32 {
            let group = open();
            let mut batch = Batch::new();
            let key = (write % 40).to_be_bytes();
            batch.put(tree, &key, &write.to_be_bytes()).unwrap();
            group.write(&mut batch, Durability::Sync).unwrap();
            group.close().unwrap();
        }
        let group = open();
        let snapshot = group.snapshot();
        let runs = snapshot.version().trees[&tree].runs.len();
        assert!(runs <= 8, "{runs} runs");
        for key in 0..40u32 {
            let found = snapshot.get(tree, &key.to_be_bytes(), &Cost::default());
            let newest = (0..150u32).rev().find(|write| write % 40 == key).unwrap();
            assert_eq!(&*found.unwrap().unwrap().value, newest.to_be_bytes());
        }
    }
}
