//! Writing what was appended, on another thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_fs::WriteFile;

use super::shared::{Chunk, Shared, Writing};
use crate::error::{Error, Result};

/// Space that is reserved at a time: little enough that it is no loss where it stays unused.
const RESERVED: u32 = 8 << 20;

/// Zeros are written ahead of batches with fewer bytes than this, once so many came one after the
/// other. A sync then writes what was appended and nothing else: neither the file's length nor its
/// allocation changes, and no journal has to say so. For larger batches that costs more than it
/// saves.
const SMALL: usize = 12 << 10;
const MANY_SMALL: u32 = 16;

/// So many zeros are written at a time, when fewer than these are left.
const ZEROS: u32 = 256 << 10;
const FEW_ZEROS: u32 = 16 << 10;

/// The disk is kept busy with so many bytes while as many are copied.
const AT_A_TIME: usize = 2 << 20;

/// What was appended and is not written yet. Batches are run in the order in which they were taken.
pub struct Batch {
    shared: Arc<Shared>,
    chunks: Vec<(u32, Chunk)>,
    lsn_end: u64,
}

impl Batch {
    pub(super) fn new(shared: Arc<Shared>, chunks: Vec<(u32, Chunk)>, lsn_end: u64) -> Batch {
        Batch {
            shared,
            chunks,
            lsn_end,
        }
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|(_, c)| c.bytes.len() as u64).sum()
    }

    /// What may be done once this batch is written, and nothing waits for it.
    pub fn ahead(&self) -> Ahead {
        Ahead {
            shared: self.shared.clone(),
        }
    }

    /// Writes and syncs: one write and one sync for each file. Returns the LSN up to which
    /// everything is durable.
    ///
    /// # Errors
    /// Those of writing: then nothing more is written until the folder is opened again, and each
    /// later batch fails with `Poisoned`, or with `DiskFull` where the first one did.
    pub fn run(self) -> Result<u64> {
        let turn = self.shared.turn.lock();
        self.shared.check()?;
        let written = self.write();
        drop(turn);
        match written {
            Ok(()) => {
                self.shared
                    .reuse(self.chunks.into_iter().map(|(_, chunk)| chunk));
                Ok(self.lsn_end)
            }
            Err(error) => {
                self.shared.fail(&error);
                Err(error)
            }
        }
    }

    fn write(&self) -> Result<()> {
        let folder = &self.shared.folder;
        let mut is_new = false;
        for (segment, chunk) in &self.chunks {
            let path = folder.segment(*segment);
            let mut writing = match chunk.offset {
                0 => {
                    is_new = true;
                    self.create(*segment, &path)?
                }
                offset => match &*self.shared.writing.lock() {
                    Some(w) if w.segment == *segment && w.len == offset => w.clone(),
                    _ => {
                        let cause = "a batch before this one was not run".to_string();
                        return Err(Error::Poisoned { cause });
                    }
                },
            };
            let file = writing.file.clone();
            writing.reserved = self.reserve(&*file, chunk, writing.reserved);
            let len = chunk.bytes.len();
            append(&*file, &path, chunk.bytes.slices())?;
            self.shared.written.fetch_add(len as u64, Ordering::Relaxed);
            // Before the next file is begun: at a start, only the last one may not be durable.
            file.sync().map_err(|e| Error::io(&path, "sync", e))?;
            writing.len = chunk.end();
            writing.small = if len < SMALL {
                writing.small.saturating_add(1)
            } else {
                0
            };
            *self.shared.writing.lock() = Some(writing);
        }
        if is_new {
            folder.sync()?;
        }
        for (segment, chunk) in &self.chunks {
            self.shared.release(*segment, chunk);
        }
        Ok(())
    }

    /// Begins a segment. The one before it is whole.
    fn create(&self, segment: u32, path: &Path) -> Result<Writing> {
        self.shared.cut_zeros()?;
        self.shared.unreserve();
        let before = self.shared.writing.lock().as_ref().map(|w| w.small);
        let (file, there) = self.shared.create(path)?;
        Ok(Writing {
            segment,
            len: 0,
            reserved: there,
            zeros: there,
            small: before.unwrap_or(0),
            file: Arc::from(file),
        })
    }

    /// Reserves space for a chunk and for later ones, where it goes beyond what is `reserved`.
    /// Returns up to where space is reserved now.
    fn reserve(&self, file: &dyn WriteFile, chunk: &Chunk, reserved: u32) -> u32 {
        if chunk.end() <= reserved {
            return reserved;
        }
        let upto = chunk.end().saturating_add(RESERVED);
        let upto = upto.min(self.shared.segment_bytes).max(chunk.end());
        match file.reserve(u64::from(upto - chunk.offset)) {
            Ok(()) => upto,
            // A disk that has so little room may have enough without it.
            Err(_) => u32::MAX,
        }
    }
}

/// Makes the batches that come next cheaper.
pub struct Ahead {
    shared: Arc<Shared>,
}

impl Ahead {
    /// True where there is something to do.
    pub fn is_due(&self) -> bool {
        self.due().is_some()
    }

    /// Writes zeros ahead of batches, where that helps. A batch that is run meanwhile waits.
    ///
    /// # Errors
    /// Those of syncing: each later batch fails then as one behind a failed batch does. A disk that
    /// does not take zeros may take data.
    pub fn run(self) -> Result<()> {
        let _turn = self.shared.turn.lock();
        let Some((segment, len, upto, file)) = self.due() else {
            return Ok(());
        };
        // Before they are written: also where that fails, some of them have to be cut.
        if let Some(writing) = &mut *self.shared.writing.lock() {
            writing.zeros = upto;
        }
        if file.write_ahead((upto - len) as usize).is_err() {
            return Ok(());
        }
        let more = u64::from(upto - len);
        self.shared.written.fetch_add(more, Ordering::Relaxed);
        let path = self.shared.folder.segment(segment);
        let synced = file.sync().map_err(|e| Error::io(&path, "sync", e));
        synced.inspect_err(|error| self.shared.fail(error))
    }

    /// The segment that is written, its bytes, and up to where it is to have zeros.
    fn due(&self) -> Option<(u32, u32, u32, Arc<dyn WriteFile>)> {
        let writing = self.shared.writing.lock();
        let w = writing.as_ref().filter(|w| w.small >= MANY_SMALL)?;
        let upto = w.len.saturating_add(ZEROS).min(self.shared.segment_bytes);
        // A disk that has no room to reserve has none for zeros.
        let upto = upto.min(w.reserved);
        let has_room = w.reserved < u32::MAX && upto > w.zeros.max(w.len);
        let is_due = has_room && w.zeros < w.len.saturating_add(FEW_ZEROS);
        let is_due = is_due && self.shared.check().is_ok();
        is_due.then(|| (w.segment, w.len, upto, w.file.clone()))
    }
}

/// Appends bytes. Where they are many, the disk writes the first ones while others are copied to
/// the system: otherwise it would have nothing to do until the sync, which then takes as long.
fn append<'a>(
    file: &dyn WriteFile,
    path: &Path,
    slices: impl Iterator<Item = &'a [u8]>,
) -> Result<()> {
    let put = |parts: &[&[u8]]| {
        let appended = file.append_parts(parts);
        appended.map_err(|e| Error::io(path, "append", e))
    };
    let portions = portions(slices);
    if portions.len() < 2 {
        return portions.iter().try_for_each(|parts| put(parts));
    }
    let mut portions = portions.iter();
    std::thread::scope(|scope| {
        while let Some(portion) = portions.next() {
            put(portion)?;
            let Some(next) = portions.next() else { break };
            // A sync that fails here has failed for good: the one behind all may say nothing.
            let sync = || file.sync().map_err(|e| Error::io(path, "sync", e));
            let syncing = std::thread::Builder::new().spawn_scoped(scope, sync);
            put(next)?;
            if let Ok(syncing) = syncing {
                let synced = syncing.join();
                synced.unwrap_or_else(|_| Err(Error::io(path, "sync", panicked())))?;
            }
        }
        Ok(())
    })
}

/// Portions of so many bytes as are written at a time, but for the last one, which may have fewer;
/// all in one where they are less than two.
fn portions<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<&'a [u8]>> {
    let (mut portions, mut portion, mut room) = (Vec::new(), Vec::new(), AT_A_TIME);
    for mut slice in slices {
        while let Some((first, rest)) = slice.split_at_checked(room) {
            portion.push(first);
            portions.push(std::mem::take(&mut portion));
            (slice, room) = (rest, AT_A_TIME);
        }
        if !slice.is_empty() {
            portion.push(slice);
            room -= slice.len();
        }
    }
    match portions.as_mut_slice() {
        [only] => only.append(&mut portion),
        _ if !portion.is_empty() => portions.push(portion),
        _ => {}
    }
    portions
}

fn panicked() -> std::io::Error {
    std::io::Error::other("the thread panicked")
}
