//! Indexes that are added and dropped while others write, one test each.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_cluster::cells::Swapped;
use esker_cluster::{Dataset, Error, IndexProgress, IndexStep, Result, Store};
use esker_model::condition::field;
use esker_model::definition::Index;
use esker_model::query::Request;
use esker_model::schema::Path;
use parking_lot::Mutex;

use crate::hooked::{Hook, Hooked};
use crate::hooks::Writes;
use crate::net::Net;
use crate::scenes::{MINUTE, dataset, options, put, rest, scene};

fn n() -> Path {
    "n".parse().unwrap()
}

/// The keys and values of records with this value, as a query in another process finds them.
fn with(dataset: &Dataset, value: i32) -> Vec<(u64, u64)> {
    rest(&mut dataset.find(&Request::of(field("n").eq(value))).unwrap())
}

fn go(_: IndexProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Records hold values of the type that a field was declared with: by an index of another type they
/// were never found again, nor by a scan.
#[test]
fn an_index_of_another_type_than_its_field_is_refused() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 5);
        dataset.drop_index(&n()).unwrap();
        let float = dataset.add_index(n(), Index::composite().float(), &mut go);
        assert!(matches!(float, Err(Error::BadInput(_))), "{float:?}");
        dataset
            .add_index(n(), Index::composite().int(), &mut go)
            .unwrap();
        let found = rest(&mut dataset.find(&Request::of(field("n").eq(5))).unwrap());
        assert_eq!(found, [(1, 5)]);
    });
}

/// An index was dropped and added again when its first addition was about to end: that made the
/// second one ready, which was empty.
#[test]
fn an_addition_makes_no_other_index_ready() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 5);
        dataset.drop_index(&n()).unwrap();
        let other = dataset.clone();
        let mut is_again = false;
        let added = dataset.add_index(n(), Index::composite().int(), &mut |at| {
            let is_last = at.step == IndexStep::Filling && at.done == at.of;
            if is_last && !is_again {
                is_again = true;
                other.drop_index(&n()).unwrap();
                let stop = &mut |at: IndexProgress| match at.step {
                    IndexStep::Waiting => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                };
                let index = Index::composite().int();
                assert!(!other.add_index(n(), index, stop).unwrap().complete);
            }
            ControlFlow::Continue(())
        });
        assert!(is_again);
        assert!(matches!(added, Err(Error::Busy(_))), "{added:?}");
        net.sleep(MINUTE);
        let found = rest(&mut dataset.find(&Request::of(field("n").eq(5))).unwrap());
        assert_eq!(found, [(1, 5)]);
    });
}

/// The same dataset in another process.
fn elsewhere(net: &Arc<Net>) -> Dataset {
    let store = Store::open(net.clone(), false, options(net, 0)).unwrap();
    store.dataset("d").unwrap()
}

/// A process that had read the catalog just before asked the index for some seconds, to which
/// others did not write any more.
#[test]
fn no_query_reads_an_index_to_which_nothing_is_written_any_more() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 5);
        let other = elsewhere(net);
        assert_eq!(with(&other, 5), [(1, 5)]);
        dataset.drop_index(&n()).unwrap();
        put(&dataset, 2, 7);
        assert_eq!(with(&other, 7), [(2, 7)]);
    });
}

/// A drop that was interrupted had said already that no query reads the index: the next drop did not
/// wait until all processes knew.
#[test]
fn a_drop_that_is_repeated_waits_as_well() {
    scene(|net| {
        let dataset = dataset(net, 1);
        put(&dataset, 1, 5);
        let other = elsewhere(net);
        assert_eq!(with(&other, 5), [(1, 5)]);
        let hook = FailingChange {
            left: AtomicUsize::new(1),
        };
        let store = Store::open(Hooked::new(net.clone(), hook), false, options(net, 0)).unwrap();
        let interrupted = store.dataset("d").unwrap().drop_index(&n());
        assert!(matches!(interrupted, Err(Error::Unavailable(_))));
        let third = elsewhere(net);
        // It knows the catalog of just before.
        assert_eq!(with(&third, 5), [(1, 5)]);
        dataset.drop_index(&n()).unwrap();
        put(&dataset, 2, 7);
        assert_eq!(with(&third, 7), [(2, 7)]);
        assert_eq!(with(&other, 7), [(2, 7)]);
    });
}

/// A change of the catalog behind some others is not made.
struct FailingChange {
    left: AtomicUsize,
}

impl Hook for FailingChange {
    fn fails(&self, partition: &[u8]) -> bool {
        partition == b"catalog" && self.left.fetch_sub(1, Ordering::SeqCst) == 0
    }
}

/// The first process filled the index for the moment that it knew, and said that it was ready, when
/// writers knew a later one.
#[test]
fn an_addition_that_another_process_resumes_is_finished_by_that_one() {
    scene(|net| {
        let dataset = dataset(net, 1);
        dataset.drop_index(&n()).unwrap();
        put(&dataset, 1, 5);
        let (other, third) = (elsewhere(net), elsewhere(net));
        let stop = &mut |at: IndexProgress| match at.step {
            IndexStep::Waiting => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let mut is_resumed = false;
        let added = dataset.add_index(n(), Index::composite().int(), &mut |at| {
            if at.step == IndexStep::Filling && !is_resumed {
                is_resumed = true;
                let (_, filled) = other.resume_index(stop).unwrap().unwrap();
                assert!(!filled.complete);
                net.sleep(20_000);
                put(&third, 2, 5);
            }
            ControlFlow::Continue(())
        });
        assert!(is_resumed);
        assert!(matches!(added, Err(Error::Busy(_))), "{added:?}");
        net.sleep(5_000);
        let found = || {
            let mut found = with(&dataset, 5);
            found.sort_unstable();
            found
        };
        assert_eq!(found(), [(1, 5), (2, 5)]);
        assert!(dataset.resume_index(&mut go).unwrap().unwrap().1.complete);
        net.sleep(5_000);
        assert_eq!(found(), [(1, 5), (2, 5)]);
    });
}

/// The compare-and-set by which an index is added arrives minutes late, and its process gets no
/// answer.
struct LateAddition {
    net: Arc<Net>,
    /// Changes of the catalog before it.
    left: AtomicUsize,
    meanwhile: Mutex<Box<dyn FnMut() + Send>>,
}

impl Hook for LateAddition {
    fn swaps(&self, partition: &[u8]) {
        if partition == b"catalog" && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.net.sleep(5 * MINUTE);
            (self.meanwhile.lock())();
        }
    }

    fn swapped(&self, _: &str, partition: &[u8], found: Result<Swapped>) -> Result<Swapped> {
        let is_late = self.left.load(Ordering::SeqCst) > usize::MAX / 2;
        if partition == b"catalog" && is_late {
            return Err(Error::Unavailable("no answer".to_string()));
        }
        found
    }
}

/// Writers did not know the index from the moment on that its addition said: records that were
/// written between that moment and the late change had no entries.
#[test]
fn an_addition_that_lands_late_has_the_records_of_writers_that_did_not_know_it() {
    scene(|net| {
        let dataset = dataset(net, 1);
        dataset.drop_index(&n()).unwrap();
        let writer = elsewhere(net);
        put(&writer, 1, 5);
        let cells = Hooked::new(
            net.clone(),
            LateAddition {
                net: net.clone(),
                left: AtomicUsize::new(1),
                meanwhile: Mutex::new(Box::new(move || put(&writer, 2, 5))),
            },
        );
        let late = Store::open(cells, false, options(net, 0)).unwrap();
        let late = late.dataset("d").unwrap();
        let added = late.add_index(n(), Index::composite().int(), &mut go);
        assert!(matches!(added, Err(Error::Unavailable(_))), "{added:?}");
        let resumed = dataset.resume_index(&mut go).unwrap();
        assert!(resumed.is_some_and(|(_, filled)| filled.complete));
        net.sleep(MINUTE);
        let mut found = with(&dataset, 5);
        found.sort_unstable();
        assert_eq!(found, [(1, 5), (2, 5)]);
    });
}

/// A conditional writer died before its put, and another one made the put after the index was
/// filled: the record had no entry.
#[test]
fn what_is_finished_for_a_dead_writer_is_found_by_an_index_that_was_filled_since() {
    scene(|net| {
        let dataset = dataset(net, 1);
        dataset.drop_index(&n()).unwrap();
        let insert = |dataset: &Dataset| {
            let mut batch = dataset.batch();
            batch.insert_json(br#"{"id":1,"n":5}"#).unwrap();
            batch.commit()
        };
        let dies = |writes: &[esker_cluster::cells::Write]| (0..writes.len()).collect();
        let cells = Hooked::new(net.clone(), Writes(Mutex::new(Box::new(dies))));
        let dying = Store::open(cells, false, options(net, 0)).unwrap();
        let dying = dying.dataset("d").unwrap();
        let mut has_died = false;
        let added = dataset.add_index(n(), Index::composite().int(), &mut |at| {
            // The writes of before the index counts have half a minute to end.
            if at.step == IndexStep::Waiting && !has_died && at.of - at.done < 27_000 {
                has_died = true;
                assert!(insert(&dying).is_err());
            }
            if at.step == IndexStep::Filling && at.done == at.of {
                // It finds the record that it has finished.
                let second = insert(&dataset);
                assert!(matches!(second, Err(Error::Exists(_))), "{second:?}");
            }
            ControlFlow::Continue(())
        });
        assert!(has_died && added.unwrap().complete);
        net.sleep(5_000);
        assert_eq!(with(&dataset, 5), [(1, 5)]);
    });
}
