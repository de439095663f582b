//! Datasets: listed, described, created, renamed and dropped.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use esker::Key;
use esker::schema::DefinitionDocument;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::app::Shared;
use super::around::NameGone;
use super::body::Document;
use super::extract::{Administers, Reads, Segments};
use crate::access::{Caller, Role};
use crate::problem::Problem;

/// The datasets that the caller may read.
#[derive(Serialize, ToSchema)]
pub(super) struct Datasets {
    datasets: Vec<Dataset>,
}

/// A dataset.
#[derive(Serialize, ToSchema)]
pub(super) struct Dataset {
    name: String,
    /// Its definition, as it is given to create one.
    #[schema(value_type = Object)]
    definition: DefinitionDocument,
}

/// The datasets that the caller may read.
#[utoipa::path(get, path = "/v1/datasets", tag = "datasets",
    responses((status = 200, body = Datasets)))]
pub(super) async fn list(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Json<Datasets>, Problem> {
    let datasets = app.engine.run(move |handle| {
        let mut datasets = Vec::new();
        for name in handle.store().dataset_names()? {
            if !caller.sees(&name) {
                continue;
            }
            match handle.store().dataset(&name) {
                Ok(dataset) => {
                    let definition = DefinitionDocument::of(&dataset.def());
                    datasets.push(Dataset { name, definition });
                }
                // It was dropped meanwhile.
                Err(esker::Error::UnknownDataset { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Datasets { datasets })
    });
    Ok(Json(datasets.await?))
}

/// A dataset and its definition.
#[utoipa::path(get, path = "/v1/datasets/{dataset}", tag = "datasets",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Dataset)
    ))]
pub(super) async fn describe(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Dataset>, Problem> {
    let described = app.engine.run(move |handle| {
        let definition = DefinitionDocument::of(&handle.dataset(&name)?.def());
        Ok(Dataset { name, definition })
    });
    Ok(Json(described.await?))
}

/// Creates a dataset. It may exist with the same definition.
#[utoipa::path(put, path = "/v1/datasets/{dataset}", tag = "datasets",
    params(("dataset" = String, Path)),
    request_body(content = Object, description = "`{\"key\": \"id:int\", \"indexes\": [\"user.name:recent:string\"]}`"),
    responses(
        (status = 200, body = Dataset, description = "It exists with this definition"),
        (status = 201, body = Dataset),
        (status = 409, body = Problem, content_type = "application/problem+json",
         description = "It exists with another definition")
    ))]
pub(super) async fn create(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
    Document(definition, _): Document<DefinitionDocument>,
) -> Result<(StatusCode, Json<Dataset>), Problem> {
    tracing::info!(target: "audit", caller = caller.name(), dataset = name, "create dataset");
    let created = app.engine.run(move |handle| {
        let def = definition.to_def()?;
        let created = match handle.store().create_dataset(&name, def.clone()) {
            Ok(_) => StatusCode::CREATED,
            Err(esker::Error::Exists(_)) if handle.dataset(&name)?.def() == def => StatusCode::OK,
            Err(error) => return Err(error.into()),
        };
        let definition = DefinitionDocument::of(&def);
        Ok((created, Json(Dataset { name, definition })))
    });
    created.await
}

/// Drops a dataset with its records, indexes and consumers of changes, for good.
#[utoipa::path(delete, path = "/v1/datasets/{dataset}", tag = "datasets",
    params(("dataset" = String, Path)),
    responses(
        (status = 204, description = "Dropped")
    ))]
pub(super) async fn drop(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
) -> Result<Response, Problem> {
    tracing::info!(target: "audit", caller = caller.name(), dataset = name, "drop dataset");
    let shared = app.clone();
    let dropped = app.engine.run(move |handle| {
        let number = handle.db().dataset::<Key>(&name)?.number();
        handle.store().drop_dataset(&name)?;
        shared.live.consumers.dropped(number);
        Ok(())
    });
    dropped.await?;
    Ok((Extension(NameGone), StatusCode::NO_CONTENT).into_response())
}

/// Another name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rename {
    to: String,
}

/// Gives a dataset another name.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/rename", tag = "datasets",
    params(("dataset" = String, Path)), request_body = Rename,
    responses(
        (status = 204, description = "Renamed")
    ))]
pub(super) async fn rename(
    State(app): State<Shared>,
    Administers(caller): Administers,
    Segments(name): Segments<String>,
    Document(Rename { to }, _): Document<Rename>,
) -> Result<Response, Problem> {
    caller.may(Role::Admin, &to)?;
    tracing::info!(target: "audit", caller = caller.name(), dataset = name, to, "rename dataset");
    let shared = app.clone();
    let renamed = app.engine.run(move |handle| {
        handle.store().rename_dataset(&name, &to)?;
        shared.jobs.renamed(&name, &to);
        Ok(())
    });
    renamed.await?;
    Ok((Extension(NameGone), StatusCode::NO_CONTENT).into_response())
}

/// The fields of a dataset's records.
#[derive(Serialize, ToSchema)]
pub(super) struct Fields {
    fields: Vec<Field>,
    /// True if records have more fields than are kept.
    has_more: bool,
}

/// A field of records.
#[derive(Serialize, ToSchema)]
pub(super) struct Field {
    /// Its path; `tags[]` are the elements of an array `tags`.
    path: String,
    /// The JSON types of its values.
    types: Vec<String>,
}

/// The fields of all records, from statistics that are kept with the data.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/fields", tag = "datasets",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Fields)
    ))]
pub(super) async fn fields(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Fields>, Problem> {
    let fields = app.engine.run(move |handle| {
        let known = handle.dataset(&name)?.fields()?.unwrap_or_default();
        let field = |field: esker::schema::Field<'_>| Field {
            path: field.path().to_string(),
            types: field.types().names().map(str::to_string).collect(),
        };
        let fields = known.list().map(field).collect();
        let has_more = known.has_more();
        Ok(Fields { fields, has_more })
    });
    Ok(Json(fields.await?))
}
