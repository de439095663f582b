//! Creating, dropping, renaming and configuring trees.

use std::collections::BTreeSet;

use super::core::Core;
use super::install::{Retired, install, no_tree};
use super::rotate::{rotate, start_writing};
use super::scheduler::Scheduler;
use super::sequencer::{Sequencer, Writer};
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::version::{Edit, MAX_TREE};

/// Changes of trees that are applied atomically.
#[derive(Debug, Clone, Default)]
pub struct TreeChange {
    /// Trees to create: name and configuration of each. The name of a dropped tree can be reused.
    pub created: Vec<(String, Vec<u8>)>,
    /// Trees with a new configuration; their options are resolved again.
    pub configured: Vec<(TreeId, Vec<u8>)>,
    /// Trees with a new name; their options are resolved again. What they hold stays where it is.
    pub renamed: Vec<(TreeId, String)>,
    /// Trees to drop with their contents.
    pub dropped: Vec<TreeId>,
}

/// Applies the change that `make` returns for the last sequence number so far.
pub(super) fn change(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
) -> Result<Vec<TreeId>> {
    let core = &*sequencer.core;
    let mut made = Vec::new();
    let mut make = |last| {
        sequencer.sync_all()?;
        sequencer.publish(last);
        make(last)
    };
    let install = |writer: &mut Writer, change| {
        let mut edit = Edit::default();
        add_change(versions, change, &mut edit)?;
        made.extend(edit.created.iter().map(|(id, _, _)| *id));
        change_trees(sequencer, versions, scheduler, writer, &mut edit)
    };
    drop(with_change(
        sequencer,
        versions,
        scheduler,
        BTreeSet::new(),
        &mut make,
        install,
    )?);
    // Who follows a tree that was dropped learns it.
    core.commits.notify();
    Ok(made)
}

/// Runs `install` with the change that `make` returns, under the locks of flushes and of the
/// writer, when `trees` and all trees concerned by the change are claimed: `make` determines these,
/// so it may be called again. The returned value is dropped without the locks.
pub(super) fn with_change<T>(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    mut trees: BTreeSet<TreeId>,
    make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
    install: impl FnOnce(&mut Writer, TreeChange) -> Result<T>,
) -> Result<T> {
    let core = &*sequencer.core;
    loop {
        let claim = scheduler.claim(trees.clone());
        let _flushes = scheduler.flushing.lock();
        let mut writer = sequencer.writer.lock();
        start_writing(sequencer, versions, &mut writer)?;
        let change = make(writer.last)?;
        let concerned = concerned(core, versions, &change)?;
        if claim.covers(&concerned) {
            return install(&mut writer, change);
        }
        trees.extend(concerned);
    }
}

/// The trees that must be claimed when a change is installed, under the writer lock:
///
/// - dropped trees: a compaction would put tables into them;
/// - configured trees: a compaction that began earlier writes by the old options, so its tables
///   would pass for ones written by the new options (attributes that they lack, numbers of another
///   set that they have);
/// - renamed trees: a compaction that began earlier knows the set that it reports to by its old
///   name;
/// - with all of these the trees that are compacted with them, and with an obsolete set the trees
///   that report their drops to it;
/// - the set that a new tree reads: a sweep about to end must not drop numbers that the tree is
///   about to receive.
fn concerned(core: &Core, versions: &VersionSet, change: &TreeChange) -> Result<BTreeSet<TreeId>> {
    let version = &versions.view.load().version;
    let mut concerned = BTreeSet::new();
    let configured = change.configured.iter().map(|(id, _)| id);
    let renamed = change.renamed.iter().map(|(id, _)| id);
    let changed = change.dropped.iter().chain(configured).chain(renamed);
    for tree in changed.filter_map(|tree| version.trees.get(tree)) {
        let lead = tree.options.follows.as_deref();
        let lead = lead.and_then(|lead| version.tree_named(lead));
        let with = version.followers(&tree.name).chain(lead);
        let with = with.chain(version.holders(&tree.name));
        concerned.extend(with.map(|tree| tree.id).chain([tree.id]));
    }
    for (name, config) in &change.created {
        let options = core.provider.tree_options(name, config)?;
        let set = options.superseded.as_ref();
        let set = set.and_then(|by| version.tree_named(&by.tree));
        concerned.extend(set.map(|set| set.id));
    }
    Ok(concerned)
}

/// The same for a change that drops nothing: does not wait for compactions and flushes.
fn change_without_drops(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
) -> Result<Vec<TreeId>> {
    // Dropped after the lock.
    let _retired;
    let mut writer = sequencer.writer.lock();
    start_writing(sequencer, versions, &mut writer)?;
    let last = writer.last;
    sequencer.sync_all()?;
    sequencer.publish(last);
    let change = make(last)?;
    let mut edit = Edit::default();
    add_change(versions, change, &mut edit)?;
    _retired = change_trees(sequencer, versions, scheduler, &mut writer, &mut edit)?;
    Ok(edit.created.iter().map(|(id, _, _)| *id).collect())
}

pub(super) fn create_trees(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    trees: &[(String, Vec<u8>)],
) -> Result<Vec<TreeId>> {
    change_without_drops(sequencer, versions, scheduler, &mut |_| {
        Ok(TreeChange {
            created: trees.to_vec(),
            ..TreeChange::default()
        })
    })
}

pub(super) fn drop_trees(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    trees: &[TreeId],
) -> Result<()> {
    let drop = |_| {
        Ok(TreeChange {
            dropped: trees.to_vec(),
            ..TreeChange::default()
        })
    };
    change(sequencer, versions, scheduler, &mut { drop }).map(|_| ())
}

pub(super) fn rename_trees(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    trees: &[(TreeId, String)],
) -> Result<()> {
    let rename = |_| {
        Ok(TreeChange {
            renamed: trees.to_vec(),
            ..TreeChange::default()
        })
    };
    change(sequencer, versions, scheduler, &mut { rename }).map(|_| ())
}

pub(super) fn configure_tree(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    tree: TreeId,
    config: Vec<u8>,
) -> Result<()> {
    let configure = |_| {
        Ok(TreeChange {
            configured: vec![(tree, config.clone())],
            ..TreeChange::default()
        })
    };
    change(sequencer, versions, scheduler, &mut { configure }).map(|_| ())
}

/// Checks a change against the current trees, and adds it to `edit`. Under the writer lock, so that
/// it stays valid.
pub(super) fn add_change(versions: &VersionSet, change: TreeChange, edit: &mut Edit) -> Result<()> {
    let view = versions.view.load();
    let configured = change.configured.iter().map(|(id, _)| id);
    let renamed = change.renamed.iter().map(|(id, _)| id);
    let mut changed = change.dropped.iter().chain(configured).chain(renamed);
    if let Some(unknown) = changed.find(|id| !view.version.trees.contains_key(id)) {
        return Err(no_tree(*unknown));
    }
    let next = versions.manifest.lock().next_tree;
    let after = next.saturating_add(change.created.len() as TreeId);
    for (id, (name, config)) in (next..).zip(change.created) {
        let named = view.version.tree_named(&name);
        let taken = named.is_some_and(|tree| !change.dropped.contains(&tree.id));
        if taken || edit.created.iter().any(|(_, other, _)| *other == name) {
            return Err(name_taken(&name));
        }
        edit.created.push((id, name, config));
    }
    for (at, (id, name)) in change.renamed.iter().enumerate() {
        let is_given_up = |tree: TreeId| {
            change.dropped.contains(&tree) || change.renamed.iter().any(|(id, _)| *id == tree)
        };
        let named = view.version.tree_named(name);
        let created = edit.created.iter().map(|(_, name, _)| name);
        let before = change.renamed.iter().take(at);
        let mut given = created.chain(before.clone().map(|(_, name)| name));
        let twice = before.clone().any(|(other, _)| other == id);
        if twice
            || given.any(|other| other == name)
            || named.is_some_and(|tree| !is_given_up(tree.id))
        {
            return Err(name_taken(name));
        }
    }
    if after > MAX_TREE {
        return Err(Error::Limit {
            what: "the number of a tree",
            limit: MAX_TREE.into(),
            value: after.into(),
        });
    }
    edit.next_tree = (after > next).then_some(after);
    edit.configured = change.configured;
    edit.renamed = change.renamed;
    edit.dropped = change.dropped;
    Ok(())
}

/// Installs an edit of trees, and starts a generation, because memtables are created with the
/// options of their trees.
pub(super) fn change_trees(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    writer: &mut Writer,
    edit: &mut Edit,
) -> Result<Retired> {
    let core = &*sequencer.core;
    if !versions.view.load().active.is_empty() {
        rotate(sequencer, versions, scheduler, writer)?;
    }
    let after = writer.last;
    install(sequencer, versions, scheduler, edit, |view, version| {
        let active = Generation::new(after);
        let bytes = core.options.generation_bytes();
        active.count_in(&core.budget, bytes);
        if let Some(log) = view.active.log() {
            active.set_log(log);
        }
        View {
            active,
            ..view.with(version)
        }
    })
}

fn name_taken(name: &str) -> Error {
    Error::Invalid(format!("a tree called {name} exists"))
}
