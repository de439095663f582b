//! What the server measures, in Prometheus' text form: its requests and the store (`server`), and
//! MQTT (`mqtt`).

mod mqtt;
mod server;

pub(crate) use mqtt::{Carried, Dropped, Mqtt, Sampled};
pub(crate) use server::{Calls, InFlight, Metrics};
