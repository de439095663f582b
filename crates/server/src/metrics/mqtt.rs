//! What MQTT measures. Counters are kept as packets pass; what can be looked up is sampled when
//! measurements are asked for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// What carries a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    Tcp,
    Tls,
    Websocket,
}

impl Carried {
    fn name(self) -> &'static str {
        match self {
            Carried::Tcp => "tcp",
            Carried::Tls => "tls",
            Carried::Websocket => "websocket",
        }
    }
}

/// Why a publication was not sent to a client that subscribed to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It expired before its turn.
    Expired,
    /// The client takes no packet of its size.
    TooLarge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfConnection {
    version: &'static str,
    transport: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPublication {
    qos: u8,
}

type Amount = Gauge<u64, AtomicU64>;

fn set(gauge: &Amount, value: u64) {
    gauge.inner().store(value, Ordering::Relaxed);
}

/// What is looked up when measurements are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sampled {
    pub(crate) sessions: u64,
    pub(crate) subscriptions: u64,
    /// Subscriptions that are read from the store.
    pub(crate) behind: u64,
    /// Publications in queues, and their bytes.
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
}

type Sample = Box<dyn Fn() -> Option<Sampled> + Send + Sync>;

/// What MQTT measures while it is served.
#[derive(Default)]
pub(crate) struct Mqtt {
    connections: Family<OfConnection, Gauge>,
    /// Connections beyond the limit.
    pub(crate) beyond: Counter,
    refused: Family<OfReason, Counter>,
    ended: Family<OfReason, Counter>,
    received: Family<OfPublication, Counter>,
    sent: Family<OfPublication, Counter>,
    dropped: Family<OfReason, Counter>,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    retained: Amount,
    sessions: Amount,
    subscriptions: Amount,
    behind: Amount,
    queued: Amount,
    queued_bytes: Amount,
    sample: OnceLock<Sample>,
}

/// A connection, counted until it is dropped.
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Mqtt {
    /// How to look things up.
    pub(crate) fn sample_with(&self, sample: Sample) {
        // It is set once: there is one server of MQTT.
        let _ = self.sample.set(sample);
    }

    pub(crate) fn opened(&self, version: &'static str, carried: Carried) -> OpenConnection {
        let of = OfConnection {
            version,
            transport: carried.name(),
        };
        let gauge = self.connections.get_or_create(&of).clone();
        gauge.inc();
        OpenConnection(gauge)
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&OfReason { reason }).inc();
    }

    pub(crate) fn ended(&self, reason: &'static str) {
        self.ended.get_or_create(&OfReason { reason }).inc();
    }

    /// Publications that clients sent.
    pub(crate) fn received(&self, qos: u8, publications: u64) {
        let of = OfPublication { qos };
        self.received.get_or_create(&of).inc_by(publications);
    }

    /// Publications that are sent to clients.
    pub(crate) fn sent(&self, qos: u8, publications: u64) {
        let of = OfPublication { qos };
        self.sent.get_or_create(&of).inc_by(publications);
    }

    pub(crate) fn dropped(&self, dropped: Dropped) {
        let reason = match dropped {
            Dropped::Expired => "expired",
            Dropped::TooLarge => "too-large",
        };
        self.dropped.get_or_create(&OfReason { reason }).inc();
    }

    pub(crate) fn retained(&self, messages: u64) {
        set(&self.retained, messages);
    }

    /// Looks up what is sampled.
    pub(super) fn refresh(&self) {
        let Some(sampled) = self.sample.get().and_then(|sample| sample()) else {
            return;
        };
        set(&self.sessions, sampled.sessions);
        set(&self.subscriptions, sampled.subscriptions);
        set(&self.behind, sampled.behind);
        set(&self.queued, sampled.queued);
        set(&self.queued_bytes, sampled.queued_bytes);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "mqtt_connections",
            "Open connections of MQTT",
            self.connections.clone(),
        );
        for (name, help, counter) in [
            (
                "mqtt_connects_refused",
                "Connections of MQTT that were refused, by reason",
                &self.refused,
            ),
            (
                "mqtt_connections_ended",
                "Connections of MQTT that have ended, by reason",
                &self.ended,
            ),
            (
                "mqtt_publications_dropped",
                "Publications that were not sent to a subscriber, by reason",
                &self.dropped,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "mqtt_connections_beyond_limit",
            "Connections of MQTT closed because there were too many",
            self.beyond.clone(),
        );
        registry.register(
            "mqtt_publications_received",
            "Publications that clients of MQTT sent",
            self.received.clone(),
        );
        registry.register(
            "mqtt_publications_sent",
            "Publications that were sent to clients of MQTT",
            self.sent.clone(),
        );
        for (name, help, counter) in [
            (
                "mqtt_received",
                "Bytes of packets from clients of MQTT",
                &self.received_bytes,
            ),
            (
                "mqtt_sent",
                "Bytes of packets to clients of MQTT",
                &self.sent_bytes,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        for (name, help, gauge) in [
            (
                "mqtt_retained_messages",
                "Retained messages when they were last swept, every five minutes",
                &self.retained,
            ),
            (
                "mqtt_sessions",
                "Sessions of MQTT, with a connection or without",
                &self.sessions,
            ),
            (
                "mqtt_subscriptions",
                "Subscriptions of connected clients; a shared one counts once",
                &self.subscriptions,
            ),
            (
                "mqtt_subscriptions_behind",
                "Subscriptions whose publications are read from the store",
                &self.behind,
            ),
            (
                "mqtt_queued_publications",
                "Publications in the queues of subscriptions",
                &self.queued,
            ),
            (
                "mqtt_queued_bytes",
                "Bytes of publications in the queues of subscriptions",
                &self.queued_bytes,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
    }
}
