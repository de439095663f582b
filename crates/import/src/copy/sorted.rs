//! Keys and digests of a side in the order of the keys, whatever the order of the store.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};

use esker::{Key, Result};

use super::items::{Item, digest};
use super::sums::Reading;

/// The most keys that are held of a store without an order of keys, and their bytes.
const HELD: usize = 1 << 18;
const HELD_BYTES: usize = 32 << 20;
/// Records that are read at a time of a store with an order.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 1 << 20;

/// A range of encoded keys: from the first on, before the second.
pub(super) type Span = (Vec<u8>, Option<Vec<u8>>);

/// Keys with their digests, ascending.
pub(super) struct Sorted<'a> {
    side: Reading<'a>,
    is_ordered: bool,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    held: VecDeque<(Vec<u8>, u128)>,
    /// The most keys that are held.
    most: usize,
    is_end: bool,
}

impl<'a> Sorted<'a> {
    pub(super) fn new(side: Reading<'a>, is_ordered: bool, (from, to): Span) -> Sorted<'a> {
        Sorted {
            side,
            is_ordered,
            // Of an integer, no bytes are no key.
            from: match from.as_slice() {
                [] => Bound::Unbounded,
                _ => Bound::Included(from),
            },
            to: to.map_or(Bound::Unbounded, Bound::Excluded),
            held: VecDeque::new(),
            most: HELD,
            is_end: false,
        }
    }

    /// The next key.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, u128)>> {
        while self.held.is_empty() && !self.is_end {
            if self.is_ordered {
                self.page()?;
            } else {
                self.pass()?;
            }
            if self.side.stop().is_break() {
                self.is_end = true;
            }
        }
        Ok(self.held.pop_front())
    }

    /// The next keys of a store with an order.
    fn page(&mut self) -> Result<()> {
        let records = self.side.records;
        let key_type = records.def().key_type;
        let key = |bytes: Vec<u8>| Key::from_encoded(key_type, bytes);
        let range = (self.from.clone().map(key), self.to.clone().map(key));
        let (mut newest, mut bytes) = (Vec::new(), 0);
        for record in records.scan(range, false)? {
            let record = record?;
            bytes += record.stored().len();
            newest.push(record);
            if newest.len() >= PAGE || bytes >= PAGE_BYTES {
                break;
            }
        }
        let Some(last) = newest.last() else {
            self.is_end = true;
            return Ok(());
        };
        self.from = Bound::Excluded(last.key().as_bytes().to_vec());
        let items: Vec<Item> = if self.side.versions.0 > 1 {
            let keys: Vec<Key> = newest.iter().map(|record| record.key().clone()).collect();
            self.side.versions.of(records, &keys)?
        } else {
            newest.into_iter().map(|record| vec![record]).collect()
        };
        self.held.extend(items.iter().filter_map(|item| {
            let newest = item.first()?;
            Some((newest.key().as_bytes().to_vec(), digest(item)))
        }));
        Ok(())
    }

    /// The next keys of a store without one: all of it is read.
    fn pass(&mut self) -> Result<()> {
        let mut least: BTreeMap<Vec<u8>, u128> = BTreeMap::new();
        let (mut bytes, mut overflowed) = (0, false);
        let range = (
            self.from.as_ref().map(Vec::as_slice),
            self.to.as_ref().map(Vec::as_slice),
        );
        for part in 0..self.side.records.parts() {
            self.side.part(part, &mut |key, digest| {
                let key = key.as_bytes();
                if !RangeBounds::<[u8]>::contains(&range, key) {
                    return;
                }
                bytes += key.len();
                least.insert(key.to_vec(), digest);
                while least.len() > self.most || (bytes > HELD_BYTES && least.len() > 1) {
                    bytes -= least.pop_last().map_or(0, |(key, _)| key.len());
                    overflowed = true;
                }
            })?;
        }
        self.is_end = !overflowed;
        if let Some((last, _)) = least.last_key_value() {
            self.from = Bound::Excluded(last.clone());
        }
        self.held = least.into_iter().collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::items::Versions;
    use super::super::unordered::Unordered;
    use super::*;
    use esker::{DatasetDef, KeyType, Options};
    use esker_store::{Mode, Store, open};

    #[test]
    fn keys_ascend_over_several_passes() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path().join("a"), Mode::Create, Options::default()).unwrap();
        let store = Unordered(store);
        let def = DatasetDef::new("id", KeyType::Int);
        let dataset = store.create_dataset("d", def).unwrap();
        let mut batch = dataset.batch();
        for id in 0..1000 {
            batch
                .put_json(format!(r#"{{"id":{id}}}"#).as_bytes())
                .unwrap();
        }
        batch.commit().unwrap();
        let read = AtomicU64::new(0);
        let side = Reading {
            records: dataset.records(),
            versions: Versions(1),
            read: &read,
            is_stopped: &|| false,
        };
        let key = |id: u64| Key::parse(KeyType::Int, &id.to_string()).unwrap();
        let span = (
            key(100).as_bytes().to_vec(),
            Some(key(900).as_bytes().to_vec()),
        );
        let mut sorted = Sorted::new(side, false, span);
        sorted.most = 64;
        let mut expected = 100;
        while let Some((found, _)) = sorted.next().unwrap() {
            assert_eq!(found, key(expected).as_bytes());
            expected += 1;
        }
        assert_eq!(expected, 900);
        assert_eq!(read.load(Ordering::Relaxed), 13 * 1000);
    }
}
