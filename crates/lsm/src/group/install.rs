//! Installing a version: one manifest record makes the output of a job part of the store.
//!
//! It reads nothing and removes nothing: the writer of a bitmap tree passes its numbers along
//! (`Edit::bits`), and the replaced tables ([`Retired`]) are dropped once neither the writer's nor
//! the manifest's lock is held. Copying the map of trees for an edit still takes some ten
//! nanoseconds a tree.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::core::Core;
use super::manifest::{record, renew_manifest};
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::compaction::context::CompactionContext;
use crate::compaction::shared::SharedFiles;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::generation::View;
use crate::version::{Edit, TableFile, Version};

/// The state that an installed version replaced. Its drop removes files, so the installing thread
/// drops it without holding the writer's or the manifest's lock.
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

pub(super) fn context<'a>(
    core: &'a Core,
    versions: &VersionSet,
    scheduler: &'a Scheduler,
    next_file: &'a (dyn Fn() -> u64 + Sync),
) -> CompactionContext<'a> {
    let view = versions.view.clone();
    CompactionContext {
        source: &core.source,
        options: &core.options,
        counters: &core.counters,
        next_file,
        shared: None,
        closing: &core.closing,
        is_ingesting: is_ingesting(scheduler),
        pace: None,
        slots: None,
        written: None,
        abandoned: AtomicBool::new(false),
        time: core.drop_time(&versions.view.load()),
        version: versions.view.load().version.clone(),
        now: Arc::new(move || view.load().version.clone()),
    }
}

/// True while a bulk load is running.
pub(super) fn is_ingesting(scheduler: &Scheduler) -> bool {
    scheduler.ingesting.load(Ordering::SeqCst) > 0
}

/// Shared files for the small tables of a job that writes to `trees` trees; with few trees each
/// table has a file of its own.
pub(super) fn shared_files(core: &Core, trees: usize) -> Option<SharedFiles<'_>> {
    (trees >= core.options.share_from).then(|| SharedFiles::new(&core.source))
}

/// Runs `work`, which writes tables into an edit, and installs the edit.
pub(super) fn work(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    work: impl FnOnce(&mut Edit) -> Result<()>,
    change: impl FnOnce(&View, Arc<Version>) -> View,
) -> Result<()> {
    work_on(&sequencer.core, |edit| {
        work(edit)?;
        let retired = install(sequencer, versions, scheduler, edit, change)?;
        warm(&sequencer.core, versions, edit);
        drop(retired);
        Ok(())
    })
}

/// Opens the tables that an edit added, and pins their filters. Tables in shared files are small
/// and many: they are opened on first read.
fn warm(core: &Core, versions: &VersionSet, edit: &Edit) {
    if !core.options.background {
        return;
    }
    let version = versions.view.load().version.clone();
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

/// Runs `work`, which writes tables into an edit and installs it. On failure the tables are
/// removed, so that retries do not fill a full disk further.
pub(super) fn work_on<T>(core: &Core, work: impl FnOnce(&mut Edit) -> Result<T>) -> Result<T> {
    let mut edit = Edit::default();
    let result = work(&mut edit);
    // After a failed sync of the manifest the tables may be referenced by it.
    if result.is_err() && !core.is_poisoned() {
        remove_files(core, &edit);
    }
    result
}

/// Removes the files created for an edit.
pub(super) fn remove_files(core: &Core, edit: &Edit) {
    for number in &edit.files {
        let _ = core.source.fs.remove(&core.source.path(*number));
    }
}

/// Appends `edit` to the manifest and makes its version current. Reads and removes nothing.
pub(super) fn install(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    edit: &mut Edit,
    change: impl FnOnce(&View, Arc<Version>) -> View,
) -> Result<Retired> {
    if !edit.files.is_empty() {
        // The manifest must not refer to names that a power cut can remove.
        sequencer.sync_names()?;
    }
    let core = &*sequencer.core;
    let mut locked = versions.manifest.lock();
    core.check_poison()?;
    let before = versions.view.load_full();
    let options = |name: &str, config: &[u8]| core.provider.tree_options(name, config);
    if locked.manifest.is_none() {
        return Err(Error::Closed);
    }
    // Everything dropped as expired was dropped by this time at the latest.
    let timed = before.is_timed() || edit.expires();
    edit.time = timed.then(|| core.clock.kept());
    let version = Version::clone(&before.version);
    let (mut version, turnover) = version.apply(edit, &core.source, &options, &core.source.dir)?;
    version.extend_bitmaps(edit);
    version.find_due(Some(edit));
    let (order, held) = sequencer.next_order(&locked, edit.log);
    edit.order = order;
    record(sequencer, &mut locked, edit)?;
    drop(held);
    locked.log = edit.log.unwrap_or(locked.log);
    locked.next_tree = edit.next_tree.unwrap_or(locked.next_tree);
    locked.last_seq = edit.last_seq.unwrap_or(0).max(locked.last_seq);
    let version = Arc::new(version);
    versions.change(scheduler, |view| change(view, version.clone()));
    for table in &turnover.gained {
        table.hold_on();
    }
    for table in &turnover.taken {
        table.mark_obsolete();
        versions.note_space(table);
    }
    let old = renew_manifest(sequencer, versions, &mut locked);
    Ok(Retired {
        _view: before,
        manifest: old.map(|old| (core.source.fs.clone(), old)),
    })
}

pub(super) fn no_tree(id: TreeId) -> Error {
    Error::Invalid(format!("the group has no tree {id}"))
}
