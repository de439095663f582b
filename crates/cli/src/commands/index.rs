//! `index add`, `index switch`, `index drop`, `index resume`.

use std::ops::ControlFlow;
use std::path::Path as FilePath;

use esker::maintain::{IndexChange, IndexProgress};
use esker::schema::{IndexText, compound_paths};
use esker::{DatasetDef, IndexKind, Path};

use esker_store::{Dataset, Store};

use super::definition::parse_path;
use super::fields::note_unknown;
use super::said::say_remarks;
use crate::args::{IndexArgs, IndexChangeArgs, IndexCommand, IndexDropArgs, IndexResumeArgs};
use crate::failure::{Failure, Outcome};
use crate::nearest::meant;
use crate::output::{counted, note};
use crate::progress::Progress;
use crate::store::{dataset, open};

/// Receives the progress of a change.
type OnProgress<'t> = dyn FnMut(IndexProgress) -> ControlFlow<()> + 't;

/// `esker index ...`
pub(crate) fn index(args: &IndexArgs, memory: usize) -> Result<Outcome, Failure> {
    match &args.change {
        IndexCommand::Add(args) => change(args, memory, "add", |dataset, wanted, progress| {
            dataset
                .add_index(wanted.path.clone(), wanted.to_index())?
                .on_progress(progress)
                .run()
        }),
        IndexCommand::Switch(args) => {
            change(args, memory, "switch", |dataset, wanted, progress| {
                dataset
                    .switch_index(wanted.path.clone(), wanted.kind)?
                    .on_progress(progress)
                    .run()
            })
        }
        IndexCommand::Drop(args) => drop_index(args, memory),
        IndexCommand::Resume(args) => resume(args, memory),
    }
}

fn change(
    args: &IndexChangeArgs,
    memory: usize,
    verb: &str,
    make: impl Fn(&dyn Dataset, &IndexText, &mut OnProgress<'_>) -> esker::Result<IndexChange>,
) -> Result<Outcome, Failure> {
    let text = &args.index;
    let refuse = |what| Failure::Usage(format!("index {verb} {text}: {what}"));
    if verb == "switch" && !text.contains(':') {
        return Err(refuse(format!(
            "give the new kind, as in {text}:{}",
            IndexText::USUAL
        )));
    }
    let wanted: IndexText = text.parse().map_err(refuse)?;
    if verb == "switch" && wanted.ty.is_some() && !wanted.is_compound() {
        return Err(refuse(
            "a switch does not change the type: leave it out".to_string(),
        ));
    }
    if verb == "switch" && wanted.lenient {
        let what = "a switch does not change whether other types are accepted: leave the question mark out; `index drop` and `index add` change it";
        return Err(refuse(what.to_string()));
    }
    if verb == "switch" && wanted.unique {
        let what = "a switch keeps values unique, or not: leave `unique` out; `index drop` and `index add` change it";
        return Err(refuse(what.to_string()));
    }
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    if verb == "switch" {
        known(&*dataset, &wanted.path, || {
            let (dir, name) = (args.dir.display(), &args.dataset);
            format!("; `esker index add {dir} {name} {text}` indexes it")
        })?;
    }
    if verb == "add" && wanted.path == dataset.def().key {
        note(format_args!(
            "note: `{text}` is the primary key: conditions on it need no index",
            text = wanted.path
        ));
    }
    let before = dataset.def();
    let made = follow(&args.dir, &args.dataset, &*dataset, |progress| {
        make(&*dataset, &wanted, progress).map(Some)
    });
    if made.is_err() {
        // The most likely reason for a field without values is a typing error.
        let fields = if wanted.is_compound() {
            compound_paths(&wanted.path)?
        } else {
            vec![wanted.path]
        };
        note_unknown(dataset.records(), &fields, &[])?;
    }
    made?;
    say_declared(&*dataset, &before);
    say_remarks(&*dataset);
    db.close()?;
    Ok(Outcome::Done)
}

/// Makes a change with a progress bar and reports its result; false if there was no change to make.
pub(super) fn follow(
    dir: &FilePath,
    name: &str,
    dataset: &dyn Dataset,
    make: impl FnOnce(&mut OnProgress<'_>) -> esker::Result<Option<IndexChange>>,
) -> Result<bool, Failure> {
    if let Some(def) = dataset.unfinished_index() {
        note(format_args!(
            "resuming the change of `{}` to {}",
            def.path, def.kind
        ));
    }
    let progress = Progress::records(0);
    let result = make(&mut |now: IndexProgress| {
        progress.update_of(now.done, now.total);
        ControlFlow::Continue(())
    });
    progress.clear();
    let change = match result {
        Ok(change) => change,
        Err(error) => {
            if let Some(def) = dataset.unfinished_index() {
                let dir = dir.display();
                note(format_args!(
                    "the change of `{path}` to {} is unfinished: `esker index resume {dir} {name}` resumes it, \
                     `esker index drop {dir} {name} {path}` cancels it",
                    def.kind,
                    path = def.path,
                ));
            }
            return Err(error.into());
        }
    };
    let Some(change) = change else {
        return Ok(false);
    };
    if change.to == IndexKind::None {
        say_dropped(dataset, &change.path, change.from);
        return Ok(true);
    }
    let (elapsed, _) = progress.elapsed();
    let was = match change.from {
        Some(IndexKind::None) | None => String::new(),
        Some(kind) if kind == change.to => ", rebuilt".to_string(),
        Some(kind) => format!(", was {kind}"),
    };
    note(format_args!(
        "`{}` is now indexed: {}{was} ({} in {elapsed})",
        change.path,
        change.to,
        counted(change.records, "record")
    ));
    Ok(true)
}

/// Refuses a field that the dataset does not declare, with the indexed fields and a suggestion.
pub(super) fn known(
    dataset: &dyn Dataset,
    path: &Path,
    otherwise: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let def = dataset.def();
    let unfinished = dataset.unfinished_index();
    let mut all = def.indexes.iter().chain(&unfinished);
    if all.any(|index| index.path == *path) {
        return Ok(());
    }
    let names = def.indexes.iter().filter(|i| i.kind != IndexKind::None);
    let names: Vec<String> = names.map(|i| i.path.to_string()).collect();
    let text = path.to_string();
    let hint = match meant(&text, names.iter().map(String::as_str)) {
        none if none.is_empty() => otherwise(),
        meant => meant,
    };
    let names = if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    };
    Err(Failure::Usage(format!(
        "`{text}` has no index (indexed: {names}){hint}"
    )))
}

fn say_dropped(dataset: &dyn Dataset, path: &Path, from: Option<IndexKind>) {
    let kind = from.unwrap_or(IndexKind::None);
    let mut declared = dataset.def().indexes.into_iter();
    if declared.any(|index| index.path == *path) {
        note(format_args!(
            "dropped the {kind} index of `{path}`, which stays declared: records that do not fit its type are refused"
        ));
    } else {
        note(format_args!("dropped the {kind} index of `{path}`"));
    }
}

/// Says which fields were declared with a compound index.
fn say_declared(dataset: &dyn Dataset, before: &DatasetDef) {
    for index in dataset.def().indexes {
        let is_known = before.indexes.iter().any(|known| known.path == index.path);
        if !is_known && index.kind == IndexKind::None {
            note(format_args!(
                "`{}` is declared as {}: records that do not fit its type are refused",
                index.path, index.ty
            ));
        }
    }
}

fn drop_index(args: &IndexDropArgs, memory: usize) -> Result<Outcome, Failure> {
    let path = parse_path(&args.path)?;
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    known(&*dataset, &path, String::new)?;
    let unfinished = dataset.unfinished_index().filter(|def| def.path == path);
    let change = dataset.drop_index(&path)?;
    match (unfinished, change.from) {
        (Some(def), _) => note(format_args!(
            "cancelled the unfinished change of `{path}` to {}",
            def.kind
        )),
        (None, from) => say_dropped(&*dataset, &path, from),
    }
    db.close()?;
    Ok(Outcome::Done)
}

fn resume(args: &IndexResumeArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let names = match &args.dataset {
        Some(name) => vec![name.clone()],
        None => db.dataset_names()?,
    };
    let mut resumed = false;
    for name in names {
        resumed |= resume_one(args, &*db, &name)?;
    }
    if !resumed {
        note("no index change is unfinished");
    }
    db.close()?;
    Ok(Outcome::Done)
}

fn resume_one(args: &IndexResumeArgs, db: &dyn Store, name: &str) -> Result<bool, Failure> {
    let dataset = dataset(db, name)?;
    follow(&args.dir, name, &*dataset, |progress| {
        dataset.resume_index()?.on_progress(progress).run()
    })
}
