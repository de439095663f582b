//! Requests that concern a store and its datasets.

use std::ops::ControlFlow;
use std::time::Duration;

use esker::changes::ChangeConsumer;
use esker::{Error, Result};
use esker_client::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Runs a job to its end.
pub(super) fn job(client: &Client, path: &str, document: &impl Serialize) -> Result<Value> {
    let result = client.run_job(path, document, &mut |_, _| ControlFlow::Continue(()))?;
    Ok(result.unwrap_or_default())
}

/// The report of a job.
pub(super) fn report<T: DeserializeOwned>(result: Value) -> Result<T> {
    serde_json::from_value(result).map_err(|error| {
        Error::Unavailable(format!(
            "the report is not that of a server of this version: {error}"
        ))
    })
}

#[derive(Deserialize)]
struct Consumer {
    name: String,
    dataset: Option<String>,
    position: String,
    keeps_bytes: u64,
    lag_bytes: u64,
    unread_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Consumers {
    consumers: Vec<Consumer>,
}

/// The consumers of changes that a server knows.
pub(super) fn consumers(client: &Client) -> Result<Vec<ChangeConsumer>> {
    let Consumers { consumers } = client.get("/v1/consumers")?;
    let consumers = consumers.into_iter().map(|one| {
        let position = one.position.parse().map_err(Error::Unavailable)?;
        let mut known = ChangeConsumer::new(one.name, position);
        known.dataset = one.dataset;
        (known.keeps_bytes, known.lag_bytes) = (one.keeps_bytes, one.lag_bytes);
        known.unread_for = one.unread_seconds.map(Duration::from_secs);
        Ok(known)
    });
    consumers.collect()
}
