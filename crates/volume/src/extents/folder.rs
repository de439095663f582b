//! The files of a folder of segments: their names, the headers of segments, the identity of the
//! disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_coding::Reader;
use esker_fs::{Fs, ReadFile};

use crate::command::checksum;
use crate::error::{Error, Result};
use crate::ids::DiskId;

/// The file that says which disk this is. Segments say it too, should it be damaged.
const IDENTITY: &str = "disk";
const SUFFIX: &str = ".seg";
/// The suffix of files that were segments, and will be others.
const SPARE: &str = ".free";
/// The suffix of files that are not complete.
const UNFINISHED: &str = ".new";

/// Bytes of a segment's header.
pub(super) const SEGMENT_HEADER: u32 = 64;
const COVERED: usize = SEGMENT_HEADER as usize - 8;
const MAGIC: [u8; 8] = *b"EskerSeg";
/// Since version 3 the log says where it ends before entries replace others ([`Kind::End`]).
///
/// [`Kind::End`]: super::record::Kind::End
const VERSION: u32 = 3;
/// The oldest version that is read.
const OLDEST: u32 = 2;

/// What a segment begins with. The file with the disk's identity is one too, of number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) disk: DiskId,
    pub(super) number: u32,
    /// The LSN of the first record.
    pub(super) first: u64,
    /// Everything before this LSN was synced when the segment began.
    pub(super) synced: u64,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER as usize);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        for number in [self.disk.0, self.first, self.synced] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(COVERED, 0);
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// `None` where the bytes are damaged.
    ///
    /// # Errors
    /// `NewerFormat`, where they are not and a newer version wrote them.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<SegmentHeader>> {
        let parts = bytes
            .split_at_checked(COVERED)
            .and_then(|(covered, rest)| Some((covered, Reader::new(rest).u64()?)));
        let Some((covered, sum)) = parts else {
            return Ok(None);
        };
        let from = &mut Reader::new(covered);
        if from.take(MAGIC.len()) != Some(&MAGIC) || sum != checksum(covered) {
            return Ok(None);
        }
        match from.u32() {
            Some(OLDEST..=VERSION) => Ok((|| {
                let number = from.u32()?;
                Some(SegmentHeader {
                    number,
                    disk: DiskId(from.u64()?),
                    first: from.u64()?,
                    synced: from.u64()?,
                })
            })()),
            Some(found) => Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found,
                supported: VERSION,
            }),
            None => Ok(None),
        }
    }
}

/// A formatted folder of segments.
#[derive(Clone)]
pub(super) struct Folder {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    pub(super) disk: DiskId,
}

impl Folder {
    /// The folder, where it is formatted.
    pub(super) fn find(fs: Arc<dyn Fs>, dir: &Path) -> Result<Option<Folder>> {
        if !fs.exists(dir) {
            return Ok(None);
        }
        let mut folder = Folder {
            fs,
            dir: dir.to_path_buf(),
            disk: DiskId(0),
        };
        let identity = dir.join(IDENTITY);
        let is_there = folder.fs.exists(&identity);
        let mut found = if is_there {
            folder.header_at(&identity)?
        } else {
            None
        };
        let numbers = folder.numbers()?;
        for &number in &numbers {
            match found {
                Some(_) => break,
                None => found = folder.header_at(&folder.segment(number))?,
            }
        }
        match found {
            Some(header) => {
                folder.disk = header.disk;
                Ok(Some(folder))
            }
            None if is_there || !numbers.is_empty() => {
                let what = "no file of the folder says which disk this is";
                Err(Error::corruption(&identity, 0, what))
            }
            None => Ok(None),
        }
    }

    /// Makes the folder one of an empty disk.
    pub(super) fn format(fs: Arc<dyn Fs>, dir: &Path, disk: DiskId) -> Result<()> {
        fs.create_dir(dir)
            .map_err(|e| Error::io(dir, "create", e))?;
        let folder = Folder {
            fs,
            dir: dir.to_path_buf(),
            disk,
        };
        folder.write_identity()
    }

    fn write_identity(&self) -> Result<()> {
        let header = SegmentHeader {
            disk: self.disk,
            number: 0,
            first: 0,
            synced: 0,
        };
        self.replace(&self.dir.join(IDENTITY), |append| append(&header.encode()))
    }

    /// Writes the disk's identity again where it is missing or damaged.
    pub(super) fn restore_identity(&self) -> Result<()> {
        let path = self.dir.join(IDENTITY);
        if self.fs.exists(&path) && self.header_at(&path)?.is_some() {
            Ok(())
        } else {
            self.write_identity()
        }
    }

    /// The file of a segment.
    pub(super) fn segment(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:08}{SUFFIX}"))
    }

    /// The numbers of the segments, rising.
    pub(super) fn numbers(&self) -> Result<Vec<u32>> {
        let mut numbers: Vec<u32> = self
            .names()?
            .iter()
            .filter_map(|name| {
                let number = name.to_str()?.strip_suffix(SUFFIX)?.parse().ok()?;
                (self.segment(number) == self.dir.join(name)).then_some(number)
            })
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The file that a segment becomes when it is given up, until another one is written over it.
    pub(super) fn spare(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:08}{SPARE}"))
    }

    /// Renames a file. Durable after `sync`.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let renamed = self.fs.rename(from, to);
        renamed.map_err(|e| Error::io(from, "rename", e))
    }

    /// Removes files that an interrupted start left incomplete, and those that an earlier process
    /// would have written over.
    pub(super) fn remove_unfinished(&self) -> Result<()> {
        for name in self.names()? {
            let text = name.to_string_lossy();
            if text.ends_with(UNFINISHED) || text.ends_with(SPARE) {
                self.remove(&self.dir.join(name))?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<PathBuf>> {
        let names = self.fs.list(&self.dir);
        names.map_err(|e| Error::io(&self.dir, "list", e))
    }

    /// The header of a segment; `None` where it is damaged.
    ///
    /// # Errors
    /// `OtherDisk`, `NewerFormat`, and those of reading.
    pub(super) fn header(&self, number: u32) -> Result<Option<SegmentHeader>> {
        let path = self.segment(number);
        let header = self.header_at(&path)?;
        match header {
            Some(header) if header.disk != self.disk => Err(Error::OtherDisk {
                path,
                found: header.disk,
                expected: self.disk,
            }),
            Some(header) if header.number != number => Ok(None),
            header => Ok(header),
        }
    }

    fn header_at(&self, path: &Path) -> Result<Option<SegmentHeader>> {
        let file = self.open(path)?;
        if self.len(&*file, path)? < u64::from(SEGMENT_HEADER) {
            return Ok(None);
        }
        let mut bytes = [0; SEGMENT_HEADER as usize];
        match file
            .read_at(0, &mut bytes)
            .map_err(|e| Error::io(path, "read", e))
        {
            Ok(()) => SegmentHeader::decode(&bytes, path),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a file for reading.
    pub(super) fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.fs.open(path).map_err(|e| Error::io(path, "open", e))
    }

    /// Bytes of a file.
    pub(super) fn len(&self, file: &dyn ReadFile, path: &Path) -> Result<u64> {
        file.len().map_err(|e| Error::io(path, "stat", e))
    }

    /// Removes a file. Durable after `sync`.
    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.fs.remove(path);
        removed.map_err(|e| Error::io(path, "remove", e))
    }

    /// Makes the names of the files durable.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = self.fs.sync_dir(&self.dir);
        synced.map_err(|e| Error::io(&self.dir, "sync", e))
    }

    /// Replaces a file, atomically and durably, by what `write` appends.
    pub(super) fn replace(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut name = path.as_os_str().to_os_string();
        name.push(UNFINISHED);
        let new = PathBuf::from(name);
        let file = self.fs.create(&new);
        let file = file.map_err(|e| Error::io(&new, "create", e))?;
        write(&mut |bytes| file.append(bytes).map_err(|e| Error::io(&new, "append", e)))?;
        file.sync().map_err(|e| Error::io(&new, "sync", e))?;
        self.rename(&new, path)?;
        self.sync()
    }
}
