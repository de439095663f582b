//! HBase: the store trait, the layer and the coprocessor on real servers, which the tests start
//! themselves (`tools/esker_cluster/hbase.py`; it needs Java 17 and Maven).
//!
//! `ESKER_HBASE=FOLDER cargo test -p esker-cluster --test hbase` runs them; jars are fetched into
//! the folder once. Without the variable they say that they tested nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod compaction;
mod failures;
mod layer;
mod server;
mod store;

use server::Cluster;

#[test]
fn one_server() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    store::all(&cluster);
    layer::all(&cluster);
    compaction::all(&cluster);
}

#[test]
fn three_servers() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    failures::all(&cluster);
}
