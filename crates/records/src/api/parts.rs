//! The writes of a batch, a part for each dataset.

use std::sync::Arc;

use esker_lsm::Durability;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::record;
use crate::store::{Handle, Store};
use crate::write::{DatasetWrites, KeyRule, commit};

/// The parts of a batch.
pub(super) struct Parts {
    store: Arc<Store>,
    /// One part per dataset.
    parts: Vec<DatasetWrites>,
    pub(super) durability: Durability,
    /// A buffer for serialising a record.
    json: Vec<u8>,
}

impl Parts {
    pub(super) fn new(store: Arc<Store>) -> Parts {
        Parts {
            durability: store.durability,
            store,
            parts: Vec::new(),
            json: Vec::new(),
        }
    }

    /// The part of a dataset.
    pub(super) fn part(&mut self, dataset: &Handle) -> Result<&mut DatasetWrites> {
        if !Arc::ptr_eq(&self.store, &dataset.shared) {
            return Err(Error::bad_input(format!(
                "dataset `{}` belongs to another store than the batch",
                dataset.name()
            )));
        }
        let known = |part: &DatasetWrites| Arc::ptr_eq(&part.dataset.current, &dataset.current);
        let at = self.parts.iter().position(known);
        let at = at.unwrap_or(self.parts.len());
        if at == self.parts.len() {
            self.parts.push(DatasetWrites::new(dataset.clone()));
        }
        let part = self.parts.get_mut(at);
        part.ok_or_else(|| Error::bad_input("the batch has no part for the dataset"))
    }

    /// Adds a record, which is serialised as JSON.
    pub(super) fn serialised(
        &mut self,
        dataset: &Handle,
        record: &(impl Serialize + ?Sized),
        rule: KeyRule,
    ) -> Result<()> {
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        let written = record::serialise(record, &mut json);
        let result = written.and_then(|()| self.part(dataset)?.put(&json, rule));
        self.json = json;
        result
    }

    /// The number of puts, inserts and deletions.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(DatasetWrites::len).sum()
    }

    /// The bytes that the batch takes in the log.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(DatasetWrites::bytes).sum()
    }

    /// The encoded key of the last record that was put, in a batch for one dataset; empty if there
    /// is none.
    pub(super) fn last_key(&self) -> &[u8] {
        match self.parts.first() {
            Some(part) => part.last_key(),
            None => &[],
        }
    }

    /// Removes everything that was added.
    pub(super) fn clear(&mut self) {
        self.parts.iter_mut().for_each(DatasetWrites::clear);
    }

    /// Writes all parts or none.
    pub(super) fn commit(&mut self) -> Result<()> {
        commit(&mut self.parts, self.durability)
    }
}
