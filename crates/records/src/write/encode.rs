//! A put or deletion becomes operations of the engine: the stored record, its index entries, and
//! the cancellations of the entries that the key's old version had.

use esker_lsm::coding::put_varint;
use esker_lsm::entry::MAX_TIME;
use esker_lsm::{Kind, Time, TreeId};
use esker_model::record::{EXPIRES, UNINDEXED, encode};

use super::batch::DatasetWrites;
use crate::bodies;
use crate::error::Result;
use crate::index::IndexEntry;
use crate::store::expiry_key;

/// The expiry of a record that is added.
struct AddedExpiry {
    /// The tree of expiry times.
    tree: TreeId,
    time: Time,
}

impl DatasetWrites {
    /// Adds the deletion of a key from the data and the key trees, and cancels the entries of its
    /// old version.
    pub(super) fn add_deletion(&mut self, key: &[u8]) -> Result<()> {
        let (layout, batch) = (&self.layout, &mut self.writes.batch);
        batch.delete(layout.data, key)?;
        for keys in &layout.key_trees {
            batch.also(keys.deletion, keys.tree, key, &[])?;
        }
        self.cancel_old(Some(key))
    }

    /// Adds the extracted record, its expiry time, its keys and its index entries, and cancels the
    /// entries of its old version.
    pub(super) fn add_extracted(&mut self, json: &[u8]) -> Result<()> {
        let expiry = self.expiry();
        self.encode_record(expiry.as_ref().map(|expiry| expiry.time));
        let DatasetWrites {
            layout,
            writes,
            extracted,
            value,
            ..
        } = self;
        let key = extracted.key();
        let batch = &mut writes.batch;
        let point_at = bodies::put(batch, layout, extracted, value, json)?;
        if let Some(AddedExpiry { tree, time }) = expiry {
            let (entry, never) = (expiry_key(time, key), MAX_TIME);
            batch.also_until(Kind::Put, tree, &entry, &[], never)?;
        }
        for keys in &layout.key_trees {
            batch.also(Kind::Put, keys.tree, key, &[])?;
        }
        for (at, attribute) in layout.written() {
            let Some(index) = attribute.index() else {
                continue;
            };
            let record = (point_at == Some(at)).then_some([value.as_slice(), json]);
            attribute.tokenizer.each(extracted.values(at), |value| {
                let index_entry = IndexEntry {
                    attribute,
                    value,
                    key,
                    record,
                };
                index.add(writes, index_entry)
            })?;
        }
        self.cancel_old(None)
    }

    /// Encodes the extracted record without its JSON in the buffer `value`.
    fn encode_record(&mut self, expires: Option<Time>) {
        let (extracted, value) = (&self.extracted, &mut self.value);
        let ids = &self.layout.extracted_ids;
        // The field of the expiry time has no id if it is not an attribute: its value is stored
        // separately, and in no index.
        let values = (extracted.iter()).filter_map(|(at, value)| Some((*ids.get(at)?, value)));
        let time = expires.map(Time::to_be_bytes);
        let time = time.iter().map(|time| (EXPIRES, time.as_slice()));
        let mut unindexed = Vec::new();
        for id in extracted.unindexed().filter_map(|at| ids.get(at)) {
            put_varint(&mut unindexed, u64::from(*id));
        }
        let listed = (!unindexed.is_empty()).then_some((UNINDEXED, unindexed.as_slice()));
        let known = self.layout.stored.next_id;
        value.clear();
        encode(value, known, time.chain(listed).chain(values), &[]);
    }

    /// Cancels the index entries of the old version of a key, if that version is in a memtable: of
    /// the key `deleted` all entries, otherwise those that the extracted record lacks.
    fn cancel_old(&mut self, deleted: Option<&[u8]>) -> Result<()> {
        let DatasetWrites {
            dataset,
            layout,
            writes,
            extracted,
            before,
            ..
        } = self;
        let mut written = layout.written();
        // Strategies that read pre-images do so once per batch, in commit().
        if layout.stored.settings.maintenance.looks_at_writes()
            || layout.stored.settings.versions > 1
            || !written.any(|(_, attribute)| attribute.kind.is_standalone())
        {
            return Ok(());
        }
        let new = deleted.is_none().then_some(&*extracted);
        let key = deleted.unwrap_or_else(|| extracted.key());
        let before = before.get_or_insert_with(|| dataset.store.group.snapshot());
        let Some(old) = before.get_in_memory(layout.data, key) else {
            return Ok(());
        };
        if old.kind != Kind::Put {
            return Ok(());
        }
        let old = crate::record::parse(&old.value)?;
        for (at, attribute) in layout.written() {
            let Some(index) = attribute.index() else {
                continue;
            };
            let mine = old.attributes().filter(|(id, _)| *id == attribute.id);
            attribute.tokenizer.each_lost(
                mine.map(|(_, value)| value),
                new.into_iter().flat_map(|new| new.values(at)),
                |value| {
                    let index_entry = IndexEntry {
                        attribute,
                        value,
                        key,
                        record: None,
                    };
                    index.cancel(writes, index_entry)
                },
            )?;
        }
        Ok(())
    }

    /// The expiry of the extracted record: by its field or by the time to live, whichever comes
    /// first. `None` if it never expires.
    fn expiry(&self) -> Option<AddedExpiry> {
        let tree = self.layout.expiry?;
        let micros = (self.layout.expiry_field_at).and_then(|at| self.extracted.time(at));
        // Rounded up to a millisecond, so that no record expires early. A time before 1970, which
        // the engine cannot express, has passed as well as 0 has.
        let by_field = micros.map(|micros| {
            let micros = u64::try_from(micros).unwrap_or(0);
            micros.div_ceil(1000)
        });
        let by_ttl = self.layout.stored.expiry.ttl.map(|ttl| {
            // A longer one ends behind the last of all times, too.
            let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            self.dataset.store.group.time().saturating_add(millis)
        });
        let first = by_field.into_iter().chain(by_ttl).min()?;
        Some(AddedExpiry {
            tree,
            time: first.min(MAX_TIME),
        })
    }

    /// Reports the remarks of the extracted record.
    #[inline]
    pub(super) fn remark(&self) {
        for (at, remark) in self.extracted.remarks() {
            let attribute = self
                .layout
                .written()
                .find(|(written_at, _)| *written_at == at);
            let expiry = &self.layout.stored.expiry;
            let (path, ty) = match (attribute, &expiry.path) {
                (Some((_, attribute)), _) => (&attribute.path, attribute.ty),
                (None, Some(path)) => (path, expiry.ty),
                (None, None) => {
                    debug_assert!(false, "a remark on no field");
                    continue;
                }
            };
            self.dataset.state.remarks.add(path, ty, remark);
        }
    }
}
