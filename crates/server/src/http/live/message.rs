//! A publication as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pubsub::{Notification, Place, Region};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::live::push_json;

/// The text of a payload that is a JSON object: what can be queried as a record.
fn object(body: &[u8]) -> Option<&[u8]> {
    let trimmed = body.trim_ascii();
    let is_object =
        trimmed.starts_with(b"{") && serde_json::from_slice::<&RawValue>(trimmed).is_ok();
    is_object.then_some(trimmed)
}

/// A region as GeoJSON, or as conditions have it.
fn region(region: &Region) -> Option<Value> {
    match region {
        Region::Rect {
            west,
            south,
            east,
            north,
        } => Some(json!(format!("rect({west},{south},{east},{north})"))),
        Region::Circle {
            longitude,
            latitude,
            metres,
        } => Some(json!(format!("circle({longitude},{latitude},{metres})"))),
        Region::Polygon(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// A publication: `{"seq", "topic", "time", "expires", "x", "y", "area", "record"}`. A payload that
/// is no JSON object is in `text`, or in `base64` if it is not UTF-8.
pub(super) fn message(of: &Notification) -> Vec<u8> {
    let mut head = json!({
        "seq": of.seq,
        "topic": of.topic.to_string(),
        "time": of.time,
    });
    if let Some(head) = head.as_object_mut() {
        if let Some(expires) = of.expires {
            head.insert("expires".to_string(), json!(expires));
        }
        match &of.place {
            Place::Point {
                longitude,
                latitude,
            } => {
                head.insert("x".to_string(), json!(longitude));
                head.insert("y".to_string(), json!(latitude));
            }
            Place::Region(area) => {
                head.extend(region(area).map(|area| ("area".to_string(), area)));
            }
            _ => {}
        }
        if object(&of.body).is_none() {
            let (name, text) = match str::from_utf8(&of.body) {
                Ok(text) => ("text", text.to_string()),
                Err(_) => ("base64", STANDARD.encode(&of.body)),
            };
            head.insert(name.to_string(), json!(text));
        }
    }
    let mut out = head.to_string().into_bytes();
    if let Some(object) = object(&of.body) {
        // In place of the closing brace.
        out.pop();
        out.extend_from_slice(b",\"record\":");
        push_json(&mut out, object);
        out.push(b'}');
    }
    out
}

#[cfg(test)]
mod tests {
    use pubsub::{Broker, Config, PubSub, Publication, Subscription, Time};

    use super::*;

    #[test]
    fn payloads_are_records_texts_or_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let db = PubSub::create_or_open(dir.path(), esker::Options::default()).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        let payloads: [(&[u8], Value); 6] = [
            (b" {\"a\":\n1} ", json!({"record": {"a": 1}})),
            (b"[1]", json!({"text": "[1]"})),
            (b"{\"a\"", json!({"text": "{\"a\""})),
            (b"one\r\ntwo", json!({"text": "one\r\ntwo"})),
            (b"", json!({"text": ""})),
            (b"\xff\x00", json!({"base64": "/wA="})),
        ];
        for (at, (payload, wanted)) in payloads.into_iter().enumerate() {
            let topic = format!("t/{at}").parse().unwrap();
            let published = Publication::new(topic, payload).at_point(1.5, 2.0);
            broker.publish(&published).unwrap();
            let filter = format!("t/{at}").parse().unwrap();
            let found = broker.query(&Subscription::to(filter).from(Time::MIN));
            let text = message(&found.unwrap()[0]);
            assert!(!text.contains(&b'\n') && !text.contains(&b'\r'));
            let value: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(
                (&value["x"], &value["topic"]),
                (&json!(1.5), &json!(format!("t/{at}")))
            );
            for (name, wanted) in wanted.as_object().unwrap() {
                assert_eq!(&value[name], wanted);
            }
        }
    }
}
