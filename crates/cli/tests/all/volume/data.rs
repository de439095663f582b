//! What is written is read: the map, snapshots, nodes that are killed.

use std::time::{Duration, Instant};

use esker_volume::client::Client as NodeClient;
use esker_volume::nbd::{Client, Operation};
use esker_volume::net::Security;

use super::cluster::{Cluster, until};

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
fn nothing_acknowledged_is_lost_when_nodes_are_killed_or_stopped() {
    const BLOCK: usize = 4096;
    const BLOCKS: u64 = 256;
    // Three parts, in each of which a node goes and comes back.
    let part = esker_sim::by_tier(150, 300);
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
    let mut gone = None;
    let mut client = cluster.connect(reached, "disk");
    for version in 1..=3 * part {
        // The leader of most groups dies, then it is stopped, then another node dies; each comes
        // back later.
        if version % part == part / 3 {
            let victim = match version / part {
                2 => random.usize(1..=3),
                _ => cluster.leader(reached),
            };
            if victim == reached {
                reached = victim % 3 + 1;
                client = cluster.connect(reached, "disk");
            }
            match version / part {
                1 => cluster.pause(victim),
                _ => cluster.kill(victim),
            }
            gone = Some(victim);
        }
        if version % part == 0
            && let Some(node) = gone.take()
        {
            if version == 2 * part {
                // It led when it was stopped: what it believes is old.
                cluster.go_on(node);
                let mut client = cluster.connect(node, "disk");
                for (block, version) in (0..).zip(&written) {
                    let read = client.read(block * BLOCK as u64, BLOCK as u32).unwrap();
                    assert!(read == data(*version), "block {block} at node {node}");
                }
            } else {
                cluster.start(node);
            }
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
fn a_local_read_says_how_old_it_may_be() {
    let mut cluster = Cluster::new();
    cluster.create("disk", "1M");
    let mut client = cluster.connect(1, "disk");
    client.write(4096, &[7; 4096]).unwrap();
    let mut local =
        NodeClient::connect(&cluster.address(3), Security::Plain, Duration::ZERO).unwrap();
    let mut read = || local.read_local("disk", 4096, 4096).unwrap();
    until("node 3 has the write and is level with a leader", || {
        let read = read();
        read.age.is_some() && read.data == [7; 4096]
    });
    // Alone it grows older with time, also where it led.
    cluster.kill(1);
    cluster.kill(2);
    let alone = Instant::now();
    until("it is three seconds old", || {
        let (least, read) = (alone.elapsed(), read());
        assert!(read.data == [7; 4096]);
        let age = read.age.unwrap();
        // What was on its way to the node when the others died came later.
        assert!(age + Duration::from_secs(1) >= least, "{age:?}, {least:?}");
        age >= Duration::from_secs(3)
    });
}

#[test]
fn a_client_that_may_not_wait_goes_to_the_leader_or_fails_at_once() {
    let mut cluster = Cluster::new();
    cluster.create("disk", "1M");
    let connect = |node| {
        let address = cluster.address(node);
        NodeClient::connect(&address, Security::Plain, Duration::ZERO).unwrap()
    };
    for node in 1..=3 {
        let mut client = connect(node);
        // While no leader is known it fails, and may be asked again.
        until("a leader takes the write", || {
            client.write("disk", 4096, vec![node as u8; 4096]).is_ok()
        });
        until("a leader reads", || {
            let read = client.read("disk", 4096, 4096);
            read.is_ok_and(|read| read == [node as u8; 4096])
        });
    }
    let mut client = connect(3);
    cluster.kill(1);
    cluster.kill(2);
    until("it knows no leader, or that has no majority", || {
        use esker_volume::client::ClientError;
        use esker_volume::wire::Refusal;
        matches!(
            client.read("disk", 4096, 4096),
            Err(ClientError::NoLeader | ClientError::Refused(Refusal::NoQuorum))
        )
    });
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
