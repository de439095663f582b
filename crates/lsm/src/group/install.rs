//! Installing a version: what a job wrote becomes part of the store with one manifest record.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Inner, Versions};
use crate::batch::TreeId;
use crate::compaction::job::Workshop;
use crate::error::{Error, Result};
use crate::generation::View;
use crate::version::{Edit, Version};

impl Inner {
    pub(super) fn workshop<'a>(&'a self, next_file: &'a dyn Fn() -> u64) -> Workshop<'a> {
        let view = self.view.clone();
        Workshop {
            source: &self.source,
            options: &self.options,
            counters: &self.counters,
            next_file,
            closing: &self.closing,
            ingesting: &self.ingesting,
            version: self.view.load().version.clone(),
            now: Arc::new(move || view.load().version.clone()),
        }
    }

    /// Does `work`, which writes tables into an edit, and installs the edit.
    pub(super) fn work(
        &self,
        work: impl FnOnce(&mut Edit) -> Result<()>,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<()> {
        self.work_on(|edit| {
            work(edit)?;
            self.install(edit, change)?;
            self.warm(edit);
            Ok(())
        })
    }

    /// Readies the tables that an edit added for reading.
    fn warm(&self, edit: &Edit) {
        if !self.options.background {
            return;
        }
        let version = self.view.load().version.clone();
        for new in edit.new_tables() {
            let tables = version.trees.values().flat_map(|tree| &tree.runs);
            let mut tables = tables.flat_map(|run| run.tables.iter());
            let table = tables.find(|table| table.meta().number == new.meta.number);
            if let Some(Ok(table)) = table.map(|table| table.table()) {
                table.warm();
            }
        }
    }

    /// Does `work`, which writes tables into an edit and installs it. If it fails the tables are
    /// removed again, so that a full disk is not filled further by trying.
    pub(super) fn work_on<T>(&self, work: impl FnOnce(&mut Edit) -> Result<T>) -> Result<T> {
        let mut edit = Edit::default();
        let result = work(&mut edit);
        // After a failed sync of the manifest it may or may not name them.
        if result.is_err() && !self.poisoned.load(Ordering::Acquire) {
            for new in edit.new_tables() {
                let _ = self.source.fs.remove(&self.source.path(new.meta.number));
            }
        }
        result
    }

    /// Appends `edit` to the manifest and makes its version the current one.
    pub(super) fn install(
        &self,
        edit: &mut Edit,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<()> {
        let mut versions = self.manifest.lock();
        self.check_poison()?;
        let before = self.view.load_full();
        let options = |name: &str, config: &[u8]| self.provider.tree_options(name, config);
        if versions.manifest.is_none() {
            return Err(Error::Closed);
        }
        let mut version = before
            .version
            .apply(edit, &self.source, &options, &self.source.dir)?;
        version.extend_bitmaps(edit)?;
        if edit.new_tables().next().is_some() {
            // The manifest must not name what a power cut can take.
            self.sync_names()?;
        }
        edit.order = self.next_order(&versions, edit.log);
        self.record(&mut versions, edit)?;
        versions.log = edit.log.unwrap_or(versions.log);
        versions.next_tree = edit.next_tree.unwrap_or(versions.next_tree);
        versions.last_seq = edit.last_seq.unwrap_or(0).max(versions.last_seq);
        let version = Arc::new(version);
        self.change_view(|view| change(view, version.clone()));
        let kept: HashSet<u64> = edit.added.iter().map(|new| new.meta.number).collect();
        let gone: HashSet<u64> = edit
            .removed
            .iter()
            .map(|at| at.number)
            .filter(|number| !kept.contains(number))
            .collect();
        let dropped = |id: &TreeId| edit.dropped.contains(id);
        for (id, tree) in &before.version.trees {
            for table in tree.runs.iter().flat_map(|run| run.tables.iter()) {
                if dropped(id) || gone.contains(&table.meta().number) {
                    table.mark_obsolete();
                }
            }
        }
        self.renew_manifest(&mut versions);
        Ok(())
    }
}

impl Inner {
    /// Appends an edit to the manifest, durably.
    pub(super) fn record(&self, versions: &mut Versions, edit: &mut Edit) -> Result<()> {
        // What the edit refers to was synced before it was made.
        edit.synced = Some(self.log.synced());
        self.check_poison()?;
        let manifest = versions.manifest.as_mut().ok_or(Error::Closed)?;
        if let Err(failed) = manifest.append(edit) {
            if !(failed.rolled_back && failed.error.is_disk_full()) {
                // What of the record is on disk is not known.
                self.poison_with(&failed.error);
            }
            return Err(failed.error);
        }
        if let Some(order) = edit.order.clone() {
            self.note_order(versions, order);
        }
        Ok(())
    }
}

pub(super) fn no_tree(id: TreeId) -> Error {
    Error::Invalid(format!("the group has no tree {id}"))
}
