//! Single records: read, put, patched and deleted by key. The ETag of a record is the sequence
//! number of its write.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use esker::schema::merge_patch;
use esker::{Error, ErrorKind, Key, Record, Seq};
use esker_store::Records;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::app::Shared;
use super::body::Body;
use super::extract::{Expected, Params, Reads, Segments, Writes, etag, expected, is_known};
use super::find::check_size;
use super::stream::raw;
use crate::problem::Problem;

const JSON: &str = "application/json";

/// How often a change is made again because other writers were faster.
const ATTEMPTS: usize = 1000;

/// Which moment of a dataset is read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct At {
    /// As it was in the snapshot of this name.
    snapshot: Option<String>,
}

fn no_record(dataset: &str, key: &str) -> Problem {
    let detail = format!("dataset `{dataset}` has no record with key {key}");
    Problem::new(StatusCode::NOT_FOUND, "no-record", detail)
}

/// The record of a key.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/records/{key}", tag = "records",
    params(
        ("dataset" = String, Path), ("key" = String, Path), At,
        ("if-none-match" = Option<String>, Header, description = "ETags that the client has")
    ),
    responses(
        (status = 200, body = Object, content_type = JSON,
         headers(("etag" = String, description = "The sequence number of its write"))),
        (status = 304, description = "The client has it")
    )
)]
pub(super) async fn get(
    State(app): State<Shared>,
    _: Reads,
    Segments((dataset, key)): Segments<(String, String)>,
    Params(at): Params<At>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let record = match at.snapshot {
        Some(snapshot) => {
            let read = app.engine.run(move |handle| {
                let records = handle.moment(&dataset, Some(&snapshot))?;
                found(&records, &dataset, &key)
            });
            read.await?
        }
        None => {
            let read = app.engine.get(move |handle| {
                let records = handle.db().dataset::<Key>(&dataset)?;
                found(&records, &dataset, &key)
            });
            read.await?
        }
    };
    let tag = (header::ETAG, etag(record.seq()));
    if is_known(&headers, record.seq()) {
        return Ok((StatusCode::NOT_MODIFIED, [tag]).into_response());
    }
    let of_json = (header::CONTENT_TYPE, JSON.to_string());
    Ok(([tag, of_json], record.json().to_vec()).into_response())
}

fn found<R: Records + ?Sized>(records: &R, dataset: &str, key: &str) -> Result<Record, Problem> {
    let record = records.get(&records.parse_key(key)?)?;
    record.ok_or_else(|| no_record(dataset, key))
}

/// Puts a record. `If-None-Match: *` inserts it; `If-Match` replaces one version of it.
#[utoipa::path(
    put, path = "/v1/datasets/{dataset}/records/{key}", tag = "records",
    params(
        ("dataset" = String, Path), ("key" = String, Path),
        ("if-match" = Option<String>, Header, description = "The version that is replaced, or *"),
        ("if-none-match" = Option<String>, Header, description = "* if there must be none")
    ),
    request_body(content = Object, content_type = JSON),
    responses(
        (status = 201, description = "Stored, durably; there was no record of this key",
         headers(("etag" = String, description = "The sequence number of the write"))),
        (status = 204, description = "Stored, durably, in place of another",
         headers(("etag" = String, description = "The sequence number of the write"))),
        (status = 412, body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn put(
    State(app): State<Shared>,
    _: Writes,
    Segments((dataset, key)): Segments<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let expected = expected(&headers)?;
    let changed = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        let key = dataset.parse_key(&key)?;
        let given = dataset.key_of(&body.bytes)?;
        if given != key {
            let detail = format!("the record has the key {given}, and the address {key}");
            return Err(Problem::bad_request(detail));
        }
        changed(&dataset, &key, &expected, &mut |_| {
            Ok(Write::Put(body.bytes.to_vec()))
        })
    });
    Ok(written(&changed.await?))
}

/// Changes a record by a JSON merge patch (RFC 7396). Without a record, the patch makes one.
#[utoipa::path(
    patch, path = "/v1/datasets/{dataset}/records/{key}", tag = "records",
    params(
        ("dataset" = String, Path), ("key" = String, Path),
        ("if-match" = Option<String>, Header, description = "The version that is changed, or *")
    ),
    request_body(content = Object, content_type = "application/merge-patch+json"),
    responses(
        (status = 201, description = "Stored, durably; there was no record of this key",
         headers(("etag" = String, description = "The sequence number of the write"))),
        (status = 204, description = "Stored, durably, in place of another",
         headers(("etag" = String, description = "The sequence number of the write"))),
        (status = 412, body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn patch(
    State(app): State<Shared>,
    _: Writes,
    Segments((dataset, key)): Segments<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let expected = expected(&headers)?;
    let changed = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        let key = dataset.parse_key(&key)?;
        // What is no patch is said before the record is looked at.
        merge_patch(None, &body.bytes).map_err(Problem::bad_request)?;
        if !body.bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::bad_request("the patch of a record is an object"));
        }
        changed(&dataset, &key, &expected, &mut |old| {
            let merged = merge_patch(old.map(Record::json), &body.bytes);
            let merged = merged.map_err(Problem::bad_request)?;
            let given = dataset.key_of(&merged)?;
            if given != key {
                let detail = format!("the patch changes the key {key} to {given}");
                return Err(Problem::bad_request(detail));
            }
            Ok(Write::Replace(merged))
        })
    });
    Ok(written(&changed.await?))
}

/// Deletes a record.
#[utoipa::path(
    delete, path = "/v1/datasets/{dataset}/records/{key}", tag = "records",
    params(
        ("dataset" = String, Path), ("key" = String, Path),
        ("if-match" = Option<String>, Header, description = "The version that is deleted, or *")
    ),
    responses(
        (status = 204, description = "Deleted, durably"),
        (status = 412, body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn delete(
    State(app): State<Shared>,
    _: Writes,
    Segments((name, key)): Segments<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let expected = expected(&headers)?;
    let deleted = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        let parsed = dataset.parse_key(&key)?;
        changed(&dataset, &parsed, &expected, &mut |old| match old {
            Some(_) => Ok(Write::Delete),
            None => Err(no_record(&name, &key)),
        })
    });
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a change makes of a record.
enum Write {
    /// Whatever the record is.
    Put(Vec<u8>),
    /// Of the record as it was read.
    Replace(Vec<u8>),
    /// The record as it was read.
    Delete,
}

/// What a change has done.
struct Changed {
    /// The number of the write.
    seq: Option<Seq>,
    /// True if there was no record before.
    is_new: bool,
}

/// Makes a change whose expectation holds at its commit; returns the number of the write. A change
/// that depends on the record is made again when another writer was faster.
fn changed(
    dataset: &esker::Dataset,
    key: &Key,
    expected: &Expected,
    change: &mut dyn FnMut(Option<&Record>) -> Result<Write, Problem>,
) -> Result<Changed, Problem> {
    let failed = || {
        Problem::precondition_failed(match expected {
            Expected::Absent => format!("there is a record with key {key}"),
            Expected::Present => format!("there is no record with key {key}"),
            _ => format!("the record with key {key} has another version"),
        })
    };
    for _ in 0..ATTEMPTS {
        let old = dataset.get(key.clone())?;
        if !expected.holds(old.as_ref().map(Record::seq)) {
            return Err(failed());
        }
        let mut batch = dataset.batch();
        let depends = match change(old.as_ref())? {
            Write::Put(json) => {
                batch.put_json(json)?;
                *expected != Expected::Anything
            }
            Write::Replace(json) => {
                batch.put_json(json)?;
                true
            }
            Write::Delete => {
                batch.delete(key.clone())?;
                true
            }
        };
        match &old {
            Some(old) if depends => batch.if_seq(key.clone(), old.seq())?,
            None if depends => batch.if_absent(key.clone())?,
            _ => {}
        }
        let is_new = old.is_none();
        match batch.commit_seq() {
            Ok(seq) => return Ok(Changed { seq, is_new }),
            Err(error) if is_overtaken(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::busy(
        "other writers changed the record again and again",
        1,
    ))
}

/// True if another writer changed the record between the look at it and the commit.
fn is_overtaken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Exists)
}

fn written(changed: &Changed) -> Response {
    let status = if changed.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::NO_CONTENT
    };
    match changed.seq {
        Some(seq) => (status, [(header::ETAG, etag(seq))]).into_response(),
        None => status.into_response(),
    }
}

/// Which versions are read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VersionParams {
    /// How many of the latest versions.
    #[serde(default = "one")]
    latest: usize,
    /// As of the write with this sequence number; now by default.
    at: Option<Seq>,
    /// As they were in the snapshot of this name.
    snapshot: Option<String>,
}

fn one() -> usize {
    1
}

/// A version of a record.
#[derive(serde::Serialize, ToSchema)]
pub(super) struct Version {
    /// The sequence number of its write.
    seq: Seq,
    #[schema(value_type = Object)]
    record: Box<RawValue>,
}

/// The latest versions of a record, newest first.
#[derive(serde::Serialize, ToSchema)]
pub(super) struct Versions {
    versions: Vec<Version>,
}

/// The latest versions of a record, as far as its dataset keeps them.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/records/{key}/versions", tag = "records",
    params(("dataset" = String, Path), ("key" = String, Path), VersionParams),
    responses(
        (status = 200, body = Versions)
    )
)]
pub(super) async fn versions(
    State(app): State<Shared>,
    _: Reads,
    Segments((dataset, key)): Segments<(String, String)>,
    Params(params): Params<VersionParams>,
) -> Result<axum::Json<Versions>, Problem> {
    let most = params.latest.min(app.limits.rows);
    let versions = app.engine.run(move |handle| {
        let records = handle.moment(&dataset, params.snapshot.as_deref())?;
        let key = records.parse_key(&key)?;
        let mut versions = Vec::new();
        let found = Records::versions(&records, &key, params.at, most)?;
        check_size(found.iter())?;
        for record in found {
            let (seq, record) = (record.seq(), raw(record.json())?);
            versions.push(Version { seq, record });
        }
        Ok(Versions { versions })
    });
    Ok(axum::Json(versions.await?))
}
