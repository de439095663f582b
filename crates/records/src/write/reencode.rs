//! Encodes a batch again: when the layout of its dataset has changed, and to drop writes that a
//! later write of the same batch replaces.

use std::collections::HashSet;
use std::sync::Arc;

use esker_lsm::coding::Misplaced;

use super::batch::DatasetWrites;
use super::pre_images::Touched;
use crate::bodies;
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::Writes;

impl DatasetWrites {
    /// If the dataset has a newer layout, encodes the writes again, from the records in them. An
    /// error (a record does not fit a new attribute) leaves the part unchanged.
    pub(super) fn renew(&mut self) -> Result<()> {
        let snapshot = self.dataset.shared.group.snapshot();
        let current = &self.dataset.current;
        let Some(data) = snapshot.version().trees.get(&current.data) else {
            return Err(Error::unknown_dataset(current.name()));
        };
        let layout = current.layout_in(snapshot.version());
        if !layout.is_of(&data.config) {
            // The engine would refuse the batch again, for ever.
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
            .filter(|touched| touched.insert)
            .map(|touched| touched.ordinal)
            .collect();
        let insert = |ordinal: u32, _: &[u8]| Some(inserted.contains(&ordinal));
        let result = self.add_again(&writes, &layout, &insert);
        if result.is_err() {
            self.layout = layout;
            self.writes = writes;
            self.before = before;
            self.touched = touched;
        }
        result
    }

    /// Adds the writes of `old`, encoded for `layout`, again. `insert` says of each write whether
    /// it is an insert; with `None` it is left out.
    fn add_again(
        &mut self,
        old: &Writes,
        layout: &Layout,
        insert: &dyn Fn(u32, &[u8]) -> Option<bool>,
    ) -> Result<()> {
        let records = self.counts.records;
        let mut result = Ok(());
        let walked = bodies::each_write(&old.batch, layout, &mut |ordinal, key, body| {
            let Some(insert) = insert(ordinal, key).filter(|_| result.is_ok()) else {
                return;
            };
            result = match body {
                Some(body) => self.put(body, insert),
                None => self.delete_encoded(key, insert),
            };
        });
        self.counts.records = records;
        walked.and(result)
    }

    /// Refuses a key that is inserted twice. If the strategy looks at writes, keeps only the last
    /// version of each record: no reader can see the others.
    pub(super) fn keep_last_versions(&mut self) -> Result<()> {
        if self.touched.len() < 2 {
            return Ok(());
        }
        let mut order: Vec<&Touched> = self.touched.iter().collect();
        order.sort_by(|a, b| (&a.key, a.ordinal).cmp(&(&b.key, b.ordinal)));
        let (mut passed, mut inserts) = (HashSet::new(), HashSet::new());
        for of_key in order.chunk_by(|a, b| a.key == b.key) {
            let (last, earlier) = of_key.split_last().ok_or_else(Misplaced::here)?;
            passed.extend(earlier.iter().map(|touched| touched.ordinal));
            match of_key.iter().filter(|touched| touched.insert).count() {
                0 => {}
                1 => {
                    inserts.insert(last.key.clone());
                }
                _ => return Err(self.exists(&last.key)),
            }
        }
        if passed.is_empty() || !self.layout.stored.settings.maintenance.looks_at_writes() {
            return Ok(());
        }
        let layout = self.layout.clone();
        let writes = std::mem::take(&mut self.writes);
        let touched = std::mem::take(&mut self.touched);
        let insert =
            |ordinal: u32, key: &[u8]| (!passed.contains(&ordinal)).then(|| inserts.contains(key));
        let result = self.add_again(&writes, &layout, &insert);
        if result.is_err() {
            self.writes = writes;
            self.touched = touched;
        }
        result
    }
}
