//! What handlers take from a request. Where a part is not valid, the answer is a problem.

use axum::extract::{FromRequestParts, Path, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use esker::Seq;
use serde::de::DeserializeOwned;

use crate::access::{Caller, Role};
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

/// A caller that may read the dataset of the address.
pub(super) struct Reads(pub(super) Caller);
/// A caller that may write to the dataset of the address.
pub(super) struct Writes(pub(super) Caller);
/// A caller that may change the dataset of the address.
pub(super) struct Administers(pub(super) Caller);

/// A caller that may write to something.
pub(super) struct AnyWriter(pub(super) Caller);

impl<S: Send + Sync> FromRequestParts<S> for AnyWriter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        caller.has(Role::Write)?;
        Ok(AnyWriter(caller))
    }
}

/// The caller, if it has the role for the dataset of the address. Checked before the body is read.
async fn caller_with<S: Send + Sync>(
    role: Role,
    parts: &mut Parts,
    state: &S,
) -> Result<Caller, Problem> {
    let caller = Caller::from_request_parts(parts, state).await?;
    let segments = RawPathParams::from_request_parts(parts, state).await;
    let segments = segments.map_err(|error| Problem::bad_request(error.body_text()))?;
    let dataset = segments.iter().find(|(name, _)| *name == "dataset");
    let (_, dataset) = dataset.ok_or_else(|| Problem::internal("the route has no dataset"))?;
    caller.may(role, dataset)?;
    Ok(caller)
}

macro_rules! callers {
    ($($name:ident: $role:expr,)*) => {$(
        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
                Ok($name(caller_with($role, parts, state).await?))
            }
        }
    )*};
}

callers! {
    Reads: Role::Read,
    Writes: Role::Write,
    Administers: Role::Admin,
}

/// What a request expects of the record that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    Anything,
    /// `If-None-Match: *`
    Absent,
    /// `If-Match: *`
    Present,
    /// `If-Match`: one of these versions.
    OneOf(Vec<Seq>),
    /// `If-None-Match`: none of these versions.
    NoneOf(Vec<Seq>),
}

impl Expected {
    /// True if it holds of a record with this version, or of none.
    pub(super) fn holds(&self, seq: Option<Seq>) -> bool {
        match self {
            Expected::Anything => true,
            Expected::Absent => seq.is_none(),
            Expected::Present => seq.is_some(),
            Expected::OneOf(all) => seq.is_some_and(|seq| all.contains(&seq)),
            Expected::NoneOf(all) => seq.is_none_or(|seq| !all.contains(&seq)),
        }
    }
}

/// The ETag of a record: the sequence number of its write.
pub(super) fn etag(seq: Seq) -> String {
    format!("\"{seq}\"")
}

/// How ETags are compared (RFC 9110, 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// A weak one equals none.
    Strong,
    Weak,
}

/// The numbers in a list of ETags; `None` for a star. Tags that are none of a record match none.
fn seqs(headers: &HeaderMap, name: &HeaderName, comparison: Comparison) -> Option<Vec<Seq>> {
    let mut seqs = Vec::new();
    for value in headers.get_all(name) {
        for tag in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            if tag == "*" {
                return None;
            }
            let strong = match tag.strip_prefix("W/") {
                Some(_) if comparison == Comparison::Strong => continue,
                Some(tag) => tag,
                None => tag,
            };
            let quoted = strong
                .strip_prefix('"')
                .and_then(|tag| tag.strip_suffix('"'));
            seqs.extend(quoted.and_then(|number| number.parse::<Seq>().ok()));
        }
    }
    Some(seqs)
}

/// The expectation in the headers of a change.
///
/// # Errors
/// 400 if there are two.
pub(super) fn expected(headers: &HeaderMap) -> Result<Expected, Problem> {
    let matches = headers.contains_key(header::IF_MATCH);
    let none_matches = headers.contains_key(header::IF_NONE_MATCH);
    match (matches, none_matches) {
        (false, false) => Ok(Expected::Anything),
        (true, false) => Ok(seqs(headers, &header::IF_MATCH, Comparison::Strong)
            .map_or(Expected::Present, Expected::OneOf)),
        (false, true) => Ok(seqs(headers, &header::IF_NONE_MATCH, Comparison::Weak)
            .map_or(Expected::Absent, Expected::NoneOf)),
        (true, true) => Err(Problem::bad_request(
            "give one of If-Match and If-None-Match",
        )),
    }
}

/// True if the client has this version of a record already (`If-None-Match`).
pub(super) fn is_known(headers: &HeaderMap, seq: Seq) -> bool {
    headers.contains_key(header::IF_NONE_MATCH)
        && seqs(headers, &header::IF_NONE_MATCH, Comparison::Weak)
            .is_none_or(|known| known.contains(&seq))
}

/// True if the client wants an answer of this type, by its `Accept` headers.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_of_type = parts
            .next()
            .is_some_and(|of| of.eq_ignore_ascii_case(wanted));
        let is_zero = |part: &str| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
        };
        is_of_type && !parts.any(is_zero)
    })
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
            (
                vec![(matches.clone(), "\"12\"")],
                Some(Expected::OneOf(vec![12])),
            ),
            (vec![(none.clone(), "*")], Some(Expected::Absent)),
            (
                vec![(matches.clone(), "\"12\", \"13\"")],
                Some(Expected::OneOf(vec![12, 13])),
            ),
            // A weak one equals none, nor does one that is no ETag of a record.
            (
                vec![(matches.clone(), "W/\"12\"")],
                Some(Expected::OneOf(vec![])),
            ),
            (
                vec![(matches.clone(), "12, \"x\"")],
                Some(Expected::OneOf(vec![])),
            ),
            (
                vec![(none.clone(), "W/\"12\"")],
                Some(Expected::NoneOf(vec![12])),
            ),
            (vec![(matches, "*"), (none.clone(), "*")], None),
        ] {
            assert_eq!(expected(&headers(&given)).ok(), wanted, "{given:?}");
        }
        let given = headers(&[(none, "\"12\", W/\"13\", nonsense")]);
        assert!(is_known(&given, 13));
        assert!(!is_known(&given, 14));
        assert!(!Expected::OneOf(vec![1]).holds(None));
        assert!(Expected::NoneOf(vec![1]).holds(None));
    }

    #[test]
    fn types_of_answers_are_chosen_by_their_weight() {
        for (given, accepted) in [
            ("application/x-ndjson", true),
            ("text/html, Application/X-NDJSON;q=0.5", true),
            ("application/x-ndjson; q=0", false),
            ("application/x-ndjson-seq", false),
            ("*/*", false),
        ] {
            let given = headers(&[(header::ACCEPT, given)]);
            assert_eq!(
                accepts(&given, "application/x-ndjson"),
                accepted,
                "{given:?}"
            );
        }
    }
}
