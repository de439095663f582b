//! What surrounds the handler of each request: who makes it, how its body and its answer are coded,
//! what is measured.
//!
//! It is one layer: each layer of axum copies the request and allocates several times, and together
//! they cost a small read more than the read itself.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body as HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use esker_client::wire::{QUERY_SECONDS, QUERY_TIME};
use tower_http::compression::Compression;
use tower_http::compression::predicate::{DefaultPredicate, Predicate};
use tower_service::Service;

use super::app::Shared;
use super::{body, etags, origin};
use crate::access::{Caller, Role};
use crate::dashboard;
use crate::metrics::InFlight;
use crate::problem::{Problem, ToOthers};

/// Routes that need no token.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/v1/openapi.json"];

/// Measures a request, and logs it if the settings say so.
pub(super) async fn observe(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let observed = Observed::new(&app, &request);
    let response = next.run(request).await;
    observed.answered(&app, &response);
    response
}

/// Finds out who makes a request, decodes its body, and encodes its answer.
pub(super) async fn pass(State(app): State<Shared>, request: Request, next: Next) -> Response {
    passed(&app, request, next).await
}

/// Both: [`observe`] and [`pass`].
pub(super) async fn observe_and_pass(
    State(app): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let observed = Observed::new(&app, &request);
    let response = passed(&app, request, next).await;
    observed.answered(&app, &response);
    response
}

/// A request that is being answered.
struct Observed {
    _in_flight: InFlight,
    begin: Instant,
    route: Option<MatchedPath>,
    method: axum::http::Method,
    /// The name of the dataset in its address.
    dataset: Option<String>,
    /// If requests are logged.
    path: Option<String>,
}

impl Observed {
    fn new(app: &Shared, request: &Request) -> Observed {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let dataset = route
            .as_ref()
            .and_then(|route| dataset_of(route.as_str(), request.uri().path()));
        Observed {
            _in_flight: app.metrics.asked(),
            begin: Instant::now(),
            dataset: dataset.map(decoded),
            route,
            method: request.method().clone(),
            path: app.logs_requests.then(|| request.uri().path().to_string()),
        }
    }

    fn answered(self, app: &Shared, response: &Response) {
        let (status, took) = (response.status().as_u16(), self.begin.elapsed());
        let (route, method) = (self.route.as_ref().map(MatchedPath::as_str), self.method);
        // Clients choose names: only those of datasets are measured.
        let mut dataset = self.dataset.filter(|_| response.status().is_success());
        if response.extensions().get::<NameGone>().is_some()
            && let Some(gone) = dataset.take()
        {
            app.metrics.forget(&gone);
        }
        app.metrics.answered(route, dataset, &method, status, took);
        if let Some(path) = self.path {
            let millis = took.as_secs_f64() * 1e3;
            tracing::info!(target: "requests", %method, path, status, millis);
        }
    }
}

/// The name of the dataset in a path, if its route has one.
fn dataset_of<'p>(route: &str, path: &'p str) -> Option<&'p str> {
    let mut segments = route.split('/').zip(path.split('/'));
    segments.find_map(|(name, value)| (name == "{dataset}").then_some(value))
}

/// In an answer: no dataset has the name of the address any more.
#[derive(Clone, Copy)]
pub(super) struct NameGone;

/// A segment of an address as it was before it was percent-encoded: one name has many forms.
fn decoded(segment: &str) -> String {
    let (mut out, mut rest) = (Vec::with_capacity(segment.len()), segment.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 16).ok()
        });
        out.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn passed(app: &Shared, mut request: Request, next: Next) -> Response {
    let accepted = accepted(request.headers());
    let known = etags::plain(request.headers_mut());
    let caller = caller(app, &request);
    let response = match caller {
        Ok(caller) => {
            let sees_all = caller.may_all(Role::Read).is_ok();
            request.extensions_mut().insert(caller);
            let mut response = match body::decoded(app.limits.idle, request) {
                Ok(request) => next.run(request).await,
                Err(problem) => problem.into_response(),
            };
            match response.extensions_mut().remove::<ToOthers>() {
                Some(ToOthers(other)) if !sees_all => other.into_response(),
                _ => response,
            }
        }
        Err(problem) => problem.into_response(),
    };
    let mut response = encoded(accepted, response).await;
    etags::by_coding(&mut response, known.as_ref());
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        let value = HeaderValue::from_static(value);
        headers.entry(name).or_insert(value);
    }
    // Esker's client waits as long as a query may take.
    let seconds = app.limits.query_time.as_secs();
    if seconds > QUERY_SECONDS {
        headers.insert(QUERY_TIME, HeaderValue::from(seconds));
    }
    response
}

/// Who makes a request.
///
/// # Errors
/// 401 without a token where one is needed; 403 for the page of another origin; 429 for too many
/// requests with a token.
fn caller(app: &Shared, request: &Request) -> Result<Caller, Problem> {
    let path = request.uri().path();
    if app.tokens.is_empty() {
        // The page may be opened by a link from elsewhere: it tells nothing by itself.
        if !dashboard::has(path) && !origin::is_own(request, &app.origins) {
            let detail = "without tokens, pages of other origins may not use this server";
            return Err(Problem::forbidden(detail));
        }
        return Ok(Caller::anyone());
    }
    match bearer(request.headers()).and_then(|token| app.tokens.caller(token)) {
        Some(caller) => match app.rates.check(&caller.grant().name) {
            Ok(()) => Ok(caller),
            Err(seconds) => {
                let detail = "requests with this token are too many";
                Err(Problem::too_many(detail, seconds))
            }
        },
        None if OPEN.contains(&path) || dashboard::has(path) => Ok(Caller::stranger()),
        None => {
            let detail = "this server needs a token: Authorization: Bearer TOKEN";
            Err(Problem::new(StatusCode::UNAUTHORIZED, "no-token", detail))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The codings that a client takes, if it says so.
fn accepted(headers: &HeaderMap) -> Option<HeaderMap> {
    if !headers.contains_key(header::ACCEPT_ENCODING) {
        return None;
    }
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let pairs = values.map(|value| (header::ACCEPT_ENCODING, value.clone()));
    Some(pairs.collect())
}

/// The answer in a coding that the client takes.
async fn encoded(accepted: Option<HeaderMap>, mut response: Response) -> Response {
    let Some(accepted) = accepted else {
        let headers = response.headers();
        if !headers.contains_key(header::CONTENT_ENCODING)
            && DefaultPredicate::new().should_compress(&response)
        {
            // Another client would have got another answer.
            let by = HeaderValue::from_static("accept-encoding");
            response.headers_mut().append(header::VARY, by);
        }
        return response;
    };
    let mut asked = Request::new(HttpBody::empty());
    *asked.headers_mut() = accepted;
    let Ok(response) = Compression::new(Answer(Some(response))).call(asked).await;
    response.map(HttpBody::new)
}

/// An answer that exists, as a service: compression is a layer around one.
struct Answer(Option<Response>);

impl Service<Request> for Answer {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(self.0.take().unwrap_or_default()))
    }
}
