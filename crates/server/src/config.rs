//! The settings of a server: those of a file in TOML, and those of the command line, which prevail.
//!
//! ```toml
//! listen = "0.0.0.0:7700"
//! mqtt = "0.0.0.0:1883"
//! mqtt_tls = "0.0.0.0:8883"
//! mqtt_websocket = true     # at /mqtt of the HTTP address
//!
//! [tls]
//! certificate = "/etc/esker/server.pem"
//! key = "/etc/esker/server.key"
//!
//! [limits]
//! body = "64M"
//! query_time = "30s"
//!
//! [mqtt_limits]
//! keep = "1h"               # publications without an expiry of their own
//!
//! [[tokens]]
//! name = "collector"
//! sha256 = "..."            # made by `esker token`
//! role = "write"
//! datasets = ["visits", "tmp-*"]
//! topics = ["traffic"]
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker::units::{parse_duration, parse_size};
use serde::{Deserialize, Deserializer};

use crate::access::{Role, TokenSettings};

/// The settings of a server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The store's folder.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The memory budget of the store, in bytes; 128 MiB without it.
    #[serde(deserialize_with = "some_size")]
    pub memory: Option<usize>,
    /// Tables are compressed; they are unless this is false.
    pub compress: bool,
    /// Tables are read through maps of their files: see [`Options::mapped_reads`]. An I/O error of
    /// such a file ends the server.
    ///
    /// [`Options::mapped_reads`]: esker::Options::mapped_reads
    pub mapped_reads: bool,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// Where MQTT is served.
    pub mqtt: Option<SocketAddr>,
    /// Where MQTT is served over TLS, with the certificate of [`Config::tls`].
    pub mqtt_tls: Option<SocketAddr>,
    /// MQTT is also served as a WebSocket, at `/mqtt` of the address of HTTP.
    pub mqtt_websocket: bool,
    /// Limits of MQTT, and how long publications are kept.
    pub mqtt_limits: MqttLimits,
    /// The certificate and its key; connections are not encrypted without them.
    pub tls: Option<Tls>,
    /// Where backups are made; they are refused without it.
    pub backups: Option<PathBuf>,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// Pages of other origins that may use the server; none by default.
    pub cors: Cors,
    /// How the server logs.
    pub log: Log,
    /// The callers of HTTP, by their bearer tokens.
    pub tokens: Vec<TokenSettings>,
    /// The callers of MQTT, by user and password.
    pub users: Vec<UserSettings>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            dir: PathBuf::new(),
            memory: None,
            compress: true,
            mapped_reads: false,
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            mqtt: None,
            mqtt_tls: None,
            mqtt_websocket: false,
            mqtt_limits: MqttLimits::default(),
            tls: None,
            backups: None,
            limits: Limits::default(),
            cors: Cors::default(),
            log: Log::default(),
            tokens: Vec::new(),
            users: Vec::new(),
        }
    }
}

/// A certificate and its private key, both in PEM. They are read again when they change.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The file of the certificate, followed by those that signed it.
    pub certificate: PathBuf,
    /// The file of the private key.
    pub key: PathBuf,
}

/// Limits of requests and connections.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The largest body of a request, in bytes; one that is streamed has no limit but those of its
    /// lines.
    #[serde(deserialize_with = "size")]
    pub body: usize,
    /// The largest line of records that are streamed, in bytes.
    #[serde(deserialize_with = "size")]
    pub line: usize,
    /// The largest headers of a request together, in bytes; at least 8 KiB.
    #[serde(deserialize_with = "size")]
    pub headers: usize,
    /// How long a query may take.
    #[serde(deserialize_with = "duration")]
    pub query_time: Duration,
    /// The most records of a page.
    pub rows: usize,
    /// The most connections at the same time.
    pub connections: usize,
    /// The most subscriptions of a caller at the same time.
    pub subscriptions: usize,
    /// The most requests of a client address in a second; 0 is no limit.
    pub requests_per_second: u32,
    /// The most requests with the tokens of one name in a second; 0 is no limit. Behind a proxy
    /// all clients have its address.
    pub token_requests_per_second: u32,
    /// How long a client may take for a request's headers, and be silent in the middle of a
    /// request.
    #[serde(deserialize_with = "duration")]
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 64 << 20,
            line: 16 << 20,
            headers: 64 << 10,
            query_time: Duration::from_secs(60),
            rows: 10_000,
            connections: 20_000,
            subscriptions: 10_000,
            requests_per_second: 0,
            token_requests_per_second: 0,
            idle: Duration::from_secs(30),
        }
    }
}

/// Limits of MQTT.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MqttLimits {
    /// How long a publication is kept whose publisher does not say it (Message Expiry Interval):
    /// for so long a session without a connection can still receive it.
    #[serde(deserialize_with = "duration")]
    pub keep: Duration,
    /// False: publications of QoS 0 that are neither retained nor have an expiry are given to the
    /// connected subscribers, and stored only if one of these reads from the store.
    pub store_qos0: bool,
    /// The largest packet, in bytes; at most 256 MiB, the protocol's limit.
    #[serde(deserialize_with = "size")]
    pub packet: usize,
    /// The most packets that are sent to a client before it acknowledges one.
    pub in_flight: u16,
    /// How long a session outlives its connection at most.
    #[serde(deserialize_with = "duration")]
    pub session_expiry: Duration,
    /// The most sessions, with a connection or without.
    pub sessions: usize,
}

impl Default for MqttLimits {
    fn default() -> MqttLimits {
        MqttLimits {
            keep: Duration::from_secs(24 * 60 * 60),
            store_qos0: true,
            packet: 1 << 20,
            in_flight: 64,
            session_expiry: Duration::from_secs(7 * 24 * 60 * 60),
            sessions: 100_000,
        }
    }
}

impl MqttLimits {
    /// The largest packet, as the protocol has it.
    pub(crate) fn packet_size(&self) -> u32 {
        const MOST: u32 = 256 << 20;
        u32::try_from(self.packet).unwrap_or(MOST).clamp(1024, MOST)
    }

    /// The longest expiry of a session, in seconds; `u32::MAX`, for ever, is not among them.
    pub(crate) fn session_expiry_seconds(&self) -> u32 {
        let seconds = u32::try_from(self.session_expiry.as_secs()).unwrap_or(u32::MAX);
        seconds.min(u32::MAX - 1)
    }
}

/// Pages of other origins.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cors {
    /// The origins whose pages may use the server: `https://example.org`.
    pub origins: Vec<String>,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How the server logs, on standard error.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The form of its lines.
    pub format: LogFormat,
    /// Each request is logged, too.
    pub requests: bool,
}

/// A user of MQTT, with its rights as in [`crate::Grant`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSettings {
    /// The name of the user.
    pub name: String,
    /// The argon2 hash of the password (`esker token --user`).
    pub password: String,
    /// What it may do.
    pub role: Role,
    /// The datasets.
    #[serde(default)]
    pub datasets: Option<Vec<String>>,
    /// The topics.
    #[serde(default)]
    pub topics: Option<Vec<String>>,
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    parse_size(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn some_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    size(deserializer).map(Some)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

impl Config {
    /// The settings of a file.
    ///
    /// # Errors
    /// A sentence with the file, if it cannot be read; with the line, if it is not valid.
    pub fn read(path: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
        Config::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// The settings of a text.
    ///
    /// # Errors
    /// A sentence with the line.
    pub fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// True if MQTT is served, in whatever way.
    pub fn has_mqtt(&self) -> bool {
        self.mqtt.is_some() || self.mqtt_tls.is_some() || self.mqtt_websocket
    }

    /// True if HTTP needs a token.
    pub fn needs_token(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// True if MQTT needs a user's password or a token.
    pub fn needs_user(&self) -> bool {
        !self.users.is_empty() || self.needs_token()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_typos_are_refused() {
        let text = r#"
            listen = "0.0.0.0:80"
            [limits]
            body = "1M"
            query_time = "1m"
            [[tokens]]
            name = "one"
            sha256 = "00"
            role = "write"
            datasets = ["visits"]
        "#;
        let config = Config::parse(text).unwrap();
        assert_eq!(config.limits.body, 1 << 20);
        assert_eq!(config.limits.query_time, Duration::from_secs(60));
        assert_eq!(config.limits.rows, Limits::default().rows);
        let token = &config.tokens[0];
        assert_eq!((token.role, token.sha256.as_str()), (Role::Write, "00"));
        assert!(Config::parse("lisen = \"0.0.0.0:80\"").is_err());
        assert!(Config::parse("[limits]\nbody = \"1Q\"").is_err());
        let typo = "[[tokens]]\nname = \"a\"\nsha256 = \"00\"\nrole = \"read\"\ndataset = [\"x\"]";
        assert!(Config::parse(typo).is_err());
    }
}
