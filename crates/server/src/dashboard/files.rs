//! The files of the pages, and their routes.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// What the page may do: only what it consists of, and requests to this server. `data:` is for the
/// icon.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const PAGE: &str = "/";
const REFERENCE: &str = "/api";
const FILES: &str = "/dashboard/";

/// A file of the page.
struct File {
    name: &'static str,
    body: &'static [u8],
    /// The SHA-256 of its bytes.
    etag: String,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!($name).as_slice())),*]
    };
}

static ALL: LazyLock<Vec<File>> = LazyLock::new(|| {
    let files = files![
        "index.html",
        "reference.html",
        "style.css",
        "reference.css",
        "views.css",
        "app.js",
        "api.js",
        "charts.js",
        "complete.js",
        "consumers.js",
        "datasets.js",
        "dom.js",
        "frame.js",
        "jobs.js",
        "layers.js",
        "live.js",
        "map.js",
        "metrics.js",
        "openapi.js",
        "operation.js",
        "overview.js",
        "plan.js",
        "points.js",
        "query.js",
        "reference.js",
        "sse.js",
        "theme.js",
        "units.js",
        "vendor/uPlot.js",
        "vendor/uPlot.css",
        "vendor/uPlot-LICENSE.txt",
    ];
    let files = files.into_iter().map(|(name, body)| File {
        name,
        body,
        etag: etag(body),
    });
    files.collect()
});

fn etag(body: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in Sha256::digest(body).iter().take(16) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    text
}

/// True for the addresses of the pages and their files.
pub(crate) fn has(path: &str) -> bool {
    path == PAGE || path == REFERENCE || path.starts_with(FILES)
}

/// The routes of the pages. They are no part of the interface that the OpenAPI document describes.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route(PAGE, get(page))
        .route(REFERENCE, get(reference))
        .route(&format!("{FILES}{{*file}}"), get(file))
}

async fn page(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

async fn reference(headers: HeaderMap) -> Response {
    answer("reference.html", &headers)
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    answer(&name, &headers)
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    let Some(file) = ALL.iter().find(|file| file.name == name) else {
        return Problem::not_found(format!("there is nothing at {FILES}{name}")).into_response();
    };
    let always = [
        (header::ETAG, file.etag.as_str()),
        // Asked for anew each time: after an update of the server, its page is the new one.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    if is_known(headers, &file.etag) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    let of_file = [(header::CONTENT_TYPE, content_type(file.name))];
    (always, of_file, Bytes::from_static(file.body)).into_response()
}

/// True if the client has the file with this ETag (`If-None-Match`).
fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}
