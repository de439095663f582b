//! Publications of QoS 0 without storing (`store_qos0 = false`).

use rumqttc::v5::mqttbytes::QoS;

use super::{Client, Options, config, pair, payload};
use crate::common::Served;
use crate::events::Events;

fn served() -> Served {
    let mut config = config();
    config.mqtt_limits.store_qos0 = false;
    Served::with(config)
}

/// Publishes with QoS 0.
fn pass(client: &mut Client, topic: &str, payload: &str) {
    client.publish_with(topic, payload, |publish, _| publish.qos = QoS::AtMostOnce);
}

fn stored(served: &Served, topic: &str) -> String {
    served
        .ask(&format!("GET /v1/topics/{topic}/records?since=1h"))
        .text()
}

#[test]
fn connected_subscribers_receive_what_is_not_stored() {
    let served = served();
    let mut zero = Client::new(served.mqtt(), "zero");
    zero.subscribe("a/+", QoS::AtMostOnce);
    let mut one = Client::new(served.mqtt(), "one");
    one.subscribe("#", QoS::AtLeastOnce);
    let mut shared = Client::new(served.mqtt(), "shared");
    shared.subscribe("$share/g/a/#", QoS::AtLeastOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    pass(&mut publisher, "a/b", "x");
    for client in [&mut zero, &mut one, &mut shared] {
        let received = client.publication();
        assert_eq!(
            (received.qos, payload(&received).as_str()),
            (QoS::AtMostOnce, "x")
        );
        assert!(!received.dup && !received.retain);
    }
    assert!(!stored(&served, "a%2Fb").contains('x'));
    // With QoS 1, with an expiry, retained: stored.
    publisher.publish("a/one", "one");
    publisher.publish_with("a/expires", "expires", |publish, properties| {
        publish.qos = QoS::AtMostOnce;
        properties.message_expiry_interval = Some(1000);
    });
    publisher.publish_with("a/kept", "kept", |publish, _| {
        publish.qos = QoS::AtMostOnce;
        publish.retain = true;
    });
    publisher.nothing();
    for topic in ["one", "expires", "kept"] {
        assert!(
            stored(&served, &format!("a%2F{topic}")).contains(topic),
            "{topic}"
        );
    }
}

#[test]
fn what_a_subscription_reads_from_the_store_is_stored() {
    let served = served();
    let mut publisher = Client::new(served.mqtt(), "p");
    // Another client: nothing of its own is on its way to subscribers.
    let mut other = Client::new(served.mqtt(), "other");
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe_to("a", &[("where", "n >= 2")]);
    for n in 1..=3 {
        pass(&mut publisher, "a", &format!(r#"{{"n": {n}}}"#));
        pass(&mut other, "b", "without listeners");
    }
    for n in 2..=3 {
        assert_eq!(client.receive(), pair("a", &format!(r#"{{"n": {n}}}"#)));
    }
    other.nothing();
    assert!(stored(&served, "a").contains(r#""record":{"n": 1}"#));
    assert!(!stored(&served, "b").contains("listeners"));
}

#[test]
fn subscribers_over_http_receive_it_too() {
    let served = served();
    let mut client = Client::new(served.mqtt(), "c");
    client.subscribe("a", QoS::AtMostOnce);
    let mut publisher = Client::new(served.mqtt(), "p");
    let mut events = Events::after(&served, "/v1/topics/a/subscribe", None);
    pass(&mut publisher, "a", r#"{"n": 1}"#);
    let event = events.next().unwrap();
    assert_eq!(event.data["record"]["n"], 1);
    assert_eq!(client.receive(), pair("a", r#"{"n": 1}"#));
}

/// A client that publishes in many ways is heard in order, by those who read at once and by one
/// that reads late.
#[test]
fn the_order_of_a_client_is_kept_and_nothing_is_lost() {
    let served = served();
    let mut late = Client::new(served.mqtt(), "late");
    late.subscribe("t/#", QoS::AtLeastOnce);
    let mut options = Options::new("soon");
    options.properties.receive_maximum = Some(3);
    let (mut soon, _) = Client::open(served.mqtt(), options);
    soon.subscribe("t/+", QoS::AtLeastOnce);
    const MANY: usize = 2500;
    let reading = std::thread::spawn(move || {
        for n in 0..MANY {
            assert_eq!(
                soon.receive().1.split(' ').next(),
                Some(n.to_string().as_str())
            );
        }
    });
    let mut rng = fastrand::Rng::with_seed(11);
    let mut publisher = Client::new(served.mqtt(), "p");
    let filler = "x".repeat(1000);
    for n in 0..MANY {
        let text = format!("{n} {filler}");
        publisher.publish_with("t/x", &text, |publish, properties| {
            match rng.u8(..40) {
                0 => return,
                1 => properties.message_expiry_interval = Some(1000),
                2 => publish.retain = true,
                _ => {}
            }
            publish.qos = QoS::AtMostOnce;
        });
    }
    publisher.nothing();
    reading.join().unwrap();
    for n in 0..MANY {
        assert_eq!(
            late.receive().1.split(' ').next(),
            Some(n.to_string().as_str())
        );
    }
}
