//! Nodes that become members, and stop to be ones.

use serde_json::Value;

use super::cluster::{Cluster, free, until};

#[test]
fn a_node_with_a_new_disk_becomes_a_member() {
    let mut cluster = Cluster::new();
    cluster.create("disk", "1M");
    let mut client = cluster.connect(1, "disk");
    client.write(0, &[7; 1 << 20]).unwrap();

    // Node 3 returns with an empty disk.
    cluster.kill(3);
    std::fs::remove_dir_all(cluster.dir(3)).unwrap();
    cluster.start(3);
    until("node 3 listens", || cluster.ask(3, &["status"]).code == 0);
    assert_eq!(cluster.status(3)["cluster"], Value::Null);
    let address = cluster.address(3);
    let linked = |cluster: &Cluster, node: usize| {
        until("the nodes are linked", || {
            (1..node).all(|other| {
                let linked = cluster.status(other)["linked"].clone();
                linked.as_array().unwrap().contains(&node.into())
            })
        });
    };
    linked(&cluster, 3);
    cluster
        .ask(1, &["member", "replace", "3", &address])
        .expect(0);
    cluster
        .ask(1, &["member", "replace", "3", &address])
        .expect(0);
    // A member of a group has what was in its log when it was made a voter.
    let has_all = |cluster: &Cluster, node: usize| {
        let status = cluster.status(node);
        let groups = status["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 9);
        for group in groups {
            assert_ne!(group["last"], 0, "{status}");
        }
    };
    has_all(&cluster, 3);
}

#[test]
fn a_fourth_node_becomes_a_member() {
    let mut cluster = Cluster::new();
    cluster.create("disk", "1M");
    let mut client = cluster.connect(1, "disk");
    client.write(0, &[7; 1 << 20]).unwrap();
    // A member of a group has what was in its log when it was made a voter.
    let has_all = |cluster: &Cluster, node: usize| {
        let status = cluster.status(node);
        let groups = status["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 9);
        for group in groups {
            assert_ne!(group["last"], 0, "{status}");
        }
    };
    let more = free(2);
    cluster.listen.push(more[0]);
    cluster.nbd.push(more[1]);
    cluster.processes.push(None);
    cluster.start(4);
    until("node 4 listens", || cluster.ask(4, &["status"]).code == 0);
    let address = cluster.address(4);
    until("node 4 is added", || {
        cluster.ask(1, &["member", "add", "4", &address]).code == 0
    });
    has_all(&cluster, 4);
    cluster.ask(1, &["member", "remove", "2"]).expect(0);
    cluster.ask(1, &["member", "remove", "2"]).expect(0);
    cluster.kill(2);
    let mut client = cluster.connect(4, "disk");
    client.write(4096, &[8; 4096]).unwrap();
    let read = client.read(0, 1 << 20).unwrap();
    assert!(read[..4096] == [7; 4096] && read[4096..8192] == [8; 4096]);
    assert!(read[8192..].iter().all(|byte| *byte == 7));
}
