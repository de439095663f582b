//! What clients send by MQTT, and what is stored of them, under any bytes.

use super::filter::{Filter, check_topic};
use super::kept::StoredSession;
use super::message::Meta;
use super::outgoing::Outgoing;
use super::packet::{Decoder, Packet};
use super::router::matches;
use super::version::Version;

/// The largest packet, in bytes.
const MOST: u32 = 64 << 10;

/// Packets of a connection: the first byte chooses the version, and where the rest is cut in two.
/// Returns the number of packets. However bytes arrive, they are the same packets.
pub fn packets(data: &[u8]) -> usize {
    let Some((choice, data)) = data.split_first() else {
        return 0;
    };
    let version = match choice % 3 {
        0 => None,
        1 => Some(Version::V3),
        _ => Some(Version::V5),
    };
    let cut = usize::from(choice / 3) * data.len() / 85;
    let (first, second) = data.split_at(cut);
    let whole = read(version, &[data]);
    assert_eq!(whole, read(version, &[first, second]), "cut at {cut}");
    whole.len()
}

/// The packets in parts of bytes, as texts; the last one may be the error.
fn read(version: Option<Version>, parts: &[&[u8]]) -> Vec<String> {
    let mut decoder = Decoder::new(MOST);
    if let Some(version) = version {
        decoder.connected(version, MOST);
    }
    let mut found = Vec::new();
    for part in parts {
        let mut data = *part;
        loop {
            match decoder.next(&mut data) {
                Ok(Some(packet)) => {
                    if let Packet::Connect(connect) = &packet {
                        decoder.connected(connect.version, MOST);
                    }
                    found.push(format!("{packet:?}"));
                }
                Ok(None) => break,
                Err(refusal) => {
                    found.push(format!("{refusal:?}"));
                    return found;
                }
            }
        }
    }
    found
}

/// A topic filter and a topic, one a line. Returns true if both are valid.
pub fn filters(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let (filter, topic) = text.split_once('\n').unwrap_or((text, "a/b"));
    let parsed = Filter::parse(filter);
    let (Ok(filter), Ok(())) = (parsed, check_topic(topic)) else {
        return false;
    };
    let _ = filter.topics();
    assert!(filter.text.starts_with(filter.fixed()));
    if matches(&filter.text, topic) {
        let fixed = filter.fixed();
        let rest = topic.strip_prefix(fixed);
        let is_below = rest.is_some_and(|rest| {
            rest.is_empty() || fixed.is_empty() || rest.starts_with('/') || fixed.ends_with('/')
        });
        assert!(is_below, "{filter:?} matches {topic:?}");
    }
    true
}

/// The record of a session, and the tag of a publication. Returns true if they are a session.
pub fn stored(data: &[u8]) -> bool {
    let meta = Meta::decode(data);
    assert_eq!(Meta::decode(&meta.encode()).encode(), meta.encode());
    let Ok(session) = serde_json::from_slice::<StoredSession>(data) else {
        return false;
    };
    if let Some(will) = session.will {
        let _ = Outgoing::from(will.publication);
    }
    for subscription in session.subscriptions {
        let _ = Filter::parse(&subscription.filter);
    }
    true
}
