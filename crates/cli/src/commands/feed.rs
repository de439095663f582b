//! The changes of a dataset as commands read them: from a position, for a consumer, and waiting for
//! more.

use std::path::Path;
use std::time::{Duration, Instant};

use esker::{Change, ChangeKind, ChangesFrom, DatasetDef, Error, KeyType, Value};

use esker_store::{ChangeFeed, Dataset, Store};

use crate::args::FeedArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Output, note};
use crate::store::{dataset, open, open_to_read};

/// The number of changes read between two acknowledgements to the consumer.
const NOTED_EVERY: u64 = 4096;

/// How much log is kept at most for a new consumer, in bytes.
const KEPT: u64 = 1 << 30;

/// The timeout of one wait for a change.
const PAUSE: Duration = Duration::from_millis(200);

/// The dataset whose changes are read.
pub(super) struct Source<'a> {
    pub(super) dir: &'a Path,
    pub(super) dataset: &'a str,
    /// Each change with the record that it replaced.
    pub(super) with_old: bool,
}

/// Which changes are printed, and the member that says why.
pub(super) trait Lines {
    /// `None` leaves the change out; otherwise its event, if it has one.
    fn line(&self, change: &Change) -> Option<Option<&'static str>>;
}

/// Prints the changes of a dataset; `lines` is made of the definition before anything is printed or
/// a consumer created.
pub(super) fn print<L: Lines>(
    from: &Source<'_>,
    args: &FeedArgs,
    memory: usize,
    lines: impl FnOnce(&DatasetDef) -> Result<L, Failure>,
) -> Result<Outcome, Failure> {
    let db = open_to_read(from.dir, memory)?;
    // An unknown dataset is an error before a consumer is created or a change printed.
    let target = dataset(&*db, from.dataset)?;
    let lines = lines(&target.def())?;
    let Some(name) = &args.consumer else {
        let begin = args.from.unwrap_or(ChangesFrom::Oldest);
        return follow(feed(&*target, begin, from.with_old)?, args, &lines);
    };
    if args.forget {
        return forget(from, &*target, name, memory);
    }
    if let Some(begin) = args.from {
        feed(&*target, begin, false)?;
    }
    let late = |error: Error| match error {
        // Changes were lost: the user must decide whether to continue without them.
        Error::PositionExpired { oldest } if args.from.is_none() => Failure::Store(format!(
            "the store no longer keeps changes that consumer `{name}` has not read (--keep): continue with the oldest change in the log, \
             --from {oldest}, or remove the consumer with --forget"
        )),
        other => other.into(),
    };
    let keep = match args.keep {
        Some(keep) => keep as u64,
        None => kept(&*db, from.dataset, name)?.unwrap_or(KEPT),
    };
    let consumer = target
        .consume(name, args.from, keep, from.with_old)
        .map_err(late)?;
    let is_new = consumer.is_new();
    if is_new {
        note(format_args!(
            "`{name}` is new: changes are kept for it from here on"
        ));
    }
    // Creating a consumer is a success, even without changes.
    match follow(consumer, args, &lines)? {
        Outcome::NotFound if is_new => Ok(Outcome::Done),
        outcome => Ok(outcome),
    }
}

/// How much log the store keeps at most for a consumer, if it knows it.
fn kept(db: &dyn Store, dataset: &str, name: &str) -> Result<Option<u64>, Failure> {
    let consumers = db.change_consumers()?;
    let of = |dataset: Option<&str>| {
        let mut known = consumers.iter().filter(|known| known.name == name);
        known.find(|known| known.dataset.as_deref() == dataset)
    };
    // One of an earlier version belongs to no dataset yet.
    let known = of(Some(dataset)).or_else(|| of(None));
    Ok(known.map(|known| known.keeps_bytes))
}

fn forget(
    from: &Source<'_>,
    target: &dyn Dataset,
    name: &str,
    memory: usize,
) -> Result<Outcome, Failure> {
    let released = match target.release_changes(name) {
        // A consumer of an earlier version is stored in a file that only a writer may write.
        Err(Error::ReadOnly) => {
            let db = open(from.dir, memory)?;
            let released = dataset(&*db, from.dataset)?.release_changes(name)?;
            db.close()?;
            released
        }
        released => released?,
    };
    if !released {
        return Err(Failure::Usage(format!(
            "no consumer `{name}` of dataset `{}`",
            from.dataset
        )));
    }
    note(format_args!("forgot consumer {name}"));
    Ok(Outcome::Done)
}

/// The changes from a position on. A position of another store is a usage error.
fn feed(
    dataset: &dyn Dataset,
    from: ChangesFrom,
    with_old: bool,
) -> Result<Box<dyn ChangeFeed>, Failure> {
    dataset
        .changes(from, with_old)
        .map_err(|error| match error {
            Error::OtherHistory { .. } => Failure::Usage(error.to_string()),
            other => other.into(),
        })
}

fn follow(
    mut source: Box<dyn ChangeFeed>,
    args: &FeedArgs,
    lines: &impl Lines,
) -> Result<Outcome, Failure> {
    let interrupt = Interrupt::watch()?;
    let mut output = Output::new();
    let limit = args.limit.map_or(u64::MAX, |limit| limit as u64);
    let (mut read, mut printed) = (0_u64, 0_u64);
    let mut noted = Instant::now();
    while interrupt.signal().is_none() && printed < limit {
        let change = match source.wait(Duration::ZERO)? {
            // Shows the reader all changes so far before waiting.
            None => {
                output.flush()?;
                // Not after each change of a busy store, because it costs a sync.
                if noted.elapsed() >= PAUSE {
                    source.done()?;
                    noted = Instant::now();
                }
                if args.follow {
                    source.wait(PAUSE)?
                } else {
                    break;
                }
            }
            some => some,
        };
        let Some(change) = change else {
            continue;
        };
        if let Some(event) = lines.line(&change) {
            write(&mut output, &change, event)?;
            printed += 1;
        }
        read += 1;
        if read.is_multiple_of(NOTED_EVERY) {
            output.flush()?;
            source.done()?;
            noted = Instant::now();
        }
    }
    // Changes that did not reach the reader are not acknowledged.
    output.flush()?;
    source.done()?;
    output.finish()?;
    let here = source.position();
    if let Some(signal) = interrupt.signal() {
        match args.consumer {
            None => note(format_args!("interrupted: continue with --from {here}")),
            Some(_) => note(format_args!(
                "interrupted after {printed} changes: the consumer continues after them"
            )),
        }
        return Ok(Outcome::Interrupted(signal));
    }
    if printed == limit && args.consumer.is_none() {
        note(format_args!("continue with --from {here}"));
    }
    Ok(Outcome::found(printed))
}

fn write(output: &mut Output, change: &Change, event: Option<&str>) -> Result<(), Failure> {
    let key = match change.key().value() {
        Value::Int(number) => number.to_string(),
        // A key of several fields is a JSON array.
        array if change.key().key_type() == KeyType::Fields => array.to_string(),
        other => serde_json::Value::String(other.to_string()).to_string(),
    };
    let seq = change.seq();
    let what = match change.kind() {
        ChangeKind::Put => "put",
        ChangeKind::Expired => "expire",
        _ => "delete",
    };
    output.text(format_args!("{{\"seq\":{seq}"))?;
    if let Some(event) = event {
        output.text(format_args!(",\"event\":\"{event}\""))?;
    }
    output.text(format_args!(",\"change\":\"{what}\",\"key\":{key}"))?;
    for (name, record) in [("record", change.record()), ("old", change.old())] {
        if let Some(record) = record {
            output.text(format_args!(",\"{name}\":"))?;
            output.json(record.json())?;
        }
    }
    output.line("}")
}
