//! Encodes a batch again: when the layout of its dataset has changed, and to drop writes that a
//! later write of the same batch replaces.

use std::collections::HashSet;
use std::sync::Arc;

use esker_lsm::coding::Misplaced;

use super::batch::{DatasetWrites, KeyRule};
use super::pre_images::Touched;
use crate::bodies;
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::Writes;

impl DatasetWrites {
    /// If the dataset has a newer layout, encodes the writes again, from the records in them. An
    /// error leaves the part unchanged.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`] if the dataset was dropped; [`Error::Record`] if a record does not
    /// fit a new attribute.
    pub(super) fn renew(&mut self) -> Result<()> {
        let snapshot = self.dataset.store.group.snapshot();
        let state = &self.dataset.state;
        let Some(data) = snapshot.version().trees.get(&state.data) else {
            return Err(Error::unknown_dataset(state.name()));
        };
        let layout = state.layout_in(snapshot.version());
        if !layout.is_of(&data.config) {
            // The engine would refuse the batch each time.
            return Err(Misplaced::here().into());
        }
        if Arc::ptr_eq(&layout, &self.layout) {
            return Ok(());
        }
        let layout = std::mem::replace(&mut self.layout, layout);
        let writes = std::mem::take(&mut self.writes);
        let before = self.before.take();
        let touched = std::mem::take(&mut self.touched);
        let inserted: HashSet<u32> = touched
            .iter()
            .filter(|touched| touched.must_be_new)
            .map(|touched| touched.ordinal)
            .collect();
        let rule = |ordinal: u32, _: &[u8]| Some(rule_if(inserted.contains(&ordinal)));
        let result = self.add_again(&writes, &layout, &rule);
        if result.is_err() {
            self.layout = layout;
            self.writes = writes;
            self.before = before;
            self.touched = touched;
        }
        result
    }

    /// Adds the writes of `old`, encoded for `layout`, again. `rule` returns the rule for the key
    /// of each write, from its ordinal and its key; `None` drops the write.
    fn add_again(
        &mut self,
        old: &Writes,
        layout: &Layout,
        rule: &dyn Fn(u32, &[u8]) -> Option<KeyRule>,
    ) -> Result<()> {
        // For its user the batch has as many records as before, and the same last one.
        let records = self.counts.records;
        let last_key = std::mem::take(&mut self.last_key);
        let mut result = Ok(());
        let walked = bodies::each_write(&old.batch, layout, &mut |ordinal, key, body| {
            let Some(rule) = rule(ordinal, key).filter(|_| result.is_ok()) else {
                return;
            };
            result = match body {
                Some(body) => self.put(body, rule),
                None => self.delete_encoded(key, rule),
            };
        });
        self.counts.records = records;
        self.last_key = last_key;
        walked.and(result)
    }

    /// Refuses a key that is inserted twice. If the strategy looks up replaced records, keeps only
    /// the last version of each record: no reader can see the others.
    ///
    /// # Errors
    /// [`Error::Exists`] for a key that is inserted twice.
    pub(super) fn keep_last_versions(&mut self) -> Result<()> {
        if self.touched.len() < 2 {
            return Ok(());
        }
        let mut order: Vec<&Touched> = self.touched.iter().collect();
        order.sort_by(|a, b| (&a.key, a.ordinal).cmp(&(&b.key, b.ordinal)));
        let mut replaced = HashSet::new();
        let mut inserted = HashSet::new();
        for of_key in order.chunk_by(|a, b| a.key == b.key) {
            let (last, earlier) = of_key.split_last().ok_or_else(|| Misplaced::here())?;
            replaced.extend(earlier.iter().map(|touched| touched.ordinal));
            match of_key.iter().filter(|touched| touched.must_be_new).count() {
                0 => {}
                1 => {
                    inserted.insert(last.key.clone());
                }
                _ => return Err(self.exists_error(&last.key)),
            }
        }
        if replaced.is_empty() || !self.layout.stored.settings.maintenance.looks_at_writes() {
            return Ok(());
        }
        let layout = self.layout.clone();
        let writes = std::mem::take(&mut self.writes);
        let touched = std::mem::take(&mut self.touched);
        let rule = |ordinal: u32, key: &[u8]| {
            (!replaced.contains(&ordinal)).then(|| rule_if(inserted.contains(key)))
        };
        let result = self.add_again(&writes, &layout, &rule);
        if result.is_err() {
            self.writes = writes;
            self.touched = touched;
        }
        result
    }
}

/// The rule for a key that must be new, or need not be.
fn rule_if(must_be_new: bool) -> KeyRule {
    if must_be_new {
        KeyRule::MustBeNew
    } else {
        KeyRule::MayExist
    }
}
