use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_sim::map::{Map, Source};
use parking_lot::Mutex;

use crate::fs::{Fs, Lock, Mapped, ReadFile, WriteFile};

/// Files in memory, whose bytes a test may change.
#[derive(Default)]
pub(super) struct Files(pub(super) Mutex<HashMap<PathBuf, Arc<Mutex<Vec<u8>>>>>);

#[derive(Clone)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Source for File {
    fn with(&self, see: &mut dyn FnMut(&[u8])) {
        see(&self.0.lock());
    }
}

impl WriteFile for File {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.0.lock().extend_from_slice(data);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.lock().truncate(len as usize);
        Ok(())
    }
}

impl ReadFile for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock();
        let end = offset as usize + buf.len();
        let bytes = bytes
            .get(offset as usize..end)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }
    fn map(&self) -> Option<Arc<dyn Mapped>> {
        Some(Arc::new(Map::new(Arc::new(self.clone()))))
    }
}

impl Fs for Files {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = Arc::default();
        self.0.lock().insert(path.to_path_buf(), Arc::clone(&file));
        Ok(Box::new(File(file)))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let files = self.0.lock();
        let file = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(File(Arc::clone(file))))
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.lock().contains_key(path)
    }
    fn lock(&self, _: &Path) -> io::Result<Box<dyn Lock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_locked(&self, _: &Path) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
