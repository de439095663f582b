//! `check`, `compact`, `backup`, `snapshot`.

use std::time::Instant;

use crate::args::{BackupArgs, CheckArgs, CompactArgs, SnapshotArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bytes, counted, note, thousands};
use crate::store::{dataset, open, open_to_read, open_whole};

/// `esker check DIR [DATASET]`: reports all damage, not only the first.
pub(crate) fn check(args: &CheckArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_whole(&args.dir, memory)?;
    let report = match &args.dataset {
        Some(dataset) => db.check_dataset(dataset)?,
        None => db.check()?,
    };
    for error in &report.errors {
        note(error);
    }
    if !report.errors.is_empty() {
        return Err(Failure::Store(format!(
            "{}: {}",
            args.dir.display(),
            counted(report.errors.len() as u64, "damaged place")
        )));
    }
    let mut output = Output::new();
    output.line(format_args!(
        "{}: sound ({}, {})",
        args.dir.display(),
        counted(report.files, "file"),
        match report.entries {
            1 => "1 entry".to_string(),
            entries => format!("{} entries", thousands(entries)),
        }
    ))?;
    output.finish()?;
    Ok(Outcome::Done)
}

/// `esker compact DIR [DATASET]`
pub(crate) fn compact(args: &CompactArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    if let Some(name) = &args.dataset {
        dataset(&*db, name)?;
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
            "{} exists; give a new directory for the backup",
            args.dest.display()
        )));
    }
    let db = open_whole(&args.dir, memory)?;
    db.backup(&args.dest)?;
    note(format_args!("backed up to {}", args.dest.display()));
    Ok(Outcome::Done)
}

/// `esker snapshot DIR [NAME [--drop]]`; without a name, lists the snapshots, one a line, name
/// first.
pub(crate) fn snapshot(args: &SnapshotArgs, memory: usize) -> Result<Outcome, Failure> {
    let Some(name) = &args.name else {
        let db = open_to_read(&args.dir, memory)?;
        let mut output = Output::new();
        for kept in db.snapshots()? {
            output.line(format_args!(
                "{}\twrite {}\t{}, {} of it only for this snapshot",
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
