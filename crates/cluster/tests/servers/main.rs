//! Three real nodes of Apache Cassandra, which the test starts itself (`tools/esker_cluster`; it
//! needs Java 17 and Maven).
//!
//! `ESKER_CASSANDRA=FOLDER cargo test -p esker-cluster --test servers` runs it; jars are fetched
//! into the folder once. Without the variable it says that it tested nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod clients;
mod dying;
#[path = "../common/hooked.rs"]
mod hooked;
mod identity;
mod nodes;
mod secure;

use std::sync::Mutex;
use std::time::Duration;

use nodes::Nodes;

/// What is obsolete, or of a dead writer, may be removed after this time.
const SETTLED: Duration = Duration::from_secs(66);

/// There is one cluster at a time: its addresses are fixed.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn users_and_certificates() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(nodes) = Nodes::start_secure() else {
        return;
    };
    secure::all(&nodes.folder());
}

#[test]
fn a_keyspace_that_is_made_again_is_another_one() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(nodes) = Nodes::start(3) else {
        return;
    };
    clients::begin_at_once();
    identity::begun_by_processes();
    identity::made_again(&nodes);
}

#[test]
fn nothing_acknowledged_is_lost_while_nodes_and_writers_fail() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(nodes) = Nodes::start(3) else {
        return;
    };
    let store = nodes.store("esker_test");
    let dataset = store.create_dataset("d", &clients::definition()).unwrap();
    let known = clients::run(&nodes, &dataset, || {
        std::thread::sleep(Duration::from_secs(6));
        nodes.run(&["kill", "3"]);
        std::thread::sleep(Duration::from_secs(8));
        nodes.run(&["start", "3"]);
        std::thread::sleep(Duration::from_secs(4));
        nodes.run(&["pause", "2"]);
        std::thread::sleep(Duration::from_secs(8));
        nodes.run(&["resume", "2"]);
        std::thread::sleep(Duration::from_secs(6));
    });
    clients::all_found(&dataset, &known);
    dying::all(&dataset);
    std::thread::sleep(SETTLED);
    clients::repaired(&dataset, false);
    clients::all_found(&dataset, &known);
    let obsolete = clients::checked(&dataset).obsolete;
    assert_eq!(obsolete, 0, "after a repair");
    clients::repaired(&dataset, true);
    let checked = clients::checked(&dataset);
    let useless = checked.obsolete + checked.dangling + checked.pending;
    assert_eq!(useless, 0, "after a full repair: {checked:?}");
    clients::all_found(&dataset, &known);
    eprintln!("{checked:?}");
}

/// A process that makes a keyspace: see [`identity`].
#[test]
fn a_process_that_begins() {
    identity::child();
}

/// A process that dies amid a write: see [`dying`].
#[test]
fn a_process_that_dies() {
    dying::child();
}
