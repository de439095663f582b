//! Records with their versions.

use esker::{Key, Record, Result};
use esker_store::{Part, Records};
use xxhash_rust::xxh3::Xxh3Default;

/// The versions of a record, newest first; at least one.
pub(super) type Item = Vec<Record>;

/// Records of a chunk, and their bytes.
const CHUNK: usize = 512;
const CHUNK_BYTES: usize = 1 << 20;

/// How versions are read: one of a key, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Versions(pub(super) usize);

impl Versions {
    /// The next records of a part; empty at its end.
    pub(super) fn chunk(self, records: &dyn Records, part: &mut dyn Part) -> Result<Vec<Item>> {
        loop {
            let (mut newest, mut bytes) = (Vec::new(), 0);
            for record in &mut *part {
                let record = record?;
                bytes += record.stored().len();
                newest.push(record);
                if newest.len() >= CHUNK || bytes >= CHUNK_BYTES {
                    break;
                }
            }
            if self.0 <= 1 || newest.is_empty() {
                return Ok(newest.into_iter().map(|record| vec![record]).collect());
            }
            let keys: Vec<Key> = newest.iter().map(|record| record.key().clone()).collect();
            let items = self.of(records, &keys)?;
            let items: Vec<Item> = items.into_iter().filter(|item| !item.is_empty()).collect();
            // All of them may have been deleted since.
            if !items.is_empty() {
                return Ok(items);
            }
        }
    }

    /// The versions of keys, in their order; none for a key without a record.
    pub(super) fn of(self, records: &dyn Records, keys: &[Key]) -> Result<Vec<Item>> {
        if self.0 > 1 {
            return records.versions_of(keys, self.0);
        }
        let one = |key| Ok(records.get(key)?.into_iter().collect());
        keys.iter().map(one).collect()
    }
}

/// The number of versions of an item that must be put above those that are known, so that the
/// latest `most` versions are those of the item; `None` if there is no such number.
pub(super) fn newer(item: &[Record], known: &[Record], most: usize) -> Option<usize> {
    let is_enough = |new: &usize| {
        let above = item.get(..*new).unwrap_or_default();
        let then = above.iter().chain(known).take(most).map(Record::json);
        then.eq(item.iter().map(Record::json))
    };
    (0..=item.len()).find(is_enough)
}

/// A hash of a record: of its key and the JSON of its versions.
pub(super) fn digest(item: &[Record]) -> u128 {
    let mut hash = Xxh3Default::new();
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (at, version) in item.iter().enumerate() {
        if at == 0 {
            add(version.key().as_bytes());
        }
        add(version.json());
    }
    hash.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker::KeyType;

    fn record(key: &str, json: &str) -> Record {
        let key = Key::parse(KeyType::String, key).unwrap();
        Record::from_json(key, 7, json.as_bytes())
    }

    #[test]
    fn only_newer_versions_are_put_above_known_ones() {
        let items = |texts: &[&str]| -> Vec<Record> {
            texts.iter().map(|text| record("a", text)).collect()
        };
        for (item, known, wanted) in [
            (&["3", "2", "1"][..], &["2", "1"][..], Some(1)),
            (&["3", "2", "1"], &["2", "1", "0"], Some(1)),
            (&["3", "2", "1"], &["3", "2", "1"], Some(0)),
            (&["3", "2", "1"], &["1"], Some(2)),
            (&["3", "2", "1"], &[], Some(3)),
            // As many as are kept push all others out.
            (&["3", "2", "1"], &["9", "8"], Some(3)),
            (&["3"], &["2"], None),
            (&["2", "1"], &["1", "0"], None),
            (&["2", "1"], &["3", "2", "1"], None),
        ] {
            let found = newer(&items(item), &items(known), 3);
            assert_eq!(found, wanted, "{item:?} above {known:?}");
        }
    }

    #[test]
    fn a_digest_knows_key_json_and_versions_apart() {
        let items = [
            vec![record("a", "{}")],
            vec![record("b", "{}")],
            vec![record("a", "{ }")],
            vec![record("a", "{}"), record("a", "{}")],
            vec![record("a", "{}{}")],
        ];
        let digests: Vec<u128> = items.iter().map(|item| digest(item)).collect();
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[at + 1..].contains(one));
        }
        let other = Record::from_json(record("a", "").key().clone(), 8, b"{}");
        assert_eq!(digest(&[other]), digests[0]);
    }
}
