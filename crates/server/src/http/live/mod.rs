//! Live: changes of datasets, their consumers, fences and topics, as server-sent events and over
//! WebSocket.

pub(super) mod changes;
pub(super) mod consumers;
pub(super) mod fence;
mod message;
mod socket;
mod sse;
mod stream;
pub(super) mod subscribe;
pub(super) mod topics;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use esker::{ChangesFrom, Position, Seq};

use crate::live::Connection;
use crate::problem::Problem;

/// The content type of server-sent events.
const EVENTS: &str = "text/event-stream";

impl<S: Send + Sync> FromRequestParts<S> for Connection {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Connection, std::convert::Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// The id of the last event that a client has received.
///
/// # Errors
/// 400 if it is no text.
fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let text = value.to_str().map(str::trim);
    let text = text.map_err(|_| Problem::bad_request("Last-Event-ID is no id of an event"))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// A position, as the id of an event has it.
fn position(text: &str) -> Result<Position, Problem> {
    text.parse().map_err(Problem::bad_request)
}

/// Where changes begin: `now`, `oldest`, a sequence number or a position.
fn changes_from(text: &str) -> Result<ChangesFrom, Problem> {
    match text {
        "now" => Ok(ChangesFrom::Now),
        "oldest" => Ok(ChangesFrom::Oldest),
        other => match other.parse::<Seq>() {
            Ok(seq) => Ok(ChangesFrom::Seq(seq)),
            Err(_) => other.parse().map(ChangesFrom::Position).map_err(|_| {
                let detail =
                    format!("from `{other}`: give now, oldest, a sequence number or a position");
                Problem::bad_request(detail)
            }),
        },
    }
}

/// A time such as `30s`.
fn duration(name: &str, text: &str) -> Result<std::time::Duration, Problem> {
    let parsed = esker::units::parse_duration(text);
    parsed.map_err(|why| Problem::bad_request(format!("{name}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_changes_are_read() {
        assert_eq!(changes_from("now").ok(), Some(ChangesFrom::Now));
        assert_eq!(changes_from("oldest").ok(), Some(ChangesFrom::Oldest));
        assert_eq!(changes_from("12").ok(), Some(ChangesFrom::Seq(12)));
        let position = Position {
            history: 7,
            seq: 12,
        };
        let from = changes_from(&position.to_string()).ok();
        assert_eq!(from, Some(ChangesFrom::Position(position)));
        assert!(changes_from("then").is_err());
    }
}
