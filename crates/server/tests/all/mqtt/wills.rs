//! Wills.

use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Disconnect, DisconnectReasonCode, LastWill, LastWillProperties, Packet,
};

use super::{Client, Options, config, pair, served};
use crate::common::Served;

fn will(delay: Option<u32>) -> LastWill {
    let properties = LastWillProperties {
        delay_interval: delay,
        payload_format_indicator: None,
        message_expiry_interval: None,
        content_type: Some("text/plain".to_string()),
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    };
    LastWill::new("wills/c", "gone", QoS::AtLeastOnce, false, Some(properties))
}

fn with_will(delay: Option<u32>, expiry: u32) -> Options {
    let mut options = Options::lasting("c", expiry);
    options.will = Some(will(delay));
    options
}

fn watcher(served: &Served) -> Client {
    let mut watcher = Client::new(served.mqtt(), "watcher");
    watcher.subscribe("wills/#", QoS::AtLeastOnce);
    watcher
}

#[test]
fn a_will_is_published_when_the_connection_is_lost() {
    let served = served();
    let mut watcher = watcher(&served);
    let (client, _) = Client::open(served.mqtt(), with_will(None, 0));
    drop(client);
    let received = watcher.publication();
    assert_eq!(super::payload(&received), "gone");
    let properties = received.properties.unwrap();
    assert_eq!(properties.content_type.as_deref(), Some("text/plain"));
}

#[test]
fn a_regular_end_has_no_will_unless_it_is_asked_for() {
    let served = served();
    let mut watcher = watcher(&served);
    let (client, _) = Client::open(served.mqtt(), with_will(None, 0));
    client.disconnect(None);
    let (mut client, _) = Client::open(served.mqtt(), with_will(None, 0));
    client.publish("wills/x", "between");
    client.send(&Packet::Disconnect(Disconnect {
        reason_code: DisconnectReasonCode::DisconnectWithWillMessage,
        properties: None,
    }));
    client.ended();
    assert_eq!(watcher.receive(), pair("wills/x", "between"));
    assert_eq!(watcher.receive(), pair("wills/c", "gone"));
}

#[test]
fn a_delayed_will_waits_for_the_client() {
    let served = served();
    let mut watcher = watcher(&served);
    let (client, _) = Client::open(served.mqtt(), with_will(Some(2), 3600));
    drop(client);
    // The client is back in time: no will.
    let (client, was_there) = Client::open(served.mqtt(), Options::lasting("c", 3600));
    assert!(was_there);
    drop(client);
    let (client, _) = Client::open(served.mqtt(), with_will(Some(1), 3600));
    let begin = std::time::Instant::now();
    drop(client);
    assert_eq!(watcher.receive(), pair("wills/c", "gone"));
    assert!(begin.elapsed() >= Duration::from_millis(900));
    std::thread::sleep(Duration::from_millis(2000));
    watcher.nothing();
}

#[test]
fn a_will_is_published_at_the_end_of_its_session_at_the_latest() {
    let served = served();
    let mut watcher = watcher(&served);
    let (client, _) = Client::open(served.mqtt(), with_will(Some(3600), 1));
    drop(client);
    assert_eq!(watcher.receive(), pair("wills/c", "gone"));
}

#[test]
fn a_delayed_will_survives_a_restart() {
    let served = served();
    let (client, _) = Client::open(served.mqtt(), with_will(Some(1), 3600));
    drop(client);
    let until = std::time::Instant::now() + super::PATIENCE;
    let record = || {
        served
            .ask("GET /v1/datasets/mqtt-sessions/records/c")
            .text()
    };
    while !record().contains("left") {
        assert!(std::time::Instant::now() < until);
    }
    let served = Served::over(served.stop(), config());
    let mut watcher = Client::new(served.mqtt(), "watcher");
    watcher.subscribe_to("wills/#", &[("since", "1h")]);
    assert_eq!(watcher.receive(), pair("wills/c", "gone"));
}
