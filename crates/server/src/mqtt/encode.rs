//! Packets that the server sends.

use super::message::{Clock, Message};
use super::reason::{Reason, Refusal};
use super::version::Version;

const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xb0;
const PINGRESP: u8 = 0xd0;
const DISCONNECT: u8 = 0xe0;

/// Identifiers of properties.
const MESSAGE_EXPIRY: u8 = 0x02;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0b;
const SESSION_EXPIRY: u8 = 0x11;
const ASSIGNED_CLIENT: u8 = 0x12;
const REASON_STRING: u8 = 0x1f;
const RECEIVE_MAXIMUM: u8 = 0x21;
const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
const MAXIMUM_QOS: u8 = 0x24;
const MAXIMUM_PACKET_SIZE: u8 = 0x27;

/// The longest reason string.
const LONGEST_REASON: usize = 1000;

/// Appends a number of variable length.
fn put_varint(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Texts are those of clients, or short.
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(text.as_bytes().get(..usize::from(len)).unwrap_or_default());
}

fn put_properties(body: &mut Vec<u8>, properties: &[u8]) {
    put_varint(body, properties.len());
    body.extend_from_slice(properties);
}

/// The form of packets for one client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoder {
    pub(super) version: Version,
    /// The largest packet that the client takes.
    pub(super) most: u32,
    pub(super) wants_reasons: bool,
}

/// What CONNACK says besides its reason.
pub(super) struct Accepted<'a> {
    pub(super) is_session_present: bool,
    pub(super) assigned_client: Option<&'a str>,
    pub(super) session_expiry: Option<u32>,
    pub(super) receive_maximum: u16,
    pub(super) topic_alias_maximum: u16,
    pub(super) maximum_packet_size: u32,
}

/// How a publication is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivery {
    pub(super) qos: u8,
    /// 0 with QoS 0.
    pub(super) id: u16,
    pub(super) dup: bool,
    pub(super) retain: bool,
    pub(super) identifier: Option<u32>,
}

impl Encoder {
    /// Appends a packet. Returns false, and appends nothing, if the client takes none of this size.
    fn put(&self, out: &mut Vec<u8>, header: u8, body: &[u8]) -> bool {
        let begin = out.len();
        out.push(header);
        put_varint(out, body.len());
        let whole = out.len() - begin + body.len();
        if whole > usize::try_from(self.most).unwrap_or(usize::MAX) {
            out.truncate(begin);
            return false;
        }
        out.extend_from_slice(body);
        true
    }

    /// True if the client takes the answer to its CONNECT.
    pub(super) fn can_accept(&self, accepted: &Accepted<'_>) -> bool {
        self.accept(&mut Vec::new(), accepted)
    }

    fn reason_property(&self, why: &str, room: usize) -> Vec<u8> {
        let mut property = Vec::new();
        let len = why.len().min(LONGEST_REASON);
        let fits = len + 16
            < usize::try_from(self.most)
                .unwrap_or(usize::MAX)
                .saturating_sub(room);
        if self.wants_reasons && !why.is_empty() && fits {
            property.push(REASON_STRING);
            let end = (0..=len).rev().find(|end| why.is_char_boundary(*end));
            put_text(&mut property, why.get(..end.unwrap_or(0)).unwrap_or(""));
        }
        property
    }

    /// CONNACK. Returns false, and appends nothing, if it is too large for the client.
    pub(super) fn accept(&self, out: &mut Vec<u8>, accepted: &Accepted<'_>) -> bool {
        let mut body = vec![u8::from(accepted.is_session_present), 0];
        if self.version == Version::V5 {
            let mut properties = vec![MAXIMUM_QOS, 1, RECEIVE_MAXIMUM];
            properties.extend(accepted.receive_maximum.to_be_bytes());
            properties.push(TOPIC_ALIAS_MAXIMUM);
            properties.extend(accepted.topic_alias_maximum.to_be_bytes());
            properties.push(MAXIMUM_PACKET_SIZE);
            properties.extend(accepted.maximum_packet_size.to_be_bytes());
            if let Some(seconds) = accepted.session_expiry {
                properties.push(SESSION_EXPIRY);
                properties.extend(seconds.to_be_bytes());
            }
            if let Some(client) = accepted.assigned_client {
                properties.push(ASSIGNED_CLIENT);
                put_text(&mut properties, client);
            }
            put_properties(&mut body, &properties);
        }
        self.put(out, CONNACK, &body)
    }

    /// CONNACK of a connection that is refused.
    pub(super) fn refuse_connect(&self, out: &mut Vec<u8>, refusal: &Refusal) {
        let body = match self.version {
            Version::V3 => vec![0, refusal.reason.return_code()],
            Version::V5 => {
                let mut body = vec![0, refusal.reason.code()];
                put_properties(&mut body, &self.reason_property(&refusal.why, 4));
                body
            }
        };
        self.put(out, CONNACK, &body);
    }

    /// DISCONNECT; MQTT 3.1.1 has none of servers.
    pub(super) fn disconnect(&self, out: &mut Vec<u8>, refusal: &Refusal) {
        if self.version == Version::V5 {
            let mut body = vec![refusal.reason.code()];
            put_properties(&mut body, &self.reason_property(&refusal.why, 4));
            self.put(out, DISCONNECT, &body);
        }
    }

    pub(super) fn puback(&self, out: &mut Vec<u8>, id: u16, reason: Reason, why: &str) {
        let mut body = id.to_be_bytes().to_vec();
        if self.version == Version::V5 && reason != Reason::Success {
            body.push(reason.code());
            put_properties(&mut body, &self.reason_property(why, 8));
        }
        self.put(out, PUBACK, &body);
    }

    /// SUBACK; `why` belongs to the first entry that is refused.
    pub(super) fn suback(&self, out: &mut Vec<u8>, id: u16, reasons: &[Reason], why: &str) {
        let mut body = id.to_be_bytes().to_vec();
        if self.version == Version::V5 {
            put_properties(&mut body, &self.reason_property(why, 8 + reasons.len()));
        }
        body.extend(reasons.iter().map(|reason| match self.version {
            Version::V3 if reason.code() >= 0x80 => 0x80,
            _ => reason.code(),
        }));
        self.put(out, SUBACK, &body);
    }

    pub(super) fn unsuback(&self, out: &mut Vec<u8>, id: u16, reasons: &[Reason]) {
        let mut body = id.to_be_bytes().to_vec();
        if self.version == Version::V5 {
            put_properties(&mut body, &[]);
            body.extend(reasons.iter().map(|reason| reason.code()));
        }
        self.put(out, UNSUBACK, &body);
    }

    pub(super) fn pingresp(&self, out: &mut Vec<u8>) {
        self.put(out, PINGRESP, &[]);
    }

    /// PUBLISH. Returns false, and appends nothing, if the client takes no packet of this size.
    pub(super) fn publish(
        &self,
        out: &mut Vec<u8>,
        message: &Message,
        delivery: Delivery,
        clock: Clock,
    ) -> bool {
        let mut head = Vec::new();
        put_text(&mut head, &message.topic);
        if delivery.qos > 0 {
            head.extend(delivery.id.to_be_bytes());
        }
        if self.version == Version::V5 {
            let mut own = Vec::new();
            if let Some(seconds) = message.seconds_left(clock) {
                own.push(MESSAGE_EXPIRY);
                own.extend(seconds.to_be_bytes());
            }
            if let Some(identifier) = delivery.identifier {
                own.push(SUBSCRIPTION_IDENTIFIER);
                put_varint(&mut own, usize::try_from(identifier).unwrap_or(0));
            }
            put_varint(&mut head, own.len() + message.meta.properties.len());
            head.extend_from_slice(&own);
            head.extend_from_slice(&message.meta.properties);
        }
        let flags = [(delivery.dup, 8), (delivery.retain, 1)];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let header = set.fold(PUBLISH | delivery.qos << 1, |all, (_, flag)| all | flag);
        let len = head.len() + message.payload.len();
        let begin = out.len();
        out.push(header);
        put_varint(out, len);
        let whole = out.len() - begin + len;
        if len > 0x0fff_ffff || whole > usize::try_from(self.most).unwrap_or(usize::MAX) {
            out.truncate(begin);
            return false;
        }
        out.extend_from_slice(&head);
        out.extend_from_slice(&message.payload);
        true
    }
}
