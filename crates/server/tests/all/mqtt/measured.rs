//! What `/metrics` says of MQTT.

use std::time::Instant;

use esker_server::{Config, UserSettings};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::ConnectReturnCode;

use super::{Client, Options, PATIENCE, config, pair, served};
use crate::common::Served;

/// The value of a measurement with its labels.
fn value(served: &Served, name: &str) -> Option<u64> {
    let text = served.ask("GET /metrics").text();
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let found = lines.find(|(measured, _)| *measured == name);
    found.map(|(_, value)| value.parse().unwrap())
}

/// Waits until a measurement has a value: it is taken when a connection has done its work.
fn wait_for(served: &Served, name: &str, expected: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = value(served, name);
        if found == Some(expected) {
            return;
        }
        assert!(Instant::now() < until, "{name} is {found:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn connections_sessions_and_publications_are_measured() {
    let served = served();
    let of_connections = "esker_mqtt_connections{version=\"5\",transport=\"tcp\"}";
    let mut subscriber = Client::open(served.mqtt(), Options::lasting("s", 100)).0;
    subscriber.subscribe("a/+", QoS::AtLeastOnce);
    subscriber.subscribe("b", QoS::AtMostOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    wait_for(&served, of_connections, 2);
    wait_for(&served, "esker_mqtt_sessions", 2);
    wait_for(&served, "esker_mqtt_subscriptions", 2);
    for topic in ["a/1", "a/2", "b"] {
        publisher.publish(topic, "x");
        assert_eq!(subscriber.receive(), pair(topic, "x"));
    }
    wait_for(
        &served,
        "esker_mqtt_publications_received_total{qos=\"1\"}",
        3,
    );
    wait_for(&served, "esker_mqtt_publications_sent_total{qos=\"1\"}", 2);
    wait_for(&served, "esker_mqtt_publications_sent_total{qos=\"0\"}", 1);
    wait_for(&served, "esker_mqtt_queued_publications", 0);
    assert!(value(&served, "esker_mqtt_received_bytes_total").unwrap() > 20);
    assert!(value(&served, "esker_mqtt_sent_bytes_total").unwrap() > 20);
    publisher.disconnect(None);
    let ended = "esker_mqtt_connections_ended_total{reason=\"disconnected\"}";
    wait_for(&served, ended, 1);
    wait_for(&served, of_connections, 1);
    // A session that outlives its connection counts; its subscriptions are in the store.
    subscriber.disconnect(None);
    wait_for(&served, "esker_mqtt_subscriptions", 0);
    wait_for(&served, "esker_mqtt_sessions", 1);
}

#[test]
fn refused_connections_and_dropped_publications_are_measured() {
    let config = Config {
        users: vec![UserSettings {
            name: "ann".to_string(),
            password: esker_server::password_hash("secret", [7; 16]).unwrap(),
            role: esker_server::Role::Write,
            datasets: None,
            topics: None,
        }],
        ..config()
    };
    let served = Served::with(config);
    let login = |name: &str, password: &str| {
        let mut options = Options::new(name);
        options.login = Some(("ann".to_string(), password.to_string()));
        options
    };
    let (_, refused) = Client::try_open(served.mqtt(), login("c", "wrong"));
    assert_eq!(refused.code, ConnectReturnCode::BadUserNamePassword);
    let refused = "esker_mqtt_connects_refused_total{reason=\"bad-user-or-password\"}";
    wait_for(&served, refused, 1);
    let mut options = login("small", "secret");
    options.properties.max_packet_size = Some(100);
    let mut small = Client::open(served.mqtt(), options).0;
    small.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::open(served.mqtt(), login("p", "secret")).0;
    publisher.publish("t", &"x".repeat(200));
    let dropped = "esker_mqtt_publications_dropped_total{reason=\"too-large\"}";
    wait_for(&served, dropped, 1);
    publisher.publish("t", "y");
    assert_eq!(small.receive(), pair("t", "y"));
}
