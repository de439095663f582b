//! The import itself: puts records in batches, stores the progress with each batch, and writes bad
//! lines to a file.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use esker::{DatasetDef, Durability, KeyType, Path, Type};
use esker_store::{Batch, Dataset};

use crate::error::{Error, Result};
use crate::feed::{Columns, Event, Feed, Place};
use crate::observer::{Note, Observer};
use crate::pending::Pending;
use crate::put::{Refused, put_record, put_whole};
use crate::rejects::Rejects;
use crate::replaced::Replaced;
use crate::resume::{Interrupted, Resume};
use crate::source::Source;

/// A batch is committed when it has this many records or [`BATCH_BYTES`] bytes.
pub const BATCH_RECORDS: usize = 1000;
/// A batch is committed when it has this many bytes or [`BATCH_RECORDS`] records.
pub const BATCH_BYTES: usize = 1 << 20;

/// An import of files into a dataset.
pub struct Import {
    pub(crate) feed: Feed,
    durability: Durability,
    pub(crate) strict: bool,
    restart: bool,
    /// The rejected lines of each source.
    rejects: Vec<Rejects>,
    resume: Resume,
    pub(crate) loaded: u64,
    /// The number of these that an earlier, interrupted import loaded.
    resumed: u64,
    rejected: u64,
    pub(crate) replaced: Replaced,
    /// The last line that is in a batch or rejected.
    pub(crate) done: Place,
    /// As [`Import::done`], without the batch that is not committed yet.
    pub(crate) committed: Place,
    /// The records of that batch, if their values must be unique.
    pub(crate) pending: Pending,
}

/// The progress that a commit notes.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    /// The last line that is done.
    pub(crate) place: Place,
    /// Records loaded up to it, and records replaced.
    pub(crate) loaded: u64,
    pub(crate) replaced: u64,
    /// The import is complete.
    pub(crate) is_last: bool,
}

/// The result of an import.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Records loaded.
    pub records: u64,
    /// Of these, records loaded by the interrupted import that this one resumed.
    pub resumed: u64,
    /// Records whose key had a record before, in the dataset or earlier in the import.
    pub replaced: u64,
    /// Lines rejected.
    pub rejected: u64,
    /// The files with the rejected lines, and the number of lines in each.
    pub rejects: Vec<(PathBuf, u64)>,
    /// How it ended.
    pub end: End,
}

/// How an import ended. All records before that point are loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// Everything was read.
    Complete,
    /// The observer stopped it.
    Stopped {
        /// The name of the source.
        name: String,
        /// Its last line that is loaded or rejected, or on which the last such value begins.
        line: u64,
        /// The number of that value among those that begin on the line, from 1; 0 for a line that
        /// is loaded or rejected as a whole.
        part: u32,
        /// True for a row of a table, which may span several lines.
        is_row: bool,
        /// True if the same import, run again, continues there.
        is_resumable: bool,
    },
    /// A source cannot be read further, or a strict import found a line that is not a record.
    Bad(String),
    /// It failed.
    Failed(Error),
}

impl Import {
    /// Starts reading the sources.
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
            replaced: Replaced::default(),
            done: Place::START,
            committed: Place::START,
            pending: Pending::default(),
        }
    }

    /// Sets the durability of the batches. Default: synced each second. The end of the import is
    /// always synced.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets whether the first line that is not a record ends the import.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets whether the import starts over even if an interrupted import could be resumed.
    pub fn restart(mut self, restart: bool) -> Self {
        self.restart = restart;
        self
    }

    /// True if every source can be read again; only then can an interrupted import be resumed.
    pub fn is_repeatable(&self) -> bool {
        self.resume.is_repeatable()
    }

    /// The lines, to look at a sample before the dataset is created.
    pub fn feed(&mut self) -> &mut Feed {
        &mut self.feed
    }

    /// Loads everything.
    pub fn run(mut self, dataset: &dyn Dataset, observer: &mut dyn Observer) -> Report {
        self.feed.set_columns(columns(&dataset.def()));
        let ended = self
            .begin(dataset, observer)
            .and_then(|()| self.load(dataset, observer));
        // Also after a failure, since the records before it are kept.
        let synced = dataset.sync();
        observer.progress(self.feed.bytes_read(), self.loaded);
        let is_complete = matches!(ended, Ok(End::Complete));
        let kept = self.finish_rejects(is_complete);
        let ended = ended.and_then(|end| {
            synced?;
            Ok(end)
        });
        let (rejects, end) = match (kept, ended) {
            (Ok(rejects), Ok(end)) => (rejects, end),
            (Ok(rejects), Err(error)) => (rejects, End::Failed(error)),
            (Err(error), Ok(End::Complete)) => (Vec::new(), End::Failed(error)),
            // What ended the import comes first.
            (Err(_), Ok(end)) => (Vec::new(), end),
            (Err(_), Err(error)) => (Vec::new(), End::Failed(error)),
        };
        Report {
            records: self.loaded,
            resumed: self.resumed,
            replaced: self.replaced.count(),
            rejected: self.rejected,
            rejects,
            end,
        }
    }

    /// Rejects the first `lines` lines, if a sample contains no record. Returns the files with the
    /// rejected lines, and the number of lines in each.
    pub fn reject_sample(
        mut self,
        lines: u64,
        observer: &mut dyn Observer,
    ) -> Result<Vec<(PathBuf, u64)>> {
        while self.rejected < lines {
            let (source, line, part, reason, text) = match self.feed.next() {
                Some(Event::Record {
                    source,
                    line,
                    part,
                    text,
                }) => {
                    let reason = match serde_json::from_slice::<serde_json::Value>(text) {
                        Ok(_) => "not a JSON object".to_string(),
                        Err(error) => format!("not valid JSON: {error}"),
                    };
                    (source, line, part, reason, text)
                }
                Some(Event::Bad {
                    source,
                    line,
                    part,
                    reason,
                    text,
                }) => (source, line, part, reason, text),
                Some(Event::Pause | Event::Failed { .. }) | None => break,
            };
            self.rejected += 1;
            let mut note = |note: &Note| observer.note(note);
            let place = Place { source, line, part };
            let added = self.rejects[source].add(place, &reason, text, &mut note);
            added.map_err(unwritten)?;
        }
        self.finish_rejects(false)
    }

    /// Continues where an earlier import of the same files was interrupted, unless `restart` is
    /// set.
    fn begin(&mut self, dataset: &dyn Dataset, observer: &mut dyn Observer) -> Result<()> {
        let mut note = |note: &Note| observer.note(note);
        self.replaced.begin(dataset)?;
        self.pending = Pending::of(dataset);
        if self.restart {
            self.resume.forget_others(dataset)?;
        }
        let interrupted = self.resume.interrupted(dataset, &mut note)?;
        let Some(Interrupted {
            place,
            loaded,
            replaced,
            rejected,
            unwritten,
        }) = interrupted.filter(|_| !self.restart)
        else {
            return Ok(());
        };
        for (at, rejects) in self.rejects.iter_mut().enumerate().take(place.source + 1) {
            let last = if at == place.source {
                place
            } else {
                Place::end_of(at)
            };
            let most = rejected.as_ref().and_then(|counts| counts.get(at).copied());
            let unwritten = unwritten.get(at).copied().unwrap_or(0);
            if !rejects.resume(last, most, unwritten).map_err(unread)? {
                observer.note(&Note::RejectsLost {
                    path: rejects.path().to_path_buf(),
                });
                self.rejected = 0;
                self.rejects.iter_mut().for_each(Rejects::start_over);
                return Ok(());
            }
            self.rejected += rejects.count();
        }
        (self.loaded, self.resumed) = (loaded, loaded);
        self.replaced.resume(replaced);
        observer.note(&Note::Resuming {
            name: self.feed.name(place.source).to_string(),
            line: place.line,
            records: loaded,
        });
        self.committed = place;
        self.feed.skip_to(place);
        Ok(())
    }

    fn sync_rejects(&mut self) -> Result<()> {
        let mut rejects = self.rejects.iter_mut();
        rejects.try_for_each(|rejects| rejects.sync().map_err(unwritten))
    }

    fn flush_rejects(&mut self) -> Result<()> {
        let mut rejects = self.rejects.iter_mut();
        rejects.try_for_each(|rejects| rejects.flush().map_err(unwritten))
    }

    /// Finishes the files of rejected lines; returns their paths and numbers of lines.
    fn finish_rejects(&mut self, is_complete: bool) -> Result<Vec<(PathBuf, u64)>> {
        let (mut files, mut failed) = (Vec::new(), None);
        for rejects in std::mem::take(&mut self.rejects) {
            let count = rejects.count();
            let removed = if is_complete {
                rejects.remove_stale()
            } else {
                Ok(())
            };
            match removed.and_then(|()| rejects.finish()) {
                Ok(path) => files.extend(path.map(|path| (path, count))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(files), |error| Err(unwritten(error)))
    }

    /// Commits a batch together with the progress, or with the note that the import is complete. A
    /// strict import returns the record that is refused because its value is not unique.
    fn commit(
        &mut self,
        dataset: &dyn Dataset,
        batch: &mut Box<dyn Batch>,
        is_last: bool,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        let replaced = self.replaced.count();
        self.replaced.look(dataset)?;
        let records = batch.len() as u64;
        let progress = Progress {
            place: self.done,
            loaded: self.loaded + records,
            replaced: self.replaced.count(),
            is_last,
        };
        let bad = match self.commit_with_note(&mut **batch, progress) {
            Ok(()) => {
                self.loaded += records;
                None
            }
            Err(Error::Store(error @ esker::Error::NotUnique(_))) if self.pending.can_retry() => {
                *batch = dataset.batch();
                self.commit_refused(dataset, error, is_last, replaced, observer)?
            }
            Err(error) => return Err(error),
        };
        self.pending.take();
        self.committed = self.done;
        if bad.is_none() {
            self.rejects.iter_mut().for_each(Rejects::settle);
        }
        Ok(bad)
    }

    /// Commits a batch with a note of the progress.
    pub(crate) fn commit_with_note(
        &mut self,
        batch: &mut dyn Batch,
        progress: Progress,
    ) -> Result<()> {
        // The import does not read earlier rejected lines again. The note may be on the disk at any
        // moment after the commit, so they must be there before.
        self.sync_rejects()?;
        if progress.is_last {
            self.resume.forget(batch)?;
        } else {
            // A batch may be committed in parts: lines behind this part are read again.
            let counts = self.rejects.iter();
            let counts = counts.map(|rejects| rejects.up_to(progress.place));
            let (rejected, unwritten) = counts.unzip();
            self.resume.note(
                batch,
                &Interrupted {
                    place: progress.place,
                    loaded: progress.loaded,
                    replaced: progress.replaced,
                    rejected: Some(rejected),
                    unwritten,
                },
            )?;
        }
        batch.durability(self.durability);
        Ok(batch.commit()?)
    }

    /// Adds a line that a commit refused to the rejected ones.
    pub(crate) fn add_rejected(
        &mut self,
        place: Place,
        reason: &str,
        text: &[u8],
        note: &mut dyn FnMut(&Note),
    ) -> Result<()> {
        self.rejected += 1;
        let rejects = &mut self.rejects[place.source];
        rejects.add(place, reason, text, note).map_err(unwritten)?;
        self.flush_rejects()
    }

    /// Loads everything, or until the import must stop; records read before that are committed.
    fn load(&mut self, dataset: &dyn Dataset, observer: &mut dyn Observer) -> Result<End> {
        let mut batch = dataset.batch();
        let end = loop {
            if observer.is_stopped() {
                break self.stopped();
            }
            for how in self.feed.take_notes() {
                observer.note(&Note::Read(how));
            }
            let read = match self.feed.next() {
                Some(Event::Pause) => {
                    // The sender may be slow, so the records so far are committed.
                    if batch.is_empty() {
                        self.flush_rejects()?
                    } else {
                        let bad = self.commit(dataset, &mut batch, false, observer)?;
                        if let Some(bad) = bad {
                            break End::Bad(bad);
                        }
                    }
                    observer.progress(self.feed.bytes_read(), self.loaded);
                    continue;
                }
                Some(Event::Record {
                    source,
                    line,
                    part,
                    text,
                }) => {
                    let place = Place { source, line, part };
                    let mut put = |record: &[u8]| {
                        batch.put_json(record)?;
                        self.replaced.put(batch.last_key());
                        self.pending.add(place, batch.last_key(), record);
                        Ok(())
                    };
                    let bad = if self.strict {
                        put_whole(text, dataset, &mut put)?
                    } else {
                        put_record(text, &mut put)?
                    };
                    Read { place, text, bad }
                }
                Some(Event::Bad {
                    source,
                    line,
                    part,
                    reason,
                    text,
                }) => Read {
                    place: Place { source, line, part },
                    text,
                    bad: vec![(0..text.len(), reason)],
                },
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
            let Read { place, text, bad } = read;
            self.rejected += bad.len() as u64;
            let rejects = &mut self.rejects[place.source];
            for (range, reason) in &bad {
                let mut note = |note: &Note| observer.note(note);
                let added = rejects.add(place, reason, &text[range.clone()], &mut note);
                added.map_err(unwritten)?;
            }
            if self.strict
                && let Some((_, reason)) = bad.first()
            {
                let name = self.feed.name(place.source);
                break End::Bad(format!("{name}, line {}: {reason}", place.line));
            }
            self.done = place;
            if batch.is_empty() {
                rejects.settle();
            }
            if batch.len() >= BATCH_RECORDS || batch.bytes() >= BATCH_BYTES {
                let bad = self.commit(dataset, &mut batch, false, observer)?;
                observer.progress(self.feed.bytes_read(), self.loaded);
                if let Some(bad) = bad {
                    break End::Bad(bad);
                }
            }
        };
        for how in self.feed.take_notes() {
            observer.note(&Note::Read(how));
        }
        let bad = self.end(dataset, &mut batch, &end, observer)?;
        Ok(bad.map_or(end, End::Bad))
    }

    /// The end of an import that the observer stops.
    fn stopped(&self) -> End {
        End::Stopped {
            name: self.feed.name(self.done.source).to_string(),
            line: self.done.line,
            part: self.done.part,
            is_row: self.feed.has_rows(self.done.source),
            is_resumable: self.resume.can_continue(),
        }
    }

    /// Commits the rest at the end of the input, or where the import stops. A strict import returns
    /// a record that is refused.
    fn end(
        &mut self,
        dataset: &dyn Dataset,
        batch: &mut Box<dyn Batch>,
        end: &End,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        // Unless the import is complete, the cause may be repaired, and then it resumes here.
        let is_last = matches!(end, End::Complete);
        if is_last || !batch.is_empty() {
            return self.commit(dataset, batch, is_last, observer);
        }
        Ok(None)
    }
}

/// A record or a bad line of the input.
struct Read<'t> {
    place: Place,
    text: &'t [u8],
    /// The parts of the text that are no records of the dataset, with reasons.
    bad: Refused,
}

/// The CSV columns that the dataset declares as strings or numbers. A column is a top-level field
/// of the record, with any characters in its name. So it matches a path of this one name, not a
/// path with the same text.
fn columns(def: &DatasetDef) -> Columns {
    let one = |path: &Path| {
        let mut names = path.names();
        let name = names.next().filter(|_| names.len() == 0)?;
        Some(name.to_string())
    };
    let of = |wanted: &[Type]| {
        let indexes = def.indexes.iter();
        let indexes = indexes.filter(|index| wanted.contains(&index.ty));
        let names: HashSet<String> = indexes.filter_map(|index| one(&index.path)).collect();
        names
    };
    let mut columns = Columns {
        strings: of(&[Type::String]),
        numbers: of(&[Type::Int, Type::Float]),
    };
    if let Some(key) = one(&def.key) {
        match def.key_type {
            KeyType::String => columns.strings.insert(key),
            _ => columns.numbers.insert(key),
        };
    }
    columns
}

/// The error for a file of rejected lines that cannot be read or written when a load resumes.
fn unread(error: io::Error) -> Error {
    Error::Input(format!("cannot continue a file of rejected lines: {error}"))
}

/// The error for a file of rejected lines that cannot be written.
fn unwritten(error: io::Error) -> Error {
    Error::Input(format!("cannot write rejected lines: {error}"))
}
