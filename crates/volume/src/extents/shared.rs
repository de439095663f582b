//! What the threads of a node share about segments: bytes that are not in files yet, and open
//! files.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use esker_fs::{ReadFile, WriteFile};
use parking_lot::Mutex;

use super::folder::Folder;
use super::pieces::Pieces;
use crate::error::{Error, Result};

/// The most files that stay open for reading, pinned ones aside.
const OPEN_FILES: usize = 256;

/// The most memory that is kept for later chunks: so many pieces, of at most so many bytes.
const SPARES: usize = 2;
const SPARE_BYTES: usize = 8 << 20;

/// The most files of former segments that are kept.
const SPARE_FILES: usize = 2;

/// Bytes of a segment that a batch writes.
#[derive(Clone)]
pub(super) struct Chunk {
    pub(super) offset: u32,
    pub(super) bytes: Arc<Pieces>,
}

impl Chunk {
    pub(super) fn end(&self) -> u32 {
        self.offset.saturating_add(self.bytes.len() as u32)
    }
}

/// A segment, as readers see it.
#[derive(Default)]
pub(super) struct Segment {
    /// What batches that were taken write, rising and without gaps.
    running: VecDeque<Chunk>,
    /// What the next batch writes, behind it.
    pending: Pieces,
    /// Where `pending` begins: the bytes before it were taken.
    taken: u32,
    file: Option<Arc<dyn ReadFile>>,
    /// When the file was used last, in uses.
    used: u64,
    pins: usize,
    is_removed: bool,
}

/// The file that batches append to.
#[derive(Clone)]
pub(super) struct Writing {
    pub(super) segment: u32,
    /// Bytes of the file.
    pub(super) len: u32,
    /// Space was reserved up to this offset.
    pub(super) reserved: u32,
    /// The file has zeros, or bytes of a former segment, up to this offset, where that is behind
    /// its bytes.
    pub(super) zeros: u32,
    /// How many batches of few bytes were written since the last one of many.
    pub(super) small: u32,
    pub(super) file: Arc<dyn WriteFile>,
}

#[derive(Default)]
struct State {
    segments: BTreeMap<u32, Segment>,
    uses: u64,
    open: usize,
    /// Memory for bytes that are to be written.
    spare: Vec<Pieces>,
}

/// Shared by the owner of the segments, its batches and readers. No lock but `turn` is held during
/// I/O.
pub(super) struct Shared {
    pub(super) folder: Folder,
    /// Bytes of a segment, unless it is longer.
    pub(super) segment_bytes: u32,
    state: Mutex<State>,
    /// The first failure of a batch.
    failure: Mutex<Option<Error>>,
    /// Held by who writes: one at a time.
    pub(super) turn: Mutex<()>,
    pub(super) writing: Mutex<Option<Writing>>,
    /// Files of former segments, and their bytes: the next segments are written over them.
    spares: Mutex<Vec<(u32, u32)>>,
    /// Bytes that were passed to calls that write.
    pub(super) written: AtomicU64,
}

/// Where the bytes of a range are.
pub(super) struct Parts {
    /// How many bytes at its start are in the file.
    pub(super) in_file: usize,
    pub(super) file: Option<Arc<dyn ReadFile>>,
    /// Those behind them that a batch writes.
    pub(super) running: Vec<Chunk>,
}

impl Shared {
    pub(super) fn new(
        folder: Folder,
        segment_bytes: u32,
        segments: impl Iterator<Item = (u32, u32)>,
    ) -> Shared {
        let segments = segments.map(|(number, taken)| {
            let segment = Segment {
                taken,
                ..Segment::default()
            };
            (number, segment)
        });
        Shared {
            folder,
            segment_bytes,
            state: Mutex::new(State {
                segments: segments.collect(),
                ..State::default()
            }),
            failure: Mutex::new(None),
            turn: Mutex::new(()),
            writing: Mutex::new(None),
            spares: Mutex::default(),
            written: AtomicU64::new(0),
        }
    }

    /// Gives back what is reserved in the segment that was written last. What stays reserved costs
    /// space and nothing else, so an error is none.
    pub(super) fn unreserve(&self) {
        let unused = self.writing.lock().as_mut().and_then(|writing| {
            let is_unused = writing.reserved > writing.len && writing.reserved < u32::MAX;
            writing.reserved = writing.reserved.min(writing.len);
            is_unused.then_some(writing.segment)
        });
        if let Some(segment) = unused {
            drop(self.folder.fs.unreserve(&self.folder.segment(segment)));
        }
    }

    /// Takes the files of segments that were given up for later ones, where few are kept, and
    /// unlinks the others. What they were is gone for good when it returns: only then may they be
    /// written over.
    pub(super) fn unlink(&self, segments: &[u32]) -> Result<()> {
        let mut kept = Vec::new();
        for &number in segments {
            let path = self.folder.segment(number);
            let bytes = self.spare_bytes(number, kept.len())?;
            match bytes {
                Some(bytes) => {
                    self.folder.rename(&path, &self.folder.spare(number))?;
                    kept.push((number, bytes));
                }
                None => self.folder.remove(&path)?,
            }
        }
        self.folder.sync()?;
        self.spares.lock().append(&mut kept);
        Ok(())
    }

    /// The bytes of a segment's file, where it is worth keeping.
    fn spare_bytes(&self, number: u32, more: usize) -> Result<Option<u32>> {
        let is_pinned = self.state.lock().segments.contains_key(&number);
        if is_pinned || self.spares.lock().len() + more >= SPARE_FILES {
            return Ok(None);
        }
        let path = self.folder.segment(number);
        let bytes = self.folder.len(&*self.folder.open(&path)?, &path)?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // Much shorter or longer ones would cost space, or bring little.
        let is_usual = bytes <= self.segment_bytes && bytes >= self.segment_bytes / 2;
        Ok(is_usual.then_some(bytes))
    }

    /// The file of a new segment, and how many bytes of a former one it has.
    pub(super) fn create(&self, path: &Path) -> Result<(Box<dyn WriteFile>, u32)> {
        let fs = &self.folder.fs;
        let spare = self.spares.lock().pop();
        let (file, bytes) = match spare {
            Some((number, bytes)) => {
                self.folder.rename(&self.folder.spare(number), path)?;
                (fs.overwrite(path), bytes)
            }
            None => (fs.create(path), 0),
        };
        let file = file.map_err(|e| Error::io(path, "create", e))?;
        Ok((file, bytes))
    }

    /// Removes the files that were kept for later segments: their space is wanted.
    pub(super) fn give_spares_back(&self) {
        let spares = std::mem::take(&mut *self.spares.lock());
        for (number, _) in spares {
            // Where one stays, opening the folder again removes it.
            drop(self.folder.remove(&self.folder.spare(number)));
        }
    }

    /// Cuts the zeros behind the segment that was written last, or what is left there of a former
    /// one, durably: only the last segment may have bytes behind its records.
    pub(super) fn cut_zeros(&self) -> Result<()> {
        let (segment, len, file) = match &*self.writing.lock() {
            Some(w) if w.zeros > w.len => (w.segment, w.len, w.file.clone()),
            _ => return Ok(()),
        };
        let path = self.folder.segment(segment);
        let cut = file.truncate(u64::from(len));
        cut.map_err(|e| Error::io(&path, "truncate", e))?;
        file.sync().map_err(|e| Error::io(&path, "sync", e))?;
        if let Some(writing) = &mut *self.writing.lock() {
            writing.zeros = 0;
            writing.reserved = writing.reserved.min(len);
        }
        Ok(())
    }

    /// Fails where a batch has failed: with `DiskFull` where that was the failure. The next append
    /// may come before the node hears of the failure, and a node whose disk is full waits for room.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.failure.lock() {
            Some(full) if full.is_disk_full() => Err(full.clone()),
            Some(cause) => Err(Error::Poisoned {
                cause: cause.to_string(),
            }),
            None => Ok(()),
        }
    }

    pub(super) fn fail(&self, cause: &Error) {
        let mut failure = self.failure.lock();
        failure.get_or_insert_with(|| cause.clone());
    }

    /// Makes a segment, or lets `add` append to what its next batch writes.
    pub(super) fn append(&self, segment: u32, add: impl FnOnce(&mut Pieces)) {
        let mut state = self.state.lock();
        let State {
            segments, spare, ..
        } = &mut *state;
        let pending = &mut segments.entry(segment).or_default().pending;
        if pending.capacity() == 0 {
            *pending = spare.pop().unwrap_or_default();
        }
        add(pending);
    }

    /// Takes what the next batch writes of a segment.
    pub(super) fn take(&self, segment: u32) -> Option<Chunk> {
        let mut state = self.state.lock();
        let segment = state.segments.get_mut(&segment)?;
        if segment.pending.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut segment.pending);
        let chunk = Chunk {
            offset: segment.taken,
            bytes: Arc::new(bytes),
        };
        segment.taken = chunk.end();
        segment.running.push_back(chunk.clone());
        Some(chunk)
    }

    /// The bytes of this chunk can be read from the file from now on.
    pub(super) fn release(&self, segment: u32, chunk: &Chunk) {
        let mut state = self.state.lock();
        if let Some(segment) = state.segments.get_mut(&segment) {
            segment.running.retain(|c| c.offset > chunk.offset);
        }
    }

    /// Takes the memory of chunks that are written for later ones, so that it need not grow again.
    pub(super) fn reuse(&self, chunks: impl Iterator<Item = Chunk>) {
        for chunk in chunks {
            // A reader may still copy from it.
            let Ok(mut bytes) = Arc::try_unwrap(chunk.bytes) else {
                continue;
            };
            let mut state = self.state.lock();
            if bytes.capacity() <= SPARE_BYTES && state.spare.len() < SPARES {
                bytes.clear();
                state.spare.push(bytes);
            }
        }
    }

    /// Says where the range is, and fills the part of `out` that is pending.
    pub(super) fn parts(
        &self,
        number: u32,
        offset: u32,
        out: &mut [u8],
        is_pinned: bool,
    ) -> Result<Parts> {
        let mut state = self.state.lock();
        state.uses += 1;
        let uses = state.uses;
        let found = state.segments.get_mut(&number);
        let segment = found.filter(|segment| is_pinned || !segment.is_removed);
        let segment = segment.ok_or(Error::Gone { segment: number })?;
        segment.used = uses;
        let wanted = u32::try_from(out.len()).ok();
        let end = wanted.and_then(|wanted| offset.checked_add(wanted));
        let all = u64::from(segment.taken) + segment.pending.len() as u64;
        let Some(end) = end.filter(|end| u64::from(*end) <= all) else {
            let what = format!(
                "{} bytes were expected here, the end is at {all}",
                out.len()
            );
            let path = self.folder.segment(number);
            return Err(Error::corruption(&path, u64::from(offset), what));
        };
        if end > segment.taken {
            let from = segment.taken.max(offset);
            let there = out.get_mut((from - offset) as usize..);
            let pending = (from - segment.taken) as usize;
            segment.pending.copy(pending, there.unwrap_or_default());
        }
        let in_file = segment.running.front().map_or(segment.taken, |c| c.offset);
        let running = segment.running.iter();
        let running = running.filter(|c| c.offset < end && c.end() > offset);
        Ok(Parts {
            in_file: in_file.min(end).saturating_sub(offset) as usize,
            file: segment.file.clone(),
            running: running.cloned().collect(),
        })
    }

    /// Bytes of a segment, also those that are not in the file yet.
    pub(super) fn len(&self, number: u32) -> Result<u64> {
        let state = self.state.lock();
        let segment = state
            .segments
            .get(&number)
            .filter(|segment| !segment.is_removed);
        let segment = segment.ok_or(Error::Gone { segment: number })?;
        Ok(u64::from(segment.taken) + segment.pending.len() as u64)
    }

    /// Opens the file of a segment for reading.
    pub(super) fn open(&self, number: u32) -> Result<Arc<dyn ReadFile>> {
        let opened = self.folder.open(&self.folder.segment(number));
        let mut state = self.state.lock();
        let segment = state.segments.get_mut(&number);
        let Some(segment) = segment.filter(|s| !s.is_removed) else {
            return Err(Error::Gone { segment: number });
        };
        let file = match &segment.file {
            // Another thread was faster.
            Some(file) => return Ok(file.clone()),
            None => opened?,
        };
        segment.file = Some(file.clone());
        state.open += 1;
        if state.open > OPEN_FILES {
            state.close_oldest(number);
        }
        Ok(file)
    }

    /// Keeps a segment readable, also after its removal, until `unpin`.
    pub(super) fn pin(&self, number: u32) -> Result<()> {
        let mut state = self.state.lock();
        let segment = state.segments.get_mut(&number);
        let segment = segment.filter(|segment| !segment.is_removed);
        segment.ok_or(Error::Gone { segment: number })?.pins += 1;
        Ok(())
    }

    pub(super) fn unpin(&self, number: u32) {
        let mut state = self.state.lock();
        if let Some(segment) = state.segments.get_mut(&number) {
            segment.pins = segment.pins.saturating_sub(1);
            if segment.is_removed && segment.pins == 0 {
                state.forget(number);
            }
        }
    }

    pub(super) fn pins(&self, number: u32) -> usize {
        let state = self.state.lock();
        state.segments.get(&number).map_or(0, |s| s.pins)
    }

    /// Readers find the segment no more, except through pins, which read this file.
    pub(super) fn remove(&self, number: u32, file: Arc<dyn ReadFile>) {
        let mut state = self.state.lock();
        let mut opened = 0;
        if let Some(segment) = state.segments.get_mut(&number) {
            segment.is_removed = true;
            opened = usize::from(segment.file.is_none());
            segment.file = Some(file);
        }
        state.open += opened;
        if state.segments.get(&number).is_some_and(|s| s.pins == 0) {
            state.forget(number);
        }
    }
}

impl State {
    fn forget(&mut self, number: u32) {
        if let Some(gone) = self.segments.remove(&number) {
            self.open -= usize::from(gone.file.is_some());
        }
    }

    fn close_oldest(&mut self, except: u32) {
        let unpinned = self.segments.iter_mut();
        let open = unpinned.filter(|(n, s)| s.file.is_some() && s.pins == 0 && **n != except);
        if let Some((_, oldest)) = open.min_by_key(|(_, segment)| segment.used) {
            oldest.file = None;
            self.open -= 1;
        }
    }
}
