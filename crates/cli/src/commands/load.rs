//! `load`: files into a dataset.

use std::collections::HashSet;
use std::io;
use std::path::Path as FilePath;

use esker::{Database, Dataset, DatasetDef, Durability, Error, KeyType, Type, WriteBatch};
use serde_json::json;

use super::definition::Wanted;
use super::merges::{self, Merges};
use super::resume::{Interrupted, Resume};
use super::{options, promise, refuse_file, say_remarks};
use crate::args::LoadArgs;
use crate::failure::{Failure, Outcome};
use crate::input::{Event, Feed, Place, Source, prepare};
use crate::interrupt::Interrupt;
use crate::output::{counted, note, thousands};
use crate::progress::Progress;
use crate::rejects::Rejects;
use crate::report;
use crate::words::definition;

/// Records in a batch, and their bytes: whichever is reached first.
pub(crate) const BATCH_RECORDS: usize = 1000;
/// See `BATCH_RECORDS`.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
/// `esker load DIR DATASET FILE...`
pub(crate) fn load(args: &LoadArgs, memory: usize) -> Result<Outcome, Failure> {
    // Whatever can be refused is refused before a store is made.
    refuse_file(&args.dir)?;
    esker::check_dataset_name(&args.dataset)?;
    let wanted = Wanted::parse(&args.definition)?;
    let sources = prepare(&args.files, args.format)?;
    let existing = existing(&args.dir, &args.dataset, memory)?;
    if let Some((_, Some(dataset))) = &existing {
        wanted.agree(&args.dataset, &dataset.def())?;
        merges::check(args.view.as_deref(), &args.dataset, &dataset.def())?;
    } else if wanted.key.is_none() {
        return Err(Failure::Usage(format!(
            "dataset `{}` is new: say which field is its key, as in --key id",
            args.dataset
        )));
    }

    let interrupt = Interrupt::watch()?;
    let resume = Resume::new(&sources);
    let names: Vec<String> = sources.iter().map(Source::name).collect();
    let rejects = sources
        .iter()
        .map(|source| Rejects::beside(source.path.as_deref()))
        .collect();
    let total = sources.iter().map(|source| source.size).sum();
    let mut feed = Feed::start(sources);

    let (db, dataset) = match existing {
        Some((db, Some(dataset))) => (db, dataset),
        missing => {
            let def = wanted.define(&mut feed, &names, &interrupt);
            if let Some(signal) = interrupt.signal() {
                note("interrupted before the types of the dataset were known: nothing is stored");
                return Ok(Outcome::Interrupted(signal));
            }
            let Some(def) = def? else {
                note("no records: nothing was made");
                return Ok(Outcome::Done);
            };
            merges::check(args.view.as_deref(), &args.dataset, &def)?;
            let db = match missing {
                Some((db, _)) => db,
                None => Database::create_or_open(&args.dir, options(memory))?,
            };
            note(format_args!(
                "dataset `{}` is new: {}",
                args.dataset,
                definition(&def)
            ));
            let dataset = db.create_dataset(&args.dataset, def)?;
            (db, dataset)
        }
    };

    note(format_args!("durability: {}", promise(args.durability)));
    feed.set_string_columns(string_columns(&dataset.def()));
    let merges = args.view.as_deref().map(|dir| Merges::draw(&dataset, dir));
    let merges = merges.transpose()?;
    let mut loading = Loading {
        durability: args.durability,
        strict: args.strict,
        names,
        rejects,
        progress: Progress::bytes(total),
        loaded: 0,
        resumed: 0,
        rejected: 0,
        resume,
    };
    loading.resume(&dataset, &mut feed, args.restart)?;
    let ended = loading.run(&dataset, &mut feed, &interrupt);
    // Also after a failure: what was loaded before stays.
    let synced = dataset.sync();
    loading.report()?;
    say_remarks(&dataset);
    if let Some(merges) = merges {
        merges.end()?;
    }
    let trouble = ended?;
    synced?;
    db.close()?;
    // A signal that came when everything was loaded has interrupted nothing.
    if let Some(signal) = interrupt.signal()
        && trouble.is_some()
    {
        return Ok(Outcome::Interrupted(signal));
    }
    match trouble {
        Some(reason) => Err(Failure::Usage(reason)),
        None if loading.loaded == 0 && loading.rejected > 0 => {
            Err(Failure::Usage("no line was a good record".to_string()))
        }
        None => Ok(Outcome::Done),
    }
}

/// The store, where there is one, and the dataset, where it has it.
fn existing(
    dir: &FilePath,
    name: &str,
    memory: usize,
) -> Result<Option<(Database, Option<Dataset>)>, Failure> {
    let db = match Database::open(dir, options(memory)) {
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

/// The CSV columns that the dataset declares to be strings. A column is a field of the record itself, whatever its name
/// holds: it is meant by a path of that one name, not by one that reads like it.
fn string_columns(def: &DatasetDef) -> HashSet<String> {
    let key = (def.key_type == KeyType::String).then_some(&def.key);
    let indexes = def.indexes.iter().filter(|index| index.ty == Type::String);
    let paths = indexes.map(|index| &index.path).chain(key);
    paths
        .filter_map(|path| {
            let mut names = path.names();
            names.next().filter(|_| names.len() == 0)
        })
        .map(str::to_string)
        .collect()
}

/// A file of rejected lines that cannot be written or read.
fn unwritten(error: io::Error) -> Failure {
    Failure::Usage(format!("cannot write rejected lines: {error}"))
}

/// A load under way.
struct Loading {
    durability: Durability,
    strict: bool,
    /// Of each source: its name, and the lines that were not taken.
    names: Vec<String>,
    rejects: Vec<Rejects>,
    progress: Progress,
    loaded: u64,
    /// Of these, those that were loaded before this load was resumed.
    resumed: u64,
    rejected: u64,
    resume: Resume,
}

impl Loading {
    /// Begins where an earlier load of the same files was interrupted, unless it is to start over.
    fn resume(&mut self, dataset: &Dataset, feed: &mut Feed, restart: bool) -> Result<(), Failure> {
        let interrupted = self.resume.interrupted(dataset)?;
        let Some(Interrupted { place, loaded }) = interrupted.filter(|_| !restart) else {
            return Ok(());
        };
        for (at, rejects) in self.rejects.iter_mut().enumerate().take(place.source + 1) {
            let last = match at == place.source {
                true => place.line,
                false => u64::MAX,
            };
            rejects.resume(last).map_err(unwritten)?;
            self.rejected += rejects.count();
        }
        (self.loaded, self.resumed) = (loaded, loaded);
        note(format_args!(
            "resuming after line {} of {}: {} records are loaded (--restart loads all again)",
            thousands(place.line),
            self.name(place.source),
            thousands(loaded)
        ));
        feed.skip_to(place);
        Ok(())
    }

    fn flush_rejects(&mut self) -> Result<(), Failure> {
        for rejects in &mut self.rejects {
            rejects.flush().map_err(unwritten)?;
        }
        Ok(())
    }

    /// Commits a batch, and notes with it how far the load is.
    fn commit(&mut self, batch: &mut WriteBatch, place: Place) -> Result<(), Failure> {
        // The lines that were rejected before it are not read again.
        self.flush_rejects()?;
        let records = batch.len() as u64;
        self.resume.note(batch, place, self.loaded + records)?;
        batch.durability(self.durability).commit()?;
        self.loaded += records;
        Ok(())
    }

    /// Loads everything. A reason is returned where the load had to stop early; what came before it
    /// is committed.
    fn run(
        &mut self,
        dataset: &Dataset,
        feed: &mut Feed,
        interrupt: &Interrupt,
    ) -> Result<Option<String>, Failure> {
        let mut batch = dataset.batch();
        let mut stopped = None;
        // The last line that is in a batch or rejected.
        let mut done = Place { source: 0, line: 0 };
        while stopped.is_none() {
            if interrupt.signal().is_some() {
                stopped = Some(String::new());
                break;
            }
            let (source, line, reason, text) = match feed.next() {
                Some(Event::Pause) => {
                    // The other side may be a slow stream: what has come is stored meanwhile.
                    match batch.is_empty() {
                        false => self.commit(&mut batch, done)?,
                        true => self.flush_rejects()?,
                    }
                    self.progress.update(feed.bytes_read(), self.loaded);
                    continue;
                }
                Some(Event::Record { source, line, text }) => match batch.put_json(text) {
                    Ok(()) => {
                        done = Place { source, line };
                        if batch.len() >= BATCH_RECORDS || batch.bytes() >= BATCH_BYTES {
                            self.commit(&mut batch, done)?;
                            self.progress.update(feed.bytes_read(), self.loaded);
                        }
                        continue;
                    }
                    Err(error) => (source, line, error.to_string(), text),
                },
                Some(Event::Bad {
                    source,
                    line,
                    reason,
                    text,
                }) => (source, line, reason, text),
                Some(Event::Failed {
                    source,
                    line,
                    reason,
                }) => {
                    let name = self.name(source);
                    stopped = Some(format!(
                        "{name}: cannot be read after line {line}: {reason}"
                    ));
                    continue;
                }
                None => break,
            };
            match self.strict {
                true => stopped = Some(format!("{}, line {line}: {reason}", self.name(source))),
                false => done = Place { source, line },
            }
            self.rejected += 1;
            if let Some(rejects) = self.rejects.get_mut(source) {
                rejects.add(line, &reason, text);
            }
        }
        if stopped.is_some() {
            // What stopped it may be mended: the same files are resumed here.
            if !batch.is_empty() {
                self.commit(&mut batch, done)?;
            }
        } else {
            let rest = batch.len() as u64;
            self.resume.forget(&mut batch)?;
            batch.durability(self.durability).commit()?;
            self.loaded += rest;
        }
        self.progress.update(feed.bytes_read(), self.loaded);
        if interrupt.signal().is_some() && stopped.is_some() {
            self.progress.clear();
            note(self.interrupted(done));
        }
        Ok(stopped)
    }

    /// How far an interrupted load is, and how to continue it.
    fn interrupted(&self, done: Place) -> String {
        let records = counted(self.loaded, "record");
        let (line, name) = (thousands(done.line), self.name(done.source));
        let next = match self.resume.can_continue() {
            true => "give the same command again to continue there".to_string(),
            false => format!("continue with line {}", thousands(done.line + 1)),
        };
        format!("interrupted after line {line} of {name}: {records} are stored; {next}")
    }

    fn name(&self, source: usize) -> &str {
        self.names.get(source).map_or("input", String::as_str)
    }

    /// Says what was done.
    fn report(&mut self) -> Result<(), Failure> {
        self.progress.clear();
        let (elapsed, seconds) = self.progress.elapsed();
        for rejects in std::mem::take(&mut self.rejects) {
            let count = rejects.count();
            let written = rejects
                .finish()
                .map_err(|error| Failure::Usage(format!("cannot write rejected lines: {error}")))?;
            if let Some(path) = written {
                let count = thousands(count);
                note(format_args!(
                    "bad lines: {count}, with reasons in {}",
                    path.display()
                ));
            }
        }
        if report::is_json() {
            let (records, rejected) = (self.loaded, self.rejected);
            let loaded = json!({ "records": records, "rejected": rejected, "seconds": seconds });
            report::event("loaded", loaded);
            return Ok(());
        }
        note(format_args!(
            "{} loaded, {} rejected, in {elapsed} ({} records/s)",
            counted(self.loaded, "record"),
            thousands(self.rejected),
            thousands(((self.loaded - self.resumed) as f64 / seconds.max(1e-9)) as u64)
        ));
        Ok(())
    }
}
