//! `changes`: the committed changes of a dataset, in order.

use std::time::{Duration, Instant};

use esker::{
    Change, ChangeKind, Changes, ChangesFrom, Consumer, Dataset, Error, KeyType, Position, Value,
};

use super::{dataset, open, open_to_read};
use crate::args::ChangesArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Output, note};

/// Changes that are printed between two notes of how far the consumer is.
const NOTED_EVERY: u64 = 4096;

/// How long is waited for a change at a time.
const PAUSE: Duration = Duration::from_millis(200);

/// `esker changes DIR DATASET`
pub(crate) fn changes(args: &ChangesArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    // Before anything is kept or printed.
    let target = dataset(&db, &args.dataset)?;
    let Some(name) = &args.consumer else {
        let mut feed = feed(&target, args.from.unwrap_or(ChangesFrom::Oldest))?;
        if args.old {
            feed = feed.with_old()?;
        }
        return print(Source::Plain(Box::new(feed)), args);
    };
    if args.forget {
        return forget(args, &target, name, memory);
    }
    if args.old {
        // Refused before a log is kept.
        target.changes(ChangesFrom::Now)?.with_old()?;
    }
    if let Some(from) = args.from {
        feed(&target, from)?;
    }
    let late = |error: Error| match error {
        // The changes in between are gone: only the reader can say whether it goes on without them.
        Error::PositionExpired { oldest } if args.from.is_none() => Failure::Store(format!(
            "consumer `{name}` has not read changes that are not kept any more (--keep): continue with the oldest change in the log, \
             --from {oldest}, or remove the consumer with --forget"
        )),
        other => other.into(),
    };
    let mut consumer = target
        .consume(name, args.from, args.keep as u64)
        .map_err(late)?;
    let is_new = consumer.is_new();
    if is_new {
        note(format_args!(
            "`{name}` is new: changes are kept for it from here on"
        ));
    }
    if args.old {
        consumer = consumer.with_old()?;
    }
    // A consumer that was made is something done, whether or not there was a change yet.
    match print(Source::Consumer(Box::new(consumer)), args)? {
        Outcome::NotFound if is_new => Ok(Outcome::Done),
        outcome => Ok(outcome),
    }
}

fn forget(
    args: &ChangesArgs,
    target: &Dataset,
    name: &str,
    memory: usize,
) -> Result<Outcome, Failure> {
    let released = match target.release_changes(name) {
        // One that an earlier version kept is in a file that only a writer writes.
        Err(Error::ReadOnly) => {
            let db = open(&args.dir, memory)?;
            let released = dataset(&db, &args.dataset)?.release_changes(name)?;
            db.close()?;
            released
        }
        released => released?,
    };
    if !released {
        return Err(Failure::Usage(format!(
            "no consumer `{name}` of dataset `{}`",
            args.dataset
        )));
    }
    note(format_args!("forgot consumer {name}"));
    Ok(Outcome::Done)
}

/// The changes from a place on. One that the store does not have is a slip of who names it.
fn feed(dataset: &Dataset, from: ChangesFrom) -> Result<Changes, Failure> {
    dataset.changes(from).map_err(|error| match error {
        Error::OtherHistory { .. } => Failure::Usage(error.to_string()),
        other => other.into(),
    })
}

/// Where the changes come from: a consumer notes how far it is.
enum Source {
    Plain(Box<Changes>),
    Consumer(Box<Consumer>),
}

impl Source {
    fn wait(&mut self, most: Duration) -> Result<Option<Change>, Error> {
        match self {
            Source::Plain(feed) => feed.wait(most),
            Source::Consumer(consumer) => consumer.wait(most),
        }
    }

    fn position(&self) -> Position {
        match self {
            Source::Plain(feed) => feed.position(),
            Source::Consumer(consumer) => consumer.position(),
        }
    }

    /// What was given has reached the reader.
    fn done(&mut self) -> Result<(), Failure> {
        match self {
            Source::Plain(_) => Ok(()),
            Source::Consumer(consumer) => Ok(consumer.done()?),
        }
    }
}

fn print(mut source: Source, args: &ChangesArgs) -> Result<Outcome, Failure> {
    let interrupt = Interrupt::watch()?;
    let mut output = Output::new();
    let mut printed = 0_u64;
    let mut noted = Instant::now();
    while interrupt.signal().is_none() {
        let change = match source.wait(Duration::ZERO)? {
            // The reader gets what is there before this waits for more.
            None => {
                output.flush()?;
                // Not after each change of a busy store: noting costs a sync.
                if noted.elapsed() >= PAUSE {
                    source.done()?;
                    noted = Instant::now();
                }
                match args.follow {
                    true => source.wait(PAUSE)?,
                    false => break,
                }
            }
            some => some,
        };
        let Some(change) = change else {
            continue;
        };
        write(&mut output, &change)?;
        printed += 1;
        if printed.is_multiple_of(NOTED_EVERY) {
            output.flush()?;
            source.done()?;
            noted = Instant::now();
        }
    }
    // What a reader did not get is not read.
    output.flush()?;
    source.done()?;
    output.finish()?;
    if let Some(signal) = interrupt.signal() {
        let here = source.position();
        match source {
            Source::Plain(_) => note(format_args!("interrupted: continue with --from {here}")),
            Source::Consumer(_) => note(format_args!(
                "interrupted after {printed} changes: the consumer continues after them"
            )),
        }
        return Ok(Outcome::Interrupted(signal));
    }
    Ok(Outcome::found(printed))
}

fn write(output: &mut Output, change: &Change) -> Result<(), Failure> {
    let key = match change.key().value() {
        Value::Int(number) => number.to_string(),
        // Of several fields it is a JSON array.
        array if change.key().key_type() == KeyType::Fields => array.to_string(),
        other => serde_json::Value::String(other.to_string()).to_string(),
    };
    let seq = change.seq();
    let what = match change.kind() {
        ChangeKind::Put => "put",
        ChangeKind::Expired => "expire",
        _ => "delete",
    };
    output.text(format_args!(
        "{{\"seq\":{seq},\"change\":\"{what}\",\"key\":{key}"
    ))?;
    for (name, record) in [("record", change.record()), ("old", change.old())] {
        if let Some(record) = record {
            output.text(format_args!(",\"{name}\":"))?;
            output.json(record.json())?;
        }
    }
    output.line("}")
}
