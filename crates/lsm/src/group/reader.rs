//! Reading a store beside the process that writes it: no lock, no file of the store written, and the writer does not know.
//!
//! A reader does what opening does, and then goes on where the files end: with the edits that the manifest has got, and
//! with the batches that the log has got. What it keeps of them ([`Reader`]) is behind one lock, which only those
//! take who [refresh](Group::refresh); reads go on with the view as ever.
//!
//! *What is visible.* A batch is in the log before it is acknowledged. The log says of each whether its writer waits for a
//! sync, and the writer's process puts a mark behind each sync, in the segment that was the newest when the sync began. So a batch is taken as soon as it is in the log, unless one
//! before it (or it itself) waits for a sync that no mark tells of; those wait here as well, as they do there. An edit of the manifest
//! counts once it is marked. Where nobody has the store open for writing all is taken that an opening would take.
//!
//! *What goes away.* The writer removes files when it does not need them any more. A reader opens the files of all tables
//! of its version, so that it can read them afterwards; the memtables of a segment are its own. Where a file is gone
//! before it was opened, the manifest says more by then, and the reader looks again.
//!
//! *From segment to segment.* The last record of a segment names the one that may come next, and that says at which place it
//! goes on: it does when that is where this reader is. When there is another manifest the writer may be another, and
//! the folder is searched for the segment that goes on here. Where the log was flushed before it was read, the version has
//! its writes, and reading goes on with the first segment that is needed beside it.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::open::{open_reader, recover_beside};
use super::recover::{Recovery, apply_batch, segment_number};
use super::{Group, Inner};
use crate::batch::decode;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::version::{
    ClosedSegment, Current, Recovered, TableSource, Version, is_written, log_path, recover,
};
use crate::wal::{Follower, LogKind, Record};

/// So often a refresh looks again when a file has gone away, or is in the midst of being written.
const TRIES: u32 = 12;

/// How long a tail of a reader waits before it looks again.
pub(super) const POLL: Duration = Duration::from_millis(5);

/// How far a reader has followed the writer.
pub(super) struct Reader {
    recovered: Recovered,
    manifest: Follower,
    /// The version has changed since it was last shown.
    changed: bool,
    /// The segment that is being read, and its number. It cannot be read where a power cut took its header.
    log: Option<Follower>,
    segment: u64,
    /// The last write before the segment's first, and the last one that was read.
    after: Seq,
    last: Seq,
    /// The segment that may come next, and whether to search for it.
    next: Option<u64>,
    search: bool,
    waiting: Waiting,
    /// The last write that is acknowledged.
    applied: Seq,
    /// Memtables of what is not in the version's tables, newest first; the first is that of the segment.
    generations: Vec<Arc<Generation>>,
    /// The segments before.
    closed: Vec<ClosedSegment>,
}

/// Batches that are in the log and may not be acknowledged yet.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<Waits>);

struct Waits {
    generation: Arc<Generation>,
    segment: u64,
    offset: u64,
    last: Seq,
    /// Its writer waits for a sync.
    demanded: bool,
    payload: Vec<u8>,
}

impl Waiting {
    /// True when a batch waits whose writes go to this generation.
    pub(super) fn has(&self, generation: &Arc<Generation>) -> bool {
        let mut waiting = self.0.iter();
        waiting.any(|waits| Arc::ptr_eq(&waits.generation, generation))
    }

    /// Takes a record of `segment` that begins at `offset`, whose writes go to `generation`, and gives `apply` those
    /// that are known to be acknowledged with it. What is written up to `durable` is durable. Returns the record's last write.
    pub(super) fn take(
        &mut self,
        source: &TableSource,
        (segment, offset): (u64, u64),
        record: Record<'_>,
        durable: Seq,
        generation: &Arc<Generation>,
        apply: &mut Apply<'_>,
    ) -> Result<Option<Seq>> {
        match record {
            Record::Data { payload, demanded } => {
                let last = decode(payload, |_| ()).ok_or_else(|| {
                    Error::corruption(&log_path(&source.dir, segment), offset, "malformed batch")
                })?;
                let demanded = demanded && last > durable;
                match demanded || !self.0.is_empty() {
                    true => self.0.push_back(Waits {
                        generation: generation.clone(),
                        segment,
                        offset,
                        last,
                        demanded,
                        payload: payload.to_vec(),
                    }),
                    false => drop(apply(generation, payload, (segment, offset))?),
                }
                Ok(Some(last))
            }
            Record::Mark { durable } => {
                let covers = |waits: &Waits| (waits.segment, waits.offset) < (segment, durable);
                self.release(covers, apply)?;
                Ok(None)
            }
            Record::Next { .. } => Ok(None),
        }
    }

    /// Gives `apply` the batches at the front that `is_durable` says of that they are, and those between that only wait for others.
    fn release(
        &mut self,
        is_durable: impl Fn(&Waits) -> bool,
        apply: &mut Apply<'_>,
    ) -> Result<()> {
        while let Some(first) = self.0.front()
            && (!first.demanded || is_durable(first))
        {
            apply(
                &first.generation,
                &first.payload,
                (first.segment, first.offset),
            )?;
            self.0.pop_front();
        }
        Ok(())
    }

    /// Forgets those of a segment that is no part of the log.
    pub(super) fn forget(&mut self, segment: u64) {
        self.0.retain(|waits| waits.segment != segment);
    }
}

/// Applies a batch to its generation, by its place in the log; returns its last sequence number.
pub(super) type Apply<'a> = dyn FnMut(&Arc<Generation>, &[u8], (u64, u64)) -> Result<Seq> + 'a;

impl Group {
    /// Opens the group in `dir` to read it beside the process that writes it (or without one). It sees what is there
    /// now; [`Group::refresh`] takes over what was written since, and so does a [tail](Group::tail) that has given
    /// everything. Writes are refused with [`Error::ReadOnly`]. Takes no lock, and writes no file of the store.
    ///
    /// The files of all tables are kept open. Costs time in proportion to the trees and tables, and what is not flushed.
    ///
    /// # Errors
    /// As [`Group::open`], but for [`Error::Locked`].
    pub fn open_reader(
        dir: &Path,
        options: crate::Options,
        provider: Arc<dyn crate::TreeProvider>,
    ) -> Result<Group> {
        let inner = open_reader(dir, options, provider)?;
        let group = Group::new(inner);
        group.refresh()?;
        Ok(group)
    }

    /// True when the group was opened with [`Group::open_reader`].
    pub fn is_reader(&self) -> bool {
        self.inner.reader.is_some()
    }

    /// Of a group that was opened to read beside the writer: takes over what is acknowledged there by now. Snapshots from
    /// then on see it. Costs time in proportion to what was written since (and to the number of tables, where tables have changed).
    /// Does nothing where the group itself is the writer.
    ///
    /// # Errors
    /// [`Error::OtherHistory`] when another store is in the place of this one. Damage, and what reading fails with; what
    /// was taken over before stays as it is.
    pub fn refresh(&self) -> Result<()> {
        self.inner.refresh()
    }
}

/// Does what may fail when files go away meanwhile, or are just being written, until it succeeds or has failed too often.
pub(super) fn with_patience<T>(mut work: impl FnMut(u32) -> Result<T>) -> Result<T> {
    for time in 0..TRIES {
        match work(time) {
            Err(error) if may_pass(&error) => {
                // Nothing for the first times: it is a race that another look wins.
                let pause = Duration::from_millis(u64::from(time.saturating_sub(2)));
                std::thread::sleep(pause);
            }
            done => return done,
        }
    }
    work(TRIES)
}

/// What becomes of a table that is not there: when it still is not after many looks, it is missing, which is an error
/// of the reads that need it.
pub(super) fn gone(error: Error, time: u32) -> Result<()> {
    match time < TRIES {
        true => Err(error),
        false => Ok(()),
    }
}

/// True for an error that may come from looking while somebody writes.
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
    /// Goes on from what an opening has found.
    pub(super) fn new(
        source: &TableSource,
        recovered: Recovered,
        recovery: Recovery,
    ) -> Result<Reader> {
        let manifest = recovered.follow(source)?;
        let open = |(segment, offset)| open_segment(source, segment, offset);
        let log = recovery.end().map(open).transpose()?;
        let segment = recovery.end().map_or(recovered.log, |(segment, _)| segment);
        let mut closed = recovery.closed;
        // The one that is read is not over.
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
            log,
            segment,
            after: current.map_or(recovery.last_seq, |current| current.after),
            last: recovery.last_seq,
            next: None,
            search: true,
            waiting: recovery.waiting.unwrap_or_default(),
            applied: recovery.applied,
            generations,
            closed,
            recovered,
        })
    }

    /// What the manifest said when it was read last.
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

    /// What is to be seen now.
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
        }
    }

    /// The last write that is acknowledged, as far as this reader knows.
    pub(super) fn visible(&self) -> Seq {
        self.applied.max(self.recovered.last_seq)
    }

    /// The segments that are there to be read again, oldest first.
    pub(super) fn segments(&self) -> Vec<ClosedSegment> {
        let kept = self.recovered.order.kept.iter();
        let first = self.recovered.log;
        let kept = kept.filter(|kept| kept.number < first);
        let current = self.here().map(|here| self.part(here));
        let read = self.closed.iter().filter(|closed| closed.number >= first);
        kept.chain(read).copied().chain(current).collect()
    }

    /// Where reading has got to: the segment, and the place in it.
    fn here(&self) -> Option<(u64, u64)> {
        let log = self.log.as_ref()?;
        Some((self.segment, log.end()))
    }

    /// What was read of the segment.
    fn part(&self, (number, len): (u64, u64)) -> ClosedSegment {
        ClosedSegment {
            number,
            after: self.after,
            last: self.last,
            len,
            ended: 0,
        }
    }

    /// Takes over what the manifest says by now. True when that is more than before.
    fn follow_manifest(&mut self, inner: &Inner, time: u32) -> Result<bool> {
        let options = |name: &str, config: &[u8]| inner.core.provider.tree_options(name, config);
        let source = &inner.core.source;
        let current = Current::read(&*source.fs, &source.dir)?;
        let mut more = false;
        if current.manifest != self.recovered.current.manifest {
            let mut recovered = recover(source, &options, true)?;
            inner.check_history(recovered.order.history)?;
            let manifest = recovered.follow(source)?;
            recovered
                .version
                .succeed(&inner.versions.view.load().version);
            (self.recovered, self.manifest) = (recovered, manifest);
            (more, self.search) = (true, true);
        }
        self.recovered.current = current.clone();
        let is_over = || is_over(source, &current);
        let recovered = &mut self.recovered;
        more |= recovered.go_on(&mut self.manifest, source, &options, is_over)?;
        self.changed |= more;
        if self.changed {
            let held = self.recovered.version.hold_files();
            held.or_else(|error| gone(error, time))?;
            let shown = inner.versions.view.load().version.clone();
            self.recovered.version.follow_bitmaps(&shown);
        }
        Ok(more)
    }

    /// Takes over what is in the log by now.
    fn follow_log(&mut self, inner: &Inner) -> Result<()> {
        let source = &inner.core.source;
        loop {
            self.read_segment(inner)?;
            if let Some(next) = self.successor(source)? {
                let part = self.here().map(|here| self.part(here));
                self.closed.extend(part);
                self.begin(next, self.last);
            } else if self.segment < self.recovered.log {
                // It was flushed, and is gone, before it was read to its end. All that waited is in tables as well.
                let next = open_segment(source, self.recovered.log, 0)?;
                self.waiting = Waiting::default();
                self.closed.clear();
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
        (self.next, self.search) = (None, false);
    }

    fn read_segment(&mut self, inner: &Inner) -> Result<()> {
        let source = &inner.core.source;
        let (Some(log), Some(generation)) = (&mut self.log, self.generations.first()) else {
            return Ok(());
        };
        let recovered = &self.recovered;
        let durable = recovered.synced.max(recovered.last_seq);
        let applied = &mut self.applied;
        let mut apply = |generation: &Arc<Generation>, payload: &[u8], at: (u64, u64)| {
            let last = apply_batch(source, recovered, generation, payload, at)?;
            *applied = last.max(*applied);
            Ok(last)
        };
        let (waiting, next) = (&mut self.waiting, &mut self.next);
        loop {
            let at = (self.segment, log.offset());
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
            self.search &= last.is_none();
        }
        waiting.release(|waits| waits.last <= durable, &mut apply)?;
        // A sync that was under way when the log went on in another segment is marked behind the end of the one before.
        let of_waiting = waiting.0.front().map(|waits| waits.segment);
        let closed = self.closed.iter();
        for closed in closed.filter(|closed| of_waiting.is_some_and(|first| first <= closed.number))
        {
            let mut behind = match open_segment(source, closed.number, closed.len) {
                Ok(behind) => behind,
                // It was flushed: the manifest tells of it.
                Err(error) if may_pass(&error) => continue,
                Err(error) => return Err(error),
            };
            let mut mark = || {
                let at = (closed.number, behind.offset());
                behind.next_written(|record| match record {
                    Record::Mark { .. } => waiting
                        .take(source, at, record, durable, generation, &mut apply)
                        .map(Some),
                    _ => Ok(None),
                })
            };
            while mark()?.is_some() {}
        }
        if !waiting.0.is_empty() && is_over(source, &recovered.current) {
            waiting.release(|_| true, &mut apply)?;
        }
        Ok(())
    }

    /// The segment that goes on where this one has ended.
    fn successor(&self, source: &TableSource) -> Result<Option<Follower>> {
        let here = self.here();
        let mut numbers: Vec<u64> = self.next.into_iter().collect();
        if self.search {
            let names = source.fs.list(&source.dir);
            let names = names.map_err(|e| Error::io(&source.dir, "list", e))?;
            let found = names.iter().filter_map(|name| segment_number(name));
            numbers.extend(found.filter(|number| *number > self.segment));
        }
        for number in numbers {
            match open_segment(source, number, 0) {
                Ok(next) if next.header().previous == here => return Ok(Some(next)),
                Ok(_) => {}
                // Not made yet, or flushed and removed already.
                Err(error) if may_pass(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// True when who wrote that manifest is gone, so that nobody waits for a sync: what was read before this is asked is what an
/// opening would find.
pub(super) fn is_over(source: &TableSource, current: &Current) -> bool {
    current.seal.is_some() || !is_written(source, current.manifest).unwrap_or(true)
}

fn open_segment(source: &TableSource, number: u64, offset: u64) -> Result<Follower> {
    let path = log_path(&source.dir, number);
    Follower::open(&*source.fs, &path, LogKind::Wal, number, offset)
}

/// The memtables of a segment.
fn begin(after: Seq, segment: u64) -> Arc<Generation> {
    let generation = Generation::new(after);
    generation.set_log(segment);
    generation
}

impl Inner {
    /// Takes over what was written since, in a reader beside the writer.
    pub(super) fn refresh(&self) -> Result<()> {
        let Some(reader) = &self.reader else {
            return Ok(());
        };
        self.core.check_open()?;
        let mut reader = reader.lock();
        with_patience(|time| {
            // Where following does not succeed, an opening might.
            if time > TRIES / 2 {
                *reader = self.reopen()?;
            }
            // A segment may have been made, flushed and removed after the manifest was read: then that says more by now.
            reader.follow_manifest(self, time)?;
            loop {
                reader.follow_log(self)?;
                if !reader.follow_manifest(self, time)? {
                    return Ok(());
                }
            }
        })?;
        self.show(&mut reader);
        Ok(())
    }

    /// What an opening finds now.
    fn reopen(&self) -> Result<Reader> {
        let shown = self.sequencer.visible();
        let (mut recovered, recovery) =
            recover_beside(&self.core.source, &*self.core.provider, shown)?;
        self.check_history(recovered.order.history)?;
        recovered
            .version
            .succeed(&self.versions.view.load().version);
        Reader::new(&self.core.source, recovered, recovery)
    }

    /// Lets snapshots see what was taken over.
    fn show(&self, reader: &mut Reader) {
        let shown = self.versions.view.load_full();
        let newest = reader.generations.first();
        let is_new = newest.is_some_and(|newest| !Arc::ptr_eq(newest, &shown.active));
        if reader.changed || is_new {
            // What was dropped by then must not be looked for in what is left.
            self.core.clock.keep(reader.recovered.time);
            let view = reader.view();
            self.change_view(|_| view);
            reader.changed = false;
            let mut versions = self.versions.manifest.lock();
            let recovered = &reader.recovered;
            (versions.log, versions.last_seq) = (recovered.log, recovered.last_seq);
            versions.next_tree = recovered.next_tree;
            self.set_history(recovered.order.history);
            versions.order = recovered.order.clone();
        }
        *self.sequencer.log.closed.lock() = reader.segments();
        self.sequencer.publish(reader.visible());
    }

    fn check_history(&self, found: u64) -> Result<()> {
        let here = self.sequencer.history.load(Ordering::Acquire);
        let known = self.versions.manifest.lock().order.history;
        match found != here && found != 0 && known != 0 {
            true => Err(Error::OtherHistory {
                position: self.sequencer.position_of(self.sequencer.visible()),
                current: crate::Position {
                    history: found,
                    seq: 0,
                },
            }),
            false => Ok(()),
        }
    }

    /// A store that was written by older versions only has none.
    fn set_history(&self, history: u64) {
        if history != 0 {
            self.sequencer.history.store(history, Ordering::Release);
        }
    }
}
