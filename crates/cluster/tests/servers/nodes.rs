//! The nodes.

use std::process::Command;
use std::sync::Arc;

use esker_cluster::cells::Cassandra;
use esker_cluster::{Options, Store, cassandra_address};

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tools/esker_cluster/cassandra.py"
);

/// They end with this.
pub(crate) struct Nodes(());

impl Nodes {
    /// `None` if no servers can be had here.
    pub(crate) fn start(count: usize) -> Option<Nodes> {
        if std::env::var_os("ESKER_CASSANDRA").is_none() {
            eprintln!("NOT TESTED: ESKER_CASSANDRA names no folder for the jars of Cassandra");
            return None;
        }
        let nodes = Nodes(());
        nodes.run(&["down"]);
        nodes.run(&["up", &count.to_string()]);
        Some(nodes)
    }

    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = Command::new("python3")
            .arg(SCRIPT)
            .args(arguments)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
    }

    pub(crate) fn store(&self, keyspace: &str) -> Store {
        let cells = Arc::new(cells(keyspace));
        Store::open(cells, true, Options::default()).unwrap()
    }
}

/// The same by one node alone at first.
pub(crate) fn store_by(node: u32, keyspace: &str) -> Store {
    let address = cassandra_address(&format!("//127.0.0.{node}/{keyspace}")).unwrap();
    let cells = Arc::new(Cassandra::connect(&address, true).unwrap());
    Store::open(cells, true, Options::default()).unwrap()
}

/// A connection to the nodes.
pub(crate) fn cells(keyspace: &str) -> Cassandra {
    let address = format!("//127.0.0.1,127.0.0.2,127.0.0.3/{keyspace}");
    Cassandra::connect(&cassandra_address(&address).unwrap(), true).unwrap()
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}
