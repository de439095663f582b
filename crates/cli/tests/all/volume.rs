//! `esker volume`: nodes as processes, commands, NBD, certificates, and nodes that are killed.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_volume::nbd::{Client, Operation};
use serde_json::Value;

use crate::common::{Run, command, esker};

/// The longest wait for anything. No result depends on how fast it comes.
const PATIENCE: Duration = Duration::from_secs(60);

fn skipped(what: &str, why: &str) {
    // Written directly, because the test harness would capture it.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED, NOTHING WAS TESTED: {what}: {why}"
    );
}

/// True where a program can be run.
fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Waits until `is` holds.
#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Addresses on loopback with free ports, below those that the kernel gives to outgoing
/// connections: a node that connects to a node that is not up yet could otherwise get that node's
/// port.
fn free(count: usize) -> Vec<SocketAddr> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(20_000..32_000))).ok();
    let held: Vec<TcpListener> = std::iter::repeat_with(bind).flatten().take(count).collect();
    held.iter().map(|one| one.local_addr().unwrap()).collect()
}

/// Three nodes.
struct Cluster {
    folder: tempfile::TempDir,
    listen: Vec<SocketAddr>,
    nbd: Vec<SocketAddr>,
    children: Vec<Option<Child>>,
    /// Arguments of nodes and of commands: certificates.
    security: Vec<String>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster::with(&[])
    }

    fn with(security: &[String]) -> Cluster {
        let mut cluster = Cluster::idle(security);
        (1..=3).for_each(|node| cluster.start(node));
        cluster
    }

    /// The cluster before its nodes are started.
    fn idle(security: &[String]) -> Cluster {
        let addresses = free(6);
        Cluster {
            folder: tempfile::tempdir().unwrap(),
            listen: addresses[..3].to_vec(),
            nbd: addresses[3..].to_vec(),
            children: vec![None, None, None],
            security: security.to_vec(),
        }
    }

    fn peers(&self) -> String {
        let peer = |(node, address)| format!("{node}={address}");
        let peers: Vec<String> = (1..).zip(&self.listen).map(peer).collect::<Vec<String>>();
        peers.join(",")
    }

    fn dir(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    fn address(&self, node: usize) -> String {
        self.listen[node - 1].to_string()
    }

    /// The arguments that start a node.
    fn arguments(&self, node: usize) -> Vec<String> {
        let words = [
            "volume".to_string(),
            "node".to_string(),
            format!("--dir={}", self.dir(node).display()),
            format!("--id={node}"),
            format!("--listen={}", self.listen[node - 1]),
            format!("--peers={}", self.peers()),
            format!("--nbd={}", self.nbd[node - 1]),
        ];
        words.into_iter().chain(self.security.clone()).collect()
    }

    fn start(&mut self, node: usize) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("node{node}.log")))
            .unwrap();
        let mut command = command(&self.arguments(node));
        command.stdout(Stdio::null()).stderr(log);
        self.children[node - 1] = Some(command.spawn().unwrap());
    }

    /// Kills a node with SIGKILL.
    fn kill(&mut self, node: usize) {
        let mut child = self.children[node - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends a node with SIGTERM, and returns its exit code.
    fn end(&mut self, node: usize) -> Option<i32> {
        let mut child = self.children[node - 1].take().unwrap();
        let id = child.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        child.wait().unwrap().code()
    }

    /// `esker volume ARGUMENTS --node NODE`
    fn ask(&self, node: usize, arguments: &[&str]) -> Run {
        let mut all = vec!["volume".to_string()];
        all.extend(arguments.iter().map(|argument| argument.to_string()));
        all.extend(["--node".to_string(), self.address(node)]);
        all.extend(self.security.clone());
        esker(&all)
    }

    /// Creates a volume as soon as the nodes listen.
    #[track_caller]
    fn create(&self, name: &str, size: &str) {
        until("a node listens", || self.ask(1, &["list"]).code != 3);
        self.ask(1, &["create", name, "--size", size]).expect(0);
    }

    fn status(&self, node: usize) -> Value {
        let run = self.ask(node, &["status", "--json"]).expect(0);
        serde_json::from_str(&run.stdout).unwrap()
    }

    fn connect(&self, node: usize, name: &str) -> Client {
        let mut connected = None;
        until("a node serves the volume", || {
            let address = self.nbd[node - 1];
            connected = Client::connect_within(address, name, Some(PATIENCE)).ok();
            connected.is_some()
        });
        connected.unwrap()
    }

    /// The node that leads most groups, once each has a leader.
    fn leader(&self, asked: usize) -> usize {
        let mut leader = 0;
        until("every group has a leader", || {
            let status = self.status(asked);
            let groups = status["groups"].as_array().unwrap();
            let leads = |node: &usize| {
                let leads = groups.iter().filter(|group| group["leader"] == *node);
                leads.count()
            };
            leader = (1..=3).max_by_key(leads).unwrap();
            !groups.is_empty() && groups.iter().all(|group| !group["leader"].is_null())
        });
        leader
    }

    /// Waits until a node has applied what any node has.
    fn catch_up(&self, node: usize) {
        let applied = |node| {
            let status = self.status(node);
            let groups = status["groups"].as_array().unwrap().clone();
            let applied = groups
                .iter()
                .map(|group| group["applied"].as_u64().unwrap());
            applied.collect::<Vec<u64>>()
        };
        until("the node listens", || self.ask(node, &["status"]).code == 0);
        let runs = |node: &usize| self.children[node - 1].is_some();
        for other in (1..=3).filter(runs) {
            let goal = applied(other);
            until("the node catches up", || {
                let now = applied(node);
                now.len() == goal.len() && now.iter().zip(&goal).all(|(now, goal)| now >= goal)
            });
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

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
            "dir = {dir:?}\nid = {node}\nlisten = \"{listen}\"\nnbd = \"{nbd}\"\ngroups = 2\nwait = 5\n\n[peers]\n{peers}"
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
    ] {
        let text = settings(1).replacen(from, to, 1);
        let output = start(1, &text).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}\n{said}");
        assert!(said.contains(word), "{text}\n{said}");
    }

    let started = (1..=3).map(|node| {
        let mut command = start(node, &settings(node));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Some(command.spawn().unwrap())
    });
    let started: Vec<Option<Child>> = started.collect();
    cluster.children = started;
    cluster.create("disk", "1M");
    let status = cluster.status(1);
    assert_eq!(status["groups"].as_array().unwrap().len(), 3);
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
    let second = esker(&[&words[..], &["--peers", &peers]].concat()).expect(3);
    assert!(second.stderr.contains("already"), "{}", second.stderr);
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
        let run = esker(&[&words[..], &options].concat()).expect(3);
        assert!(run.stderr.contains("TLS"), "{}", run.stderr);
    }
}

/// The paper's example, figure 6.6, in blocks of 4 KiB: write #5 (4 KiB), #7 (12 KiB), #1 (6 KiB),
/// delete #8, write #1 (4 KiB), write #15 (4 KiB).
#[test]
fn the_papers_example_is_mapped_as_in_its_figure() {
    const BLOCK: u64 = 4096;
    let cluster = Cluster::new();
    cluster.create("disk", "64M");
    let mut client = cluster.connect(1, "disk");
    client.write(5 * BLOCK, &[5; 4096]).unwrap();
    client.write(7 * BLOCK, &[7; 12288]).unwrap();
    client.write(BLOCK, &[1; 6144]).unwrap();
    client.trim(8 * BLOCK, 4096).unwrap();
    client.write(BLOCK, &[11; 4096]).unwrap();
    client.write(15 * BLOCK, &[15; 4096]).unwrap();

    let expected = |block: u64| match block {
        1 => vec![11; 4096],
        2 => [[1; 2048], [0; 2048]].concat(),
        5 => vec![5; 4096],
        7 | 9 => vec![7; 4096],
        15 => vec![15; 4096],
        _ => vec![0; 4096],
    };
    for block in 0..16 {
        let data = client.read(block * BLOCK, 4096).unwrap();
        assert!(data == expected(block), "block {block}");
    }
    for node in 1..=3 {
        cluster.catch_up(node);
        let text = cluster.ask(node, &["map", "disk"]).expect(0).stdout;
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(head, ["BLOCK", "LAYER", "SEGMENT", "OFFSET"]);
        let places: Vec<Vec<u64>> = lines
            .map(|line| {
                line.split_whitespace()
                    .map(|n| n.parse().unwrap())
                    .collect()
            })
            .collect();
        let blocks: Vec<u64> = places.iter().map(|place| place[0]).collect();
        assert_eq!(blocks, [1, 2, 5, 7, 9, 15], "{text}");
        let offset = |block| places[blocks.iter().position(|b| *b == block).unwrap()][3];
        // In the order of the writes. The three blocks of #7 lie together, with a gap where #8 was
        // deleted; the first write of #1 is obsolete.
        assert_eq!(offset(9) - offset(7), 2 * BLOCK, "{text}");
        let order = [5, 7, 9, 2, 1, 15].map(offset);
        assert!(order.is_sorted(), "{text}");

        // The map says where the data are: the volume's bytes are the log's.
        let segments = cluster.dir(node);
        for place in &places {
            let name = format!("segments/{:08}.seg", place[2]);
            let bytes = std::fs::read(segments.join(name)).unwrap();
            let from = place[3] as usize;
            assert!(bytes[from..from + 4096] == expected(place[0]), "{text}");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_nodes_are_killed() {
    const BLOCK: usize = 4096;
    const BLOCKS: u64 = 256;
    const WRITES: u64 = 900;
    let (seed, mut cluster) = (esker_sim::seeds(1).start, Cluster::new());
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    cluster.create("disk", "1M");
    let mut written = vec![0u64; BLOCKS as usize];
    let data = |version: u64| -> Vec<u8> {
        version
            .to_le_bytes()
            .iter()
            .copied()
            .cycle()
            .take(BLOCK)
            .collect()
    };
    let mut reached = 1;
    let mut dead = None;
    let mut client = cluster.connect(reached, "disk");
    for version in 1..=WRITES {
        // The leader of most groups dies, the next time another node; each comes back later.
        if version % 300 == 100 {
            let leader = cluster.leader(reached);
            let victim = if version < 300 {
                leader
            } else {
                random.usize(1..=3)
            };
            if victim == reached {
                reached = victim % 3 + 1;
                client = cluster.connect(reached, "disk");
            }
            cluster.kill(victim);
            dead = Some(victim);
        }
        if version % 300 == 0
            && let Some(node) = dead.take()
        {
            cluster.start(node);
            cluster.catch_up(node);
        }
        let block = random.u64(0..BLOCKS);
        client.write(block * BLOCK as u64, &data(version)).unwrap();
        written[block as usize] = version;
        let block = random.u64(0..BLOCKS);
        let read = client.read(block * BLOCK as u64, BLOCK as u32).unwrap();
        assert!(
            read == data(written[block as usize]),
            "block {block} at write {version}"
        );
    }
    for node in 1..=3 {
        let mut client = cluster.connect(node, "disk");
        for (block, version) in (0..).zip(&written) {
            let read = client.read(block * BLOCK as u64, BLOCK as u32).unwrap();
            assert!(read == data(*version), "block {block} at node {node}");
        }
    }
    // In good order all end, and what they had is there again.
    for node in 1..=3 {
        assert_eq!(cluster.end(node), Some(0));
    }
    (1..=3).for_each(|node| cluster.start(node));
    let mut client = cluster.connect(2, "disk");
    let reads = (0..BLOCKS).map(|block| Operation::Read {
        offset: block * BLOCK as u64,
        length: BLOCK as u32,
    });
    let mut seen = 0;
    let outcome = |block: u64, read: Result<Vec<u8>, _>| {
        assert!(
            read.unwrap() == data(written[block as usize]),
            "block {block}"
        );
        seen += 1;
    };
    client.pipeline(reads, 8, outcome).unwrap();
    assert_eq!(seen, BLOCKS);
}

#[test]
fn a_snapshot_and_its_clone_keep_what_was() {
    let cluster = Cluster::new();
    cluster.create("disk", "1M");
    let mut client = cluster.connect(1, "disk");
    client.write(0, &[1; 8192]).unwrap();
    cluster.ask(2, &["snapshot", "disk", "monday"]).expect(0);
    client.write(4096, &[2; 4096]).unwrap();
    cluster.ask(3, &["clone", "disk@monday", "copy"]).expect(0);
    let mut copy = cluster.connect(3, "copy");
    copy.write(0, &[3; 4096]).unwrap();
    let mut snapshot = cluster.connect(2, "disk@monday");
    assert!(snapshot.read_only());
    assert!(snapshot.write(0, &[9; 4096]).is_err());
    let both = |client: &mut Client| {
        let read = client.read(0, 8192).unwrap();
        (read[0], read[8191])
    };
    assert_eq!(both(&mut client), (1, 2));
    assert_eq!(both(&mut snapshot), (1, 1));
    assert_eq!(both(&mut copy), (3, 1));
    cluster.ask(1, &["delete", "disk"]).expect(0);
    assert_eq!(both(&mut copy), (3, 1));
}

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
    cluster.children.push(None);
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

#[test]
fn the_demo_compares_everything() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("demo");
    let dir = dir.to_str().unwrap();
    let run = esker(&["demo", "volume", "--size", "16M", "--dir", dir]).expect(0);
    for text in [
        "with SIGKILL: it leads most groups",
        "fail-over: every write in flight at the kill was acknowledged",
        "16.0 MiB of 16.0 MiB written",
        "bytes per user byte",
        "is 0 log entries behind",
    ] {
        assert!(run.stdout.contains(text), "{text}:\n{}", run.stdout);
    }
    let equal = "all 16.0 MiB are equal to the image";
    assert_eq!(run.stdout.matches(equal).count(), 2, "{}", run.stdout);
    // A folder that has something in it is left alone.
    esker(&["demo", "volume", "--size", "16M", "--dir", dir]).expect(2);
    esker(&["demo", "volume", "--size", "1M"]).expect(2);
}

/// The shell commands of a block of the guide that begins with this line.
fn guide(first: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/volumes.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let begin = text
        .find(&format!("```sh\n{first}"))
        .expect("the guide has this block");
    let block = &text[begin + 6..];
    block[..block.find("```").unwrap()].to_string()
}

#[test]
fn certificates_of_the_guide_protect_nodes_and_clients() {
    if !has("openssl") {
        return skipped("volumes with certificates", "openssl is absent");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = guide("# The authority");
    // The guide's machines have addresses of their own; here all are this one.
    let script = script.replace("10.0.0.", "127.0.0.");
    let run = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );

    let options = |name: &str| {
        let path = |file: String| folder.path().join(file).display().to_string();
        [
            format!("--cert={}", path(format!("{name}.pem"))),
            format!("--key={}", path(format!("{name}-key.pem"))),
            format!("--ca={}", path("ca.pem".to_string())),
        ]
    };
    let cluster = Cluster::with(&options("node1"));
    cluster.create("disk", "1M");
    let node = cluster.address(1);
    // A client with a certificate of its own is served; one without, or of another authority, is
    // not.
    let with = |more: &[String]| {
        let words = ["volume", "list", "--node", &node].map(str::to_string);
        esker(&[&words[..], more].concat())
    };
    with(&options("disk")).expect(0);
    with(&[]).expect(3);
    let script = script.replace("/CN=esker volumes", "/CN=esker volumes of others");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let run = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(&other)
        .output()
        .unwrap();
    assert!(run.status.success());
    let strange = options("disk").map(|option| {
        let is_authority = option.starts_with("--ca");
        let (ours, theirs) = (
            folder.path().display().to_string(),
            other.display().to_string(),
        );
        if is_authority {
            option
        } else {
            option.replace(&ours, &theirs)
        }
    });
    with(&strange).expect(3);

    if !has("nbdinfo") {
        return skipped("NBD over TLS", "nbdinfo is absent");
    }
    // The tools of others find fixed names in a folder.
    let info = |name: &str, export: &str| {
        let dir = tempfile::tempdir().unwrap();
        for (from, to) in [
            ("ca.pem".to_string(), "ca-cert.pem"),
            (format!("{name}.pem"), "client-cert.pem"),
            (format!("{name}-key.pem"), "client-key.pem"),
        ] {
            std::fs::copy(folder.path().join(from), dir.path().join(to)).unwrap();
        }
        let certificates = dir.path().display();
        let uri = format!(
            "nbds://{}/{export}?tls-certificates={certificates}",
            cluster.nbd[0]
        );
        Command::new("nbdinfo")
            .args(["--size", &uri])
            .output()
            .unwrap()
    };
    cluster.create("second", "1M");
    let output = info("disk", "disk");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1048576");
    // The certificate's name allows one volume.
    assert!(!info("disk", "second").status.success());
    let plain = format!("nbd://{}/disk", cluster.nbd[0]);
    let output = Command::new("nbdinfo")
        .args(["--size", &plain])
        .output()
        .unwrap();
    assert!(!output.status.success());
}

#[test]
fn judges_that_are_installed_agree() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/volume-judges");
    let missing: Vec<&str> = ["bash", "python3", "nbdinfo", "qemu-img", "fio", "nbdkit"]
        .into_iter()
        .filter(|program| !has(program))
        .collect();
    if !missing.is_empty() {
        return skipped(
            "volumes by other programs",
            &format!("absent: {}", missing.join(", ")),
        );
    }
    let output = Command::new(script)
        .args(["--quick", env!("CARGO_BIN_EXE_esker")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{out}\n{error}");
    assert!(out.ends_with("all judges agree\n"), "{out}");
}
