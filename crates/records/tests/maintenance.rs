//! The maintenance strategies: every one gives the answers of a scan, with and without records, and
//! does what makes it that strategy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Maintenance, Merging, Options,
    Repair, Type, Validation,
};

fn open(fs: &Arc<lsm::fs::memory::Memory>) -> Database {
    let options = Options {
        fs: fs.clone(),
        background: false,
        memory_budget: 1 << 20,
        table_size: 64 << 10,
        ..Options::default()
    };
    Database::create_or_open("/store".as_ref(), options).unwrap()
}

fn keys_of(dataset: &Dataset, user: u64, validation: Validation) -> Vec<String> {
    let query = dataset
        .query()
        .equals(&"user".parse().unwrap(), &user.to_string());
    let keys = query.validation(validation).keys().unwrap();
    let mut keys: Vec<String> = keys.map(|key| key.unwrap().to_string()).collect();
    keys.sort();
    keys
}

#[test]
fn every_strategy_and_kind_gives_the_same_answers() {
    let kinds = IndexKind::ALL
        .into_iter()
        .filter(|kind| kind.is_standalone());
    let mut random = fastrand::Rng::with_seed(5);
    for kind in kinds {
        for maintenance in Maintenance::ALL {
            for merging in [Merging::Leveled, Merging::Tiered, Merging::Correlated] {
                for repair in [Repair::Merge, Repair::None] {
                    one_life(kind, maintenance, merging, repair, &mut random);
                }
            }
        }
    }
}

fn one_life(
    kind: IndexKind,
    maintenance: Maintenance,
    merging: Merging,
    repair: Repair,
    random: &mut fastrand::Rng,
) {
    let label = format!("{kind} {maintenance} {merging} {repair}");
    let fs = Arc::new(lsm::fs::memory::Memory::new());
    let mut db = open(&fs);
    let def = DatasetDef::new("id".parse().unwrap(), KeyType::Int)
        .index("user".parse().unwrap(), kind, Type::Int)
        .maintenance(maintenance)
        .merging(merging)
        .repair(repair);
    let mut dataset = db.create_dataset("d", def.clone()).unwrap();
    assert_eq!(dataset.def(), def);
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut pinned = Vec::new();
    for step in 0..60 {
        let mut batch = dataset.batch();
        for _ in 0..random.usize(1..60) {
            let (id, user) = (random.u64(..300), random.u64(..8));
            if random.u8(..8) == 0 {
                batch
                    .delete(&dataset.parse_key(&id.to_string()).unwrap())
                    .unwrap();
                model.remove(&id);
            } else {
                let json = format!(r#"{{"id":{id},"user":{user},"pad":"{:0>200}"}}"#, step);
                batch.put(json.as_bytes()).unwrap();
                model.insert(id, user);
            }
        }
        batch.commit(Durability::Os).unwrap();
        drop(batch);
        match random.u8(..12) {
            0 => db.compact(None).unwrap(),
            1..4 => db.flush().unwrap(),
            4 => pinned.push((dataset.snapshot(), model.clone())),
            5 if pinned.is_empty() => {
                drop(dataset);
                db.close().unwrap();
                db = open(&fs);
                dataset = db.dataset("d").unwrap();
            }
            _ => {}
        }
        if step % 6 != 0 {
            continue;
        }
        for user in 0..8 {
            let expected: Vec<String> = {
                let of_user = model.iter().filter(|(_, u)| **u == user);
                let mut keys: Vec<String> = of_user.map(|(id, _)| id.to_string()).collect();
                keys.sort();
                keys
            };
            for validation in [Validation::Auto, Validation::Direct, Validation::Timestamp] {
                assert_eq!(
                    keys_of(&dataset, user, validation),
                    expected,
                    "{label}, step {step}"
                );
            }
            let query = || {
                dataset
                    .query()
                    .equals(&"user".parse().unwrap(), &user.to_string())
            };
            assert_eq!(
                query().count().unwrap().0,
                expected.len() as u64,
                "{label}, step {step}"
            );
            let (lo, hi) = (user.to_string(), (user + 2).to_string());
            let range = dataset.query().between(&"user".parse().unwrap(), &lo, &hi);
            let inside = model
                .values()
                .filter(|u| (user..=user + 2).contains(*u))
                .count();
            assert_eq!(
                range.count().unwrap().0,
                inside as u64,
                "{label}, step {step}"
            );
            assert_eq!(
                query().run().unwrap().count(),
                expected.len(),
                "{label}, step {step}"
            );
        }
        for (snapshot, model) in &pinned {
            let query = snapshot.query().equals(&"user".parse().unwrap(), "3");
            let expected = model.values().filter(|user| **user == 3).count();
            assert_eq!(
                query.clone().count().unwrap().0,
                expected as u64,
                "{label}, a snapshot"
            );
            assert_eq!(
                query.keys().unwrap().count(),
                expected,
                "{label}, a snapshot"
            );
        }
    }
}
