//! `changes`: the committed changes of a dataset, in order.

use esker::Change;

use super::feed::{Lines, Source, print};
use crate::args::ChangesArgs;
use crate::failure::{Failure, Outcome};

/// Every change.
struct All;

impl Lines for All {
    fn line(&self, _: &Change) -> Option<Option<&'static str>> {
        Some(None)
    }
}

/// `esker changes DIR DATASET`
pub(crate) fn changes(args: &ChangesArgs, memory: usize) -> Result<Outcome, Failure> {
    let source = Source {
        dir: &args.dir,
        dataset: &args.dataset,
        with_old: args.old,
    };
    print(&source, &args.feed, memory, |_| Ok(All))
}
