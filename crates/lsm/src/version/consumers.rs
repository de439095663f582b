//! The places of the consumers of the log: one file each in the folder `consumers`, beside the
//! manifest and not in it, because a process that only reads the store notes its place, too.
//!
//! ```text
//! NAME: the xxh3-128 of the consumer's name, in hexadecimal
//!   magic "ESKERCON" | format version u32 | history u64 | position varint | most bytes varint
//!   | name bytes | replaced name bytes (empty: none) | checksum u64 (xxh3-64 of all before)
//! NAME.lock  locked by the process that is that consumer
//! LOCK       locked while a place is written or removed, and while a writer decides which
//!            segments to remove
//! ```
//!
//! *Why a writer removes nothing that a consumer waits for.* A writer holds `LOCK` from reading the
//! places until the manifest lists, for readers to see, what it keeps; files are removed after
//! that. A consumer holds `LOCK` from writing its place until it has seen in the manifest that the
//! log behind it is kept. So whichever is first is seen by the other. Where a writer does not get
//! the lock at once it removes nothing this time: it never waits for another process.
//! It makes the places that it read durable before it goes by them: who wrote or removed one may
//! have failed before the name was, and after a power cut the earlier place counts again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::coding::{Reader, put_bytes, put_varint};
use crate::entry::{MAX_SEQ, Position};
use crate::error::{Error, Result};
use crate::fs::{Fs, Lock};

const MAGIC: &[u8; 8] = b"ESKERCON";
const FORMAT: u32 = 1;
const FOLDER: &str = "consumers";
const LOCK: &str = "LOCK";
/// Longer than any file of this format.
const MAX_LEN: u64 = 4096;

/// How long is waited for the lock of the places: others hold it for a few writes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far a consumer of the log has read, and how much is retained for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerPlace {
    pub(crate) name: String,
    pub(crate) position: Position,
    pub(crate) bytes: u64,
    /// The name under which the manifest, written by an earlier version, has the same consumer.
    pub(crate) replaced: Option<String>,
}

/// The places of the consumers of one store.
pub(crate) struct ConsumerPlaces<'s> {
    fs: &'s dyn Fs,
    folder: PathBuf,
}

impl ConsumerPlaces<'_> {
    pub(crate) fn new<'s>(fs: &'s dyn Fs, dir: &Path) -> ConsumerPlaces<'s> {
        ConsumerPlaces {
            fs,
            folder: dir.join(FOLDER),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder
            .join(format!("{:032x}", xxh3_128(name.as_bytes())))
    }

    fn lock_path(&self, name: &str) -> PathBuf {
        self.path(name).with_extension("lock")
    }

    pub(crate) fn make_folder(&self) -> Result<()> {
        if self.fs.exists(&self.folder) {
            return Ok(());
        }
        let made = self.fs.create_dir(&self.folder);
        made.map_err(|e| Error::io(&self.folder, "create the folder", e))
    }

    /// The lock of all places, unless another holds it.
    pub(crate) fn try_lock(&self) -> Result<Option<Box<dyn Lock>>> {
        self.make_folder()?;
        try_lock(self.fs, &self.folder.join(LOCK))
    }

    /// The lock of all places.
    pub(crate) fn lock(&self) -> Result<Box<dyn Lock>> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            if Instant::now() >= end {
                let held = std::io::Error::from(ErrorKind::WouldBlock);
                return Err(Error::io(&self.folder.join(LOCK), "lock", held));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The lock of a consumer. Called with that of all places held: then no other has the file open
    /// while it is removed.
    ///
    /// # Errors
    /// [`Error::ConsumerInUse`] when another has it.
    pub(crate) fn take(&self, name: &str) -> Result<Box<dyn Lock>> {
        let lock = try_lock(self.fs, &self.lock_path(name))?;
        lock.ok_or_else(|| Error::ConsumerInUse {
            name: name.to_string(),
        })
    }

    /// The files that have places.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let names = match self.fs.list(&self.folder) {
            Ok(names) => names,
            // None was ever written.
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(&self.folder, "list", e)),
        };
        let is_place = |name: &PathBuf| name.as_os_str().len() == 32 && name.extension().is_none();
        let names = names.into_iter().filter(is_place);
        Ok(names.map(|name| self.folder.join(name)).collect())
    }

    /// True when there is a consumer.
    pub(crate) fn is_any(&self) -> Result<bool> {
        Ok(!self.files()?.is_empty())
    }

    /// All places by name, and what is wrong with the files that are damaged.
    pub(crate) fn list(&self) -> Result<(Vec<ConsumerPlace>, Vec<Error>)> {
        let (mut places, mut damaged) = (Vec::new(), Vec::new());
        for path in self.files()? {
            match self.read_file(&path) {
                Ok(Some(place)) => places.push(place),
                // Removed meanwhile.
                Ok(None) => {}
                Err(error @ Error::Corruption { .. }) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        places.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((places, damaged))
    }

    /// The place of a consumer; `None` while it has none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<ConsumerPlace>> {
        self.read_file(&self.path(name))
    }

    /// The place of a consumer; `None` also where it is damaged.
    pub(crate) fn read_undamaged(&self, name: &str) -> Result<Option<ConsumerPlace>> {
        match self.read(name) {
            Err(Error::Corruption { .. }) => Ok(None),
            read => read,
        }
    }

    fn read_file(&self, path: &Path) -> Result<Option<ConsumerPlace>> {
        let file = match self.fs.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(path, "open", e)),
        };
        let len = file.len().map_err(|e| Error::io(path, "stat", e))?;
        if len > MAX_LEN {
            return Err(Error::corruption(path, 0, format!("{len} bytes long")));
        }
        let mut bytes = vec![0; len as usize];
        let read = file.read_at(0, &mut bytes);
        read.map_err(|e| Error::io(path, "read", e))?;
        let place = ConsumerPlace::decode(&bytes, path)?;
        if self.path(&place.name) == path {
            Ok(Some(place))
        } else {
            Err(Error::corruption(path, 0, "the place of another consumer"))
        }
    }

    /// Writes a place, durably. Called with the lock of all places held.
    pub(crate) fn write(&self, place: &ConsumerPlace) -> Result<()> {
        let path = self.path(&place.name);
        let temporary = path.with_extension("new");
        let file = self.fs.create(&temporary);
        let file = file.map_err(|e| Error::io(&temporary, "create", e))?;
        let written = file.append(&place.encode());
        written.map_err(|e| Error::io(&temporary, "append", e))?;
        file.sync().map_err(|e| Error::io(&temporary, "sync", e))?;
        let renamed = self.fs.rename(&temporary, &path);
        renamed.map_err(|e| Error::io(&path, "rename", e))?;
        self.sync()
    }

    /// Removes the place of a consumer, durably; false when it has none. Called with the lock of
    /// all places held.
    pub(crate) fn remove(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        match self.fs.remove(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(Error::io(&path, "remove", e)),
        }
        self.sync()?;
        Ok(true)
    }

    /// Removes the file that a consumer's lock is on, when no process is that consumer. Called with
    /// the lock of all places held.
    pub(crate) fn remove_lock(&self, name: &str) {
        // An empty file that stays does no harm.
        let _ = self.fs.remove(&self.lock_path(name));
    }

    /// Removes all files, of a copy that failed.
    pub(crate) fn clear(&self) {
        for name in self.fs.list(&self.folder).unwrap_or_default() {
            let _ = self.fs.remove(&self.folder.join(name));
        }
    }

    /// Makes the names of all places durable; what is in the files is durable before they have
    /// their names.
    pub(crate) fn sync(&self) -> Result<()> {
        match self.fs.sync_dir(&self.folder) {
            // None was ever written.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            synced => synced.map_err(|e| Error::io(&self.folder, "sync", e)),
        }
    }
}

fn try_lock(fs: &dyn Fs, path: &Path) -> Result<Option<Box<dyn Lock>>> {
    match fs.lock(path) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(Error::io(path, "lock", e)),
    }
}

impl ConsumerPlace {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&self.position.history.to_le_bytes());
        put_varint(&mut out, self.position.seq);
        put_varint(&mut out, self.bytes);
        put_bytes(&mut out, self.name.as_bytes());
        put_bytes(
            &mut out,
            self.replaced.as_deref().unwrap_or_default().as_bytes(),
        );
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<ConsumerPlace> {
        let damaged = |what: &str| Error::corruption(path, 0, what);
        let (body, checksum) = bytes
            .split_last_chunk::<8>()
            .ok_or_else(|| damaged("too short"))?;
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(damaged("checksum mismatch"));
        }
        let mut reader = Reader::new(body);
        if reader.take(8) != Some(MAGIC) {
            return Err(damaged("not the place of a consumer"));
        }
        let found = reader.u32().ok_or_else(|| damaged("too short"))?;
        if found > FORMAT {
            return Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found,
                supported: FORMAT,
            });
        }
        ConsumerPlace::fields(&mut reader).ok_or_else(|| damaged("malformed place"))
    }

    fn fields(reader: &mut Reader<'_>) -> Option<ConsumerPlace> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let history = reader.u64()?;
        let seq = reader.varint().filter(|seq| *seq <= MAX_SEQ)?;
        let bytes = reader.varint()?;
        let name = text(reader.bytes()?)?;
        let replaced = text(reader.bytes()?)?;
        Some(ConsumerPlace {
            name,
            position: Position { history, seq },
            bytes,
            replaced: Some(replaced).filter(|replaced| !replaced.is_empty()),
        })
    }
}
