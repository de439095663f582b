//! Statements of MQTT 5 about connections: sizes, properties of CONNACK, identifiers, wills.

use std::time::Duration;

use super::raw::{PUBLISH, Raw, SUBACK, connect, packet, refused, subscribe, text};
use super::served;

#[test]
fn packets_larger_than_the_clients_maximum_are_not_sent() {
    let served = served();
    // A CONNACK that says why has room, and then not even that one.
    let answer = refused(&served, &connect("c", 2, &[0x27, 0, 0, 0, 10], &[]));
    assert_eq!(answer, [0x20, 3, 0, 0x95, 0]);
    let mut raw = Raw::new(&served);
    raw.send(&connect("c", 2, &[0x27, 0, 0, 0, 4], &[]));
    assert_eq!(raw.try_packet(), None);
    // An assigned identifier needs more room.
    let answer = refused(&served, &connect("", 2, &[0x27, 0, 0, 0, 40], &[]));
    assert_eq!(answer[3], 0x95);
    let mut raw = Raw::new(&served);
    raw.send(&connect("c", 2, &[0x27, 0, 0, 0, 30], &[]));
    assert_eq!(raw.packet()[3], 0);
    // SUBACK has a byte for each filter.
    let filters = [("a", 0); 30];
    raw.send(&packet(
        0x82,
        &[
            &[0, 1, 0],
            &filters
                .map(|(filter, qos)| [&text(filter)[..], &[qos]].concat())
                .concat(),
        ],
    ));
    raw.nothing();
    raw.send(&packet(
        0xa2,
        &[
            &[0, 1, 0],
            &filters.map(|(filter, _)| text(filter)).concat(),
        ],
    ));
    raw.nothing();
    let mut publisher = Raw::open(&served, "p", 0);
    raw.send(&subscribe(2, &[("a", 1)]));
    assert_eq!(raw.packet(), [SUBACK, 4, 0, 2, 0, 1]);
    publisher.publish("a", "a payload that makes too large a packet");
    publisher.publish("a", "small");
    let received = raw.packet();
    assert!(received.ends_with(b"small"), "{received:x?}");
}

#[test]
fn no_alias_and_no_response_information_is_sent() {
    let served = served();
    let mut raw = Raw::new(&served);
    // Request Response Information, and a Topic Alias Maximum of 10.
    raw.send(&connect("c", 2, &[0x19, 1, 0x22, 0, 10], &[]));
    let answer = raw.packet();
    // Maximum QoS, Receive Maximum, Topic Alias Maximum, Maximum Packet Size.
    let kinds = [answer[5], answer[7], answer[10], answer[13]];
    assert_eq!(kinds, [0x24, 0x21, 0x22, 0x27]);
    assert_eq!((answer[4], answer.len()), (13, 18), "{answer:x?}");
    raw.send(&subscribe(1, &[("a", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    for _ in 0..3 {
        let body = [&text("a")[..], &[3, 0x23, 0, 1, b'x']].concat();
        publisher.send(&packet(PUBLISH, &[&body]));
        let body = [&text("a")[..], &[0, b'x']].concat();
        assert_eq!(raw.packet(), packet(PUBLISH, &[&body]));
    }
}

#[test]
fn assigned_identifiers_are_new() {
    let served = served();
    let mut assigned = Vec::new();
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::new(&served);
        raw.send(&connect("", 2, &[], &[]));
        let answer = raw.packet();
        let at = answer.windows(5).position(|part| part == b"auto-").unwrap();
        assert_eq!(answer[at - 3..at - 1], [0x12, 0]);
        assigned.push(answer[at..].to_vec());
        // Each has a connection of its own.
        open.push(raw);
    }
    for raw in &mut open {
        raw.nothing();
    }
    assigned.dedup();
    assert_eq!(assigned.len(), 3);
}

#[test]
fn texts_of_connect_are_utf8() {
    let served = served();
    let wrong = [0, 2, b'a', 0xff];
    let will = [&[0][..], &wrong, &text("x")].concat();
    let head = [&text("MQTT")[..], &[5, 2, 0, 0, 0]].concat();
    for bytes in [
        packet(0x10, &[&head, &wrong]),
        connect("c", 0x06, &[], &will),
        connect("c", 0x82, &[], &wrong),
        connect("c\0", 0x02, &[], &[]),
    ] {
        assert!(refused(&served, &bytes)[3] >= 0x80, "{bytes:x?}");
    }
}

#[test]
fn properties_of_connect_have_their_values() {
    let served = served();
    for properties in [
        // A Receive Maximum and a Maximum Packet Size of 0.
        &[0x21, 0, 0][..],
        &[0x27, 0, 0, 0, 0],
        // Request Problem Information 2; Session Expiry twice.
        &[0x17, 2],
        &[0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1],
        // Authentication Data without a method.
        &[0x16, 0, 1, b'x'],
    ] {
        let answer = refused(&served, &connect("c", 2, properties, &[]));
        assert!(
            [0x81, 0x82].contains(&answer[3]),
            "{properties:x?}: {answer:x?}"
        );
    }
}

#[test]
fn a_connection_without_a_will_publishes_none() {
    let served = served();
    let mut watcher = Raw::open(&served, "watcher", 0);
    watcher.send(&subscribe(1, &[("#", 0)]));
    assert_eq!(watcher.packet()[0], SUBACK);
    let will = [&[0][..], &text("w"), &text("x")].concat();
    for (flags, rest) in [(2, &[][..]), (6, &will)] {
        let mut raw = Raw::new(&served);
        raw.send(&connect("c", flags, &[], rest));
        assert_eq!(raw.packet()[3], 0);
        if flags == 6 {
            // A regular DISCONNECT takes the will with it.
            raw.send(&[0xe0, 0]);
            assert_eq!(raw.try_packet(), None);
        }
        drop(raw);
        // The next connection waits for the end of this one.
        Raw::open(&served, "c", 0).nothing();
    }
    watcher.nothing();
}

#[test]
fn a_session_is_kept_while_its_connection_is_open() {
    let served = served();
    let mut raw = Raw::open(&served, "c", 1);
    raw.send(&subscribe(1, &[("a", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    std::thread::sleep(Duration::from_millis(2200));
    Raw::open(&served, "p", 0).publish("a", "x");
    assert_eq!(raw.packet()[0], PUBLISH);
    assert_eq!(
        served
            .ask("GET /v1/datasets/mqtt-sessions/records/c")
            .status,
        200
    );
}

#[test]
fn a_disconnect_of_the_server_has_a_reason_and_nothing_else() {
    let served = served();
    let mut raw = Raw::open(&served, "c", 100);
    raw.send(&[0x20, 0]);
    let answer = raw.packet();
    assert_eq!((answer[0], answer[2], answer[4]), (0xe0, 0x82, 0x1f));
    // The reason string is all of the properties.
    assert_eq!(usize::from(answer[3]), answer.len() - 4);
    assert_eq!(usize::from(answer[6]), answer.len() - 7);
    assert_eq!(raw.try_packet(), None);
}
