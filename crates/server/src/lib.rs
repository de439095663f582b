//! An Esker store over HTTP and MQTT: what `esker serve` runs.
//!
//! [`Server::start`] opens a store and serves it until [`Server::stop`]; [`Config`] has its
//! settings. The design is in `crates/server/DESIGN.md`, the guide for users in `docs/server.md`.

// The layers of these modules: `../layers.txt`.

mod access;
mod config;
mod connections;
mod dashboard;
mod engine;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gets;
mod http;
mod jobs;
mod live;
mod metrics;
mod mqtt;
mod pages;
mod problem;
mod rates;
mod run;
mod serve;
mod tls;

pub use access::{Grant, Role, TokenSettings, hash_of};
pub use config::{Config, Cors, Limits, Log, LogFormat, MqttLimits, Tls, UserSettings};
pub use mqtt::password_hash;
pub use run::{Ends, RunError, log, run, run_until};
pub use serve::{Server, StartError};
