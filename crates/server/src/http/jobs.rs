//! Long operations on a dataset or the store, as jobs: each request that begins one is answered at
//! once, with the address of the job.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use esker::maintain::RepairOptions;
use esker::schema::{IndexText, Maintenance};
use esker::{IndexKind, Path};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::app::Shared;
use super::body::{Body, Document};
use super::extract::{Administers, Segments};
use crate::access::{Caller, Role};
use crate::engine::Handle;
use crate::jobs::{Job, Progress, Purpose};
use crate::problem::Problem;

/// The most memory of a repair, in bytes.
const MOST_MEMORY: usize = 256 << 20;

/// The most threads of a repair.
const MOST_THREADS: usize = 16;

/// Begins a job, and answers with its address.
fn begin(
    app: &Shared,
    caller: &Caller,
    purpose: Purpose,
    work: impl FnOnce(&Handle, &Progress) -> Result<Value, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let (job, dataset) = (purpose.job, purpose.dataset.clone());
    tracing::info!(target: "audit", caller = caller.name(), job, dataset, "begin job");
    let own = app.clone();
    let begun = app.jobs.begin(purpose, move |progress| {
        let handle = own.engine.handle(progress.stop());
        work(&handle, progress)
    })?;
    let at = [(header::LOCATION, format!("/v1/jobs/{}", begun.id()))];
    Ok((StatusCode::ACCEPTED, at, Json(begun)).into_response())
}

fn of_dataset(job: &'static str, dataset: &str) -> Purpose {
    Purpose {
        job,
        dataset: Some(dataset.to_string()),
    }
}

/// A report as JSON.
fn report(of: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(of).map_err(|error| Problem::internal(error.to_string()))
}

/// A change of indexes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, tag = "change", rename_all = "lowercase")]
pub(super) enum ChangeIndex {
    /// Adds an index: `user.name:recent:string`; a type that is left out is inferred from records.
    Add {
        /// The field, the kind of its index, and perhaps the type of its values.
        index: String,
    },
    /// Changes the kind of an index.
    Switch {
        /// The field.
        path: String,
        /// The new kind.
        kind: String,
    },
    /// Makes an index anew from the records.
    Rebuild {
        /// The field.
        path: String,
    },
    /// Continues a change that was interrupted.
    Resume,
}

/// A change of indexes that can be made.
enum Change {
    Add(IndexText),
    Switch(Path, IndexKind),
    Rebuild(Path),
    Resume,
}

impl Change {
    fn new(change: &ChangeIndex) -> Result<Change, Problem> {
        Ok(match change {
            ChangeIndex::Add { index } => Change::Add(
                index
                    .parse()
                    .map_err(|why: String| Problem::bad_request(why))?,
            ),
            ChangeIndex::Switch { path: of, kind } => Change::Switch(path(of)?, kind.parse()?),
            ChangeIndex::Rebuild { path: of } => Change::Rebuild(path(of)?),
            ChangeIndex::Resume => Change::Resume,
        })
    }
}

/// Succeeds if there is such a dataset.
async fn exists(app: &Shared, name: &str) -> Result<(), Problem> {
    let name = name.to_string();
    app.engine
        .run(move |handle| handle.dataset(&name).map(|_| ()))
        .await
}

fn path(text: &str) -> Result<Path, Problem> {
    Path::parse(text).map_err(Problem::bad_request)
}

/// Adds, switches or rebuilds an index while the dataset is in use, or continues such a change.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/indexes", tag = "jobs",
    params(("dataset" = String, Path)), request_body = ChangeIndex,
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn change_index(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
    Document(change, _): Document<ChangeIndex>,
) -> Result<Response, Problem> {
    exists(&app, &name).await?;
    let change = Change::new(&change)?;
    begin(
        &app,
        &caller,
        of_dataset("index", &name),
        move |handle, progress| {
            let dataset = handle.dataset(&name)?;
            let task = match change {
                Change::Add(text) => dataset.add_index(text.path.clone(), text.to_index())?,
                Change::Switch(path, kind) => dataset.switch_index(path, kind)?,
                Change::Rebuild(path) => dataset.rebuild_index(path)?,
                Change::Resume => {
                    let task = dataset.resume_index()?;
                    let task = task.on_progress(|now| progress.report(now.done, now.total));
                    return report(&task.run()?);
                }
            };
            let task = task.on_progress(|now| progress.report(now.done, now.total));
            report(&task.run()?)
        },
    )
}

/// Drops an index, or cancels its unfinished change.
#[utoipa::path(delete, path = "/v1/datasets/{dataset}/indexes/{path}", tag = "datasets",
    params(("dataset" = String, Path), ("path" = String, Path, description = "The field")),
    responses(
        (status = 204, description = "Dropped")
    ))]
pub(super) async fn drop_index(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments((name, of)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    tracing::info!(target: "audit", caller = caller.name(), dataset = name, path = of, "drop index");
    let dropped = app.engine.run(move |handle| {
        handle.dataset(&name)?.drop_index(&path(&of)?)?;
        Ok(())
    });
    dropped.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A maintenance strategy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetMaintenance {
    /// `auto`, `deferred`, `validation`, `mutable-bitmap` or `eager`.
    strategy: String,
}

/// Changes when obsolete index entries are found.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/maintenance", tag = "jobs",
    params(("dataset" = String, Path)), request_body = SetMaintenance,
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn set_maintenance(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
    Document(SetMaintenance { strategy }, _): Document<SetMaintenance>,
) -> Result<Response, Problem> {
    exists(&app, &name).await?;
    let strategy: Option<Maintenance> = match strategy.as_str() {
        "auto" => None,
        other => Some(other.parse()?),
    };
    let purpose = of_dataset("maintenance", &name);
    begin(&app, &caller, purpose, move |handle, progress| {
        let dataset = handle.dataset(&name)?;
        let task = match strategy {
            Some(strategy) => dataset.set_maintenance(strategy)?,
            None => dataset.set_auto()?,
        };
        let task = task.on_progress(|now| progress.report(now.done, now.total));
        report(&task.run()?)
    })
}

/// Finds all obsolete index entries. The document, with settings of the repair, may be left out.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/repair", tag = "jobs",
    params(("dataset" = String, Path)),
    request_body(content = Option<Object>,
                 description = "`{\"method\": \"key\", \"bytes_per_second\": 10000000}`"),
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn repair(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
    body: Body,
) -> Result<Response, Problem> {
    let given: Option<RepairOptions> = if body.bytes.is_empty() {
        None
    } else {
        let read = serde_json::from_slice(&body.bytes);
        read.map_err(|error| Problem::bad_request(error.to_string()))?
    };
    let mut options = given.unwrap_or_default();
    // What a job may take of the machine is bounded, whatever its client wants.
    options.memory = options.memory.min(MOST_MEMORY);
    options.threads = options.threads.min(MOST_THREADS);
    exists(&app, &name).await?;
    begin(
        &app,
        &caller,
        of_dataset("repair", &name),
        move |handle, progress| {
            let task = handle.dataset(&name)?.repair(&options)?;
            let task = task.on_progress(|now| progress.report(now.done, now.total));
            report(&task.run()?)
        },
    )
}

/// Compacts a dataset.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/compact", tag = "jobs",
    params(("dataset" = String, Path)),
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn compact(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
) -> Result<Response, Problem> {
    exists(&app, &name).await?;
    begin(
        &app,
        &caller,
        of_dataset("compact", &name),
        move |handle, _| {
            handle.store().compact(Some(&name))?;
            Ok(Value::Null)
        },
    )
}

/// Deletes expired records now.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/expire", tag = "jobs",
    params(("dataset" = String, Path)),
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn expire(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
) -> Result<Response, Problem> {
    exists(&app, &name).await?;
    begin(
        &app,
        &caller,
        of_dataset("expire", &name),
        move |handle, _| Ok(json!({"deleted": handle.dataset(&name)?.expire_now()?})),
    )
}

fn of_store(job: &'static str) -> Purpose {
    Purpose { job, dataset: None }
}

/// Compacts all datasets.
#[utoipa::path(post, path = "/v1/compact", tag = "jobs",
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn compact_all(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.may_all(Role::Admin)?;
    begin(&app, &caller, of_store("compact"), |handle, _| {
        handle.store().compact(None)?;
        Ok(Value::Null)
    })
}

/// Reads and verifies everything that the store has on disk. Damage is part of the result.
#[utoipa::path(post, path = "/v1/check", tag = "jobs",
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn check(State(app): State<Shared>, caller: Caller) -> Result<Response, Problem> {
    caller.may_all(Role::Admin)?;
    begin(&app, &caller, of_store("check"), |handle, _| {
        report(&handle.store().check()?)
    })
}

/// A backup.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Backup {
    /// The name of its folder, which must not exist, within the folder of backups.
    name: String,
}

/// Copies the store, as it is now, to a new folder within the folder of backups (`backups` in the
/// settings).
#[utoipa::path(post, path = "/v1/backups", tag = "jobs", request_body = Backup,
    responses(
        (status = 202, body = Job, headers(("location" = String, description = "The job")))
    ))]
pub(super) async fn back_up(
    State(app): State<Shared>,
    caller: Caller,
    Document(Backup { name }, _): Document<Backup>,
) -> Result<Response, Problem> {
    caller.may_all(Role::Admin)?;
    let Some(folder) = &app.backups else {
        let detail = "the settings name no folder for backups (`backups = \"/some/folder\"`)";
        return Err(Problem::new(StatusCode::CONFLICT, "no-backups", detail));
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        let detail = format!("`{name}` is no name of a folder: use letters, digits, -, _ and .");
        return Err(Problem::bad_request(detail));
    }
    let to = folder.join(&name);
    begin(&app, &caller, of_store("backup"), move |handle, _| {
        handle.store().backup(&to)?;
        Ok(json!({"folder": to}))
    })
}

/// Jobs, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
}

/// True if the caller may know of a job: one of a dataset that it sees, or, with rights on the
/// whole store, any.
fn sees(caller: &Caller, job: &Job) -> bool {
    match &job.purpose.dataset {
        Some(dataset) => caller.sees(dataset),
        None => caller.may_all(Role::Read).is_ok(),
    }
}

/// The jobs that are running, and the last that have ended.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", responses((status = 200, body = Jobs)))]
pub(super) async fn list(State(app): State<Shared>, caller: Caller) -> Json<Jobs> {
    let mut jobs = app.jobs.list();
    jobs.retain(|job| sees(&caller, job));
    Json(Jobs { jobs })
}

fn seen(app: &Shared, caller: &Caller, id: u64) -> Result<Job, Problem> {
    let job = app.jobs.job(id)?;
    if sees(caller, &job) {
        return Ok(job);
    }
    Err(Problem::not_found(format!("there is no job {id}")))
}

/// A job with its progress.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = u64, Path)),
    responses(
        (status = 200, body = Job)
    ))]
pub(super) async fn get(
    State(app): State<Shared>,
    caller: Caller,
    Segments(id): Segments<u64>,
) -> Result<Json<Job>, Problem> {
    Ok(Json(seen(&app, &caller, id)?))
}

/// Cancels a job: it ends soon. A change of an index can be continued later.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = u64, Path)),
    responses(
        (status = 202, body = Job)
    ))]
pub(super) async fn cancel(
    State(app): State<Shared>,
    caller: Caller,
    Segments(id): Segments<u64>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let job = seen(&app, &caller, id)?;
    match &job.purpose.dataset {
        Some(dataset) => caller.may(Role::Admin, dataset)?,
        None => caller.may_all(Role::Admin)?,
    }
    tracing::info!(target: "audit", caller = caller.name(), id, "cancel job");
    Ok((StatusCode::ACCEPTED, Json(app.jobs.cancel(id)?)))
}
