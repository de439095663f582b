//! `within` and `near`: points in an area, and next to a point.

use esker::{
    AreaExpr, DatasetSnapshot, Explain, Latest, Neighbour, Path, Query, Record, Type, Value, field,
};

use super::fields::note_unknown;
use super::query::{answer, conditions, explained, filtered, notes, paths, print};
use super::{dataset_at, json, open_to_read, plan};
use crate::args::{AnswerOrder, AreaArgs, AreaOrder, NearArgs, QueryArgs, WithinArgs};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::rows::Rows;

/// `esker within DIR DATASET PATH --rect=W,S,E,N | --circle=LON,LAT,METRES | --polygon FILE`
pub(crate) fn within(args: &WithinArgs, memory: usize) -> Result<Outcome, Failure> {
    let area = area(&args.area)?;
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&db, &args.dataset, args.query.snapshot.as_deref())?;
    let conditions = conditions(&args.conditions)?;
    let inside = field(&args.path).within(area.clone());
    let query = filtered(dataset.query().filter(inside), &conditions);
    let mut asked = paths(&conditions);
    asked.extend(fields_of(&args.path));
    if args.count {
        return count(query, args, &dataset, &asked);
    }
    if let Some(degrees) = args.cells {
        let mut output = Output::new();
        let cells = query.cells(&args.path, degrees)?;
        let most = args.query.limit.unwrap_or(usize::MAX);
        let mut printed = 0;
        for cell in cells.iter().take(most) {
            output.line(json(cell))?;
            printed += 1;
        }
        output.finish()?;
        return Ok(Outcome::found(printed));
    }
    let query = query
        .limit(args.query.limit)
        .validation(args.query.validation);
    let found = match &args.latest_per {
        Some(key) => {
            asked.push(key.clone());
            asked.extend(args.time.clone());
            let (records, plan) = query.latest_per(key, &latest(args)?)?;
            rows(records, plan, &args.query)?
        }
        None => ordered(query, &area, args)?,
    };
    explained(found, &dataset, &asked)
}

/// `esker near DIR DATASET PATH LON,LAT --k N [--max METRES]`
pub(crate) fn near(args: &NearArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&db, &args.dataset, args.query.snapshot.as_deref())?;
    let conditions = conditions(&args.conditions)?;
    let query = filtered(dataset.query(), &conditions).validation(args.query.validation);
    let [x, y] = args.point;
    let k = args.k.min(args.query.limit.unwrap_or(usize::MAX));
    let (near, plan) = query.nearest_explained(&args.path, (x, y), k, args.max)?;
    let found = rows(records(near), plan, &args.query)?;
    let mut asked = paths(&conditions);
    asked.extend(fields_of(&args.path));
    explained(found, &dataset, &asked)
}

/// The fields that have a point: one, or those of `LON_PATH,LAT_PATH`.
fn fields_of(point: &Path) -> Vec<Path> {
    let text = point.to_string();
    text.split(',')
        .filter_map(|path| path.parse().ok())
        .collect()
}

/// The area that the arguments say.
fn area(args: &AreaArgs) -> Result<AreaExpr, Failure> {
    match (args.rect, args.circle, &args.polygon) {
        (Some([west, south, east, north]), _, _) => Ok(AreaExpr::rect(west, south, east, north)),
        (_, Some([x, y, metres]), _) => Ok(AreaExpr::circle(x, y, metres)),
        (_, _, Some(file)) => {
            let text = import::read_text(file)?;
            Ok(AreaExpr::geojson(text))
        }
        _ => Err(Failure::Usage(
            "say the area: --rect=W,S,E,N, --circle=LON,LAT,METRES or --polygon FILE".to_string(),
        )),
    }
}

fn count(
    query: Query,
    args: &WithinArgs,
    dataset: &DatasetSnapshot,
    asked: &[Path],
) -> Result<Outcome, Failure> {
    let (count, plan) = query
        .limit(args.query.limit)
        .validation(args.query.validation)
        .count_explained()?;
    notes(&plan);
    plan::explain(args.query.explain, || plan);
    let mut output = Output::new();
    output.line(count)?;
    output.finish()?;
    if count == 0 {
        note_unknown(dataset, asked)?;
    }
    Ok(Outcome::Done)
}

fn ordered(query: Query, area: &AreaExpr, args: &WithinArgs) -> Result<Outcome, Failure> {
    let order = match args.order {
        AreaOrder::Distance => {
            let (near, plan) = query.by_distance(&args.path, area.middle()?)?;
            return rows(records(near), plan, &args.query);
        }
        AreaOrder::Newest => AnswerOrder::Newest,
        AreaOrder::Oldest => AnswerOrder::Oldest,
        AreaOrder::Any => AnswerOrder::Any,
    };
    answer(query, order, &args.query)
}

/// Which records `--latest-per` looks at.
fn latest(args: &WithinArgs) -> Result<Latest, Failure> {
    let Some(time) = &args.time else {
        return Ok(Latest::written());
    };
    let latest = Latest::by_time(time.clone());
    let Some(until) = &args.as_of else {
        return Ok(latest);
    };
    let latest = latest.until(until);
    let Some(age) = args.max_age else {
        return Ok(latest);
    };
    let from = match (until.parse::<i64>(), until.parse::<f64>()) {
        (Ok(seconds), _) if age.fract() == 0.0 => (seconds - age as i64).to_string(),
        (_, Ok(seconds)) => (seconds - age).to_string(),
        _ => match Value::parse(Type::Time, until).map_err(Failure::Usage)? {
            Value::Time(micros) => Value::Time(micros - (age * 1e6) as i64).to_string(),
            other => other.to_string(),
        },
    };
    Ok(latest.from(from))
}

fn records(near: Vec<Neighbour>) -> Vec<Record> {
    near.into_iter().map(|near| near.record).collect()
}

/// Prints records that are there already.
fn rows(records: Vec<Record>, plan: Explain, args: &QueryArgs) -> Result<Outcome, Failure> {
    let printed = match args.keys_only {
        true => {
            let mut output = Output::new();
            for record in &records {
                output.line(record.key())?;
            }
            output.finish()?;
            records.len() as u64
        }
        false => print(records.into_iter().map(Ok), &mut Rows::new(&args.rows)?)?,
    };
    plan::explain(args.explain, || plan);
    Ok(Outcome::found(printed))
}
