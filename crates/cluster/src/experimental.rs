//! What experiments compare with: not for programs, and with no promise of any kind.

use std::collections::HashMap;

use esker_model::record::RecordRef;
use esker_model::schema::Extracted;

use crate::dataset::Dataset;
use crate::error::Result;
use crate::rows::Entry;
use crate::view::{Newest, View};
use crate::write::{Change, Operation};

/// Writes records as an index that is right at once needs it: the old record of each key is read,
/// its index entries are deleted as the new ones are put, and then the record is put. Requests of a
/// step are in flight together. Two writers of one key can leave an entry behind that belongs to
/// neither record.
///
/// # Errors
/// As [`Batch::commit`](crate::Batch::commit).
pub fn put_in_place(dataset: &Dataset, records: &[&[u8]]) -> Result<()> {
    let (shared, bound) = (&dataset.shared, dataset.bound()?);
    let operation = Operation::begin(shared, &bound)?;
    let mut out = Extracted::default();
    let mut changes = Vec::with_capacity(records.len());
    for json in records {
        changes.push(Change::put(bound.read_json(json, &mut out)?, &bound));
    }
    let mut keys: Vec<&[u8]> = changes.iter().map(|change| change.key.as_slice()).collect();
    keys.sort_unstable();
    keys.dedup();
    let found = View::LATEST.newest(shared, &bound, &keys);
    let mut old: HashMap<Vec<u8>, Newest> = HashMap::new();
    for (key, newest) in keys.iter().zip(found) {
        old.extend(newest?.map(|newest| (key.to_vec(), newest)));
    }
    let (mut entries, mut versions) = (Vec::new(), Vec::new());
    for change in &changes {
        let at = operation.stamp(0)?;
        entries.extend(change.entries(at));
        versions.push((change.version(at), Vec::new()));
        let Some(before) = old.get(&change.key) else {
            continue;
        };
        let stored = before.record.as_deref().and_then(RecordRef::parse);
        let tokens = stored.map_or_else(Vec::new, |record| bound.tokens(&record));
        entries.extend(tokens.iter().filter_map(|(index, token)| {
            let (at, key) = (before.at, &change.key);
            bound.entry(*index, Entry { token, at, key }, false)
        }));
    }
    operation.write(entries)?;
    operation.write_versions(versions)?;
    operation.check()
}

/// The tables of a dataset: that of the records, and those of the indexes.
///
/// # Errors
/// [`Unavailable`](crate::Error::Unavailable).
pub fn tables(dataset: &Dataset) -> Result<(String, Vec<String>)> {
    let bound = dataset.bound()?;
    let indexes = bound.indexes.iter().map(|index| index.table.to_string());
    Ok((bound.data.to_string(), indexes.collect()))
}
