//! The state of the store: statistics, advice, times to live, named snapshots.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use esker::Seq;
use esker::units::parse_duration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::app::Shared;
use super::body::Document;
use super::extract::{Administers, Reads, Segments};
use crate::access::{Caller, Role};
use crate::problem::Problem;

/// Statistics as JSON.
fn json_of(of: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(of).map_err(|error| Problem::internal(error.to_string()))
}

/// The state of the store: its files, layers, jobs, memory, and consumers of changes.
#[utoipa::path(get, path = "/v1/stat", tag = "state",
    responses(
        (status = 200, body = Object)
    ))]
pub(super) async fn stat(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Json<Value>, Problem> {
    caller.may_all(Role::Read)?;
    let folder = app.engine.folder().to_path_buf();
    let stats = app.engine.run(move |handle| {
        let mut stats = json_of(&handle.store().stats()?)?;
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let bytes: u64 = files
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .sum();
        if let Some(stats) = stats.as_object_mut() {
            stats.insert("bytes_on_disk".to_string(), bytes.into());
        }
        Ok(stats)
    });
    Ok(Json(stats.await?))
}

/// The state of a dataset: its records, layers, indexes and strategy.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/stat", tag = "state",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Object)
    ))]
pub(super) async fn stat_dataset(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Value>, Problem> {
    let stats = (app.engine).run(move |handle| json_of(&handle.dataset(&name)?.stats()?));
    Ok(Json(stats.await?))
}

/// Which kind of index fits each field, by what was counted, with estimated costs.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/advise", tag = "state",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Object)
    ))]
pub(super) async fn advise(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Value>, Problem> {
    let advice = (app.engine).run(move |handle| json_of(&handle.dataset(&name)?.advise(None)?));
    Ok(Json(advice.await?))
}

/// What advice is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Advise {
    /// The mix of operations: `puts`, `gets`, `lookups` and `ranges` in per cent, and `limit`; as
    /// it was counted without it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    mix: Option<esker::advise::Mix>,
}

/// Which kind of index fits each field, for a mix of operations.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/advise", tag = "state",
    params(("dataset" = String, Path)), request_body = Advise,
    responses(
        (status = 200, body = Object)
    ))]
pub(super) async fn advise_for(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
    Document(Advise { mix }, _): Document<Advise>,
) -> Result<Json<Value>, Problem> {
    caller.may(Role::Read, &name)?;
    let advice =
        (app.engine).run(move |handle| json_of(&handle.dataset(&name)?.advise(mix.as_ref())?));
    Ok(Json(advice.await?))
}

/// The counted use of a dataset: its writes, gets, and queries by field.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/usage", tag = "state",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Object)
    ))]
pub(super) async fn usage(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
) -> Result<Json<Value>, Problem> {
    caller.may(Role::Read, &name)?;
    let usage = (app.engine).run(move |handle| json_of(&handle.dataset(&name)?.usage()?));
    Ok(Json(usage.await?))
}

/// The time that waits for a confirmation.
#[derive(Serialize, ToSchema)]
pub(super) struct Unconfirmed {
    /// In milliseconds since 1970; null if the clock did not jump ahead.
    unconfirmed: Option<u64>,
}

/// Whether the clock has jumped ahead, so that expired records are not deleted.
#[utoipa::path(get, path = "/v1/confirm-time", tag = "state",
    responses(
        (status = 200, body = Unconfirmed)
    ))]
pub(super) async fn unconfirmed(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Json<Unconfirmed>, Problem> {
    caller.may_all(Role::Read)?;
    let unconfirmed = (app.engine).run(|handle| Ok(handle.store().unconfirmed_time()));
    let unconfirmed = unconfirmed.await?;
    Ok(Json(Unconfirmed { unconfirmed }))
}

/// Confirms that the clock is right after it jumped ahead.
#[utoipa::path(post, path = "/v1/confirm-time", tag = "state",
    responses(
        (status = 204, description = "Confirmed")
    ))]
pub(super) async fn confirm_time(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<StatusCode, Problem> {
    caller.may_all(Role::Admin)?;
    tracing::info!(target: "audit", caller = caller.name(), "confirm time");
    (app.engine)
        .run(|handle| Ok(handle.store().confirm_time()?))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A time to live.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ttl {
    /// As in `7d`; null if records do not expire by their age.
    ttl: Option<String>,
}

/// Sets the time to live of records that are written from now on.
#[utoipa::path(put, path = "/v1/datasets/{dataset}/ttl", tag = "datasets",
    params(("dataset" = String, Path)), request_body = Ttl,
    responses(
        (status = 204, description = "Set")
    ))]
pub(super) async fn set_ttl(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
    Document(Ttl { ttl }, _): Document<Ttl>,
) -> Result<StatusCode, Problem> {
    let read = |text: &String| parse_duration(text).map_err(Problem::bad_request);
    let ttl: Option<Duration> = ttl.as_ref().map(read).transpose()?;
    tracing::info!(target: "audit", caller = caller.name(), dataset = name, ?ttl, "set ttl");
    let set = (app.engine).run(move |handle| Ok(handle.dataset(&name)?.set_ttl(ttl)?));
    set.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Named snapshots of the store.
#[derive(Serialize, ToSchema)]
pub(super) struct Snapshots {
    snapshots: Vec<Snapshot>,
}

/// A named snapshot.
#[derive(Serialize, ToSchema)]
pub(super) struct Snapshot {
    name: String,
    /// The last write that it has.
    seq: Seq,
    /// When it was kept, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
    /// Bytes of its tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Of these, bytes of tables that only this snapshot needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_bytes: Option<u64>,
}

/// The named snapshots.
#[utoipa::path(get, path = "/v1/snapshots", tag = "state",
    responses((status = 200, body = Snapshots)))]
pub(super) async fn snapshots(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Json<Snapshots>, Problem> {
    // Names of snapshots may speak of datasets that the caller does not see.
    caller.may_all(Role::Read)?;
    let listed = app.engine.run(|handle| {
        let kept = handle.store().snapshots()?.into_iter();
        let snapshots = kept.map(|kept| Snapshot {
            name: kept.name,
            seq: kept.seq,
            time: Some(kept.time),
            bytes: Some(kept.bytes),
            own_bytes: Some(kept.own_bytes),
        });
        Ok(Snapshots {
            snapshots: snapshots.collect(),
        })
    });
    Ok(Json(listed.await?))
}

/// Keeps the store as it is now under a name.
#[utoipa::path(put, path = "/v1/snapshots/{snapshot}", tag = "state",
    params(("snapshot" = String, Path)),
    responses(
        (status = 201, body = Snapshot)
    ))]
pub(super) async fn keep_snapshot(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
) -> Result<(StatusCode, Json<Snapshot>), Problem> {
    caller.may_all(Role::Admin)?;
    tracing::info!(target: "audit", caller = caller.name(), name, "keep snapshot");
    let kept = app.engine.run(move |handle| {
        let seq = handle.store().keep_snapshot(&name)?;
        Ok(Snapshot {
            name,
            seq,
            time: None,
            bytes: None,
            own_bytes: None,
        })
    });
    Ok((StatusCode::CREATED, Json(kept.await?)))
}

/// A dataset by its name.
#[derive(Serialize, ToSchema)]
pub(super) struct Named {
    name: String,
}

/// The datasets of a snapshot.
#[derive(Serialize, ToSchema)]
pub(super) struct SnapshotDatasets {
    datasets: Vec<Named>,
}

/// The datasets in a named snapshot, as far as the caller may read them.
#[utoipa::path(get, path = "/v1/snapshots/{snapshot}/datasets", tag = "state",
    params(("snapshot" = String, Path)),
    responses(
        (status = 200, body = SnapshotDatasets)
    ))]
pub(super) async fn snapshot_datasets(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
) -> Result<Json<SnapshotDatasets>, Problem> {
    let listed = app.engine.run(move |handle| {
        let names = handle.store().dataset_names_at(&name)?.into_iter();
        let seen = names.filter(|name| caller.sees(name));
        let datasets: Vec<Named> = seen.map(|name| Named { name }).collect();
        if datasets.is_empty() && caller.may_all(Role::Read).is_err() {
            return Err(esker::Error::UnknownSnapshot { name }.into());
        }
        Ok(SnapshotDatasets { datasets })
    });
    Ok(Json(listed.await?))
}

/// Drops a named snapshot.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot}", tag = "state",
    params(("snapshot" = String, Path)),
    responses(
        (status = 204, description = "Dropped")
    ))]
pub(super) async fn drop_snapshot(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
) -> Result<StatusCode, Problem> {
    caller.may_all(Role::Admin)?;
    tracing::info!(target: "audit", caller = caller.name(), name, "drop snapshot");
    let dropped = (app.engine).run(move |handle| Ok(handle.store().drop_snapshot(&name)?));
    dropped.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Who the caller is, and what it may do: for clients that show only what works.
#[utoipa::path(get, path = "/v1/caller", tag = "system",
    responses((status = 200, body = Object)))]
pub(super) async fn caller(caller: Caller) -> Json<Value> {
    let grant = caller.grant();
    Json(json!({
        "name": grant.name,
        "role": grant.role,
        "datasets": grant.datasets,
        "topics": grant.topics,
    }))
}
