//! Reads of a dataset for clients that need what JSON lines do not have: keys, sequence numbers,
//! plans, one moment for several reads. The client of Esker itself uses it (`esker-client`).

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use esker::{DatasetDef, Error, Explain, Key, Record, Request};
use esker_client::wire::{self, At, End, FRAMES, Read, ReadAt};
use esker_store::{Records, VersionRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::app::Shared;
use super::body::Document;
use super::extract::{Reads, Segments};
use super::rows::{self, Found};
use super::stream::{Steps, streamed};
use crate::access::{Caller, Role};
use crate::engine::Handle;
use crate::pages::{Moment, number_of, text_of};
use crate::problem::Problem;

/// Which moment is taken.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Take {
    /// That of the snapshot of this name; now without it.
    #[serde(default)]
    snapshot: Option<String>,
}

/// A moment of a dataset.
#[derive(Serialize, ToSchema)]
pub(super) struct Taken {
    /// Its name, for reads. It is kept for 60 s after its last use.
    moment: String,
    /// The definition of the dataset then, in full.
    #[schema(value_type = Object)]
    definition: DatasetDef,
}

/// Keeps a dataset as it is now, or in a named snapshot, for several reads.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/moments", tag = "client",
    params(("dataset" = String, Path)), request_body = Take,
    responses(
        (status = 200, body = Taken)
    ))]
pub(super) async fn take(
    State(app): State<Shared>,
    Reads(caller): Reads,
    Segments(dataset): Segments<String>,
    Document(Take { snapshot }, _): Document<Take>,
) -> Result<Json<Taken>, Problem> {
    let taken = (app.engine).run(move |handle| handle.moment(&dataset, snapshot.as_deref()));
    let moment = taken.await?;
    let definition = moment.def();
    let moment = text_of(app.pages.keep(moment, caller.name()));
    Ok(Json(Taken { moment, definition }))
}

/// The moment of a name, if the caller may read its dataset.
fn seen(app: &Shared, caller: &Caller, name: &str) -> Result<(u64, Moment), Problem> {
    let number = number_of(name)?;
    let moment = app.pages.moment(number)?;
    caller.may(Role::Read, &moment.name())?;
    Ok((number, moment))
}

/// Keeps a moment for 60 s more.
#[utoipa::path(put, path = "/v1/moments/{moment}", tag = "client",
    params(("moment" = String, Path)),
    responses(
        (status = 204, description = "Kept"),
        (status = 410, body = Problem, content_type = "application/problem+json")
    ))]
pub(super) async fn renew(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
) -> Result<StatusCode, Problem> {
    seen(&app, &caller, &name)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a moment.
#[utoipa::path(delete, path = "/v1/moments/{moment}", tag = "client",
    params(("moment" = String, Path)),
    responses(
        (status = 204, description = "Ended"),
        (status = 410, body = Problem, content_type = "application/problem+json")
    ))]
pub(super) async fn end(
    State(app): State<Shared>,
    caller: Caller,
    Segments(name): Segments<String>,
) -> Result<StatusCode, Problem> {
    let (number, _) = seen(&app, &caller, &name)?;
    app.pages.end(number);
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a dataset, and answers with frames: `{"at": "now", "read": {"find": {"request": {...}}}}`.
/// For the client of Esker; its crate describes the documents and the frames (`wire`).
#[utoipa::path(post, path = "/v1/datasets/{dataset}/read", tag = "client",
    params(("dataset" = String, Path)),
    request_body(content = Object, description = "What is read, and when"),
    responses(
        (status = 200, body = String, content_type = FRAMES),
        (status = 410, body = Problem, content_type = "application/problem+json",
         description = "The moment has gone")
    ))]
pub(super) async fn read(
    State(app): State<Shared>,
    Reads(caller): Reads,
    Segments(dataset): Segments<String>,
    Document(ReadAt { at, read }, _): Document<ReadAt>,
) -> Result<Response, Problem> {
    let kept = match &at {
        At::Moment(name) => Some(seen(&app, &caller, name)?.1),
        _ => None,
    };
    if kept.as_ref().is_some_and(|kept| kept.name() != dataset) {
        return Err(Problem::bad_request(
            "the moment is that of another dataset",
        ));
    }
    let moment = move |handle: &Handle| match (&kept, &at) {
        (Some(kept), _) => Ok(handle.reads(kept)),
        (None, At::Snapshot(name)) => handle.moment(&dataset, Some(name)),
        (None, _) => handle.moment(&dataset, None),
    };
    match read {
        Read::Visit { request } => {
            let ends = app.engine.lasting_request();
            let visit = move |handle: &Handle, sink: &mut rows::Sink| {
                let mut add = |record: Record| sink.add(|out| rows::record(&record, out));
                Ok(Records::visit(&moment(handle)?, &request, &mut add)?)
            };
            rows::called_back(app, ends, visit).await
        }
        Read::Aggregate { aggregation } => {
            let ends = app.engine.request();
            let visit = move |handle: &Handle, sink: &mut rows::Sink| {
                let mut encoded = Vec::new();
                let mut add = |group: esker::request::Group| {
                    encoded.clear();
                    group.encode(&mut encoded);
                    sink.add(|out| rows::frame(wire::GROUP, &encoded, out))
                };
                Ok(Records::aggregate(
                    &moment(handle)?,
                    &aggregation,
                    &mut add,
                )?)
            };
            rows::called_back(app, ends, visit).await
        }
        read => {
            // What is streamed may take as long as its client does.
            let is_streamed = matches!(
                read,
                Read::Find { .. } | Read::Keys { .. } | Read::Scan { .. }
            );
            let ends = if is_streamed {
                app.engine.lasting_request()
            } else {
                app.engine.request()
            };
            let handle = app.engine.handle(&ends.stop());
            let most = app.limits.rows;
            let steps = app
                .engine
                .search_step(move || answer(moment(&handle)?, read, most));
            let steps = steps.await?;
            streamed(app, ends, steps, FRAMES).await
        }
    }
}

/// Reads keys from their texts.
fn keys(records: &Moment, texts: &[String]) -> Result<Vec<Key>, Error> {
    texts.iter().map(|text| records.parse_key(text)).collect()
}

/// The answer to a read.
fn answer(records: Moment, read: Read, most: usize) -> Result<Box<dyn Steps>, Problem> {
    match read {
        Read::Find { request } => Ok(Found::records(Records::find(&records, &request)?)),
        Read::Keys { request } => Ok(Found::keys(Records::keys(&records, &request)?)),
        Read::Scan { from, to, reverse } => {
            let key = |text: &str| records.parse_key(text);
            let range = (from.read(key)?, to.read(key)?);
            Ok(Found::records(Records::scan(&records, range, reverse)?))
        }
        Read::Get { keys: texts } => {
            let keys = keys(&records, &texts)?;
            // Those of a group are looked up together, and in memory together.
            let groups: Vec<Vec<Key>> = keys.chunks(GROUP).map(<[Key]>::to_vec).collect();
            Ok(rows::each(groups, move |keys, out| {
                for found in Records::get_many(&records, &keys)? {
                    match found {
                        Some(found) => rows::record(&found, out)?,
                        None => rows::frame(wire::NONE, &[], out)?,
                    }
                }
                Ok(())
            }))
        }
        Read::Versions {
            keys: texts,
            as_of,
            most: wanted,
        } => {
            let keys = keys(&records, &texts)?;
            Ok(rows::each(keys, move |key, out| {
                for version in Records::versions(&records, &key, as_of, wanted)? {
                    rows::record(&version, out)?;
                }
                rows::frame(wire::NONE, &[], out)
            }))
        }
        Read::Count { request } => one(&Records::count(&records, &request)?),
        Read::Explain { request } => one(&Records::explain(&records, &request)?),
        Read::TableBoxes { path } => one(&Records::table_boxes(&records, &path)?),
        Read::Fields => {
            let encoded = Records::fields(&records)?.map(|fields| {
                let mut encoded = Vec::new();
                fields.encode(&mut encoded);
                wire::hex(&encoded)
            });
            one(&encoded)
        }
        gathered => in_memory(&records, gathered, most),
    }
}

/// The answer to a read whose rows are in memory together.
fn in_memory(records: &Moment, read: Read, most: usize) -> Result<Box<dyn Steps>, Problem> {
    match read {
        Read::VersionsWith {
            tokens,
            as_of,
            versions,
            limit,
            after,
        } => {
            bounded(limit, most)?;
            let asked = VersionRequest {
                tokens,
                as_of,
                versions,
                limit,
                after,
            };
            let page = Records::versions_with(records, &asked)?;
            let end = End {
                next: page.next,
                ..End::default()
            };
            rows::made(
                |out| {
                    page.records
                        .iter()
                        .try_for_each(|one| rows::record(one, out))
                },
                &end,
            )
        }
        Read::Nearest {
            request,
            path,
            from,
            k,
            max,
        } => {
            bounded(k, most)?;
            near(
                Records::nearest(records, &request, &path, from, k, max)?,
                most,
            )
        }
        Read::ByDistance {
            request,
            path,
            from,
        } => {
            let request = limited(request, most);
            near(Records::by_distance(records, &request, &path, from)?, most)
        }
        Read::LatestPer {
            request,
            path,
            latest,
        } => {
            let request = limited(request, most);
            let (found, explain) = Records::latest_per(records, &request, &path, &latest)?;
            bounded(found.len(), most)?;
            let put = |out: &mut Vec<u8>| found.iter().try_for_each(|one| rows::record(one, out));
            rows::made(put, &explained(explain))
        }
        Read::Cells {
            request,
            path,
            degrees,
        } => {
            let cells = Records::cells(records, &request, &path, degrees)?;
            Ok(rows::each(cells, |cell, out| {
                rows::document(wire::JSON, &cell, out)
            }))
        }
        _ => Err(Problem::internal("this read is answered elsewhere")),
    }
}

/// Records that are looked up together.
const GROUP: usize = 256;

/// The request for at most one record more than a page may have: it is refused then, and not cut
/// off.
fn limited(mut request: Request, most: usize) -> Request {
    let wanted = request.limit.unwrap_or(usize::MAX);
    request.limit = Some(wanted.min(most.saturating_add(1)));
    request
}

fn bounded(rows: usize, most: usize) -> Result<(), Problem> {
    if rows <= most {
        return Ok(());
    }
    Err(Problem::bad_request(format!(
        "this server gives at most {most} such records at a time (`rows` in its settings): ask for fewer, with a limit"
    )))
}

fn explained(explain: Explain) -> End {
    End {
        explain,
        ..End::default()
    }
}

/// The answer that is one document.
fn one(of: &impl Serialize) -> Result<Box<dyn Steps>, Problem> {
    rows::made(|out| rows::document(wire::JSON, of, out), &End::default())
}

fn near(
    (found, explain): (Vec<esker::space::Neighbour>, Explain),
    most: usize,
) -> Result<Box<dyn Steps>, Problem> {
    bounded(found.len(), most)?;
    let put = |out: &mut Vec<u8>| {
        found.iter().try_for_each(|one| {
            wire::put_near(one.distance, &one.record, out).map_err(Problem::internal)
        })
    };
    rows::made(put, &explained(explain))
}
