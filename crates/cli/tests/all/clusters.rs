//! Real events in real clusters, which the tests start themselves (`tools/esker_cluster`): the
//! answers of other software, before and after updates and a repair.
//!
//! `ESKER_HBASE=FOLDER cargo test -p esker-cli --test all clusters::` runs that of HBase; without
//! the variable it says that it tested nothing.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use crate::truth::run_at;

/// A cluster of one node.
struct Cluster {
    script: &'static str,
}

impl Cluster {
    fn start(variable: &str, script: &'static str) -> Option<Cluster> {
        if std::env::var_os(variable).is_none() {
            eprintln!("NOT TESTED: {variable} names no folder for the servers' packages");
            return None;
        }
        let cluster = Cluster { script };
        cluster.run(&["down"]);
        cluster.run(&["up", "1"]);
        Some(cluster)
    }

    fn run(&self, arguments: &[&str]) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/esker_cluster/");
        let done = Command::new("python3")
            .arg(format!("{folder}{}", self.script))
            .args(arguments)
            .status();
        assert!(done.unwrap().success(), "{} {arguments:?}", self.script);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

#[test]
fn hbase_gives_the_true_answers() {
    let Some(_cluster) = Cluster::start("ESKER_HBASE", "hbase.py") else {
        return;
    };
    let edits = "hbase://127.0.0.1/edits";
    let indexes = ["node", "user", "time", "kind", "lat:float", "lon:float"];
    run_at(edits, "osm_edits", "osm_edits.ndjson.zst", &indexes, 15);
    let events = "hbase://127.0.0.1/events";
    let indexes = ["time", "author", "committer", "path"];
    run_at(events, "events", "events.ndjson.zst", &indexes, 23);
}
