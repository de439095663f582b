//! The transfer of records: readers take parts of the source, writers put chunks of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};

use esker::{Durability, Error, Key, Result};
use esker_store::{Dataset, Records};

use super::items::{Item, Versions, newer};
use super::observer::{CopyObserver, CopyStep};
use super::stored::{Done, Stored};
use super::tracker::Tracker;

/// What is written is stored after this time, or after so many records.
const STORED_EVERY: Duration = Duration::from_secs(1);
const STORED_RECORDS: u64 = 1 << 14;
const POLL: Duration = Duration::from_millis(50);

/// Records that are to be put.
struct Chunk {
    part: u32,
    number: u64,
    items: Vec<Item>,
    behind: Done,
}

/// What a writer has done.
struct Written {
    part: u32,
    number: u64,
    records: u64,
    behind: Done,
}

/// A transfer.
pub(super) struct Transfer<'a> {
    pub(super) source: &'a dyn Records,
    pub(super) target: &'a dyn Dataset,
    pub(super) versions: Versions,
    pub(super) workers: usize,
    /// An earlier run may have put more records than it has noted.
    pub(super) is_resumed: bool,
}

impl Transfer<'_> {
    /// Copies what is not copied; false if the observer stopped it. `stored` is kept at the target
    /// as it grows.
    pub(super) fn run(&self, stored: &mut Stored, observer: &mut dyn CopyObserver) -> Result<bool> {
        let is_left = |part: &u32| stored.parts.get(part) != Some(&Done::All);
        let left = (0..self.source.parts()).filter(is_left);
        let left: VecDeque<_> = left
            .map(|part| (part, stored.parts.get(&part).cloned()))
            .collect();
        let readers = left.len().min(self.workers);
        let left = Mutex::new(left);
        let is_stopped = AtomicBool::new(false);
        let mut tracker = Tracker::new(stored.parts.clone());
        let (to_writers, chunks) = sync_channel::<Chunk>(2 * self.workers);
        let chunks = Mutex::new(chunks);
        let (to_main, written) = channel::<Result<Written>>();
        let done = scope(|threads| {
            for _ in 0..readers {
                let (to_writers, to_main) = (to_writers.clone(), to_main.clone());
                let (left, is_stopped) = (&left, &is_stopped);
                threads.spawn(move || {
                    let read = self.read(left, &to_writers, is_stopped);
                    if let Err(error) = read {
                        // The receiver outlives the threads.
                        let _ = to_main.send(Err(error));
                    }
                });
            }
            for _ in 0..self.workers {
                let (chunks, to_main, is_stopped) = (&chunks, to_main.clone(), &is_stopped);
                threads.spawn(move || self.write(chunks, &to_main, is_stopped));
            }
            drop((to_writers, to_main));
            let done = watch(
                &written,
                stored,
                &mut tracker,
                self.target,
                observer,
                || {
                    is_stopped.store(true, Ordering::Relaxed);
                },
            );
            is_stopped.store(true, Ordering::Relaxed);
            done
        });
        stored.parts = tracker.done;
        stored.write(self.target)?;
        done?;
        let is_all = |part| stored.parts.get(&part) == Some(&Done::All);
        Ok((0..self.source.parts()).all(is_all))
    }

    /// Reads parts until none is left.
    fn read(
        &self,
        left: &Mutex<VecDeque<(u32, Option<Done>)>>,
        to: &SyncSender<Chunk>,
        is_stopped: &AtomicBool,
    ) -> Result<()> {
        loop {
            let next = left
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            let Some((part, done)) = next else {
                return Ok(());
            };
            let behind = match &done {
                Some(Done::Before(mark)) => Some(mark.as_slice()),
                _ => None,
            };
            let mut records = self.source.part(part, behind)?;
            let mut check = Present {
                absent: if self.is_resumed && self.versions.0 > 1 {
                    0
                } else {
                    usize::MAX
                },
                enough: 2 * self.workers,
            };
            for number in 0.. {
                if is_stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let mut items = self.versions.chunk(self.source, &mut *records)?;
                let is_end = items.is_empty();
                check.take(self.target, self.versions, &mut items)?;
                let behind = if is_end {
                    Done::All
                } else {
                    Done::Before(records.mark())
                };
                let chunk = Chunk {
                    part,
                    number,
                    items,
                    behind,
                };
                // Writers end only after an error, which is reported.
                if to.send(chunk).is_err() || is_end {
                    break;
                }
            }
        }
    }

    /// Puts chunks until no reader is left.
    fn write(
        &self,
        chunks: &Mutex<Receiver<Chunk>>,
        to: &Sender<Result<Written>>,
        is_stopped: &AtomicBool,
    ) {
        loop {
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(chunk) = next else {
                return;
            };
            if is_stopped.load(Ordering::Relaxed) {
                // The readers' channel is emptied, so that none waits.
                continue;
            }
            let written = put(self.target, &chunk.items).map(|()| Written {
                part: chunk.part,
                number: chunk.number,
                records: chunk.items.len() as u64,
                behind: chunk.behind,
            });
            if written.is_err() {
                is_stopped.store(true, Ordering::Relaxed);
            }
            let _ = to.send(written);
        }
    }
}

/// Follows the writers until they end, and returns the first error.
fn watch(
    written: &Receiver<Result<Written>>,
    stored: &mut Stored,
    tracker: &mut Tracker,
    target: &dyn Dataset,
    observer: &mut dyn CopyObserver,
    stop: impl Fn(),
) -> Result<()> {
    let mut failed = None;
    let mut saved = (Instant::now(), stored.records);
    loop {
        match written.recv_timeout(POLL) {
            Ok(Ok(done)) => {
                tracker.written(done.part, done.number, done.behind);
                stored.records += done.records;
            }
            Ok(Err(error)) => {
                stop();
                failed.get_or_insert(error);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let is_due = stored.records.saturating_sub(saved.1) >= STORED_RECORDS
            || saved.0.elapsed() >= STORED_EVERY;
        if failed.is_none() && is_due {
            stored.parts.clone_from(&tracker.done);
            if let Err(error) = stored.write(target) {
                stop();
                failed.get_or_insert(error);
            }
            saved = (Instant::now(), stored.records);
        }
        observer.progress(CopyStep::Copying, stored.records);
        if observer.is_stopped() {
            stop();
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Puts records, older versions first, each in a commit before the next.
fn put(target: &dyn Dataset, items: &[Item]) -> Result<()> {
    put_anew(target, items, &[])
}

/// As [`put`], but the target forgets its versions of the keys in `cut`: they are deleted in the
/// commit of the oldest version, so that a reader finds a record at any time.
pub(super) fn put_anew(target: &dyn Dataset, items: &[Item], cut: &[Key]) -> Result<()> {
    let mut batch = target.batch();
    batch.durability(Durability::Periodic(Duration::from_secs(1)));
    for key in cut {
        batch.delete(key)?;
    }
    let most = items.iter().map(Vec::len).max().unwrap_or(0);
    for age in 0..most {
        for item in items {
            let Some(version) = item.iter().rev().nth(age) else {
                continue;
            };
            batch
                .put_json(version.json())
                .map_err(|error| match error {
                    Error::Record(_) | Error::BadInput(_) => {
                        let key = version.key();
                        Error::BadInput(format!(
                            "the target refuses the record of key {key}: {error}"
                        ))
                    }
                    other => other,
                })?;
        }
        batch.commit()?;
    }
    Ok(())
}

/// After a copy that was killed, the chunks behind what is stored may be at the target already.
/// Records are put again; but where several versions are kept, that would add versions.
struct Present {
    /// Chunks in a row of which nothing was at the target.
    absent: usize,
    /// After so many, none can follow that is.
    enough: usize,
}

impl Present {
    /// Leaves out of a chunk what is at the target.
    fn take(&mut self, target: &dyn Dataset, versions: Versions, items: &mut [Item]) -> Result<()> {
        if self.absent >= self.enough || items.is_empty() {
            return Ok(());
        }
        let key = |item: &Item| item.first().map(|record| record.key().clone());
        let keys: Vec<Key> = items.iter().filter_map(key).collect();
        let known = versions.of(target.records(), &keys)?;
        self.absent += 1;
        for (item, known) in items.iter_mut().zip(known) {
            if known.is_empty() {
                continue;
            }
            self.absent = 0;
            // Other versions than those of the source are mended after the comparison.
            if let Some(newer) = newer(item, &known, versions.0) {
                item.truncate(newer);
            }
        }
        Ok(())
    }
}
