//! `within` and `near`: points in an area, and nearest to a point.

use esker::space::{CellCount, Neighbour};
use esker::{AreaExpr, Explain, Order, Path, Request, Type, field};
use esker_store::Records;

use super::fields::{Queried, note_unknown};
use super::query::{answer, conditions, filtered, note_what_a_scan_read, paths};
use super::{latest, plan};
use crate::args::{AreaArgs, AreaOrder, NearArgs, QueryArgs, WithinArgs};
use crate::failure::{Failure, Outcome};
use crate::nearest::meant;
use crate::output::{Output, counted, note};
use crate::rows::Rows;
use crate::store::{dataset_at, open_to_read};

/// `esker within DIR DATASET PATH --rect=W,S,E,N | --circle=LON,LAT,METRES | --polygon FILE`
pub(crate) fn within(args: &WithinArgs, memory: usize) -> Result<Outcome, Failure> {
    let area = area(&args.area)?;
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, args.query.snapshot.as_deref())?;
    let conditions = conditions(&args.conditions)?;
    let inside = field(&args.path).within(area.clone());
    let mut request = Request::of(inside);
    for condition in &conditions {
        request.filter(condition.clone());
    }
    let mut queried = paths(&conditions);
    queried.extend(fields_of(&args.path));
    if args.count && args.latest.latest_per.is_none() {
        return count(&*dataset, request, args, &queried);
    }
    if let Some(degrees) = args.cells {
        let mut output = Output::new();
        let cells = dataset.cells(&request, &args.path, degrees)?;
        let most = args.query.limit.unwrap_or(usize::MAX);
        let mut printed = 0;
        for cell in cells.iter().take(most) {
            output.line(cell_with_its_place(cell, degrees))?;
            printed += 1;
        }
        output.finish()?;
        return Ok(Outcome::found(printed));
    }
    request.limit = args.query.limit;
    request.validation = args.query.validation;
    queried.extend(latest::paths(&args.latest));
    let asked = latest::Asked {
        latest: &args.latest,
        counts: args.count,
    };
    let found = match latest::answer(&*dataset, &request, &asked, &args.query)? {
        Some(found) => found,
        None => ordered(&*dataset, request, &area, args)?,
    };
    let queried = Queried::by(&conditions, queried);
    queried.note(&*dataset, found)?;
    Ok(found)
}

/// `esker near DIR DATASET PATH LON,LAT --k N [--max METRES]`
pub(crate) fn near(args: &NearArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, args.query.snapshot.as_deref())?;
    let conditions = conditions(&args.conditions)?;
    let mut request = filtered(&conditions);
    request.validation = args.query.validation;
    let [x, y] = args.point;
    let most = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
    let k = most(args.k).min(most(args.query.limit));
    note_no_index(&*dataset, &args.path);
    let (near, plan) = dataset.nearest(&request, &args.path, (x, y), k, args.max)?;
    if plan.steps.scanned > 0 {
        let read = counted(plan.steps.scanned, "record");
        note(format_args!("note: the scan read {read}"));
    }
    let found = neighbours(&near, plan, &args.query)?;
    let mut queried = paths(&conditions);
    queried.extend(fields_of(&args.path));
    let queried = Queried::by(&conditions, queried);
    queried.note(&*dataset, found)?;
    Ok(found)
}

/// The fields that hold a point: one, or the two of `LON_PATH,LAT_PATH`.
fn fields_of(point: &Path) -> Vec<Path> {
    let text = point.to_string();
    text.split(',')
        .filter_map(|path| path.parse().ok())
        .collect()
}

/// The area given by the arguments.
fn area(args: &AreaArgs) -> Result<AreaExpr, Failure> {
    match (args.rect, args.circle, &args.polygon) {
        (Some([west, south, east, north]), _, _) => Ok(AreaExpr::rect(west, south, east, north)),
        (_, Some([x, y, metres]), _) => Ok(AreaExpr::circle(x, y, metres)),
        (_, _, Some(file)) => {
            let text = esker_import::read_text(file)?;
            Ok(AreaExpr::geojson(text))
        }
        _ => Err(Failure::Usage(
            "give an area: --rect=W,S,E,N, --circle=LON,LAT,METRES or --polygon FILE".to_string(),
        )),
    }
}

fn count(
    dataset: &dyn Records,
    mut request: Request,
    args: &WithinArgs,
    queried: &[Path],
) -> Result<Outcome, Failure> {
    request.limit = args.query.limit;
    request.validation = args.query.validation;
    let (count, plan) = dataset.count(&request)?;
    plan::notes(args.query.explain, &plan);
    note_what_a_scan_read(&plan, None);
    plan::explain(args.query.explain, || plan);
    let mut output = Output::new();
    output.line(count)?;
    output.finish()?;
    if count == 0 {
        note_unknown(dataset, queried, &[])?;
    }
    Ok(Outcome::Done)
}

fn ordered(
    dataset: &dyn Records,
    mut request: Request,
    area: &AreaExpr,
    args: &WithinArgs,
) -> Result<Outcome, Failure> {
    request.after.clone_from(&args.after);
    request.order = match args.order {
        AreaOrder::Distance => {
            let (near, plan) = dataset.by_distance(&request, &args.path, area.middle()?)?;
            return neighbours(&near, plan, &args.query);
        }
        AreaOrder::Newest => Order::Newest,
        AreaOrder::Oldest => Order::Oldest,
        AreaOrder::Any => Order::Any,
    };
    answer(dataset, request, &args.query)
}

/// A cell with its south-west corner and its size in degrees.
fn cell_with_its_place(cell: &CellCount, degrees: f64) -> serde_json::Value {
    // Removes errors of binary fractions.
    let rounded = |degrees: f64| match (degrees * 1e9).round() / 1e9 {
        whole if whole.fract() == 0.0 => serde_json::Value::from(whole as i64),
        other => serde_json::Value::from(other),
    };
    let at = |number: i64, from: f64| rounded(number as f64 * degrees + from);
    serde_json::json!({
        "row": cell.row,
        "column": cell.column,
        "count": cell.count,
        "west": at(cell.column, -180.0),
        "south": at(cell.row, -90.0),
        "degrees": rounded(degrees),
    })
}

/// Notes that the answer needs a scan, because the points have no index; the path may be swapped or
/// mistyped.
fn note_no_index(dataset: &dyn Records, path: &Path) {
    let def = dataset.def();
    let indexed = def.indexes.iter().filter(|index| {
        let is_point = matches!(index.ty, Type::Point | Type::PlanePoint);
        is_point && index.kind.is_indexed()
    });
    let indexed: Vec<String> = indexed.map(|index| index.path.to_string()).collect();
    let wanted = path.to_string();
    let is_of_path = |path: &String| path == &wanted || wanted.starts_with(&format!("{path}@"));
    if indexed.iter().any(is_of_path) {
        return;
    }
    let swapped = wanted.split_once(',').map(|(x, y)| format!("{y},{x}"));
    let meant = match indexed.iter().find(|path| Some(*path) == swapped.as_ref()) {
        Some(path) => format!(": did you mean `{path}`?"),
        None => meant(&wanted, indexed.iter().map(String::as_str)),
    };
    note(format_args!(
        "note: no index on `{wanted}`: answered by a scan{meant}"
    ));
}

/// Prints records with their distances, in the last field or column. Distances on the earth are in
/// metres, rounded to millimetres.
fn neighbours(near: &[Neighbour], plan: Explain, args: &QueryArgs) -> Result<Outcome, Failure> {
    if args.keys_only {
        let mut output = Output::new();
        for near in near {
            output.line(near.record.key())?;
        }
        output.finish()?;
    } else {
        let mut rows = Rows::new(&args.rows);
        for near in near {
            rows.record(&with_distance(near.record.json(), near.distance))?;
        }
        rows.finish()?;
    }
    plan::explain(args.explain, || plan);
    Ok(Outcome::found(near.len() as u64))
}

/// The record with a last field `distance`, or `_distance` if it has a field of that name.
fn with_distance(json: &[u8], distance: f64) -> Vec<u8> {
    let distance = (distance * 1e3).round() / 1e3;
    let record: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
    let name = match record.get("distance") {
        None => "distance",
        Some(_) => "_distance",
    };
    let end = json.iter().rposition(|byte| *byte == b'}');
    let body = json.get(..end.unwrap_or(json.len())).unwrap_or(json);
    let body = body.trim_ascii_end();
    let comma = if body.ends_with(b"{") { "" } else { "," };
    [body, format!("{comma}\"{name}\":{distance}}}").as_bytes()].concat()
}
