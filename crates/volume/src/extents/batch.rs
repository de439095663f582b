//! Writing what was appended, on another thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_fs::WriteFile;

use super::shared::{Chunk, Shared, Writing};
use crate::error::{Error, Result};

/// Space that is reserved at a time: little enough that it is no loss where it stays unused.
const RESERVED: u32 = 8 << 20;

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

    /// Writes and syncs: one write and one sync for each file. Returns the LSN up to which
    /// everything is durable.
    ///
    /// # Errors
    /// Those of writing: then nothing more is written until the folder is opened again, and each
    /// later batch fails with `Poisoned`.
    pub fn run(self) -> Result<u64> {
        self.shared.check()?;
        match self.write() {
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
            let (file, reserved): (Arc<dyn WriteFile>, u32) = match chunk.offset {
                0 => {
                    is_new = true;
                    // The segment before it is whole.
                    self.shared.unreserve();
                    let file = folder.fs.create(&path);
                    (
                        Arc::from(file.map_err(|e| Error::io(&path, "create", e))?),
                        0,
                    )
                }
                offset => match &*self.shared.writing.lock() {
                    Some(w) if w.segment == *segment && w.len == offset => {
                        (w.file.clone(), w.reserved)
                    }
                    _ => {
                        let cause = "a batch before this one was not run".to_string();
                        return Err(Error::Poisoned { cause });
                    }
                },
            };
            let reserved = self.reserve(&*file, chunk, reserved);
            let len = chunk.bytes.len();
            append(&*file, &path, &chunk.bytes)?;
            self.shared.written.fetch_add(len as u64, Ordering::Relaxed);
            // Before the next file is begun: at a start, only the last one may not be durable.
            file.sync().map_err(|e| Error::io(&path, "sync", e))?;
            *self.shared.writing.lock() = Some(Writing {
                segment: *segment,
                len: chunk.offset.saturating_add(len as u32),
                reserved,
                file,
            });
        }
        if is_new {
            folder.sync()?;
        }
        for (segment, chunk) in &self.chunks {
            self.shared.release(*segment, chunk);
        }
        Ok(())
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

/// Appends bytes. Where they are many, the disk writes the first ones while others are copied to
/// the system: otherwise it would have nothing to do until the sync, which then takes as long.
fn append(file: &dyn WriteFile, path: &Path, bytes: &[u8]) -> Result<()> {
    let put = |piece: &[u8]| {
        let appended = file.append(piece);
        appended.map_err(|e| Error::io(path, "append", e))
    };
    if bytes.len() < 2 * AT_A_TIME {
        return put(bytes);
    }
    let mut pieces = bytes.chunks(AT_A_TIME).peekable();
    std::thread::scope(|scope| {
        while let Some(piece) = pieces.next() {
            put(piece)?;
            let Some(next) = pieces.next() else { break };
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

fn panicked() -> std::io::Error {
    std::io::Error::other("the thread panicked")
}
