//! `load`: loads files into a dataset.

use std::path::Path as FilePath;

use esker::{Error, Path};
use esker_import::{End, Import, Note, Observer, Report, Source, sources};
use esker_store::{Dataset, Mode, Store};
use serde_json::json;

use super::definition::{Defined, Wanted};
use super::merges::{self, Merges};
use super::said::{promise, say_remarks};
use crate::args::{Format, LoadArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{behind, counted, note, thousands};
use crate::progress::Progress;
use crate::report;
use crate::store::{create_or_open, opened, options, refuse_file};
use crate::words::definition;

/// `esker load DIR DATASET FILE...`
pub(crate) fn load(args: &LoadArgs, memory: usize) -> Result<Outcome, Failure> {
    // All arguments are checked before a store is created.
    refuse_file(&args.dir)?;
    esker::schema::check_dataset_name(&args.dataset)?;
    let wanted = Wanted::parse(&args.definition)?;
    let mut sources = read_from(args)?;
    let existing = existing(&args.dir, &args.dataset, memory)?;
    if let Some((_, Some(dataset))) = &existing {
        wanted.agree(&args.dataset, &dataset.def())?;
        merges::check(args.view.as_deref(), &args.dataset, &dataset.def())?;
    } else if wanted.key.is_none() {
        return Err(Failure::Usage(format!(
            "dataset `{}` is new: give the field that is its key, as in --key id",
            args.dataset
        )));
    }

    // A record that needs no key may have one member, an array of objects.
    let has_auto_key = match &existing {
        Some((_, Some(dataset))) => dataset.def().auto_key,
        _ => wanted.has_auto_key(),
    };
    for source in &mut sources {
        source.unwraps = !has_auto_key;
    }
    let interrupt = Interrupt::watch()?;
    let mut import = Import::new(sources)
        .durability(args.durability)
        .strict(args.strict)
        .restart(args.restart);
    if !import.is_repeatable() {
        note(
            "a pipe or standard input cannot be read again: if this load is interrupted, it must start over",
        );
    }

    let (db, dataset) = match existing {
        Some((db, Some(dataset))) => (db, dataset),
        missing => {
            let db = missing.map(|(db, _)| db);
            match create(args, wanted, db, &mut import, &interrupt, memory)? {
                Created::Ready(db, dataset) => (db, dataset),
                Created::None(outcome) => return Ok(outcome),
                Created::Bad { others } => return Err(none_is_good(import, others)),
            }
        }
    };

    // What a cluster makes durable is not decided here.
    if !db.capabilities().summaries {
        note(format_args!("durability: {}", promise(args.durability)));
    }
    let merges = args
        .view
        .as_deref()
        .map(|dir| Merges::draw(db.dataset(&args.dataset)?, dir));
    let merges = merges.transpose()?;
    let mut watch = Watch {
        progress: Progress::bytes(import.feed().size()),
        interrupt: &interrupt,
    };
    let report = import.run(&*dataset, &mut watch);
    say(&report, &watch.progress);
    say_remarks(&*dataset);
    if let Some(merges) = merges {
        merges.end()?;
    }
    match report.end {
        End::Complete => {}
        End::Stopped { .. } => {
            db.close()?;
            return Ok(Outcome::Interrupted(interrupt.signal().unwrap_or_default()));
        }
        End::Bad(reason) => {
            db.close()?;
            return Err(Failure::Usage(reason));
        }
        End::Failed(error) => return Err(error.into()),
        other => return Err(Failure::Usage(format!("{other:?}"))),
    }
    db.close()?;
    judge(report.rejected, report.records, args.allow_rejects)
}

/// What a complete load with rejected lines ends with.
fn judge(rejected: u64, records: u64, are_allowed: bool) -> Result<Outcome, Failure> {
    match (rejected, records) {
        (0, _) => Ok(Outcome::Done),
        (_, 0) => Err(Failure::Usage("no line held a valid record".to_string())),
        _ if are_allowed => Ok(Outcome::Done),
        (1, _) => Err(Failure::Usage(
            "1 line was rejected (with --allow-rejects the exit code is 0)".to_string(),
        )),
        (rejected, _) => Err(Failure::Usage(format!(
            "{} were rejected (with --allow-rejects the exit code is 0)",
            counted(rejected, "line")
        ))),
    }
}

/// The result of making a dataset for a load.
enum Created {
    Ready(Box<dyn Store>, Box<dyn Dataset>),
    /// Nothing was created, without an error.
    None(Outcome),
    /// None of the first lines is a record.
    Bad {
        others: u64,
    },
}

/// Creates the dataset, in the store if there is one, by the definition that the arguments and the
/// first records lead to.
fn create(
    args: &LoadArgs,
    wanted: Wanted,
    db: Option<Box<dyn Store>>,
    import: &mut Import,
    interrupt: &Interrupt,
    memory: usize,
) -> Result<Created, Failure> {
    let defined = wanted.define(import.feed(), interrupt);
    if let Some(signal) = interrupt.signal() {
        note("interrupted before the types of the dataset were inferred: nothing is stored");
        return Ok(Created::None(Outcome::Interrupted(signal)));
    }
    let def = match defined? {
        Defined::None { others } => return Ok(Created::Bad { others }),
        Defined::Empty => {
            note("no records: nothing was created");
            return Ok(Created::None(Outcome::Done));
        }
        Defined::As(def) => *def,
    };
    merges::check(args.view.as_deref(), &args.dataset, &def)?;
    let db = match db {
        Some(db) => db,
        None => create_or_open(&args.dir, memory)?,
    };
    note(format_args!(
        "dataset `{}` is new: {}",
        args.dataset,
        definition(&def)
    ));
    let dataset = db.create_dataset(&args.dataset, def)?;
    Ok(Created::Ready(db, dataset))
}

/// The files, with the format to read them in.
fn read_from(args: &LoadArgs) -> Result<Vec<Source>, Failure> {
    let format = match (args.format, args.delimiter) {
        (None, Some(_)) => Some(esker_import::Format::Csv),
        (format, _) => format.map(Into::into),
    };
    if args.delimiter.is_some() && format != Some(esker_import::Format::Csv) {
        let what = "--delimiter is for CSV: leave --format ndjson out";
        return Err(Failure::Usage(what.to_string()));
    }
    let delimiter = match (args.delimiter, args.format) {
        (None, Some(Format::Tsv)) => Some(b'\t'),
        (said, _) => said,
    };
    let records: Option<Vec<String>> = match args.records.as_deref() {
        None => None,
        Some(".") => Some(Vec::new()),
        Some(path) => {
            let path: Path = path.parse()?;
            Some(path.names().map(str::to_string).collect())
        }
    };
    let mut sources = sources(&args.files, format)?;
    for source in &mut sources {
        source.delimiter = delimiter.or(source.delimiter);
        source.records.clone_from(&records);
        if records.is_some() && source.format == esker_import::Format::Csv {
            return Err(Failure::Usage(format!(
                "--records is for JSON, but {} is CSV",
                source.name()
            )));
        }
    }
    Ok(sources)
}

/// Rejects the sampled lines, none of which is a record, and returns the error.
fn none_is_good(mut import: Import, others: u64) -> Failure {
    let mut notes = Notes;
    let is_json = !import.feed().is_table();
    let none = match others {
        1 => "the first line is not a record".to_string(),
        more => format!("none of the first {} lines is a record", thousands(more)),
    };
    match import.reject_sample(others, &mut notes) {
        Err(error) => error.into(),
        Ok(files) => {
            let mut text = format!("{none}; nothing was created");
            for (path, _) in files {
                text += &format!("\nThe reasons are in {}", path.display());
            }
            if is_json {
                text += "\nFor a table use --format csv or tsv, or --delimiter";
            }
            Failure::Usage(text)
        }
    }
}

/// Prints the notes of an import.
struct Notes;

impl Observer for Notes {
    fn note(&mut self, text: &Note) {
        note(text);
    }
}

/// Shows the progress of an import, and stops it on a signal.
struct Watch<'a> {
    progress: Progress,
    interrupt: &'a Interrupt,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, bytes: u64, records: u64) {
        self.progress.update(bytes, records);
    }

    fn note(&mut self, text: &Note) {
        note(text);
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.signal().is_some()
    }
}

/// Reports the result of an import.
fn say(report: &Report, progress: &Progress) {
    progress.clear();
    if let End::Stopped {
        name,
        line,
        part,
        is_row,
        is_resumable,
    } = &report.end
    {
        let records = counted(report.records, "record");
        let next = if *is_resumable {
            "give the same command again to continue there".to_string()
        } else {
            behind(*line, *part, *is_row)
        };
        let at = match (part, is_row) {
            (0, false) => "after line",
            _ => "behind what begins on line",
        };
        note(format_args!(
            "interrupted {at} {} of {name}: {records} are stored; {next}",
            thousands(*line)
        ));
    }
    let (elapsed, seconds) = progress.elapsed();
    for (path, count) in &report.rejects {
        note(format_args!(
            "bad lines: {}, with reasons in {}",
            thousands(*count),
            path.display()
        ));
    }
    if report::is_json() {
        let loaded = json!({
            "complete": matches!(report.end, End::Complete),
            "records": report.records,
            "rejected": report.rejected,
            "replaced": report.replaced,
            "seconds": seconds,
        });
        report::event("loaded", loaded);
        return;
    }
    let loaded_now = report.records - report.resumed;
    let replaced = match report.replaced {
        0 => String::new(),
        some => format!(
            " {} replaced an earlier record of the same key,",
            thousands(some)
        ),
    };
    note(format_args!(
        "{} loaded, {} rejected,{replaced} in {elapsed} ({} records/s)",
        counted(report.records, "record"),
        thousands(report.rejected),
        thousands((loaded_now as f64 / seconds.max(1e-9)) as u64)
    ));
}

/// A store, and its dataset, if it has it.
type Existing = (Box<dyn Store>, Option<Box<dyn Dataset>>);

/// The store, if it exists, and the dataset, if the store has it.
fn existing(dir: &FilePath, name: &str, memory: usize) -> Result<Option<Existing>, Failure> {
    let db = match opened(dir, Mode::Write, options(memory)) {
        Ok(db) => db,
        Err(Error::NoStore { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match db.dataset(name) {
        Ok(dataset) => Ok(Some((db, Some(dataset)))),
        Err(Error::UnknownDataset { .. }) => Ok(Some((db, None))),
        Err(error) => Err(error.into()),
    }
}
