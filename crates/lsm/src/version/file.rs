//! Tables as versions hold them, and the files that they lie in.
//!
//! Most tables are a file each. Small ones that one job writes for many trees share a file ([`Place`]): it is made,
//! synced and opened once, however many they are. A table is known by its own number all the same; that of a shared
//! file is only its name. A shared file stays while some table of it is in use, so [`DataFile`] keeps account of how
//! much of it that is, and what is left of a file that is mostly unused is moved elsewhere (`group/space.rs`).

use std::cmp;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{ComponentId, NewTable, own_number};
use crate::cache::BlockCache;
use crate::coding::head;
use crate::error::{Error, Result};
use crate::fs::{Extent, Fs, ReadFile};
use crate::table::{Table, TableMeta};

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

/// The path of the file of tables `number`.
pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.tbl"))
}

/// The number of the file of tables at `path`, if it has the name of one.
pub(crate) fn table_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    own_number(name, "", ".tbl")
}

/// Where a table lies that has no file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's number.
    pub(crate) file: u64,
    /// Where in it the table begins.
    pub(crate) offset: u64,
    /// Bytes of the whole file.
    pub(crate) len: u64,
}

/// A file of tables. Removed from disk when nobody holds a table of it any more and no version to come has one.
pub(crate) struct DataFile {
    number: u64,
    len: u64,
    source: TableSource,
    /// Bytes of it that are part of the newest version, or of one that is kept.
    live: AtomicU64,
    /// Whether this handle took a table of it out of the store. One that only reads the manifest removes nothing.
    replaced: AtomicBool,
    /// Open for all tables that share it.
    open: OnceLock<Arc<dyn ReadFile>>,
    opening: Mutex<()>,
}

impl DataFile {
    /// The file that a table with this meta data, at this place, lies in.
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

    /// True when more than half of the file is tables that no version to come has.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live.load(Ordering::Relaxed) < self.len / 2
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
            // A file that cannot be removed now is an orphan that the next opening removes.
            let _ = self.source.fs.remove(&self.source.path(self.number));
        }
    }
}

/// A table as versions hold it: opened when first read, so that damage is an error of the reads that need it and of
/// no others. Its file is removed when the last version that holds it is gone, if a merge replaced it and none is kept that has it (and whatever
/// else is in the file).
pub struct TableFile {
    /// The first bytes of its smallest and largest key, which mostly tell where a key lies without a look at the keys.
    heads: (u64, u64),
    meta: Arc<TableMeta>,
    component: ComponentId,
    file: Arc<DataFile>,
    place: Option<Place>,
    open: OnceLock<Arc<Table>>,
    opening: Mutex<()>,
    /// How many versions have it: the newest one, and those that are kept. Without any it is not counted in the file's bytes.
    uses: AtomicU32,
    saw: AtomicU64,
}

impl TableFile {
    /// A table that has a file of its own.
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

    /// What the manifest says of the table.
    pub fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// The component that the table is part of.
    pub fn component(&self) -> ComponentId {
        self.component
    }

    /// The path of the file that the table lies in.
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
        let table = Table::open_in(file, self.path(), self.offset(), meta, cache)?;
        Ok(self.open.get_or_init(|| Arc::new(table)))
    }

    /// Opens the file, so that the table can be read though somebody else removes it.
    pub(crate) fn hold(&self) -> Result<()> {
        self.file.open().map(|_| ())
    }

    /// True when the other is the same table at the same place, as far as the manifest tells.
    pub(crate) fn is_same(&self, other: &TableFile) -> bool {
        (&self.meta, self.component, self.place) == (&other.meta, other.component, other.place)
    }

    /// True when an edit means this table.
    pub(super) fn is_new(&self, new: &NewTable) -> bool {
        (&self.meta, self.component, self.place) == (&new.meta, new.component, new.place)
    }

    /// The bytes of a table in a shared file, as they are.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>> {
        let path = self.path();
        let extent = Extent::new(self.file.open()?, self.offset(), self.meta.size);
        let len = extent.len();
        let len = len.map_err(|e| Error::io(&path, "read the length of", e))?;
        // Nothing is allocated for what is not there.
        if len < self.meta.size {
            let what = "the file ends within a table";
            return Err(Error::corruption(&path, self.offset(), what));
        }
        let mut bytes = vec![0; len as usize];
        let read = extent.read_at(0, &mut bytes);
        read.map_err(|e| Error::io(&path, "read", e))?;
        Ok(bytes)
    }

    /// What the table covers in the order of its tree's partitioner; empty where that has none.
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

    /// The version whose obsolete set the table was written by: it has nothing of any write of that
    /// ([`Version::ordinal`](super::Version::ordinal)). 0 when that is not known.
    pub(crate) fn saw(&self) -> u64 {
        self.saw.load(Ordering::Acquire)
    }

    pub(crate) fn see(&self, ordinal: u64) {
        self.saw.store(ordinal, Ordering::Release);
    }

    /// One more version has the table.
    pub(crate) fn hold_on(&self) {
        if self.uses.fetch_add(1, Ordering::AcqRel) == 0 {
            let size = self.meta.size;
            self.file.live.fetch_add(size, Ordering::AcqRel);
        }
    }

    /// A version that had the table is not the newest any more, nor kept. Its file goes when that was the last.
    pub(crate) fn mark_obsolete(&self) {
        self.forget();
        self.file.replaced.store(true, Ordering::Release);
    }

    /// The same of a table that was taken out before: the manifest is read again.
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
