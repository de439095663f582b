//! The versions of named snapshots (`group/snapshots.rs` keeps and drops them).
//!
//! A kept version is a separate version beside the newest one: trees with their configurations and watermarks, and
//! tables, which are shared with the newest version and other kept ones as far as they have the same ([`Known`]). So
//! compactions need not care: they remove any table from the newest version, and its file stays, since tables are
//! counted once for each version that has them ([`TableFile::hold_on`]). Everything that a reader needs is a function
//! of the version: the obsolete writes (the sets of bitmap trees are read from the tables that they had then), how
//! far these are complete (the watermarks), the layout of the trees (their configurations).
//!
//! In the manifest it is one item of an edit, which contains the version as a nested edit: so it is added atomically.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::edit::Edit;
use super::file::{DataFile, NewTable, TableFile, TableSource};
use super::paths::Place;
use super::tree_options::TreeOptions;
use super::version::Version;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};

/// A kept version, with the sequence number and time of its snapshot.
pub(crate) struct Kept {
    /// The last visible write.
    pub(crate) seq: Seq,
    /// The time by which it hides expired entries; 0 where nothing expired.
    pub(crate) time: Time,
    version: Version,
    /// The version with the sets of its bitmap trees, which are read on first use.
    ready: OnceLock<Arc<Version>>,
}

impl Kept {
    fn new(seq: Seq, time: Time, version: Version) -> Kept {
        Kept {
            seq,
            time,
            version,
            ready: OnceLock::new(),
        }
    }

    /// The version, for reads.
    pub(crate) fn version(&self) -> &Arc<Version> {
        self.ready.get_or_init(|| {
            let mut version = self.version.clone();
            version.load_bitmaps();
            Arc::new(version)
        })
    }

    /// Its trees and tables; its sets may not be loaded.
    pub(crate) fn picture(&self) -> &Version {
        &self.version
    }

    /// Bytes of its loaded sets.
    pub(crate) fn set_bytes(&self) -> usize {
        let trees = self.ready.get().map(|version| version.trees.values());
        let sets = trees.into_iter().flatten();
        sets.map(|tree| tree.bitmap().memory()).sum()
    }
}

/// A kept version in an edit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewKept {
    pub(crate) name: String,
    pub(crate) seq: Seq,
    pub(crate) time: Time,
    /// Created trees, added tables, watermarks and counts of dropped numbers, and nothing else.
    pub(crate) picture: Edit,
    /// Not on disk: the version of the snapshot. The newest one may lack some of its tables by now.
    pub(crate) of: Pictured,
}

/// The version of a snapshot, if known. Ignored in comparisons: it is not part of the edit.
#[derive(Clone, Default)]
pub(crate) struct Pictured(pub(crate) Option<Arc<Version>>);

impl PartialEq for Pictured {
    fn eq(&self, _: &Pictured) -> bool {
        true
    }
}

impl std::fmt::Debug for Pictured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

/// Existing tables and files: a kept version shares these objects, so that they are opened once and counted together.
#[derive(Default)]
pub(super) struct Known {
    tables: HashMap<(u64, u64, u64), Arc<TableFile>>,
    files: HashMap<u64, Arc<DataFile>>,
}

impl Known {
    pub(super) fn of<'t>(tables: impl Iterator<Item = &'t Arc<TableFile>>) -> Known {
        let mut known = Known::default();
        tables.for_each(|table| known.add(table));
        known
    }

    fn add(&mut self, table: &Arc<TableFile>) {
        let file = table.file();
        let place = (table.meta().number, file.number(), table.offset());
        self.tables.insert(place, table.clone());
        self.files.insert(file.number(), file.clone());
    }

    /// The existing table of an edit's item.
    pub(super) fn table(&self, new: &NewTable) -> Option<&Arc<TableFile>> {
        let number = new.meta.number;
        let (file, offset) = new.place.map_or((number, 0), |at| (at.file, at.offset));
        let known = self.tables.get(&(number, file, offset));
        known.filter(|known| known.is_new(new))
    }

    /// The file of a new table.
    pub(super) fn file(&mut self, new: &NewTable, source: &TableSource) -> Arc<DataFile> {
        let make = || DataFile::new(&new.meta, new.place, source);
        match new.place {
            Some(Place { file, .. }) => self.files.entry(file).or_insert_with(make).clone(),
            None => self
                .files
                .get(&new.meta.number)
                .cloned()
                .unwrap_or_else(make),
        }
    }

    /// The existing table equal to this one.
    pub(super) fn same(&self, table: &TableFile) -> Option<&Arc<TableFile>> {
        let place = (table.meta().number, table.file().number(), table.offset());
        let known = self.tables.get(&place);
        known.filter(|known| known.is_same(table))
    }
}

/// The changes of table counts by an edit: made when the edit is on disk.
#[derive(Default)]
pub(crate) struct Turnover {
    /// Existing tables that one more version has now.
    pub(crate) gained: Vec<Arc<TableFile>>,
    /// Tables that a version no longer has.
    pub(crate) taken: Vec<Arc<TableFile>>,
}

impl Version {
    /// The kept versions beside this one, by name.
    pub(crate) fn kept(&self) -> &BTreeMap<String, Arc<Kept>> {
        &self.kept
    }

    /// Every table of this version and of the kept ones beside it: some occur several times.
    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        let kept = self.kept.values();
        self.tables()
            .chain(kept.flat_map(|kept| kept.version.tables()))
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
            turnover.taken.extend(kept.version.tables().cloned());
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

    /// The version without the kept ones beside it, as the edit that creates it.
    pub(crate) fn as_picture(&self) -> Edit {
        Edit {
            cursors: Vec::new(),
            ..self.own_snapshot()
        }
    }

    /// The kept versions beside this one, for the edit that creates all of it.
    pub(super) fn kept_pictures(&self) -> Vec<NewKept> {
        let kept = self.kept.iter().map(|(name, kept)| NewKept {
            name: name.clone(),
            seq: kept.seq,
            time: kept.time,
            picture: kept.version.as_picture(),
            of: Pictured::default(),
        });
        kept.collect()
    }

    /// Replaces own tables by the same ones in `tables`, in the kept versions, too.
    pub(super) fn reuse_tables(&mut self, tables: &Known) {
        self.reuse_own_tables(tables);
        if self.kept.is_empty() {
            return;
        }
        let kept = self.kept.iter().map(|(name, kept)| {
            let mut version = kept.version.clone();
            version.reuse_own_tables(tables);
            let kept = Kept::new(kept.seq, kept.time, version);
            (name.clone(), Arc::new(kept))
        });
        self.kept = Arc::new(kept.collect());
    }

    fn reuse_own_tables(&mut self, tables: &Known) {
        for tree in self.trees.values_mut() {
            for run in &mut Arc::make_mut(tree).runs {
                for table in Arc::make_mut(&mut run.tables) {
                    if let Some(known) = tables.same(table) {
                        *table = Arc::clone(known);
                    }
                }
            }
        }
    }
}
