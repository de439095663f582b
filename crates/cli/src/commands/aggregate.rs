//! `aggregate`: numbers of groups of records.

use std::ops::ControlFlow;

use esker::request::{Aggregate, Aggregation};

use super::fields::Queried;
use super::plan;
use super::query::{conditions, note_what_a_scan_read, paths};
use crate::args::{AggregateArgs, RowsArgs};
use crate::failure::{Failure, Outcome};
use crate::rows::Rows;
use crate::store::{dataset_at, open_to_read};

/// `esker aggregate DIR DATASET AGG,... [EXPR...]`
pub(crate) fn aggregate(args: &AggregateArgs, memory: usize) -> Result<Outcome, Failure> {
    let conditions = conditions(&args.conditions)?;
    let mut aggregation = Aggregation::new(args.aggregates.0.clone());
    aggregation.condition = conditions.iter().cloned().reduce(|all, one| all & one);
    if let Some(by) = &args.by {
        aggregation.by.clone_from(&by.0);
    }
    if let Some(order) = &args.order {
        aggregation.order = order.fields().to_vec();
    }
    aggregation.limit = args.limit;
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, args.snapshot.as_deref())?;
    let mut rows = Rows::new(&RowsArgs {
        format: args.format,
        width: args.width,
        select: Vec::new(),
    });
    let mut failed = None;
    let visited = dataset.aggregate(&aggregation, &mut |group| match rows
        .record(group.to_json().as_bytes())
    {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            failed = Some(failure);
            ControlFlow::Break(())
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    rows.finish()?;
    let plan = visited?;
    plan::notes(args.explain, &plan);
    note_what_a_scan_read(&plan, None);
    let answers = plan.steps.answers;
    plan::explain(args.explain, || plan);
    let by = aggregation.by.iter().map(|by| by.path.clone());
    let of = aggregation.aggregates.iter().filter_map(Aggregate::path);
    let queried = Queried {
        conditions: &conditions,
        tested: paths(&conditions),
        others: by.chain(of.cloned()).collect(),
    };
    queried.note(&*dataset, Outcome::found(answers))?;
    Ok(Outcome::found(rows.written()))
}
