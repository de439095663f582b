//! How an edit leads from a version to the next one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::edit::Edit;
use super::file::{TableFile, TableSource};
use super::known::{Known, Turnover};
use super::run::Run;
use super::tree::{TreeOptions, TreeVersion};
use super::version::{Kept, Version};
use crate::batch::TreeId;
use crate::error::{Error, Result};

/// A table that an edit removes from its tree.
struct Removed {
    table: Arc<TableFile>,
    /// It is added elsewhere.
    stays: bool,
}

impl Version {
    /// The version after `edit`, and the changes of table counts: a removed table that is only
    /// moved to another level stays, one that was copied to another file does not. Tables that stay
    /// keep their open files.
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

    /// Adds tables to their trees; returns those that existed. All new tables of a file come in one
    /// edit.
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
            let found = self.trees.get_mut(&new.tree);
            let found = found.ok_or_else(|| bad(format!("tree {} is unknown", new.tree)))?;
            let tree = Arc::make_mut(found);
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

    /// Adds the kept versions of an edit, and removes those that it drops.
    pub(super) fn apply_kept(
        &mut self,
        edit: &Edit,
        source: &TableSource,
        options: &dyn Fn(&str, &[u8]) -> Result<TreeOptions>,
        manifest: &Path,
        turnover: &mut Turnover,
    ) -> Result<()> {
        if edit.kept.is_empty() && edit.released.is_empty() {
            return Ok(());
        }
        let bad = |what: String| Error::corruption(manifest, 0, what);
        let mut all = BTreeMap::clone(&self.kept);
        for name in &edit.released {
            let kept = all.remove(name);
            let kept = kept.ok_or_else(|| bad(format!("no snapshot `{name}` is kept")))?;
            turnover.taken.extend(kept.picture().tables().cloned());
        }
        let mut known = Known::of(self.all_tables());
        for new in &edit.kept {
            if all.contains_key(&new.name) {
                return Err(bad(format!("snapshot `{}` is kept twice", new.name)));
            }
            if let Some(version) = &new.of.0 {
                version.tables().for_each(|table| known.add(table));
            }
            let empty = Version::default();
            let built = empty.build(&new.picture, source, options, manifest, &mut known);
            let (mut version, built) = built?;
            turnover.gained.extend(built.gained);
            version.tables().for_each(|table| known.add(table));
            // Its layout must never be taken for a newer one than those of writable versions.
            version.changes = 0;
            let kept = Kept::new(new.seq, new.time, version);
            all.insert(new.name.clone(), Arc::new(kept));
        }
        self.kept = Arc::new(all);
        Ok(())
    }
}
