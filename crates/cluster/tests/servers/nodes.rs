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

    /// One node with TLS and users.
    pub(crate) fn start_secure() -> Option<Nodes> {
        let nodes = Nodes::start(1)?;
        nodes.run(&["down"]);
        nodes.run(&["secure", "1"]);
        Some(nodes)
    }

    /// The folder of the jars and the data.
    pub(crate) fn folder(&self) -> std::path::PathBuf {
        std::env::var_os("ESKER_CASSANDRA").unwrap().into()
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

/// The address of a node: `ESKER_CASSANDRA_NET` sets clusters of several tests apart.
pub(crate) fn host(node: u32) -> String {
    let net = std::env::var("ESKER_CASSANDRA_NET");
    format!("{}.{node}", net.as_deref().unwrap_or("127.0.0"))
}

/// The same by one node alone at first.
pub(crate) fn store_by(node: u32, keyspace: &str) -> Store {
    let address = cassandra_address(&format!("//{}/{keyspace}", host(node))).unwrap();
    let cells = Arc::new(Cassandra::connect(&address, true).unwrap());
    Store::open(cells, true, Options::default()).unwrap()
}

/// A connection to the nodes.
pub(crate) fn cells(keyspace: &str) -> Cassandra {
    let hosts = [1, 2, 3].map(host).join(",");
    let address = format!("//{hosts}/{keyspace}");
    Cassandra::connect(&cassandra_address(&address).unwrap(), true).unwrap()
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}
