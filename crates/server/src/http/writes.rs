//! Writes of a dataset for clients that need what JSON lines do not have: notes in the same commit,
//! remarks, progress. The client of Esker itself uses it (`esker-client`).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use esker::schema::IndexDef;
use esker::units::parse_duration;
use esker::{DatasetDef, Durability, Explain, Key, Path, Seq, WriteBatch};
use esker_client::wire::{self, DeleteWhere, FRAMES};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::app::Shared;
use super::body::{Body, Document};
use super::extract::{Params, Reads, Segments, Writes};
use super::rows;
use crate::engine::Handle;
use crate::problem::Problem;

/// How durable a batch is.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WriteParams {
    /// `sync` (as without it): with the answer; `os`: when the system writes it; or a length of
    /// time, as in `1s`: at the latest then.
    durability: Option<String>,
}

impl WriteParams {
    fn durability(&self) -> Result<Durability, Problem> {
        Ok(match self.durability.as_deref() {
            None | Some("sync") => Durability::Sync,
            Some("os") => Durability::Os,
            Some(every) => {
                let every: Duration = parse_duration(every).map_err(Problem::bad_request)?;
                Durability::Periodic(every)
            }
        })
    }
}

/// What a batch has done.
#[derive(Serialize, ToSchema)]
pub(super) struct Written {
    /// The sequence number of its first write.
    seq: Option<Seq>,
    /// Remarks on records that may be mistakes, each once.
    remarks: Vec<String>,
}

/// Applies a batch of frames to a dataset, all or nothing. For the client of Esker; its crate
/// describes the frames (`wire`). Programs in other languages use `/v1/batch`.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/write", tag = "client",
    params(("dataset" = String, Path), WriteParams),
    request_body(content = String, content_type = FRAMES),
    responses(
        (status = 200, body = Written)
    ))]
pub(super) async fn write(
    State(app): State<Shared>,
    _: Writes,
    Segments(name): Segments<String>,
    Params(params): Params<WriteParams>,
    body: Body,
) -> Result<Json<Written>, Problem> {
    let durability = params.durability()?;
    let written = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        let mut batch = dataset.batch();
        let mut rest: &[u8] = &body.bytes;
        while !rest.is_empty() {
            let malformed = || Problem::bad_request("the frames of the batch are malformed");
            let (kind, frame, behind) = wire::take_frame(rest).ok_or_else(malformed)?;
            let added = add(&dataset, &mut batch, kind, frame);
            added?.ok_or_else(malformed)?;
            rest = behind;
        }
        batch.durability(durability);
        let seq = batch.commit_seq()?;
        let remarks = dataset.remarks();
        Ok(Written { seq, remarks })
    });
    Ok(Json(written.await?))
}

/// Adds a write; `None` if its frame is malformed.
fn add(
    dataset: &esker::Dataset,
    batch: &mut WriteBatch,
    kind: u8,
    frame: &[u8],
) -> Result<Option<()>, Problem> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    match kind {
        wire::PUT => batch.put_json(frame)?,
        wire::INSERT => batch.insert_json(frame)?,
        wire::DELETE => {
            let Some(key) = text(frame) else {
                return Ok(None);
            };
            batch.delete(dataset.parse_key(key)?)?;
        }
        wire::EXPECT => {
            let parts = wire::take_u64(frame).and_then(|(seq, key)| Some((seq, text(key)?)));
            let Some((seq, key)) = parts else {
                return Ok(None);
            };
            let key = dataset.parse_key(key)?;
            match seq {
                wire::NO_RECORD => batch.if_absent(key)?,
                seq => batch.if_seq(key, seq)?,
            }
        }
        wire::NOTE => {
            let parts = wire::take_bytes(frame);
            let parts = parts.and_then(|(name, value)| Some((text(name)?, value)));
            let Some((name, value)) = parts else {
                return Ok(None);
            };
            batch.note(name, Some(value))?;
        }
        wire::NO_NOTE => {
            let Some(name) = text(frame) else {
                return Ok(None);
            };
            batch.note(name, None)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Deletes the records that meet a condition, and answers with frames: the number so far, again
/// and again. A client that goes ends the deletion.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/delete-where", tag = "client",
    params(("dataset" = String, Path)),
    request_body(content = Object, description = "`{\"condition\": \"n > 5\"}`"),
    responses(
        (status = 200, body = String, content_type = FRAMES)
    ))]
pub(super) async fn delete_where(
    State(app): State<Shared>,
    _: Writes,
    Segments(name): Segments<String>,
    Document(DeleteWhere { condition }, _): Document<DeleteWhere>,
) -> Result<Response, Problem> {
    let ends = app.engine.lasting_request();
    rows::called_back(app, ends, move |handle: &Handle, sink| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        let deleted = dataset.delete_where(condition, &mut |deleted: u64| {
            let _ = sink.add(|out| rows::frame(wire::PROGRESS, &deleted.to_le_bytes(), out));
            sink.send()
        })?;
        let _ = sink.add(|out| rows::frame(wire::PROGRESS, &deleted.to_le_bytes(), out));
        Ok(Explain::default())
    })
    .await
}

/// Makes all earlier writes of a dataset durable.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/sync", tag = "records",
    params(("dataset" = String, Path)),
    responses(
        (status = 204, description = "Durable")
    ))]
pub(super) async fn sync(
    State(app): State<Shared>,
    _: Writes,
    Segments(name): Segments<String>,
) -> Result<StatusCode, Problem> {
    (app.engine)
        .run(move |handle| Ok(handle.dataset(&name)?.sync()?))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The notes of programs.
#[derive(Serialize, ToSchema)]
pub(super) struct Notes {
    /// By name, in hexadecimal digits.
    notes: BTreeMap<String, String>,
}

/// The notes that programs have stored with the records of a dataset.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/notes", tag = "client",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Notes)
    ))]
pub(super) async fn notes(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Notes>, Problem> {
    let notes = app.engine.run(move |handle| {
        let notes = handle.dataset(&name)?.notes()?.into_iter();
        let notes = notes.map(|(name, value)| (name, wire::hex(&value)));
        Ok(Notes {
            notes: notes.collect(),
        })
    });
    Ok(Json(notes.await?))
}

/// How many records have something that is not indexed.
#[derive(Serialize, ToSchema)]
pub(super) struct Unindexed {
    /// By field.
    #[schema(value_type = BTreeMap<String, u64>)]
    unindexed: BTreeMap<Path, u64>,
}

/// For each declared field, the number of records with something there that is not indexed.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/unindexed", tag = "state",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Unindexed)
    ))]
pub(super) async fn unindexed(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Unindexed>, Problem> {
    let counted = app.engine.run(move |handle| {
        let unindexed = handle.dataset(&name)?.unindexed()?;
        Ok(Unindexed { unindexed })
    });
    Ok(Json(counted.await?))
}

/// The definition of a dataset, in full.
#[derive(Serialize, ToSchema)]
pub(super) struct Layout {
    #[schema(value_type = Object)]
    definition: DatasetDef,
    /// The index whose change is not complete.
    #[schema(value_type = Option<Object>)]
    unfinished: Option<IndexDef>,
}

/// The definition of a dataset in full, and the change of an index that is not complete.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/layout", tag = "client",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Layout)
    ))]
pub(super) async fn layout(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Layout>, Problem> {
    let layout = app.engine.run(move |handle| {
        let dataset = handle.dataset(&name)?;
        Ok(Layout {
            definition: dataset.def(),
            unfinished: dataset.unfinished_index(),
        })
    });
    Ok(Json(layout.await?))
}
