//! Clocks that are set while a process runs, machines that are suspended, and a catalog that
//! changes amid a write, one test each.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use esker_cluster::cells::{Cells, Write};
use esker_cluster::{Clocks, Dataset, Error, Options, Store};
use esker_model::condition::field;
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::Request;
use esker_model::record::Update;
use esker_model::schema::KeyType;
use parking_lot::Mutex;

use crate::hooked::{Hook, Hooked};
use crate::hooks::{OnWrites, Writes};
use crate::net::Net;
use crate::scenes::{CALM, MINUTE, dataset, key, options, put, rest, scene};

const HOUR: i64 = 3_600_000;

/// Clocks that a test sets.
struct Settable {
    net: Arc<Net>,
    /// What the wall clock is ahead.
    ahead: AtomicI64,
    /// What the steady clock has not counted.
    asleep: AtomicU64,
}

impl Settable {
    fn new(net: &Arc<Net>) -> Arc<Settable> {
        Arc::new(Settable {
            net: net.clone(),
            ahead: AtomicI64::new(0),
            asleep: AtomicU64::new(0),
        })
    }
}

impl Clocks for Settable {
    fn wall(&self) -> u64 {
        let ahead = self.ahead.load(Ordering::SeqCst);
        self.net.now().saturating_add_signed(ahead)
    }

    fn steady(&self) -> u64 {
        self.net.now() - self.asleep.load(Ordering::SeqCst)
    }

    fn sleep(&self, millis: u64) {
        self.net.sleep(millis);
    }
}

/// The dataset `d` in another process.
fn process(net: &Arc<Net>, clocks: Arc<dyn Clocks>, on_writes: OnWrites) -> (Store, Dataset) {
    let cells = Hooked::new(net.clone(), Writes(Mutex::new(on_writes)));
    let options = Options {
        clocks,
        ..options(net, 0)
    };
    let store = Store::open(cells, false, options).unwrap();
    let dataset = store.dataset("d").unwrap();
    (store, dataset)
}

fn nothing() -> OnWrites {
    Box::new(|_| Vec::new())
}

fn tries_to_put(dataset: &Dataset, id: u32, n: u32) -> esker_cluster::Result<()> {
    let mut batch = dataset.batch();
    batch.put_json(format!(r#"{{"id":{id},"n":{n}}}"#).as_bytes())?;
    batch.commit()
}

/// The clock was compared every eight seconds at most: one that was set ahead between two
/// comparisons gave its timestamps to acknowledged writes, and to all later ones of the process.
#[test]
fn a_clock_that_is_set_ahead_for_a_moment_leaves_no_timestamp_of_the_future() {
    scene(|net| {
        let other = dataset(net, 1);
        let clocks = Settable::new(net);
        let (_store, mine) = process(net, clocks.clone(), nothing());
        put(&mine, 1, 1);
        for ahead in [HOUR, 10_000] {
            clocks.ahead.store(ahead, Ordering::SeqCst);
            let refused = tries_to_put(&mine, 1, 2);
            assert!(
                matches!(refused, Err(Error::ClockOff { .. })),
                "{refused:?}"
            );
            clocks.ahead.store(0, Ordering::SeqCst);
            put(&mine, 2, 3);
            net.sleep(5_000);
            put(&other, 2, 4);
            let found = other.find(&Request::of(field("n").eq(4)));
            assert_eq!(rest(&mut found.unwrap()), [(2, 4)]);
        }
    });
}

/// A version of the future, from wherever it comes, is not followed by later ones.
#[test]
fn an_update_of_a_record_of_the_future_is_refused() {
    scene(|net| {
        let dataset = dataset(net, 1);
        let put_of = Arc::new(Mutex::new(None));
        let keep = put_of.clone();
        let on_writes = Box::new(move |writes: &[Write]| {
            let mut records = writes.iter().filter(|write| !write.table.contains("index"));
            *keep.lock() = records.next().cloned();
            Vec::new()
        });
        let (_store, mine) = process(net, Settable::new(net), on_writes);
        put(&mine, 1, 1);
        let mut future = put_of.lock().take().unwrap();
        // The timestamp has its milliseconds in front of 15 bits.
        future.at += (HOUR as u64) << 15;
        future.row[..8].copy_from_slice(&(!future.at).to_be_bytes());
        (0..3).for_each(|replica| net.arrive(replica, &future));
        let updated = dataset.update::<Error>(&key(1), &mut |_| {
            Ok(Update::Put(br#"{"id":1,"n":2}"#.to_vec()))
        });
        assert!(
            matches!(updated, Err(Error::TimestampAhead { .. })),
            "{updated:?}"
        );
        put(&dataset, 2, 2);
        let found = dataset.find(&Request::of(field("n").eq(2)));
        assert_eq!(rest(&mut found.unwrap()), [(2, 2)]);
    });
}

/// A machine was suspended between the entry of a record and the record, for as long as a reader
/// needs to remove both for good. Its steady clock stood still meanwhile, and the write was
/// acknowledged.
#[test]
fn a_write_across_a_suspension_is_not_acknowledged() {
    for suspended_at in [1, 2] {
        scene(|net| {
            dataset(net, 1);
            let clocks = Settable::new(net);
            let (suspended, net_of) = (clocks.clone(), net.clone());
            let mut calls = 0;
            let on_writes = Box::new(move |_: &[Write]| {
                calls += 1;
                if calls == suspended_at {
                    suspended.asleep.fetch_add(2 * MINUTE, Ordering::SeqCst);
                    net_of.sleep(2 * MINUTE);
                }
                Vec::new()
            });
            let (_store, mine) = process(net, clocks, on_writes);
            let done = tries_to_put(&mine, 1, 1);
            assert!(matches!(done, Err(Error::Unavailable(_))), "{done:?}");
        });
    }
}

/// Another thread of the process changes the catalog between the entry of a record and the record:
/// the write failed, though the version of the catalog that it went by was read just before.
#[test]
fn a_write_goes_on_when_its_process_sees_another_version_of_the_catalog() {
    for (wait, goes_on) in [(0, true), (16_000, false)] {
        scene(|net| {
            dataset(net, 1);
            let opened = Arc::new(Mutex::new(None::<Store>));
            let (changing, net_of) = (opened.clone(), net.clone());
            let on_writes = Box::new(move |_: &[Write]| {
                if let Some(store) = changing.lock().take() {
                    for name in ["e", "f", "g"] {
                        let def = DatasetDef::new("id", KeyType::Int);
                        store.create_dataset(name, &def).unwrap();
                    }
                    net_of.sleep(wait);
                }
                Vec::new()
            });
            let (store, mine) = process(net, Settable::new(net), on_writes);
            *opened.lock() = Some(store);
            let done = tries_to_put(&mine, 1, 1);
            assert_eq!(done.is_ok(), goes_on, "{done:?}");
            if !goes_on {
                assert!(matches!(done, Err(Error::Unavailable(_))), "{done:?}");
            }
        });
    }
}

/// Lets compare-and-sets of a row wait before they are sent.
struct SlowSwaps {
    net: Arc<Net>,
    partition: &'static [u8],
    millis: u64,
    /// When each has begun to wait.
    begun: Mutex<Vec<u64>>,
    is_on: AtomicBool,
}

impl SlowSwaps {
    fn new(net: &Arc<Net>, partition: &'static [u8], millis: u64) -> Arc<Hooked<SlowSwaps>> {
        let hook = SlowSwaps {
            net: net.clone(),
            partition,
            millis,
            begun: Mutex::default(),
            is_on: AtomicBool::new(false),
        };
        Hooked::new(net.clone(), hook)
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::SeqCst);
    }
}

impl Hook for SlowSwaps {
    fn swaps(&self, partition: &[u8]) {
        if partition == self.partition && self.is_on.load(Ordering::SeqCst) {
            self.begun.lock().push(self.net.now());
            self.net.sleep(self.millis);
        }
    }
}

/// The change that adds an index took almost a minute, and a writer that had read the catalog just
/// before it made its timestamp eleven seconds later. It wrote no entry, and the fill of the index
/// left it out, since by its timestamp it knew the index.
#[test]
fn an_index_has_the_records_of_the_last_writer_that_does_not_know_it() {
    let net = Net::new(CALM, 2);
    let process = |cells: Arc<dyn Cells>| {
        let store = Store::open(cells, false, options(&net, 0)).unwrap();
        let dataset = store.dataset("d").unwrap();
        (store, dataset)
    };
    let create = || {
        put(&dataset(&net, 1), 1, 1);
    };
    net.run(vec![Box::new(create)]);
    let slow = SlowSwaps::new(&net, b"catalog", 53_000);
    let adds = || {
        let (_store, dataset) = process(slow.clone());
        slow.hook.set(true);
        let (path, index) = ("m".parse().unwrap(), Index::composite().int());
        let added = dataset.add_index(path, index, &mut |_| ControlFlow::Continue(()));
        assert!(added.is_ok(), "{added:?}");
    };
    let writes = || {
        let renewing = SlowSwaps::new(&net, b"writers", 11_000);
        let (_store, dataset) = process(renewing.clone());
        put(&dataset, 2, 2);
        // The first change is for the number of the table.
        while slow.hook.begun.lock().len() < 2 {
            net.sleep(100);
        }
        net.sleep(52_500);
        renewing.hook.set(true);
        let mut batch = dataset.batch();
        batch.put_json(br#"{"id":3,"n":3,"m":3}"#).unwrap();
        batch.commit().unwrap();
        renewing.hook.set(false);
        assert_eq!(renewing.hook.begun.lock().len(), 1);
        net.sleep(10 * MINUTE);
        let mut found = dataset.find(&Request::of(field("m").eq(3))).unwrap();
        assert_eq!(rest(&mut found), [(3, 3)]);
        let checked = dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(checked.errors, [""; 0]);
    };
    net.run(vec![Box::new(adds), Box::new(writes)]);
}
