//! `copy`: copies datasets between stores.

use std::path::Path as FilePath;
use std::time::Instant;

use esker_import::{Copied, CopyEnd, CopyObserver, CopyStep, StoreCopy};
use esker_store::Store;
use serde_json::json;

use crate::args::CopyArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{counted, note, thousands};
use crate::progress::Progress;
use crate::report;
use crate::store::{create_or_open, dataset, dataset_names_at, open_to_read, refuse_file};

/// Ranges that differ are named up to this number.
const NAMED: usize = 10;

/// `esker copy FROM TO [DATASET...]`
pub(crate) fn copy(args: &CopyArgs, memory: usize) -> Result<Outcome, Failure> {
    refuse_file(&args.to)?;
    let address = address(&args.from);
    if address == self::address(&args.to) {
        return Err(Failure::Usage(format!(
            "{} is both the source and the target",
            args.from.display()
        )));
    }
    let from = open_to_read(&args.from, memory / 2)?;
    let names = names(&*from, args)?;
    let to = create_or_open(&args.to, memory / 2)?;
    let interrupt = Interrupt::watch()?;
    let workers = args.workers.map_or_else(processors, usize::from);
    let address = match &args.snapshot {
        Some(snapshot) => format!("{address} --snapshot {snapshot}"),
        None => address,
    };
    let job = StoreCopy::new(&*from, &address, &*to)
        .snapshot(args.snapshot.as_deref())
        .workers(workers)
        .mend(args.mend);
    let mut unequal = Vec::new();
    for name in &names {
        let begun = Instant::now();
        let mut watch = Watch {
            progress: Progress::counted(unit(CopyStep::Copying)),
            step: CopyStep::Copying,
            interrupt: &interrupt,
        };
        let copied = job.run(name, &mut watch);
        watch.progress.clear();
        let copied = copied?;
        say(name, &copied, begun.elapsed().as_secs_f64());
        match copied.end {
            CopyEnd::Equal => {}
            CopyEnd::Stopped => {
                to.close()?;
                note("interrupted: give the same command again to continue");
                return Ok(Outcome::Interrupted(interrupt.signal().unwrap_or_default()));
            }
            _ => unequal.push(format!("`{name}`")),
        }
    }
    to.close()?;
    if unequal.is_empty() {
        return Ok(Outcome::Done);
    }
    Err(Failure::Store(format!(
        "{} and {} differ in {}: if one of them was written meanwhile, --mend makes {} equal to the source",
        args.from.display(),
        args.to.display(),
        unequal.join(", "),
        args.to.display()
    )))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a store is called in what a copy of it notes: a folder by its place, a cluster without the
/// parameters of its address.
fn address(dir: &FilePath) -> String {
    let place = std::fs::canonicalize(dir).ok();
    let text = place.as_deref().unwrap_or(dir).display().to_string();
    match text.split_once("://") {
        Some(_) => text.split('?').next().unwrap_or_default().to_string(),
        None => text,
    }
}

/// The datasets to copy; all names are checked before one is copied.
fn names(from: &dyn Store, args: &CopyArgs) -> Result<Vec<String>, Failure> {
    let known = match &args.snapshot {
        Some(snapshot) => dataset_names_at(from, snapshot)?,
        None => from.dataset_names()?,
    };
    if args.datasets.is_empty() {
        if known.is_empty() {
            note("the source has no dataset");
        }
        return Ok(known);
    }
    for name in &args.datasets {
        if !known.contains(name) {
            dataset(from, name)?;
        }
    }
    let mut names = args.datasets.clone();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// What is done with the records of a step.
fn unit(step: CopyStep) -> &'static str {
    match step {
        CopyStep::Copying => "copied",
        CopyStep::Comparing => "compared",
        CopyStep::Mending => "mended",
    }
}

/// Shows the progress of a copy, and stops it on a signal.
struct Watch<'a> {
    progress: Progress,
    step: CopyStep,
    interrupt: &'a Interrupt,
}

impl CopyObserver for Watch<'_> {
    fn progress(&mut self, step: CopyStep, records: u64) {
        if step != self.step {
            self.step = step;
            self.progress.clear();
            self.progress = Progress::counted(unit(step));
        }
        self.progress.update(records, records);
    }

    fn note(&mut self, text: &str) {
        note(text);
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.signal().is_some()
    }
}

/// Reports the result of a copy.
fn say(name: &str, copied: &Copied, seconds: f64) {
    let differing = match &copied.end {
        CopyEnd::Unequal(differing) => differing.as_slice(),
        _ => &[],
    };
    if report::is_json() {
        let (at_source, at_target) = copied.compared.unzip();
        let differing: Vec<String> = differing.iter().map(ToString::to_string).collect();
        let fields = json!({
            "dataset": name,
            "records": copied.records,
            "resumed": copied.resumed,
            "mended": copied.mended,
            "at_source": at_source,
            "at_target": at_target,
            "equal": copied.end == CopyEnd::Equal,
            "differing": differing,
            "seconds": seconds,
        });
        report::event("copied", fields);
        return;
    }
    let now = copied.records.saturating_sub(copied.resumed);
    let resumed = match copied.resumed {
        0 => String::new(),
        some => format!(" (and {} before)", thousands(some)),
    };
    let mended = match copied.mended {
        0 => String::new(),
        some => format!(", {} once more after a comparison", thousands(some)),
    };
    let compared = match (&copied.end, copied.compared) {
        (CopyEnd::Equal, Some((records, _))) => {
            format!("; both sides are equal: {} records", thousands(records))
        }
        (CopyEnd::Unequal(_), Some((source, target))) => format!(
            "; {} at the source, {} at the target",
            counted(source, "record"),
            thousands(target)
        ),
        _ => String::new(),
    };
    note(format_args!(
        "dataset `{name}`: {} copied{resumed}{mended} in {seconds:.2} s{compared}",
        counted(now, "record")
    ));
    for range in differing.iter().take(NAMED) {
        note(format_args!("differs: {range}"));
    }
    if differing.len() > NAMED {
        let more = (differing.len() - NAMED) as u64;
        note(format_args!("{} more differ", counted(more, "range")));
    }
}
