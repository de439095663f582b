//! The way of a write: record -> attributes -> facts for each index -> one batch.

use std::collections::HashSet;
use std::sync::Arc;

use lsm::{Batch, Durability, Kind, Snapshot};

use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{self, Fact, Writes};
use crate::key::Key;
use crate::layout::Layout;
use crate::record::{self, RecordRef};
use crate::schema::Extracted;

/// Writes to one dataset that happen together or not at all. Can be filled again after a commit,
/// which saves allocations.
pub struct WriteBatch {
    dataset: Dataset,
    /// What the writes were made for. When it is not the dataset's any more at the commit they are made
    /// again.
    layout: Arc<Layout>,
    writes: Writes,
    extracted: Extracted,
    value: Vec<u8>,
    /// Keys that must not be there yet.
    inserts: Vec<Vec<u8>>,
    /// What the memtables held when the batch was begun: old versions found in it have their facts
    /// cancelled here and now, others are found out by queries.
    before: Option<Snapshot>,
    records: usize,
    /// How many of them are deletions.
    deletes: usize,
}

impl WriteBatch {
    pub(crate) fn new(dataset: Dataset) -> WriteBatch {
        WriteBatch {
            layout: dataset.current.latest(),
            dataset,
            writes: Writes::default(),
            extracted: Extracted::default(),
            value: Vec::new(),
            inserts: Vec::new(),
            before: None,
            records: 0,
            deletes: 0,
        }
    }

    /// Adds a record (a JSON object) that replaces the one of the same key. After an error the batch
    /// is as it was.
    pub fn put(&mut self, json: &[u8]) -> Result<()> {
        let layout = self.layout.clone();
        layout.extraction.extract(json, &mut self.extracted)?;
        let mark = self.writes.mark();
        let result = self.add(json);
        if result.is_err() {
            self.writes.rewind(mark);
        } else {
            self.records += 1;
        }
        result
    }

    /// Adds a record whose key must be new when the batch is committed: in the store as it is then,
    /// and among the batch's other inserts. A `put` of the same key in the same batch is not seen.
    pub fn insert(&mut self, json: &[u8]) -> Result<()> {
        self.put(json)?;
        self.inserts.push(self.extracted.key().to_vec());
        Ok(())
    }

    /// Adds the deletion of a key, there or not.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        self.delete_encoded(key.as_bytes())?;
        self.deletes += 1;
        Ok(())
    }

    fn delete_encoded(&mut self, key: &[u8]) -> Result<()> {
        self.writes.batch.delete(self.layout.data, key)?;
        self.cancel_old(key, &|_, _| false)?;
        self.records += 1;
        Ok(())
    }

    fn add(&mut self, json: &[u8]) -> Result<()> {
        let layout = self.layout.clone();
        let extracted = std::mem::take(&mut self.extracted);
        let result = (|| {
            let key = extracted.key();
            self.value.clear();
            let attributes = layout.extracted().enumerate();
            record::encode(
                &mut self.value,
                layout.stored.next_id,
                attributes.flat_map(|(at, id)| extracted.values(at).map(move |value| (id, value))),
                &[],
            );
            self.writes
                .batch
                .put_parts(layout.data, key, &[&self.value, json])?;
            for (at, attribute) in layout.written() {
                let Some(index) = index::of(attribute.kind) else {
                    continue;
                };
                for value in extracted.values(at) {
                    index.add(
                        &mut self.writes,
                        Fact {
                            attribute,
                            value,
                            key,
                        },
                    )?;
                }
            }
            self.cancel_old(key, &|at, value| {
                extracted.values(at).any(|new| new == value)
            })
        })();
        self.extracted = extracted;
        result
    }

    /// Cancels the facts of the version in the memtable, if one is there, except those that `stays`
    /// says the new version has too.
    fn cancel_old(&mut self, key: &[u8], stays: &dyn Fn(usize, &[u8]) -> bool) -> Result<()> {
        let layout = self.layout.clone();
        if !layout
            .written()
            .any(|(_, attribute)| attribute.kind.is_standalone())
        {
            return Ok(());
        }
        let group = &self.dataset.shared.group;
        let before = self.before.get_or_insert_with(|| group.snapshot());
        let Some(old) = before.get_in_memory(layout.data, key) else {
            return Ok(());
        };
        if old.kind != Kind::Put {
            return Ok(());
        }
        let Some(old) = RecordRef::parse(&old.value) else {
            return Ok(());
        };
        for (id, value) in old.attributes() {
            let written = layout.written();
            for (at, attribute) in written.filter(|(_, attribute)| attribute.id == id) {
                if let Some(index) = index::of(attribute.kind)
                    && !stays(at, value)
                {
                    index.cancel(
                        &mut self.writes,
                        Fact {
                            attribute,
                            value,
                            key,
                        },
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Number of records put, inserted and deleted.
    pub fn len(&self) -> usize {
        self.records
    }

    /// True when there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes that the batch will take in the log.
    pub fn bytes(&self) -> usize {
        self.writes.batch.bytes()
    }

    /// Forgets all that was added.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.inserts.clear();
        self.before = None;
        self.records = 0;
        self.deletes = 0;
        self.layout = self.dataset.current.latest();
    }

    /// Writes the batch, all of it or nothing, as durably as asked; then the batch is empty. After
    /// an error the batch is as it was, and nothing of it is visible; but where a sync failed it may be
    /// in the log, and there after the store was reopened.
    pub fn commit(&mut self, durability: Durability) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let shared = self.dataset.shared.clone();
        loop {
            let mark = self.writes.mark();
            self.writes.batch.made_for(self.layout.seen());
            let result = self.append(&shared.group).and_then(|ticket| {
                // From here on the batch is in the log, whatever happens to its acknowledgement.
                Ok(shared.group.settle(ticket, durability)?)
            });
            let Err(error) = result else {
                let puts = self.records - self.deletes;
                let usage = &self.dataset.current.usage;
                usage.wrote(puts as u64, self.deletes as u64);
                self.clear();
                return Ok(());
            };
            self.writes.rewind(mark);
            if !matches!(error.engine(), Some(lsm::Error::Stale)) {
                return Err(error);
            }
            self.renew()?;
        }
    }

    /// Makes the writes again where the dataset has another layout now: from the records that are in
    /// them. After an error (a record does not fit a new attribute) the batch is as it was.
    fn renew(&mut self) -> Result<()> {
        let snapshot = self.dataset.shared.group.snapshot();
        let current = &self.dataset.current;
        if !snapshot.version().trees.contains_key(&current.data) {
            return Err(Error::new(
                ErrorKind::UnknownDataset,
                format!("dataset `{}` was dropped", current.name),
            ));
        }
        let layout = current.layout_in(snapshot.version());
        if Arc::ptr_eq(&layout, &self.layout) {
            return Ok(());
        }
        let layout = std::mem::replace(&mut self.layout, layout);
        let mut writes = std::mem::take(&mut self.writes);
        let (before, records) = (self.before.take(), self.records);
        let mut result = Ok(());
        writes.batch.each(&mut |tree, kind, key, value| {
            if tree != layout.data || result.is_err() {
                return;
            }
            result = match (kind, RecordRef::body_of(value)) {
                (Kind::Put, Some(body)) => self.put(body),
                _ => self.delete_encoded(key),
            };
        });
        self.records = records;
        if result.is_err() {
            self.layout = layout;
            self.writes = writes;
            self.before = before;
        }
        result
    }

    fn append(&mut self, group: &lsm::Group) -> Result<lsm::Ticket> {
        let Writes { batch, eager, .. } = &mut self.writes;
        if self.inserts.is_empty() && eager.is_empty() {
            return Ok(group.append(batch)?);
        }
        let (data, inserts) = (self.layout.data, &self.inserts);
        let mut refused = None;
        let ticket = group.append_with(batch, &mut |batch: &mut Batch, first, snapshot| {
            let mut seen = HashSet::with_capacity(inserts.len());
            for key in inserts {
                let twice = !seen.insert(key);
                if twice || snapshot.get(data, key, &lsm::Cost::default())?.is_some() {
                    refused = Some(key.clone());
                    return Err(lsm::Error::Invalid("the key exists".to_string()));
                }
            }
            index::complete_eager(batch, eager, first, snapshot)
        });
        match (ticket, refused) {
            (Ok(ticket), _) => Ok(ticket),
            (Err(_), Some(key)) => {
                let key = Key::display(self.dataset.key_type(), &key);
                Err(Error::new(
                    ErrorKind::Exists,
                    format!("there is a record of key {key} already"),
                ))
            }
            (Err(error), None) => Err(error.into()),
        }
    }
}
