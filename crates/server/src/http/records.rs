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

use super::Shared;
use super::extract::{Body, Expected, Params, Segments, etag, expected, is_known};
use super::stream::raw;
use crate::access::{Caller, Role};
use crate::problem::Problem;

const JSON: &str = "application/json";

/// How often a change is made again because other writers were faster.
const ATTEMPTS: usize = 1000;

/// Which moment of a dataset is read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
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
    caller: Caller,
    Segments((dataset, key)): Segments<(String, String)>,
    Params(at): Params<At>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Role::Read, &dataset)?;
    let record = app.engine.run(move |handle| match &at.snapshot {
        Some(_) => found(
            &handle.moment(&dataset, at.snapshot.as_deref())?,
            &dataset,
            &key,
        ),
        None => found(&*handle.dataset(&dataset)?, &dataset, &key),
    });
    let record = record.await?;
    let tag = (header::ETAG, etag(record.seq()));
    if is_known(&headers, record.seq())? {
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
        (status = 204, description = "Stored, durably",
         headers(("etag" = String, description = "The sequence number of the write"))),
        (status = 412, body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn put(
    State(app): State<Shared>,
    caller: Caller,
    Segments((dataset, key)): Segments<(String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Problem> {
    caller.may(Role::Write, &dataset)?;
    let expected = expected(&headers)?;
    let seq = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        let key = dataset.parse_key(&key)?;
        let given = dataset.key_of(&body)?;
        if given != key {
            let detail = format!("the record has the key {given}, and the address {key}");
            return Err(Problem::bad_request(detail));
        }
        changed(&dataset, &key, expected, &mut |_| {
            Ok(Write::Put(body.to_vec()))
        })
    });
    Ok(written(seq.await?))
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
        (status = 204, description = "Stored, durably",
         headers(("etag" = String, description = "The sequence number of the write"))),
        (status = 412, body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn patch(
    State(app): State<Shared>,
    caller: Caller,
    Segments((dataset, key)): Segments<(String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Problem> {
    caller.may(Role::Write, &dataset)?;
    let expected = expected(&headers)?;
    let seq = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        let key = dataset.parse_key(&key)?;
        changed(&dataset, &key, expected, &mut |old| {
            let merged = merge_patch(old.map(Record::json), &body);
            let merged = merged.map_err(Problem::bad_request)?;
            let given = dataset.key_of(&merged)?;
            if given != key {
                let detail = format!("the patch changes the key {key} to {given}");
                return Err(Problem::bad_request(detail));
            }
            Ok(Write::Put(merged))
        })
    });
    Ok(written(seq.await?))
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
    caller: Caller,
    Segments((name, key)): Segments<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller.may(Role::Write, &name)?;
    let expected = expected(&headers)?;
    let deleted = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        let parsed = dataset.parse_key(&key)?;
        changed(&dataset, &parsed, expected, &mut |old| match old {
            Some(_) => Ok(Write::Delete),
            None => Err(no_record(&name, &key)),
        })
    });
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a change makes of a record.
enum Write {
    Put(Vec<u8>),
    Delete,
}

/// Makes a change whose expectation holds at its commit; returns the number of the write. A change
/// that depends on the record is made again when another writer was faster.
fn changed(
    dataset: &esker::Dataset,
    key: &Key,
    expected: Expected,
    change: &mut dyn FnMut(Option<&Record>) -> Result<Write, Problem>,
) -> Result<Option<Seq>, Problem> {
    let failed = || {
        Problem::precondition_failed(match expected {
            Expected::Absent => format!("there is a record with key {key}"),
            Expected::Present => format!("there is no record with key {key}"),
            _ => format!("the record with key {key} has another version"),
        })
    };
    for _ in 0..ATTEMPTS {
        let old = dataset.get(key.clone())?;
        let holds = match expected {
            Expected::Anything => true,
            Expected::Absent => old.is_none(),
            Expected::Present => old.is_some(),
            Expected::Seq(seq) => old.as_ref().is_some_and(|old| old.seq() == seq),
        };
        if !holds {
            return Err(failed());
        }
        let mut batch = dataset.batch();
        match change(old.as_ref())? {
            Write::Put(json) => batch.put_json(json)?,
            Write::Delete => batch.delete(key.clone())?,
        }
        match &old {
            Some(old) => batch.if_seq(key.clone(), old.seq())?,
            None => batch.if_absent(key.clone())?,
        }
        match batch.commit_seq() {
            Ok(seq) => return Ok(seq),
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

fn written(seq: Option<Seq>) -> Response {
    match seq {
        Some(seq) => (StatusCode::NO_CONTENT, [(header::ETAG, etag(seq))]).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// Which versions are read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
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
    caller: Caller,
    Segments((dataset, key)): Segments<(String, String)>,
    Params(params): Params<VersionParams>,
) -> Result<axum::Json<Versions>, Problem> {
    caller.may(Role::Read, &dataset)?;
    let most = params.latest.min(app.limits.rows);
    let versions = app.engine.run(move |handle| {
        let records = handle.moment(&dataset, params.snapshot.as_deref())?;
        let key = records.parse_key(&key)?;
        let mut versions = Vec::new();
        for record in Records::versions(&records, &key, params.at, most)? {
            let (seq, record) = (record.seq(), raw(record.json())?);
            versions.push(Version { seq, record });
        }
        Ok(Versions { versions })
    });
    Ok(axum::Json(versions.await?))
}
