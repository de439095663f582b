//! Retained messages.

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Filter, RetainForwardRule};

use super::{Client, config, filter, not_retained, pair, payload, served};
use crate::common::Served;

fn retain(client: &mut Client, topic: &str, payload: &str) {
    client.publish_with(topic, payload, |publish, _| publish.retain = true);
}

#[test]
fn a_new_subscription_receives_the_last_retained_message_of_each_topic() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    for (topic, text) in [
        ("a/1", "old"),
        ("a/1", "new"),
        ("a/2", "x"),
        ("a", "top"),
        ("ab", "no"),
    ] {
        retain(&mut publisher, topic, text);
    }
    publisher.publish("a/3", "not retained");
    retain(&mut publisher, "a/2", "");
    let served = Served::over(served.stop(), config());
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("a/#", QoS::AtLeastOnce);
    let mut received = Vec::new();
    for _ in 0..2 {
        let publish = client.publication();
        assert!(publish.retain);
        client.acknowledge(publish.pkid);
        received.push((super::topic(&publish), payload(&publish)));
    }
    received.sort();
    assert_eq!(received, [pair("a", "top"), pair("a/1", "new")]);
    client.nothing();
}

#[test]
fn live_publications_are_marked_only_if_that_is_asked_for() {
    let served = served();
    let mut plain = Client::new(served.mqtt(), "plain");
    plain.subscribe("t", QoS::AtMostOnce);
    let mut marked = Client::new(served.mqtt(), "marked");
    let as_published = filter("t", QoS::AtMostOnce, |filter| filter.preserve_retain = true);
    marked.subscribe_with(as_published, None);
    retain(&mut Client::new(served.mqtt(), "p"), "t", "x");
    assert!(!plain.publication().retain);
    assert!(marked.publication().retain);
}

#[test]
fn a_subscription_says_when_it_wants_retained_messages() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    retain(&mut publisher, "t", "kept");
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe_with(filter("t", QoS::AtMostOnce, not_retained), None);
    client.nothing();
    // As there is a subscription already, it is not new.
    let on_new =
        |filter: &mut Filter| filter.retain_forward_rule = RetainForwardRule::OnNewSubscribe;
    client.subscribe_with(filter("t", QoS::AtMostOnce, on_new), None);
    client.nothing();
    client.unsubscribe("t");
    client.subscribe_with(filter("t", QoS::AtMostOnce, on_new), None);
    assert_eq!(client.receive(), pair("t", "kept"));
    client.subscribe("t", QoS::AtMostOnce);
    assert_eq!(client.receive(), pair("t", "kept"));
}

#[test]
fn many_retained_messages_come_one_after_the_other() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..400 {
        publisher.publish_with(&format!("t/{n:03}"), "x", |publish, _| {
            publish.retain = true;
            publish.qos = QoS::AtMostOnce;
        });
    }
    publisher.publish("end", "");
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("t/+", QoS::AtLeastOnce);
    for n in 0..400 {
        assert_eq!(client.receive().0, format!("t/{n:03}"));
    }
    client.nothing();
}

#[test]
fn retained_messages_expire() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish_with("t/short", "x", |publish, properties| {
        publish.retain = true;
        properties.message_expiry_interval = Some(1);
    });
    publisher.publish_with("t/long", "x", |publish, properties| {
        publish.retain = true;
        properties.message_expiry_interval = Some(1000);
    });
    std::thread::sleep(std::time::Duration::from_millis(1300));
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("t/+", QoS::AtMostOnce);
    let received = client.publication();
    assert_eq!(super::topic(&received), "t/long");
    let left = received
        .properties
        .unwrap()
        .message_expiry_interval
        .unwrap();
    assert!((1..1000).contains(&left), "{left}");
    client.nothing();
}
