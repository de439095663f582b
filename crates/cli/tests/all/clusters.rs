//! Real events in real clusters, which the tests start themselves (`tools/esker_cluster`): the
//! answers of other software, before and after updates and a repair.
//!
//! `ESKER_HBASE=FOLDER cargo test -p esker-cli --test all clusters::` runs those of HBase,
//! `ESKER_CASSANDRA=FOLDER` those of Cassandra; without the variables they say that they tested
//! nothing.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::esker;
use crate::copy::{answers, copied_with_kills, source};
use crate::truth::run_at;

/// A cluster of one node.
struct Cluster {
    script: &'static str,
    /// Tests that start servers run one after another: they have one folder, and the same ports.
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    fn start(variable: &str, script: &'static str) -> Option<Cluster> {
        if std::env::var_os(variable).is_none() {
            eprintln!("NOT TESTED: {variable} names no folder for the servers' packages");
            return None;
        }
        static TURN: Mutex<()> = Mutex::new(());
        // A test that failed has ended its servers.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster {
            script,
            _turn: turn,
        };
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
    true_answers(&hbase());
}

#[test]
fn cassandra_gives_the_true_answers() {
    let Some(_cluster) = Cluster::start("ESKER_CASSANDRA", "cassandra.py") else {
        return;
    };
    true_answers(&cassandra());
}

/// `ESKER_HBASE_PORTS` and `ESKER_CASSANDRA_NET` set clusters of several tests apart.
fn hbase() -> String {
    let more = std::env::var("ESKER_HBASE_PORTS");
    let more: u16 = more.map_or(0, |more| more.parse().unwrap());
    format!("hbase://127.0.0.1:{}", 9090 + more)
}

fn cassandra() -> String {
    let net = std::env::var("ESKER_CASSANDRA_NET");
    format!("cassandra://{}.1", net.as_deref().unwrap_or("127.0.0"))
}

fn true_answers(cluster: &str) {
    let indexes = ["node", "user", "time", "kind", "lat:float", "lon:float"];
    let edits = format!("{cluster}/edits");
    run_at(&edits, "osm_edits", "osm_edits.ndjson.zst", &indexes, 15);
    let indexes = ["time", "author", "committer", "path"];
    let events = format!("{cluster}/events");
    run_at(&events, "events", "events.ndjson.zst", &indexes, 23);
}

#[test]
fn hbase_takes_copies_and_gives_them_back() {
    let Some(_cluster) = Cluster::start("ESKER_HBASE", "hbase.py") else {
        return;
    };
    copies(&hbase());
}

#[test]
fn cassandra_takes_copies_and_gives_them_back() {
    let Some(_cluster) = Cluster::start("ESKER_CASSANDRA", "cassandra.py") else {
        return;
    };
    copies(&cassandra());
}

/// From a folder to a keyspace, to another one, and back to a folder, with processes that are
/// killed; then a difference, named and mended.
fn copies(cluster: &str) {
    let dir = tempfile::tempdir().unwrap();
    let indexes = ["user:lazy:string", "n:composite:int"];
    let from = source(dir.path(), 20_000, &indexes);
    let (one, two) = (format!("{cluster}/one"), format!("{cluster}/two"));
    let back = dir.path().join("back").display().to_string();
    for (from, to) in [(&from, &one), (&one, &two), (&two, &back)] {
        let (kills, copied) = copied_with_kills(from, to, 3000);
        eprintln!("{from} to {to}: {kills} kills, {copied}");
        assert_eq!(copied["equal"], true, "{copied}");
        assert_eq!(copied["at_target"], 20_000);
        assert_eq!(answers(to), answers(from), "{to}");
    }
    esker(&["check", &two]).expect(0);
    esker(&["delete", &two, "d", "7"]).expect(0);
    let run = esker(&["copy", &one, &two, "d"]).expect(3);
    assert!(
        run.stderr.contains("key 7 is missing at the target"),
        "{}",
        run.stderr
    );
    esker(&["copy", &one, &two, "d", "--mend"]).expect(0);
    assert_eq!(answers(&two), answers(&from));
}
