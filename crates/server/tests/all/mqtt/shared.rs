//! Shared subscriptions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, SubscribeReasonCode};

use super::{Client, Options, config, payload, served};
use crate::common::Served;

#[test]
fn each_publication_goes_to_one_of_the_members() {
    let served = served();
    let mut members: Vec<Client> = (0..3)
        .map(|n| {
            let mut member = Client::new(served.mqtt(), &format!("m{n}"));
            member.subscribe("$share/g/t/#", QoS::AtLeastOnce);
            member
        })
        .collect();
    let mut other = Client::new(served.mqtt(), "other");
    other.subscribe("$share/h/t/#", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..90 {
        publisher.publish("t/x", &n.to_string());
    }
    let until = Instant::now() + super::PATIENCE;
    let mut received: Vec<Vec<String>> = vec![Vec::new(); 3];
    while received.iter().map(Vec::len).sum::<usize>() < 90 {
        assert!(Instant::now() < until, "{received:?}");
        for (member, received) in members.iter_mut().zip(&mut received) {
            if let Some(packet) = member.next_within(Duration::from_millis(10)) {
                let Packet::Publish(publish) = packet else {
                    panic!("{packet:?}");
                };
                member.acknowledge(publish.pkid);
                received.push(payload(&publish));
            }
        }
    }
    assert!(received.iter().all(|one| !one.is_empty()), "{received:?}");
    let all: BTreeSet<String> = received.into_iter().flatten().collect();
    assert_eq!(all.len(), 90);
    // Another share has its own.
    for n in 0..90 {
        assert_eq!(other.receive().1, n.to_string());
    }
}

#[test]
fn what_a_lost_member_had_not_acknowledged_goes_to_the_others() {
    let served = served();
    let mut first = Client::new(served.mqtt(), "first");
    first.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..5 {
        publisher.publish("t", &n.to_string());
    }
    let taken: Vec<_> = (0..5).map(|_| first.publication()).collect();
    first.acknowledge(taken[0].pkid);
    first.nothing();
    let mut second = Client::new(served.mqtt(), "second");
    second.subscribe("$share/g/t", QoS::AtLeastOnce);
    drop(first);
    let received: BTreeSet<String> = (0..4).map(|_| second.receive().1).collect();
    assert_eq!(received, ["1", "2", "3", "4"].map(str::to_string).into());
    publisher.publish("t", "5");
    assert_eq!(second.receive().1, "5");
}

#[test]
fn a_member_that_does_not_acknowledge_does_not_hold_the_others() {
    let served = served();
    let mut options = Options::new("stuck");
    options.properties.receive_maximum = Some(1);
    let (mut stuck, _) = Client::open(served.mqtt(), options);
    stuck.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut busy = Client::new(served.mqtt(), "busy");
    busy.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..50 {
        publisher.publish("t", &n.to_string());
    }
    for _ in 0..49 {
        busy.receive();
    }
    assert!(payload(&stuck.publication()).parse::<u32>().unwrap() < 50);
}

#[test]
fn a_share_of_stored_sessions_goes_on_after_a_restart() {
    let served = served();
    let (mut member, _) = Client::open(served.mqtt(), Options::lasting("m", 3600));
    member.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("t", "1");
    publisher.publish("t", "2");
    let first = member.publication();
    let _second = member.publication();
    member.acknowledge(first.pkid);
    member.nothing();
    drop(member);
    publisher.publish("t", "3");
    let served = Served::over(served.stop(), config());
    let (mut member, was_there) = Client::open(served.mqtt(), Options::lasting("m", 3600));
    assert!(was_there);
    let again = member.publication();
    assert_eq!((payload(&again).as_str(), again.dup), ("2", true));
    let third = member.publication();
    assert_eq!((payload(&third).as_str(), third.dup), ("3", false));
}

#[test]
fn shares_have_no_past() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    let answer = client.subscribe_to("$share/g/t", &[("since", "1m")]);
    assert_eq!(
        answer.return_codes,
        [SubscribeReasonCode::ImplementationSpecific]
    );
}
