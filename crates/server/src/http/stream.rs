//! Answers that are sent while they are found, in steps: a step runs on the engine's threads until
//! it has some bytes. A client that does not read holds no thread.

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use esker::{Error, Key, KeyType, Record, Value};
use futures_util::stream;
use serde_json::value::RawValue;

use super::app::Shared;
use crate::engine::EndWithRequest;
use crate::problem::Problem;

/// A step ends when it has this many bytes.
pub(super) const STEP: usize = 64 << 10;

pub(super) const NDJSON: &str = "application/x-ndjson";

/// Something of which a step makes bytes; false at the end.
pub(super) trait Steps: Send + 'static {
    /// Adds the next row, with its line break.
    ///
    /// # Errors
    /// Any read error.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem>;
}

/// The records of an answer, one a line.
pub(super) struct Lines<I>(pub(super) I);

impl<I> Steps for Lines<I>
where
    I: Iterator<Item = Result<Record, Error>> + Send + 'static,
{
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        match self.0.next().transpose()? {
            Some(record) => {
                out.extend_from_slice(record.json());
                out.push(b'\n');
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// The keys of an answer, one a line.
pub(super) struct KeyLines<I>(pub(super) I);

impl<I> Steps for KeyLines<I>
where
    I: Iterator<Item = Result<Key, Error>> + Send + 'static,
{
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        match self.0.next().transpose()? {
            Some(key) => {
                out.extend_from_slice(key_json(&key).to_string().as_bytes());
                out.push(b'\n');
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// What a step has found.
struct Found {
    bytes: Vec<u8>,
    /// What is left, if there may be more.
    rest: Option<Box<dyn Steps>>,
}

fn step(mut rows: Box<dyn Steps>) -> Result<Found, Problem> {
    let mut bytes = Vec::with_capacity(STEP + (STEP >> 2));
    while bytes.len() < STEP {
        if !rows.next(&mut bytes)? {
            return Ok(Found { bytes, rest: None });
        }
    }
    let rest = Some(rows);
    Ok(Found { bytes, rest })
}

/// What is left of an answer.
struct Rest {
    app: Shared,
    rows: Option<Box<dyn Steps>>,
    /// Ends the calls of the answer when the client has gone.
    ends: EndWithRequest,
}

/// Streams rows as NDJSON. The first step is made before the answer begins, so that a request that
/// fails at once has its status. A later failure ends the connection: the client sees that the
/// answer is not complete.
pub(super) async fn ndjson(
    app: Shared,
    ends: EndWithRequest,
    rows: Box<dyn Steps>,
) -> Result<Response, Problem> {
    streamed(app, ends, rows, NDJSON).await
}

/// As [`ndjson`], for rows of another media type.
pub(super) async fn streamed(
    app: Shared,
    ends: EndWithRequest,
    rows: Box<dyn Steps>,
    of: &'static str,
) -> Result<Response, Problem> {
    let first = (app.engine)
        .next_step(&ends.stop(), move || step(rows))
        .await?;
    let rest = Rest {
        app,
        rows: first.rest,
        ends,
    };
    let steps = stream::unfold((Some(first.bytes), rest), |(first, mut rest)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, rest)));
        }
        let rows = rest.rows.take()?;
        let stop = rest.ends.stop();
        match rest.app.engine.next_step(&stop, move || step(rows)).await {
            Ok(found) => {
                rest.rows = found.rest;
                Some((Ok(Bytes::from(found.bytes)), (None, rest)))
            }
            Err(problem) => {
                tracing::warn!("an answer broke off: {}", problem.detail());
                Some((
                    Err(std::io::Error::other(problem.detail().to_string())),
                    (None, rest),
                ))
            }
        }
    });
    let of_rows = [(axum::http::header::CONTENT_TYPE, of)];
    Ok((of_rows, Body::from_stream(steps)).into_response())
}

/// The JSON of a record inside another document.
///
/// # Errors
/// If it is none.
pub(super) fn raw(json: &[u8]) -> Result<Box<RawValue>, Problem> {
    serde_json::from_slice(json)
        .map_err(|error| Problem::internal(format!("a stored record is no JSON: {error}")))
}

/// A key as JSON: a number, a text, or an array of both.
pub(crate) fn key_json(key: &Key) -> serde_json::Value {
    match key.value() {
        Value::Int(number) => match serde_json::Number::from_i128(number) {
            Some(number) => serde_json::Value::Number(number),
            None => number.to_string().into(),
        },
        // The text of a key of several fields is a JSON array.
        fields if key.key_type() == KeyType::Fields => {
            let text = fields.to_string();
            serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text))
        }
        other => other.to_string().into(),
    }
}
