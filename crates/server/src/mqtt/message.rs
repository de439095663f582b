//! A publication on its way to clients, and what MQTT says beside its topic and its payload.

use std::sync::Arc;
use std::time::Duration;

use esker::Seq;
use pubsub::{Notification, Time};

/// What a publication has beside its topic, its payload and its lifetime. It is stored in the
/// publication's tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    /// The quality of service that it was published with.
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// True if the publisher has set its lifetime.
    pub(super) has_expiry: bool,
    /// A hash of the client that published it, for subscriptions without its own publications.
    pub(super) publisher: Option<u64>,
    /// Properties that are passed on, as MQTT 5 encodes them.
    pub(super) properties: Vec<u8>,
}

const QOS: u8 = 3;
const RETAIN: u8 = 4;
const EXPIRY: u8 = 8;
const PUBLISHER: u8 = 16;

impl Meta {
    /// Of a publication that did not come by MQTT.
    fn foreign() -> Meta {
        Meta {
            qos: 1,
            retain: false,
            has_expiry: true,
            publisher: None,
            properties: Vec::new(),
        }
    }

    /// The tag.
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags = [
            (self.retain, RETAIN),
            (self.has_expiry, EXPIRY),
            (self.publisher.is_some(), PUBLISHER),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let mut tag = vec![set.fold(self.qos & QOS, |all, (_, flag)| all | flag)];
        if let Some(publisher) = self.publisher {
            tag.extend_from_slice(&publisher.to_le_bytes());
        }
        tag.extend_from_slice(&self.properties);
        tag
    }

    /// Reads a tag. One that is not MQTT's counts as none.
    pub(super) fn decode(tag: &[u8]) -> Meta {
        Meta::read(tag).unwrap_or_else(Meta::foreign)
    }

    fn read(tag: &[u8]) -> Option<Meta> {
        let (flags, mut rest) = tag.split_first()?;
        if flags & !(QOS | RETAIN | EXPIRY | PUBLISHER) != 0 {
            return None;
        }
        let mut publisher = None;
        if flags & PUBLISHER != 0 {
            let (hash, properties) = rest.split_first_chunk()?;
            publisher = Some(u64::from_le_bytes(*hash));
            rest = properties;
        }
        Some(Meta {
            qos: flags & QOS,
            retain: flags & RETAIN != 0,
            has_expiry: flags & EXPIRY != 0,
            publisher,
            properties: rest.to_vec(),
        })
    }
}

/// A publication for clients.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) seq: Seq,
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) time: Time,
    pub(super) expires: Option<Time>,
    pub(super) meta: Meta,
    /// True if a client may have received it already.
    pub(super) may_be_duplicate: bool,
    /// True if it comes from the retained messages.
    pub(super) is_retained: bool,
}

impl Message {
    pub(super) fn of(notification: Notification) -> Message {
        Message {
            seq: notification.seq,
            topic: notification.topic.to_string(),
            time: notification.time,
            expires: notification.expires,
            meta: Meta::decode(&notification.tag),
            payload: notification.body,
            may_be_duplicate: false,
            is_retained: false,
        }
    }

    /// Bytes of memory, about.
    pub(super) fn size(&self) -> usize {
        size_of::<Message>() + self.topic.len() + self.payload.len() + self.meta.properties.len()
    }

    /// The seconds that it has left, if the publisher has set its lifetime.
    pub(super) fn seconds_left(&self, clock: Clock) -> Option<u32> {
        let expires = self.expires.filter(|_| self.meta.has_expiry)?;
        let left = expires.saturating_sub(clock.now).max(0);
        let seconds = left.saturating_add(clock.second - 1) / clock.second;
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// True if it has expired.
    pub(super) fn is_over(&self, clock: Clock) -> bool {
        self.expires.is_some_and(|expires| expires <= clock.now)
    }
}

/// The time of the broker, and its units in a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) now: Time,
    pub(super) second: Time,
}

impl Clock {
    pub(super) fn of(broker: &pubsub::Broker) -> Clock {
        Clock {
            now: broker.now(),
            second: Time::from(broker.config().resolution)
                .saturating_mul(1000)
                .max(1),
        }
    }

    /// The time after a while, which may be negative.
    pub(super) fn after(self, long: Duration) -> Time {
        self.now.saturating_add(self.ticks(long))
    }

    pub(super) fn before(self, long: Duration) -> Time {
        self.now.saturating_sub(self.ticks(long))
    }

    fn ticks(self, long: Duration) -> Time {
        let millis = i64::try_from(long.as_millis()).unwrap_or(i64::MAX);
        millis.saturating_mul(self.second / 1000)
    }
}

/// A publication that a source gives to a connection.
pub(super) type Shared = Arc<Message>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_were_written() {
        for publisher in [None, Some(7)] {
            let meta = Meta {
                qos: 1,
                retain: true,
                has_expiry: false,
                publisher,
                properties: b"props".to_vec(),
            };
            assert_eq!(Meta::decode(&meta.encode()), meta);
        }
        for foreign in [&b""[..], b"\xff", b"\x10abc"] {
            assert_eq!(Meta::decode(foreign), Meta::foreign());
        }
    }
}
