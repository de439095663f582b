//! The clock of expiry.
//!
//! An entry may carry the time from which it is hidden ([`crate::Batch::put_until`]); from then on
//! its key reads as deleted. Reads apply this at the time of their snapshot; flushes and
//! compactions drop expired entries. The clock is the store's ([`crate::Options::clock`]), and it
//! may be wrong:
//!
//! - *It steps back*: nothing reappears. The store acts by a *kept* time that never decreases:
//!   within a handle it is only raised, and across handles it is on disk before a reader can
//!   observe an expiry. Manifest edits record the time by which compactions dropped; the time by
//!   which reads hide goes to the file `TIME`, at most once a millisecond.
//! - *It jumps forward*, by more than a day: it may be wrong, or the store was not used. Reads
//!   follow it, as they must if it is right. But nothing is dropped, and the kept time is not
//!   raised, until the jump is confirmed ([`crate::Group::confirm_time`]); so if it was wrong, and
//!   is corrected, everything is visible again.
//!
//! `TIME` is a header and records of 16 bytes, each a time and its checksum; the last complete
//! record counts. A killed process loses none of it, a power cut what was not synced; it is synced
//! when the store is closed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::entry::Time;
use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile};

/// Returns the time.
pub type Clock = dyn Fn() -> Time + Send + Sync;

/// A forward jump by more than this must be confirmed.
pub const LARGEST_JUMP: Time = 24 * 60 * 60 * 1000;

/// The name of the file.
const NAME: &str = "TIME";

const HEADER: &[u8; 16] = b"esker time 1\n\0\0\0";
const RECORD: usize = 16;

/// The length at which the file is rewritten.
const LONGEST: u64 = 64 << 10;

/// The clock by which a store expires entries.
pub(crate) struct ExpiryClock {
    clock: Arc<Clock>,
    /// The latest time that was, or may be, acted on; 0 before the first.
    kept: AtomicU64,
    /// The part of it that is on disk.
    written: AtomicU64,
    /// Where it is persisted; none in a read-only store.
    place: Option<(Arc<dyn Fs>, PathBuf)>,
    file: Mutex<Option<TimeFile>>,
}

struct TimeFile {
    file: Box<dyn WriteFile>,
    len: u64,
}

impl ExpiryClock {
    /// The clock of a store whose manifest holds the time `kept`. Reads `TIME`; damage is an error.
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

    /// The time for a read: never before a time that was acted on.
    pub(crate) fn read_time(&self) -> Time {
        let now = (self.clock)();
        self.advance(now).max(now)
    }

    /// The time up to which entries may be dropped.
    pub(crate) fn drop_time(&self) -> Time {
        self.advance((self.clock)())
    }

    /// Raises the kept time, unless `now` is too far ahead of it.
    fn advance(&self, now: Time) -> Time {
        let kept = self.kept.load(Ordering::Acquire);
        let is_believed = kept == 0 || now.saturating_sub(kept) <= LARGEST_JUMP;
        if now > kept && is_believed {
            self.kept.fetch_max(now, Ordering::AcqRel).max(now)
        } else {
            kept
        }
    }

    /// The kept time; 0 before its first use.
    pub(crate) fn kept(&self) -> Time {
        self.kept.load(Ordering::Acquire)
    }

    /// Raises the kept time to the one that the writing process has written since: for a reader
    /// beside it.
    pub(crate) fn refresh(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        self.keep(read(fs, &dir.join(NAME))?);
        Ok(())
    }

    /// Raises the kept time to one that another handle acted by.
    pub(crate) fn keep(&self, time: Time) {
        self.kept.fetch_max(time, Ordering::AcqRel);
    }

    /// The time of the clock, where it is ahead by an unconfirmed jump.
    pub(crate) fn unconfirmed(&self) -> Option<Time> {
        let now = (self.clock)();
        (self.advance(now) < now).then_some(now)
    }

    /// Confirms the clock's time, durably.
    pub(crate) fn confirm(&self) -> Result<()> {
        self.keep((self.clock)());
        self.sync()
    }

    /// Notes that a manifest edit with this time is durable.
    pub(crate) fn note_written(&self, time: Time) {
        self.written.fetch_max(time, Ordering::AcqRel);
    }

    /// Called before a read hides an entry that expires at `expires`: that time must be on disk. A
    /// failed write does not fail the read: the next read tries again.
    #[inline]
    fn act(&self, expires: Time) {
        // Not where the clock is ahead of the kept time: each read would try again.
        if expires > self.written.load(Ordering::Acquire) && expires <= self.kept() {
            let _ = self.write(expires);
        }
    }

    /// Persists the kept time, if it reaches `expires`.
    #[cold]
    fn write(&self, expires: Time) -> Result<()> {
        let Some((fs, path)) = &self.place else {
            return Ok(());
        };
        let mut file = self.file.lock();
        let kept = self.kept();
        // Beyond the kept time the clock is unconfirmed.
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

    /// Makes the kept time durable. A store in which nothing expires has none.
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

/// The latest time in the file; 0 when there is none. An incomplete record at the end is ignored.
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
        // A foreign file, or one whose header was lost in a power cut.
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
            // Not at the end, so not an incomplete write.
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

/// The expiry time of a snapshot.
#[derive(Clone, Default)]
pub(crate) struct Horizon {
    pub(crate) now: Time,
    /// The clock that must persist the times of hidden entries.
    pub(crate) clock: Option<Arc<ExpiryClock>>,
}

impl Horizon {
    /// True when an entry that expires at `expires` is hidden.
    #[inline]
    pub(crate) fn hides(&self, expires: Time) -> bool {
        let hides = expires <= self.now;
        if hides && let Some(clock) = &self.clock {
            clock.act(expires);
        }
        hides
    }
}
