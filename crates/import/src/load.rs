//! The import itself: records in batches, progress noted with each, bad lines set aside.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use esker::{Dataset, DatasetDef, Durability, KeyType, Type, WriteBatch};

use crate::error::{Error, Result};
use crate::feed::{Event, Feed, Place};
use crate::observer::{Note, Observer};
use crate::rejects::Rejects;
use crate::resume::{Interrupted, Resume};
use crate::source::Source;

/// Records in a batch, and their bytes: whichever is reached first.
pub const BATCH_RECORDS: usize = 1000;
/// See [`BATCH_RECORDS`].
pub const BATCH_BYTES: usize = 1 << 20;

/// An import of files into a dataset.
pub struct Import {
    feed: Feed,
    durability: Durability,
    strict: bool,
    restart: bool,
    /// Of each source the lines that were not taken.
    rejects: Vec<Rejects>,
    resume: Resume,
    loaded: u64,
    /// Of these, those that were loaded before this import was resumed.
    resumed: u64,
    rejected: u64,
    /// The last line that is in a batch or rejected.
    done: Place,
}

/// What an import has done.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Records that are loaded.
    pub records: u64,
    /// Of these, those that an earlier import had loaded that this one resumed.
    pub resumed: u64,
    /// Lines that were rejected.
    pub rejected: u64,
    /// The files that keep the rejected lines, and how many each keeps.
    pub rejects: Vec<(PathBuf, u64)>,
    /// How it ended.
    pub end: End,
}

/// How an import ended. What came before the end is loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// Everything was read.
    Complete,
    /// The observer stopped it.
    Stopped {
        /// The name of the source.
        name: String,
        /// Its last line that is loaded or rejected.
        line: u64,
        /// True when the same import, given again, continues there.
        is_resumable: bool,
    },
    /// A source cannot be read on, or a strict import met a line that is no record.
    Bad(String),
    /// It failed.
    Failed(Error),
}

impl Import {
    /// Begins to read the sources.
    pub fn new(sources: Vec<Source>) -> Self {
        let resume = Resume::new(&sources);
        let rejects = sources
            .iter()
            .map(|source| Rejects::beside(source.path.as_deref()));
        Self {
            rejects: rejects.collect(),
            resume,
            feed: Feed::start(sources),
            durability: Durability::Periodic(std::time::Duration::from_secs(1)),
            strict: false,
            restart: false,
            loaded: 0,
            resumed: 0,
            rejected: 0,
            done: Place { source: 0, line: 0 },
        }
    }

    /// The durability of the batches; each second by default. The end of the import is synced in any case.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether the first line that is no record ends the import.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether the import begins at the start even where an interrupted one could be resumed.
    pub fn restart(mut self, restart: bool) -> Self {
        self.restart = restart;
        self
    }

    /// The lines, to look at a sample before the dataset is made.
    pub fn feed(&mut self) -> &mut Feed {
        &mut self.feed
    }

    /// Loads everything.
    pub fn run(mut self, dataset: &Dataset, observer: &mut dyn Observer) -> Report {
        self.feed.set_string_columns(string_columns(&dataset.def()));
        let ended = self
            .begin(dataset, observer)
            .and_then(|()| self.load(dataset, observer));
        // Also after a failure: what was loaded before stays.
        let synced = dataset.sync();
        observer.progress(self.feed.bytes_read(), self.loaded);
        let kept = self.finish_rejects();
        let ended = ended.and_then(|end| {
            synced?;
            Ok(end)
        });
        let (rejects, end) = match (kept, ended) {
            (Ok(rejects), Ok(end)) => (rejects, end),
            (Ok(rejects), Err(error)) => (rejects, End::Failed(error)),
            (Err(error), _) => (Vec::new(), End::Failed(error)),
        };
        Report {
            records: self.loaded,
            resumed: self.resumed,
            rejected: self.rejected,
            rejects,
            end,
        }
    }

    /// Begins where an earlier import of the same files was interrupted, unless it is to start over.
    fn begin(&mut self, dataset: &Dataset, observer: &mut dyn Observer) -> Result<()> {
        let mut note = |note: &Note| observer.note(note);
        let interrupted = self.resume.interrupted(dataset, &mut note)?;
        let Some(Interrupted { place, loaded }) = interrupted.filter(|_| !self.restart) else {
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
        observer.note(&Note::Resuming {
            name: self.feed.name(place.source).to_string(),
            line: place.line,
            records: loaded,
        });
        self.feed.skip_to(place);
        Ok(())
    }

    fn flush_rejects(&mut self) -> Result<()> {
        let mut rejects = self.rejects.iter_mut();
        rejects.try_for_each(|rejects| rejects.flush().map_err(unwritten))
    }

    /// Writes what is buffered: the files of rejected lines, and how many each keeps.
    fn finish_rejects(&mut self) -> Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        for rejects in std::mem::take(&mut self.rejects) {
            let count = rejects.count();
            if let Some(path) = rejects.finish().map_err(unwritten)? {
                files.push((path, count));
            }
        }
        Ok(files)
    }

    /// Commits a batch, and notes with it how far the import is.
    fn commit(&mut self, batch: &mut WriteBatch) -> Result<()> {
        // The lines that were rejected before it are not read again.
        self.flush_rejects()?;
        let records = batch.len() as u64;
        self.resume.note(batch, self.done, self.loaded + records)?;
        batch.durability(self.durability).commit()?;
        self.loaded += records;
        Ok(())
    }

    /// Loads everything, unless the import has to stop early; what came before that is committed.
    fn load(&mut self, dataset: &Dataset, observer: &mut dyn Observer) -> Result<End> {
        let mut batch = dataset.batch();
        let end = loop {
            if observer.is_stopped() {
                break End::Stopped {
                    name: self.feed.name(self.done.source).to_string(),
                    line: self.done.line,
                    is_resumable: self.resume.can_continue(),
                };
            }
            let (source, line, reason, text) = match self.feed.next() {
                Some(Event::Pause) => {
                    // The other side may be a slow stream: what has come is stored meanwhile.
                    match batch.is_empty() {
                        false => self.commit(&mut batch)?,
                        true => self.flush_rejects()?,
                    }
                    observer.progress(self.feed.bytes_read(), self.loaded);
                    continue;
                }
                Some(Event::Record { source, line, text }) => match batch.put_json(text) {
                    Ok(()) => {
                        self.done = Place { source, line };
                        if batch.len() >= BATCH_RECORDS || batch.bytes() >= BATCH_BYTES {
                            self.commit(&mut batch)?;
                            observer.progress(self.feed.bytes_read(), self.loaded);
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
                    let name = self.feed.name(source);
                    break End::Bad(format!(
                        "{name}: cannot be read after line {line}: {reason}"
                    ));
                }
                None => break End::Complete,
            };
            self.rejected += 1;
            if let Some(rejects) = self.rejects.get_mut(source) {
                rejects.add(line, &reason, text, &mut |note| observer.note(note));
            }
            if self.strict {
                let name = self.feed.name(source);
                break End::Bad(format!("{name}, line {line}: {reason}"));
            }
            self.done = Place { source, line };
        };
        if matches!(end, End::Complete) {
            let rest = batch.len() as u64;
            self.resume.forget(&mut batch)?;
            batch.durability(self.durability).commit()?;
            self.loaded += rest;
        } else if !batch.is_empty() {
            // What stopped it may be mended: the same files are resumed here.
            self.commit(&mut batch)?;
        }
        Ok(end)
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
fn unwritten(error: io::Error) -> Error {
    Error::Input(format!("cannot write rejected lines: {error}"))
}
