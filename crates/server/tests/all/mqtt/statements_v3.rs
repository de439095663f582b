//! What MQTT 3.1.1 asks for that MQTT 5 does not, packet by packet.

use super::raw::{PUBACK, PUBLISH, Raw, SUBACK, packet, text};
use super::served;
use crate::common::Served;

const CLEAN: u8 = 2;

fn connect(client: &str, flags: u8, rest: &[u8]) -> Vec<u8> {
    let head = [&text("MQTT")[..], &[4, flags, 0, 0]].concat();
    packet(0x10, &[&head, &text(client), rest])
}

/// A connected client, and whether the session was there.
fn open(served: &Served, client: &str, flags: u8, rest: &[u8]) -> (Raw, u8) {
    let mut raw = Raw::new(served);
    raw.send(&connect(client, flags, rest));
    let answer = raw.packet();
    assert_eq!((answer.len(), answer[0], answer[3]), (4, 0x20, 0));
    (raw, answer[2])
}

fn subscribe(id: u8, filters: &[(&str, u8)]) -> Vec<u8> {
    let filters = filters
        .iter()
        .map(|(filter, qos)| [&text(filter)[..], &[*qos]].concat());
    packet(0x82, &[&[0, id], &filters.collect::<Vec<_>>().concat()])
}

fn publish(flags: u8, id: u8, topic: &str, payload: &str) -> Vec<u8> {
    packet(
        PUBLISH | 2 | flags,
        &[&text(topic), &[0, id], payload.as_bytes()],
    )
}

#[test]
fn connack_has_a_return_code_and_says_whether_the_session_was_there() {
    let served = served();
    for (bytes, code) in [
        (connect("", 0, &[]), 2),
        // A will with QoS 2, which is not offered.
        (
            connect("c", 0x16, &[&text("w")[..], &text("x")].concat()),
            3,
        ),
    ] {
        let mut raw = Raw::new(&served);
        raw.send(&bytes);
        assert_eq!(raw.packet(), [0x20, 2, 0, code]);
        assert_eq!(raw.try_packet(), None);
    }
    assert_eq!(open(&served, "", CLEAN, &[]).1, 0);
    assert_eq!(open(&served, "c", 0, &[]).1, 0);
    assert_eq!(open(&served, "c", 0, &[]).1, 1);
    assert_eq!(open(&served, "c", CLEAN, &[]).1, 0);
    assert_eq!(open(&served, "c", 0, &[]).1, 0);
}

#[test]
fn answers_have_the_form_of_their_version() {
    let served = served();
    let (mut raw, _) = open(&served, "c", CLEAN, &[]);
    raw.send(&subscribe(7, &[("a", 0), ("a/#/b", 1), ("b", 2)]));
    assert_eq!(raw.packet(), [SUBACK, 5, 0, 7, 0, 0x80, 1]);
    raw.send(&publish(0, 9, "b", "x"));
    let both = [raw.packet(), raw.packet()];
    assert!(both.contains(&vec![PUBACK, 2, 0, 9]), "{both:x?}");
    let received = both.iter().find(|packet| packet[0] == PUBLISH | 2).unwrap();
    assert_eq!((received.len(), &received[2..5]), (8, &text("b")[..]));
    raw.send(&packet(0xa2, &[&[0, 8], &text("b"), &text("unknown")]));
    assert_eq!(raw.packet(), [0xb0, 2, 0, 8]);
}

#[test]
fn a_connection_ends_without_a_reason() {
    let served = served();
    for bytes in [
        // Reserved flags, QoS 3 and 2, NUL, wildcards in a topic, no topic.
        &[0xc1, 0][..],
        &[0x36, 5, 0, 1, b'a', 0, 1],
        &[0x34, 5, 0, 1, b'a', 0, 1],
        &[0x30, 3, 0, 1, 0],
        &[0x30, 3, 0, 1, b'#'],
        &[0x30, 2, 0, 0],
        // SUBSCRIBE and UNSUBSCRIBE without filters, with other flags, with QoS 3.
        &[0x82, 2, 0, 1],
        &[0xa2, 2, 0, 1],
        &[0x80, 6, 0, 1, 0, 1, b'a', 0],
        &[0x82, 6, 0, 1, 0, 1, b'a', 3],
        // An identifier of 0; packets of servers, of MQTT 5, and a second CONNECT.
        &[0x32, 5, 0, 1, b'a', 0, 0],
        &[0xd0, 0],
        &[0xf0, 0],
        &connect("c", CLEAN, &[]),
    ] {
        let (mut raw, _) = open(&served, "c", CLEAN, &[]);
        raw.send(bytes);
        assert_eq!(raw.try_packet(), None, "{bytes:x?}");
    }
}

#[test]
fn what_is_unacknowledged_comes_again_with_dup() {
    let served = served();
    let (mut raw, _) = open(&served, "c", 0, &[]);
    raw.send(&subscribe(1, &[("a", 1)]));
    assert_eq!(raw.packet(), [SUBACK, 3, 0, 1, 1]);
    let (mut publisher, _) = open(&served, "p", CLEAN, &[]);
    publisher.send(&publish(0, 1, "a", "x"));
    assert_eq!(publisher.packet()[0], PUBACK);
    let first = raw.packet();
    drop(raw);
    let (mut raw, was_there) = open(&served, "c", 0, &[]);
    assert_eq!(was_there, 1);
    let again = raw.packet();
    assert_eq!((again[0], &again[1..]), (first[0] | 8, &first[1..]));
    raw.send(&packet(PUBACK, &[&again[5..7]]));
    raw.nothing();
    drop(raw);
    open(&served, "c", 0, &[]).0.nothing();
}

#[test]
fn retained_messages_and_wills_are_those_of_mqtt_5() {
    let served = served();
    let (mut watcher, _) = open(&served, "watcher", CLEAN, &[]);
    watcher.send(&subscribe(1, &[("w", 0)]));
    assert_eq!(watcher.packet()[0], SUBACK);
    let will = [&text("w")[..], &text("x")].concat();
    let (mut raw, _) = open(&served, "c", CLEAN | 0x24, &will);
    // DISCONNECT takes the will with it.
    raw.send(&[0xe0, 0]);
    assert_eq!(raw.try_packet(), None);
    drop(open(&served, "c", CLEAN, &[]));
    watcher.nothing();
    drop(open(&served, "c", CLEAN | 0x24, &will));
    let body = [&text("w")[..], b"x"].concat();
    // Not marked for a subscription that was there, and marked for a new one.
    assert_eq!(watcher.packet(), packet(PUBLISH, &[&body]));
    watcher.send(&subscribe(2, &[("w", 0)]));
    assert_eq!(watcher.packet()[0], SUBACK);
    assert_eq!(watcher.packet(), packet(PUBLISH | 1, &[&body]));
}
