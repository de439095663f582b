//! `changes`: the committed changes of a dataset, in order.

use std::time::Duration;

use esker::{Change, ChangeKind, Changes, ChangesFrom, Database, Dataset, Error, Position, Value};

use super::{dataset, open, open_to_read};
use crate::args::ChangesArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};

/// Changes that are printed between two notes of how far the consumer is.
const NOTED_EVERY: u64 = 4096;

/// How long is waited for a change at a time.
const PAUSE: Duration = Duration::from_millis(500);

/// `esker changes DIR DATASET`
pub(crate) fn changes(args: &ChangesArgs, memory: usize) -> Result<Outcome, Failure> {
    let Some(name) = &args.consumer else {
        let db = open_to_read(&args.dir, memory)?;
        return print(
            &db,
            args,
            args.from.unwrap_or(ChangesFrom::Oldest),
            &mut |_| Ok(()),
        );
    };
    let db = open(&args.dir, memory)?;
    // Before anything is printed, so that a typo in the dataset's name keeps no log.
    let target = dataset(&db, &args.dataset)?;
    if args.forget {
        if !target.release_changes(name)? {
            return Err(Failure::Usage(format!(
                "no consumer `{name}` of dataset `{}`",
                args.dataset
            )));
        }
        db.close()?;
        note(format_args!("forgot consumer {name}"));
        return Ok(Outcome::Done);
    }
    let known = target.change_consumer(name).map(|known| known.position);
    let begin = match (known, args.from) {
        (_, Some(from)) => feed(&target, from)?.position(),
        (Some(known), None) => known,
        (None, None) => db.position(),
    };
    if args.old {
        // Refused before a log is kept.
        target.changes(ChangesFrom::Now)?.with_old()?;
    }
    let keep = args.keep as u64;
    let late = |error: Error| match error {
        // The changes in between are gone: only the reader can say whether it goes on without them.
        Error::PositionExpired { oldest } if args.from.is_none() => Failure::Store(format!(
            "consumer `{name}` has not read changes that are not kept any more (--keep): go on with the oldest that is left, \
             --from {oldest}, or --forget the consumer"
        )),
        other => other.into(),
    };
    target.keep_changes_for(name, begin, keep).map_err(late)?;
    if known.is_none() {
        note(format_args!(
            "`{name}` is new: changes are kept for it from here on"
        ));
    }
    let outcome = print(&db, args, begin.into(), &mut |position| {
        Ok(target.keep_changes_for(name, position, keep)?)
    })?;
    db.close()?;
    // A consumer that was made is something done, whether or not there was a change yet.
    match known {
        None => Ok(Outcome::Done),
        Some(_) => Ok(outcome),
    }
}

/// The changes from a place on. One that the store does not have is a slip of who names it.
fn feed(dataset: &Dataset, from: ChangesFrom) -> Result<Changes, Failure> {
    dataset.changes(from).map_err(|error| match error {
        Error::OtherHistory { .. } => Failure::Usage(error.to_string()),
        other => other.into(),
    })
}

/// Prints changes, and tells `done` the place behind what has reached the reader.
fn print(
    db: &Database,
    args: &ChangesArgs,
    from: ChangesFrom,
    done: &mut dyn FnMut(Position) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let mut changes = feed(&dataset(db, &args.dataset)?, from)?;
    if args.old {
        changes = changes.with_old()?;
    }
    let mut output = Output::new();
    let mut printed = 0_u64;
    loop {
        let change = match changes.next()? {
            // The reader gets what is there before this waits for more.
            None => {
                output.flush()?;
                match args.follow {
                    true => changes.wait(PAUSE)?,
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
            done(changes.position())?;
        }
    }
    // What a reader did not get is not read.
    output.flush()?;
    done(changes.position())?;
    output.finish()?;
    Ok(Outcome::found(printed))
}

fn write(output: &mut Output, change: &Change) -> Result<(), Failure> {
    let key = match change.key().value() {
        Value::Int(number) => number.to_string(),
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
