//! Packets of MQTT as bytes, and a client that sends and receives them.

use std::time::Instant;

use bytes::Buf;

use super::{Client, PATIENCE, connected};
use crate::common::Served;

pub(super) const PUBLISH: u8 = 0x30;
pub(super) const PUBACK: u8 = 0x40;
pub(super) const SUBACK: u8 = 0x90;

/// A packet with this first byte; its body is shorter than 128 bytes.
pub(super) fn packet(header: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = u8::try_from(body.len()).unwrap();
    assert!(len < 128);
    [&[header, len], &body[..]].concat()
}

pub(super) fn text(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).unwrap();
    [&len.to_be_bytes(), text.as_bytes()].concat()
}

/// CONNECT with these flags, properties, and what is behind the client identifier.
pub(super) fn connect(client: &str, flags: u8, properties: &[u8], rest: &[u8]) -> Vec<u8> {
    let len = [u8::try_from(properties.len()).unwrap()];
    let head = [&text("MQTT")[..], &[5, flags, 0, 0]].concat();
    packet(0x10, &[&head, &len, properties, &text(client), rest])
}

pub(super) fn subscribe(id: u8, filters: &[(&str, u8)]) -> Vec<u8> {
    let filters = filters
        .iter()
        .map(|(filter, options)| [&text(filter)[..], &[*options]].concat());
    packet(0x82, &[&[0, id, 0], &filters.collect::<Vec<_>>().concat()])
}

pub(super) fn unsubscribe(id: u8, filters: &[&str]) -> Vec<u8> {
    let filters: Vec<_> = filters.iter().map(|filter| text(filter)).collect();
    packet(0xa2, &[&[0, id, 0], &filters.concat()])
}

/// PUBLISH with QoS 1, and these further flags.
pub(super) fn publish(flags: u8, id: u8, topic: &str, payload: &str) -> Vec<u8> {
    let body = [&text(topic)[..], &[0, id, 0], payload.as_bytes()].concat();
    packet(PUBLISH | 2 | flags, &[&body])
}

/// A client that sends and receives bytes.
pub(super) struct Raw(Client);

impl Raw {
    pub(super) fn new(served: &Served) -> Raw {
        Raw(Client::over(Box::new(connected(served.mqtt()))))
    }

    /// A connected client with a session that outlives its connection if it says so.
    pub(super) fn open(served: &Served, client: &str, expiry: u8) -> Raw {
        let mut raw = Raw::new(served);
        raw.send(&connect(client, 0, &[0x11, 0, 0, 0, expiry], &[]));
        let answer = raw.packet();
        assert_eq!((answer[0], answer[3]), (0x20, 0), "{answer:x?}");
        raw
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.0.send_bytes(bytes);
    }

    fn whole(&self) -> Option<usize> {
        let mut len = 0;
        for (at, byte) in self.0.input.iter().skip(1).take(4).enumerate() {
            len |= usize::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                // No byte more than the number needs.
                assert!(at == 0 || *byte != 0, "{:x?}", self.0.input);
                let all = 2 + at + len;
                return (self.0.input.len() >= all).then_some(all);
            }
        }
        None
    }

    /// The next packet; `None` if the connection has ended.
    pub(super) fn try_packet(&mut self) -> Option<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(len) = self.whole() {
                let packet = self.0.input[..len].to_vec();
                self.0.input.advance(len);
                return Some(packet);
            }
            assert!(Instant::now() < until, "no packet comes");
            if !self.0.read() {
                return None;
            }
        }
    }

    pub(super) fn packet(&mut self) -> Vec<u8> {
        self.try_packet().expect("a packet")
    }

    /// Fails if anything comes before the answer to a ping.
    pub(super) fn nothing(&mut self) {
        self.send(&[0xc0, 0]);
        assert_eq!(self.packet(), [0xd0, 0]);
    }

    /// The reason of the DISCONNECT with which the connection ends.
    pub(super) fn ended_with(&mut self) -> u8 {
        let packet = self.packet();
        assert_eq!(packet[0], 0xe0, "{packet:x?}");
        assert_eq!(self.try_packet(), None);
        packet[2]
    }

    /// Publishes with QoS 1, and waits until it is stored.
    pub(super) fn publish(&mut self, topic: &str, payload: &str) {
        self.send(&publish(0, 1, topic, payload));
        assert_eq!(self.packet(), [PUBACK, 2, 0, 1]);
    }
}

/// The answer to a CONNECT, whose connection has to end.
pub(super) fn refused(served: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut raw = Raw::new(served);
    raw.send(bytes);
    let answer = raw.packet();
    assert_eq!((answer[0], answer[2]), (0x20, 0), "{answer:x?}");
    assert_eq!(raw.try_packet(), None);
    answer
}
