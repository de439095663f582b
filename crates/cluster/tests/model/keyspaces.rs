//! Datasets and keyspaces that are made, dropped and made again, one test each.

use esker_cluster::Store;
use esker_model::condition::field;
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::Request;
use esker_model::schema::KeyType;

use crate::hooked::Hooked;
use crate::hooks::Superseded;
use crate::net::{Net, Trouble};
use crate::scenes::{CALM, MINUTE, dataset, key, options, put, repair, rest, scene};

/// A dataset that is dropped left its marks, notes and counts.
#[test]
fn nothing_is_left_of_a_dataset_that_is_dropped() {
    scene(|net| {
        let mut options = options(net, 0);
        options.split_at = 4;
        let store = Store::open(net.clone(), true, options).unwrap();
        let def = DatasetDef::new("id", KeyType::Int).index("n", Index::composite().int());
        let dataset = store.create_dataset("d", &def).unwrap();
        for id in 0..20 {
            put(&dataset, id, id);
        }
        dataset.note("progress", Some(b"7")).unwrap();
        repair(&dataset, false).unwrap();
        let rows = || {
            let rows = net.swapped_rows().into_iter();
            let mine = rows.filter(|(.., partition, _)| {
                ![&b"catalog"[..], b"writers"].contains(&partition.as_slice())
            });
            mine.collect::<Vec<_>>()
        };
        assert!(rows().len() > 3, "{:?}", rows());
        store.drop_dataset("d").unwrap();
        assert_eq!(rows(), []);
    });
}

/// Two processes that change the catalog in the same way propose different values, so that one that
/// gets no answer sees whether its change was made.
#[test]
fn two_processes_reserve_different_numbers() {
    for seed in 0..20 {
        let net = Net::new(Trouble { seed, ..CALM }, 2);
        let create = |name: &'static str| -> Box<dyn FnOnce() + Send + '_> {
            let net = &net;
            Box::new(move || {
                let store = Store::open(net.clone(), true, options(net, 0)).unwrap();
                let def = DatasetDef::new("id", KeyType::Int);
                put(&store.create_dataset(name, &def).unwrap(), 1, 1);
            })
        };
        // The simulated store fails a test that proposes a value twice.
        net.run(vec![create("a"), create("b")]);
        let tables = net.tables();
        assert_eq!(tables.len(), 2, "{tables:?}");
    }
}

/// A process that had a keyspace open when another one dropped it and made it again kept the former
/// catalog, whose version was the later one: its queries found no tables, and its writes failed.
#[test]
fn a_process_follows_a_keyspace_that_is_dropped_and_made_again() {
    scene(|net| {
        let store = Store::open(net.clone(), true, options(net, 0)).unwrap();
        let former = dataset(net, 1);
        for name in ["a", "b"] {
            let def = DatasetDef::new("id", KeyType::Int);
            store.create_dataset(name, &def).unwrap();
        }
        put(&former, 1, 1);
        net.clear();
        assert_eq!(store.dataset_names().unwrap(), [""; 0]);
        let other = dataset(net, 1);
        put(&other, 2, 2);
        // Catalogs are read again after a few seconds, and leases of writers renewed later.
        net.sleep(4_500);
        let all = Request::of(field("n").ge(0));
        assert_eq!(rest(&mut former.find(&all).unwrap()), [(2, 2)]);
        assert_eq!(store.dataset_names().unwrap(), ["d"]);
        put(&former, 3, 3);
        assert_eq!(rest(&mut other.find(&all).unwrap()), [(3, 3), (2, 2)]);
        // The two are writers of different numbers: no two writes have the same timestamp.
        let writer = |id: i128| former.get(&key(id)).unwrap().unwrap().seq() % 512;
        assert_ne!(writer(2), writer(3));
    });
}

/// A process had no answer to a change of the catalog, and another one had followed before it read
/// the catalog again: it found its own dataset there, said that it existed already, and dropped its
/// tables.
#[test]
fn a_change_of_the_catalog_that_another_follows_has_happened() {
    let def = DatasetDef::new("id", KeyType::Int).index("n", Index::composite().int());
    // A number is reserved, the dataset is added, renamed, and dropped.
    for left in 0..4 {
        scene(|net| {
            let other = Store::open(net.clone(), true, options(net, 0)).unwrap();
            let (follows, of) = (other.clone(), def.clone());
            let then = Box::new(move || drop(follows.create_dataset("other", &of).unwrap()));
            let cells = Hooked::new(net.clone(), Superseded::new("esker_state", left, then));
            let store = Store::open(cells, false, options(net, 0)).unwrap();
            let created = store.create_dataset("d", &def).unwrap();
            put(&created, 1, 1);
            store.rename_dataset("d", "e").unwrap();
            assert!(other.dataset_names().unwrap().contains(&"e".to_string()));
            store.drop_dataset("e").unwrap();
            assert_eq!(other.dataset_names().unwrap(), ["other"]);
        });
    }
}

/// A process that died while it created or dropped a dataset left tables that nothing named.
#[test]
fn tables_of_a_crashed_creation_or_drop_are_dropped() {
    let def = DatasetDef::new("id", KeyType::Int).index("n", Index::composite().int());
    let mut crashes = [0, 0];
    for calls in 0..40 {
        scene(|net| {
            let store = || Store::open(net.clone(), true, options(net, 0)).unwrap();
            let other = store();
            other.create_dataset("other", &def).unwrap();
            let of_one = net.made_tables();
            for (at, is_drop) in [false, true].into_iter().enumerate() {
                let crashing = store();
                if is_drop {
                    crashing.create_dataset("dropped", &def).unwrap();
                }
                net.kill_in(calls);
                let done = if is_drop {
                    crashing.drop_dataset("dropped")
                } else {
                    crashing.create_dataset("created", &def).map(drop)
                };
                net.revive();
                crashes[at] += u32::from(done.is_err());
                net.sleep(61 * MINUTE);
                let other = store();
                other.create_dataset("later", &def).unwrap();
                for name in other.dataset_names().unwrap() {
                    if name != "other" {
                        other.drop_dataset(&name).unwrap();
                    }
                }
                assert_eq!(net.made_tables(), of_one, "{calls} calls, {is_drop}");
            }
        });
    }
    assert!(crashes.iter().all(|count| *count > 3), "{crashes:?}");
}
