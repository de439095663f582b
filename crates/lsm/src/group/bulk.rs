//! Bulk loads past the log and the memtables, rewrites of single tables, and memtables written to a
//! copy of the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::compact::compacted_with;
use super::core::Core;
use super::flush::{flush_full, make_durable};
use super::install::{context, install, no_tree, work, work_on};
use super::order::reserve;
use super::rotate::{rotate, rotate_now, start_writing};
use super::scheduler::{Counted, Scheduler};
use super::sequencer::{Sequencer, Writer};
use super::trees::{TreeChange, add_change, change_trees, with_change};
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::compaction::context::CompactionContext;
use crate::compaction::job::WriteRun;
use crate::compaction::oldest_level;
use crate::compaction::shared::SharedFiles;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::generation::View;
use crate::read::Snapshot;
use crate::stats::Counters;
use crate::table::TableMeta;
use crate::version::{ComponentId, Edit, TableSource, TreeVersion};

/// Installs a run above all runs of a tree. Its numbers must be above those in the tree, and
/// allocated.
pub(super) fn ingest_newest(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    write: &mut WriteRun<'_>,
) -> Result<u64> {
    let core = &*sequencer.core;
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    work_on(core, |edit| {
        let count = write_run(core, versions, scheduler, tree, write, edit)?;
        let view = versions.view.load_full();
        let target = view.version.trees.get(&tree).ok_or_else(|| no_tree(tree))?;
        let seqs = span(edit);
        let held = held(&view, target);
        let visible = sequencer.visible();
        if let Some((least, greatest)) = seqs
            && (greatest > visible || held.is_some_and(|(_, held)| least <= held))
        {
            return Err(out_of_place(target, least, greatest));
        }
        drop(install(
            sequencer,
            versions,
            scheduler,
            edit,
            |view, version| view.with(version),
        )?);
        scheduler.wake_background();
        Ok(count)
    })
}

/// Installs a run below all runs of a tree, whose numbers must be above the run's, and applies the
/// change of trees that `change` returns, atomically.
pub(super) fn ingest_oldest(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    write: &mut WriteRun<'_>,
    change: &mut dyn FnMut() -> Result<TreeChange>,
) -> Result<u64> {
    let core = &*sequencer.core;
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    work_on(core, |edit| {
        let count = write_run(core, versions, scheduler, tree, write, edit)?;
        // These claims prevent compactions from placing anything below the new run.
        let trees = compacted_with(&versions.view.load_full().version, tree);
        let install = |writer: &mut Writer, change: TreeChange| {
            let view = versions.view.load_full();
            let target = view.version.trees.get(&tree).ok_or_else(|| no_tree(tree))?;
            if let (Some((least, greatest)), Some((held, _))) = (span(edit), held(&view, target))
                && greatest >= held
            {
                return Err(out_of_place(target, least, greatest));
            }
            let bytes = edit.added.iter().map(|new| new.meta.size).sum();
            let level = oldest_level(target, bytes);
            for new in &mut edit.added {
                new.level = level;
                new.run = if level == 0 { new.run } else { 0 };
            }
            add_change(versions, change, edit)?;
            change_trees(sequencer, versions, scheduler, writer, edit)
        };
        drop(with_change(
            sequencer,
            versions,
            scheduler,
            trees,
            &mut |_| change(),
            install,
        )?);
        Ok(count)
    })
}

/// Adds ascending numbers to a bitmap tree, and advances its repair watermark.
pub(super) fn supersede(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    numbers: &mut dyn Iterator<Item = Result<Seq>>,
    repair_watermark: Option<Seq>,
) -> Result<()> {
    let core = &*sequencer.core;
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    let next_file = || versions.new_file();
    let context = context(core, versions, scheduler, &next_file);
    let target = context
        .version
        .trees
        .get(&tree)
        .ok_or_else(|| no_tree(tree))?;
    let visible = sequencer.visible();
    let component = ComponentId {
        min: visible,
        max: visible,
    };
    // A power cut must not lose a write that made another one obsolete.
    make_durable(sequencer, versions, scheduler)?;
    work_on(core, |edit| {
        context.write_bits(target, numbers, component, edit)?;
        edit.repair_watermarks
            .extend(repair_watermark.map(|seq| (tree, seq.min(visible))));
        drop(install(
            sequencer,
            versions,
            scheduler,
            edit,
            |view, version| view.with(version),
        )?);
        scheduler.wake_background();
        Ok(())
    })
}

fn write_run(
    core: &Core,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    write: &mut WriteRun<'_>,
    edit: &mut Edit,
) -> Result<u64> {
    let view = versions.view.load_full();
    let target = view.version.trees.get(&tree).ok_or_else(|| no_tree(tree))?;
    let next_file = || versions.new_file();
    context(core, versions, scheduler, &next_file).write_run(target, write, edit)
}

/// Rewrites the first table of a tree that `pick` selects, with the tree's current options. Returns
/// its number of entries, and `None` when there is no such table.
pub(super) fn rewrite_table(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    pick: &dyn Fn(&TableMeta) -> bool,
) -> Result<Option<u64>> {
    let core = &*sequencer.core;
    let _claim = scheduler.claim(BTreeSet::from([tree]));
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    let view = versions.view.load_full();
    let target = view.version.trees.get(&tree).ok_or_else(|| no_tree(tree))?;
    let tables = target
        .runs
        .iter()
        .flat_map(|run| run.tables.iter().map(move |table| (run, table)));
    let mut picked = tables.filter(|(_, table)| pick(table.meta()));
    let Some((run, table)) = picked.next() else {
        return Ok(None);
    };
    let next_file = || versions.new_file();
    let context = context(core, versions, scheduler, &next_file);
    work(
        sequencer,
        versions,
        scheduler,
        |edit| context.rewrite(target, run, table, edit),
        |view, version| view.with(version),
    )?;
    Ok(Some(table.meta().entries))
}

pub(super) fn ingest<'e>(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
    stop: &AtomicBool,
) -> Result<u64> {
    let core = &*sequencer.core;
    // Runs are ordered by sequence number; no compaction may place newer entries below this one.
    let trees = compacted_with(&versions.view.load_full().version, tree);
    let _claim = scheduler.claim(trees);
    let _ingesting = Counted::new(&scheduler.ingesting);
    rotate_now(sequencer, versions, scheduler)?;
    let seq = {
        let mut writer = sequencer.writer.lock();
        start_writing(sequencer, versions, &mut writer)?;
        if !versions.view.load().active.is_empty() {
            rotate(sequencer, versions, scheduler, &mut writer)?;
        }
        let seq = writer.next_seq;
        reserve(sequencer, versions, seq)?;
        writer.next_seq = seq + 1;
        writer.last = seq;
        sequencer.given.store(seq + 1, Ordering::Release);
        seq
    };
    flush_full(sequencer, versions, scheduler)?;
    let view = versions.view.load_full();
    let Some(tree) = view.version.trees.get(&tree) else {
        return Err(no_tree(tree));
    };
    let next_file = || versions.new_file();
    let context = CompactionContext {
        closing: stop,
        ..context(core, versions, scheduler, &next_file)
    };
    let mut count = 0;
    let write = |edit: &mut Edit| {
        edit.last_seq = Some(seq);
        count = context.ingest(tree, seq, entries, edit)?;
        // Before the run is installed, so that each snapshot that contains it reaches `seq`.
        sequencer.publish(seq);
        Ok(())
    };
    work(sequencer, versions, scheduler, write, |view, version| {
        view.with(version)
    })?;
    Ok(count)
}

/// Writes the memtable entries visible to `snapshot` to tables of another store, into `edit`.
pub(super) fn copy_memtables(
    core: &Core,
    snapshot: &Snapshot,
    to: &TableSource,
    new_file: &(dyn Fn() -> u64 + Sync),
    edit: &mut Edit,
) -> Result<()> {
    let view = snapshot.view();
    let version = view.version.clone();
    // Older runs may be in the memtables beside these tables, so tombstones are kept.
    let never = AtomicBool::new(false);
    let generations = || view.full.iter().rev().chain([&view.active]);
    let memtables: usize = generations().map(|g| g.filled().count()).sum();
    let share = memtables >= core.options.share_from;
    let shared = share.then(|| SharedFiles::new(to));
    let context = CompactionContext {
        source: to,
        options: &core.options,
        counters: &Counters::default(),
        next_file: new_file,
        shared: shared.as_ref(),
        closing: &never,
        is_ingesting: true,
        pace: None,
        slots: None,
        written: None,
        abandoned: AtomicBool::new(false),
        time: 0,
        version: version.clone(),
        now: Arc::new(move || version.clone()),
    };
    // Oldest first.
    for generation in generations() {
        let all = generation.component();
        let component = ComponentId {
            min: all.min,
            max: all.max.min(snapshot.seq()),
        };
        if component.min > component.max {
            continue;
        }
        for (id, memtable) in generation.filled() {
            if let Some(tree) = view.version.trees.get(&id) {
                context.flush_up_to(tree, memtable, snapshot.seq(), component, edit)?;
            }
        }
    }
    shared.as_ref().map_or(Ok(()), |shared| shared.finish(edit))
}

/// The least and the greatest sequence number of the tables that an edit adds.
fn span(edit: &Edit) -> Option<(Seq, Seq)> {
    let metas = edit
        .added
        .iter()
        .map(|new| (new.meta.min_seq, new.meta.max_seq));
    metas.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// The least and the greatest sequence number in a tree.
fn held(view: &View, tree: &TreeVersion) -> Option<(Seq, Seq)> {
    let tables = tree.runs.iter().flat_map(|run| run.tables.iter());
    let tables = tables.map(|table| (table.meta().min_seq, table.meta().max_seq));
    let memtables = view
        .memtables(tree.id)
        .filter_map(|memtable| memtable.seq_bounds());
    tables
        .chain(memtables)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

fn out_of_place(tree: &TreeVersion, least: Seq, greatest: Seq) -> Error {
    Error::Invalid(format!(
        "tree {}: a run of the numbers {least} to {greatest} does not fit beside what it holds",
        tree.name
    ))
}
