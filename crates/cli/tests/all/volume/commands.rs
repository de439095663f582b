//! Commands, settings, and what nodes refuse.

use std::process::Stdio;

use esker_volume::nbd::Client;
use serde_json::Value;

use super::cluster::{Cluster, PATIENCE, Process, free, until};
use crate::common::{command, esker};

#[test]
fn commands_may_be_repeated_and_say_what_is_wrong() {
    let cluster = Cluster::new();
    cluster.create("disk", "64M");
    let ask = |node, line: &str| cluster.ask(node, &line.split(' ').collect::<Vec<_>>());
    let fails = |line: &str, code, text: &str| {
        let run = ask(2, line).expect(code);
        assert!(run.stderr.contains(text), "{line}: {}", run.stderr);
    };

    // Each twice, at different nodes: the second time it is done already.
    for line in [
        "create disk --size 64M",
        "create other --size 1M --block-size 512",
        "snapshot disk s1",
        "clone disk@s1 copy",
        "grow disk --size 128M",
        "rename other third",
    ] {
        ask(2, line).expect(0);
        ask(3, line).expect(0);
    }
    let list = ask(1, "list").expect(0).stdout;
    let mut rows: Vec<Vec<&str>> = list
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    rows.sort();
    assert_eq!(
        rows,
        [
            vec!["copy", "64.0", "MiB", "4096", "ready"],
            vec!["disk", "128.0", "MiB", "4096", "ready"],
            vec!["disk@s1", "64.0", "MiB", "4096", "snapshot"],
            vec!["third", "1.0", "MiB", "512", "ready"],
        ],
        "{list}"
    );

    fails("create disk --size 65M", 2, "different volume");
    fails("create more --size 1000", 2, "block size");
    fails("create more --size 1M --block-size 100", 2, "block size");
    fails("create a/b --size 1M", 2, "name");
    fails("grow disk --size 64M", 2, "shrink");
    fails("clone disk more", 2, "NAME@SNAPSHOT");
    fails("clone disk@none more", 1, "none");
    fails("snapshot none s", 1, "none");
    fails("grow none --size 1G", 1, "none");
    fails("rename none more", 1, "none");
    fails("map none", 1, "none");
    fails("delete none", 1, "none");

    let status = cluster.status(2);
    assert_eq!(status["node"], 2);
    assert_eq!(status["failed"], Value::Null);
    assert_eq!(status["groups"].as_array().unwrap().len(), 9);
    let json = ask(2, "status --json").expect(0).stdout;
    assert!(json.ends_with("}\n"), "{json:?}");
    fails("list --wait 18446744073709551615", 2, "--wait");
    let text = ask(2, "status").expect(0).stdout;
    assert!(text.starts_with("node 2, disk "), "{text}");
    ask(1, "scrub").expect(0);

    // The snapshot stays readable through its clone.
    ask(1, "delete disk@s1").expect(0);
    fails("delete disk@s1", 1, "s1");
    ask(1, "delete disk").expect(0);
    ask(1, "delete third").expect(0);
    assert_eq!(ask(1, "list").expect(0).stdout.lines().count(), 2);

    // Without a node there is no answer; and nothing is sent anywhere else.
    let nowhere = free(1)[0].to_string();
    let run = esker(&["volume", "list", "--node", &nowhere]).expect(3);
    assert!(run.stderr.contains(&nowhere), "{}", run.stderr);
}

#[test]
fn without_a_majority_commands_fail_in_time() {
    let mut cluster = Cluster::new();
    cluster.create("disk", "1M");
    cluster.kill(2);
    cluster.kill(3);
    let run = cluster
        .ask(1, &["create", "more", "--size", "1M", "--wait", "1"])
        .expect(3);
    assert!(!run.stderr.is_empty());
    // What needs no majority is answered.
    cluster.ask(1, &["list"]).expect(0);
    cluster.ask(1, &["status"]).expect(0);
    cluster.start(3);
    cluster
        .ask(1, &["create", "more", "--size", "1M"])
        .expect(0);
}

#[test]
fn a_settings_file_has_what_options_have() {
    let mut cluster = Cluster::idle(&[]);
    let peers = |(node, address)| format!("{node} = \"{address}\"\n");
    let peers: Vec<String> = (1..).zip(&cluster.listen).map(peers).collect();
    let settings = |node: usize| {
        let (dir, listen, nbd) = (
            cluster.dir(node),
            cluster.address(node),
            cluster.nbd[node - 1],
        );
        let peers = peers.concat();
        format!(
            "dir = {dir:?}\nid = {node}\nlisten = \"{listen}\"\nnbd = \"{nbd}\"\ngroups = 2\nwait = 5\nbudget = \"64M\"\n\n[peers]\n{peers}"
        )
    };
    let start = |node: usize, text: &str| {
        let path = cluster.folder.path().join(format!("node{node}.toml"));
        std::fs::write(&path, text).unwrap();
        command(&["volume", "node", "--config", path.to_str().unwrap()])
    };
    // Mistakes are named.
    for (from, to, word) in [
        ("groups", "gruops", "gruops"),
        ("id = 1", "id = \"one\"", "id"),
        ("id = 1", "id = 7", "7"),
        ("dir", "# dir", "--dir"),
        ("listen", "# listen", "--listen"),
        ("64M", "16M", "32M"),
        ("64M", "many", "budget"),
        ("groups = 2", "groups = 0", "groups"),
        ("groups = 2", "groups = 65", "groups"),
        ("wait = 5", "wait = 9223372036854775807", "wait"),
        ("wait = 5", "wait = -1", "wait"),
    ] {
        let text = settings(1).replacen(from, to, 1);
        let mut command = start(1, &text);
        let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let (status, said) = process.ended();
        assert_eq!(status.code(), Some(2), "{text}\n{said}");
        assert!(said.contains(word), "{text}\n{said}");
    }

    let started = (1..=3).map(|node| {
        let mut command = start(node, &settings(node));
        // Options come before settings.
        command.args(["--groups", "3"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Some(Process::start(&mut command))
    });
    let started: Vec<Option<Process>> = started.collect();
    cluster.processes = started;
    cluster.create("disk", "1M");
    let status = cluster.status(1);
    assert_eq!(status["groups"].as_array().unwrap().len(), 4);
    drop(cluster.connect(1, "disk"));
    assert_eq!(
        Client::list(cluster.nbd[0], Some(PATIENCE)).unwrap(),
        ["disk"]
    );

    // The folder is the first node's, and a second one is refused, on other ports, too.
    let other = free(1)[0].to_string();
    let peers = format!("1={other}");
    let dir = cluster.dir(1).display().to_string();
    let words = [
        "volume", "node", "--dir", &dir, "--id", "1", "--listen", &other,
    ];
    let mut second = command(&[&words[..], &["--peers", &peers]].concat());
    let second = Process::start(second.stdout(Stdio::null()).stderr(Stdio::piped()));
    let (status, said) = second.ended();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("already"), "{said}");
    assert_eq!(cluster.end(1), Some(0));
}

#[test]
fn nothing_listens_beyond_loopback_without_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let dir = dir.to_str().unwrap();
    let local = free(1)[0].to_string();
    let words = [
        "volume",
        "node",
        "--dir",
        dir,
        "--id",
        "1",
        "--peers",
        "1=127.0.0.1:1",
    ];
    for options in [
        ["--listen", "0.0.0.0:0", "--nbd", &local],
        ["--listen", &local, "--nbd", "0.0.0.0:0"],
    ] {
        let mut node = command(&[&words[..], &options].concat());
        let node = Process::start(node.stdout(Stdio::null()).stderr(Stdio::piped()));
        let (status, said) = node.ended();
        assert_eq!(status.code(), Some(3), "{said}");
        assert!(said.contains("TLS"), "{said}");
    }
}

#[test]
fn what_a_command_did_is_known_at_its_node() {
    let cluster = Cluster::new();
    cluster.create("first", "1M");
    // Nodes that do not lead hear of it a little later than the leader.
    for number in 0..30 {
        let (node, name) = (number % 3 + 1, format!("disk{number}"));
        cluster
            .ask(node, &["create", &name, "--size", "1M"])
            .expect(0);
        let address = cluster.nbd[node - 1];
        Client::connect_within(address, &name, Some(PATIENCE)).unwrap();
        cluster.ask(node, &["snapshot", &name, "s"]).expect(0);
        let snapshot = format!("{name}@s");
        Client::connect_within(address, &snapshot, Some(PATIENCE)).unwrap();
    }
}

/// Changes of members were made in all groups of the node, though it had none.
#[test]
fn a_node_without_groups_changes_no_members() {
    let mut cluster = Cluster::idle(&[]);
    // Without the others it forms no cluster.
    cluster.start(1);
    until("the node listens", || cluster.ask(1, &["status"]).code == 0);
    let run = cluster.ask(1, &["member", "remove", "3", "--wait", "1"]);
    let run = run.expect(3);
    assert!(run.stderr.contains("has no groups"), "{}", run.stderr);
}
