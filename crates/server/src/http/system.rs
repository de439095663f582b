//! The server itself: whether it lives, whether it serves, and the description of its routes.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use esker::Stop;

use super::app::Shared;
use crate::access::{Caller, Role};
use crate::metrics::Calls;
use crate::problem::Problem;

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "system",
    responses((status = 200, description = "It lives")))]
pub(super) async fn health() -> StatusCode {
    StatusCode::OK
}

/// The store answers.
#[utoipa::path(get, path = "/readyz", tag = "system",
    responses(
        (status = 200, description = "Requests are served")
    ))]
pub(super) async fn ready(State(app): State<Shared>) -> Result<StatusCode, Problem> {
    // Beside the pool, which may be busy: the names are in memory.
    app.engine.handle(&Stop::new()).store().dataset_names()?;
    Ok(StatusCode::OK)
}

/// Measurements of the server and the store, in Prometheus' text form.
#[utoipa::path(get, path = "/metrics", tag = "system",
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text")
    ))]
pub(super) async fn metrics(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.may_all(Role::Read)?;
    let stats = (app.engine)
        .run(|handle| Ok(handle.store().stats()?))
        .await?;
    let calls = Calls {
        running: app.engine.running(),
        waiting: app.engine.waiting(),
        pages: app.pages.sweep(),
        streams: app.live.streams(),
    };
    let text = app.metrics.text(&stats, calls);
    let text = text.map_err(|error| Problem::internal(error.to_string()))?;
    let of_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, of_metrics)], text).into_response())
}

/// The OpenAPI 3.1 document of this interface.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "system",
    responses((status = 200, body = Object)))]
pub(super) async fn document(State(app): State<Shared>) -> Response {
    let of_json = [(header::CONTENT_TYPE, "application/json")];
    (of_json, app.document.clone()).into_response()
}
