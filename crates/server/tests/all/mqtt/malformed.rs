//! Packets that are not valid: the connection ends with the right reason, and nothing else does.

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Connect, ConnectProperties, DisconnectReasonCode, Filter, Packet, Publish, PublishProperties,
    Subscribe,
};

use super::{Client, Options, served};

/// A connected client whose bytes end the connection with this reason.
fn refused(served: &crate::common::Served, bytes: &[u8], reason: DisconnectReasonCode) {
    let mut client = Client::new(served.mqtt(), "c");
    client.send_bytes(bytes);
    assert_eq!(client.ended_with(), reason, "{bytes:x?}");
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    packet.write(&mut bytes, None).unwrap();
    bytes.to_vec()
}

#[test]
fn malformed_packets_end_the_connection_with_a_reason() {
    use DisconnectReasonCode::{
        MalformedPacket, PacketTooLarge, ProtocolError, QoSNotSupported, TopicAliasInvalid,
        TopicNameInvalid,
    };
    let served = served();
    let table: &[(&[u8], DisconnectReasonCode)] = &[
        // A remaining length of five bytes.
        (&[0x30, 0xff, 0xff, 0xff, 0xff, 0x01], MalformedPacket),
        // Far too large, before its body comes.
        (&[0x30, 0xff, 0xff, 0xff, 0x7f], PacketTooLarge),
        // Types that do not exist, or that clients do not send.
        (&[0x00, 0x00], ProtocolError),
        (&[0x20, 0x02, 0x00, 0x00], ProtocolError),
        (&[0xd0, 0x00], ProtocolError),
        (&[0xf0, 0x02, 0x18, 0x00], ProtocolError),
        // Reserved flags.
        (&[0xc1, 0x00], MalformedPacket),
        (&[0x80, 0x07, 0, 1, 0, 0, 1, b'a', 0], MalformedPacket),
        (&[0x38, 0x04, 0, 1, b'a', 0], MalformedPacket),
        // QoS 3, and QoS 2.
        (&[0x36, 0x06, 0, 1, b'a', 0, 1, 0], MalformedPacket),
        (&[0x34, 0x06, 0, 1, b'a', 0, 1, 0], QoSNotSupported),
        (&[0x50, 0x02, 0, 1], ProtocolError),
        // Topics: too short, not UTF-8, NUL, with wildcards, empty.
        (&[0x30, 0x04, 0, 9, b'a', 0], MalformedPacket),
        (&[0x30, 0x04, 0, 1, 0xff, 0], MalformedPacket),
        (&[0x30, 0x04, 0, 1, 0, 0], MalformedPacket),
        (&[0x30, 0x04, 0, 1, b'#', 0], TopicNameInvalid),
        (&[0x30, 0x03, 0, 0, 0], ProtocolError),
        // An identifier of 0.
        (&[0x32, 0x06, 0, 1, b'a', 0, 0, 0], ProtocolError),
        (&[0x82, 0x07, 0, 0, 0, 0, 1, b'a', 0], ProtocolError),
        // No properties' length.
        (&[0x30, 0x03, 0, 1, b'a'], MalformedPacket),
        // A property that does not belong there, one that does not exist, one twice.
        (&[0x30, 0x06, 0, 1, b'a', 2, 0x24, 1], ProtocolError),
        (&[0x30, 0x06, 0, 1, b'a', 2, 0x7f, 1], MalformedPacket),
        (&[0x30, 0x08, 0, 1, b'a', 4, 1, 1, 1, 1], ProtocolError),
        // Aliases: 0, beyond the maximum, unknown.
        (&[0x30, 0x07, 0, 1, b'a', 3, 0x23, 0, 0], ProtocolError),
        (&[0x30, 0x07, 0, 1, b'a', 3, 0x23, 0, 17], TopicAliasInvalid),
        (&[0x30, 0x06, 0, 0, 3, 0x23, 0, 1], ProtocolError),
        // SUBSCRIBE without a filter, with reserved options, with QoS 3.
        (&[0x82, 0x03, 0, 1, 0], ProtocolError),
        (&[0x82, 0x07, 0, 1, 0, 0, 1, b'a', 0xc0], MalformedPacket),
        (&[0x82, 0x07, 0, 1, 0, 0, 1, b'a', 0x03], MalformedPacket),
        // No Local of a shared subscription.
        (
            &[
                0x82, 0x10, 0, 1, 0, 0, 10, b'$', b's', b'h', b'a', b'r', b'e', b'/', b'g', b'/',
                b'a', 0x04,
            ],
            ProtocolError,
        ),
    ];
    for (bytes, reason) in table {
        refused(&served, bytes, *reason);
    }
    let connect = Connect {
        keep_alive: 0,
        client_id: "c".to_string(),
        clean_start: true,
        properties: None,
    };
    refused(
        &served,
        &encoded(&Packet::Connect(connect, None, None)),
        ProtocolError,
    );
    // The server is none the worse for it.
    Client::new(served.mqtt(), "c").nothing();
}

#[test]
fn connections_are_refused_with_a_reason() {
    let served = served();
    let answer = |bytes: &[u8]| {
        let mut client = Client::raw(served.mqtt());
        client.send_bytes(bytes);
        let mut answer = Vec::new();
        while client.read() {}
        answer.extend_from_slice(&client.input);
        answer
    };
    // MQTT 3.1, and a version that does not exist yet.
    let of_3_1 = [
        0x10, 0x0f, 0, 6, b'M', b'Q', b'I', b's', b'd', b'p', 3, 2, 0, 0, 0, 1, b'c',
    ];
    assert_eq!(answer(&of_3_1), [0x20, 2, 0, 1]);
    let of_6 = [
        0x10, 0x0e, 0, 4, b'M', b'Q', b'T', b'T', 6, 2, 0, 0, 0, 0, 1, b'c',
    ];
    let refused = answer(&of_6);
    assert_eq!((refused[0], refused[3]), (0x20, 0x84));
    // A reserved flag.
    let reserved = [
        0x10, 0x0e, 0, 4, b'M', b'Q', b'T', b'T', 5, 3, 0, 0, 0, 0, 1, b'c',
    ];
    assert_eq!(answer(&reserved)[3], 0x81);
    // MQTT 3.1.1 without an identifier, and not clean.
    let unnamed = [0x10, 0x0c, 0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0, 0, 0, 0];
    assert_eq!(answer(&unnamed), [0x20, 2, 0, 2]);
    // Something else than CONNECT, and than MQTT.
    assert!(answer(&[0xc0, 0x00]).is_empty());
    assert!(answer(b"GET / HTTP/1.1\r\n\r\n").is_empty());
    // A password without a user, which MQTT 5 allows.
    let password = [
        0x10, 0x11, 0, 4, b'M', b'Q', b'T', b'T', 5, 0x42, 0, 0, 0, 0, 1, b'c', 0, 1, b'p',
    ];
    let mut client = Client::raw(served.mqtt());
    client.send_bytes(&password);
    assert!(matches!(client.next(), Packet::ConnAck(_)));
    let mut options = Options::new("c");
    options.properties.authentication_method = Some("magic".to_string());
    let (_, answer) = Client::try_open(served.mqtt(), options);
    use rumqttc::v5::mqttbytes::v5::ConnectReturnCode;
    assert_eq!(answer.code, ConnectReturnCode::BadAuthenticationMethod);
}

#[test]
fn any_bytes_end_a_connection_and_nothing_else() {
    let served = served();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut subscribe = Subscribe::new(Filter::new("a/+", QoS::AtLeastOnce), None);
    subscribe.pkid = 5;
    let mut publish = Publish::new("a/b", QoS::AtLeastOnce, "payload", None);
    publish.pkid = 7;
    publish.properties = Some(PublishProperties {
        content_type: Some("text".to_string()),
        user_properties: vec![("a".to_string(), "b".to_string())],
        message_expiry_interval: Some(10),
        ..PublishProperties::default()
    });
    let mut properties = ConnectProperties::new();
    properties.session_expiry_interval = Some(10);
    let connect = Connect {
        keep_alive: 5,
        client_id: "fuzz".to_string(),
        clean_start: true,
        properties: Some(properties),
    };
    let valid = [
        encoded(&Packet::Connect(connect, None, None)),
        encoded(&Packet::Subscribe(subscribe)),
        encoded(&Packet::Publish(publish)),
        vec![0x40, 0x02, 0, 1],
        vec![0xa2, 0x06, 0, 1, 0, 0, 1, b'a'],
        vec![0xe0, 0x00],
    ];
    let mut watcher = Client::new(served.mqtt(), "watcher");
    for round in 0..400 {
        let mut client = if round % 2 == 0 {
            Client::raw(served.mqtt())
        } else {
            Client::new(served.mqtt(), "fuzz")
        };
        let mut bytes = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let mut packet = valid[rng.usize(..valid.len())].clone();
            for _ in 0..rng.usize(..4) {
                let at = rng.usize(..packet.len());
                match rng.u8(..4) {
                    0 => packet[at] = rng.u8(..),
                    1 => packet[at] ^= 1 << rng.u8(..8),
                    2 => packet.insert(at, rng.u8(..)),
                    _ => packet.truncate(at.max(1)),
                }
            }
            bytes.extend(packet);
        }
        if round % 5 == 0 {
            bytes = (0..rng.usize(1..200)).map(|_| rng.u8(..)).collect();
        }
        client.send_bytes(&bytes);
        if round % 20 == 0 {
            watcher.nothing();
        }
    }
    watcher.nothing();
    watcher.subscribe("still/there", QoS::AtLeastOnce);
    watcher.send_bytes(&encoded(&Packet::Publish({
        let mut publish = Publish::new("still/there", QoS::AtMostOnce, "x", None);
        publish.pkid = 0;
        publish
    })));
    assert_eq!(watcher.receive(), super::pair("still/there", "x"));
}
