//! Installing a version: one manifest record makes the output of a job part of the store.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Inner;
use super::manifest::{record, renew_manifest};
use crate::batch::TreeId;
use crate::compaction::context::CompactionContext;
use crate::compaction::shared::SharedFiles;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::generation::View;
use crate::version::{Edit, TableFile, Version};

/// The state that an installed version replaced. Its drop removes files, so the installing thread drops it without
/// holding the writer's or the manifest's lock.
#[must_use]
pub(super) struct Retired {
    /// The last reference to tables that were compacted, or dropped with their trees.
    _view: Arc<View>,
    manifest: Option<(Arc<dyn Fs>, PathBuf)>,
}

impl Drop for Retired {
    fn drop(&mut self) {
        if let Some((fs, manifest)) = &self.manifest {
            // If the removal fails, the next opening retries it.
            let _ = fs.remove(manifest);
        }
    }
}

impl Inner {
    pub(super) fn context<'a>(
        &'a self,
        next_file: &'a (dyn Fn() -> u64 + Sync),
    ) -> CompactionContext<'a> {
        let view = self.versions.view.clone();
        CompactionContext {
            source: &self.core.source,
            options: &self.core.options,
            counters: &self.core.counters,
            next_file,
            shared: None,
            closing: &self.core.closing,
            ingesting: &self.scheduler.ingesting,
            pace: None,
            slots: None,
            written: None,
            abandoned: AtomicBool::new(false),
            time: self.core.drop_time(&self.versions.view.load()),
            version: self.versions.view.load().version.clone(),
            now: Arc::new(move || view.load().version.clone()),
        }
    }

    /// Shared files for the small tables of a job that writes to `trees` trees; with few trees each table has a file
    /// of its own.
    pub(super) fn shared_files(&self, trees: usize) -> Option<SharedFiles<'_>> {
        (trees >= self.core.options.share_from).then(|| SharedFiles::new(&self.core.source))
    }

    /// Runs `work`, which writes tables into an edit, and installs the edit.
    pub(super) fn work(
        &self,
        work: impl FnOnce(&mut Edit) -> Result<()>,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<()> {
        self.work_on(|edit| {
            work(edit)?;
            let retired = self.install(edit, change)?;
            self.warm(edit);
            drop(retired);
            Ok(())
        })
    }

    /// Opens the tables that an edit added, and pins their filters. Tables in shared files are small and many: they
    /// are opened on first read.
    fn warm(&self, edit: &Edit) {
        if !self.core.options.background {
            return;
        }
        let version = self.versions.view.load().version.clone();
        let made: BTreeSet<u64> = edit.files.iter().copied().collect();
        let new = |table: &&Arc<TableFile>| table.place().is_none();
        for added in &edit.added {
            let number = added.meta.number;
            let tree = version.trees.get(&added.tree);
            let Some(tree) = tree.filter(|_| made.contains(&number)) else {
                continue;
            };
            let mut tables = tree.tables().filter(new);
            let table = tables.find(|table| table.meta().number == number);
            if let Some(Ok(table)) = table.map(|table| table.table()) {
                table.warm();
            }
        }
    }

    /// Runs `work`, which writes tables into an edit and installs it. On failure the tables are removed, so that
    /// retries do not fill a full disk further.
    pub(super) fn work_on<T>(&self, work: impl FnOnce(&mut Edit) -> Result<T>) -> Result<T> {
        let mut edit = Edit::default();
        let result = work(&mut edit);
        // After a failed sync of the manifest the tables may be referenced by it.
        if result.is_err() && !self.core.is_poisoned() {
            self.remove_files(&edit);
        }
        result
    }

    /// Removes the files created for an edit.
    pub(super) fn remove_files(&self, edit: &Edit) {
        for number in &edit.files {
            let _ = self.core.source.fs.remove(&self.core.source.path(*number));
        }
    }

    /// Appends `edit` to the manifest and makes its version current. Reads and removes nothing.
    pub(super) fn install(
        &self,
        edit: &mut Edit,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<Retired> {
        if !edit.files.is_empty() {
            // The manifest must not refer to names that a power cut can remove.
            self.sequencer.sync_names()?;
        }
        let mut versions = self.versions.manifest.lock();
        self.core.check_poison()?;
        let before = self.versions.view.load_full();
        let options = |name: &str, config: &[u8]| self.core.provider.tree_options(name, config);
        if versions.manifest.is_none() {
            return Err(Error::Closed);
        }
        // Everything dropped as expired was dropped by this time at the latest.
        let timed = before.is_timed() || edit.expires();
        edit.time = timed.then(|| self.core.clock.kept());
        let version = Version::clone(&before.version);
        let (mut version, turnover) =
            version.apply(edit, &self.core.source, &options, &self.core.source.dir)?;
        version.extend_bitmaps(edit);
        version.find_due(Some(edit));
        let (order, held) = self.sequencer.next_order(&versions, edit.log);
        edit.order = order;
        record(&self.sequencer, &mut versions, edit)?;
        drop(held);
        versions.log = edit.log.unwrap_or(versions.log);
        versions.next_tree = edit.next_tree.unwrap_or(versions.next_tree);
        versions.last_seq = edit.last_seq.unwrap_or(0).max(versions.last_seq);
        let version = Arc::new(version);
        self.versions
            .change(&self.scheduler, |view| change(view, version.clone()));
        for table in &turnover.gained {
            table.hold_on();
        }
        for table in &turnover.taken {
            table.mark_obsolete();
            self.note_space(table);
        }
        let old = renew_manifest(&self.sequencer, &self.versions, &mut versions);
        Ok(Retired {
            _view: before,
            manifest: old.map(|old| (self.core.source.fs.clone(), old)),
        })
    }
}

pub(super) fn no_tree(id: TreeId) -> Error {
    Error::Invalid(format!("the group has no tree {id}"))
}
