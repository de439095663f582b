//! A file system that calls a function before each call, which can do other work or make the call
//! fail.

use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex};

use esker::fs::{Fs, Lock, ReadFile, WriteFile};
use esker_sim::memory::Memory;

/// Receives the call (`read`, `append`, `sync`, `create`, `open`, `rename`, `remove`, `link`,
/// `sync_dir`) and the file. It may use the store.
pub(crate) type Hook = dyn Fn(&str, &FsPath) -> io::Result<()> + Send + Sync;

#[derive(Clone, Default)]
pub(crate) struct Hooked {
    pub(crate) inner: Memory,
    hook: Arc<Mutex<Option<Arc<Hook>>>>,
}

impl Hooked {
    /// Sets the hook.
    pub(crate) fn set(
        &self,
        hook: impl Fn(&str, &FsPath) -> io::Result<()> + Send + Sync + 'static,
    ) {
        *self.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub(crate) fn clear(&self) {
        *self.hook.lock().unwrap() = None;
    }

    fn ask(&self, call: &str, path: &FsPath) -> io::Result<()> {
        let hook = self.hook.lock().unwrap().clone();
        hook.map_or(Ok(()), |hook| hook(call, path))
    }
}

impl Fs for Hooked {
    fn create(&self, path: &FsPath) -> io::Result<Box<dyn WriteFile>> {
        self.ask("create", path)?;
        let file = self.inner.create(path)?;
        Ok(Box::new(Writer(file, path.to_path_buf(), self.clone())))
    }

    fn open(&self, path: &FsPath) -> io::Result<Arc<dyn ReadFile>> {
        self.ask("open", path)?;
        let file = self.inner.open(path)?;
        Ok(Arc::new(Reader(file, path.to_path_buf(), self.clone())))
    }

    fn rename(&self, from: &FsPath, to: &FsPath) -> io::Result<()> {
        self.ask("rename", to)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &FsPath) -> io::Result<()> {
        self.ask("remove", path)?;
        self.inner.remove(path)
    }

    fn link(&self, from: &FsPath, to: &FsPath) -> io::Result<()> {
        self.ask("link", to)?;
        self.inner.link(from, to)
    }

    fn list(&self, dir: &FsPath) -> io::Result<Vec<PathBuf>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &FsPath) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn sync(&self, path: &FsPath) -> io::Result<()> {
        self.ask("sync", path)?;
        self.inner.sync(path)
    }

    fn sync_dir(&self, dir: &FsPath) -> io::Result<()> {
        self.ask("sync_dir", dir)?;
        self.inner.sync_dir(dir)
    }

    fn unique(&self) -> u64 {
        self.inner.unique()
    }

    fn exists(&self, path: &FsPath) -> bool {
        self.inner.exists(path)
    }

    fn lock(&self, path: &FsPath) -> io::Result<Box<dyn Lock>> {
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &FsPath) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

struct Writer(Box<dyn WriteFile>, PathBuf, Hooked);

impl WriteFile for Writer {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.2.ask("append", &self.1)?;
        self.0.append(data)
    }

    fn sync(&self) -> io::Result<()> {
        self.2.ask("sync", &self.1)?;
        self.0.sync()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
}

struct Reader(Arc<dyn ReadFile>, PathBuf, Hooked);

impl ReadFile for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.2.ask("read", &self.1)?;
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
