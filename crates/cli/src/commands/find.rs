//! `find`: the records that meet conditions.

use esker::Order;

use super::fields::Queried;
use super::latest;
use super::query::{answer, conditions, filtered, ordered_by, paths, placed};
use crate::args::FindArgs;
use crate::failure::{Failure, Outcome};
use crate::store::{dataset_at, open_to_read};

/// `esker find DIR DATASET EXPR...`
pub(crate) fn find(args: &FindArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let at = args.answer.query.snapshot.as_deref();
    let dataset = dataset_at(&*db, &args.dataset, at)?;
    let conditions = conditions(&args.conditions)?;
    let mut request = placed(filtered(&conditions), &args.answer);
    if args.oldest {
        request.order = Order::Oldest;
    }
    let asked = latest::Asked {
        latest: &args.latest,
        counts: args.count,
    };
    let latest = latest::paths(&args.latest);
    let queried = Queried {
        conditions: &conditions,
        tested: paths(&conditions).into_iter().chain(latest).collect(),
        others: ordered_by(&request.order),
    };
    let found = match latest::answer(&*dataset, &request, &asked, &args.answer.query)? {
        Some(found) => found,
        None => answer(&*dataset, request, &args.answer.query)?,
    };
    queried.note(&*dataset, found)?;
    Ok(found)
}
