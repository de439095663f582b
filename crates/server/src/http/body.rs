//! The bodies of requests: decoded, bounded one by one and together, and parsed away from the event
//! loop.
//!
//! **Invariants.** The bytes of all bodies that are in memory at the same time are bounded
//! ([`Bodies`](super::Bodies)): a body that would exceed the bound is refused with 503. A body
//! counts as long as its handler has it.

use std::io;
use std::time::Duration;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::body::HttpBody as _;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::BytesMut;
use futures_util::{Stream, StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::io::BufReader;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::io::{ReaderStream, StreamReader};
use tower_http::timeout::TimeoutBody;

use super::app::Shared;
use crate::problem::Problem;

/// The largest window of zstd, as a power of two (RFC 9659): a client chooses it, and the decoder
/// needs as much memory.
const ZSTD_WINDOW: u32 = 23;

/// A document beyond this many bytes is parsed on a thread of the pool.
const PARSED_HERE: usize = 32 << 10;

/// The bytes of a body.
pub(super) struct Body {
    pub(super) bytes: Bytes,
    held: Option<OwnedSemaphorePermit>,
}

fn too_large(most: usize) -> Problem {
    let detail = format!("the body has more than {most} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
}

/// The problem of a body that cannot be read to its end.
pub(super) fn broken(error: &axum::Error) -> Problem {
    let mut source: &dyn std::error::Error = error;
    while let Some(inner) = source.source() {
        if inner.is::<tower_http::timeout::TimeoutError>() {
            let detail = "the body was not sent in time";
            return Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail);
        }
        source = inner;
    }
    Problem::bad_request(format!("the body cannot be read: {error}"))
}

impl FromRequest<Shared> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Body, Problem> {
        let most = app.limits.body;
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|length| length > most) {
            return Err(too_large(most));
        }
        let mut held = None;
        let mut stream = request.into_body().into_data_stream();
        let mut bytes = BytesMut::new();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| broken(&error))?;
            if bytes.len() + part.len() > most {
                return Err(too_large(most));
            }
            app.bodies.grow(&mut held, bytes.len() + part.len())?;
            bytes.extend_from_slice(&part);
        }
        Ok(Body {
            bytes: bytes.freeze(),
            held,
        })
    }
}

/// A JSON document, and its share of the bodies' bound, which it has as long as its handler.
pub(super) struct Document<T>(
    pub(super) T,
    #[expect(dead_code, reason = "it counts until it is dropped")] pub(super) Held,
);

/// A share of the bodies' bound.
pub(super) struct Held(
    #[expect(dead_code, reason = "it counts until it is dropped")] Option<OwnedSemaphorePermit>,
);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Shared> for Document<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Document<T>, Problem> {
        if !is_json(request.headers()) {
            let detail = "send a document as `content-type: application/json`";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "no-document", detail));
        }
        let Body { bytes, held } = Body::from_request(request, app).await?;
        let held = Held(held);
        if bytes.len() <= PARSED_HERE {
            return Ok(Document(parsed(&bytes)?, held));
        }
        let parsed = app.engine.step(move || Ok(Document(parsed(&bytes)?, held)));
        parsed.await
    }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let status = match error.classify() {
            Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, "bad-input", error.to_string())
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let of = headers
        .get(header::CONTENT_TYPE)
        .and_then(|of| of.to_str().ok());
    let of = of
        .and_then(|of| of.split(';').next())
        .unwrap_or_default()
        .trim();
    let lower = of.to_ascii_lowercase();
    lower == "application/json" || (lower.starts_with("application/") && lower.ends_with("+json"))
}

/// Limits the time between parts of the body of a request, and decodes it by its
/// `Content-Encoding`.
///
/// # Errors
/// 415 for a coding that is not known.
pub(super) fn decoded(idle: Duration, request: Request) -> Result<Request, Problem> {
    if request.body().is_end_stream() {
        return Ok(request);
    }
    let mut request = request.map(|body| HttpBody::new(TimeoutBody::new(idle, body)));
    let coding = request.headers().get(header::CONTENT_ENCODING);
    let Some(coding) = coding.map(|of| of.to_str().unwrap_or_default().to_ascii_lowercase()) else {
        return Ok(request);
    };
    let body = std::mem::take(request.body_mut()).into_data_stream();
    let reader = BufReader::new(StreamReader::new(body.map_err(io::Error::other)));
    let decoded = match coding.trim() {
        "gzip" | "x-gzip" => {
            let mut decoder = GzipDecoder::new(reader);
            // Files that were joined are one body.
            decoder.multiple_members(true);
            stream_of(ReaderStream::new(decoder))
        }
        "zstd" => {
            let window = [DParameter::window_log_max(ZSTD_WINDOW)];
            let mut decoder = ZstdDecoder::with_params(reader, &window);
            decoder.multiple_members(true);
            stream_of(ReaderStream::new(decoder))
        }
        "identity" => stream_of(ReaderStream::new(reader)),
        other => {
            let detail = format!("bodies may be gzip or zstd, and not {other}");
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "no-coding", detail));
        }
    };
    let headers = request.headers_mut();
    headers.remove(header::CONTENT_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
    Ok(request.map(|_| decoded))
}

fn stream_of<S>(stream: S) -> HttpBody
where
    S: Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    HttpBody::from_stream(stream)
}
