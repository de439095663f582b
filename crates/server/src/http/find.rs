//! Queries: records by conditions, in pages of one snapshot or as a stream; counts, aggregates and
//! plans.

use std::ops::ControlFlow;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use esker::request::{Aggregate, Aggregation, FieldOrder, GroupBy, Projection};
use esker::space::Latest;
use esker::units::parse_duration;
use esker::{Explain, Expr, Order, PageToken, Path, Request};
use esker_store::Records;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::app::Shared;
use super::body::Document;
use super::extract::{Params, Reads, Segments, accepts};
use super::stream::{KeyLines, Lines, NDJSON, Steps, key_json, ndjson, raw};
use crate::access::Caller;
use crate::pages::Place;
use crate::problem::Problem;

/// The records of a page, if the request does not say.
const USUAL_PAGE: usize = 100;

/// A page ends when it has this many bytes.
const PAGE_BYTES: usize = 16 << 20;

/// What a query asks.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct FindParams {
    /// Conditions, such as `user.name = ann and n > 5`; all must hold.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    conditions: Vec<String>,
    /// `newest` (as without it), `oldest`, `key`, `any`, or fields, as in `delay:desc,dest`.
    order: Option<String>,
    /// Only these fields, as paths with commas between them.
    select: Option<String>,
    /// The most records of the answer; of a page without it 100.
    limit: Option<usize>,
    /// Leaves out so many records, the first in the order.
    offset: usize,
    /// Continues behind the page with this token. Conditions and order must be the same.
    after: Option<String>,
    /// The keys alone.
    keys_only: bool,
    /// As it was in the snapshot of this name.
    snapshot: Option<String>,
    /// Considers only the newest record of each value of this field.
    latest_per: Option<String>,
    /// With `latest_per`: the field with the time of a record.
    time: Option<String>,
    /// With `time`: only records up to this time.
    as_of: Option<String>,
    /// With `as_of`: only records at most this much older, as in `10m`.
    max_age: Option<String>,
    /// The plan and its costs, too.
    explain: bool,
}

impl FindParams {
    /// The request, without its page.
    fn request(&self) -> Result<Request, Problem> {
        let mut request = Request::default();
        for condition in &self.conditions {
            request.filter(condition.parse::<Expr>().map_err(esker::Error::from)?);
        }
        if let Some(order) = &self.order {
            request.order = order.parse::<Order>()?;
        }
        if let Some(paths) = &self.select {
            request.select = Path::parse_list(paths).map_err(Problem::bad_request)?;
        }
        if self.limit == Some(0) {
            return Err(Problem::bad_request("`limit` must be at least 1"));
        }
        request.limit = self.limit;
        request.offset = self.offset;
        request.keys_only = self.keys_only;
        Ok(request)
    }

    /// Of which records the newest of each value count, if the request says.
    fn latest(&self) -> Result<Option<(Path, Latest)>, Problem> {
        let path = |text: &String| Path::parse(text).map_err(Problem::bad_request);
        let Some(per) = self.latest_per.as_ref().map(path).transpose()? else {
            if self.time.is_some() || self.as_of.is_some() || self.max_age.is_some() {
                return Err(Problem::bad_request(
                    "`time`, `as_of` and `max_age` need `latest_per`",
                ));
            }
            return Ok(None);
        };
        let mut latest = match self.time.as_ref().map(path).transpose()? {
            Some(time) => Latest::by_time(time),
            None => Latest::written(),
        };
        if let Some(until) = &self.as_of {
            latest = latest.until(until.clone());
        }
        if let Some(age) = &self.max_age {
            latest = latest.max_age(parse_duration(age).map_err(Problem::bad_request)?);
        }
        Ok(Some((per, latest)))
    }
}

/// A page of an answer.
#[derive(Serialize, ToSchema)]
pub(super) struct Page {
    /// The records, in their order; of a request for keys alone, the keys.
    #[schema(value_type = Vec<Value>)]
    records: Vec<Box<RawValue>>,
    /// The token of the next page (`after`), if there may be one. It is valid for 60 s.
    next: Option<String>,
    /// The plan and its costs, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    explain: Option<Explain>,
}

/// The rows of a page.
struct Rows {
    records: Vec<Box<RawValue>>,
    token: Option<PageToken>,
    explain: Explain,
}

/// Records by conditions: a page as JSON, or with `Accept: application/x-ndjson` all as a stream,
/// one a line.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/records", tag = "queries",
    params(("dataset" = String, Path), FindParams),
    responses(
        (status = 200, content((Page = "application/json"), (String = "application/x-ndjson"))),
        (status = 410, body = Problem, content_type = "application/problem+json",
         description = "The snapshot of the page has gone")
    )
)]
pub(super) async fn find(
    State(app): State<Shared>,
    Reads(caller): Reads,
    Segments(dataset): Segments<String>,
    headers: HeaderMap,
    Params(params): Params<FindParams>,
) -> Result<Response, Problem> {
    answer(app, &caller, dataset, &headers, params).await
}

/// Records by conditions, with the parameters as a document. As `GET .../records`, for conditions
/// that are too long for an address.
#[utoipa::path(
    post, path = "/v1/datasets/{dataset}/query", tag = "queries",
    params(("dataset" = String, Path)), request_body = FindParams,
    responses(
        (status = 200, content((Page = "application/json"), (String = "application/x-ndjson"))),
        (status = 410, body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn query(
    State(app): State<Shared>,
    Reads(caller): Reads,
    Segments(dataset): Segments<String>,
    headers: HeaderMap,
    Document(params, _): Document<FindParams>,
) -> Result<Response, Problem> {
    answer(app, &caller, dataset, &headers, params).await
}

async fn answer(
    app: Shared,
    caller: &Caller,
    dataset: String,
    headers: &HeaderMap,
    params: FindParams,
) -> Result<Response, Problem> {
    if accepts(headers, NDJSON) {
        return streamed(app, dataset, params).await;
    }
    let place = params.after.as_deref().map(Place::parse).transpose()?;
    let number = place.as_ref().map(|place| place.number);
    let kept = number.map(|number| app.pages.moment(number)).transpose()?;
    if kept.as_ref().is_some_and(|kept| kept.name() != dataset) {
        return Err(Problem::bad_request(
            "`after` is the token of another dataset",
        ));
    }
    let most = params.limit.unwrap_or(USUAL_PAGE).min(app.limits.rows);
    let explains = params.explain;
    let (rows, moment) = app
        .engine
        .search(move |handle| {
            let moment = match kept {
                Some(kept) => handle.reads(&kept),
                None => handle.moment(&dataset, params.snapshot.as_deref())?,
            };
            let mut request = params.request()?;
            request.after = place.map(|place| place.token);
            let rows = match params.latest()? {
                Some(latest) => latest_rows(&moment, request, latest, most)?,
                None => rows(&moment, request, most)?,
            };
            Ok((rows, moment))
        })
        .await?;
    let next = match (rows.token, number) {
        (Some(token), Some(number)) => Some(Place { number, token }.text()),
        (Some(token), None) => {
            let number = app.pages.keep(moment, caller.name());
            Some(Place { number, token }.text())
        }
        // The last page may be asked for again: its snapshot goes with its time.
        (None, _) => None,
    };
    let page = Page {
        records: rows.records,
        next,
        explain: explains.then_some(rows.explain),
    };
    Ok(Json(page).into_response())
}

/// At most so many rows of a request, and the place behind them if there are more.
fn rows(records: &dyn Records, mut request: Request, most: usize) -> Result<Rows, Problem> {
    // One more shows whether there is a next page.
    request.limit = Some(most.saturating_add(1));
    let mut page = Rows {
        records: Vec::new(),
        token: None,
        explain: Explain::default(),
    };
    let mut bytes = 0;
    if request.keys_only {
        let mut keys = records.keys(&request)?;
        while let Some(key) = keys.next().transpose()? {
            if page.records.len() == most {
                page.explain = keys.explain();
                return Ok(page);
            }
            page.records
                .push(raw(key_json(&key).to_string().as_bytes())?);
            if page.records.len() == most {
                page.token = keys.token();
            }
        }
        page.explain = keys.explain();
    } else {
        let mut answer = records.find(&request)?;
        while let Some(record) = answer.next().transpose()? {
            if page.records.len() == most || bytes > PAGE_BYTES {
                page.explain = answer.explain();
                return Ok(page);
            }
            bytes += record.json().len();
            page.records.push(raw(record.json())?);
            page.token = answer.token();
        }
        page.explain = answer.explain();
    }
    // There is nothing behind the last row.
    page.token = None;
    Ok(page)
}

/// Refuses an answer without pages that would be too large.
pub(super) fn check_size<'r>(
    records: impl Iterator<Item = &'r esker::Record>,
) -> Result<(), Problem> {
    let bytes: usize = records.map(|record| record.json().len()).sum();
    if bytes <= PAGE_BYTES {
        return Ok(());
    }
    let detail = "the records of the answer are too large together: ask for fewer";
    Err(Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "too-large",
        detail,
    ))
}

/// What keeps these fields of a record; without fields, nothing is left out.
pub(super) fn projection(paths: Vec<Path>) -> Option<Projection> {
    (!paths.is_empty()).then(|| Projection::new(&paths))
}

/// What is selected of a record.
pub(super) fn selected(
    record: &esker::Record,
    projection: Option<&Projection>,
) -> Result<Box<RawValue>, Problem> {
    match projection {
        Some(projection) => raw(&projection.apply(record.json())?),
        None => raw(record.json()),
    }
}

/// The newest records of each value: they have no pages.
fn latest_rows(
    records: &dyn Records,
    mut request: Request,
    (path, latest): (Path, Latest),
    most: usize,
) -> Result<Rows, Problem> {
    if request.after.is_some() {
        return Err(Problem::bad_request(
            "`latest_per` has no pages: give `limit` and `offset`",
        ));
    }
    let keys_only = std::mem::take(&mut request.keys_only);
    let projection = projection(std::mem::take(&mut request.select));
    request.limit = Some(most);
    let (found, explain) = records.latest_per(&request, &path, &latest)?;
    check_size(found.iter())?;
    let rows = found.iter().map(|record| {
        if keys_only {
            raw(key_json(record.key()).to_string().as_bytes())
        } else {
            selected(record, projection.as_ref())
        }
    });
    Ok(Rows {
        records: rows.collect::<Result<_, _>>()?,
        token: None,
        explain,
    })
}

/// All records of a request, or its keys, one a line.
async fn streamed(app: Shared, dataset: String, params: FindParams) -> Result<Response, Problem> {
    if params.after.is_some() || params.explain || params.latest_per.is_some() {
        let detail = "an answer of lines has no `after`, `explain` or `latest_per`";
        return Err(Problem::bad_request(detail));
    }
    let ends = app.engine.lasting_request();
    let handle = app.engine.handle(&ends.stop());
    let stop = ends.stop();
    let rows = app.engine.next_step(&stop, move || {
        let moment = handle.moment(&dataset, params.snapshot.as_deref())?;
        let request = params.request()?;
        let rows: Box<dyn Steps> = if params.keys_only {
            Box::new(KeyLines(Records::keys(&moment, &request)?))
        } else {
            Box::new(Lines(Records::find(&moment, &request)?))
        };
        Ok(rows)
    });
    let rows = rows.await?;
    ndjson(app, ends, rows).await
}

/// A number of records.
#[derive(Serialize, ToSchema)]
pub(super) struct Count {
    count: u64,
    /// The plan and its costs, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    explain: Option<Explain>,
}

/// The number of records that meet conditions.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/count", tag = "queries",
    params(("dataset" = String, Path), FindParams),
    responses(
        (status = 200, body = Count)
    )
)]
pub(super) async fn count(
    State(app): State<Shared>,
    _: Reads,
    Segments(dataset): Segments<String>,
    Params(params): Params<FindParams>,
) -> Result<Json<Count>, Problem> {
    let counted = app.engine.search(move |handle| {
        if params.after.is_some() {
            return Err(Problem::bad_request("a count has no pages"));
        }
        let moment = handle.moment(&dataset, params.snapshot.as_deref())?;
        let request = params.request()?;
        let (count, explain) = match params.latest()? {
            Some((path, latest)) => {
                let (found, explain) = Records::latest_per(&moment, &request, &path, &latest)?;
                (found.len() as u64, explain)
            }
            None => Records::count(&moment, &request)?,
        };
        let explain = params.explain.then_some(explain);
        Ok(Count { count, explain })
    });
    Ok(Json(counted.await?))
}

/// How a request would be answered.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/explain", tag = "queries",
    params(("dataset" = String, Path), FindParams),
    responses(
        (status = 200, body = Object, description = "The plan with its estimates")
    )
)]
pub(super) async fn explain(
    State(app): State<Shared>,
    _: Reads,
    Segments(dataset): Segments<String>,
    Params(params): Params<FindParams>,
) -> Result<Json<Explain>, Problem> {
    let explained = app.engine.search(move |handle| {
        let moment = handle.moment(&dataset, params.snapshot.as_deref())?;
        Ok(Records::explain(&moment, &params.request()?)?)
    });
    Ok(Json(explained.await?))
}

/// What an aggregation asks.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AggregateParams {
    /// Aggregates with commas between them: `count,avg(delay),p95(delay)`.
    agg: String,
    /// Conditions; all must hold.
    #[serde(rename = "where", default)]
    #[param(rename = "where")]
    conditions: Vec<String>,
    /// The fields that form groups, each perhaps with a period: `time/1d,dir`.
    by: Option<String>,
    /// The order of the groups, by columns: `count:desc`.
    order: Option<String>,
    /// The most groups.
    limit: Option<usize>,
    /// As it was in the snapshot of this name.
    snapshot: Option<String>,
    /// The plan and its costs, too.
    #[serde(default)]
    explain: bool,
}

/// Groups with their aggregates.
#[derive(Serialize, ToSchema)]
pub(super) struct Groups {
    /// One object a group.
    #[schema(value_type = Vec<Object>)]
    groups: Vec<Box<RawValue>>,
    /// True if there are more groups than an answer may have.
    has_more: bool,
    /// The plan and its costs, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    explain: Option<Explain>,
}

/// Aggregates of groups of records.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/aggregate", tag = "queries",
    params(("dataset" = String, Path), AggregateParams),
    responses(
        (status = 200, body = Groups),
        (status = 422, body = Problem, content_type = "application/problem+json",
         description = "A sum cannot be represented")
    )
)]
pub(super) async fn aggregate(
    State(app): State<Shared>,
    _: Reads,
    Segments(dataset): Segments<String>,
    Params(params): Params<AggregateParams>,
) -> Result<Json<Groups>, Problem> {
    let most = app.limits.rows;
    let grouped = app.engine.search(move |handle| {
        let moment = handle.moment(&dataset, params.snapshot.as_deref())?;
        let mut aggregation = Aggregation::new(Aggregate::parse_list(&params.agg)?);
        let mut request = Request::default();
        for condition in &params.conditions {
            request.filter(condition.parse::<Expr>().map_err(esker::Error::from)?);
        }
        aggregation.condition = request.condition;
        if let Some(by) = &params.by {
            aggregation.by = GroupBy::parse_list(by)?;
        }
        if let Some(order) = &params.order {
            aggregation.order = FieldOrder::parse_list(order)?;
        }
        aggregation.limit = params.limit;
        let (mut groups, mut has_more, mut bad) = (Vec::new(), false, None);
        let explain = Records::aggregate(&moment, &aggregation, &mut |group| {
            if groups.len() == most {
                has_more = true;
                return ControlFlow::Break(());
            }
            match raw(group.to_json().as_bytes()) {
                Ok(group) => {
                    groups.push(group);
                    ControlFlow::Continue(())
                }
                Err(problem) => {
                    bad = Some(problem);
                    ControlFlow::Break(())
                }
            }
        })?;
        match bad {
            Some(problem) => Err(problem),
            None => Ok(Groups {
                groups,
                has_more,
                explain: params.explain.then_some(explain),
            }),
        }
    });
    Ok(Json(grouped.await?))
}
