//! Statements of MQTT 5 that no other test shows, packet by packet (`docs/mqtt-conformance.md`).

use super::raw::{
    PUBACK, PUBLISH, Raw, SUBACK, connect, packet, publish, refused, subscribe, text, unsubscribe,
};
use super::served;

#[test]
fn texts_are_utf8_without_nul_and_keep_their_byte_order_marks() {
    let served = served();
    // A surrogate, NUL, and a user property that is not UTF-8.
    for body in [
        &[0, 3, 0xed, 0xa0, 0x80, 0][..],
        &[0, 1, 0, 0],
        &[0, 1, b'a', 6, 0x26, 0, 1, 0xff, 0, 0],
        &[0, 1, b'a', 6, 0x26, 0, 0, 0, 1, 0xff],
    ] {
        let mut raw = Raw::open(&served, "c", 0);
        raw.send(&packet(PUBLISH, &[body]));
        assert_eq!(raw.ended_with(), 0x81, "{body:x?}");
    }
    let mut raw = Raw::open(&served, "c", 0);
    let topic = "\u{feff}a";
    raw.send(&subscribe(1, &[(topic, 0)]));
    assert_eq!(raw.packet(), [SUBACK, 4, 0, 1, 0, 0]);
    let body = [&text(topic)[..], &[0, b'x']].concat();
    raw.send(&packet(PUBLISH, &[&body]));
    assert_eq!(raw.packet(), packet(PUBLISH, &[&body]));
}

#[test]
fn the_server_counts_its_packets_by_unused_identifiers() {
    let served = served();
    let mut raw = Raw::open(&served, "s", 0);
    raw.send(&subscribe(1, &[("a", 1), ("b", 0)]));
    assert_eq!(raw.packet(), [SUBACK, 5, 0, 1, 0, 1, 0]);
    let mut publisher = Raw::open(&served, "p", 0);
    let mut identifiers = Vec::new();
    for number in 0..5 {
        publisher.publish("a", &number.to_string());
        let received = raw.packet();
        // QoS 1, not a duplicate.
        assert_eq!(received[0], PUBLISH | 2);
        identifiers.push([received[5], received[6]]);
    }
    assert!(!identifiers.contains(&[0, 0]), "{identifiers:?}");
    identifiers.sort_unstable();
    identifiers.dedup();
    assert_eq!(identifiers.len(), 5);
    // QoS 0 has no identifier, and is no duplicate.
    publisher.publish("b", "x");
    let body = [&text("b")[..], &[0, b'x']].concat();
    assert_eq!(raw.packet(), packet(PUBLISH, &[&body]));
}

#[test]
fn answers_have_the_identifier_and_the_order_of_the_request() {
    let served = served();
    let mut raw = Raw::open(&served, "c", 0);
    raw.send(&subscribe(7, &[("a", 0), ("a/#/b", 1), ("b", 1), ("c", 2)]));
    let answer = raw.packet();
    assert_eq!((answer[0], &answer[2..4]), (SUBACK, &[0, 7][..]));
    assert_eq!(answer[answer.len() - 4..], [0, 0x8f, 1, 1]);
    raw.send(&unsubscribe(9, &["b", "unknown", "a/#/b", "c"]));
    assert_eq!(raw.packet(), [0xb0, 7, 0, 9, 0, 0, 0x11, 0x8f, 0]);
    raw.send(&publish(0, 77, "t", "x"));
    assert_eq!(raw.packet(), [PUBACK, 2, 0, 77]);
    // Filters are compared as they are: `a` is still there.
    raw.publish("b", "x");
    raw.send(&publish(0, 3, "a", "x"));
    let both = [raw.packet()[0], raw.packet()[0]];
    assert!(
        both.contains(&PUBACK) && both.contains(&PUBLISH),
        "{both:?}"
    );
}

#[test]
fn connack_is_the_first_packet_and_has_no_reserved_flags() {
    let served = served();
    let mut raw = Raw::new(&served);
    let together = [connect("c", 2, &[], &[]), vec![0xc0, 0]].concat();
    raw.send(&together);
    let answer = raw.packet();
    assert_eq!(answer[0..1], [0x20]);
    assert_eq!(answer[2..4], [0, 0]);
    // Maximum QoS is 1; there is no authentication, no keep-alive of the server's own, and no
    // response information.
    let properties = &answer[5..];
    assert_eq!(properties[..2], [0x24, 1]);
    let mut at = 0;
    while let Some(kind) = properties.get(at) {
        at += match kind {
            0x24 => 2,
            0x21 | 0x22 => 3,
            0x27 | 0x11 => 5,
            other => panic!("property {other:x}"),
        };
    }
    assert_eq!(raw.packet(), [0xd0, 0]);
}

#[test]
fn a_refused_connect_is_answered_and_nothing_behind_it_is_read() {
    let served = served();
    let mut watcher = Raw::open(&served, "watcher", 0);
    watcher.send(&subscribe(1, &[("#", 0)]));
    assert_eq!(watcher.packet()[0], SUBACK);
    // A will with QoS 2, and a publication behind it.
    let will = [&[0][..], &text("w"), &text("x")].concat();
    let bytes = [connect("c", 0x14, &[], &will), publish(0, 1, "never", "x")];
    assert_eq!(refused(&served, &bytes.concat())[3], 0x9b);
    watcher.nothing();
}

#[test]
fn the_flags_and_the_fields_of_connect_agree() {
    let served = served();
    let will = [&[0][..], &text("w"), &text("x")].concat();
    let user = text("u");
    let both = [&user[..], &text("p")].concat();
    for (flags, rest) in [
        // No will, with its QoS or its retain flag; a will with QoS 3; a will without its fields.
        (0x08, &[][..]),
        (0x20, &[]),
        (0x1c, &will),
        (0x04, &[]),
        // A user and a password without their flags, and the reverse.
        (0x00, &user),
        (0x80, &both),
        (0x80, &[]),
        (0xc0, &user),
        // The reserved flag.
        (0x01, &[]),
    ] {
        let answer = refused(&served, &connect("c", flags, &[], rest));
        assert_eq!(answer[3], 0x81, "{flags:x}");
    }
    // Another protocol's name.
    let other = packet(0x10, &[&text("MQTR"), &[5, 0, 0, 0, 0], &text("c")]);
    assert!(refused(&served, &other)[3] >= 0x80);
}

#[test]
fn a_will_is_retained_if_it_says_so() {
    let served = served();
    let mut watcher = Raw::open(&served, "watcher", 0);
    watcher.send(&subscribe(1, &[("w/#", 0)]));
    assert_eq!(watcher.packet()[0], SUBACK);
    for (flags, topic) in [(0x04, "w/passing"), (0x24, "w/retained")] {
        let will = [&[0][..], &text(topic), &text("x")].concat();
        let mut raw = Raw::new(&served);
        raw.send(&connect("c", flags, &[], &will));
        assert_eq!(raw.packet()[3], 0);
        drop(raw);
        assert_eq!(watcher.packet()[2..13], text(topic)[..11]);
    }
    let mut late = Raw::open(&served, "late", 0);
    late.send(&subscribe(1, &[("w/#", 0)]));
    assert_eq!(late.packet()[0], SUBACK);
    let body = [&text("w/retained")[..], &[0, b'x']].concat();
    assert_eq!(late.packet(), packet(PUBLISH | 1, &[&body]));
    late.nothing();
}

#[test]
fn what_a_subscriber_has_seen_is_retained_for_the_next() {
    let served = served();
    let mut watcher = Raw::open(&served, "watcher", 0);
    watcher.send(&subscribe(1, &[("r/#", 0)]));
    assert_eq!(watcher.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    let mut late = Raw::open(&served, "late", 0);
    for round in 0..40 {
        let topic = format!("r/{round:02}");
        let body = [&text(&topic)[..], &[0, b'x']].concat();
        publisher.send(&packet(PUBLISH | 1, &[&body]));
        assert_eq!(watcher.packet(), packet(PUBLISH, &[&body]));
        late.send(&subscribe(1, &[(&topic, 0)]));
        assert_eq!(late.packet()[0], SUBACK);
        assert_eq!(late.packet(), packet(PUBLISH | 1, &[&body]));
    }
    late.nothing();
}

#[test]
fn reasons_are_left_out_where_they_are_not_wanted_or_have_no_room() {
    let served = served();
    // Request Problem Information 0; a Maximum Packet Size of 30.
    for properties in [&[0x17, 0][..], &[0x27, 0, 0, 0, 30]] {
        let mut raw = Raw::new(&served);
        raw.send(&connect("c", 2, properties, &[]));
        assert_eq!(raw.packet()[3], 0);
        raw.send(&subscribe(1, &[("a/#/b", 0)]));
        assert_eq!(raw.packet(), [SUBACK, 4, 0, 1, 0, 0x8f]);
        let wrong = [
            0x26, 0, 8, b'p', b'o', b's', b'i', b't', b'i', b'o', b'n', 0, 1, b'x',
        ];
        let body = [&text("t")[..], &[0, 5, 14], &wrong].concat();
        raw.send(&packet(PUBLISH | 2, &[&body]));
        assert_eq!(raw.packet(), [PUBACK, 4, 0, 5, 0x83, 0]);
        raw.send(&[0x20, 0]);
        assert_eq!(raw.packet(), [0xe0, 2, 0x82, 0]);
    }
    let mut raw = Raw::open(&served, "c", 0);
    raw.send(&subscribe(1, &[("a/#/b", 0)]));
    assert!(raw.packet().len() > 6);
}

#[test]
fn a_repeated_identifier_is_a_new_publication_and_dup_is_not_passed_on() {
    let served = served();
    let mut raw = Raw::open(&served, "s", 0);
    raw.send(&subscribe(1, &[("a", 1)]));
    assert_eq!(raw.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    for payload in ["1", "2"] {
        // DUP.
        publisher.send(&publish(8, 5, "a", payload));
        assert_eq!(publisher.packet(), [PUBACK, 2, 0, 5]);
        let received = raw.packet();
        assert_eq!(received[0], PUBLISH | 2);
        assert_eq!(received[received.len() - 1..], *payload.as_bytes());
    }
}

#[test]
fn a_publication_without_retain_leaves_the_retained_message() {
    let served = served();
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.send(&publish(1, 1, "a", "kept"));
    assert_eq!(publisher.packet()[0], PUBACK);
    publisher.publish("a", "passing");
    publisher.publish("a", "");
    let mut raw = Raw::open(&served, "s", 0);
    raw.send(&subscribe(1, &[("a", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    let body = [&text("a")[..], &[0], b"kept"].concat();
    assert_eq!(raw.packet(), packet(PUBLISH | 1, &[&body]));
    // An empty one with the flag removes it, and is not retained itself.
    publisher.send(&publish(1, 1, "a", ""));
    assert_eq!(publisher.packet()[0], PUBACK);
    let mut late = Raw::open(&served, "late", 0);
    late.send(&subscribe(1, &[("a", 0)]));
    assert_eq!(late.packet()[0], SUBACK);
    late.nothing();
}

#[test]
fn aliases_end_with_their_connection() {
    let served = served();
    let alias = |topic: &str| {
        let body = [&text(topic)[..], &[3, 0x23, 0, 1]].concat();
        packet(PUBLISH, &[&body])
    };
    let mut first = Raw::open(&served, "c", 100);
    first.send(&[alias("a"), alias("")].concat());
    first.nothing();
    let mut second = Raw::open(&served, "c", 100);
    second.send(&alias(""));
    assert_eq!(second.ended_with(), 0x82);
}

#[test]
fn topics_are_compared_as_they_are() {
    let served = served();
    let mut raw = Raw::open(&served, "c", 0);
    // Composed and decomposed, with an empty level, in another case.
    let topics = ["\u{e9}", "e\u{301}", "a/b", "a//b", "/a/b", "A/b"];
    for topic in topics {
        raw.send(&subscribe(1, &[(topic, 0)]));
        assert_eq!(raw.packet()[0], SUBACK);
        for other in topics {
            raw.send(&packet(PUBLISH, &[&text(other), &[0]]));
        }
        assert_eq!(raw.packet(), packet(PUBLISH, &[&text(topic), &[0]]));
        raw.nothing();
        raw.send(&unsubscribe(2, &[topic]));
        assert_eq!(raw.packet()[0], 0xb0);
    }
}

#[test]
fn a_publication_that_a_client_rejects_is_done() {
    let served = served();
    let mut publisher = Raw::open(&served, "p", 0);
    let mut first = Raw::open(&served, "first", 100);
    first.send(&subscribe(1, &[("$share/g/a", 1), ("b", 1)]));
    assert_eq!(first.packet()[0], SUBACK);
    for topic in ["a", "b"] {
        publisher.publish(topic, "x");
        let received = first.packet();
        assert_eq!(received[0], PUBLISH | 2);
        // Unspecified error.
        first.send(&packet(PUBACK, &[&received[5..7], &[0x80, 0]]));
    }
    first.nothing();
    let mut second = Raw::open(&served, "second", 0);
    second.send(&subscribe(1, &[("$share/g/a", 1)]));
    assert_eq!(second.packet()[0], SUBACK);
    drop(first);
    second.nothing();
    let mut first = Raw::open(&served, "first", 100);
    first.nothing();
}

#[test]
fn what_was_sent_is_sent_again_though_its_subscription_has_ended() {
    let served = served();
    let mut first = Raw::open(&served, "c", 100);
    first.send(&subscribe(1, &[("a", 1)]));
    assert_eq!(first.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.publish("a", "x");
    let sent = first.packet();
    first.send(&unsubscribe(2, &["a"]));
    assert_eq!(first.packet()[0], 0xb0);
    publisher.publish("a", "not for it");
    first.nothing();
    drop(first);
    let mut again = Raw::open(&served, "c", 100);
    let repeated = again.packet();
    assert_eq!(repeated[0], sent[0] | 8);
    assert_eq!(repeated[1..], sent[1..]);
    again.send(&packet(PUBACK, &[&sent[5..7]]));
    again.nothing();
}

#[test]
fn what_was_sent_of_a_share_stays_with_the_client_that_leaves_it() {
    let served = served();
    let mut first = Raw::open(&served, "c", 100);
    first.send(&subscribe(1, &[("$share/g/a", 1)]));
    assert_eq!(first.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.publish("a", "x");
    let sent = first.packet();
    let mut other = Raw::open(&served, "other", 100);
    other.send(&subscribe(1, &[("$share/g/a", 1)]));
    assert_eq!(other.packet()[0], SUBACK);
    first.send(&unsubscribe(2, &["$share/g/a"]));
    assert_eq!(first.packet()[0], 0xb0);
    drop(first);
    let mut again = Raw::open(&served, "c", 100);
    let repeated = again.packet();
    assert_eq!((repeated[0], &repeated[1..]), (sent[0] | 8, &sent[1..]));
    other.nothing();
}

#[test]
fn what_a_passing_member_of_a_share_leaves_goes_to_the_others() {
    let served = served();
    let mut passing = Raw::open(&served, "passing", 0);
    passing.send(&subscribe(1, &[("$share/g/a", 1)]));
    assert_eq!(passing.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    publisher.publish("a", "x");
    assert_eq!(passing.packet()[0], PUBLISH | 2);
    let mut other = Raw::open(&served, "other", 0);
    other.send(&subscribe(1, &[("$share/g/a", 1)]));
    assert_eq!(other.packet()[0], SUBACK);
    passing.send(&unsubscribe(2, &["$share/g/a"]));
    assert_eq!(passing.packet()[0], 0xb0);
    let received = other.packet();
    assert_eq!(
        (received[0] & 0xf6, received.last()),
        (PUBLISH | 2, Some(&b'x'))
    );
}

#[test]
fn a_full_quota_delays_publications_alone() {
    let served = served();
    let mut raw = Raw::new(&served);
    raw.send(&connect("s", 2, &[0x21, 0, 2], &[]));
    assert_eq!(raw.packet()[3], 0);
    raw.send(&subscribe(1, &[("a", 1), ("b", 0)]));
    assert_eq!(raw.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    for payload in ["1", "2", "3"] {
        publisher.publish("a", payload);
    }
    let first = raw.packet();
    assert_eq!([first[0], raw.packet()[0]], [PUBLISH | 2, PUBLISH | 2]);
    raw.nothing();
    raw.send(&subscribe(2, &[("c", 0)]));
    assert_eq!(raw.packet(), [SUBACK, 4, 0, 2, 0, 0]);
    raw.publish("elsewhere", "x");
    publisher.publish("b", "x");
    assert_eq!(raw.packet()[0], PUBLISH);
    raw.send(&packet(PUBACK, &[&first[5..7]]));
    let third = raw.packet();
    assert_eq!((third[0], third[third.len() - 1]), (PUBLISH | 2, b'3'));
}

#[test]
fn publications_of_a_client_keep_their_order() {
    let served = served();
    let mut raw = Raw::open(&served, "s", 0);
    raw.send(&subscribe(1, &[("a/#", 1)]));
    assert_eq!(raw.packet()[0], SUBACK);
    let mut publisher = Raw::open(&served, "p", 0);
    let all: Vec<u8> = (1..=60)
        .flat_map(|n| publish(0, n, "a/b", &format!("{n:02}")))
        .collect();
    publisher.send(&all);
    for n in 1..=60 {
        assert_eq!(publisher.packet(), [PUBACK, 2, 0, n]);
        let received = raw.packet();
        assert_eq!(
            received[received.len() - 2..],
            *format!("{n:02}").as_bytes()
        );
        raw.send(&packet(PUBACK, &[&received[7..9]]));
    }
}

#[test]
fn packets_of_authentication_end_the_connection() {
    let served = served();
    for (bytes, reason) in [
        (&[0xf0, 0][..], 0x82),
        (&[0xf1, 0], 0x81),
        (&[0x62, 2, 0, 1], 0x82),
        (&[0x60, 2, 0, 1], 0x81),
        (&[0xe1, 0], 0x81),
        (&[0xa0, 6, 0, 1, 0, 0, 1, b'a'], 0x81),
        (&[0xa2, 3, 0, 1, 0], 0x82),
        (&[0xa2, 6, 0, 1, 0, 0, 1, 0xff], 0x81),
    ] {
        let mut raw = Raw::open(&served, "c", 0);
        raw.send(bytes);
        assert_eq!(raw.ended_with(), reason, "{bytes:x?}");
    }
}

#[test]
fn a_new_connection_takes_over_the_session_and_ends_the_former() {
    let served = served();
    let mut first = Raw::open(&served, "c", 100);
    let mut second = Raw::new(&served);
    second.send(&connect("c", 0, &[0x11, 0, 0, 0, 100], &[]));
    assert_eq!(second.packet()[2..4], [1, 0]);
    assert_eq!(first.ended_with(), 0x8e);
    // A clean start has no session.
    let mut third = Raw::new(&served);
    third.send(&connect("c", 2, &[], &[]));
    assert_eq!(third.packet()[2..4], [0, 0]);
    // Each identifier may have these characters.
    let mut long = Raw::new(&served);
    long.send(&connect("0123abcXYZ0123abcXYZ123", 2, &[], &[]));
    assert_eq!(long.packet()[3], 0);
}
