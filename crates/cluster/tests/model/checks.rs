//! Checks and full repairs, one test each.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_cluster::Store;
use esker_cluster::cells::Cells;
use esker_model::condition::field;
use esker_model::query::Request;
use parking_lot::Mutex;

use crate::hooked::{Hook, Hooked};
use crate::hooks::Counted;
use crate::scenes::{MINUTE, dataset, options, put, repair, rest, scene};

/// A check scanned all records and entries, and then read each of them once more by itself: that
/// took minutes for 65,000 records with six indexes. Entries of no use are read, and some others.
#[test]
fn a_check_reads_one_by_one_what_differs_alone() {
    scene(|net| {
        let dataset = dataset(net, 1);
        let cells = Hooked::new(net.clone(), Counted::default());
        let store = Store::open(cells.clone(), false, options(net, 0)).unwrap();
        let counted = store.dataset("d").unwrap();
        for id in 0..300 {
            put(&counted, id, id % 7);
        }
        let check = || {
            let before = cells.hook.calls.load(Ordering::Relaxed);
            let checked = counted.check(&mut |_| ControlFlow::Continue(())).unwrap();
            (checked, cells.hook.calls.load(Ordering::Relaxed) - before)
        };
        // The timestamps of the writes are before that of the check.
        net.sleep(MINUTE);
        let (checked, calls) = check();
        assert_eq!(checked.errors, [""; 0]);
        assert_eq!((checked.records, checked.entries), (300, 300));
        assert!(calls < 10, "{calls} calls");
        // An obsolete entry, one that is missing, and one of another value.
        put(&counted, 5, 6);
        let entries = cells.hook.entries.lock().clone();
        let mut damage = vec![entries[100].clone(), entries[200].clone()];
        damage[0].value = None;
        damage[1].row[0] ^= 1;
        for outcome in Cells::write(&**net, damage) {
            outcome.unwrap();
        }
        net.sleep(MINUTE);
        let (checked, calls) = check();
        assert_eq!(checked.wrong, 2, "{checked:?}");
        assert!(
            checked.errors[0].contains("key 100 has no entry"),
            "{checked:?}"
        );
        assert!(
            checked.errors[1].contains("key 200 is not of its record"),
            "{checked:?}"
        );
        assert_eq!((checked.records, checked.entries), (300, 301));
        assert_eq!(checked.obsolete, 1, "{checked:?}");
        assert!(calls < 100, "{calls} calls");
        // What was deleted at the timestamp of its put stays so.
        let repaired = repair(&dataset, true).unwrap();
        assert_eq!(
            (repaired.obsolete, repaired.entries),
            (1, 1),
            "{repaired:?}"
        );
        let (checked, _) = check();
        let left = (checked.wrong, checked.entries, checked.obsolete);
        assert_eq!(left, (1, 299, 0), "{checked:?}");
    });
}

/// A full repair counted an entry of another value than its record's as removed and left it: what
/// removes obsolete entries looks again at what hides them, and nothing hides this one.
#[test]
fn a_full_repair_removes_an_entry_of_another_value_than_its_records() {
    for versions in [1, 2] {
        scene(|net| {
            let dataset = dataset(net, versions);
            let counted = Hooked::new(net.clone(), Counted::default());
            let store = Store::open(counted.clone(), false, options(net, 0)).unwrap();
            for n in 1..=2 {
                put(&store.dataset("d").unwrap(), 1, n);
            }
            // Of the record, and, where two versions are kept, of the one before.
            let mut strange = counted.hook.entries.lock().clone();
            let count = strange.len();
            strange.iter_mut().for_each(|entry| entry.row[0] ^= 1);
            for outcome in Cells::write(&**net, strange) {
                outcome.unwrap();
            }
            net.sleep(2 * MINUTE);
            let check = || dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(check().wrong, u64::from(versions), "{:?}", check());
            let repaired = repair(&dataset, true).unwrap();
            assert_eq!(repaired.entries, count as u64, "{repaired:?}");
            let checked = check();
            assert_eq!((checked.wrong, checked.obsolete), (0, 0), "{checked:?}");
            assert_eq!(checked.entries, u64::from(versions), "{checked:?}");
            let all = Request::of(field("n").ge(0));
            assert_eq!(rest(&mut dataset.find(&all).unwrap()), [(1, 2)]);
        });
    }
}

/// Does something after some of the pages of scans, by their numbers.
#[derive(Default)]
struct AfterScans {
    seen: AtomicUsize,
    then: Mutex<BTreeMap<usize, Box<dyn FnOnce() + Send>>>,
}

impl Hook for AfterScans {
    fn scanned(&self) {
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        let then = self.then.lock().remove(&number);
        if let Some(then) = then {
            then();
        }
    }
}

/// A record that is written amid a check, by a clock that is behind, seems to be from before it. It
/// is replaced once the check has read it, and a query removes its entry before the check looks for
/// that: the check looks at the record again, and finds nothing wrong.
#[test]
fn a_check_finds_nothing_wrong_with_a_record_that_is_replaced_meanwhile() {
    // Pages of scans: first three of records and of entries in turn, then the records once more.
    for (first, second) in (0..6).flat_map(|first| (6..9).map(move |second| (first, second))) {
        scene(|net| {
            let dataset = dataset(net, 1);
            let behind = Store::open(net.clone(), false, options(net, -1_900)).unwrap();
            let behind = behind.dataset("d").unwrap();
            put(&dataset, 2, 7);
            net.sleep(MINUTE);
            let hook = AfterScans::default();
            let writer = behind.clone();
            let write: Box<dyn FnOnce() + Send> = Box::new(move || put(&writer, 1, 1));
            hook.then.lock().insert(first, write);
            let replace: Box<dyn FnOnce() + Send> = Box::new(move || {
                put(&behind, 1, 2);
                let one = Request::of(field("n").eq(1));
                assert_eq!(rest(&mut behind.find(&one).unwrap()), []);
            });
            hook.then.lock().insert(second, replace);
            let store = Store::open(Hooked::new(net.clone(), hook), false, options(net, 0));
            let checking = store.unwrap().dataset("d").unwrap();
            let checked = checking.check(&mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(checked.errors, [""; 0], "after pages {first} and {second}");
        });
    }
}
