//! The routes.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::Shared;
use super::{
    around, batches, datasets, feed, find, jobs, levels, live, load, points, read, records, state,
    system, writes,
};
use crate::config::Config;
use crate::dashboard;
use crate::problem::Problem;

/// The routes with their descriptions.
fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(super::document::Document::openapi())
        .routes(routes!(datasets::list))
        .routes(routes!(
            datasets::describe,
            datasets::create,
            datasets::drop
        ))
        .routes(routes!(datasets::rename))
        .routes(routes!(datasets::fields))
        .routes(routes!(find::find, load::load))
        .routes(routes!(find::query))
        .routes(routes!(find::count))
        .routes(routes!(find::aggregate))
        .routes(routes!(find::explain))
        .routes(routes!(points::nearest))
        .routes(routes!(points::cells))
        .routes(routes!(
            records::get,
            records::put,
            records::patch,
            records::delete
        ))
        .routes(routes!(records::versions))
        .routes(routes!(batches::write))
        .routes(routes!(read::read))
        .routes(routes!(read::take))
        .routes(routes!(read::renew, read::end))
        .routes(routes!(feed::poll))
        .routes(routes!(feed::consume))
        .routes(routes!(feed::consumers))
        .routes(routes!(feed::forget))
        .routes(routes!(writes::write))
        .routes(routes!(writes::delete_where))
        .routes(routes!(writes::sync))
        .routes(routes!(writes::notes))
        .routes(routes!(writes::unindexed))
        .routes(routes!(writes::layout))
        .routes(routes!(jobs::change_index))
        .routes(routes!(jobs::drop_index))
        .routes(routes!(jobs::set_maintenance))
        .routes(routes!(jobs::repair))
        .routes(routes!(jobs::compact))
        .routes(routes!(jobs::expire))
        .routes(routes!(jobs::compact_all))
        .routes(routes!(jobs::check))
        .routes(routes!(jobs::back_up))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::cancel))
        .routes(routes!(state::stat))
        .routes(routes!(state::stat_dataset))
        .routes(routes!(state::advise, state::advise_for))
        .routes(routes!(state::usage))
        .routes(routes!(state::snapshot_datasets))
        .routes(routes!(state::unconfirmed, state::confirm_time))
        .routes(routes!(levels::levels))
        .routes(routes!(levels::boxes))
        .routes(routes!(state::set_ttl))
        .routes(routes!(state::snapshots))
        .routes(routes!(state::keep_snapshot, state::drop_snapshot))
        .routes(routes!(state::caller))
        .routes(routes!(live::changes::changes))
        .routes(routes!(live::fence::fence))
        .routes(routes!(live::consumers::list))
        .routes(routes!(live::consumers::forget))
        .routes(routes!(live::consumers::acknowledge))
        .routes(routes!(live::topics::list))
        .routes(routes!(live::topics::publish))
        .routes(routes!(live::topics::records))
        .routes(routes!(live::subscribe::subscribe))
        .routes(routes!(system::health))
        .routes(routes!(system::ready))
        .routes(routes!(system::metrics))
        .routes(routes!(system::document))
}

/// The OpenAPI document of the routes. `has_tokens` is true if the server needs tokens.
pub(crate) fn document(has_tokens: bool) -> Result<String, String> {
    let document = super::document::complete(routes(), has_tokens)?;
    serde_json::to_string(&document).map_err(|error| error.to_string())
}

/// The router of a server. `sockets` are routes that find out by themselves who calls.
pub(crate) fn router(app: Shared, config: &Config, sockets: Router) -> Router {
    let (router, _) = routes().split_for_parts();
    let router = router
        .merge(dashboard::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    let router = match cors(&config.cors.origins) {
        None => router.layer(from_fn_with_state(app.clone(), around::observe_and_pass)),
        // A page may read why its request was refused, and its browser asks without a token.
        Some(cors) => router.layer((
            from_fn_with_state(app.clone(), around::observe),
            cors,
            from_fn_with_state(app.clone(), around::pass),
        )),
    };
    let sockets = sockets.layer(from_fn_with_state(app.clone(), around::observe));
    router.with_state(app).merge(sockets)
}

async fn no_route(request: Request) -> Problem {
    Problem::not_found(format!("there is nothing at {}", request.uri().path()))
}

async fn no_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    let detail = format!("{path} has no method {method}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-method", detail)
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins = origins
        .iter()
        .filter_map(|one| HeaderValue::from_str(one).ok());
    let methods = [
        Method::GET,
        Method::PUT,
        Method::POST,
        Method::PATCH,
        Method::DELETE,
    ];
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods(methods)
            .allow_headers([
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                header::IF_MATCH,
                header::IF_NONE_MATCH,
                HeaderName::from_static("last-event-id"),
            ])
            .expose_headers([header::ETAG, header::LOCATION, header::RETRY_AFTER])
            .max_age(Duration::from_secs(600)),
    )
}
