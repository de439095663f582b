//! `fence`: records that enter an area, leave it, or change inside it.

use ::pubsub::{Fence, FenceEvent};
use esker::Change;

use super::feed::{Lines, Source, print};
use super::query::conditions;
use crate::args::FenceArgs;
use crate::failure::{Failure, Outcome};

/// The changes with one of the events.
struct Crossings<'a> {
    fence: Fence,
    wanted: &'a [FenceEvent],
}

impl Lines for Crossings<'_> {
    fn line(&self, change: &Change) -> Option<Option<&'static str>> {
        let event = self.fence.event(change)?;
        self.wanted.contains(&event).then(|| Some(event.name()))
    }
}

/// `esker fence DIR DATASET PATH AREA`
pub(crate) fn fence(args: &FenceArgs, memory: usize) -> Result<Outcome, Failure> {
    let condition = conditions(&args.conditions)?
        .into_iter()
        .reduce(|all, one| all & one);
    let source = Source {
        dir: &args.dir,
        dataset: &args.dataset,
        with_old: true,
    };
    print(&source, &args.feed, memory, |def| {
        let fence = Fence::new(def, &args.path, &args.area)?;
        let fence = match &condition {
            Some(condition) => fence.matching(condition)?,
            None => fence,
        };
        Ok(Crossings {
            fence,
            wanted: &args.events,
        })
    })
}
