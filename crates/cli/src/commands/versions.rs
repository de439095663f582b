//! `read-key`, `read-value`: versions of records on standard output, newest first.

use esker::{Path, Record};
use esker_store::VersionRequest;

use super::definition::parse_path;
use crate::args::{ReadKeyArgs, ReadValueArgs, VersionArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};
use crate::rows::Rows;
use crate::store::{dataset_at, open_to_read};

/// `esker read-key DIR DATASET KEY`
pub(crate) fn read_key(args: &ReadKeyArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.record.dir, memory)?;
    let dataset = dataset_at(&*db, &args.record.dataset, args.wanted.snapshot.as_deref())?;
    let key = dataset.parse_key(&args.record.key)?;
    let records = dataset.versions(&key, args.wanted.at, args.wanted.versions)?;
    print(&records, &args.wanted)
}

/// `esker read-value DIR DATASET PATH=TOKEN...`
pub(crate) fn read_value(args: &ReadValueArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, args.wanted.snapshot.as_deref())?;
    let tokens = args.tokens.iter().map(|text| parse_token(text));
    let request = VersionRequest {
        tokens: tokens.collect::<Result<_, _>>()?,
        as_of: args.wanted.at,
        versions: args.wanted.versions,
        limit: args.limit,
        after: args.after,
    };
    if request.tokens.is_empty() {
        return Err(Failure::Usage(
            "at least one PATH=TOKEN is needed".to_string(),
        ));
    }
    let found = dataset.versions_with(&request)?;
    let outcome = print(&found.records, &args.wanted)?;
    if let Some(next) = found.next {
        note(format_args!("there is more: --after {next}"));
    }
    Ok(outcome)
}

/// Reads `PATH=TOKEN`.
fn parse_token(text: &str) -> Result<(Path, String), Failure> {
    let Some((path, token)) = text.split_once('=') else {
        return Err(Failure::Usage(format!("`{text}` is not PATH=TOKEN")));
    };
    Ok((parse_path(path)?, token.to_string()))
}

fn print(records: &[Record], wanted: &VersionArgs) -> Result<Outcome, Failure> {
    if wanted.json {
        let mut output = Output::new();
        for record in records {
            output.text(format_args!("{{\"seq\":{},\"record\":", record.seq()))?;
            output.json(record.json())?;
            output.line("}")?;
        }
        output.finish()?;
    } else {
        let mut rows = Rows::whole(&wanted.rows);
        for record in records {
            rows.version(record.seq(), record.json())?;
        }
        rows.finish()?;
    }
    Ok(Outcome::found(records.len() as u64))
}
