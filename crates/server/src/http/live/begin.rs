//! Where a stream of events begins, as its request says.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use esker::{ChangesFrom, Dataset, Key, Seq};

use crate::live::{Connection, EventId};
use crate::problem::Problem;

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
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let text = value.to_str().map(str::trim);
    let text = text.map_err(|_| Problem::bad_request("Last-Event-ID is no id of an event"))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The id of an event.
pub(super) fn event_id(text: &str) -> Result<EventId, Problem> {
    text.parse().map_err(Problem::bad_request)
}

/// Where changes begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Begin {
    /// A place in the log of any dataset.
    At(ChangesFrom),
    /// Behind an event.
    Behind(EventId),
}

impl Begin {
    /// Where the changes of a dataset begin.
    ///
    /// # Errors
    /// 409 for an event of another dataset.
    pub(super) fn of(self, dataset: &Dataset<Key>) -> Result<ChangesFrom, Problem> {
        Ok(match self {
            Begin::At(from) => from,
            Begin::Behind(id) => id.position_in(dataset)?.into(),
        })
    }
}

/// Where changes begin: `now`, `oldest`, a sequence number, the id of an event, or a position.
pub(super) fn begin(text: &str) -> Result<Begin, Problem> {
    let at = |from: ChangesFrom| Ok(Begin::At(from));
    match text {
        "now" => return at(ChangesFrom::Now),
        "oldest" => return at(ChangesFrom::Oldest),
        _ => {}
    }
    if let Ok(seq) = text.parse::<Seq>() {
        return at(ChangesFrom::Seq(seq));
    }
    if let Ok(id) = text.parse() {
        return Ok(Begin::Behind(id));
    }
    text.parse()
        .map(|position| Begin::At(ChangesFrom::Position(position)))
        .map_err(|_| {
            let detail = format!(
                "from `{text}`: give now, oldest, a sequence number, the id of an event or a position"
            );
            Problem::bad_request(detail)
        })
}

/// A time such as `30s`.
pub(super) fn duration(name: &str, text: &str) -> Result<std::time::Duration, Problem> {
    let parsed = esker::units::parse_duration(text);
    parsed.map_err(|why| Problem::bad_request(format!("{name}: {why}")))
}

#[cfg(test)]
mod tests {
    use esker::Position;

    use super::*;

    #[test]
    fn beginnings_of_changes_are_read() {
        let at = |from: ChangesFrom| Some(Begin::At(from));
        assert_eq!(begin("now").ok(), at(ChangesFrom::Now));
        assert_eq!(begin("oldest").ok(), at(ChangesFrom::Oldest));
        assert_eq!(begin("12").ok(), at(ChangesFrom::Seq(12)));
        let position = Position {
            history: 7,
            seq: 12,
        };
        let from = begin(&position.to_string()).ok();
        assert_eq!(from, at(ChangesFrom::Position(position)));
        let id = EventId {
            dataset: 3,
            position,
        };
        assert_eq!(begin(&id.to_string()).ok(), Some(Begin::Behind(id)));
        assert!(begin("then").is_err());
    }
}
