//! Processes that die at each call of the store that a write makes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_cluster::{Dataset, Options, Store};
use esker_model::condition::field;
use esker_model::query::Request;

use crate::clients::{json, key};
use crate::hooked::{Hook, Hooked};
use crate::nodes::cells;

/// The first key of records of dying processes.
pub(crate) const FIRST: i64 = 1_000_000;
/// The call at which the process dies, and whether it inserts.
const DIES: &str = "ESKER_TEST_DIES";
/// Writes make fewer calls.
const MOST: i64 = 40;

/// For each call of a put and of an insert, a process that dies there: its record is found by key
/// and by each index, or by none.
pub(crate) fn all(dataset: &Dataset) {
    for insert in [0, 1] {
        let mut deaths = 0;
        for call in 0..MOST {
            let id = FIRST + insert * MOST + call;
            let mut child = Command::new(std::env::current_exe().unwrap());
            let child = child.args(["a_process_that_dies", "--exact", "--nocapture"]);
            let output = child
                .env(DIES, format!("{call} {insert}"))
                .output()
                .unwrap();
            let is_dead = !output.status.success();
            deaths += u32::from(is_dead);
            let is_there = dataset.get(&key(id)).unwrap().is_some();
            assert!(
                is_there || is_dead,
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            for condition in [
                field("s").eq("dying") & field("n").eq(id),
                field("n").eq(id),
                field("tags").eq("dying") & field("n").eq(id),
            ] {
                let mut answer = dataset.find(&Request::of(condition)).unwrap();
                assert_eq!(
                    answer.next_record().unwrap().is_some(),
                    is_there,
                    "call {call}"
                );
            }
            if !is_dead {
                break;
            }
        }
        assert!((3..MOST as u32).contains(&deaths), "{deaths} deaths");
        eprintln!("died at {deaths} calls");
    }
}

/// The process.
pub(crate) fn child() {
    let Ok(dies) = std::env::var(DIES) else {
        return;
    };
    let (call, insert) = dies.split_once(' ').unwrap();
    let (call, insert): (i64, i64) = (call.parse().unwrap(), insert.parse().unwrap());
    let cells = Arc::new(cells("esker_test"));
    let cells = Hooked::new(cells, Dying(AtomicUsize::new(usize::MAX)));
    let store = Store::open(cells.clone(), false, Options::default()).unwrap();
    let dataset = store.dataset("d").unwrap();
    let id = FIRST + insert * MOST + call;
    let mut batch = dataset.batch();
    let record = json(id, &("dying".to_string(), id));
    match insert {
        0 => batch.put_json(record.as_bytes()).unwrap(),
        _ => batch.insert_json(record.as_bytes()).unwrap(),
    }
    let left = usize::try_from(call).unwrap();
    cells.hook.0.store(left, Ordering::SeqCst);
    batch.commit().unwrap();
}

/// Aborts the process at a call.
struct Dying(AtomicUsize);

impl Hook for Dying {
    fn called(&self) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 0 {
            std::process::abort();
        }
    }

    // Of several entries, some are written.
    fn is_one_by_one(&self) -> bool {
        true
    }
}
