//! `maintain`: changes the maintenance strategy of a dataset.

use std::ops::ControlFlow;

use esker::maintain::MigrationProgress;

use crate::args::{MaintainArgs, Strategy};
use crate::failure::{Failure, Outcome};
use crate::output::{counted, note};
use crate::progress::Progress;
use crate::store::{dataset, open};

/// `esker maintain DIR DATASET STRATEGY`
pub(crate) fn maintain(args: &MaintainArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    let progress = Progress::records(0);
    let mut show = |now: MigrationProgress| {
        progress.update_of(now.done, now.total);
        ControlFlow::Continue(())
    };
    let report = match args.strategy {
        Strategy::Auto => dataset.set_auto()?.on_progress(&mut show).run(),
        Strategy::Fixed(maintenance) => dataset
            .set_maintenance(maintenance)?
            .on_progress(&mut show)
            .run(),
    };
    progress.clear();
    let report = report?;
    db.close()?;
    let found = report.repair.as_ref().map_or(0, |repair| repair.found);
    note(format_args!(
        "maintenance is now {}, was {} ({} indexed, {} found)",
        args.strategy,
        report.from,
        counted(report.keys, "key"),
        counted(found, "obsolete write"),
    ));
    Ok(Outcome::Done)
}
