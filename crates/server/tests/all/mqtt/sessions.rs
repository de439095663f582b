//! Sessions that outlive their connections.

use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::DisconnectReasonCode;

use super::{Client, Options, config, pair, payload, served};
use crate::common::Served;

/// The session of `c`, which lasts.
fn open(served: &Served) -> (Client, bool) {
    Client::open(served.mqtt(), Options::lasting("c", 3600))
}

#[test]
fn a_session_receives_what_was_published_while_it_was_away() {
    let served = served();
    let (mut client, was_there) = open(&served);
    assert!(!was_there);
    client.subscribe("t/#", QoS::AtLeastOnce);
    client.subscribe("zero", QoS::AtMostOnce);
    client.disconnect(None);
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..600 {
        publisher.publish("t/x", &n.to_string());
    }
    publisher.publish("zero", "lost");
    let (mut client, was_there) = open(&served);
    assert!(was_there);
    for n in 0..600 {
        let received = client.publication();
        assert_eq!(payload(&received), n.to_string());
        assert!(!received.dup);
        client.acknowledge(received.pkid);
    }
    publisher.publish("zero", "now");
    assert_eq!(client.receive(), pair("zero", "now"));
    publisher.publish("t/y", "live");
    assert_eq!(client.receive(), pair("t/y", "live"));
}

#[test]
fn what_was_not_acknowledged_comes_again_with_its_identifier() {
    let served = served();
    let (mut client, _) = open(&served);
    client.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..5 {
        publisher.publish("t", &n.to_string());
    }
    let received: Vec<_> = (0..5).map(|_| client.publication()).collect();
    client.acknowledge(received[1].pkid);
    client.acknowledge(received[3].pkid);
    client.nothing();
    // The connection is lost.
    drop(client);
    let (mut client, was_there) = open(&served);
    assert!(was_there);
    for n in [0, 2, 4] {
        let again = client.publication();
        assert!(again.dup);
        assert_eq!(
            (again.pkid, &again.payload),
            (received[n].pkid, &received[n].payload)
        );
        client.acknowledge(again.pkid);
    }
    publisher.publish("t", "new");
    let new = client.publication();
    assert!(!new.dup);
    assert_eq!(payload(&new), "new");
}

#[test]
fn sessions_survive_a_restart() {
    let served = served();
    let (mut client, _) = open(&served);
    client.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("t", "unacknowledged");
    let first = client.publication();
    client.nothing();
    client.disconnect(None);
    publisher.publish("t", "away");
    let dir = served.stop();
    let served = Served::over(dir, config());
    let (mut client, was_there) = open(&served);
    assert!(was_there);
    let again = client.publication();
    assert!(again.dup);
    assert_eq!(
        (again.pkid, payload(&again).as_str()),
        (first.pkid, "unacknowledged")
    );
    let away = client.publication();
    assert!(!away.dup);
    assert_eq!(payload(&away), "away");
}

#[test]
fn a_server_that_stops_says_so() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    let stopped = std::thread::spawn(move || served.stop());
    assert_eq!(
        client.ended_with(),
        DisconnectReasonCode::ServerShuttingDown
    );
    stopped.join().unwrap();
}

#[test]
fn a_session_ends_with_its_expiry() {
    let served = served();
    let (client, _) = Client::open(served.mqtt(), Options::lasting("c", 1));
    client.disconnect(None);
    std::thread::sleep(Duration::from_millis(1500));
    let (client, was_there) = Client::open(served.mqtt(), Options::lasting("c", 1));
    assert!(!was_there);
    // DISCONNECT can change it.
    client.disconnect(Some(3600));
    std::thread::sleep(Duration::from_millis(1500));
    let (client, was_there) = Client::open(served.mqtt(), Options::lasting("c", 3600));
    assert!(was_there);
    client.disconnect(Some(0));
    let (_client, was_there) = open(&served);
    assert!(!was_there);
}

#[test]
fn expired_sessions_are_removed_from_the_store() {
    let served = served();
    let (client, _) = Client::open(served.mqtt(), Options::lasting("c", 1));
    client.disconnect(None);
    let records = || {
        served
            .ask("GET /v1/datasets/mqtt-sessions/records/c")
            .status
    };
    assert_eq!(records(), 200);
    let until = std::time::Instant::now() + super::PATIENCE;
    while records() != 404 {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_clean_start_begins_anew() {
    let served = served();
    let (mut client, _) = open(&served);
    client.subscribe("t", QoS::AtLeastOnce);
    client.disconnect(None);
    Client::new(served.mqtt(), "p").publish("t", "lost");
    let mut anew = Options::lasting("c", 3600);
    anew.clean = true;
    let (mut client, was_there) = Client::open(served.mqtt(), anew);
    assert!(!was_there);
    client.subscribe("u", QoS::AtLeastOnce);
    client.publish("t", "not subscribed");
    client.publish("u", "new");
    assert_eq!(client.receive(), pair("u", "new"));
}

#[test]
fn a_second_connection_takes_the_session_over() {
    let served = served();
    let (mut first, _) = open(&served);
    first.subscribe("t", QoS::AtLeastOnce);
    let (mut second, was_there) = open(&served);
    assert!(was_there);
    assert_eq!(first.ended_with(), DisconnectReasonCode::SessionTakenOver);
    Client::new(served.mqtt(), "p").publish("t", "x");
    assert_eq!(second.receive(), pair("t", "x"));
}

#[test]
fn many_connections_of_one_client_end_with_one() {
    let served = served();
    let address = served.mqtt();
    let threads: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || Client::open(address, Options::lasting("c", 3600)).0))
        .collect();
    let clients: Vec<Client> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    // A last one, which takes it over from whichever has it.
    let (mut last, was_there) = open(&served);
    assert!(was_there);
    for mut client in clients {
        client.ended();
    }
    last.nothing();
}

#[test]
fn a_subscription_is_replaced_without_a_gap() {
    let served = served();
    let (mut client, _) = open(&served);
    client.subscribe("t", QoS::AtLeastOnce);
    client.disconnect(None);
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("t", r#"{"n": 1}"#);
    let (mut client, _) = open(&served);
    assert_eq!(client.receive(), pair("t", r#"{"n": 1}"#));
    // With a condition: another source, from where the former one was.
    let answer = client.subscribe_to("t", &[("where", "n >= 3")]);
    assert_eq!(answer.return_codes.len(), 1);
    publisher.publish("t", r#"{"n": 2}"#);
    publisher.publish("t", r#"{"n": 3}"#);
    assert_eq!(client.receive(), pair("t", r#"{"n": 3}"#));
}

#[test]
fn an_empty_identifier_is_replaced_by_one() {
    let served = served();
    let mut options = Options::new("");
    options.clean = true;
    let (_client, answer) = Client::try_open(served.mqtt(), options);
    let assigned = answer
        .properties
        .unwrap()
        .assigned_client_identifier
        .unwrap();
    assert!(
        assigned.starts_with("auto-") && assigned.len() == 37,
        "{assigned}"
    );
}
