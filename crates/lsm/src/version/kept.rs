//! Versions that are kept under a name (named snapshots; `group/snapshots.rs` keeps and drops them).
//!
//! A kept version is a picture of its own beside the newest one: trees with their configurations and marks, and tables, which
//! are shared with the newest version and with one another as long as these have them, too ([`Known`]). So it asks nothing of merges, which
//! take out of the newest version what they like: the tables stay, since they are counted once for each version that has them
//! ([`TableFile::hold_on`]). Whatever a reader wants to know at that moment is a function of the version: what is obsolete (the sets of bitmap trees
//! are read from the tables that they had then), up to where that is known (the marks), how trees are laid out (their configurations).
//!
//! In the manifest it is one item of an edit, which has the picture as an edit inside of it: it is there whole or not at all.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::{DataFile, Edit, NewTable, Place, TableFile, TableSource, TreeOptions, Version};
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};

/// A version that is kept, and what it sees.
pub(crate) struct Kept {
    /// The last write that it sees.
    pub(crate) seq: Seq,
    /// The time by which it sees what expires; 0 where nothing did.
    pub(crate) time: Time,
    version: Version,
    /// The same with the sets of its bitmap trees, which are read when somebody asks for it.
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

    /// The version, to be read.
    pub(crate) fn version(&self) -> &Arc<Version> {
        self.ready.get_or_init(|| {
            let mut version = self.version.clone();
            version.load_bitmaps();
            Arc::new(version)
        })
    }

    /// Its trees and tables; what is obsolete in it may not be known.
    pub(crate) fn picture(&self) -> &Version {
        &self.version
    }

    /// Bytes of its sets in memory.
    pub(crate) fn set_bytes(&self) -> usize {
        let trees = self.ready.get().map(|version| version.trees.values());
        let sets = trees.into_iter().flatten();
        sets.map(|tree| tree.bitmap().memory()).sum()
    }
}

/// A version to be kept, as an edit says it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewKept {
    pub(crate) name: String,
    pub(crate) seq: Seq,
    pub(crate) time: Time,
    /// Trees that are created, tables that are added, marks and what was forgotten, and nothing else.
    pub(crate) picture: Edit,
    /// Not on disk: the version that it is a picture of. The newest one may lack tables of it by now.
    pub(crate) of: Pictured,
}

/// The version of a picture, if that is known. Not compared: it is no part of what an edit says.
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

/// Tables and files that there are already: what a kept version has of them is the same object, which is open once and
/// counted together.
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

    /// The table that an edit means, if it is there.
    pub(super) fn table(&self, new: &NewTable) -> Option<&Arc<TableFile>> {
        let number = new.meta.number;
        let (file, offset) = new.place.map_or((number, 0), |at| (at.file, at.offset));
        let known = self.tables.get(&(number, file, offset));
        known.filter(|known| known.is_new(new))
    }

    /// The file that a new table lies in.
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

    /// The same table as this one, if it is there.
    pub(super) fn same(&self, table: &TableFile) -> Option<&Arc<TableFile>> {
        let place = (table.meta().number, table.file().number(), table.offset());
        let known = self.tables.get(&place);
        known.filter(|known| known.is_same(table))
    }
}

/// What an edit changes of who has which tables: carried out when the edit is on disk.
#[derive(Default)]
pub(crate) struct Turnover {
    /// Tables that were there, and that one more version has now.
    pub(crate) gained: Vec<Arc<TableFile>>,
    /// Tables that a version does not have any more.
    pub(crate) taken: Vec<Arc<TableFile>>,
}

impl Version {
    /// The versions that are kept beside this one, by name.
    pub(crate) fn kept(&self) -> &BTreeMap<String, Arc<Kept>> {
        &self.kept
    }

    /// Every table of this version and of those that are kept beside it: some come several times.
    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        let kept = self.kept.values();
        self.tables()
            .chain(kept.flat_map(|kept| kept.version.tables()))
    }

    /// Takes up the versions that an edit says are to be kept, and lets go of those that it drops.
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
            // A layout of it is never taken for a newer one than those of versions that are written to.
            version.changes = 0;
            let kept = Kept::new(new.seq, new.time, version);
            all.insert(new.name.clone(), Arc::new(kept));
        }
        self.kept = Arc::new(all);
        Ok(())
    }

    /// The version without those that are kept beside it, as the edit that makes it.
    pub(crate) fn as_picture(&self) -> Edit {
        Edit {
            cursors: Vec::new(),
            ..self.own_snapshot()
        }
    }

    /// What is kept beside the version, for the edit that makes all of it.
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

    /// Has `tables` in the place of its own that are the same, and those that are kept, too.
    pub(super) fn take_over(&mut self, tables: &Known) {
        self.take_over_own(tables);
        if self.kept.is_empty() {
            return;
        }
        let kept = self.kept.iter().map(|(name, kept)| {
            let mut version = kept.version.clone();
            version.take_over_own(tables);
            let kept = Kept::new(kept.seq, kept.time, version);
            (name.clone(), Arc::new(kept))
        });
        self.kept = Arc::new(kept.collect());
    }

    fn take_over_own(&mut self, tables: &Known) {
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
