//! `list`, `rename` and `drop`: whole datasets.

use esker_store::Store;

use crate::args::{DropArgs, ListArgs, RenameArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, counted, note};
use crate::store::{dataset, dataset_names_at, open, open_to_read};
use crate::words::definition;

/// `esker list DIR`: one line per dataset, name first.
pub(crate) fn list(args: &ListArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let mut all = Vec::new();
    match &args.snapshot {
        None => {
            for name in db.dataset_names()? {
                let def = db.dataset(&name)?.def();
                all.push((name, def));
            }
        }
        Some(snapshot) => {
            for name in dataset_names_at(&*db, snapshot)? {
                let def = db.dataset_at(snapshot, &name)?.def();
                all.push((name, def));
            }
        }
    }
    let mut output = Output::new();
    for (name, def) in &all {
        output.line(format_args!("{name}\t{}", definition(def)))?;
    }
    output.finish()?;
    if all.is_empty() {
        note("the store has no dataset");
    }
    Ok(Outcome::Done)
}

/// `esker rename DIR DATASET NEW`
pub(crate) fn rename(args: &RenameArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    dataset(&*db, &args.dataset)?;
    db.rename_dataset(&args.dataset, &args.to)?;
    note(format_args!(
        "dataset `{}` is now called `{}`",
        args.dataset, args.to
    ));
    note_snapshots(&*db, &args.dataset, "contain it under its old name");
    db.close()?;
    Ok(Outcome::Done)
}

/// `esker drop DIR DATASET...`
pub(crate) fn drop(args: &DropArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    // All names are checked before a dataset is dropped.
    for name in &args.datasets {
        dataset(&*db, name)?;
    }
    let mut names: Vec<&String> = args.datasets.iter().collect();
    names.sort_unstable();
    names.dedup();
    let consumers = if db.capabilities().changes {
        db.change_consumers()?
    } else {
        Vec::new()
    };
    for name in names {
        db.drop_dataset(name)?;
        let own =
            |consumer: &&esker::changes::ChangeConsumer| consumer.dataset.as_ref() == Some(name);
        let ended = match consumers.iter().filter(own).count() as u64 {
            0 => String::new(),
            number => format!(" with {} of its changes", counted(number, "consumer")),
        };
        note(format_args!("dropped dataset `{name}`{ended}"));
        note_snapshots(&*db, name, "still contain it and use its space");
    }
    db.close()?;
    Ok(Outcome::Done)
}

/// Names the snapshots that still have a dataset under this name.
fn note_snapshots(db: &dyn Store, name: &str, how: &str) {
    let holds = |snapshot: &String| {
        let names = db.dataset_names_at(snapshot);
        names.is_ok_and(|names| names.iter().any(|held| held == name))
    };
    let kept: Vec<String> = db
        .snapshots()
        .unwrap_or_default()
        .into_iter()
        .map(|kept| kept.name)
        .filter(holds)
        .collect();
    if !kept.is_empty() {
        note(format_args!("snapshots that {how}: {}", kept.join(", ")));
    }
}
