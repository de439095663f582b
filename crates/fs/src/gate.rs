//! The file system of an open folder: calls that change the folder hold its lock, and are refused
//! after the folder was given up. So another handle can open the folder while this handle, or a job
//! of it, still exists.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Fs, Lock, ReadFile, WriteFile};

/// A file system and the lock of the folder that it is used for.
pub struct Gate {
    inner: Arc<dyn Fs>,
    /// `None` after the folder was given up. Calls in progress share the lock.
    lock: Mutex<Option<Arc<dyn Lock>>>,
}

/// The source of the errors after the folder was given up.
#[derive(Debug)]
pub struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store is closed")
    }
}

impl std::error::Error for GivenUp {}

impl Gate {
    /// The file system `inner`, for the folder whose `lock` is held.
    pub fn new(inner: Arc<dyn Fs>, lock: Box<dyn Lock>) -> Gate {
        Gate {
            inner,
            lock: Mutex::new(Some(lock.into())),
        }
    }

    /// Releases the lock of the folder, when the calls in progress have ended: this waits for none
    /// of them.
    pub fn give_up(&self) {
        let lock = self.lock.lock().take();
        drop(lock);
    }

    /// Calls `call` while the folder is held.
    fn held<T>(&self, call: impl FnOnce(&dyn Fs) -> io::Result<T>) -> io::Result<T> {
        let lock = self.lock.lock().clone();
        let lock = lock.ok_or_else(|| io::Error::other(GivenUp))?;
        let result = call(&*self.inner);
        drop(lock);
        result
    }
}

impl Fs for Gate {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.held(|fs| {
            let file = fs.create(path)?;
            // A job that closing did not wait for leaves nothing behind. The folder is still held
            // here.
            if self.lock.lock().is_none() {
                drop(file);
                fs.remove(path)?;
                return Err(io::Error::other(GivenUp));
            }
            Ok(file)
        })
    }

    fn overwrite(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.held(|fs| fs.overwrite(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.held(|fs| fs.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.held(|fs| fs.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.held(|fs| fs.remove(path))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.held(|fs| fs.link(from, to))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.held(|fs| fs.create_dir(dir))
    }

    fn punch(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        self.held(|fs| fs.punch(path, range))
    }

    fn unreserve(&self, path: &Path) -> io::Result<()> {
        self.held(|fs| fs.unreserve(path))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.held(|fs| fs.sync(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.held(|fs| fs.sync_dir(dir))
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
