//! Read-only groups: reading a store beside the process that writes it, without a lock, without
//! writing any of its files, and unnoticed by the writer.
//!
//! A reader does the same as an opening, and then continues where the files ended: with the edits
//! appended to the manifest, and with the batches appended to the log. Its progress ([`Reader`]) is
//! behind one lock, which only a [refresh] takes; reads use the view as ever.
//!
//! *Visibility.* A batch is in the log before it is acknowledged. The log says for each batch
//! whether its writer waits for a sync, and the writing process appends a sync marker after each
//! sync, in the segment that was the newest when the sync began. So a batch is applied as soon as
//! it is in the log, unless it or one before it waits for a sync that no marker confirms; those
//! wait here, too. An edit of the manifest is applied once it is marked. Where no process has the
//! store open for writing, the reader applies everything that an opening would.
//!
//! *Removed files.* The writer removes files that it no longer needs. A reader opens the files of
//! all tables of its version, so that it can read them afterwards; the memtables of a segment are
//! its own. Where a file is missing before it was opened, the manifest has newer edits by
//! then, and the reader retries.
//!
//! *Next segment.* The last record of a segment names the possible successor, whose header says
//! where it continues: it is the successor if that is the reader's position. When there is another
//! manifest the writer may be another, too, and the folder is searched for the successor. Where the
//! log was flushed before it was read, the version has its writes, and reading continues with the
//! first segment that is needed beside it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::Core;
use super::pending::{LogPlace, PendingBatches, apply_batch};
use super::recover::{Recovery, recover_beside, segment_number, writer_is_gone};
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::entry::{MAX_SEQ, Seq};
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::version::{ClosedSegment, Current, Recovered, TableSource, Version, log_path, recover};
use crate::wal::{Follower, LogFormat, Record};

/// The retries of a refresh when a file is missing, or is being written.
const TRIES: u32 = 12;

/// The progress of a reader behind the writer.
pub(super) struct Reader {
    recovered: Recovered,
    manifest: Follower,
    /// The version has changed since the last published view.
    changed: bool,
    /// The last refresh failed, so the next one begins with a new opening: it is unknown how far
    /// each of the fields has come.
    has_failed: bool,
    /// The segment being read, and its number. It cannot be read where a power cut lost its header.
    log: Option<Follower>,
    segment: u64,
    /// The last write before the segment's first, and the last write read.
    after: Seq,
    last: Seq,
    /// Where the segments before it ended from the last one with writes on: as long as it has none,
    /// its successor may continue from there, too. (A writer whose first write fails leaves such a
    /// segment.)
    ends: Vec<(u64, u64)>,
    /// The possible successor, and whether to search for it.
    next: Option<u64>,
    search: bool,
    /// The manifest is another one than at the end of the last refresh. So what this one reads may
    /// be of the writer before, whose segment does not name the one that continues it.
    is_other: bool,
    waiting: PendingBatches,
    /// The last acknowledged write.
    applied: Seq,
    /// Memtables of writes that are not in the version's tables, newest first; the first is that of
    /// the segment.
    generations: Vec<Arc<Generation>>,
    /// The earlier segments.
    closed: Vec<ClosedSegment>,
}

/// Retries work that may fail when files are removed or written meanwhile, up to a limit.
pub(super) fn with_retries<T>(mut work: impl FnMut(u32) -> Result<T>) -> Result<T> {
    for time in 0..TRIES {
        match work(time) {
            Err(error) if may_pass(&error) => {
                // No pause for the first retries: they resolve a race.
                let pause = Duration::from_millis(u64::from(time.saturating_sub(2)));
                std::thread::sleep(pause);
            }
            done => return done,
        }
    }
    work(TRIES)
}

/// Handles a missing table: after many retries it is considered lost, which is an error of the
/// reads that need it.
pub(super) fn tolerate_missing(error: Error, time: u32) -> Result<()> {
    if time < TRIES { Err(error) } else { Ok(()) }
}

/// True for an error that a concurrent writer may cause.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => {
            matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::UnexpectedEof
            )
        }
        error => error.is_damage(),
    }
}

impl Reader {
    /// Starts from the state that an opening has found.
    pub(super) fn new(
        source: &TableSource,
        mut recovered: Recovered,
        recovery: Recovery,
    ) -> Result<Reader> {
        let manifest = recovered.follow(source)?;
        let open = |(segment, offset)| open_segment(source, segment, offset);
        let log = recovery.end().map(open).transpose()?;
        let segment = recovery.end().map_or(recovered.log, |(segment, _)| segment);
        let mut ends = recovery.ends;
        ends.pop();
        let mut closed = recovery.closed;
        // The segment being read is not closed.
        let current = closed.pop_if(|closed| closed.number == segment);
        let mut generations = recovery.generations;
        generations.reverse();
        let newest = generations.first();
        if newest.is_none_or(|newest| newest.log() != Some(segment)) {
            generations.insert(0, begin(recovery.last_seq, segment));
        }
        Ok(Reader {
            manifest,
            changed: true,
            has_failed: false,
            log,
            segment,
            after: current.map_or(recovery.last_seq, |current| current.after),
            last: recovery.last_seq,
            ends,
            next: None,
            search: true,
            is_other: false,
            waiting: recovery.waiting.unwrap_or_default(),
            applied: recovery.applied,
            generations,
            closed,
            recovered,
        })
    }

    /// The manifest as last read.
    pub(super) fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The first view.
    pub(super) fn first_view(&mut self) -> View {
        let mut version = std::mem::take(&mut self.recovered.version);
        version.follow_bitmaps(&Version::default());
        self.recovered.version = version;
        self.view()
    }

    /// The current view.
    fn view(&mut self) -> View {
        let mut version = self.recovered.version.clone();
        version.set_flushed(self.recovered.last_seq);
        let needed = self.recovered.log;
        let segment = self.segment;
        let is_needed = |log: u64| log >= needed || log == segment;
        self.generations
            .retain(|generation| generation.log().is_some_and(is_needed));
        let newest = self.generations.first().cloned();
        View {
            active: newest.unwrap_or_else(|| begin(self.last, segment)),
            full: self.generations.iter().skip(1).cloned().collect(),
            version: Arc::new(version),
            // The installation of the view replaces this by the group's.
            closed: Arc::default(),
        }
    }

    /// The last acknowledged write, as known to this reader.
    pub(super) fn visible(&self) -> Seq {
        self.applied.max(self.recovered.last_seq)
    }

    /// The segments that can be read again, oldest first.
    pub(super) fn segments(&self) -> Vec<ClosedSegment> {
        let kept = self.recovered.order.kept.iter();
        let first = self.recovered.log;
        let kept = kept.filter(|kept| kept.number < first);
        let current = self.here().map(|(number, len)| self.part(number, len));
        let read = self.closed.iter().filter(|closed| closed.number >= first);
        kept.chain(read).copied().chain(current).collect()
    }

    /// The reader's position: the segment, and the offset in it.
    fn here(&self) -> Option<(u64, u64)> {
        let log = self.log.as_ref()?;
        Some((self.segment, log.end()))
    }

    /// The part of the segment that was read.
    fn part(&self, number: u64, len: u64) -> ClosedSegment {
        ClosedSegment {
            number,
            after: self.after,
            last: self.last,
            len,
            ended: 0,
        }
    }

    /// Applies new edits of the manifest. True when there were any.
    fn follow_manifest(
        &mut self,
        sequencer: &Sequencer,
        versions: &VersionSet,
        time: u32,
    ) -> Result<bool> {
        let core = &*sequencer.core;
        let options = |name: &str, config: &[u8]| core.provider.tree_options(name, config);
        let source = &core.source;
        let current = Current::read(&*source.fs, &source.dir)?;
        let mut more = false;
        if current.manifest != self.recovered.current.manifest {
            let mut recovered = recover(source, &options, true)?;
            check_history(sequencer, versions, recovered.order.history)?;
            let manifest = recovered.follow(source)?;
            recovered.version.succeed(&versions.view.load().version);
            (self.recovered, self.manifest) = (recovered, manifest);
            (more, self.search, self.is_other) = (true, true, true);
        }
        self.recovered.current = current.clone();
        let writer_is_gone = || writer_is_gone(source, &current);
        // Also where a later read fails, which the next attempt may find to be the last one.
        self.changed |= more;
        let recovered = &mut self.recovered;
        let before = recovered.version.ordinal();
        let went_on = recovered.go_on(&mut self.manifest, source, &options, writer_is_gone);
        more |= recovered.version.ordinal() != before;
        self.changed |= more;
        went_on?;
        if self.changed {
            let held = self.recovered.version.hold_files();
            held.or_else(|error| tolerate_missing(error, time))?;
            let shown = versions.view.load().version.clone();
            self.recovered.version.follow_bitmaps(&shown);
        }
        Ok(more)
    }

    /// Applies new batches of the log.
    fn follow_log(&mut self, source: &TableSource) -> Result<()> {
        loop {
            self.read_segment(source)?;
            if let Some(next) = self.successor(source)? {
                let part = self.here().map(|(number, len)| self.part(number, len));
                self.closed.extend(part);
                if self.last > self.after {
                    self.ends.clear();
                }
                self.ends.extend(self.here());
                self.begin(next, self.last);
            } else if self.segment < self.recovered.log {
                // The segment was flushed and removed before it was read to its end. All waiting
                // batches are in tables.
                let next = open_segment(source, self.recovered.log, 0)?;
                self.waiting = PendingBatches::default();
                self.closed.clear();
                self.ends.clear();
                self.begin(next, self.recovered.last_seq);
            } else {
                break;
            }
        }
        let first = self.recovered.log;
        self.closed.retain(|closed| closed.number >= first);
        Ok(())
    }

    fn begin(&mut self, next: Follower, after: Seq) {
        let number = next.header().number;
        self.generations.insert(0, begin(after, number));
        (self.log, self.segment) = (Some(next), number);
        (self.after, self.last) = (after, after.max(self.last));
        (self.next, self.search) = (None, self.is_other);
    }

    fn read_segment(&mut self, source: &TableSource) -> Result<()> {
        let (Some(log), Some(generation)) = (&mut self.log, self.generations.first()) else {
            return Ok(());
        };
        let recovered = &self.recovered;
        let durable = recovered.synced.max(recovered.last_seq);
        let applied = &mut self.applied;
        let mut apply = |generation: &Arc<Generation>, payload: &[u8], at: LogPlace| {
            let last = apply_batch(source, recovered, generation, payload, at)?;
            *applied = last.max(*applied);
            Ok(last)
        };
        let (waiting, next) = (&mut self.waiting, &mut self.next);
        loop {
            let at = LogPlace {
                segment: self.segment,
                offset: log.offset(),
            };
            let took = log.next_written(|record| {
                if let Record::Next { number } = record {
                    *next = Some(number);
                }
                let last = waiting.take(source, at, record, durable, generation, &mut apply)?;
                Ok(Some(last))
            })?;
            let Some(last) = took else {
                break;
            };
            self.last = self.last.max(last.unwrap_or(0));
            self.search &= last.is_none() || self.is_other;
        }
        waiting.release_upto(durable, &mut apply)?;
        // A sync that was running when the log moved on to another segment is marked at the end of
        // the earlier one.
        let of_waiting = waiting.first_segment();
        let closed = self.closed.iter();
        for closed in closed.filter(|closed| of_waiting.is_some_and(|first| first <= closed.number))
        {
            let mut behind = match open_segment(source, closed.number, closed.len) {
                Ok(behind) => behind,
                // The segment was flushed: the manifest records it.
                Err(error) if may_pass(&error) => continue,
                Err(error) => return Err(error),
            };
            let mut mark = || {
                let at = LogPlace {
                    segment: closed.number,
                    offset: behind.offset(),
                };
                behind.next_written(|record| match record {
                    Record::Mark { .. } => waiting
                        .take(source, at, record, durable, generation, &mut apply)
                        .map(Some),
                    _ => Ok(None),
                })
            };
            while mark()?.is_some() {}
        }
        if waiting.first_segment().is_some() && writer_is_gone(source, &recovered.current) {
            waiting.release_upto(MAX_SEQ, &mut apply)?;
        }
        Ok(())
    }

    /// The segment that continues this one.
    fn successor(&self, source: &TableSource) -> Result<Option<Follower>> {
        let is_empty = self.last == self.after;
        let continues = |place: Option<(u64, u64)>| {
            place == self.here()
                || is_empty && place.is_some_and(|place| self.ends.contains(&place))
        };
        let mut numbers: Vec<u64> = self.next.into_iter().collect();
        if self.search {
            let names = source.fs.list(&source.dir);
            let names = names.map_err(|e| Error::io(&source.dir, "list", e))?;
            let found = names.iter().filter_map(|name| segment_number(name));
            numbers.extend(found.filter(|number| *number > self.segment));
        }
        for number in numbers {
            match open_segment(source, number, 0) {
                Ok(next) if continues(next.header().previous) => return Ok(Some(next)),
                Ok(_) => {}
                // Not created yet, or flushed and removed already.
                Err(error) if may_pass(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

fn open_segment(source: &TableSource, number: u64, offset: u64) -> Result<Follower> {
    let path = log_path(&source.dir, number);
    Follower::open(&*source.fs, &path, LogFormat::WAL, number, offset)
}

/// A generation for a segment.
fn begin(after: Seq, segment: u64) -> Arc<Generation> {
    let generation = Generation::new(after);
    generation.set_log(segment);
    generation
}

/// Catches up with the writer, in a read-only group.
pub(super) fn refresh(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    reader: &mut Reader,
) -> Result<()> {
    let core = &*sequencer.core;
    let followed = with_retries(|time| {
        // Where following fails, a new opening may succeed. If that fails, the reader is unchanged.
        if time > TRIES / 2 || reader.has_failed {
            *reader = reopen(sequencer, versions)?;
        }
        // A segment may have been created, flushed and removed after the manifest was read: then
        // the manifest has a newer edit.
        reader.follow_manifest(sequencer, versions, time)?;
        loop {
            reader.follow_log(&core.source)?;
            if !reader.follow_manifest(sequencer, versions, time)? {
                return Ok(());
            }
        }
    });
    reader.has_failed = followed.is_err();
    followed?;
    reader.is_other = false;
    show(sequencer, versions, scheduler, reader);
    refresh_time(core, versions)
}

/// What the writer has shown as expired stays so here, though this process's clock may be behind.
fn refresh_time(core: &Core, versions: &VersionSet) -> Result<()> {
    if !versions.view.load().is_timed() {
        return Ok(());
    }
    let source = &core.source;
    // Its end may be in the middle of being written.
    with_retries(|_| core.clock.refresh(&*source.fs, &source.dir))
}

/// Opens the store anew.
fn reopen(sequencer: &Sequencer, versions: &VersionSet) -> Result<Reader> {
    let core = &*sequencer.core;
    let shown = sequencer.visible();
    let (mut recovered, recovery) = recover_beside(&core.source, &*core.provider, shown)?;
    check_history(sequencer, versions, recovered.order.history)?;
    recovered.version.succeed(&versions.view.load().version);
    Reader::new(&core.source, recovered, recovery)
}

/// Publishes the current state to snapshots.
fn show(sequencer: &Sequencer, versions: &VersionSet, scheduler: &Scheduler, reader: &mut Reader) {
    let core = &*sequencer.core;
    let shown = versions.view.load_full();
    let newest = reader.generations.first();
    let is_new = newest.is_some_and(|newest| !Arc::ptr_eq(newest, &shown.active));
    let is_changed = reader.changed || is_new;
    if is_changed {
        // Entries dropped as expired by then must stay hidden in the rest.
        core.clock.keep(reader.recovered.time);
        let view = reader.view();
        versions.change(scheduler, |_| view);
        reader.changed = false;
        let mut locked = versions.manifest.lock();
        let recovered = &reader.recovered;
        (locked.log, locked.last_seq) = (recovered.log, recovered.last_seq);
        locked.next_tree = recovered.next_tree;
        set_history(sequencer, recovered.order.history);
        locked.order = recovered.order.clone();
    }
    *sequencer.log.closed.lock() = reader.segments();
    let visible = reader.visible();
    // Those who listen are called for news only: this is done again and again.
    let is_news = is_changed || visible > sequencer.visible();
    if is_news {
        sequencer.publish(visible);
    }
}

fn check_history(sequencer: &Sequencer, versions: &VersionSet, found: u64) -> Result<()> {
    let here = sequencer.history.load(Ordering::Acquire);
    let known = versions.manifest.lock().order.history;
    if found != here && found != 0 && known != 0 {
        Err(Error::OtherHistory {
            position: sequencer.position_of(sequencer.visible()),
            current: crate::Position {
                history: found,
                seq: 0,
            },
        })
    } else {
        Ok(())
    }
}

/// A store written only by older versions has no history.
fn set_history(sequencer: &Sequencer, history: u64) {
    if history != 0 {
        sequencer.history.store(history, Ordering::Release);
    }
}
