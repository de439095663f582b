//! What MQTT keeps in the store beside publications: sessions and retained messages. All of these
//! functions call the store.

use std::ops::Bound;
use std::time::{Duration, SystemTime};

use esker::{Database, Dataset, DatasetDef, Durability};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::message::{Clock, Message, Meta};
use super::outgoing::Outgoing;
use crate::access::{RETAINED, SESSIONS};
use crate::problem::Problem;

/// Bytes in a record: as text if they are one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Bytes {
    Text(String),
    Hex(String),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        match String::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text),
            Err(error) => {
                let digits = error
                    .as_bytes()
                    .iter()
                    .flat_map(|byte| [byte >> 4, byte & 15]);
                let hex = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
                Bytes::Hex(hex.collect())
            }
        }
    }
}

impl Bytes {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Bytes::Text(text) => text.into_bytes(),
            Bytes::Hex(hex) => {
                let (pairs, _) = hex.as_bytes().as_chunks::<2>();
                let byte = |pair: &[u8; 2]| {
                    let text = std::str::from_utf8(pair).ok()?;
                    u8::from_str_radix(text, 16).ok()
                };
                pairs.iter().filter_map(byte).collect()
            }
        }
    }
}

/// A session, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredSession {
    pub(super) client: String,
    /// The user whose session it is.
    pub(super) user: String,
    /// How long it outlives its connection, in seconds; `u32::MAX` is for ever.
    pub(super) expiry: u32,
    /// When its connection ended, in milliseconds since 1970; absent while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) will: Option<StoredWill>,
    /// The number of its last subscription.
    pub(super) number: u32,
    /// Its last packet identifier.
    pub(super) id: u16,
    pub(super) subscriptions: Vec<StoredSubscription>,
    /// Packets without acknowledgement, in the order in which they were sent.
    pub(super) packets: Vec<StoredPacket>,
}

/// The will of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredWill {
    /// Seconds.
    pub(super) delay: u32,
    pub(super) publication: StoredPublication,
}

/// A publication that is still to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredPublication {
    topic: String,
    payload: Bytes,
    tag: Bytes,
    /// Seconds.
    lifetime: Option<u64>,
    place: Option<(f64, f64)>,
}

impl From<Outgoing> for StoredPublication {
    fn from(publication: Outgoing) -> StoredPublication {
        StoredPublication {
            tag: publication.meta.encode().into(),
            topic: publication.topic,
            payload: publication.payload.into(),
            lifetime: publication.lifetime.map(|long| long.as_secs()),
            place: publication.place,
        }
    }
}

impl From<StoredPublication> for Outgoing {
    fn from(stored: StoredPublication) -> Outgoing {
        Outgoing {
            topic: stored.topic,
            payload: stored.payload.into_bytes(),
            meta: Meta::decode(&stored.tag.into_bytes()),
            lifetime: stored.lifetime.map(Duration::from_secs),
            place: stored.place,
        }
    }
}

/// A subscription of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSubscription {
    pub(super) number: u32,
    /// As the client gave it.
    pub(super) filter: String,
    pub(super) qos: u8,
    #[serde(default)]
    pub(super) no_local: bool,
    #[serde(default)]
    pub(super) retain_as_published: bool,
    #[serde(default)]
    pub(super) identifier: Option<u32>,
    #[serde(default)]
    pub(super) conditions: Conditions,
    /// All matching publications up to this number were sent; of a shared subscription,
    /// acknowledged.
    pub(super) position: u64,
    /// Of a shared subscription: all that was sent has numbers up to this one.
    #[serde(default)]
    pub(super) sent: u64,
    /// The topic of the last retained message that was sent, if more are to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retained: Option<String>,
}

/// What a subscription asks for besides its topics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Conditions {
    /// Publications from this time of the broker on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<i64>,
    /// Publications up to this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<i64>,
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub(super) condition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) area: Option<String>,
}

/// A packet without acknowledgement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredPacket {
    pub(super) id: u16,
    /// The subscription.
    pub(super) of: u32,
    /// The publication.
    pub(super) seq: u64,
    /// The topic, if it was a retained message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retained: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredRetained {
    topic: String,
    payload: Bytes,
    tag: Bytes,
    seq: u64,
    time: i64,
    expires: Option<i64>,
}

/// The datasets.
pub(super) struct Kept {
    db: Database,
    sessions: Dataset<String>,
    retained: Dataset<String>,
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(json)
        .map_err(|error| Problem::internal(format!("a record of MQTT cannot be read: {error}")))
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

impl Kept {
    pub(super) fn open(db: Database) -> Result<Kept, Problem> {
        Ok(Kept {
            sessions: db.dataset_or_create(SESSIONS, DatasetDef::key("client"))?,
            retained: db.dataset_or_create(RETAINED, DatasetDef::key("topic"))?,
            db,
        })
    }

    /// The number of the last write of the store.
    pub(super) fn position(&self) -> u64 {
        self.db.position().seq
    }

    /// Makes all earlier writes durable.
    pub(super) fn sync(&self) -> Result<(), Problem> {
        Ok(self.db.sync()?)
    }

    pub(super) fn session(&self, client: &str) -> Result<Option<StoredSession>, Problem> {
        let record = self.sessions.get(client)?;
        record.map(|record| read(record.json())).transpose()
    }

    pub(super) fn put_session(
        &self,
        session: &StoredSession,
        durability: Durability,
    ) -> Result<(), Problem> {
        let mut batch = self.sessions.batch();
        batch.durability(durability);
        batch.put(session)?;
        Ok(batch.commit()?)
    }

    pub(super) fn delete_session(&self, client: &str) -> Result<(), Problem> {
        let mut batch = self.sessions.batch();
        batch.delete(client)?;
        Ok(batch.commit()?)
    }

    pub(super) fn each_session(&self, mut visit: impl FnMut(StoredSession)) -> Result<(), Problem> {
        for record in self.sessions.scan(..) {
            visit(read(record?.json())?);
        }
        Ok(())
    }

    /// Retains a message, without a sync, or removes the one of its topic if it is empty.
    pub(super) fn retain(&self, message: &Message) -> Result<(), Problem> {
        let mut batch = self.retained.batch();
        batch.durability(Durability::Os);
        if message.payload.is_empty() {
            batch.delete(message.topic.as_str())?;
        } else {
            batch.put(&StoredRetained {
                topic: message.topic.clone(),
                payload: message.payload.clone().into(),
                tag: message.meta.encode().into(),
                seq: message.seq,
                time: message.time,
                expires: message.expires,
            })?;
        }
        Ok(batch.commit()?)
    }

    /// The retained message of a topic.
    pub(super) fn retained(&self, topic: &str) -> Result<Option<Message>, Problem> {
        let record = self.retained.get(topic)?;
        record
            .map(|record| retained_message(record.json()))
            .transpose()
    }

    /// Retained messages below a topic, after the one of the topic `after`: at most `most` that
    /// `wants` takes, of at most `looks`. Also says after which topic to go on, if there are more.
    pub(super) fn retained_after(
        &self,
        top: &str,
        after: &str,
        (most, looks): (usize, usize),
        clock: Clock,
        wants: impl Fn(&str) -> bool,
    ) -> Result<(Vec<Message>, Option<String>), Problem> {
        let begin = match (after, top) {
            ("", "") => Bound::Unbounded,
            ("", top) => Bound::Included(top),
            (after, _) => Bound::Excluded(after),
        };
        let mut found = Vec::new();
        let mut bytes = 0;
        let scan = self.retained.scan((begin, Bound::<&str>::Unbounded));
        for (looked, record) in scan.enumerate() {
            let message = retained_message(record?.json())?;
            if !message.topic.starts_with(top) {
                return Ok((found, None));
            }
            let topic = message.topic.clone();
            if !message.is_over(clock) && wants(&topic) {
                bytes += message.size();
                found.push(message);
            }
            if found.len() >= most || bytes > 1 << 20 || looked >= looks {
                return Ok((found, Some(topic)));
            }
        }
        Ok((found, None))
    }

    /// Removes retained messages that have expired. Returns how many are left.
    pub(super) fn sweep_retained(&self, clock: Clock) -> Result<u64, Problem> {
        let mut left = 0;
        let mut batch = self.retained.batch();
        batch.durability(Durability::Os);
        for record in self.retained.scan(..) {
            let message = retained_message(record?.json())?;
            if message.is_over(clock) {
                batch.delete(message.topic.as_str())?;
            } else {
                left += 1;
            }
            if batch.len() >= 1000 {
                batch.commit()?;
                batch = self.retained.batch();
                batch.durability(Durability::Os);
            }
        }
        batch.commit()?;
        Ok(left)
    }
}

fn retained_message(json: &[u8]) -> Result<Message, Problem> {
    let stored: StoredRetained = read(json)?;
    Ok(Message {
        seq: stored.seq,
        topic: stored.topic,
        payload: stored.payload.into_bytes(),
        time: stored.time,
        expires: stored.expires,
        meta: Meta::decode(&stored.tag.into_bytes()),
        may_be_duplicate: false,
        is_retained: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_were_written() {
        for bytes in [&b""[..], b"text", b"\xff\x00\xab"] {
            let stored = serde_json::to_vec(&Bytes::from(bytes.to_vec())).unwrap();
            let read: Bytes = serde_json::from_slice(&stored).unwrap();
            assert_eq!(read.into_bytes(), bytes);
        }
    }
}
