//! Questions about points: records by their distance from one, and counts by the cells of a grid.

use axum::Json;
use axum::extract::State;
use esker::{Explain, Expr, Path, Request};
use esker_store::Records;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::app::Shared;
use super::extract::{Params, Reads, Segments};
use super::find::{check_size, projection, selected};
use super::stream::key_json;
use crate::problem::Problem;

/// Which records are sought near a point.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NearestParams {
    /// The field with the points.
    field: String,
    /// The longitude of the point, or its x in a plane.
    x: f64,
    /// The latitude of the point, or its y in a plane.
    y: f64,
    /// The most records.
    #[serde(default = "ten")]
    k: usize,
    /// The largest distance: on the earth in metres.
    max: Option<f64>,
    /// Conditions; all must hold.
    #[serde(rename = "where", default)]
    #[param(rename = "where")]
    conditions: Vec<String>,
    /// Only these fields, as paths with commas between them.
    select: Option<String>,
    /// The keys alone, with their distances.
    #[serde(default)]
    keys_only: bool,
    /// As it was in the snapshot of this name.
    snapshot: Option<String>,
    /// The plan and its costs, too.
    #[serde(default)]
    explain: bool,
}

fn ten() -> usize {
    10
}

/// Records near a point.
#[derive(Serialize, ToSchema)]
pub(super) struct Near {
    /// Nearest first.
    records: Vec<NearRecord>,
    /// The plan and its costs, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    explain: Option<Explain>,
}

/// A record near a point.
#[derive(Serialize, ToSchema)]
pub(super) struct NearRecord {
    /// Its distance: on the earth in metres.
    distance: f64,
    /// The record, but for a request for keys alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    record: Option<Box<RawValue>>,
    /// The key, of a request for keys alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Value>,
}

/// The records nearest to a point.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/nearest", tag = "queries",
    params(("dataset" = String, Path), NearestParams),
    responses(
        (status = 200, body = Near)
    )
)]
pub(super) async fn nearest(
    State(app): State<Shared>,
    _: Reads,
    Segments(dataset): Segments<String>,
    Params(params): Params<NearestParams>,
) -> Result<Json<Near>, Problem> {
    let k = params.k.min(app.limits.rows);
    let near = app.engine.search(move |handle| {
        let moment = handle.moment(&dataset, params.snapshot.as_deref())?;
        let mut request = Request::default();
        for condition in &params.conditions {
            request.filter(condition.parse::<Expr>().map_err(esker::Error::from)?);
        }
        let path = Path::parse(&params.field).map_err(Problem::bad_request)?;
        let paths = params.select.as_deref().map(Path::parse_list).transpose();
        let paths = paths.map_err(Problem::bad_request)?;
        let projection = projection(paths.unwrap_or_default());
        let (found, explain) = Records::nearest(
            &moment,
            &request,
            &path,
            (params.x, params.y),
            k,
            params.max,
        )?;
        check_size(found.iter().map(|one| &one.record))?;
        let mut records = Vec::with_capacity(found.len());
        for one in &found {
            let mut near = NearRecord {
                distance: one.distance,
                record: None,
                key: None,
            };
            if params.keys_only {
                near.key = Some(key_json(one.record.key()));
            } else {
                near.record = Some(selected(&one.record, projection.as_ref())?);
            }
            records.push(near);
        }
        let explain = params.explain.then_some(explain);
        Ok(Near { records, explain })
    });
    Ok(Json(near.await?))
}

/// Which points are counted by the cells of a grid.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CellParams {
    /// The field with the points.
    field: String,
    /// The size of a cell in degrees, or in units of the plane.
    degrees: f64,
    /// Conditions; all must hold.
    #[serde(rename = "where", default)]
    #[param(rename = "where")]
    conditions: Vec<String>,
    /// As it was in the snapshot of this name.
    snapshot: Option<String>,
}

/// Cells with their numbers of records.
#[derive(Serialize, ToSchema)]
pub(super) struct Cells {
    /// Fullest first: `row`, `column` and `count`.
    #[schema(value_type = Vec<Object>)]
    cells: Vec<Value>,
}

/// The number of records in each cell of a grid.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/cells", tag = "queries",
    params(("dataset" = String, Path), CellParams),
    responses(
        (status = 200, body = Cells)
    )
)]
pub(super) async fn cells(
    State(app): State<Shared>,
    _: Reads,
    Segments(dataset): Segments<String>,
    Params(params): Params<CellParams>,
) -> Result<Json<Cells>, Problem> {
    let most = app.limits.rows;
    let cells = app.engine.search(move |handle| {
        let moment = handle.moment(&dataset, params.snapshot.as_deref())?;
        let mut request = Request::default();
        for condition in &params.conditions {
            request.filter(condition.parse::<Expr>().map_err(esker::Error::from)?);
        }
        let path = Path::parse(&params.field).map_err(Problem::bad_request)?;
        let found = Records::cells(&moment, &request, &path, params.degrees)?;
        let cells = found.iter().take(most).map(
            |cell| serde_json::json!({"row": cell.row, "column": cell.column, "count": cell.count}),
        );
        Ok(Cells {
            cells: cells.collect(),
        })
    });
    Ok(Json(cells.await?))
}
