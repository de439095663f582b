//! `stat`, `check`, `compact`, `backup`, `snapshot`.

use std::time::Instant;

use esker::Dataset;
use serde_json::Value as Json;

use super::{dataset, open, open_to_read, picture};
use crate::args::{BackupArgs, CompactArgs, DirArgs, SnapshotArgs, StatArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bytes, note, thousands};
use crate::words::definition;

/// `esker stat DIR [DATASET] [--json]`
pub(crate) fn stat(args: &StatArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let stats = match &args.dataset {
        Some(name) => told(&dataset(&db, name)?),
        None => {
            let mut stats = db.stats();
            let datasets = stats.get_mut("datasets").and_then(Json::as_object_mut);
            for (name, of_dataset) in datasets.into_iter().flatten() {
                *of_dataset = told(&dataset(&db, name)?);
            }
            stats
        }
    };
    let mut output = Output::new();
    if args.json {
        output.line(stats)?;
    } else {
        output.line(picture::table(&stats).trim_end())?;
    }
    output.finish()?;
    Ok(Outcome::Done)
}

/// The state of a dataset, with its definition in the words of the command line.
fn told(dataset: &Dataset) -> Json {
    let mut stats = dataset.stats();
    if let Some(shown) = stats.get_mut("definition") {
        *shown = Json::String(definition(&dataset.def()));
    }
    stats
}

/// `esker check DIR`: all the damage, not only the first.
pub(crate) fn check(args: &DirArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let report = db.check()?;
    for error in &report.errors {
        note(error);
    }
    if !report.errors.is_empty() {
        return Err(Failure::Store(format!(
            "{}: {} damaged places",
            args.dir.display(),
            report.errors.len()
        )));
    }
    let mut output = Output::new();
    output.line(format_args!(
        "{}: sound ({} files, {} entries)",
        args.dir.display(),
        thousands(report.files),
        thousands(report.entries)
    ))?;
    output.finish()?;
    Ok(Outcome::Done)
}

/// `esker compact DIR [DATASET]`
pub(crate) fn compact(args: &CompactArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    if let Some(name) = &args.dataset {
        dataset(&db, name)?;
    }
    let start = Instant::now();
    db.compact(args.dataset.as_deref())?;
    db.close()?;
    note(format_args!(
        "compacted in {:.2} s",
        start.elapsed().as_secs_f64()
    ));
    Ok(Outcome::Done)
}

/// `esker backup DIR DEST`
pub(crate) fn backup(args: &BackupArgs, memory: usize) -> Result<Outcome, Failure> {
    if args.dest.symlink_metadata().is_ok() {
        return Err(Failure::Usage(format!(
            "{} exists; a backup goes into a new directory",
            args.dest.display()
        )));
    }
    let db = open(&args.dir, memory)?;
    db.backup(&args.dest)?;
    note(format_args!("backed up to {}", args.dest.display()));
    Ok(Outcome::Done)
}

/// `esker snapshot DIR [NAME [--drop]]`: what is kept is listed, a line each with the name first.
pub(crate) fn snapshot(args: &SnapshotArgs, memory: usize) -> Result<Outcome, Failure> {
    let Some(name) = &args.name else {
        let db = open_to_read(&args.dir, memory)?;
        let mut output = Output::new();
        for kept in db.snapshots() {
            output.line(format_args!(
                "{}\twrite {}\t{}, {} of it kept for this one alone",
                kept.name,
                kept.seq,
                bytes(kept.bytes),
                bytes(kept.own_bytes)
            ))?;
        }
        output.finish()?;
        return Ok(Outcome::Done);
    };
    let db = open(&args.dir, memory)?;
    if args.drop {
        db.drop_snapshot(name)?;
        note(format_args!("dropped snapshot {name}"));
    } else {
        db.keep_snapshot(name)?;
        note(format_args!("kept snapshot {name}"));
    }
    db.close()?;
    Ok(Outcome::Done)
}
