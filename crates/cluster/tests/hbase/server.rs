//! A cluster for a test.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use esker_cluster::cells::{Cells, HBase};
use esker_cluster::{Options, Store, hbase_address};

/// There is one cluster at a time: its ports are fixed.
static ONE: Mutex<()> = Mutex::new(());

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tools/esker_cluster/hbase.py"
);

/// It ends with this.
pub(crate) struct Cluster {
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    /// `None` if no servers can be had here.
    pub(crate) fn start(nodes: usize) -> Option<Cluster> {
        if std::env::var_os("ESKER_HBASE").is_none() {
            eprintln!("NOT TESTED: ESKER_HBASE names no folder for the jars of HBase");
            return None;
        }
        let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let cluster = Cluster { _one: one };
        cluster.run(&["down"]);
        cluster.run(&["up", &nodes.to_string()]);
        Some(cluster)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("python3")
            .arg(SCRIPT)
            .args(arguments)
            // A killed server's regions move soon.
            .env("ESKER_HBASE_SESSION", "4000")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{errors}");
        text
    }

    pub(crate) fn admin(&self, what: &str, table: &str) -> String {
        self.run(&["admin", what, table])
    }

    /// Puts and markers of deletions of a table, as they are stored.
    pub(crate) fn raw(&self, table: &str) -> (u64, u64) {
        let text = self.admin("raw", table);
        let mut words = text.split([' ', ',']).filter_map(|word| word.parse().ok());
        (words.next().unwrap(), words.next().unwrap())
    }

    pub(crate) fn cells(&self, namespace: &str) -> HBase {
        let settings = hbase_address(&format!("//{}/{namespace}", gateway())).unwrap();
        HBase::connect(&settings, true).unwrap()
    }

    pub(crate) fn store(&self, namespace: &str) -> Store {
        let cells = self.cells(namespace);
        Store::open(std::sync::Arc::new(cells), true, Options::default()).unwrap()
    }

    /// The table of a dataset's records, as the catalog has it.
    pub(crate) fn table_of(&self, namespace: &str, dataset: &str) -> String {
        let rows = self
            .cells(namespace)
            .swapped(&"esker_state".into(), b"catalog");
        let catalog: serde_json::Value = serde_json::from_slice(&rows.unwrap()[0].value).unwrap();
        format!("{namespace}:esker_{}", catalog["datasets"][dataset]["id"])
    }

    /// A store whose tables of records have the coprocessor.
    pub(crate) fn store_with_hook(&self, namespace: &str) -> Store {
        let jar = jar();
        let gateway = gateway();
        let address = format!("//{gateway}/{namespace}?regions=2&coprocessor=file://{jar}");
        let cells = HBase::connect(&hbase_address(&address).unwrap(), true).unwrap();
        Store::open(std::sync::Arc::new(cells), true, Options::default()).unwrap()
    }
}

/// `ESKER_HBASE_PORTS` sets clusters of several tests apart.
fn gateway() -> String {
    let more = std::env::var("ESKER_HBASE_PORTS");
    let more: u16 = more.map_or(0, |more| more.parse().unwrap());
    format!("127.0.0.1:{}", 9090 + more)
}

/// The coprocessor, built if need be.
fn jar() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/java");
    let built = Command::new("mvn")
        .args(["-B", "-q", "package"])
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&built.stdout);
    assert!(built.status.success(), "{text}");
    let jar = Path::new(folder).join("target/esker-hbase.jar");
    jar.canonicalize().unwrap().display().to_string()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}
