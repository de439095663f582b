//! A file system with fault injection, for tests of the engine's error handling.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

use esker_fs::{Descriptor, Fs, Lock, Mapped, ReadFile, RingFaults, Rings, WriteFile};

/// Wraps a file system and fails its calls as configured. A clone is a second handle on the same.
///
/// Changing calls (`create`, `overwrite`, `append`, `write_ahead`, `reserve`, `unreserve`, `sync`,
/// `truncate`, `rename`, `remove`, `link`, `create_dir`, `sync_dir`) are counted together, and
/// reading calls (`open`, `read_at`, `touch` of a map) separately. A failed call does nothing to
/// the wrapped file system, with the exceptions named below.
///
/// Batched reads ([`esker_fs::read_many`]) go through rings of this file system's own. They are not
/// counted as reading calls but separately ([`Faulty::reads_together`]), and fail as set by
/// [`Faulty::fail_together`].
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Fs>,
    faults: Arc<Faults>,
    rings: Arc<Rings>,
}

/// A fault of batched reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TogetherFault {
    /// Batched reads are unavailable: setting a ring up fails with this error.
    Refused(i32),
    /// After submission to the kernel the outcome of the reads is unknown.
    Lost(i32),
    /// The `n`-th read from now (1 is the next one) and all after it end with this error.
    Failed(u64, i32),
    /// The `n`-th read from now (1 is the next one), and all after it, return only so many bytes.
    Short(u64, i32),
}

struct Faults {
    calls: AtomicU64,
    fail_at: AtomicU64,
    fail_from: AtomicU64,
    fill_late_at: AtomicU64,
    reads: AtomicU64,
    fail_read_at: AtomicU64,
    fail_reads_from: AtomicU64,
    /// The number of the error that reading calls fail with.
    read_error: AtomicI32,
    /// Ranges of files that cannot be read.
    unreadable: Mutex<Vec<(PathBuf, Range<u64>)>>,
    together: AtomicU64,
    fail_together: Mutex<Option<TogetherFault>>,
    fail_sync: AtomicBool,
    short_writes: AtomicBool,
    refuse_maps: AtomicBool,
    capacity: AtomicU64,
    used: Arc<AtomicU64>,
    names: Mutex<HashMap<PathBuf, Arc<Space>>>,
}

/// The space of a file, released when its last name and its writer are gone.
struct Space {
    used: Arc<AtomicU64>,
    len: AtomicU64,
}

impl Space {
    fn reach(&self, len: u64) {
        let old = self.len.fetch_max(len, SeqCst);
        self.used.fetch_add(len.saturating_sub(old), SeqCst);
    }

    fn cut(&self, len: u64) {
        let old = self.len.fetch_min(len, SeqCst);
        self.used.fetch_sub(old.saturating_sub(len), SeqCst);
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.cut(0);
    }
}

const EIO: i32 = 5;

fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

impl Faults {
    /// Counts a changing call, and returns its number.
    fn call(&self) -> io::Result<u64> {
        let n = self.calls.fetch_add(1, SeqCst) + 1;
        if n == self.fail_at.load(SeqCst) || n >= self.fail_from.load(SeqCst) {
            return Err(eio());
        }
        Ok(n)
    }

    fn read(&self) -> io::Result<()> {
        let n = self.reads.fetch_add(1, SeqCst) + 1;
        if n == self.fail_read_at.load(SeqCst) || n >= self.fail_reads_from.load(SeqCst) {
            let error = self.read_error.load(SeqCst);
            Err(io::Error::from_raw_os_error(error))
        } else {
            Ok(())
        }
    }

    fn room(&self) -> u64 {
        self.capacity
            .load(SeqCst)
            .saturating_sub(self.used.load(SeqCst))
    }
}

impl RingFaults for Faults {
    fn set_up(&self) -> Option<i32> {
        match *self.fail_together.lock() {
            Some(TogetherFault::Refused(error)) => Some(error),
            _ => None,
        }
    }

    fn lose(&self) -> Option<i32> {
        match *self.fail_together.lock() {
            Some(TogetherFault::Lost(error)) => Some(error),
            _ => None,
        }
    }

    fn end(&self, result: i32) -> i32 {
        let n = self.together.fetch_add(1, SeqCst) + 1;
        match *self.fail_together.lock() {
            Some(TogetherFault::Failed(from, error)) if n >= from => -error,
            Some(TogetherFault::Short(from, bytes)) if n >= from => result.min(bytes),
            _ => result,
        }
    }
}

impl Faulty {
    /// Wraps `inner`; nothing fails yet.
    pub fn new(inner: Arc<dyn Fs>) -> Faulty {
        let never = || AtomicU64::new(u64::MAX);
        let faults = Faults {
            calls: AtomicU64::new(0),
            fail_at: never(),
            fail_from: never(),
            fill_late_at: never(),
            reads: AtomicU64::new(0),
            fail_read_at: never(),
            fail_reads_from: never(),
            read_error: AtomicI32::new(EIO),
            unreadable: Mutex::default(),
            together: AtomicU64::new(0),
            fail_together: Mutex::new(None),
            fail_sync: AtomicBool::new(false),
            short_writes: AtomicBool::new(false),
            refuse_maps: AtomicBool::new(false),
            capacity: never(),
            used: Arc::new(AtomicU64::new(0)),
            names: Mutex::new(HashMap::new()),
        };
        let faults = Arc::new(faults);
        Faulty {
            inner,
            rings: Arc::new(Rings::with_faults(faults.clone())),
            faults,
        }
    }

    /// The number of changing calls, failed ones included.
    pub fn calls(&self) -> u64 {
        self.faults.calls.load(SeqCst)
    }

    /// The number of reading calls, failed ones included.
    pub fn reads(&self) -> u64 {
        self.faults.reads.load(SeqCst)
    }

    /// The current bytes of the files written through this file system.
    pub fn used(&self) -> u64 {
        self.faults.used.load(SeqCst)
    }

    /// The `n`-th changing call from now (1 is the next one) fails once, with `EIO`.
    pub fn fail_at(&self, n: u64) {
        self.faults
            .fail_at
            .store(self.calls().saturating_add(n), SeqCst);
    }

    /// The `n`-th changing call from now (1 is the next one) and all after it fail with `EIO`: for
    /// the wrapped file system the machine stopped there.
    pub fn fail_from(&self, n: u64) {
        self.faults
            .fail_from
            .store(self.calls().saturating_add(n), SeqCst);
    }

    /// The `n`-th changing call from now (1 is the next one), if it is an append, writes all of its
    /// data and then fails once with `StorageFull`: a network file system may take the data, and
    /// report that the server's disk is full with the same call.
    pub fn fill_late_at(&self, n: u64) {
        self.faults
            .fill_late_at
            .store(self.calls().saturating_add(n), SeqCst);
    }

    /// The `n`-th reading call from now (1 is the next one) fails once, with `EIO`.
    pub fn fail_reads_at(&self, n: u64) {
        self.faults
            .fail_read_at
            .store(self.reads().saturating_add(n), SeqCst);
    }

    /// The `n`-th reading call from now (1 is the next one) and all after it fail with `EIO`.
    pub fn fail_reads_from(&self, n: u64) {
        self.faults
            .fail_reads_from
            .store(self.reads().saturating_add(n), SeqCst);
    }

    /// Reading calls that fail do so with this error of the system from now on, not with `EIO`.
    pub fn fail_reads_with(&self, error: i32) {
        self.faults.read_error.store(error, SeqCst);
    }

    /// Reads that meet this range of the file fail with `EIO` from now on, also of a file that
    /// replaces it.
    pub fn fail_range(&self, path: &Path, range: Range<u64>) {
        let mut unreadable = self.faults.unreadable.lock();
        unreadable.push((path.to_path_buf(), range));
    }

    /// The number of batched reads that ended, successful or not.
    pub fn reads_together(&self) -> u64 {
        self.faults.together.load(SeqCst)
    }

    /// Sets the fault of batched reads from now on. A ring that is refused with a permanent error,
    /// or lost, stays refused, also after [`Faulty::clear`].
    pub fn fail_together(&self, fault: TogetherFault) {
        let counted = self.reads_together();
        *self.faults.fail_together.lock() = Some(match fault {
            TogetherFault::Failed(n, error) => TogetherFault::Failed(counted + n, error),
            TogetherFault::Short(n, bytes) => TogetherFault::Short(counted + n, bytes),
            fault => fault,
        });
    }

    /// The next sync of a file fails with `EIO`. As on Linux, later syncs of a file whose sync
    /// failed (for this or another fault) succeed, without making anything durable.
    pub fn fail_sync_once(&self) {
        self.faults.fail_sync.store(true, SeqCst);
    }

    /// Limits the total bytes of files written through this file system. An append that does not
    /// fit writes what does, and fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.faults.capacity.store(bytes, SeqCst);
    }

    /// Whether an append that fails with `EIO` writes the first half of its data.
    pub fn short_writes(&self, on: bool) {
        self.faults.short_writes.store(on, SeqCst);
    }

    /// Whether files that are opened are not mapped, as where the system has no room for a map.
    pub fn refuse_maps(&self, on: bool) {
        self.faults.refuse_maps.store(on, SeqCst);
    }

    /// Removes all faults. The counts continue.
    pub fn clear(&self) {
        for fault in [
            &self.faults.fail_at,
            &self.faults.fail_from,
            &self.faults.fill_late_at,
            &self.faults.fail_read_at,
            &self.faults.fail_reads_from,
        ] {
            fault.store(u64::MAX, SeqCst);
        }
        self.faults.read_error.store(EIO, SeqCst);
        self.faults.unreadable.lock().clear();
        self.faults.capacity.store(u64::MAX, SeqCst);
        *self.faults.fail_together.lock() = None;
        self.faults.fail_sync.store(false, SeqCst);
        self.faults.short_writes.store(false, SeqCst);
        self.faults.refuse_maps.store(false, SeqCst);
    }
}

impl Fs for Faulty {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.faults.call()?;
        let inner = self.inner.create(path)?;
        let writer = self.writer(path, inner);
        writer.space.cut(0);
        Ok(Box::new(writer))
    }

    fn overwrite(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.faults.call()?;
        let inner = self.inner.overwrite(path)?;
        Ok(Box::new(self.writer(path, inner)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.faults.read()?;
        Ok(Arc::new(Reader {
            inner: self.inner.open(path)?,
            fs: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.rename(from, to)?;
        let mut names = self.faults.names.lock();
        match names.remove(from) {
            Some(space) => names.insert(to.to_path_buf(), space),
            None => names.remove(to),
        };
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.remove(path)?;
        self.faults.names.lock().remove(path);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.link(from, to)?;
        let mut names = self.faults.names.lock();
        if let Some(space) = names.get(from).cloned() {
            names.insert(to.to_path_buf(), space);
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.create_dir(dir)
    }

    fn punch(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        self.faults.call()?;
        self.inner.punch(path, range)
    }

    fn unreserve(&self, path: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.unreserve(path)?;
        let len = self.inner.open(path)?.len()?;
        if let Some(space) = self.faults.names.lock().get(path) {
            space.cut(len);
        }
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.sync(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.faults.call()?;
        self.inner.sync_dir(dir)
    }

    fn unique(&self) -> u64 {
        self.inner.unique()
    }

    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

impl Faulty {
    /// A writer of the file, from its beginning on.
    fn writer(&self, path: &Path, inner: Box<dyn WriteFile>) -> Writer {
        let new = || Space {
            used: self.faults.used.clone(),
            len: AtomicU64::new(0),
        };
        let mut names = self.faults.names.lock();
        let space = names
            .entry(path.to_path_buf())
            .or_insert_with(|| Arc::new(new()))
            .clone();
        Writer {
            inner,
            faults: self.faults.clone(),
            space,
            end: AtomicU64::new(0),
            sync_lies: AtomicBool::new(false),
        }
    }
}

struct Writer {
    inner: Box<dyn WriteFile>,
    faults: Arc<Faults>,
    space: Arc<Space>,
    /// The offset of the next append.
    end: AtomicU64,
    /// A sync failed: the kernel has dropped the dirty pages, and later syncs succeed.
    sync_lies: AtomicBool,
}

impl Writer {
    fn put(&self, data: &[u8]) -> io::Result<()> {
        self.inner.append(data)?;
        self.space
            .reach(self.end.fetch_add(data.len() as u64, SeqCst) + data.len() as u64);
        Ok(())
    }

    /// How many bytes fit behind the end.
    fn room(&self) -> usize {
        let ahead = self
            .space
            .len
            .load(SeqCst)
            .saturating_sub(self.end.load(SeqCst));
        usize::try_from(self.faults.room().saturating_add(ahead)).unwrap_or(usize::MAX)
    }

    fn put_part(&self, data: &[u8], len: usize) -> io::Result<()> {
        self.put(data.get(..len).unwrap_or(data))
    }
}

impl WriteFile for Writer {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        let call = match self.faults.call() {
            Ok(call) => call,
            Err(e) => {
                if self.faults.short_writes.load(SeqCst) {
                    self.put_part(data, data.len() / 2)?;
                }
                return Err(e);
            }
        };
        let room = self.room();
        if data.len() > room {
            self.put_part(data, room)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.put(data)?;
        if call == self.faults.fill_late_at.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn write_ahead(&self, len: usize) -> io::Result<()> {
        self.faults.call()?;
        let there = len.min(self.room());
        self.inner.write_ahead(there)?;
        self.space.reach(self.end.load(SeqCst) + there as u64);
        if there < len {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.faults.call()?;
        if len > self.room() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.reserve(len)?;
        self.space.reach(self.end.load(SeqCst).saturating_add(len));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let failed = self.faults.call().is_err() | self.faults.fail_sync.swap(false, SeqCst);
        if failed {
            self.sync_lies.store(true, SeqCst);
            return Err(eio());
        }
        if self.sync_lies.load(SeqCst) {
            Ok(())
        } else {
            self.inner.sync()
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.faults.call()?;
        self.inner.truncate(len)?;
        self.end.fetch_min(len, SeqCst);
        self.space.cut(len);
        Ok(())
    }
}

struct Reader {
    inner: Arc<dyn ReadFile>,
    fs: Faulty,
    path: PathBuf,
}

impl Reader {
    /// Counts a reading call of so many bytes, and fails it where that was configured.
    fn read(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fs.faults.read()?;
        let end = offset.saturating_add(len);
        let meets = |(path, range): &(PathBuf, Range<u64>)| {
            *path == self.path && range.start < end && offset < range.end
        };
        if self.fs.faults.unreadable.lock().iter().any(meets) {
            return Err(eio());
        }
        Ok(())
    }
}

impl ReadFile for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(offset, buf.len() as u64)?;
        self.inner.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        let rings = &self.fs.rings;
        let descriptor = self.inner.descriptor();
        descriptor.map(|inner| Descriptor { rings, ..inner })
    }

    fn map(&self) -> Option<Arc<dyn Mapped>> {
        if self.fs.faults.refuse_maps.load(SeqCst) {
            return None;
        }
        let reader = Reader {
            inner: self.inner.clone(),
            fs: self.fs.clone(),
            path: self.path.clone(),
        };
        let inner = self.inner.map()?;
        Some(Arc::new(FaultyMap { inner, reader }))
    }
}

/// A map whose touches fail as reads do.
struct FaultyMap {
    inner: Arc<dyn Mapped>,
    reader: Reader,
}

impl AsRef<[u8]> for FaultyMap {
    fn as_ref(&self) -> &[u8] {
        (*self.inner).as_ref()
    }
}

impl Mapped for FaultyMap {
    fn touch(&self, range: Range<u64>) -> io::Result<&[u8]> {
        let len = range.end.saturating_sub(range.start);
        self.reader.read(range.start, len)?;
        self.inner.touch(range)
    }

    fn will_need(&self, range: Range<u64>) {
        self.inner.will_need(range);
    }
}
