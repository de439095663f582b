//! `get`, `lookup`, `range`, `scan`, `count`: answers on standard output.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use esker::{
    Error, Explain, Expr, Key, Op, Operand, Order, PageToken, Path, Record, Request, Type, field,
};
use esker_store::Records;

use super::fields::Queried;
use super::plan;
use crate::args::{AnswerArgs, CountArgs, GetArgs, LookupArgs, QueryArgs, RangeArgs, ScanArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, counted, note};
use crate::rows::Rows;
use crate::store::{dataset_at, open_to_read};

/// `esker get DIR DATASET KEY`
pub(crate) fn get(args: &GetArgs, memory: usize) -> Result<Outcome, Failure> {
    let (record, at) = (&args.record, args.snapshot.as_deref());
    let mut rows = Rows::whole(&args.rows);
    let db = open_to_read(&record.dir, memory)?;
    let dataset = dataset_at(&*db, &record.dataset, at)?;
    let Some(record) = dataset.get(&dataset.parse_key(&record.key)?)? else {
        return Ok(Outcome::NotFound);
    };
    rows.record(record.json())?;
    rows.finish()?;
    Ok(Outcome::Done)
}

/// `esker lookup DIR DATASET PATH VALUE`
pub(crate) fn lookup(args: &LookupArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let at = args.answer.query.snapshot.as_deref();
    let dataset = dataset_at(&*db, &args.dataset, at)?;
    let path = path(&args.path)?;
    let condition = Expr::compare(path.clone(), Op::Eq, Operand::text(&args.value));
    let request = placed(Request::of(condition.clone()), &args.answer);
    let queried = Queried {
        conditions: &[condition],
        tested: vec![path],
        others: ordered_by(&request.order),
    };
    let found = answer(&*dataset, request, &args.answer.query)?;
    queried.note(&*dataset, found)?;
    Ok(found)
}

/// `esker range DIR DATASET PATH LO HI`
pub(crate) fn range(args: &RangeArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let at = args.answer.query.snapshot.as_deref();
    let dataset = dataset_at(&*db, &args.dataset, at)?;
    let request = between(&*dataset, &args.path, &args.lo, &args.hi)?;
    let request = placed(request, &args.answer);
    let queried = Queried {
        conditions: &[],
        tested: vec![path(&args.path)?],
        others: ordered_by(&request.order),
    };
    let found = answer(&*dataset, request, &args.answer.query)?;
    queried.note(&*dataset, found)?;
    Ok(found)
}

/// The fields of an order.
pub(super) fn ordered_by(order: &Order) -> Vec<Path> {
    let fields = order.fields().iter();
    fields.map(|field| field.path.clone()).collect()
}

/// `esker scan DIR DATASET`
pub(crate) fn scan(args: &ScanArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let at = args.query.snapshot.as_deref();
    let dataset = dataset_at(&*db, &args.dataset, at)?;
    let key = |text: &Option<String>| text.as_ref().map(|t| dataset.parse_key(t)).transpose();
    let (from, to) = (key(&args.from)?, key(&args.to)?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(Failure::Usage("--from is larger than --to".to_string()));
    }
    let bound = |key: Option<Key>| key.map_or(Bound::Unbounded, Bound::Included);
    let mut scan = dataset.scan((bound(from), bound(to)), args.reverse)?;
    let records = scan.by_ref().take(args.query.limit.unwrap_or(usize::MAX));
    let mut printed = 0;
    if args.query.keys_only {
        let mut output = Output::new();
        for record in records {
            output.line(record?.key())?;
            printed += 1;
        }
        output.finish()?;
    } else {
        printed = print(records, &mut Rows::new(&args.query.rows))?;
    }
    plan::explain(args.query.explain, || scan.explain());
    Ok(Outcome::found(printed))
}

/// `esker count DIR DATASET [PATH LO HI | --where EXPR]`
pub(crate) fn count(args: &CountArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, args.snapshot.as_deref())?;
    let conditions = conditions(&args.conditions)?;
    let (request, tested) = match (&args.path, &args.lo, &args.hi) {
        (Some(field), Some(lo), Some(hi)) => {
            (between(&*dataset, field, lo, hi)?, vec![path(field)?])
        }
        _ => (filtered(&conditions), paths(&conditions)),
    };
    let (count, plan) = dataset.count(&request)?;
    plan::notes(args.explain, &plan);
    note_what_a_scan_read(&plan, None);
    plan::explain(args.explain, || plan);
    let mut output = Output::new();
    output.line(count)?;
    output.finish()?;
    let queried = Queried::by(&conditions, tested);
    queried.note(&*dataset, Outcome::found(count))?;
    Ok(Outcome::Done)
}

/// Reads conditions.
pub(super) fn conditions(texts: &[String]) -> Result<Vec<Expr>, Failure> {
    let read = texts
        .iter()
        .map(|text| text.parse::<Expr>().map_err(Error::from));
    read.collect::<Result<_, _>>()
        .map_err(|error| split_by_the_shell(texts).unwrap_or_else(|| error.into()))
}

/// The error for one condition that the shell split into several arguments at its blanks.
fn split_by_the_shell(texts: &[String]) -> Option<Failure> {
    let whole = texts.join(" ");
    let is_one = texts.len() > 1 && whole.parse::<Expr>().is_ok();
    is_one.then(|| {
        Failure::Usage(format!(
            "a condition with blanks is one argument: quote it for the shell, as in '{whole}'"
        ))
    })
}

/// The fields in the conditions.
pub(super) fn paths(conditions: &[Expr]) -> Vec<Path> {
    let mut paths: Vec<Path> = conditions.iter().flat_map(Expr::paths).cloned().collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The request for the records that satisfy all of these conditions.
pub(super) fn filtered(conditions: &[Expr]) -> Request {
    let mut request = Request::default();
    for condition in conditions {
        request.filter(condition.clone());
    }
    request
}

/// Reads an attribute's path.
fn path(text: &str) -> Result<Path, Failure> {
    Ok(text.parse::<Path>()?)
}

/// The request for values from `lo` to `hi`, both included.
fn between(dataset: &dyn Records, attribute: &str, lo: &str, hi: &str) -> Result<Request, Failure> {
    let path = path(attribute)?;
    let low = dataset.parse_value(&path, lo)?;
    let high = dataset.parse_value(&path, hi)?;
    if low.partial_cmp(&high) == Some(Ordering::Greater) {
        return Err(Failure::Usage(format!(
            "LO is larger than HI: `{attribute}` cannot be both >= {lo} and <= {hi}"
        )));
    }
    // Compared by value: the text of a float stands for the nearest float.
    let def = dataset.def();
    let mut indexes = def.indexes.iter();
    let is_float = indexes.any(|i| i.path == path && i.ty == Type::Float);
    Ok(Request::of(if is_float {
        field(path).range(Operand::text(lo)..=Operand::text(hi))
    } else {
        field(path).range(low..=high)
    }))
}

/// The request with the order, the offset and the page of the arguments.
pub(super) fn placed(request: Request, args: &AnswerArgs) -> Request {
    let mut request = request;
    request.order = args.order.clone();
    request.offset = args.offset;
    request.after.clone_from(&args.after);
    request
}

/// Runs a request and prints its records.
pub(super) fn answer(
    dataset: &dyn Records,
    mut request: Request,
    args: &QueryArgs,
) -> Result<Outcome, Failure> {
    request.limit = args.limit;
    request.validation = args.validation;
    if request.after.is_some() && request.order == Order::Any {
        return Err(Failure::Usage(
            "--after needs another order than any".to_string(),
        ));
    }
    // Whether an index gives the first rows of an order is known only when it was read.
    let notes_first = !request.order.is_sorted();
    if args.keys_only {
        let mut output = Output::new();
        let mut printed = 0;
        let mut keys = dataset.keys(&request)?;
        if notes_first {
            plan::notes(args.explain, &keys.explain());
        }
        for key in keys.by_ref() {
            match key {
                Ok(key) => output.line(key)?,
                Err(error) => {
                    output.flush()?;
                    return Err(error.into());
                }
            }
            printed += 1;
        }
        output.finish()?;
        if !notes_first {
            plan::notes(args.explain, &keys.explain());
        }
        note_what_a_scan_read(&keys.explain(), Some(&request));
        note_next_page(keys.token(), printed, &request);
        plan::explain(args.explain, || keys.explain());
        return Ok(Outcome::found(printed));
    }
    let is_bulk = matches!(request.order, Order::Any | Order::Key);
    if is_bulk && request.after.is_none() {
        return visit(dataset, &request, args);
    }
    let mut rows = Rows::new(&args.rows);
    let mut answer = dataset.find(&request)?;
    if notes_first {
        plan::notes(args.explain, &answer.explain());
    }
    let printed = print(answer.by_ref(), &mut rows)?;
    if !notes_first {
        plan::notes(args.explain, &answer.explain());
    }
    note_what_a_scan_read(&answer.explain(), Some(&request));
    note_next_page(answer.token(), printed, &request);
    plan::explain(args.explain, || answer.explain());
    Ok(Outcome::found(printed))
}

/// Notes how many records a scan without an index read, and how the request could read fewer.
pub(super) fn note_what_a_scan_read(plan: &Explain, request: Option<&Request>) {
    if plan.notes.is_empty() || plan.plan.scan.is_none() {
        return;
    }
    let read = counted(plan.steps.scanned, "record");
    let is_by_recency = |request: &&Request| matches!(request.order, Order::Newest | Order::Oldest);
    let limit = request.filter(is_by_recency).and_then(|r| r.limit);
    let sooner = match limit {
        None => String::new(),
        Some(1) => "; with --order any it would stop at the first match".to_string(),
        Some(limit) => format!("; with --order any it would stop at the first {limit} matches"),
    };
    note(format_args!("note: the scan read {read}{sooner}"));
}

/// Prints the token of the next page, if the page is full.
fn note_next_page(token: Option<PageToken>, printed: u64, request: &Request) {
    if let Some(token) = token
        && request.order != Order::Any
        && request.limit.is_some_and(|limit| limit as u64 == printed)
    {
        note(format_args!("there may be more: --after {token}"));
    }
}

/// Runs a request in the order of keys or in any order, and prints its records.
fn visit(dataset: &dyn Records, request: &Request, args: &QueryArgs) -> Result<Outcome, Failure> {
    let mut rows = Rows::new(&args.rows);
    let (mut failed, mut last) = (None, None);
    let visited = dataset.visit(
        request,
        &mut |record: Record| match rows.record(record.json()) {
            Ok(()) => {
                last = Some(record.key().clone());
                ControlFlow::Continue(())
            }
            Err(failure) => {
                failed = Some(failure);
                ControlFlow::Break(())
            }
        },
    );
    if let Some(failure) = failed {
        return Err(failure);
    }
    // Prints the records found before a failure, too.
    rows.finish()?;
    let plan = visited?;
    plan::notes(args.explain, &plan);
    note_what_a_scan_read(&plan, Some(request));
    // In the order of keys, the place of a record is its key.
    let token = last.map(|key| PageToken::Row(key.as_bytes().to_vec()));
    note_next_page(token, rows.written(), request);
    plan::explain(args.explain, || plan);
    Ok(Outcome::found(rows.written()))
}

/// Prints records, including those before a failure, and returns their number.
pub(super) fn print(
    records: impl Iterator<Item = Result<esker::Record, esker::Error>>,
    rows: &mut Rows,
) -> Result<u64, Failure> {
    for record in records {
        match record {
            Ok(record) => rows.record(record.json())?,
            Err(error) => {
                rows.finish()?;
                return Err(error.into());
            }
        }
    }
    rows.finish()?;
    Ok(rows.written())
}
