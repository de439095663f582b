//! `view`: a picture of the tables of a spatial index, level by level.

use esker::{DatasetDef, Path};
use esker_store::Records;

use super::levels::{Mark, picture};
use crate::args::ViewArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::store::{dataset_at, open_to_read};

/// `esker view DIR DATASET [PATH]`
pub(crate) fn view(args: &ViewArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, None)?;
    let path = match &args.path {
        Some(path) => path.clone(),
        None => only_path(&*dataset)?,
    };
    let boxes = dataset.table_boxes(&path)?;
    let boxes: Vec<_> = boxes
        .into_iter()
        .map(|table| (table, Mark::Stays))
        .collect();
    let title = format!("{}: {path}", args.dataset);
    let mut output = Output::new();
    output.line(picture(&title, &boxes))?;
    output.finish()?;
    Ok(Outcome::Done)
}

/// The paths of the spatial indexes that have a tree.
pub(super) fn paths(def: &DatasetDef) -> Vec<Path> {
    let indexes = def.indexes.iter();
    let points = indexes.filter(|index| index.kind.is_spatial() && index.kind.is_standalone());
    points.map(|index| index.path.clone()).collect()
}

/// The path of the only spatial index.
fn only_path(dataset: &dyn Records) -> Result<Path, Failure> {
    match paths(&dataset.def()).as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::Usage(format!(
            "dataset `{}` has no spatial index with its own tree",
            dataset.name()
        ))),
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(Failure::Usage(format!(
                "give one of the spatial indexes: {}",
                names.join(" or ")
            )))
        }
    }
}
