//! A version: the state of all trees, and how an edit leads to the next one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::edit::Edit;
use super::file::{TableFile, TableSource};
use super::kept::{Kept, Known, Turnover};
use super::names::Names;
use super::run::Run;
use super::tree::TreeVersion;
use super::tree_options::TreeOptions;
use crate::batch::TreeId;
use crate::entry::Seq;
use crate::error::{Error, Result};

/// A table that an edit removes from its tree.
struct Removed {
    table: Arc<TableFile>,
    /// It is added elsewhere.
    stays: bool,
}

/// The state of all trees of a group.
#[derive(Clone, Default)]
pub struct Version {
    /// The trees, by number.
    pub trees: BTreeMap<TreeId, Arc<TreeVersion>>,
    pub(super) names: Arc<Names>,
    pub(super) changes: u64,
    /// How many edits created it, in this process.
    pub(super) ordinal: u64,
    /// In a read-only group: all writes up to it are in tables.
    pub(super) flushed: Seq,
    /// Whether entries in it expire, or did.
    pub(super) timed: bool,
    /// Named snapshots beside it.
    pub(super) kept: Arc<BTreeMap<String, Arc<Kept>>>,
}

impl Version {
    /// The tree called `name`.
    pub fn tree_named(&self, name: &str) -> Option<&Arc<TreeVersion>> {
        self.trees.get(&self.names.id(name)?)
    }

    /// The trees that follow the compactions of the tree called `name`, by number.
    pub(crate) fn followers(&self, name: &str) -> impl Iterator<Item = &Arc<TreeVersion>> {
        let ids = self.names.followers(name).iter();
        ids.filter_map(|id| self.trees.get(id))
    }

    /// The trees that read the set of the tree called `name`, by number.
    pub(crate) fn holders(&self, name: &str) -> impl Iterator<Item = &Arc<TreeVersion>> {
        let ids = self.names.holders(name).iter();
        ids.filter_map(|id| self.trees.get(id))
    }

    /// How often trees were created, configured, renamed or dropped since the group was opened: two versions with the same
    /// number have the same trees, with the same configurations.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// True when entries in its tables expire, or did.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// The version's number in this process: from 1 up, ascending with age.
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Every table of every tree.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.trees.values().flat_map(|tree| tree.tables())
    }

    /// The version after `edit`, and the changes of table counts: a removed table that is only moved to another level
    /// stays, one that was copied to another file does not. Tables that stay keep their open files.
    pub(crate) fn apply(
        self,
        edit: &Edit,
        source: &TableSource,
        options: &dyn Fn(&str, &[u8]) -> Result<TreeOptions>,
        manifest: &Path,
    ) -> Result<(Version, Turnover)> {
        let mut known = Known::default();
        let (mut version, mut turnover) =
            self.build(edit, source, options, manifest, &mut known)?;
        version.apply_kept(edit, source, options, manifest, &mut turnover)?;
        Ok((version, turnover))
    }

    /// As [`Self::apply`], without kept versions. Tables in `known` are reused.
    pub(super) fn build(
        mut self,
        edit: &Edit,
        source: &TableSource,
        options: &dyn Fn(&str, &[u8]) -> Result<TreeOptions>,
        manifest: &Path,
        known: &mut Known,
    ) -> Result<(Version, Turnover)> {
        let bad = |what: String| Error::corruption(manifest, 0, what);
        self.ordinal += 1;
        let mut taken = self.apply_trees(edit, options, &bad)?;
        let mut removed = self.apply_removed(edit, &bad)?;
        let gained = self.apply_added(edit, source, &mut removed, known, &bad)?;
        self.timed |= edit.time.is_some() || edit.expires();
        let gone = removed.into_values().filter(|removed| !removed.stays);
        taken.extend(gone.map(|removed| removed.table));
        for (id, level, key) in &edit.cursors {
            if let Some(tree) = self.trees.get_mut(id) {
                Arc::make_mut(tree).cursors.insert(*level, key.clone());
            }
        }
        for (id, seq) in &edit.repair_watermarks {
            if let Some(tree) = self.trees.get_mut(id) {
                let tree = Arc::make_mut(tree);
                tree.repair_watermark = tree.repair_watermark.max(*seq);
            }
        }
        for (id, count) in &edit.forgotten {
            if let Some(tree) = self.trees.get_mut(id) {
                Arc::make_mut(tree).forgotten = *count;
            }
        }
        for id in edit.touched() {
            if let Some(tree) = self.trees.get_mut(&id) {
                Arc::make_mut(tree).normalise(manifest)?;
            }
        }
        Ok((self, Turnover { gained, taken }))
    }

    /// Calls the policies of the trees that an edit changed, or of all trees.
    pub(crate) fn find_due(&mut self, edit: Option<&Edit>) {
        let Some(edit) = edit else {
            let trees = self.trees.values_mut();
            return trees.for_each(|tree| Arc::make_mut(tree).find_due());
        };
        for id in edit.touched() {
            if let Some(tree) = self.trees.get_mut(&id) {
                Arc::make_mut(tree).find_due();
            }
        }
    }

    /// Creates, configures, renames and drops trees; returns the tables of the dropped ones.
    fn apply_trees(
        &mut self,
        edit: &Edit,
        options: &dyn Fn(&str, &[u8]) -> Result<TreeOptions>,
        bad: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Arc<TableFile>>> {
        let mut dropped = Vec::new();
        let is_of_tables = edit.created.is_empty() && edit.configured.is_empty();
        if is_of_tables && edit.renamed.is_empty() && edit.dropped.is_empty() {
            return Ok(dropped);
        }
        self.changes += 1;
        let names = Arc::make_mut(&mut self.names);
        for (id, name, config) in &edit.created {
            let tree = TreeVersion {
                id: *id,
                name: name.clone(),
                options: options(name, config)?.bounded(),
                config: Arc::new(config.clone()),
                ..TreeVersion::blank()
            };
            names.add(&tree);
            if self.trees.insert(*id, Arc::new(tree)).is_some() {
                return Err(bad(format!("tree {id} is created twice")));
            }
        }
        let unknown = |id: TreeId| bad(format!("tree {id} is unknown"));
        for (id, config) in &edit.configured {
            let tree = self.trees.get_mut(id).ok_or_else(|| unknown(*id))?;
            let tree = Arc::make_mut(tree);
            names.remove(tree);
            tree.options = options(&tree.name, config)?.bounded();
            tree.config = Arc::new(config.clone());
            names.add(tree);
        }
        // All names are given up before the first is taken: trees may swap them.
        for (id, _) in &edit.renamed {
            names.remove(self.trees.get(id).ok_or_else(|| unknown(*id))?);
        }
        for (id, name) in &edit.renamed {
            let taken = names.id(name).is_some_and(|by| !edit.dropped.contains(&by));
            let tree = self.trees.get_mut(id).ok_or_else(|| unknown(*id))?;
            if taken {
                return Err(bad(format!("tree {id} gets the name of another tree")));
            }
            let tree = Arc::make_mut(tree);
            tree.name.clone_from(name);
            tree.options = options(name, &tree.config)?.bounded();
            names.add(tree);
        }
        for id in &edit.dropped {
            let tree = self.trees.remove(id).ok_or_else(|| unknown(*id))?;
            names.remove(&tree);
            dropped.extend(tree.tables().cloned());
        }
        Ok(dropped)
    }

    /// Removes tables from their trees; returns them by number.
    fn apply_removed(
        &mut self,
        edit: &Edit,
        bad: &dyn Fn(String) -> Error,
    ) -> Result<BTreeMap<u64, Removed>> {
        let mut removed = BTreeMap::new();
        for at in &edit.removed {
            let tree = self.trees.get_mut(&at.tree);
            let tree = tree.ok_or_else(|| bad(format!("tree {} is unknown", at.tree)))?;
            let mut runs = Arc::make_mut(tree).runs.iter_mut();
            let found = runs.find_map(|run| {
                let mut numbers = run.tables.iter().map(|table| table.meta().number);
                let position = numbers.position(|number| number == at.number)?;
                Some(Arc::make_mut(&mut run.tables).remove(position))
            });
            let table = found
                .ok_or_else(|| bad(format!("table {} is not in tree {}", at.number, at.tree)))?;
            let stays = false;
            removed.insert(at.number, Removed { table, stays });
        }
        Ok(removed)
    }

    /// Adds tables to their trees; returns those that existed. All new tables of a file come in one edit.
    fn apply_added(
        &mut self,
        edit: &Edit,
        source: &TableSource,
        removed: &mut BTreeMap<u64, Removed>,
        known: &mut Known,
        bad: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Arc<TableFile>>> {
        let mut gained = Vec::new();
        for new in &edit.added {
            let tree = self.trees.get_mut(&new.tree);
            let tree = tree.ok_or_else(|| bad(format!("tree {} is unknown", new.tree)))?;
            let tree = Arc::make_mut(tree);
            let before = removed.get_mut(&new.meta.number);
            let table = match (before, known.table(new)) {
                (Some(before), _) if before.table.place() == new.place => {
                    before.stays = true;
                    before.table.clone()
                }
                (_, Some(table)) => {
                    gained.push(table.clone());
                    table.clone()
                }
                (before, None) => {
                    let file = known.file(new, source);
                    let table =
                        TableFile::in_file(new.meta.clone(), new.component, file, new.place);
                    // A copied table inherits the value.
                    let saw = edit.saw.get(&new.meta.number).copied();
                    let copied = before.map(|before| before.table.saw());
                    table.see(saw.or(copied).unwrap_or(0));
                    table
                }
            };
            let (level, number) = (new.level, new.run);
            let mut runs = tree.runs.iter_mut();
            match runs.find(|run| (run.level, run.number) == (level, number)) {
                Some(run) => Arc::make_mut(&mut run.tables).push(table),
                None => tree.runs.push(Run {
                    level,
                    number,
                    tables: Arc::new(vec![table]),
                    partitioner: tree.options.partitioner.clone(),
                }),
            }
        }
        Ok(gained)
    }
}
