//! Server-sent events.

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::stream::{Item, Stream};
use crate::live::Event;
use crate::problem::Problem;

/// How long a client waits before it connects again, in milliseconds.
const RETRY: u32 = 2000;

fn push(out: &mut Vec<u8>, event: &Event) {
    let Event { id, name, data } = event;
    out.extend_from_slice(format!("id: {id}\n").as_bytes());
    // An event without a name has no data: it only says where the client is.
    if !name.is_empty() {
        out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        out.extend_from_slice(data);
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// The last event after an error.
fn failed(problem: &Problem) -> Vec<u8> {
    let text = serde_json::to_string(problem).unwrap_or_default();
    format!("event: error\ndata: {text}\n\n").into_bytes()
}

/// What a client reads, and whether it is the last.
fn text(item: Item) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    match item {
        Item::Events(events) => {
            for event in &events {
                push(&mut out, event);
            }
            (out, false)
        }
        Item::Alive(place) => {
            out.extend_from_slice(b": alive\n");
            if let Some(place) = place {
                out.extend_from_slice(format!("id: {place}\n").as_bytes());
            }
            out.push(b'\n');
            (out, false)
        }
        Item::Failed(problem) => (failed(&problem), true),
        Item::Ended(_) => (out, true),
    }
}

/// The answer of a stream. The body asks for more only when its client has read what it got, so
/// that a slow client holds one step of events.
pub(super) fn answer(stream: Stream) -> Response {
    let steps = stream::unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        let (text, is_last) = text(stream.next().await);
        if text.is_empty() && is_last {
            return None;
        }
        let bytes: Result<_, std::convert::Infallible> = Ok(Bytes::from(text));
        Some((bytes, Some(stream).filter(|_| !is_last)))
    });
    let retry = stream::iter([Ok(Bytes::from(format!("retry: {RETRY}\n\n")))]);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies pass each event on at once.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let body = Body::from_stream(futures_util::StreamExt::chain(retry, steps));
    (headers, body).into_response()
}
