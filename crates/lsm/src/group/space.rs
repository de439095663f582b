//! Space in shared files. A file is removed with the last of its tables, so a few live tables could
//! retain much unused space. When more than half of a file is unused, its live tables are copied to
//! another one, byte by byte: a table does not depend on its location. So shared files take at most
//! about twice the live bytes, and fewer bytes are copied than were written. A file that a named
//! snapshot needs is left alone: copying the tables of the newest version out of it would free
//! nothing.

use std::collections::BTreeSet;

use super::install::{install, work_on};
use super::jobs::{JobDescription, JobKind, Why};
use super::rotate::start_writing;
use super::scheduler::{Claim, Scheduler};
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::error::Result;
use crate::stats::Counters;
use crate::version::{Edit, NewTable, TableAt, Version};

/// Takes the files that are due, and claims the trees that have tables in them.
fn claim_sparse<'s>(
    versions: &VersionSet,
    scheduler: &'s Scheduler,
) -> (BTreeSet<u64>, Vec<Claim<'s>>) {
    let mut files = std::mem::take(&mut *versions.sparse.lock());
    let mut claims: Vec<Claim<'_>> = Vec::new();
    if files.is_empty() {
        return (files, claims);
    }
    let version = versions.view.load().version.clone();
    // They are added again when the kept version is dropped.
    let kept = version.kept().values();
    for table in kept.flat_map(|kept| kept.picture().tables()) {
        files.remove(&table.file().number());
    }
    let mut later = BTreeSet::new();
    for file in &files {
        let file_only = BTreeSet::from([*file]);
        let trees = tables_in(&version, &file_only).map(|(tree, _)| tree);
        let held = |tree: &TreeId| claims.iter().any(|claim| claim.has(*tree));
        let trees: BTreeSet<TreeId> = trees.filter(|tree| !held(tree)).collect();
        match scheduler.try_claim(trees) {
            Some(claim) => claims.push(claim),
            None => drop(later.insert(*file)),
        }
    }
    files.retain(|file| !later.contains(file));
    versions.sparse.lock().extend(later);
    (files, claims)
}

/// Moves the live tables out of the files that are due. A file with tables of a claimed tree is
/// postponed; a failed one waits until more of it is unused, or the store is reopened.
pub(super) fn move_tables(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    let (files, _claims) = claim_sparse(versions, scheduler);
    if files.is_empty() {
        return Ok(());
    }
    // Loaded after the claims: no other job removes tables from these files.
    let version = versions.view.load().version.clone();
    let mut job = scheduler.jobs.begin(JobDescription {
        kind: JobKind::Move,
        tree: None,
        trees: tables_in(&version, &files)
            .map(|(tree, _)| tree)
            .collect::<BTreeSet<_>>()
            .len(),
        levels: None,
        why: Why::Space,
        bytes_in: tables_in(&version, &files).map(|(_, size)| size).sum(),
    });
    let write = |edit: &mut Edit| {
        let shared = crate::compaction::shared::SharedFiles::new(&core.source);
        for tree in version.trees.values() {
            for run in &tree.runs {
                let tables = run.tables.iter();
                for table in tables.filter(|table| files.contains(&table.file().number())) {
                    let bytes = table.read_all()?;
                    let closing = &core.closing;
                    scheduler.pace.wait(bytes.len() as u64, closing);
                    let place = shared.add(&bytes, &|| versions.new_file())?;
                    edit.removed.push(TableAt {
                        tree: tree.id,
                        number: table.meta().number,
                    });
                    edit.added.push(NewTable {
                        tree: tree.id,
                        level: run.level,
                        run: run.number,
                        component: table.component(),
                        meta: table.meta().clone(),
                        place: Some(place),
                    });
                }
            }
        }
        shared.finish(edit)
    };
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    let moved = work_on(core, |edit| {
        write(edit)?;
        if edit.added.is_empty() {
            return Ok(());
        }
        let bytes = edit.added.iter().map(|new| new.meta.size).sum();
        drop(install(
            sequencer,
            versions,
            scheduler,
            edit,
            |view, version| view.with(version),
        )?);
        Counters::add(&core.counters.merge_read_bytes, bytes);
        Counters::add(&core.counters.merge_write_bytes, bytes);
        Ok(())
    });
    job.note(&moved);
    match moved {
        Err(error) if core.is_contained(&error) => {
            Counters::add(&core.counters.background_failures, 1);
            Ok(())
        }
        moved => moved,
    }
}

/// The trees that have tables in some files, each with the table's size.
fn tables_in<'v>(
    version: &'v Version,
    files: &'v BTreeSet<u64>,
) -> impl Iterator<Item = (TreeId, u64)> + 'v {
    let trees = version.trees.values();
    let tables = trees.flat_map(|tree| tree.tables().map(move |table| (tree.id, table)));
    let tables = tables.filter(|(_, table)| files.contains(&table.file().number()));
    tables.map(|(tree, table)| (tree, table.meta().size))
}
