//! What connections may use.

use std::time::Duration;

/// The limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most bytes of one read or write. Announced to clients; a larger request fails, and a
    /// write of more than 32 MiB above it ends the connection. At least 64 KiB, and at most half of
    /// `in_flight_bytes`: values outside are moved to these bounds.
    pub request_bytes: u32,
    /// The most requests of a connection that are begun and not yet answered. Others wait in the
    /// socket.
    pub in_flight: usize,
    /// The most bytes of data that all connections hold, from before a request is read until its
    /// reply is written. Others wait in the socket. One connection holds at most half of them.
    pub in_flight_bytes: usize,
    /// How long a connection without requests is kept. `None` is for ever: a kernel with a mounted
    /// volume may be silent for hours. A peer that has vanished is found by the probes of TCP
    /// (about two minutes).
    pub idle: Option<Duration>,
    /// How long a client may take from its connection to the end of the handshake, TLS included.
    pub handshake: Duration,
    /// How long a client may take to send the data of a request or to take a reply, in addition to
    /// a second for each 256 KiB. It bounds how long a client that stalls keeps its part of
    /// `in_flight_bytes`.
    pub stall: Duration,
    /// The most connections; further ones are closed at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request_bytes: 32 << 20,
            in_flight: 128,
            in_flight_bytes: 64 << 20,
            idle: None,
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            connections: 256,
        }
    }
}

/// The least `request_bytes`: what each client may ask for in one piece.
const LEAST_REQUEST: u32 = 64 << 10;

impl Limits {
    /// The same limits with impossible values moved to the nearest possible ones.
    pub(super) fn possible(mut self) -> Limits {
        self.in_flight = self.in_flight.max(1);
        self.in_flight_bytes = self.in_flight_bytes.max(2 * LEAST_REQUEST as usize);
        let half = u32::try_from(self.in_flight_bytes / 2).unwrap_or(u32::MAX);
        self.request_bytes = self.request_bytes.clamp(LEAST_REQUEST, half);
        self
    }

    /// How long `bytes` may take in one direction.
    pub(super) fn patience(&self, bytes: usize) -> Duration {
        self.stall + Duration::from_secs(bytes as u64 / (256 << 10))
    }
}
