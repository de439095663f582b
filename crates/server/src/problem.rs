//! Errors as HTTP answers: `application/problem+json` (RFC 9457).

use std::path::Path;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use esker::{Error, ErrorKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// An error for a client. It is small, since each call may return one.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(transparent)]
pub(crate) struct Problem(#[schema(inline)] Box<Details>);

/// What an error says.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct Details {
    /// What kind of problem it is, in words with hyphens: `unknown-dataset`.
    #[serde(rename = "type")]
    kind: String,
    /// The HTTP status.
    #[serde(serialize_with = "number")]
    #[schema(value_type = u16)]
    status: StatusCode,
    /// The status in words.
    title: String,
    /// What went wrong, for people.
    detail: String,
    /// What programs want to know about it: the key of a conflict, the line of a record.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Map<String, Value>,
    #[serde(skip)]
    retry_after: Option<u32>,
    /// What callers without rights on the whole store are answered instead.
    #[serde(skip)]
    to_others: Option<Problem>,
    /// Its cause is in the log.
    #[serde(skip)]
    is_logged: bool,
}

/// The problem for callers without rights on the whole store, as an extension of an answer.
#[derive(Clone)]
pub(crate) struct ToOthers(pub(crate) Problem);

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &str, detail: impl Into<String>) -> Problem {
        Problem(Box::new(Details {
            kind: kind.to_string(),
            status,
            title: status.canonical_reason().unwrap_or("Error").to_string(),
            detail: detail.into(),
            more: Map::new(),
            retry_after: None,
            to_others: None,
            is_logged: false,
        }))
    }

    /// What a client sent is not valid.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad-input", detail)
    }

    /// There is no such thing, or the caller may not know of it.
    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// There is no such dataset, or the caller may not know of it.
    pub(crate) fn unknown_dataset(name: &str) -> Problem {
        let detail = format!("there is no dataset `{name}`");
        Problem::new(StatusCode::NOT_FOUND, "unknown-dataset", detail)
    }

    /// The caller may know of it, but not do this.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// An expectation of the request's headers is not met.
    pub(crate) fn precondition_failed(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::PRECONDITION_FAILED,
            "precondition-failed",
            detail,
        )
    }

    /// There is too much to do: the client should come back after some seconds.
    pub(crate) fn busy(detail: impl Into<String>, seconds: u32) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).after(seconds)
    }

    /// The caller asks too often, or has too many of something: it should come back after some
    /// seconds.
    pub(crate) fn too_many(detail: impl Into<String>, seconds: u32) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail).after(seconds)
    }

    /// A failed assumption of the server's own.
    pub(crate) fn internal(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    fn after(mut self, seconds: u32) -> Problem {
        self.0.retry_after = Some(seconds);
        self
    }

    /// The problem with a further member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.0.more.insert(name.to_string(), value.into());
        self
    }

    /// The problem with another text for people.
    pub(crate) fn saying(mut self, detail: impl Into<String>) -> Problem {
        self.0.detail = detail.into();
        self
    }

    /// The problem, in place of which callers without rights on the whole store get another.
    pub(crate) fn hiding(mut self, other: Problem) -> Problem {
        self.0.to_others = Some(other);
        self
    }

    /// What kind of problem it is.
    pub(crate) fn kind(&self) -> &str {
        &self.0.kind
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// True if nothing was begun, because there was too much to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.retry_after.is_some()
    }

    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }
}

/// The status of an error, and the name of its kind.
fn status_and_kind(kind: ErrorKind) -> (StatusCode, &'static str) {
    match kind {
        ErrorKind::BadInput => (StatusCode::BAD_REQUEST, "bad-input"),
        ErrorKind::Unsupported => (StatusCode::BAD_REQUEST, "unsupported"),
        ErrorKind::UnknownDataset => (StatusCode::NOT_FOUND, "unknown-dataset"),
        ErrorKind::UnknownSnapshot => (StatusCode::NOT_FOUND, "unknown-snapshot"),
        ErrorKind::Exists => (StatusCode::CONFLICT, "exists"),
        ErrorKind::Conflict => (StatusCode::CONFLICT, "conflict"),
        ErrorKind::NotUnique => (StatusCode::CONFLICT, "not-unique"),
        ErrorKind::Busy => (StatusCode::CONFLICT, "busy"),
        ErrorKind::NoOldRecords => (StatusCode::CONFLICT, "no-old-records"),
        ErrorKind::OtherHistory => (StatusCode::CONFLICT, "other-history"),
        ErrorKind::PositionExpired => (StatusCode::GONE, "position-expired"),
        ErrorKind::Overflow => (StatusCode::UNPROCESSABLE_ENTITY, "overflow"),
        ErrorKind::ReadOnly => (StatusCode::FORBIDDEN, "read-only"),
        ErrorKind::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "cancelled"),
        ErrorKind::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
        ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        ErrorKind::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, "disk-full"),
        ErrorKind::Damaged => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
        ErrorKind::Io => (StatusCode::INTERNAL_SERVER_ERROR, "io"),
        ErrorKind::Poisoned => (StatusCode::INTERNAL_SERVER_ERROR, "poisoned"),
        ErrorKind::Locked => (StatusCode::INTERNAL_SERVER_ERROR, "locked"),
        ErrorKind::NoStore => (StatusCode::INTERNAL_SERVER_ERROR, "no-store"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// The file or folder that an error names.
fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. } | Error::DiskFull { path } => Some(path),
        Error::Damaged { path, .. } => path.as_deref(),
        Error::Locked { folder } | Error::NoStore { folder } => Some(folder),
        _ => None,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        if let Error::UnknownDataset { name, .. } = &error {
            // Its text proposes names that the caller may not know.
            return Problem::unknown_dataset(name);
        }
        if let Error::Cancelled { deadline: true } = &error {
            let (status, detail) = (StatusCode::GATEWAY_TIMEOUT, error.to_string());
            return Problem::new(status, "too-slow", detail);
        }
        let (status, kind) = status_and_kind(error.kind());
        let mut problem = Problem::new(status, kind, error.to_string());
        if let Some(path) = path_of(&error) {
            // Where the store lies is for those who run the server.
            tracing::error!(kind, "{error}");
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let whole = path.display().to_string();
            problem.0.detail = problem.0.detail.replace(&whole, &name);
            problem.0.is_logged = true;
        }
        match &error {
            Error::NotUnique(why) => problem
                .with("dataset", why.dataset.clone())
                .with("value", why.value.clone())
                .with("key", why.key.to_string())
                .with("path", why.path.to_string())
                .with("holder", why.holder.to_string()),
            Error::PositionExpired { oldest } => problem.with("oldest", oldest.to_string()),
            Error::OtherHistory { position, current } => problem
                .with("position", position.to_string())
                .with("current", current.to_string()),
            _ => match error.conflict() {
                Some(key) => problem.with("key", key.to_string()),
                None => problem,
            },
        }
    }
}

impl From<esker::schema::ModelError> for Problem {
    fn from(error: esker::schema::ModelError) -> Problem {
        Error::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.0.status;
        let is_ours = status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE;
        if is_ours && !self.0.is_logged {
            tracing::error!(kind = %self.0.kind, "{}", self.0.detail);
        }
        let retry_after = self.0.retry_after;
        let to_others = self.0.to_others.clone();
        let mut response = (status, Json(json!(self))).into_response();
        let headers = response.headers_mut();
        let of_problems = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, of_problems);
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(other) = to_others {
            response.extensions_mut().insert(ToOthers(other));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_file_is_named_without_its_folder() {
        let path = std::path::PathBuf::from("/srv/secret/db/000017.table");
        let source = Arc::new(io::Error::other("broken"));
        for error in [
            Error::Io {
                path: path.clone(),
                op: "read",
                source,
            },
            Error::DiskFull { path: path.clone() },
            Error::Damaged {
                path: Some(path.clone()),
                offset: Some(3),
                what: "a block".to_string(),
            },
            Error::Locked { folder: path },
        ] {
            assert!(error.to_string().contains("/srv/secret/db/"), "{error}");
            let problem = Problem::from(error);
            let detail = problem.detail();
            assert!(detail.contains("000017.table"), "{detail}");
            assert!(!detail.contains("secret"), "{detail}");
        }
    }
}
