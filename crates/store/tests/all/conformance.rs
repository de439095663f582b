//! Two implementations of the surface, given the same calls, return the same: the embedded store,
//! with indexes, and the plain one, without.

use esker::{Index, Options};
use esker_store::{Mode, Store, open};

use crate::calls::{def, read, write};

fn stores(dir: &std::path::Path) -> [Box<dyn Store>; 2] {
    let folder = dir.join("folder");
    let file = format!("plain:{}", dir.join("file").display());
    [folder.to_str().unwrap().to_string(), file]
        .map(|address| open(address, Mode::Create, Options::default()).unwrap())
}

#[test]
fn any_store_gives_the_same_answers() {
    for seed in 0..esker_sim::by_tier(4, 8) {
        let dir = tempfile::tempdir().unwrap();
        let mut stores = stores(dir.path());
        for store in &stores {
            store.create_dataset("d", def()).unwrap();
        }
        for round in 0..40 {
            let step = fastrand::Rng::with_seed(seed * 1000 + round);
            let said = stores.each_ref().map(|store| {
                let (dataset, mut rng) = (store.dataset("d").unwrap(), step.clone());
                let mut said = write(&*dataset, &mut rng);
                said.extend(read(&*dataset, &mut rng));
                said.extend(read(&*dataset.snapshot().unwrap(), &mut rng));
                said
            });
            assert_eq!(said[0], said[1], "seed {seed}, round {round}");
            if round % 13 == 12 {
                let [folder, file] = stores;
                folder.close().unwrap();
                file.close().unwrap();
                stores = self::stores(dir.path());
            }
        }
    }
}

#[test]
fn a_store_says_what_it_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, plain] = stores(dir.path());
    for store in [&folder, &plain] {
        let dataset = store.create_dataset("d", def()).unwrap();
        let can = store.capabilities();
        assert_eq!(store.check().is_ok(), can.files);
        assert_eq!(store.keep_snapshot("s").is_ok(), can.snapshots);
        assert_eq!(dataset.stats().is_ok(), can.maintenance);
        assert_eq!(dataset.expire_now().is_ok(), can.expiry);
        assert_eq!(dataset.unfinished_index(), None);
        let task = dataset.add_index("x".parse().unwrap(), Index::recent().int());
        assert_eq!(task.is_ok_and(|task| task.run().is_ok()), can.indexes);
    }
    for store in [&folder, &plain] {
        let error = store.check_dataset("d").unwrap_err().to_string();
        assert!(error.ends_with("check the whole store"), "{error}");
    }
    let error = plain.check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "this store has no files to check: a scan reads all records"
    );
    let error = open("nowhere://x", Mode::Read, Options::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("`nowhere:`"), "{error}");
}
