//! `repair`: finds obsolete writes, or rebuilds a damaged index.

use std::ops::ControlFlow;

use esker::maintain::{Compaction, Lookups};
use esker::maintain::{RepairMethod, RepairOptions, RepairProgress, RepairReport};
use serde_json::json;

use super::definition::parse_path;
use super::index::{follow, known};
use crate::args::{RepairArgs, RepairBy, RepairCompaction, RepairLookups};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bytes, note, thousands};
use crate::progress::Progress;
use crate::store::{dataset, open};

/// `esker repair DIR DATASET`
pub(crate) fn repair(args: &RepairArgs, memory: usize) -> Result<Outcome, Failure> {
    if let Some(path) = &args.rebuild_index {
        return rebuild(args, path, memory);
    }
    let options = options(args)?;
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    let progress = Progress::records(0);
    let report = dataset
        .repair(&options)?
        .on_progress(|now: RepairProgress| {
            progress.update_of(now.done, now.total);
            ControlFlow::Continue(())
        })
        .run();
    progress.clear();
    let report = report?;
    db.close()?;
    if args.json {
        let mut output = Output::new();
        output.line(as_json(&report))?;
        output.finish()?;
    } else {
        note_report(&report);
    }
    ended(&report)
}

/// The outcome of a repair.
fn ended(report: &RepairReport) -> Result<Outcome, Failure> {
    if report.complete {
        return Ok(Outcome::Done);
    }
    Err(Failure::Store(
        "parts were left out, since the repair was cancelled or another one has them: repair again when that has ended, or a minute after it was killed".to_string(),
    ))
}

fn rebuild(args: &RepairArgs, path: &str, memory: usize) -> Result<Outcome, Failure> {
    let path = parse_path(path)?;
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    known(&*dataset, &path, String::new)?;
    follow(&args.dir, &args.dataset, &*dataset, |progress| {
        dataset
            .rebuild_index(path)?
            .on_progress(progress)
            .run()
            .map(Some)
    })?;
    db.close()?;
    Ok(Outcome::Done)
}

fn options(args: &RepairArgs) -> Result<RepairOptions, Failure> {
    let compaction = match args.compaction {
        None => Compaction::Without,
        Some(RepairCompaction::Before) => Compaction::Before,
        Some(RepairCompaction::After) => Compaction::After,
    };
    let method = match args.method {
        RepairBy::Auto => RepairMethod::Auto,
        RepairBy::Key => RepairMethod::Key,
        RepairBy::Index => RepairMethod::Index,
        RepairBy::Primary => RepairMethod::Primary { compaction },
    };
    if args.compaction.is_some() && args.method != RepairBy::Primary {
        return Err(Failure::Usage(
            "--compaction needs --method primary".to_string(),
        ));
    }
    let usual = RepairOptions::default();
    Ok(RepairOptions {
        method,
        memory: args.buffer.unwrap_or(usual.memory),
        threads: args.threads.map_or(usual.threads, |threads| threads.get()),
        bytes_per_second: args.rate.map(|rate| rate as u64),
        bloom: !args.no_bloom,
        lookups: match args.lookups {
            RepairLookups::Auto => Lookups::Auto,
            RepairLookups::Points => Lookups::Points,
            RepairLookups::MergeScan => Lookups::MergeScan,
        },
    })
}

/// The name of the repair method.
fn method(method: RepairMethod) -> &'static str {
    match method {
        RepairMethod::Auto => "auto",
        RepairMethod::Key => "key",
        RepairMethod::Index => "index",
        RepairMethod::Primary { .. } => "primary",
        _ => "another method",
    }
}

fn note_report(report: &RepairReport) {
    note(format_args!(
        "repaired by {}: found {} obsolete writes in {} entries ({} read in {:.2} s)",
        method(report.method),
        thousands(report.found),
        thousands(report.entries),
        bytes(report.bytes_read),
        report.elapsed.as_secs_f64(),
    ));
    if !report.complete {
        return;
    }
    note(format_args!(
        "all obsolete writes up to write {} are now known (before: up to {})",
        thousands(report.watermark),
        thousands(report.watermark_before),
    ));
}

fn as_json(report: &RepairReport) -> serde_json::Value {
    json!({
        "method": method(report.method),
        "entries": report.entries,
        "sorted": report.sorted,
        "spilled": report.spilled,
        "looked_up": report.looked_up,
        "found": report.found,
        "mark_before": report.watermark_before,
        "mark": report.watermark,
        "complete": report.complete,
        "bytes_read": report.bytes_read,
        "seconds": report.elapsed.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_that_left_parts_out_fails() {
        let report = |complete| {
            let mut report = RepairReport::default();
            report.complete = complete;
            report
        };
        assert!(matches!(ended(&report(true)), Ok(Outcome::Done)));
        assert_eq!(ended(&report(false)).map_err(|f| f.code()).unwrap_err(), 3);
    }
}
