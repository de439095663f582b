//! SIGKILL of a server: what was acknowledged is there, nothing is lost, duplicates are marked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish};

use super::{Client, Options, payload};
use crate::process::Process;

/// Publishes numbers until the server has gone; `acknowledged` are those of which it said so.
fn publisher(
    address: SocketAddr,
    next: &AtomicU32,
    acknowledged: &Mutex<Vec<u32>>,
    stop: &AtomicBool,
) {
    let mut client = Client::new(address, "p");
    while !stop.load(Ordering::Relaxed) {
        let number = next.load(Ordering::Relaxed);
        let mut publish = Publish::new("t", QoS::AtLeastOnce, number.to_string(), None);
        publish.pkid = (number % 60_000) as u16 + 1;
        let mut bytes = bytes::BytesMut::new();
        Packet::Publish(publish).write(&mut bytes, None).unwrap();
        use std::io::Write;
        if client.stream.write_all(&bytes).is_err() {
            return;
        }
        next.fetch_add(1, Ordering::Relaxed);
        match client.next_within(Duration::from_secs(20)) {
            Some(Packet::PubAck(_)) => acknowledged.lock().unwrap().push(number),
            Some(other) => panic!("{other:?}"),
            None => return,
        }
    }
}

#[test]
fn a_killed_server_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("db");
    let next = Arc::new(AtomicU32::new(1));
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    // By number: how often it came, and how often without DUP.
    let mut received: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let rounds = 4;
    for round in 0..=rounds {
        let mut process = Process::start(&folder);
        let options = Options::lasting("c", 3600);
        let (mut client, was_there) = Client::open(process.mqtt, options);
        assert_eq!(was_there, round > 0);
        if round == 0 {
            client.subscribe("t", QoS::AtLeastOnce);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let publishing = {
            let (next, acknowledged) = (next.clone(), acknowledged.clone());
            let (stop, address) = (stop.clone(), process.mqtt);
            std::thread::spawn(move || publisher(address, &next, &acknowledged, &stop))
        };
        let mut in_round = 0;
        let until = std::time::Instant::now() + super::PATIENCE;
        loop {
            if round == rounds {
                // The last round receives everything.
                stop.store(true, Ordering::Relaxed);
                let is_finished = publishing.is_finished();
                let all = acknowledged.lock().unwrap();
                if is_finished && all.iter().all(|n| received.contains_key(n)) {
                    break;
                }
            } else if in_round >= 40 {
                break;
            }
            assert!(
                std::time::Instant::now() < until,
                "round {round}: {in_round} of {:?}",
                acknowledged.lock().unwrap()
            );
            let Some(packet) = client.next_within(Duration::from_millis(100)) else {
                continue;
            };
            let Packet::Publish(publish) = packet else {
                panic!("{packet:?}");
            };
            in_round += 1;
            let entry = received
                .entry(payload(&publish).parse().unwrap())
                .or_default();
            entry.0 += 1;
            entry.1 += u32::from(!publish.dup);
            // Some are received and not acknowledged when the server is killed.
            if in_round % 7 != 0 || round == rounds {
                client.acknowledge(publish.pkid);
            }
        }
        if round < rounds {
            process.kill();
        }
        publishing.join().unwrap();
    }
    assert!(acknowledged.lock().unwrap().len() > 40);
    for (number, (times, without_dup)) in &received {
        assert!(
            *without_dup <= 1,
            "{number} came {times} times, {without_dup} without DUP"
        );
    }
    assert!(
        received.values().any(|(times, _)| *times > 1),
        "no duplicate was seen"
    );
}
