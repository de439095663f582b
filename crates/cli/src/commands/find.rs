//! `find`: the records that meet conditions.

use esker::Order;

use super::latest;
use super::query::{answer, conditions, explained, filtered, paths, placed};
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
    let mut queried = paths(&conditions);
    queried.extend(latest::paths(&args.latest));
    let found = match latest::answer(&*dataset, &request, &asked, &args.answer.query)? {
        Some(found) => found,
        None => answer(&*dataset, request, &args.answer.query)?,
    };
    explained(found, &*dataset, &queried, &conditions)
}
