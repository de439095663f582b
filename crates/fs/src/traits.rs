//! The traits that a file system implements.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Rings;

/// A file system. Paths are absolute or relative to the process, as for `std::fs`.
pub trait Fs: Send + Sync {
    /// Creates (or empties) a file for appending.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Opens a file that exists, to write it anew from its beginning. Its bytes and its length
    /// stay, and appends go over them: a sync has less to do where neither length nor block
    /// allocation changes. Until a sync, a power cut may leave the former bytes where new ones were
    /// appended. It is a hint: an implementation may empty the file, as this one does.
    fn overwrite(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create(path)
    }
    /// Opens a file for positioned reads.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;
    /// Replaces `to` by `from`, atomically. Durable after `sync_dir` of the folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after `sync_dir` of the folder.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a second name for a file (a hard link), or a copy where the file system has no
    /// links.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// The names (not paths) of the files in a folder, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Creates a folder and its parents where they are missing.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Gives a range of a file back to the file system: its bytes are no longer needed, and read as
    /// before or as zeros from now on, even after a power cut. The file keeps its length. It is a
    /// hint: an implementation may do nothing, as this one does.
    fn punch(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        let _ = (path, range);
        Ok(())
    }
    /// Gives back what [`WriteFile::reserve`] has reserved behind the end of a file that is not
    /// written any more. It is a hint: an implementation may do nothing, as this one does.
    fn unreserve(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
    /// Makes a file durable that an earlier process may have left in the system's cache.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// A globally unique number, across calls and machines: an identifier.
    fn unique(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher, RandomState};
        RandomState::new().build_hasher().finish()
    }
    /// True when the file or folder exists.
    fn exists(&self, path: &Path) -> bool;
    /// Acquires the exclusive lock of the file (which it creates), until the value is dropped.
    /// Fails with `WouldBlock` when another handle, in this process or another, holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
    /// True when that lock is held. Acquires and creates nothing.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;
}

/// A file being written. `append` is called by one thread at a time; `sync` may run beside it.
pub trait WriteFile: Send + Sync {
    /// Appends all of `data`. After an error an unknown part of it is in the file.
    fn append(&self, data: &[u8]) -> io::Result<()>;
    /// Appends all of `parts`, one behind the other. After an error an unknown part of them is in
    /// the file.
    fn append_parts(&self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.append(part))
    }
    /// Writes `len` zeros behind the end, without moving the end: appends over them change neither
    /// the file's length nor its block allocation, so that a sync has less to do. After an error
    /// some of the zeros may exist. Called by the appending thread. It is a hint: an implementation
    /// may do nothing.
    fn write_ahead(&self, len: usize) -> io::Result<()> {
        let _ = len;
        Ok(())
    }
    /// Reserves space for `len` bytes behind the end, without changing the file's length or what is
    /// read: appends there need not allocate blocks, so that a sync has less to do. After an error
    /// nothing is reserved. Called by the appending thread. It is a hint: an implementation may do
    /// nothing, as this one does.
    fn reserve(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Ok(())
    }
    /// Makes the data appended before this call durable (data and length).
    fn sync(&self) -> io::Result<()>;
    /// Truncates the file to `len` bytes, zeros written ahead included; later appends go there.
    fn truncate(&self, len: u64) -> io::Result<()>;
}

/// A file being read, by any number of threads.
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`. Fails with `UnexpectedEof` where the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True when the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// The operating system's file behind this one, if reads may bypass `read_at`: then
    /// [`crate::read_many`] may read several ranges of it at a time.
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }
    /// The bytes of the file as memory, for a file that is finished: neither its bytes nor its
    /// length change any more. `None` where the file is not mapped: this implementation, files that
    /// are read past the page cache, and those that others may truncate. Then it is read.
    fn map(&self) -> Option<Arc<dyn Mapped>> {
        None
    }
}

/// The bytes of a file as memory. They stay readable as long as this value lives, also after the
/// file has lost its name.
///
/// Where the operating system cannot read a page of the file, the access to its memory ends with
/// SIGBUS, and so does the process, unless it handles that signal. `as_ref` has all bytes, in O(1).
pub trait Mapped: AsRef<[u8]> + Send + Sync {
    /// The bytes of a range that is about to be used. Fails with `UnexpectedEof` where the file
    /// ends before, and with what a file system of tests injects. O(1).
    fn touch(&self, range: Range<u64>) -> io::Result<&[u8]>;
    /// Begins to read a range that will be used, without waiting. It is a hint: an implementation
    /// may do nothing, as this one does.
    fn will_need(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// A range of bytes; `UnexpectedEof` where they end before.
#[inline]
pub(crate) fn part(bytes: &[u8], range: Range<u64>) -> io::Result<&[u8]> {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let part = bytes.get(at(range.start)..at(range.end));
    part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A file of the operating system.
#[derive(Clone, Copy)]
pub struct Descriptor<'a> {
    /// The file.
    pub file: &'a std::fs::File,
    /// The base of offsets in the file.
    pub base: u64,
    /// Offsets, lengths and memory of reads must be multiples of this many bytes.
    pub alignment: usize,
    /// The queues for batched reads.
    pub rings: &'a Rings,
}

/// A held lock; dropping it releases it.
pub trait Lock: Send + Sync {}
