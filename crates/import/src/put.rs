//! Puts the text of a line: a record, or several of them. Only an error about a record counts as a
//! fault of the line.

use std::ops::Range;

use esker::ErrorKind;
use esker_store::Dataset;

use crate::feed::parts;

/// The parts of a text that are no records of the dataset, with reasons.
pub(crate) type Refused = Vec<(Range<usize>, String)>;

/// Puts a record, or the records in its parts; returns the parts that cannot be put.
pub(crate) fn put_record(
    text: &[u8],
    put: &mut dyn FnMut(&[u8]) -> esker::Result<()>,
) -> esker::Result<Refused> {
    match put(text) {
        Ok(()) => Ok(Vec::new()),
        Err(error) => put_parts(put, text, error),
    }
}

/// As [`put_record`], but puts either all parts or none: the line that ends a strict import is read
/// again by the next one.
pub(crate) fn put_whole(
    text: &[u8],
    dataset: &dyn Dataset,
    put: &mut dyn FnMut(&[u8]) -> esker::Result<()>,
) -> esker::Result<Refused> {
    let error = match put(text) {
        Ok(()) => return Ok(Vec::new()),
        Err(error) => error,
    };
    let mut trial = dataset.batch();
    let bad = put_parts(&mut |record| trial.put_json(record), text, error.clone())?;
    if bad.is_empty() {
        return put_parts(put, text, error);
    }
    Ok(bad)
}

/// Puts the records in a line that failed as a whole with `error`: it may contain several objects,
/// or a value with an array of them. Returns the parts that cannot be put, with reasons.
///
/// # Errors
/// Every error that is not about a record ([`is_of_record`]), also `error` itself: the parts behind
/// it were not put.
pub fn put_parts(
    put: &mut dyn FnMut(&[u8]) -> esker::Result<()>,
    text: &[u8],
    error: esker::Error,
) -> esker::Result<Vec<(Range<usize>, String)>> {
    if !is_of_record(&error) {
        return Err(error);
    }
    let whole = || Ok(vec![(0..text.len(), error.to_string())]);
    let Some(parts) = parts(text) else {
        return whole();
    };
    let (mut good, mut bad) = (0, Vec::new());
    for part in &parts {
        match put(text.get(part.clone()).unwrap_or_default()) {
            Ok(()) => good += 1,
            Err(error) if is_of_record(&error) => bad.push((part.clone(), error.to_string())),
            Err(error) => return Err(error),
        }
    }
    // One value without any record in it is bad as a whole.
    let is_one = text.first() == Some(&b'[') || parts.first().is_some_and(|part| part.start > 0);
    if good == 0 && is_one {
        whole()
    } else {
        Ok(bad)
    }
}

/// True for an error that says of a record that the dataset cannot have it. Any other one, such as
/// that of a cluster that does not answer, says nothing about the record: it can be put later.
pub fn is_of_record(error: &esker::Error) -> bool {
    matches!(error.kind(), ErrorKind::BadInput | ErrorKind::NotUnique)
}
