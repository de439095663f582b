//! `put` and `delete`.

use esker::{Database, Options};

use super::load::{BATCH_BYTES, BATCH_RECORDS};
use super::{dataset, open, options};
use crate::args::{DeleteArgs, Format, PutArgs};
use crate::failure::{Failure, Outcome};
use crate::input::{Event, Feed, prepare};
use crate::output::{note, thousands};

/// `esker put DIR DATASET`: good records are put, bad ones are reported.
pub(crate) fn put(args: &PutArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&db, &args.dataset)?;
    let mut feed = Feed::start(prepare(&["-".into()], Some(Format::Ndjson))?);
    let (mut put, mut bad) = (0u64, 0u64);
    let mut batch = dataset.batch();
    loop {
        // What came is committed before more is waited for: the other side may be a slow stream.
        let full = batch.len() >= BATCH_RECORDS || batch.bytes() >= BATCH_BYTES;
        if !batch.is_empty() && (full || feed.idle()) {
            put += batch.len() as u64;
            batch.durability(args.durability).commit()?;
        }
        let (line, reason) = match feed.next() {
            Some(Event::Record { line, text, .. }) => match batch.put_json(text) {
                Ok(()) => continue,
                Err(error) => (line, error.to_string()),
            },
            Some(Event::Bad { line, reason, .. }) => (line, reason),
            Some(Event::Failed { line, reason, .. }) => (line + 1, reason),
            None => break,
        };
        bad += 1;
        note(format_args!("line {line}: {reason}"));
    }
    if !batch.is_empty() {
        put += batch.len() as u64;
        batch.durability(args.durability).commit()?;
    }
    dataset.sync()?;
    db.close()?;
    note(format_args!("put {} records", thousands(put)));
    match bad {
        0 => Ok(Outcome::Done),
        _ => Err(Failure::Usage(format!(
            "{} lines were not put",
            thousands(bad)
        ))),
    }
}

/// `esker delete DIR DATASET KEY`
pub(crate) fn delete(args: &DeleteArgs, memory: usize) -> Result<Outcome, Failure> {
    let options = Options {
        durability: args.durability,
        ..options(memory)
    };
    let db = Database::open(&args.record.dir, options)?;
    let dataset = dataset(&db, &args.record.dataset)?;
    let existed = dataset.delete(&dataset.parse_key(&args.record.key)?)?;
    db.close()?;
    Ok(if existed.is_some() {
        Outcome::Done
    } else {
        Outcome::NotFound
    })
}
