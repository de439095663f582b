//! The clients of `rumqttc`, of both versions.

use std::time::Duration;

use rumqttc::{Client, Event, Incoming, MqttOptions, QoS};

use super::served;

/// What a client of MQTT 3.1.1 receives.
fn next(connection: &mut rumqttc::Connection) -> rumqttc::Publish {
    loop {
        let event = connection.recv_timeout(super::PATIENCE).unwrap().unwrap();
        if let Event::Incoming(Incoming::Publish(publish)) = event {
            return publish;
        }
    }
}

fn options(client: &str, address: std::net::SocketAddr) -> MqttOptions {
    let mut options = MqttOptions::new(client, address.ip().to_string(), address.port());
    options.set_keep_alive(Duration::from_secs(30));
    options
}

#[test]
fn clients_of_both_versions_talk_to_each_other() {
    let served = served();
    let address = served.mqtt();
    let (old, mut of_old) = Client::new(options("old", address), 100);
    old.subscribe("to/old/+", QoS::AtLeastOnce).unwrap();
    old.publish("ready/old", QoS::AtLeastOnce, false, "x")
        .unwrap();
    let mut new_options =
        rumqttc::v5::MqttOptions::new("new", address.ip().to_string(), address.port());
    new_options.set_keep_alive(Duration::from_secs(30));
    let (new, mut of_new) = rumqttc::v5::Client::new(new_options, 100);
    new.subscribe("to/new/#", rumqttc::v5::mqttbytes::QoS::AtLeastOnce)
        .unwrap();
    // Both are subscribed once the server has answered.
    loop {
        let event = of_old.recv_timeout(super::PATIENCE).unwrap().unwrap();
        if matches!(event, Event::Incoming(Incoming::SubAck(_))) {
            break;
        }
    }
    loop {
        let event = of_new.recv_timeout(super::PATIENCE).unwrap().unwrap();
        let rumqttc::v5::Event::Incoming(packet) = event else {
            continue;
        };
        if matches!(packet, rumqttc::v5::mqttbytes::v5::Packet::SubAck(_)) {
            break;
        }
    }
    for n in 0..50 {
        let to_new = format!("to/new/{n}");
        old.publish(to_new, QoS::AtLeastOnce, false, n.to_string())
            .unwrap();
    }
    let sent = std::thread::spawn(move || {
        for n in 0..50 {
            let received = loop {
                let event = of_new.recv_timeout(super::PATIENCE).unwrap().unwrap();
                let rumqttc::v5::Event::Incoming(packet) = event else {
                    continue;
                };
                if let rumqttc::v5::mqttbytes::v5::Packet::Publish(publish) = packet {
                    break publish;
                }
            };
            assert_eq!(received.topic, format!("to/new/{n}"));
            let to_old = format!("to/old/{n}");
            let qos = rumqttc::v5::mqttbytes::QoS::AtLeastOnce;
            new.publish(to_old, qos, false, n.to_string()).unwrap();
        }
        // Sends what is queued.
        while let Ok(Ok(_)) = of_new.recv_timeout(Duration::from_secs(2)) {}
    });
    for n in 0..50 {
        assert_eq!(next(&mut of_old).topic, format!("to/old/{n}"));
    }
    sent.join().unwrap();
}

#[test]
fn a_session_of_mqtt_3_is_kept_until_it_is_cleaned() {
    let served = served();
    let address = served.mqtt();
    let connect = |clean: bool| {
        let mut options = options("device", address);
        options.set_clean_session(clean);
        let (client, mut connection) = Client::new(options, 100);
        loop {
            let event = connection.recv_timeout(super::PATIENCE).unwrap().unwrap();
            if let Event::Incoming(Incoming::ConnAck(answer)) = event {
                return (client, connection, answer.session_present);
            }
        }
    };
    let (client, mut connection, was_there) = connect(false);
    assert!(!was_there);
    client.subscribe("t", QoS::AtLeastOnce).unwrap();
    loop {
        let event = connection.recv_timeout(super::PATIENCE).unwrap().unwrap();
        if matches!(event, Event::Incoming(Incoming::SubAck(_))) {
            break;
        }
    }
    client.disconnect().unwrap();
    while let Ok(Ok(_)) = connection.recv_timeout(super::PATIENCE) {}
    super::Client::new(address, "p").publish("t", "while away");
    let (client, mut connection, was_there) = connect(false);
    assert!(was_there);
    assert_eq!(next(&mut connection).payload, "while away");
    client.disconnect().unwrap();
    while let Ok(Ok(_)) = connection.recv_timeout(super::PATIENCE) {}
    let (_client, _connection, was_there) = connect(true);
    assert!(!was_there);
}
