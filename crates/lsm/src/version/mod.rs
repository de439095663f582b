//! Versions: immutable pictures of all trees of a group. Readers pin one, writers install the next.
//!
//! A tree is a list of *runs*, newest first; a run is a list of tables that do not overlap, in key
//! order. Level 0 has a run per flush (or, in a tiered tree, per merge); each lower level of a
//! leveled tree is one run. Of one key, entries in an earlier run are newer than those in a later one.

mod bitmap;
mod current;
mod edit;
mod manifest;
mod order;
mod run_cursor;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub(crate) use self::bitmap::add_table;
pub(crate) use self::current::{Current, Seal};
pub(crate) use self::edit::{Edit, MAX_FILE, MAX_TREE, NewTable, TableAt};
pub(crate) use self::manifest::{Manifest, Recovered, manifest_has_trees, recover};
pub(crate) use self::order::{ClosedSegment, Hold, Order};
pub(crate) use self::run_cursor::RunCursor;
use crate::batch::TreeId;
use crate::cache::BlockCache;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::obsolete::SeqSet;
use crate::options::TreeOptions;
use crate::table::{Table, TableMeta};

/// The span of sequence numbers that a component holds the writes of. Comparable between the trees
/// of a group, because they flush together (Luo & Carey section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    /// The first sequence number of the component's generation (or of the oldest merged one).
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

    /// True when `other` lies within this span.
    pub fn includes(self, other: ComponentId) -> bool {
        self.min <= other.min && other.max <= self.max
    }
}

/// What the tables of a group share: where they are and what they are read with.
#[derive(Clone)]
pub(crate) struct TableSource {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
}

impl TableSource {
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        table_path(&self.dir, number)
    }
}

/// The path of table `number`.
pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.tbl"))
}

/// The number of the table at `path`, if it has the name of one.
pub(crate) fn table_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    own_number(name, "", ".tbl")
}

/// The number in the name of a file that the engine gave it: in at least six digits.
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

/// A table file as versions hold it: opened when first read, so that a damaged file is an error of
/// the reads that need it and of no others; removed from disk when the last version that holds it
/// is gone, if a merge replaced it.
pub struct TableFile {
    meta: TableMeta,
    component: ComponentId,
    source: TableSource,
    open: OnceLock<Arc<Table>>,
    opening: Mutex<()>,
    obsolete: AtomicBool,
    saw: AtomicU64,
}

impl TableFile {
    pub(crate) fn new(
        meta: TableMeta,
        component: ComponentId,
        source: TableSource,
    ) -> Arc<TableFile> {
        Arc::new(TableFile {
            meta,
            component,
            source,
            open: OnceLock::new(),
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
            saw: AtomicU64::new(0),
        })
    }

    /// What the manifest says of the table.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The component that the table is part of.
    pub fn component(&self) -> ComponentId {
        self.component
    }

    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.source.path(self.meta.number)
    }

    /// The open table.
    pub fn table(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.open.get() {
            return Ok(table);
        }
        let _one_at_a_time = self.opening.lock();
        if let Some(table) = self.open.get() {
            return Ok(table);
        }
        let table = Table::open(
            &*self.source.fs,
            self.path(),
            self.meta.clone(),
            self.source.cache.clone(),
        )?;
        Ok(self.open.get_or_init(|| Arc::new(table)))
    }

    /// True when user key `key` lies between the table's first and last.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.meta.smallest.as_slice() <= key && key <= self.meta.largest.as_slice()
    }

    /// The version whose set of obsolete writes the table was written by: it has nothing of any write of that
    /// ([`Version::ordinal`]). 0 when that is not known.
    pub(crate) fn saw(&self) -> u64 {
        self.saw.load(Ordering::Acquire)
    }

    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // A file that cannot be removed now is an orphan that the next opening removes.
            let _ = self.source.fs.remove(&self.path());
        }
    }
}

/// Tables that do not overlap, in key order.
#[derive(Clone)]
pub struct Run {
    /// 0, or the level whose only run this is.
    pub level: u32,
    /// Distinguishes the runs of level 0; 0 below.
    pub number: u64,
    /// The tables, by key. Shared, so that a reader takes hold of a run in one step.
    pub tables: Arc<Vec<Arc<TableFile>>>,
}

impl Run {
    /// The span of the run's tables.
    pub fn component(&self) -> ComponentId {
        let none = ComponentId {
            min: Seq::MAX,
            max: 0,
        };
        self.tables
            .iter()
            .fold(none, |span, table| span.hull(table.component()))
    }

    /// Bytes of the run's files.
    pub fn size(&self) -> u64 {
        self.tables.iter().map(|table| table.meta().size).sum()
    }

    /// The position of the first table whose largest key is at or after `key`.
    pub fn position(&self, key: &[u8]) -> usize {
        self.tables
            .partition_point(|table| table.meta().largest.as_slice() < key)
    }

    /// The table that may hold `key`.
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<TableFile>> {
        self.tables
            .get(self.position(key))
            .filter(|table| table.covers(key))
    }

    /// The tables that hold keys of `lo..=hi`.
    pub fn overlapping(&self, lo: &[u8], hi: &[u8]) -> &[Arc<TableFile>] {
        let start = self.position(lo);
        let end = self
            .tables
            .partition_point(|table| table.meta().smallest.as_slice() <= hi);
        self.tables.get(start..end).unwrap_or_default()
    }
}

/// One tree in a version.
#[derive(Clone)]
pub struct TreeVersion {
    /// The tree's number.
    pub id: TreeId,
    /// Its name, unique in the group.
    pub name: String,
    /// Whatever the creator wants to remember of it.
    pub config: Arc<Vec<u8>>,
    /// The runs, newest first.
    pub runs: Vec<Run>,
    /// Where the next merge of each level starts (LevelDB's round-robin cursor).
    pub(crate) cursors: BTreeMap<u32, Vec<u8>>,
    pub(crate) options: TreeOptions,
    /// Of a bitmap tree: the numbers in its tables.
    pub(crate) bitmap: Arc<SeqSet>,
    /// Of a bitmap tree: why `bitmap` may lack numbers of its tables.
    pub(crate) damage: Option<Arc<Error>>,
    /// Of a bitmap tree: up to this sequence number it is complete, see [`TreeVersion::mark`].
    pub(crate) mark: Seq,
    /// Of a bitmap tree: the version that added to `bitmap` last ([`Version::ordinal`]).
    pub(crate) changed: u64,
    /// Of a bitmap tree: how many numbers were forgotten.
    pub(crate) forgotten: u64,
}

impl TreeVersion {
    /// What tables of no tree are written with: without key filters.
    pub(crate) fn aside() -> TreeVersion {
        TreeVersion {
            id: MAX_TREE,
            name: String::new(),
            config: Arc::default(),
            runs: Vec::new(),
            cursors: BTreeMap::new(),
            options: TreeOptions {
                filter_bits_per_key: 0,
                ..TreeOptions::default()
            },
            bitmap: Arc::default(),
            damage: None,
            mark: 0,
            changed: 0,
            forgotten: 0,
        }
    }

    /// Bytes of the tree's files.
    pub fn size(&self) -> u64 {
        self.runs.iter().map(Run::size).sum()
    }

    /// Of a bitmap tree: every number that was superseded by a write up to this one is in it, or no tree has anything of its write
    /// any more (Luo & Carey's repaired timestamp, section 4.4). Moved by [`crate::Group::supersede`], with what it stands for.
    pub fn mark(&self) -> Seq {
        self.mark
    }

    /// Of a bitmap tree: the numbers in its tables.
    pub fn bitmap(&self) -> &Arc<SeqSet> {
        &self.bitmap
    }

    /// Of a bitmap tree: how many numbers it got so far, those included that were forgotten since.
    pub fn noted(&self) -> u64 {
        self.bitmap.len() + self.forgotten
    }

    /// Of a bitmap tree: why its bitmap may lack numbers, as a table could not be read when the group was opened. What
    /// the bitmap has is true, and [`TreeVersion::mark`] stands for nothing.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_deref()
    }

    /// The run of level `level`, 1 or more.
    pub(crate) fn level(&self, level: u32) -> Option<&Run> {
        self.runs.iter().find(|run| run.level == level)
    }

    /// The runs of level 0, newest first.
    pub(crate) fn level0(&self) -> &[Run] {
        self.runs
            .get(..self.runs.partition_point(|run| run.level == 0))
            .unwrap_or_default()
    }

    /// Puts runs in order and checks what must hold of them: tables of a run ascend without
    /// overlap. Checked at every change, because everything else relies on it.
    fn normalise(&mut self, manifest: &Path) -> Result<()> {
        self.runs.retain(|run| !run.tables.is_empty());
        self.runs.sort_by_key(|run| {
            let component = run.component();
            (
                run.level,
                Seq::MAX - component.max,
                Seq::MAX - component.min,
                u64::MAX - run.number,
            )
        });
        for run in &mut self.runs {
            Arc::make_mut(&mut run.tables)
                .sort_by(|a, b| a.meta().smallest.cmp(&b.meta().smallest));
            for pair in run.tables.windows(2) {
                if let [a, b] = pair
                    && a.meta().largest >= b.meta().smallest
                {
                    let what = format!(
                        "tree {}: tables {} and {} of level {} overlap",
                        self.name,
                        a.meta().number,
                        b.meta().number,
                        run.level
                    );
                    return Err(Error::corruption(manifest, 0, what));
                }
            }
        }
        Ok(())
    }
}

/// All trees of a group at one moment.
#[derive(Clone, Default)]
pub struct Version {
    /// The trees, by number.
    pub trees: BTreeMap<TreeId, Arc<TreeVersion>>,
    changes: u64,
    /// How many edits made it, in this process.
    ordinal: u64,
}

impl Version {
    /// The tree called `name`.
    pub fn tree_named(&self, name: &str) -> Option<&Arc<TreeVersion>> {
        self.trees.values().find(|tree| tree.name == name)
    }

    /// How often trees were created, configured or dropped since the group was opened: two versions
    /// of the same number have the same trees, with the same configurations.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Versions of a process by their age: from 1 up.
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Every table of every tree.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.trees
            .values()
            .flat_map(|tree| tree.runs.iter())
            .flat_map(|run| run.tables.iter())
    }

    /// The version after `edit`. Tables that are in both keep their open files.
    pub(crate) fn apply(
        &self,
        edit: &Edit,
        source: &TableSource,
        options: &dyn Fn(&str, &[u8]) -> Result<TreeOptions>,
        manifest: &Path,
    ) -> Result<Version> {
        let bad = |what: String| Error::corruption(manifest, 0, what);
        let mut next = self.clone();
        let same = edit.created.is_empty() && edit.configured.is_empty() && edit.dropped.is_empty();
        next.changes += u64::from(!same);
        next.ordinal += 1;
        let mut moved: BTreeMap<u64, Arc<TableFile>> = BTreeMap::new();
        for (id, name, config) in &edit.created {
            let tree = TreeVersion {
                id: *id,
                name: name.clone(),
                options: options(name, config)?.bounded(),
                config: Arc::new(config.clone()),
                runs: Vec::new(),
                cursors: BTreeMap::new(),
                bitmap: Arc::default(),
                damage: None,
                mark: 0,
                changed: 0,
                forgotten: 0,
            };
            if next.trees.insert(*id, Arc::new(tree)).is_some() {
                return Err(bad(format!("tree {id} is created twice")));
            }
        }
        for (id, config) in &edit.configured {
            let tree = next
                .trees
                .get_mut(id)
                .ok_or_else(|| bad(format!("tree {id} is unknown")))?;
            let tree = Arc::make_mut(tree);
            tree.options = options(&tree.name, config)?.bounded();
            tree.config = Arc::new(config.clone());
        }
        for id in &edit.dropped {
            next.trees
                .remove(id)
                .ok_or_else(|| bad(format!("tree {id} is unknown")))?;
        }
        for at in &edit.removed {
            let tree = next
                .trees
                .get_mut(&at.tree)
                .ok_or_else(|| bad(format!("tree {} is unknown", at.tree)))?;
            let mut found = None;
            for run in &mut Arc::make_mut(tree).runs {
                if let Some(position) = run.tables.iter().position(|t| t.meta().number == at.number)
                {
                    found = Some(Arc::make_mut(&mut run.tables).remove(position));
                    break;
                }
            }
            let found = found
                .ok_or_else(|| bad(format!("table {} is not in tree {}", at.number, at.tree)))?;
            moved.insert(at.number, found);
        }
        for new in &edit.added {
            let tree = next
                .trees
                .get_mut(&new.tree)
                .ok_or_else(|| bad(format!("tree {} is unknown", new.tree)))?;
            let tree = Arc::make_mut(tree);
            let table = match moved.get(&new.meta.number) {
                Some(table) => table.clone(),
                None => {
                    let table = TableFile::new(new.meta.clone(), new.component, source.clone());
                    let saw = edit.saw.get(&new.meta.number).copied().unwrap_or(0);
                    table.saw.store(saw, Ordering::Release);
                    table
                }
            };
            let (level, number) = (new.level, new.run);
            match tree
                .runs
                .iter_mut()
                .find(|run| (run.level, run.number) == (level, number))
            {
                Some(run) => Arc::make_mut(&mut run.tables).push(table),
                None => tree.runs.push(Run {
                    level,
                    number,
                    tables: Arc::new(vec![table]),
                }),
            }
        }
        for (id, level, key) in &edit.cursors {
            if let Some(tree) = next.trees.get_mut(id) {
                Arc::make_mut(tree).cursors.insert(*level, key.clone());
            }
        }
        for (id, seq) in &edit.marks {
            if let Some(tree) = next.trees.get_mut(id) {
                let tree = Arc::make_mut(tree);
                tree.mark = tree.mark.max(*seq);
            }
        }
        for (id, count) in &edit.forgotten {
            if let Some(tree) = next.trees.get_mut(id) {
                Arc::make_mut(tree).forgotten = *count;
            }
        }
        for tree in next.trees.values_mut() {
            let touched = |id: TreeId| {
                edit.added.iter().any(|a| a.tree == id) || edit.removed.iter().any(|r| r.tree == id)
            };
            if touched(tree.id) {
                Arc::make_mut(tree).normalise(manifest)?;
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
