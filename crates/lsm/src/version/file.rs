//! Tables in versions, and the files that contain them.
//!
//! Most tables are a file each. Small tables that one job writes for many trees share a file
//! ([`Place`]): it is created, synced and opened once for all of them. A table is identified by its
//! own number; that of a shared file is only the file's name. A shared file stays while one of its
//! tables is in use, so [`DataFile`] counts its live bytes, and the live tables of a mostly unused
//! file are moved elsewhere (`group/space.rs`).

use std::cmp;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::component::ComponentId;
use super::paths::Place;
use super::paths::own_number;
use crate::batch::TreeId;
use crate::cache::BlockCache;
use crate::coding::{Own, head};
use crate::error::{Error, Result};
use crate::fs::{Extent, Fs, ReadFile};
use crate::stop::Stop;
use crate::table::{Table, TableMeta};

/// What the tables of a group share: their location and the means to read them.
#[derive(Clone)]
pub(crate) struct TableSource {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    /// Whether tables are read through maps of their files.
    pub(crate) mapped: bool,
}

impl TableSource {
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        table_path(&self.dir, number)
    }
}

/// The path of the table file `number`.
pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.tbl"))
}

/// The number of the table file at `path`, if its name has one.
pub(crate) fn table_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    own_number(name, "", ".tbl")
}

/// A table added to a version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewTable {
    pub(crate) tree: TreeId,
    pub(crate) level: u32,
    pub(crate) run: u64,
    pub(crate) component: ComponentId,
    pub(crate) meta: Arc<TableMeta>,
    /// Its location, unless it has a file of its own.
    pub(crate) place: Option<Place>,
}

/// Bytes that are copied at a time.
const COPIED_AT_ONCE: u64 = 1 << 20;

/// A file of tables. Removed from disk when no handle to its tables is left and no later version
/// has one.
pub(crate) struct DataFile {
    number: u64,
    len: u64,
    source: TableSource,
    /// Its bytes that belong to the newest version, or to a named snapshot.
    live: AtomicU64,
    /// Whether this handle removed a table of it from the store. A handle that only reads the
    /// manifest removes nothing.
    replaced: AtomicBool,
    /// Open for all tables that share it.
    open: OnceLock<Arc<dyn ReadFile>>,
    opening: Mutex<()>,
}

impl DataFile {
    /// The file of a table with this metadata and place.
    pub(crate) fn new(
        meta: &TableMeta,
        place: Option<Place>,
        source: &TableSource,
    ) -> Arc<DataFile> {
        Arc::new(DataFile {
            number: place.map_or(meta.number, |place| place.file),
            len: place.map_or(meta.size, |place| place.len),
            source: source.clone(),
            live: AtomicU64::new(0),
            replaced: AtomicBool::new(false),
            open: OnceLock::new(),
            opening: Mutex::new(()),
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// True when more than half of the file is tables that no later version has.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live.load(Ordering::Relaxed) < self.len / 2
    }

    /// Copies the bytes to a new file, durably: also when the file has lost its name, if it is
    /// open.
    pub(crate) fn copy_to(&self, to: &Path, stop: Option<&Stop>) -> Result<()> {
        let from = self.source.path(self.number);
        let file = self.open()?;
        let copy = self.source.fs.create(to);
        let copy = copy.map_err(|e| Error::io(to, "create", e))?;
        let mut buffer = vec![0; (self.len.min(COPIED_AT_ONCE)) as usize];
        let mut at = 0;
        while at < self.len {
            stop.map_or(Ok(()), Stop::check)?;
            let some = (self.len - at).min(COPIED_AT_ONCE) as usize;
            let some = buffer.own_mut(..some);
            let read = file.read_at(at, some);
            read.map_err(|e| Error::io(&from, "read", e))?;
            let written = copy.append(some);
            written.map_err(|e| Error::io(to, "write", e))?;
            at += some.len() as u64;
        }
        copy.sync().map_err(|e| Error::io(to, "sync", e))
    }

    fn open(&self) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.open.get() {
            return Ok(file.clone());
        }
        let _one_at_a_time = self.opening.lock();
        if let Some(file) = self.open.get() {
            return Ok(file.clone());
        }
        let path = self.source.path(self.number);
        let file = self.source.fs.open(&path);
        let file = file.map_err(|e| Error::io(&path, "open", e))?;
        Ok(self.open.get_or_init(|| file).clone())
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        if *self.replaced.get_mut() && *self.live.get_mut() == 0 {
            // If the removal fails, the next opening removes the orphan.
            let _ = self.source.fs.remove(&self.source.path(self.number));
        }
    }
}

/// A table in versions: opened on first read, so that damage is an error only of the reads that
/// need it. Its file is removed with the last version that holds it, if a compaction replaced it
/// and no named snapshot has it (or another table of the file).
pub struct TableFile {
    /// The first bytes of its smallest and largest key, which decide most comparisons without
    /// reading the keys.
    heads: (u64, u64),
    meta: Arc<TableMeta>,
    component: ComponentId,
    file: Arc<DataFile>,
    place: Option<Place>,
    open: OnceLock<Arc<Table>>,
    opening: Mutex<()>,
    /// How many versions have it: the newest one, and named snapshots. At 0 it is not counted in
    /// the file's live bytes.
    uses: AtomicU32,
    saw: AtomicU64,
}

impl TableFile {
    /// A table that has a file of its own.
    #[cfg(test)]
    pub(crate) fn new(
        meta: impl Into<Arc<TableMeta>>,
        component: ComponentId,
        source: TableSource,
    ) -> Arc<TableFile> {
        let meta = meta.into();
        let file = DataFile::new(&meta, None, &source);
        TableFile::in_file(meta, component, file, None)
    }

    /// A table at a place in a file.
    pub(crate) fn in_file(
        meta: Arc<TableMeta>,
        component: ComponentId,
        file: Arc<DataFile>,
        place: Option<Place>,
    ) -> Arc<TableFile> {
        file.live.fetch_add(meta.size, Ordering::Relaxed);
        Arc::new(TableFile {
            heads: (head(&meta.smallest), head(&meta.largest)),
            meta,
            component,
            file,
            place,
            open: OnceLock::new(),
            opening: Mutex::new(()),
            uses: AtomicU32::new(1),
            saw: AtomicU64::new(0),
        })
    }

    /// The metadata of the table in the manifest.
    pub fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// The component of the table.
    pub fn component(&self) -> ComponentId {
        self.component
    }

    /// The path of the file with the table.
    pub fn path(&self) -> PathBuf {
        self.file.source.path(self.file.number)
    }

    /// Where in the file it begins; 0 where it has a file of its own.
    pub fn offset(&self) -> u64 {
        self.place.map_or(0, |place| place.offset)
    }

    /// Where it lies, if it has no file of its own.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    pub(crate) fn file(&self) -> &Arc<DataFile> {
        &self.file
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
        let source = &self.file.source;
        let (meta, cache) = (self.meta.clone(), source.cache.clone());
        let file = self.file.open()?;
        let file: Arc<dyn ReadFile> = match self.place {
            None => file,
            Some(place) => Arc::new(Extent::new(file, place.offset, meta.size)),
        };
        let map = if source.mapped { file.map() } else { None };
        let table = Table::open_in(file, map, self.path(), self.offset(), meta, cache)?;
        Ok(self.open.get_or_init(|| Arc::new(table)))
    }

    /// Opens the file, so that the table stays readable if another process removes it.
    pub(crate) fn hold(&self) -> Result<()> {
        self.file.open().map(|_| ())
    }

    /// True when the other is the same table in the same place, according to the manifest.
    pub(crate) fn is_same(&self, other: &TableFile) -> bool {
        (&self.meta, self.component, self.place) == (&other.meta, other.component, other.place)
    }

    /// True when an edit adds this table.
    pub(super) fn is_new(&self, new: &NewTable) -> bool {
        (&self.meta, self.component, self.place) == (&new.meta, new.component, new.place)
    }

    /// The raw bytes of a table in a shared file.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>> {
        let path = self.path();
        let extent = Extent::new(self.file.open()?, self.offset(), self.meta.size);
        let len = extent.len();
        let len = len.map_err(|e| Error::io(&path, "read the length of", e))?;
        // Checked before allocating.
        if len < self.meta.size {
            let what = "the file ends within a table";
            return Err(Error::corruption(&path, self.offset(), what));
        }
        let mut bytes = vec![0; len as usize];
        let read = extent.read_at(0, &mut bytes);
        read.map_err(|e| Error::io(&path, "read", e))?;
        Ok(bytes)
    }

    /// The table's range in the order of its tree's partitioner; empty without one.
    pub fn bounds(&self) -> &[u8] {
        let bounds = self.meta.bounds.as_ref();
        bounds.map_or(&[], |bounds| &bounds.bytes)
    }

    /// True when user key `key` lies between the table's first and last.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        let (of_key, (least, greatest)) = (head(key), self.heads);
        if of_key > least && of_key < greatest {
            return true;
        }
        of_key >= least
            && of_key <= greatest
            && self.meta.smallest.as_slice() <= key
            && key <= self.meta.largest.as_slice()
    }

    /// True when all keys of the table come before user key `key`.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match self.heads.1.cmp(&head(key)) {
            cmp::Ordering::Equal => self.meta.largest.as_slice() < key,
            order => order.is_lt(),
        }
    }

    /// The version whose obsolete set the table was written with: it has no entry of any write in
    /// that set ([`Version::ordinal`](super::Version::ordinal)). 0 when unknown.
    pub(crate) fn saw(&self) -> u64 {
        self.saw.load(Ordering::Acquire)
    }

    pub(crate) fn see(&self, ordinal: u64) {
        self.saw.store(ordinal, Ordering::Release);
    }

    /// Counts a version that has the table.
    pub(crate) fn hold_on(&self) {
        if self.uses.fetch_add(1, Ordering::AcqRel) == 0 {
            let size = self.meta.size;
            self.file.live.fetch_add(size, Ordering::AcqRel);
        }
    }

    /// Uncounts a version that had the table and is neither the newest any more nor kept. The file
    /// is removed with the last.
    pub(crate) fn mark_obsolete(&self) {
        self.forget();
        self.file.replaced.store(true, Ordering::Release);
    }

    /// As [`Self::mark_obsolete`], for a table that was removed before: the manifest is read again.
    pub(crate) fn forget(&self) {
        let one_less = |uses: u32| uses.checked_sub(1);
        let before = self
            .uses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        if before == Ok(1) {
            self.file.live.fetch_sub(self.meta.size, Ordering::AcqRel);
        }
    }
}
