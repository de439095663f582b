//! `maintain`: changes the maintenance strategy of a dataset.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use esker::{DatasetDef, Maintenance, SwitchProgress};

use super::{dataset, open};
use crate::MaintainArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{note, thousands};
use crate::progress::Progress;

/// A strategy, or that one is to be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Auto,
    Fixed(Maintenance),
}

impl Strategy {
    /// What a definition says.
    pub(crate) fn of(def: &DatasetDef) -> Self {
        match def.auto {
            true => Self::Auto,
            false => Self::Fixed(def.maintenance),
        }
    }

    /// The definition with it.
    pub(crate) fn apply(self, def: DatasetDef) -> DatasetDef {
        match self {
            Self::Auto => def.auto(),
            Self::Fixed(maintenance) => def.maintenance(maintenance),
        }
    }
}

impl FromStr for Strategy {
    type Err = esker::Error;

    fn from_str(text: &str) -> Result<Self, esker::Error> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Ok(Self::Fixed(text.parse()?)),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(maintenance) => maintenance.fmt(f),
        }
    }
}

/// `esker maintain DIR DATASET STRATEGY`
pub(crate) fn maintain(args: &MaintainArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&db, &args.dataset)?;
    let progress = Progress::records(0);
    let mut tell = |now: SwitchProgress| {
        progress.update_of(now.done, now.total);
        ControlFlow::Continue(())
    };
    let report = match args.strategy {
        Strategy::Auto => dataset.set_auto(&mut tell),
        Strategy::Fixed(maintenance) => dataset.set_maintenance(maintenance, &mut tell),
    };
    progress.clear();
    let report = report?;
    db.close()?;
    let found = report.repair.as_ref().map_or(0, |repair| repair.found);
    note(format_args!(
        "maintenance is {} now, was {} ({} keys indexed, {} writes found to be over)",
        args.strategy,
        report.from,
        thousands(report.keys),
        thousands(found),
    ));
    Ok(Outcome::Done)
}
