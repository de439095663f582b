//! Records in bulk: NDJSON that is read while it arrives, in bounded memory.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use bytes::BytesMut;
use esker::{Key, Stop, WriteBatch};
use esker_import::{BATCH_BYTES, BATCH_RECORDS, is_of_record};
use futures_util::StreamExt;
use memchr::memchr;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::app::Shared;
use super::body::broken;
use super::extract::{Params, Segments, Writes};
use crate::engine::Handle;
use crate::problem::Problem;

/// The rejected lines that a report names.
const NAMED: usize = 1000;

/// How records are loaded.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct LoadParams {
    /// Records whose key exists are rejected, instead of replacing the record.
    insert: bool,
    /// Ends at the first line that is rejected.
    strict: bool,
}

/// What was loaded.
#[derive(Default, Serialize, ToSchema)]
pub(super) struct Report {
    /// Records that are stored, durably.
    loaded: u64,
    /// Lines that are no records of the dataset.
    rejected: u64,
    /// The first thousand of them.
    rejects: Vec<Reject>,
}

/// A line that was rejected.
#[derive(Serialize, ToSchema)]
struct Reject {
    line: u64,
    why: String,
}

impl Report {
    fn reject(&mut self, line: u64, why: String) {
        self.rejected += 1;
        if self.rejects.len() < NAMED {
            self.rejects.push(Reject { line, why });
        }
    }
}

/// Loads records, one a line (NDJSON). They are stored in batches while they arrive; a connection
/// that breaks off leaves those that were read. Lines that are no records of the dataset are left
/// out and reported.
#[utoipa::path(
    post, path = "/v1/datasets/{dataset}/records", tag = "records",
    params(("dataset" = String, Path), LoadParams),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses(
        (status = 200, body = Report),
        (status = 422, body = Problem, content_type = "application/problem+json",
         description = "With `strict`: a line was rejected; those before it are stored")
    )
)]
pub(super) async fn load(
    State(app): State<Shared>,
    _: Writes,
    Segments(dataset): Segments<String>,
    Params(params): Params<LoadParams>,
    body: Body,
) -> Result<Json<Report>, Problem> {
    let ends = app.engine.lasting_request();
    let handle = app.engine.handle(&ends.stop());
    // What was written is made durable also when the time of the writes has passed.
    let lasting = app.engine.handle(&Stop::new());
    let opened = app.engine.step(move || {
        let open = |handle: &Handle| handle.db().dataset::<Key>(&dataset);
        Ok((open(&handle)?, open(&lasting)?))
    });
    let (dataset, lasting) = opened.await?;
    let ending = Ending {
        app: app.clone(),
        dataset: lasting,
        report: Arc::default(),
    };
    let mut load = Load {
        dataset,
        params,
        report: ending.report.clone(),
        line: 0,
    };
    let stop = ends.stop();
    let mut lines = Lines::new(body.into_data_stream(), app.limits.line);
    loop {
        let (batch, failure) = match lines.batch().await {
            Ok(batch) => (batch, None),
            Err((batch, problem)) => (batch, Some(problem)),
        };
        let is_last = batch.is_empty();
        if !is_last {
            let step = app.engine.next_step(&stop, move || {
                let result = load.lines(&batch);
                Ok((load, result))
            });
            match step.await {
                Ok((written, Ok(()))) => load = written,
                Ok((_, Err(problem))) | Err(problem) => {
                    return Err(ending.failed(problem).await);
                }
            }
        }
        if let Some(problem) = failure {
            return Err(ending.failed(problem).await);
        }
        if params.strict && ending.report.lock().rejected > 0 {
            let detail = "a line is no record of the dataset";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Err(ending
                .failed(Problem::new(status, "rejected", detail))
                .await);
        }
        if is_last {
            break;
        }
    }
    ending.sync().await?;
    let report = std::mem::take(&mut *ending.report.lock());
    Ok(Json(report))
}

/// A load in progress.
struct Load {
    dataset: esker::Dataset,
    params: LoadParams,
    report: Arc<Mutex<Report>>,
    /// The last line that was read.
    line: u64,
}

/// The end of a load: it has the report also of writes that took too long.
struct Ending {
    app: Shared,
    dataset: esker::Dataset,
    report: Arc<Mutex<Report>>,
}

impl Ending {
    /// Makes what was loaded durable.
    async fn sync(&self) -> Result<(), Problem> {
        let dataset = self.dataset.clone();
        let synced = (self.app.engine).step_in_turn(move || dataset.sync());
        Ok(synced.await??)
    }

    /// The problem that ends the load, with a report of what is stored durably. Where the writes
    /// took too long, the batch that was running may be stored beyond the report.
    async fn failed(&self, problem: Problem) -> Problem {
        let problem = match self.sync().await {
            Ok(()) => problem,
            Err(failed) => {
                tracing::error!("a load cannot be made durable: {}", failed.detail());
                problem.with("durable", false)
            }
        };
        let report = serde_json::to_value(&*self.report.lock());
        match report {
            Ok(report) => problem.with("report", report),
            Err(_) => problem,
        }
    }
}

impl Load {
    fn lines(&mut self, lines: &[Bytes]) -> Result<(), Problem> {
        let mut batch = self.dataset.batch();
        let mut waiting: Vec<(u64, &Bytes)> = Vec::new();
        for line in lines {
            self.line += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let added = self.add(&mut batch, line);
            match added {
                Ok(()) => waiting.push((self.line, line)),
                Err(error) if is_of_record(&error) => {
                    self.report.lock().reject(self.line, error.to_string());
                    if self.params.strict {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Durable at the end of the load.
        batch.durability(esker::Durability::Os);
        let records = waiting.len() as u64;
        match batch.commit() {
            Ok(()) => self.report.lock().loaded += records,
            Err(error) if is_refused(&error) => self.one_by_one(&waiting)?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn add(&self, batch: &mut WriteBatch, record: &[u8]) -> esker::Result<()> {
        if self.params.insert {
            batch.insert_json(record)
        } else {
            batch.put_json(record)
        }
    }

    /// Writes the records of a batch that a commit refused: all but those that it refuses.
    fn one_by_one(&mut self, lines: &[(u64, &Bytes)]) -> Result<(), Problem> {
        for (number, line) in lines {
            let mut batch = self.dataset.batch();
            batch.durability(esker::Durability::Os);
            let added = self.add(&mut batch, line);
            match added.and_then(|()| batch.commit()) {
                Ok(()) => self.report.lock().loaded += 1,
                Err(error) if is_refused(&error) => {
                    self.report.lock().reject(*number, error.to_string());
                    if self.params.strict {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// True if a commit was refused because of one of its records.
fn is_refused(error: &esker::Error) -> bool {
    use esker::ErrorKind::{BadInput, Conflict, Exists, NotUnique};
    matches!(error.kind(), BadInput | Conflict | Exists | NotUnique)
}

/// The lines of a body.
struct Lines {
    body: BodyDataStream,
    /// What was read and is not given out.
    read: BytesMut,
    /// So much of it has no line break.
    scanned: usize,
    most: usize,
    is_at_end: bool,
}

impl Lines {
    fn new(body: BodyDataStream, most: usize) -> Lines {
        Lines {
            body,
            read: BytesMut::new(),
            scanned: 0,
            most,
            is_at_end: false,
        }
    }

    /// The next lines: as many as make a batch; none at the end.
    ///
    /// # Errors
    /// With the lines before it: a body that breaks off, or a line that is too long.
    async fn batch(&mut self) -> Result<Vec<Bytes>, (Vec<Bytes>, Problem)> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        loop {
            while let Some(line) = self.line() {
                bytes += line.len();
                lines.push(line);
                if lines.len() >= BATCH_RECORDS || bytes >= BATCH_BYTES {
                    return Ok(lines);
                }
            }
            if self.is_at_end {
                return Ok(lines);
            }
            if self.read.len() > self.most {
                let detail = format!("a line has more than {} bytes", self.most);
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                return Err((lines, Problem::new(status, "too-large", detail)));
            }
            match self.body.next().await {
                Some(Ok(part)) => self.read.extend_from_slice(&part),
                Some(Err(error)) => {
                    return Err((lines, broken(&error)));
                }
                None => self.is_at_end = true,
            }
        }
    }

    /// The next line of what was read.
    fn line(&mut self) -> Option<Bytes> {
        let unscanned = self.read.get(self.scanned..).unwrap_or_default();
        match memchr(b'\n', unscanned) {
            Some(at) => {
                let mut line = self.read.split_to(self.scanned + at + 1);
                self.scanned = 0;
                line.truncate(line.len() - 1);
                Some(line.freeze())
            }
            None if self.is_at_end && !self.read.is_empty() => {
                self.scanned = 0;
                Some(self.read.split().freeze())
            }
            None => {
                self.scanned = self.read.len();
                None
            }
        }
    }
}
