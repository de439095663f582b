//! `--latest-per`: of each value of a field the newest record, as far as it meets the conditions.

use esker::space::Latest;
use esker::{Path, Request};
use esker_store::Records;

use super::plan;
use super::query::print;
use crate::args::{LatestArgs, QueryArgs};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::rows::Rows;

/// What is asked of the latest records.
pub(super) struct Asked<'a> {
    pub(super) latest: &'a LatestArgs,
    /// True for the number of the records alone.
    pub(super) counts: bool,
}

/// The fields that the arguments name.
pub(super) fn paths(args: &LatestArgs) -> impl Iterator<Item = Path> {
    [&args.latest_per, &args.time]
        .into_iter()
        .flatten()
        .cloned()
}

/// Prints the latest records that meet a request, in the order of their keys, or their number;
/// `None` if the arguments do not ask for the latest.
pub(super) fn answer(
    dataset: &dyn Records,
    request: &Request,
    asked: &Asked<'_>,
    args: &QueryArgs,
) -> Result<Option<Outcome>, Failure> {
    let Some(path) = &asked.latest.latest_per else {
        return Ok(None);
    };
    let mut request = request.clone();
    request.validation = args.validation;
    request.limit = args.limit;
    let considered = considered(asked.latest);
    let (records, plan) = dataset.latest_per(&request, path, &considered)?;
    let mut output = Output::new();
    let outcome = if asked.counts {
        output.line(records.len())?;
        output.finish()?;
        Outcome::Done
    } else if args.keys_only {
        let mut printed = 0;
        for record in records {
            output.line(record.key())?;
            printed += 1;
        }
        output.finish()?;
        Outcome::found(printed)
    } else {
        Outcome::found(print(
            records.into_iter().map(Ok),
            &mut Rows::new(&args.rows),
        )?)
    };
    plan::explain(args.explain, || plan);
    Ok(Some(outcome))
}

/// The records that `--latest-per` considers.
fn considered(args: &LatestArgs) -> Latest {
    let Some(time) = &args.time else {
        return Latest::written();
    };
    let latest = Latest::by_time(time.clone());
    let Some(until) = &args.as_of else {
        return latest;
    };
    let latest = latest.until(until);
    match args.max_age {
        Some(age) => latest.max_age(age),
        None => latest,
    }
}
