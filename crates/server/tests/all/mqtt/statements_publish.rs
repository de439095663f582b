//! Statements of MQTT 5 about publications: copies, properties, lengths, shares.

use super::raw::{PUBLISH, Raw, SUBACK, packet, publish, subscribe, text};
use super::served;

/// SUBSCRIBE with a subscription identifier.
fn identified(identifier: u8, filter: &str, qos: u8) -> Vec<u8> {
    packet(
        0x82,
        &[&[0, identifier, 2, 0x0b, identifier], &text(filter), &[qos]],
    )
}

#[test]
fn each_of_overlapping_subscriptions_sends_its_own_copy() {
    let served = served();
    let mut raw = Raw::open(&served, "s", 0);
    for bytes in [
        identified(5, "a", 1),
        identified(6, "+", 0),
        subscribe(7, &[("#", 1)]),
    ] {
        raw.send(&bytes);
        assert_eq!(raw.packet()[0], SUBACK);
    }
    Raw::open(&served, "p", 0).publish("a", "x");
    let mut received = Vec::new();
    for _ in 0..3 {
        let mut copy = raw.packet();
        if copy[0] & 6 != 0 {
            // Without the packet identifier, which differs.
            copy.drain(5..7);
        }
        received.push((copy[0], copy[5..].to_vec()));
    }
    received.sort();
    let expected = [
        (PUBLISH, vec![2, 0x0b, 6, b'x']),
        (PUBLISH | 2, vec![0, b'x']),
        (PUBLISH | 2, vec![2, 0x0b, 5, b'x']),
    ];
    assert_eq!(received, expected);
    raw.nothing();
}

#[test]
fn properties_pass_byte_for_byte_in_their_order() {
    let served = served();
    let mut raw = Raw::open(&served, "s", 0);
    raw.send(&subscribe(1, &[("a", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    let user = |name: &str, value: &str| [&[0x26][..], &text(name), &text(value)].concat();
    let properties = [
        user("b", "2"),
        vec![0x01, 1],
        [&[0x08][..], &text("answers/\u{feff}")].concat(),
        user("a", "1"),
        vec![0x09, 0, 3, 0, 0xff, 0x80],
        [&[0x03][..], &text("text/plain")].concat(),
        user("b", "1"),
        user("", ""),
    ]
    .concat();
    let len = [u8::try_from(properties.len()).unwrap()];
    let body = [&text("a")[..], &len, &properties, b"x"].concat();
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.send(&packet(PUBLISH, &[&body]));
    assert_eq!(raw.packet(), packet(PUBLISH, &[&body]));
}

#[test]
fn wrong_properties_of_a_publication_end_the_connection() {
    let served = served();
    for (properties, reason) in [
        // A subscription identifier, which only servers send.
        (&[0x0b, 1][..], 0x82),
        // Response topics with wildcards; one that is not UTF-8.
        (&[0x08, 0, 1, b'#'], 0x82),
        (&[0x08, 0, 3, b'a', b'/', b'+'], 0x82),
        (&[0x08, 0, 1, 0xff], 0x81),
        // A content type that is not UTF-8; a payload format that does not exist.
        (&[0x03, 0, 1, 0xff], 0x81),
        (&[0x01, 2], 0x82),
        // A property of CONNECT.
        (&[0x21, 0, 1], 0x82),
    ] {
        let mut raw = Raw::open(&served, "c", 0);
        let len = [u8::try_from(properties.len()).unwrap()];
        raw.send(&packet(PUBLISH, &[&text("a"), &len, properties]));
        assert_eq!(raw.ended_with(), reason, "{properties:x?}");
    }
}

#[test]
fn lengths_have_as_few_bytes_as_they_need() {
    let served = served();
    let mut raw = Raw::open(&served, "c", 0);
    raw.send(&subscribe(1, &[("a", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    for (payload, bytes) in [(123, 1), (124, 2), (16_379, 2), (16_380, 3), (100_000, 3)] {
        let len = payload + 4;
        let mut sent = vec![PUBLISH];
        let mut rest = len;
        while rest > 127 {
            sent.push((rest & 127) as u8 | 128);
            rest >>= 7;
        }
        sent.push(rest as u8);
        assert_eq!(sent.len(), 1 + bytes);
        sent.extend(text("a"));
        sent.push(0);
        sent.extend(vec![7; payload]);
        raw.send(&sent);
        assert_eq!(raw.packet(), sent);
    }
}

#[test]
fn a_subscription_of_the_same_filter_replaces_the_former() {
    let served = served();
    let mut raw = Raw::open(&served, "s", 0);
    for (id, qos) in [(1, 0), (2, 1)] {
        raw.send(&subscribe(id, &[("a", qos)]));
        assert_eq!(raw.packet(), [SUBACK, 4, 0, id, 0, qos]);
    }
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.publish("a", "x");
    assert_eq!(raw.packet()[0], PUBLISH | 2);
    raw.nothing();
}

#[test]
fn a_retained_message_has_the_lesser_qos() {
    let served = served();
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.send(&publish(1, 1, "one", "x"));
    assert_eq!(publisher.packet()[0], 0x40);
    publisher.send(&packet(PUBLISH | 1, &[&text("zero"), &[0, b'x']]));
    publisher.nothing();
    for (filter, qos, header) in [
        ("one", 0, PUBLISH | 1),
        ("one", 1, PUBLISH | 3),
        ("zero", 1, PUBLISH | 1),
    ] {
        let mut raw = Raw::open(&served, "s", 0);
        raw.send(&subscribe(1, &[(filter, qos)]));
        assert_eq!(raw.packet()[0], SUBACK);
        assert_eq!(raw.packet()[0], header, "{filter} {qos}");
    }
}

#[test]
fn a_share_has_a_name_a_filter_and_its_own_qos() {
    let served = served();
    for wrong in ["$share//a", "$share/+/a", "$share/g#/a", "$share/g"] {
        let mut raw = Raw::open(&served, "s", 0);
        raw.send(&subscribe(1, &[(wrong, 0)]));
        assert_eq!(raw.ended_with(), 0x81, "{wrong}");
    }
    let mut raw = Raw::open(&served, "s", 0);
    raw.send(&subscribe(1, &[("$share/g/", 0)]));
    let answer = raw.packet();
    assert_eq!((answer[0], answer.last()), (SUBACK, Some(&0x8f)));
    raw.send(&subscribe(2, &[("$share/g/a", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    Raw::open(&served, "p", 0).publish("a", "x");
    let body = [&text("a")[..], &[0, b'x']].concat();
    assert_eq!(raw.packet(), packet(PUBLISH, &[&body]));
}
