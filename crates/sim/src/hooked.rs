//! A file system with a hook before each call: for tests that need an event at exactly one place
//! (another thread's close, an error of one file), without timing.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use esker_fs::{Fs, Lock, Mapped, ReadFile, WriteFile};

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A file is created or emptied.
    Create,
    /// A file is opened to be written anew, over what it has.
    Overwrite,
    /// A file is opened for reading.
    Open,
    /// A range of a file is read, or of its map touched.
    Read,
    /// Bytes are appended to a file.
    Append,
    /// Zeros are written behind a file's end.
    WriteAhead,
    /// Space behind a file's end is reserved.
    Reserve,
    /// What was reserved is given back.
    Unreserve,
    /// A file is made durable.
    Sync,
    /// A file is cut back.
    Truncate,
    /// A file is renamed; the path is the new one.
    Rename,
    /// A file is removed.
    Remove,
    /// A file is linked; the path is the new one.
    Link,
    /// A range of a file is given back.
    Punch,
    /// The names of a folder are made durable.
    SyncDir,
    /// A lock is acquired.
    Lock,
}

/// Called before each call, without locks. If it returns an error, the call fails with that and
/// does nothing.
pub type Hook = dyn Fn(Call, &Path) -> io::Result<()> + Send + Sync;

/// Wraps a file system. A clone is a second handle on the same.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn Fs>,
    hook: Arc<RwLock<Option<Arc<Hook>>>>,
}

impl Hooked {
    /// Wraps `inner`, without a hook.
    pub fn new(inner: Arc<dyn Fs>) -> Hooked {
        Hooked {
            inner,
            hook: Arc::default(),
        }
    }

    /// Sets the hook for all calls from now on.
    pub fn set(&self, hook: impl Fn(Call, &Path) -> io::Result<()> + Send + Sync + 'static) {
        *self.hook.write() = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn clear(&self) {
        *self.hook.write() = None;
    }

    fn call(&self, call: Call, path: &Path) -> io::Result<()> {
        let hook = self.hook.read().clone();
        hook.map_or(Ok(()), |hook| hook(call, path))
    }
}

impl Fs for Hooked {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.call(Call::Create, path)?;
        Ok(Box::new(File {
            inner: self.inner.create(path)?,
            fs: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn overwrite(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.call(Call::Overwrite, path)?;
        Ok(Box::new(File {
            inner: self.inner.overwrite(path)?,
            fs: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.call(Call::Open, path)?;
        Ok(Arc::new(File {
            inner: self.inner.open(path)?,
            fs: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Rename, to)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove, path)?;
        self.inner.remove(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Link, to)?;
        self.inner.link(from, to)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn punch(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        self.call(Call::Punch, path)?;
        self.inner.punch(path, range)
    }

    fn unreserve(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Unreserve, path)?;
        self.inner.unreserve(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Sync, path)?;
        self.inner.sync(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(Call::SyncDir, dir)?;
        self.inner.sync_dir(dir)
    }

    fn unique(&self) -> u64 {
        self.inner.unique()
    }

    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.call(Call::Lock, path)?;
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

struct File<F> {
    inner: F,
    fs: Hooked,
    path: PathBuf,
}

impl WriteFile for File<Box<dyn WriteFile>> {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.fs.call(Call::Append, &self.path)?;
        self.inner.append(data)
    }

    fn write_ahead(&self, len: usize) -> io::Result<()> {
        self.fs.call(Call::WriteAhead, &self.path)?;
        self.inner.write_ahead(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.fs.call(Call::Reserve, &self.path)?;
        self.inner.reserve(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.call(Call::Sync, &self.path)?;
        self.inner.sync()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.fs.call(Call::Truncate, &self.path)?;
        self.inner.truncate(len)
    }
}

impl ReadFile for File<Arc<dyn ReadFile>> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.fs.call(Call::Read, &self.path)?;
        self.inner.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn map(&self) -> Option<Arc<dyn Mapped>> {
        Some(Arc::new(File {
            inner: self.inner.map()?,
            fs: self.fs.clone(),
            path: self.path.clone(),
        }))
    }
}

impl AsRef<[u8]> for File<Arc<dyn Mapped>> {
    fn as_ref(&self) -> &[u8] {
        (*self.inner).as_ref()
    }
}

impl Mapped for File<Arc<dyn Mapped>> {
    fn touch(&self, range: Range<u64>) -> io::Result<&[u8]> {
        self.fs.call(Call::Read, &self.path)?;
        self.inner.touch(range)
    }

    fn will_need(&self, range: Range<u64>) {
        self.inner.will_need(range);
    }
}
