//! Time, as far as entries expire by it.
//!
//! An entry may carry the time from which nobody sees it ([`crate::Batch::put_until`]); then it is as if it had been deleted.
//! Reads apply that at the time of their snapshot, flushes and merges drop what has expired. The clock is the store's
//! ([`crate::Options::clock`]), and it may be wrong:
//!
//! - *It steps back*: nothing comes back. The time that the store acts by, which is *kept*, never does: not within a handle, as it is
//!   raised only; nor across handles, as it is written down before anybody learns that something has expired. Edits of the
//!   manifest say by which time merges dropped; what reads hide goes to the file `TIME`, at most once a millisecond.
//! - *It jumps forward*, by more than a day: it may be wrong, or the store was not used. Reads go by it, as they must where it is right.
//!   But nothing is dropped, nor the time kept, until somebody confirms it ([`crate::Group::confirm_time`]); so if it was wrong, and is
//!   set right, all is there again.
//!
//! `TIME` is a header and records of 16 bytes, each a time and its checksum; the last that is whole counts. A process that is killed loses nothing of it,
//! a power cut what was not synced; it is synced when the store is closed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::entry::Time;
use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile};

/// Tells the time.
pub type Clock = dyn Fn() -> Time + Send + Sync;

/// A jump forward by more than this is not believed at once.
pub const LARGEST_JUMP: Time = 24 * 60 * 60 * 1000;

/// The name of the file.
const NAME: &str = "TIME";

const HEADER: &[u8; 16] = b"esker time 1\n\0\0\0";
const RECORD: usize = 16;

/// The length at which the file is written anew.
const LONGEST: u64 = 64 << 10;

/// The time by which a store acts.
pub(crate) struct ExpiryClock {
    clock: Arc<Clock>,
    /// The latest time that was acted on, or may be; 0 before the first.
    kept: AtomicU64,
    /// What of it is written down.
    written: AtomicU64,
    /// Where it is written down; nowhere by one who only reads.
    place: Option<(Arc<dyn Fs>, PathBuf)>,
    file: Mutex<Option<TimeFile>>,
}

struct TimeFile {
    file: Box<dyn WriteFile>,
    len: u64,
}

impl ExpiryClock {
    /// Of a store in whose manifest the time is `kept`. What `TIME` says is read; a damaged one is an error.
    pub(crate) fn open(
        clock: Arc<Clock>,
        fs: &Arc<dyn Fs>,
        dir: &Path,
        kept: Time,
        writes: bool,
    ) -> Result<ExpiryClock> {
        let path = dir.join(NAME);
        let kept = kept.max(read(&**fs, &path)?);
        Ok(ExpiryClock {
            clock,
            kept: AtomicU64::new(kept),
            written: AtomicU64::new(kept),
            place: writes.then(|| (fs.clone(), path)),
            file: Mutex::new(None),
        })
    }

    /// The time for a read: never before what was acted on.
    pub(crate) fn read_time(&self) -> Time {
        let now = (self.clock)();
        self.advance(now).max(now)
    }

    /// The time by which entries may be dropped for good.
    pub(crate) fn drop_time(&self) -> Time {
        self.advance((self.clock)())
    }

    /// Raises the time that is kept, unless `now` is too far ahead of it.
    fn advance(&self, now: Time) -> Time {
        let kept = self.kept.load(Ordering::Acquire);
        let is_believed = kept == 0 || now.saturating_sub(kept) <= LARGEST_JUMP;
        match now > kept && is_believed {
            true => self.kept.fetch_max(now, Ordering::AcqRel).max(now),
            false => kept,
        }
    }

    /// The time that is kept; 0 where none was asked for yet.
    pub(crate) fn kept(&self) -> Time {
        self.kept.load(Ordering::Acquire)
    }

    /// Somebody else acted by this time.
    pub(crate) fn keep(&self, time: Time) {
        self.kept.fetch_max(time, Ordering::AcqRel);
    }

    /// What the clock says, where that is too far ahead to be believed.
    pub(crate) fn unconfirmed(&self) -> Option<Time> {
        let now = (self.clock)();
        (self.advance(now) < now).then_some(now)
    }

    /// Believes the clock, durably.
    pub(crate) fn confirm(&self) -> Result<()> {
        self.keep((self.clock)());
        self.sync()
    }

    /// An edit of the manifest that names this time is durable.
    pub(crate) fn note_written(&self, time: Time) {
        self.written.fetch_max(time, Ordering::AcqRel);
    }

    /// A read is about to hide something that expires then: by now the time must be written down. A failure to do so fails no read: it is
    /// tried again with the next.
    #[inline]
    fn act(&self, expires: Time) {
        // Not where the clock is ahead of what is believed: it would be tried at each read.
        if expires > self.written.load(Ordering::Acquire) && expires <= self.kept() {
            let _ = self.write(expires);
        }
    }

    /// Writes down the time that is kept, if that reaches `expires`.
    #[cold]
    fn write(&self, expires: Time) -> Result<()> {
        let Some((fs, path)) = &self.place else {
            return Ok(());
        };
        let mut file = self.file.lock();
        let kept = self.kept();
        // Past it only what nobody has confirmed.
        if expires > kept || expires <= self.written.load(Ordering::Acquire) {
            return Ok(());
        }
        let io = |what, e| Error::io(path, what, e);
        let open = match file.take().filter(|open| open.len < LONGEST) {
            Some(open) => open,
            None => begin(&**fs, path)?,
        };
        open.file
            .append(&record(kept, open.len))
            .map_err(|e| io("append", e))?;
        if open.len == HEADER.len() as u64 {
            fs.rename(&path.with_extension("new"), path)
                .map_err(|e| io("rename", e))?;
        }
        *file = Some(TimeFile {
            len: open.len + RECORD as u64,
            ..open
        });
        self.note_written(kept);
        Ok(())
    }

    /// Makes the time durable that is kept. For a store that nothing expires in there is none.
    pub(crate) fn sync(&self) -> Result<()> {
        let Some((fs, path)) = &self.place else {
            return Ok(());
        };
        self.write(self.kept())?;
        let file = self.file.lock();
        let Some(open) = &*file else {
            return Ok(());
        };
        open.file.sync().map_err(|e| Error::io(path, "sync", e))?;
        let dir = path.parent().unwrap_or(path);
        fs.sync_dir(dir).map_err(|e| Error::io(dir, "sync", e))
    }
}

fn begin(fs: &dyn Fs, path: &Path) -> Result<TimeFile> {
    let path = path.with_extension("new");
    let file = fs
        .create(&path)
        .map_err(|e| Error::io(&path, "create", e))?;
    file.append(HEADER)
        .map_err(|e| Error::io(&path, "append", e))?;
    let len = HEADER.len() as u64;
    Ok(TimeFile { file, len })
}

fn record(time: Time, offset: u64) -> [u8; RECORD] {
    let bytes = time.to_le_bytes();
    let sum = xxh3_64_with_seed(&bytes, offset).to_le_bytes();
    let mut record = [0; RECORD];
    let (front, back) = record.split_at_mut(bytes.len());
    front.copy_from_slice(&bytes);
    back.copy_from_slice(&sum);
    record
}

/// The latest time in the file; 0 when there is none. What is not whole at its end was not finished.
fn read(fs: &dyn Fs, path: &Path) -> Result<Time> {
    if !fs.exists(path) {
        return Ok(0);
    }
    let io = |what, e| Error::io(path, what, e);
    let file = fs.open(path).map_err(|e| io("open", e))?;
    let len = file.len().map_err(|e| io("read the length of", e))?;
    let len = len.min(LONGEST + 2 * RECORD as u64);
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes).map_err(|e| io("read", e))?;
    let Some(records) = bytes.strip_prefix(HEADER) else {
        // A file of somebody else, or one that a power cut took the beginning of.
        return Ok(0);
    };
    let (mut time, mut bad) = (0, None);
    for (at, bytes) in records.chunks_exact(RECORD).enumerate() {
        let offset = (HEADER.len() + at * RECORD) as u64;
        let recorded = bytes
            .first_chunk()
            .map_or(0, |time| Time::from_le_bytes(*time));
        if *bytes != record(recorded, offset) {
            bad.get_or_insert(offset);
        } else if let Some(bad) = bad {
            // Not the end, so no record that was being written.
            return Err(Error::corruption(
                path,
                bad,
                "a record of the time is damaged",
            ));
        } else {
            time = time.max(recorded);
        }
    }
    Ok(time)
}

/// The time of a snapshot.
#[derive(Clone, Default)]
pub(crate) struct Horizon {
    pub(crate) now: Time,
    /// Who must know what was hidden.
    pub(crate) clock: Option<Arc<ExpiryClock>>,
}

impl Horizon {
    /// True when nobody sees what expires then.
    #[inline]
    pub(crate) fn hides(&self, expires: Time) -> bool {
        let hides = expires <= self.now;
        if hides && let Some(clock) = &self.clock {
            clock.act(expires);
        }
        hides
    }
}
