//! `put`: puts the records of standard input in batches, reports bad lines by number, and leaves
//! them out.

use esker::{Durability, Error};
use esker_import::{
    BATCH_BYTES, BATCH_RECORDS, Event, Feed, Format, Place, is_of_record, put_parts, sources,
};
use esker_store::{Batch, Dataset};

use super::said::say_remarks;
use super::update::Merging;
use crate::args::PutArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{behind, counted, note};
use crate::store::{dataset, open};

/// `esker put DIR DATASET`: puts valid records, and reports bad ones.
pub(crate) fn put(args: &PutArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    let mut input = sources(&["-".into()], Some(Format::Ndjson))?;
    // What comes first is a record like all that follow.
    input.iter_mut().for_each(|input| input.unwraps = false);
    let mut feed = Feed::start(input);
    let interrupt = Interrupt::watch()?;
    let mut puts = Puts::new(&*dataset, args.durability, args.merge);
    let ended = puts.all(&mut feed, &interrupt);
    for how in feed.take_notes() {
        note(how);
    }
    let Puts { put, bad, done, .. } = puts;
    if let Err(error) = ended {
        if put > 0 || bad > 0 {
            note(format_args!(
                "put {}; {}",
                counted(put, "record"),
                behind(done.line, done.part, false)
            ));
        }
        return Err(error);
    }
    dataset.sync()?;
    db.close()?;
    note(format_args!("put {}", counted(put, "record")));
    say_remarks(&*dataset);
    if let Some(signal) = interrupt.signal() {
        let last = match done.part {
            0 => "line",
            _ => "what begins on line",
        };
        note(format_args!(
            "interrupted: everything up to {last} {} was put or reported; {}",
            done.line,
            behind(done.line, done.part, false)
        ));
        return Ok(Outcome::Interrupted(signal));
    }
    match bad {
        0 => Ok(Outcome::Done),
        1 => Err(Failure::Usage("1 line was not put".to_string())),
        _ => Err(Failure::Usage(format!(
            "{} were not put",
            counted(bad, "line")
        ))),
    }
}

/// After so many refusals, the records of a batch are committed one by one.
const FEW: usize = 8;

/// A record of the batch.
struct Kept {
    line: u64,
    /// Its encoded key.
    key: Vec<u8>,
    /// The record, or the patch, as it was read.
    json: Vec<u8>,
}

/// The puts of a stream.
struct Puts<'d> {
    dataset: &'d dyn Dataset,
    durability: Durability,
    batch: Box<dyn Batch>,
    merging: Option<Merging<'d>>,
    /// The records of the batch, if their values must be unique: a commit may refuse one.
    kept: Option<Vec<Kept>>,
    /// Records that are stored.
    put: u64,
    /// Lines that were reported.
    bad: u64,
    /// The last value that was read.
    read: Place,
    /// The last value that is stored or was reported.
    done: Place,
}

impl<'d> Puts<'d> {
    fn new(dataset: &'d dyn Dataset, durability: Durability, merges: bool) -> Puts<'d> {
        let is_unique = dataset.def().indexes.iter().any(|index| index.unique)
            || dataset.unfinished_index().is_some_and(|index| index.unique);
        let start = Place {
            source: 0,
            line: 0,
            part: 0,
        };
        Puts {
            dataset,
            durability,
            batch: dataset.batch(),
            merging: merges.then(|| Merging::of(dataset)),
            kept: is_unique.then(Vec::new),
            put: 0,
            bad: 0,
            read: start,
            done: start,
        }
    }

    /// Puts everything, or until a signal.
    fn all(&mut self, feed: &mut Feed, interrupt: &Interrupt) -> Result<(), Failure> {
        while interrupt.signal().is_none() {
            if self.batch.len() >= BATCH_RECORDS || self.batch.bytes() >= BATCH_BYTES {
                self.commit()?;
            }
            match feed.next() {
                // Commits before waiting for more, because the sender may be slow.
                Some(Event::Pause) => self.commit()?,
                Some(Event::Record {
                    source,
                    line,
                    part,
                    text,
                }) => {
                    self.line(line, text)?;
                    self.read = Place { source, line, part };
                }
                Some(Event::Bad {
                    source,
                    line,
                    part,
                    reason,
                    ..
                }) => {
                    self.report(line, reason);
                    self.read = Place { source, line, part };
                }
                Some(Event::Failed { line, reason, .. }) => self.report(line + 1, reason),
                None => break,
            }
        }
        self.commit()
    }

    /// Puts the record of a line, or its records.
    fn line(&mut self, line: u64, text: &[u8]) -> Result<(), Failure> {
        let mut put = |record: &[u8]| self.add(line, record);
        let bad = match put(text) {
            Ok(()) => return Ok(()),
            Err(error) => put_parts(&mut put, text, error)?,
        };
        for (_, reason) in bad {
            self.report(line, reason);
        }
        Ok(())
    }

    fn report(&mut self, line: u64, reason: impl std::fmt::Display) {
        self.bad += 1;
        note(format_args!("line {line}: {reason}"));
    }

    /// Adds a record to the batch.
    fn add(&mut self, line: u64, json: &[u8]) -> esker::Result<()> {
        match &mut self.merging {
            None => self.batch.put_json(json)?,
            Some(merging) => {
                let (key, record) = merging.merged(json)?;
                self.batch.put_json(&record)?;
                merging.remember(key, record);
            }
        }
        if let Some(kept) = &mut self.kept {
            kept.push(Kept {
                line,
                key: self.batch.last_key().to_vec(),
                json: json.to_vec(),
            });
        }
        Ok(())
    }

    /// Commits the batch, without the records that are refused because another one has a value that
    /// must be unique.
    fn commit(&mut self) -> Result<(), Failure> {
        let mut refused = 0;
        while let Err(error) = self.try_commit() {
            let Some(at) = self.refused(&error) else {
                return Err(error.into());
            };
            let mut kept = self.take();
            let record = kept.remove(at);
            self.report(record.line, error);
            refused += 1;
            if refused >= FEW {
                for record in kept {
                    self.again(&record)?;
                    self.commit_one(&record)?;
                }
                break;
            }
            for record in kept {
                self.again(&record)?;
            }
        }
        self.done = self.read;
        Ok(())
    }

    /// Adds a record again.
    fn again(&mut self, record: &Kept) -> Result<(), Failure> {
        match self.add(record.line, &record.json) {
            // The definition may have changed meanwhile.
            Err(error) if is_of_record(&error) => self.report(record.line, error),
            other => other?,
        }
        Ok(())
    }

    /// Commits a batch of one record.
    fn commit_one(&mut self, record: &Kept) -> Result<(), Failure> {
        if let Err(error) = self.try_commit() {
            if self.refused(&error).is_none() {
                return Err(error.into());
            }
            self.take();
            self.report(record.line, error);
        }
        Ok(())
    }

    fn try_commit(&mut self) -> esker::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let records = self.batch.len() as u64;
        self.batch.durability(self.durability);
        self.batch.commit()?;
        self.put += records;
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
        if let Some(merging) = &mut self.merging {
            merging.forget_all();
        }
        Ok(())
    }

    /// The place of the record that a commit refused: of several of its key the last one, which
    /// counts.
    fn refused(&self, error: &Error) -> Option<usize> {
        let Error::NotUnique(refused) = error else {
            return None;
        };
        let key = refused.key.as_bytes();
        let mut kept = self.kept.as_ref()?.iter();
        kept.rposition(|kept| kept.key == key)
    }

    /// Empties the batch; returns its records.
    fn take(&mut self) -> Vec<Kept> {
        self.batch = self.dataset.batch();
        if let Some(merging) = &mut self.merging {
            merging.forget_all();
        }
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
