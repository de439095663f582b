//! `create`: a dataset without records.

use super::definition::Wanted;
use crate::args::CreateArgs;
use crate::failure::{Failure, Outcome};
use crate::output::note;
use crate::store::{create_or_open, refuse_file};
use crate::words::definition;

/// `esker create DIR DATASET --key FIELD:TYPE`
pub(crate) fn create(args: &CreateArgs, memory: usize) -> Result<Outcome, Failure> {
    // All arguments are checked before a store is created.
    refuse_file(&args.dir)?;
    esker::schema::check_dataset_name(&args.dataset)?;
    let def = Wanted::parse(&args.definition)?.define_empty()?;
    let db = create_or_open(&args.dir, memory)?;
    let made = definition(&def);
    db.create_dataset(&args.dataset, def)?;
    db.close()?;
    note(format_args!("created dataset `{}`: {made}", args.dataset));
    Ok(Outcome::Done)
}
