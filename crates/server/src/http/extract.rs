//! What handlers take from a request. Where a part is not valid, the answer is a problem.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use esker::Seq;
use serde::de::DeserializeOwned;

use crate::access::Caller;
use crate::problem::Problem;

/// The parameters behind the question mark.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let read = serde_html_form::from_str(query);
        read.map(Params)
            .map_err(|error| Problem::bad_request(error.to_string()))
    }
}

/// The variable segments of the path.
pub(super) struct Segments<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        let Path(segments) = read.map_err(|error| Problem::bad_request(error.body_text()))?;
        Ok(Segments(segments))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::internal("the caller is not known"))
    }
}

/// A JSON document.
pub(super) struct Document<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Json::<T>::from_request(request, state).await;
        let Json(document) =
            read.map_err(|error| Problem::new(error.status(), "bad-input", error.body_text()))?;
        Ok(Document(document))
    }
}

/// The bytes of a body.
pub(super) struct Body(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Bytes::from_request(request, state).await;
        read.map(Body).map_err(|error| {
            let kind = match error.status() {
                StatusCode::PAYLOAD_TOO_LARGE => "too-large",
                _ => "bad-input",
            };
            Problem::new(error.status(), kind, error.body_text())
        })
    }
}

/// What a request expects of the record that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Anything,
    /// `If-None-Match: *`
    Absent,
    /// `If-Match: *`
    Present,
    /// `If-Match: "SEQ"`
    Seq(Seq),
}

/// The ETag of a record: the sequence number of its write.
pub(super) fn etag(seq: Seq) -> String {
    format!("\"{seq}\"")
}

/// The numbers in a list of ETags; `None` for a star.
fn seqs(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Vec<Seq>>, Problem> {
    let mut seqs = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().unwrap_or_default();
        for tag in text.split(',').map(str::trim) {
            if tag == "*" {
                return Ok(None);
            }
            let number = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
            seqs.push(number.parse().map_err(|_| {
                Problem::bad_request(format!("{name}: `{tag}` is no ETag of a record"))
            })?);
        }
    }
    Ok(Some(seqs))
}

/// The expectation in the headers of a change.
///
/// # Errors
/// 400 for one that a change cannot have.
pub(super) fn expected(headers: &HeaderMap) -> Result<Expected, Problem> {
    let matches = headers.contains_key(header::IF_MATCH);
    let none_matches = headers.contains_key(header::IF_NONE_MATCH);
    match (matches, none_matches) {
        (false, false) => Ok(Expected::Anything),
        (true, false) => match seqs(headers, &header::IF_MATCH)?.as_deref() {
            None => Ok(Expected::Present),
            Some([seq]) => Ok(Expected::Seq(*seq)),
            Some(_) => Err(Problem::bad_request("If-Match: give one ETag, or *")),
        },
        (false, true) => match seqs(headers, &header::IF_NONE_MATCH)? {
            None => Ok(Expected::Absent),
            Some(_) => Err(Problem::bad_request(
                "If-None-Match: a change can have * alone",
            )),
        },
        (true, true) => Err(Problem::bad_request(
            "give one of If-Match and If-None-Match",
        )),
    }
}

/// True if the client has this version of a record already (`If-None-Match`).
///
/// # Errors
/// 400 for an ETag that is none of a record.
pub(super) fn is_known(headers: &HeaderMap, seq: Seq) -> Result<bool, Problem> {
    if !headers.contains_key(header::IF_NONE_MATCH) {
        return Ok(false);
    }
    let known = seqs(headers, &header::IF_NONE_MATCH)?;
    Ok(known.is_none_or(|known| known.contains(&seq)))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn expectations_are_read() {
        let (matches, none) = (header::IF_MATCH, header::IF_NONE_MATCH);
        for (given, wanted) in [
            (vec![], Some(Expected::Anything)),
            (vec![(matches.clone(), "*")], Some(Expected::Present)),
            (vec![(matches.clone(), "\"12\"")], Some(Expected::Seq(12))),
            (vec![(none.clone(), "*")], Some(Expected::Absent)),
            (vec![(matches.clone(), "\"12\", \"13\"")], None),
            (vec![(matches.clone(), "twelve")], None),
            (vec![(none.clone(), "\"12\"")], None),
            (vec![(matches, "*"), (none.clone(), "*")], None),
        ] {
            assert_eq!(expected(&headers(&given)).ok(), wanted, "{given:?}");
        }
        let given = headers(&[(none, "\"12\", W/\"13\"")]);
        assert!(is_known(&given, 13).unwrap());
        assert!(!is_known(&given, 14).unwrap());
    }
}
