//! Keyspaces that several processes make at the same moment, and one that is made again.

use std::process::Command;

use esker_cluster::Error;
use esker_model::condition::field;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use crate::clients::{checked, definition, found_by, json, key};
use crate::nodes::{Nodes, host, store_by};

/// The node by which a process makes a keyspace, the keyspace, and the dataset that it makes there.
const BEGINS: &str = "ESKER_TEST_BEGINS";
const TURNS: usize = 3;

/// Each turn, six processes make one keyspace, by three nodes, and a dataset each.
pub(crate) fn begun_by_processes() {
    for turn in 0..TURNS {
        let keyspace = format!("esker_processes_{turn}");
        let begun: Vec<_> = (0..6)
            .map(|process| {
                let mut child = Command::new(std::env::current_exe().unwrap());
                let child = child.args(["a_process_that_begins", "--exact", "--nocapture"]);
                let node = 1 + process % 3;
                let child = child.env(BEGINS, format!("{node} {keyspace} d{process}"));
                let piped = std::process::Stdio::piped;
                child.stdout(piped()).stderr(piped()).spawn().unwrap()
            })
            .collect();
        for child in begun {
            let output = child.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
        }
        let store = store_by(1, &keyspace);
        let names = store.dataset_names().unwrap();
        assert_eq!(names, ["d0", "d1", "d2", "d3", "d4", "d5"]);
        for name in names {
            let dataset = store.dataset(&name).unwrap();
            assert_eq!(found_by(&dataset, field("s").eq("s")), [1].into());
            checked(&dataset);
        }
    }
}

/// The process.
pub(crate) fn child() {
    let Ok(begins) = std::env::var(BEGINS) else {
        return;
    };
    let words: Vec<&str> = begins.split(' ').collect();
    let store = store_by(words[0].parse().unwrap(), words[1]);
    let dataset = store.create_dataset(words[2], &definition()).unwrap();
    put(&dataset);
}

fn put(dataset: &esker_cluster::Dataset) {
    let mut batch = dataset.batch();
    let record = json(1, &("s".to_string(), 1));
    batch.put_json(record.as_bytes()).unwrap();
    batch.commit().unwrap();
}

/// A keyspace is dropped and made again while a node is down: the node has no part of the former
/// one when it is back.
pub(crate) fn made_again(nodes: &Nodes) {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(1).enable_all().build().unwrap();
    let session = runtime.block_on(async {
        let builder = SessionBuilder::new().known_node(format!("{}:9042", host(1)));
        builder.build().await.unwrap()
    });
    let id = || runtime.block_on(state(&session));
    let store = nodes.store("esker_again");
    put(&store.create_dataset("former", &definition()).unwrap());
    let before = id();
    nodes.run(&["kill", "3"]);
    let dropped = session.query_unpaged("DROP KEYSPACE esker_again", &[]);
    runtime.block_on(dropped).unwrap();
    let again = nodes.store("esker_again");
    assert_ne!(before, id());
    nodes.run(&["start", "3"]);
    nodes.run(&["kill", "2"]);
    // A majority has the node that was down. Until that has heard of the new keyspace there is no
    // answer, which takes minutes on a busy machine.
    let mut tries = (0..8).map(|_| again.dataset_names());
    let names = tries.find(|names| !matches!(names, Err(Error::Unavailable(_))));
    assert_eq!(names, Some(Ok(Vec::new())));
    nodes.run(&["start", "2"]);
    put(&again.create_dataset("d", &definition()).unwrap());
    assert_eq!(again.dataset_names().unwrap(), ["d"]);
    // A process that had the former one open goes on with this one.
    assert_eq!(store.dataset_names().unwrap(), ["d"]);
    let follows = store.dataset("d").unwrap();
    assert!(follows.get(&key(1)).unwrap().is_some());
    put(&follows);
    let by_third = store_by(3, "esker_again");
    let dataset = by_third.dataset("d").unwrap();
    assert!(dataset.get(&key(1)).unwrap().is_some());
}

async fn state(session: &Session) -> String {
    let text = "SELECT id FROM system_schema.tables WHERE keyspace_name = 'esker_again' AND table_name = 'esker_state'";
    let found = session.query_unpaged(text, &[]).await.unwrap();
    let rows = found.into_rows_result().unwrap();
    let (id,) = rows.first_row::<(scylla::value::CqlValue,)>().unwrap();
    format!("{id:?}")
}
