//! `delete`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use esker::{Durability, Key, Request};
use esker_import::{BATCH_RECORDS, Event, Feed, Format, sources};
use esker_store::Dataset;

use super::fields;
use super::query::{conditions, paths};
use crate::args::DeleteArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{counted, note};
use crate::store::{dataset, open, open_durable};

/// `esker delete DIR DATASET KEY...`: reports keys without a record, and deletes the others.
pub(crate) fn delete(args: &DeleteArgs, memory: usize) -> Result<Outcome, Failure> {
    if !args.conditions.is_empty() {
        return delete_where(args, memory);
    }
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    // All keys are checked before a record is deleted.
    let given = args.keys.iter().filter(|key| *key != "-");
    let given: Vec<Key> = given
        .map(|key| dataset.parse_key(key))
        .collect::<Result<_, _>>()?;
    let mut deletions = Deletions {
        durability: args.durability,
        waiting: Vec::new(),
        deleted: 0,
        missing: 0,
        dataset,
    };
    for key in given {
        deletions.add(key)?;
    }
    let mut bad = 0;
    let interrupt = Interrupt::watch()?;
    if args.keys.iter().any(|key| key == "-") {
        bad = deletions.add_lines(&interrupt)?;
    }
    deletions.commit()?;
    let (deleted, missing) = (deletions.deleted, deletions.missing);
    drop(deletions);
    db.close()?;
    note(format_args!("deleted {}", counted(deleted, "record")));
    if let Some(signal) = interrupt.signal() {
        note("interrupted: the keys read so far were deleted or reported");
        return Ok(Outcome::Interrupted(signal));
    }
    match (bad, missing) {
        (0, 0) => Ok(Outcome::Done),
        (0, _) => Ok(Outcome::NotFound),
        (1, _) => Err(Failure::Usage(
            "1 line is not a key of the dataset".to_string(),
        )),
        (bad, _) => Err(Failure::Usage(format!(
            "{} are not keys of the dataset",
            counted(bad, "line")
        ))),
    }
}

/// `esker delete DIR DATASET --where EXPR`: deletes all records that meet the condition.
fn delete_where(args: &DeleteArgs, memory: usize) -> Result<Outcome, Failure> {
    let conditions = conditions(&args.conditions)?;
    let queried = paths(&conditions);
    let Some(condition) = conditions.iter().cloned().reduce(|all, one| all & one) else {
        return Ok(Outcome::Done);
    };
    let db = open_durable(&args.dir, memory, args.durability)?;
    let dataset = dataset(&*db, &args.dataset)?;
    let interrupt = Interrupt::watch()?;
    for text in dataset.explain(&Request::of(condition.clone()))?.notes {
        note(format_args!("note: {text}"));
    }
    let mut deleted = 0;
    let mut progress = |so_far| {
        deleted = so_far;
        match interrupt.signal() {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    };
    let ended = dataset.delete_where(condition, &mut progress);
    if ended.is_ok() && deleted == 0 {
        fields::note_unknown(dataset.records(), &queried, &conditions)?;
    }
    let closed = db.close();
    note(format_args!("deleted {}", counted(deleted, "record")));
    ended?;
    closed?;
    match interrupt.signal() {
        None => Ok(Outcome::Done),
        Some(signal) => {
            note("interrupted: give the same command again to delete the rest");
            Ok(Outcome::Interrupted(signal))
        }
    }
}

/// Deletes keys in batches.
struct Deletions {
    dataset: Box<dyn Dataset>,
    durability: Durability,
    waiting: Vec<Key>,
    deleted: u64,
    missing: u64,
}

impl Deletions {
    fn add(&mut self, key: Key) -> Result<(), Failure> {
        self.waiting.push(key);
        if self.waiting.len() >= BATCH_RECORDS {
            self.commit()
        } else {
            Ok(())
        }
    }

    /// Deletes the keys on the lines of standard input, with a commit at each pause of the stream;
    /// returns the number of lines that are no keys.
    fn add_lines(&mut self, interrupt: &Interrupt) -> Result<u64, Failure> {
        let mut feed = Feed::start(sources(&["-".into()], Some(Format::Lines))?);
        let mut bad = 0;
        while interrupt.signal().is_none() {
            let (line, reason) = match feed.next() {
                Some(Event::Pause) => {
                    self.commit()?;
                    continue;
                }
                Some(Event::Record { line, text, .. }) => {
                    let key = match str::from_utf8(text) {
                        Ok(text) => self
                            .dataset
                            .parse_key(text)
                            .map_err(|error| error.to_string()),
                        Err(_) => Err("a key must be UTF-8".to_string()),
                    };
                    match key {
                        Ok(key) => {
                            self.add(key)?;
                            continue;
                        }
                        Err(reason) => (line, reason),
                    }
                }
                Some(Event::Bad { line, reason, .. }) => (line, reason),
                Some(Event::Failed { reason, .. }) => {
                    let text = format!("standard input cannot be read: {reason}");
                    return Err(Failure::Usage(text));
                }
                None => break,
            };
            bad += 1;
            note(format_args!("line {line}: {reason}"));
        }
        Ok(bad)
    }

    /// Deletes the waiting keys. No other process writes to the store, so the check and the
    /// deletion see the same records.
    fn commit(&mut self) -> Result<(), Failure> {
        let mut batch = self.dataset.batch();
        let mut seen = HashSet::new();
        for key in self.waiting.drain(..) {
            if seen.insert(key.to_string()) && self.dataset.get(&key)?.is_some() {
                batch.delete(&key)?;
                self.deleted += 1;
            } else {
                self.missing += 1;
                note(format_args!("no record with key {key}"));
            }
        }
        if !batch.is_empty() {
            batch.durability(self.durability);
            batch.commit()?;
        }
        Ok(())
    }
}
