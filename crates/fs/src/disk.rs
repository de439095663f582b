//! The operating system's file system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::{Descriptor, Fs, Lock, Mapped, ReadFile, Rings, WriteFile};

/// The operating system's file system, with buffered or direct reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk {
    direct: bool,
}

impl Disk {
    /// Reads through the page cache.
    pub fn new() -> Disk {
        Disk { direct: false }
    }

    /// Reads past the page cache (`O_DIRECT`) where the platform and the file system support it,
    /// and through it elsewhere. Writes are buffered in both cases. Its files are not mapped.
    pub fn direct() -> Disk {
        Disk { direct: true }
    }
}

impl Fs for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Ok(Box::new(Appended(file)))
    }

    fn overwrite(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Box::new(Appended(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        if self.direct
            && let Some(file) = direct::open(path)?
        {
            return Ok(file);
        }
        let map = OnceLock::new();
        if self.direct {
            // Nor mapped where the file system cannot read past the page cache.
            map.get_or_init(|| None);
        }
        let file = open_buffered(path)?;
        Ok(Arc::new(Buffered { file, map }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Err(e)
                if !matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                ) =>
            {
                // Another file system, one without links, or too many links: make a copy. It is
                // synced because the caller takes the data to be as durable as the original's.
                let mut source = File::open(from)?;
                let mut copy = OpenOptions::new().write(true).create_new(true).open(to)?;
                io::copy(&mut source, &mut copy)
                    .and_then(|_| copy.sync_data())
                    .inspect_err(|_| {
                        // A partial copy must not keep the final name.
                        let _ = fs::remove_file(to);
                    })
            }
            linked => linked,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.push(PathBuf::from(entry.file_name()));
            }
        }
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = dir
            .ancestors()
            .take_while(|d| !d.as_os_str().is_empty() && !d.exists())
            .collect();
        fs::create_dir_all(dir)?;
        // A new folder is a name in its parent; without this sync a power cut removes it with its
        // contents.
        missing
            .iter()
            .filter_map(|made| made.parent())
            .try_for_each(|parent| self.sync_dir(parent))
    }

    fn punch(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        punch(path, range)
    }

    fn unreserve(&self, path: &Path) -> io::Result<()> {
        // Setting the length that a file has frees what is allocated behind it.
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(file.metadata()?.len())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        // Some systems sync only files open for writing; others need no write permission to sync.
        let mut options = OpenOptions::new();
        options.read(cfg!(unix)).write(!cfg!(unix));
        options.open(path)?.sync_all()
    }

    #[cfg(unix)]
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        File::open(dir)?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        // A read-only medium or folder can still be locked, by the lock file that the writer left
        // there.
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = match opened {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                File::open(path).map_err(|_| e)?
            }
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Locked(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        // A shared lock, released at once: concurrent checks do not disturb each other.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

/// Deallocates a range, where the file system can.
#[cfg(target_os = "linux")]
fn punch(path: &Path, range: Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(&file, flags, range.start, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        punched => Ok(punched?),
    }
}

#[cfg(not(target_os = "linux"))]
fn punch(path: &Path, _range: Range<u64>) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Allocates blocks behind the end, where the file system can.
#[cfg(target_os = "linux")]
fn reserve(file: &File, end: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if len == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, end, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _end: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

struct Locked(File);

impl Lock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        // The lock would end with the file, but a process that another thread is starting holds a
        // copy of the descriptor until it executes its own program.
        let _ = self.0.unlock();
    }
}

struct Appended(File);

impl WriteFile for Appended {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        (&self.0).write_all(data)
    }

    fn append_parts(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = slices.as_mut_slice();
        // Skips parts without bytes.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match (&self.0).write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_ahead(&self, len: usize) -> io::Result<()> {
        let end = (&self.0).stream_position()?;
        let written = (&self.0).write_all(&vec![0; len]);
        (&self.0).seek(SeekFrom::Start(end))?;
        written
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        let end = (&self.0).stream_position()?;
        reserve(&self.0, end, len).inspect_err(|_| {
            // A part of it may be allocated.
            let _ = self.0.set_len(end);
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)?;
        (&self.0).seek(SeekFrom::Start(len))?;
        Ok(())
    }
}

/// Opens a file with `O_NOATIME` where that is permitted: only to the file's owner.
#[cfg(target_os = "linux")]
fn open_buffered(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    const O_NOATIME: i32 = 0o1000000;
    let quiet = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOATIME)
        .open(path);
    match quiet {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::open(path),
        opened => opened,
    }
}

#[cfg(not(target_os = "linux"))]
fn open_buffered(path: &Path) -> io::Result<File> {
    File::open(path)
}

struct Buffered {
    file: File,
    /// Made when it is first asked for: tables in one file share it.
    map: OnceLock<Option<Arc<dyn Mapped>>>,
}

/// Maps a file where the platform can; a file that cannot be mapped is read.
#[cfg(target_os = "linux")]
fn map(file: &File) -> Option<Arc<dyn Mapped>> {
    let map = crate::map::Map::new(file).ok().flatten()?;
    Some(Arc::new(map))
}

#[cfg(not(target_os = "linux"))]
fn map(_file: &File) -> Option<Arc<dyn Mapped>> {
    None
}

impl ReadFile for Buffered {
    #[cfg(unix)]
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = buf.get_mut(n..).unwrap_or_default();
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        Some(Descriptor {
            file: &self.file,
            base: 0,
            alignment: 1,
            rings: Rings::shared(),
        })
    }

    fn map(&self) -> Option<Arc<dyn Mapped>> {
        self.map.get_or_init(|| map(&self.file)).clone()
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod direct {
    //! Reads past the page cache. Offset, length and memory must all be aligned, so whole pages go
    //! through a thread-local scratch buffer.

    use std::cell::RefCell;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;
    use std::sync::Arc;

    use crate::{Descriptor, ReadFile, Rings};

    #[cfg(target_arch = "x86_64")]
    const O_DIRECT: i32 = 0o40000;
    #[cfg(target_arch = "aarch64")]
    const O_DIRECT: i32 = 0o200000;

    const PAGE: usize = 4096;
    /// The most bytes per system call: bounds the scratch buffer.
    const SPAN: usize = 1 << 20;

    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// `None` when the file system does not support direct reads: some refuse at open, some at the
    /// first read.
    pub(super) fn open(path: &Path) -> io::Result<Option<Arc<dyn ReadFile>>> {
        let refused = |e: &io::Error| {
            matches!(
                e.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            )
        };
        let file = match OpenOptions::new()
            .read(true)
            .custom_flags(O_DIRECT)
            .open(path)
        {
            Err(e) if refused(&e) => return Ok(None),
            opened => Direct(opened?),
        };
        match file.read_span(0, &mut [0]) {
            Err(e) if refused(&e) => Ok(None),
            _ => Ok(Some(Arc::new(file))),
        }
    }

    struct Direct(File);

    impl Direct {
        fn read_span(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let skip = (offset % PAGE as u64) as usize;
            let need = skip + out.len();
            let pages = need.next_multiple_of(PAGE);
            SCRATCH.with_borrow_mut(|scratch| {
                if scratch.len() < pages + PAGE {
                    scratch.resize(pages + PAGE, 0);
                }
                let aligned = scratch.as_ptr().align_offset(PAGE);
                let window = scratch.get_mut(aligned..).and_then(|s| s.get_mut(..pages));
                let window = window.unwrap_or_default();
                let mut filled = 0;
                while filled < need {
                    let rest = window.get_mut(filled..).unwrap_or_default();
                    match self.0.read_at(rest, offset - skip as u64 + filled as u64) {
                        Ok(n) => {
                            filled += n;
                            // Only the end of the file cuts a read within a page.
                            if n == 0 || filled % PAGE != 0 {
                                break;
                            }
                        }
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(e),
                    }
                }
                match window.get(..filled).and_then(|read| read.get(skip..need)) {
                    Some(bytes) => {
                        out.copy_from_slice(bytes);
                        Ok(())
                    }
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            })
        }
    }

    impl ReadFile for Direct {
        fn read_at(&self, mut offset: u64, buf: &mut [u8]) -> io::Result<()> {
            for part in buf.chunks_mut(SPAN) {
                self.read_span(offset, part)?;
                offset += part.len() as u64;
            }
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.0.metadata()?.len())
        }

        fn descriptor(&self) -> Option<Descriptor<'_>> {
            Some(Descriptor {
                file: &self.0,
                base: 0,
                alignment: PAGE,
                rings: Rings::shared(),
            })
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod direct {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    pub(super) fn open(_path: &Path) -> io::Result<Option<Arc<dyn crate::ReadFile>>> {
        Ok(None)
    }
}
