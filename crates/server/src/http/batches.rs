//! Batches: writes to any datasets that are applied together or not at all.

use axum::Json;
use axum::extract::State;
use esker::{Database, Dataset, Key, Seq};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::app::Shared;
use super::body::Document;
use super::extract::AnyWriter;
use crate::access::Role;
use crate::problem::Problem;

/// Writes that are applied together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    writes: Vec<Write>,
}

/// One write, or an expectation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    op: Op,
    dataset: String,
    /// Of a put or an insert.
    #[schema(value_type = Option<Object>)]
    record: Option<Box<RawValue>>,
    /// Of a deletion or an expectation: as in an address.
    key: Option<String>,
    /// Of an expectation: the version of the record; without it, there must be none.
    seq: Option<Seq>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Op {
    /// Puts a record.
    Put,
    /// Puts a record whose key must not exist.
    Insert,
    /// Deletes a record.
    Delete,
    /// The batch is applied only if the record has this version.
    Expect,
}

impl Write {
    fn record(&self) -> Result<&str, Problem> {
        let record = self
            .record
            .as_ref()
            .filter(|_| self.key.is_none() && self.seq.is_none());
        let record = record.ok_or_else(|| Problem::bad_request("a put has a record alone"))?;
        Ok(record.get())
    }

    fn key(&self, dataset: &Dataset) -> Result<Key, Problem> {
        let allows_seq = self.op == Op::Expect;
        let is_whole = self.record.is_none() && (allows_seq || self.seq.is_none());
        let key = self.key.as_ref().filter(|_| is_whole);
        let key = key.ok_or_else(|| Problem::bad_request("this operation has a key alone"))?;
        Ok(dataset.parse_key(key)?)
    }

    /// Adds the write to a batch.
    fn add(&self, db: &Database, batch: &mut esker::Batch) -> Result<(), Problem> {
        let dataset = db.dataset::<Key>(&self.dataset)?;
        match (self.op, self.seq) {
            (Op::Put, _) => batch.put_json(&dataset, self.record()?)?,
            (Op::Insert, _) => batch.insert_json(&dataset, self.record()?)?,
            (Op::Delete, _) => batch.delete(&dataset, self.key(&dataset)?)?,
            (Op::Expect, Some(seq)) => batch.if_seq(&dataset, self.key(&dataset)?, seq)?,
            (Op::Expect, None) => batch.if_absent(&dataset, self.key(&dataset)?)?,
        }
        Ok(())
    }
}

/// What a batch has done.
#[derive(Serialize, ToSchema)]
pub(super) struct Applied {
    /// The number of puts, inserts and deletions.
    writes: usize,
    /// The sequence number of its first write.
    seq: Option<Seq>,
}

/// Applies writes to any datasets together, or none of them. They are durable with the answer.
#[utoipa::path(post, path = "/v1/batch", tag = "records", request_body = Batch,
    responses(
        (status = 200, body = Applied),
        (status = 404, body = Problem, content_type = "application/problem+json",
         description = "There is no such dataset, or not for this token")
    ))]
pub(super) async fn write(
    State(app): State<Shared>,
    AnyWriter(caller): AnyWriter,
    Document(Batch { writes }, _): Document<Batch>,
) -> Result<Json<Applied>, Problem> {
    for write in &writes {
        caller.may(Role::Write, &write.dataset)?;
    }
    let applied = app.engine.run(move |handle| {
        let db = handle.db();
        let mut batch = db.batch();
        for (at, write) in writes.iter().enumerate() {
            (write.add(db, &mut batch)).map_err(|problem| problem.with("write", at))?;
        }
        let writes = batch.len();
        let seq = batch.commit_seq()?;
        Ok(Applied { writes, seq })
    });
    Ok(Json(applied.await?))
}
