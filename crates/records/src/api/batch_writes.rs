//! The writes of a [`Batch`](super::Batch), by dataset.

use std::sync::Arc;

use esker_lsm::coding::Own;
use esker_lsm::{Durability, Seq};
use esker_model::{AsKey, PrimaryKey};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::record;
use crate::store::{Handle, Store};
use crate::write::{DatasetWrites, KeyRule, commit};

/// The writes of a batch to the datasets of one store.
pub(super) struct BatchWrites {
    store: Arc<Store>,
    /// One element per dataset.
    datasets: Vec<DatasetWrites>,
    pub(super) durability: Durability,
    /// A buffer for serialising a record.
    json: Vec<u8>,
}

impl BatchWrites {
    pub(super) fn new(store: Arc<Store>) -> BatchWrites {
        BatchWrites {
            durability: store.durability,
            store,
            datasets: Vec::new(),
            json: Vec::new(),
        }
    }

    /// The writes to a dataset.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the dataset belongs to another store.
    pub(super) fn writes_to(&mut self, dataset: &Handle) -> Result<&mut DatasetWrites> {
        if !Arc::ptr_eq(&self.store, &dataset.store) {
            return Err(Error::bad_input(format!(
                "dataset `{}` belongs to another store than the batch",
                dataset.name()
            )));
        }
        let is_same = |writes: &DatasetWrites| Arc::ptr_eq(&writes.dataset.state, &dataset.state);
        let place = match self.datasets.iter().position(is_same) {
            Some(place) => place,
            None => {
                self.datasets.push(DatasetWrites::new(dataset.clone()));
                self.datasets.len() - 1
            }
        };
        Ok(self.datasets.own_mut(place))
    }

    /// Adds a record, which replaces the record with the same key. Serialises it as JSON.
    pub(super) fn put(
        &mut self,
        dataset: &Handle,
        record: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        self.serialised(record, |batch, json| batch.put_json(dataset, json))
    }

    /// As [`BatchWrites::put`], for the text of a JSON object.
    pub(super) fn put_json(&mut self, dataset: &Handle, json: &[u8]) -> Result<()> {
        self.writes_to(dataset)?.put(json, KeyRule::MayExist)
    }

    /// Adds a record whose key must be new at the commit. Serialises it as JSON.
    pub(super) fn insert(
        &mut self,
        dataset: &Handle,
        record: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        self.serialised(record, |batch, json| batch.insert_json(dataset, json))
    }

    /// As [`BatchWrites::insert`], for the text of a JSON object.
    pub(super) fn insert_json(&mut self, dataset: &Handle, json: &[u8]) -> Result<()> {
        self.writes_to(dataset)?.put(json, KeyRule::MustBeNew)
    }

    /// Passes a record as JSON to `add`, in the buffer of the batch.
    fn serialised(
        &mut self,
        record: &(impl Serialize + ?Sized),
        add: impl FnOnce(&mut BatchWrites, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        let serialised = record::serialise(record, &mut json);
        let result = serialised.and_then(|()| add(self, &json));
        self.json = json;
        result
    }

    /// Adds the deletion of a key, which need not have a record.
    pub(super) fn delete<K: PrimaryKey>(
        &mut self,
        dataset: &Handle,
        key: impl AsKey<K>,
    ) -> Result<()> {
        let key = key.as_key(dataset.key_type())?;
        self.writes_to(dataset)?.delete(&key)
    }

    /// Adds a condition on the record of a key ([`DatasetWrites::expect`]).
    pub(super) fn expect<K: PrimaryKey>(
        &mut self,
        dataset: &Handle,
        key: impl AsKey<K>,
        seq: Option<Seq>,
    ) -> Result<()> {
        let key = key.as_key(dataset.key_type())?;
        self.writes_to(dataset)?.expect(&key, seq);
        Ok(())
    }

    /// The number of puts, inserts and deletions.
    pub(super) fn len(&self) -> usize {
        self.datasets.iter().map(DatasetWrites::len).sum()
    }

    /// The bytes that the batch takes in the log.
    pub(super) fn bytes(&self) -> usize {
        self.datasets.iter().map(DatasetWrites::bytes).sum()
    }

    /// The encoded key of the last record that was put or inserted, in a batch of one dataset;
    /// empty if there is none.
    pub(super) fn last_key(&self) -> &[u8] {
        debug_assert!(self.datasets.len() <= 1, "the batch is of one dataset");
        match self.datasets.first() {
            Some(writes) => writes.last_key(),
            None => &[],
        }
    }

    /// Removes everything that was added.
    pub(super) fn clear(&mut self) {
        self.datasets.iter_mut().for_each(DatasetWrites::clear);
    }

    /// Writes the whole batch or nothing; returns the number of its first write.
    pub(super) fn commit(&mut self) -> Result<Option<Seq>> {
        commit(&mut self.datasets, self.durability)
    }
}
