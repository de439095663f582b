//! Publications to subscribers that are there: wildcards, options, properties, the past, places.

use std::collections::VecDeque;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Filter, Packet, Publish, SubscribeProperties, SubscribeReasonCode,
};

use super::{Client, Options, filter, pair, payload, served};

#[test]
fn a_publication_reaches_its_subscribers_with_the_lesser_qos() {
    let served = served();
    let (mut zero, mut one) = (
        Client::new(served.mqtt(), "a"),
        Client::new(served.mqtt(), "b"),
    );
    zero.subscribe("t/x", QoS::AtMostOnce);
    one.subscribe("t/x", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("t/x", "first");
    publisher.publish_with("t/x", "second", |publish, _| publish.qos = QoS::AtMostOnce);
    for (client, qos) in [(&mut zero, QoS::AtMostOnce), (&mut one, QoS::AtLeastOnce)] {
        let first = client.publication();
        assert_eq!((payload(&first).as_str(), first.qos), ("first", qos));
        let second = client.publication();
        assert_eq!(
            (payload(&second).as_str(), second.qos),
            ("second", QoS::AtMostOnce)
        );
        assert!(!first.dup && !first.retain);
    }
}

#[test]
fn filters_mean_what_mqtt_says() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    let table = [
        ("a/b", vec!["a/b"]),
        ("a/+", vec!["a/", "a/b"]),
        ("a/#", vec!["a", "a/", "a/b", "a/b/c"]),
        ("+", vec!["a", "1"]),
        ("/+", vec!["/a"]),
        ("+/+", vec!["/a", "a/", "a/b"]),
        ("#", vec!["a", "/a", "a/", "a/b", "a/b/c", "1"]),
        ("$x/#", vec!["$x/a"]),
        ("+/a", vec!["/a"]),
    ];
    let topics = ["a", "/a", "a/", "a/b", "a/b/c", "$x/a", "1"];
    let mut clients: Vec<Client> = Vec::new();
    for (n, (filter, _)) in table.iter().enumerate() {
        let mut client = Client::new(served.mqtt(), &format!("c{n}"));
        client.subscribe(filter, QoS::AtMostOnce);
        clients.push(client);
    }
    for topic in topics {
        publisher.publish(topic, "x");
    }
    for (_, expected) in &table {
        publisher.publish(expected[0], "end");
    }
    for (mut client, (filter, expected)) in clients.into_iter().zip(table) {
        let mut received = Vec::new();
        loop {
            let (topic, payload) = client.receive();
            if payload == "end" {
                break;
            }
            received.push(topic);
        }
        let mut expected: Vec<String> = expected.into_iter().map(str::to_string).collect();
        expected.sort();
        received.sort();
        assert_eq!(received, expected, "{filter}");
    }
}

#[test]
fn properties_are_passed_on_and_identifiers_added() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    let with_id = SubscribeProperties {
        id: Some(300),
        user_properties: Vec::new(),
    };
    client.subscribe_with(Filter::new("t", QoS::AtLeastOnce), Some(with_id));
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish_with("t", "x", |_, properties| {
        properties.content_type = Some("text/plain".to_string());
        properties.response_topic = Some("answers".to_string());
        properties.correlation_data = Some(vec![0, 255].into());
        properties.payload_format_indicator = Some(1);
        properties.user_properties = vec![("a".to_string(), "1".to_string()); 2];
    });
    let received = client.publication().properties.unwrap();
    assert_eq!(received.content_type.as_deref(), Some("text/plain"));
    assert_eq!(received.response_topic.as_deref(), Some("answers"));
    assert_eq!(received.correlation_data.as_deref(), Some(&[0, 255][..]));
    assert_eq!(received.payload_format_indicator, Some(1));
    assert_eq!(received.user_properties.len(), 2);
    assert_eq!(received.subscription_identifiers, [300]);
    assert_eq!(received.message_expiry_interval, None);
}

#[test]
fn payloads_of_any_bytes_pass_unchanged() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for payload in [&b""[..], b"\0\xff\xfe", br#" {"a" : 1.0 } "#, &[7; 300_000]] {
        let publish = Publish::new("t", QoS::AtLeastOnce, payload.to_vec(), None);
        publisher.publish_packet(publish);
        let received = client.publication();
        client.acknowledge(received.pkid);
        assert_eq!(received.payload, payload);
    }
}

#[test]
fn a_client_with_no_local_does_not_hear_itself() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    let own = filter("t", QoS::AtMostOnce, |filter| filter.nolocal = true);
    client.subscribe_with(own, None);
    client.publish("t", "mine");
    Client::new(served.mqtt(), "p").publish("t", "yours");
    assert_eq!(client.receive(), pair("t", "yours"));
}

#[test]
fn a_subscription_ends_with_unsubscribe() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("t", QoS::AtMostOnce);
    client.subscribe("u", QoS::AtMostOnce);
    client.publish("t", "1");
    assert_eq!(client.receive(), pair("t", "1"));
    client.unsubscribe("t");
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("t", "2");
    publisher.publish("u", "3");
    assert_eq!(client.receive(), pair("u", "3"));
}

#[test]
fn aliases_stand_for_topics() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("#", QoS::AtMostOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for (topic, payload) in [("a/b", "1"), ("", "2"), ("c", "3"), ("", "4")] {
        publisher.publish_with(topic, payload, |_, properties| {
            properties.topic_alias = Some(16)
        });
    }
    for (topic, payload) in [("a/b", "1"), ("a/b", "2"), ("c", "3"), ("c", "4")] {
        assert_eq!(client.receive(), pair(topic, payload));
    }
}

#[test]
fn a_lifetime_is_decremented_and_ends() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish_with("t", "long", |_, properties| {
        properties.message_expiry_interval = Some(100);
    });
    publisher.publish_with("t", "short", |_, properties| {
        properties.message_expiry_interval = Some(1);
    });
    std::thread::sleep(Duration::from_millis(1200));
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe_to("t", &[("since", "1h")]);
    let received = client.publication();
    assert_eq!(payload(&received), "long");
    let left = received
        .properties
        .unwrap()
        .message_expiry_interval
        .unwrap();
    assert!((1..=99).contains(&left), "{left}");
    client.acknowledge(received.pkid);
    publisher.publish("t", "now");
    assert_eq!(client.receive(), pair("t", "now"));
}

#[test]
fn a_client_asks_for_the_past_for_a_place_and_for_a_condition() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    let mut at = |payload: &str, position: &str| {
        let position = position.to_string();
        publisher.publish_with("road/a7", payload, |_, properties| {
            properties.user_properties = vec![("position".to_string(), position)];
        });
    };
    at(r#"{"lanes": 1}"#, "10,53.5");
    at(r#"{"lanes": 2}"#, "10.01,53.5");
    at(r#"{"lanes": 3}"#, "2.35,48.86");
    let mut here = Client::new(served.mqtt(), "here");
    let asked = [
        ("since", "1h"),
        ("area", "circle(10,53.5,5000)"),
        ("where", "lanes >= 2"),
    ];
    let answer = here.subscribe_to("road/#", &asked);
    assert_eq!(
        answer.return_codes,
        [SubscribeReasonCode::Success(QoS::AtLeastOnce)]
    );
    assert_eq!(here.receive(), pair("road/a7", r#"{"lanes": 2}"#));
    at(r#"{"lanes": 1, "n": 1}"#, "10,53.5");
    at(r#"{"lanes": 4, "n": 2}"#, "2.35,48.86");
    at(r#"{"lanes": 5, "n": 3}"#, "10,53.5");
    assert_eq!(here.receive(), pair("road/a7", r#"{"lanes": 5, "n": 3}"#));
    here.nothing();
    // For a while only.
    let mut brief = Client::new(served.mqtt(), "brief");
    brief.subscribe_to("road/#", &[("for", "1s")]);
    brief.subscribe("end", QoS::AtMostOnce);
    std::thread::sleep(Duration::from_millis(1300));
    at("{}", "10,53.5");
    publisher.publish("end", "");
    assert_eq!(brief.receive(), pair("end", ""));
}

#[test]
fn what_is_asked_for_wrongly_is_refused_with_a_reason() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    for (asked, part) in [
        (("where", "lanes >="), "where `lanes >="),
        (("area", "square(1)"), "an area is rect"),
        (("since", "yesterday"), "since `yesterday`"),
        (("for", "0"), "for `0`"),
    ] {
        let answer = client.subscribe_to("t", &[asked]);
        assert_eq!(
            answer.return_codes,
            [SubscribeReasonCode::ImplementationSpecific]
        );
        let why = answer.properties.unwrap().reason_string.unwrap();
        assert!(why.contains(part), "{why}");
    }
    let answer = client.subscribe_with(Filter::new("a/#/b", QoS::AtMostOnce), None);
    assert_eq!(
        answer.return_codes,
        [SubscribeReasonCode::TopicFilterInvalid]
    );
}

#[test]
fn the_receive_maximum_is_kept_and_more_follows_acknowledgements() {
    let served = served();
    let mut options = Options::new("c");
    options.properties.receive_maximum = Some(3);
    let (mut client, _) = Client::open(served.mqtt(), options);
    client.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    for n in 0..10 {
        publisher.publish("t", &n.to_string());
    }
    let mut unacknowledged: VecDeque<u16> = (0..3).map(|_| client.publication().pkid).collect();
    client.nothing();
    for n in 3..10 {
        client.acknowledge(unacknowledged.pop_front().unwrap());
        let next = client.publication();
        assert_eq!(payload(&next), n.to_string());
        unacknowledged.push_back(next.pkid);
        client.nothing();
    }
}

#[test]
fn packets_that_are_too_large_for_a_client_are_left_out() {
    let served = served();
    let mut options = Options::new("c");
    options.properties.max_packet_size = Some(100);
    let (mut client, _) = Client::open(served.mqtt(), options);
    client.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("t", &"x".repeat(200));
    publisher.publish("t", "small");
    assert_eq!(client.receive(), pair("t", "small"));
}

#[test]
fn a_slow_reader_gets_everything_from_the_store() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("t/#", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    let filler = "x".repeat(1000);
    for n in 0..1500 {
        publisher.publish_with(&format!("t/{n}"), &filler, |publish, _| {
            publish.qos = QoS::AtMostOnce;
        });
    }
    publisher.publish("t/end", "");
    for n in 0..1500 {
        // QoS 0, since that is how they were published.
        let received = client.publication();
        assert_eq!(received.topic, format!("t/{n}"));
    }
    assert_eq!(client.receive(), pair("t/end", ""));
}

#[test]
fn a_silent_client_is_disconnected() {
    let served = served();
    let mut options = Options::new("c");
    options.keep_alive = 1;
    let (mut client, _) = Client::open(served.mqtt(), options);
    use rumqttc::v5::mqttbytes::v5::DisconnectReasonCode::KeepAliveTimeout;
    assert_eq!(client.ended_with(), KeepAliveTimeout);
    let mut options = Options::new("d");
    options.keep_alive = 1;
    let (mut client, _) = Client::open(served.mqtt(), options);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(500));
        client.nothing();
    }
}

#[test]
fn publications_are_records_of_the_store() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    publisher.publish("road/a7", r#"{"lanes": 2}"#);
    let dir = served.stop();
    let options = pubsub::PubSub::register(esker::Options::default());
    let db = esker::Database::open(dir.path().join("db"), options).unwrap();
    let broker = pubsub::Broker::open(&db).unwrap();
    let asked = pubsub::Subscription::to("road/a7".parse::<pubsub::Topic>().unwrap().into())
        .since(Duration::from_secs(3600))
        .matching("lanes = 2".parse().unwrap());
    let found = broker.query(&asked).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].body, br#"{"lanes": 2}"#);
    // As long as the setting says: a day.
    let lifetime = found[0].expires.unwrap() - found[0].time;
    assert_eq!(lifetime, 24 * 60 * 60 * 1000);
}

#[test]
fn requests_without_answers_are_the_next_ones_answers() {
    // Several packets in one write, in order.
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    let mut bytes = bytes::BytesMut::new();
    let mut subscribe =
        rumqttc::v5::mqttbytes::v5::Subscribe::new(Filter::new("t", QoS::AtLeastOnce), None);
    subscribe.pkid = 1;
    Packet::Subscribe(subscribe)
        .write(&mut bytes, None)
        .unwrap();
    for id in 1..=3 {
        let mut publish = Publish::new("t", QoS::AtLeastOnce, id.to_string(), None);
        publish.pkid = id;
        Packet::Publish(publish).write(&mut bytes, None).unwrap();
    }
    client.send_bytes(&bytes);
    let mut acknowledged = Vec::new();
    let mut received = Vec::new();
    assert!(matches!(client.next(), Packet::SubAck(_)));
    while received.len() < 3 || acknowledged.len() < 3 {
        match client.next() {
            Packet::PubAck(answer) => acknowledged.push(answer.pkid),
            Packet::Publish(publish) => received.push(payload(&publish)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (acknowledged, received.join(" ")),
        (vec![1, 2, 3], "1 2 3".to_string())
    );
}
