//! Versions: the immutable state of all trees of a group. Readers pin one, writers install the next.
//!
//! A tree is a list of *runs*, newest first; a run is a list of tables that do not overlap: by key, or in the order
//! of the tree's partitioner. Any level may have several runs: level 0 has one per flush (or, in a tiered tree, per
//! compaction); each lower level of a leveled tree is one run. Of one key, entries in an earlier run are newer than
//! those in a later one.

mod bitmap;
mod consumers;
mod current;
mod edit;
mod file;
mod kept;
mod manifest;
mod names;
mod order;
mod partition;
mod policy;
mod reader;
mod run;
mod run_cursor;
mod tree_options;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::bitmap::add_table;
pub(crate) use self::consumers::{ConsumerPlace, ConsumerPlaces};
pub(crate) use self::current::{Current, Seal};
pub(crate) use self::edit::{Edit, MAX_FILE, MAX_TREE, NewTable, SweptSet, TableAt};
pub use self::file::TableFile;
pub(crate) use self::file::{DataFile, Place, TableSource, table_number, table_path};
use self::kept::Known;
pub(crate) use self::kept::{Kept, NewKept, Pictured, Turnover};
pub(crate) use self::manifest::{Manifest, Recovered, is_written, manifest_has_trees, recover};
use self::names::Names;
pub(crate) use self::order::{ClosedSegment, Order};
pub(crate) use self::partition::MAX_BOUNDS;
pub use self::partition::{Cutter, Cutting, MOST_PARTS, Partitioner};
use self::policy::Never;
pub use self::policy::{Action, Choice, CompactionPolicy};
pub use self::run::Run;
pub(crate) use self::run::are_disjoint;
pub(crate) use self::run_cursor::RunCursor;
pub use self::tree_options::{DropPolicy, PlainTrees, SupersededBy, TreeOptions, TreeProvider};
use crate::batch::TreeId;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};
use crate::obsolete::SeqSet;

/// The span of sequence numbers of a component's writes. Comparable between the trees of a group, because they flush
/// together (Luo & Carey section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    /// The first sequence number of the component's generation (or of the oldest one compacted into it).
    pub min: Seq,
    /// The last sequence number.
    pub max: Seq,
}

impl ComponentId {
    /// The smallest span that covers both.
    pub fn hull(self, other: ComponentId) -> ComponentId {
        ComponentId {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// True when this span contains `other`.
    pub fn includes(self, other: ComponentId) -> bool {
        self.min <= other.min && other.max <= self.max
    }
}

/// The longest name of a named snapshot, in bytes.
pub(crate) const MAX_SNAPSHOT_NAME: usize = 255;

/// The number in the name of an engine file: at least six digits.
pub(crate) fn own_number(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let number = digits.parse().ok().filter(|number| *number <= MAX_FILE)?;
    (format!("{number:06}") == digits).then_some(number)
}

/// The path of log segment `number`.
pub(crate) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.log"))
}

/// The path of manifest `number`.
pub(crate) fn manifest_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("MANIFEST-{number:06}"))
}

/// One tree in a version.
#[derive(Clone)]
pub struct TreeVersion {
    /// The tree's number.
    pub id: TreeId,
    /// Its name, unique in the group.
    pub name: String,
    /// Opaque data of the creator.
    pub config: Arc<Vec<u8>>,
    /// The runs, newest first.
    pub runs: Vec<Run>,
    /// Where the next compaction of each level starts (LevelDB's round-robin cursor).
    pub(crate) cursors: BTreeMap<u32, Vec<u8>>,
    pub(crate) options: TreeOptions,
    /// In a bitmap tree: the numbers in its tables.
    pub(crate) bitmap: Arc<SeqSet>,
    /// In a bitmap tree: why `bitmap` may lack numbers of its tables.
    pub(crate) damage: Option<Arc<Error>>,
    /// In a bitmap tree: the repair watermark, see [`TreeVersion::repair_watermark`].
    pub(crate) repair_watermark: Seq,
    /// In a bitmap tree: the version that last added to `bitmap` ([`Version::ordinal`]).
    pub(crate) changed: u64,
    /// In a bitmap tree: how many numbers were dropped by sweeps.
    pub(crate) forgotten: u64,
    pub(crate) due: Due,
}

/// The policy's answers for a tree, computed once per change of the tree: of thousands of trees a flush or a
/// compaction changes a few.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    /// The score of a compaction, if one is due, and the bytes that it reads.
    pub(crate) merge: Option<(f64, u64)>,
    /// The compaction backlog.
    pub(crate) pressure: f64,
    /// The earliest expiry time in the tree, if any.
    pub(crate) expiry: Option<Time>,
}

impl TreeVersion {
    /// A tree without tables and name.
    fn blank() -> TreeVersion {
        TreeVersion {
            id: MAX_TREE,
            name: String::new(),
            config: Arc::default(),
            runs: Vec::new(),
            cursors: BTreeMap::new(),
            options: TreeOptions {
                filter_bits_per_key: 0,
                ..TreeOptions::with_policy(Arc::new(Never))
            },
            bitmap: Arc::default(),
            damage: None,
            repair_watermark: 0,
            changed: 0,
            forgotten: 0,
            due: Due::default(),
        }
    }

    /// Calls the policy again, after a change.
    fn find_due(&mut self) {
        let policy = &self.options.policy;
        let picked = policy.pick(self);
        self.due = Due {
            merge: picked.map(|(score, choice)| (score, choice.size())),
            pressure: policy.pressure(self),
            expiry: self
                .tables()
                .filter_map(|table| Some(table.meta().expiry?.min))
                .min(),
        };
    }

    /// The tree's tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }

    /// Bytes of the tree's tables.
    pub fn size(&self) -> u64 {
        self.runs.iter().map(Run::size).sum()
    }

    /// In a bitmap tree, the repair watermark (Luo & Carey's repaired timestamp, section 4.4): every number that was
    /// superseded by a write up to this one is in the set, or no tree has an entry of it any more. Advanced by
    /// [`crate::Group::supersede`], together with the numbers.
    pub fn repair_watermark(&self) -> Seq {
        self.repair_watermark
    }

    /// In a bitmap tree: the numbers in its tables.
    pub fn bitmap(&self) -> &Arc<SeqSet> {
        &self.bitmap
    }

    /// In a bitmap tree: how many numbers were added so far, those dropped since included.
    pub fn noted(&self) -> u64 {
        self.bitmap.len() + self.forgotten
    }

    /// In a bitmap tree: why its set may lack numbers, if a table could not be read when the group was opened. The
    /// numbers in the set are correct, but [`TreeVersion::repair_watermark`] guarantees nothing.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_deref()
    }

    /// The newest run of a level.
    pub fn level(&self, level: u32) -> Option<&Run> {
        self.runs.iter().find(|run| run.level == level)
    }

    /// The runs of level 0, newest first.
    pub fn level0(&self) -> &[Run] {
        self.runs
            .get(..self.runs.partition_point(|run| run.level == 0))
            .unwrap_or_default()
    }

    /// Where the next pick of `level` starts: the key that its last choice set.
    pub fn cursor(&self, level: u32) -> Option<&[u8]> {
        self.cursors.get(&level).map(Vec::as_slice)
    }

    /// The tree's options in this version.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// Sorts the runs and checks their invariants: tables of a run do not overlap in the run's order. Checked at
    /// every change, because everything else relies on it.
    fn normalise(&mut self, manifest: &Path) -> Result<()> {
        self.runs.retain(|run| !run.tables.is_empty());
        self.runs
            .sort_by_key(|run| Run::place(run.level, run.component(), run.number));
        for run in &mut self.runs {
            run.normalise().map_err(|what| {
                Error::corruption(manifest, 0, format!("tree {}: {what}", self.name))
            })?;
        }
        Ok(())
    }
}

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
    names: Arc<Names>,
    changes: u64,
    /// How many edits created it, in this process.
    ordinal: u64,
    /// In a read-only group: all writes up to it are in tables.
    flushed: Seq,
    /// Whether entries in it expire, or did.
    timed: bool,
    /// Named snapshots beside it.
    kept: Arc<BTreeMap<String, Arc<Kept>>>,
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
    fn build(
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

#[cfg(test)]
mod tests;
