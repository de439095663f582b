//! Consumers of the log: those that it is retained for by name, across restarts. The
//! writer or a process that reads beside it notes their places. What is on disk, and why nothing
//! that a consumer waits for is removed, is in `version/consumers.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Core;
use super::inner::Inner;
use super::manifest::record_order;
use super::order::{change_order, check_position, drop_segments, supersede};
use super::rotate::start_writing;
use super::sequencer::Sequencer;
use super::tail::Tail;
use super::taken::Taken;
use super::version_set::{VersionSet, Versions};
use super::{Group, Internals};
use crate::batch::check_limit;
use crate::entry::{Position, Seq};
use crate::error::{Error, Result};
use crate::fs::Lock;
use crate::read::Snapshot;
use crate::stop::Stop;
use crate::version::{ClosedSegment, ConsumerPlace, ConsumerPlaces, Order, TableSource, log_path};
use crate::wal::{LogFormat, LogWriter, rest_hash};

/// The longest name of a consumer of the log, in bytes. Longer than 255, the limit of earlier
/// versions, by what a layer above puts before the names that it is given.
const MAX_NAME: usize = 288;

/// The most named consumers of a log.
const MAX_CONSUMERS: usize = 1024;

/// A consumer of the log, held so that no other process and no other handle is the same one
/// ([`Group::consume_log`]).
pub struct LogConsumer {
    inner: Arc<Inner>,
    name: String,
    taken: Arc<Taken>,
}

impl Group {
    /// Takes the consumer `name`, which may be new, for as long as the value lives. Also in a
    /// read-only group, beside the writer.
    ///
    /// # Errors
    /// [`Error::ConsumerInUse`] when it is taken already; [`Error::Limit`] for a name over 288
    /// bytes; errors of file-system calls.
    pub fn consume_log(&self, name: &str) -> Result<LogConsumer> {
        check_consumers_open(&self.inner.core, &self.inner.versions)?;
        self.inner.core.options.needs_log("a consumer of the log")?;
        check_limit("the name of a consumer in bytes", MAX_NAME, name.len())?;
        let places = self.inner.sequencer.places();
        let _all = places.lock()?;
        let lock: Arc<dyn Lock> = places.take(name)?.into();
        let taken = Arc::new(Taken::new(lock));
        self.inner.sequencer.consumers.add(&taken);
        // Who closes from here on releases it.
        check_consumers_open(&self.inner.core, &self.inner.versions)?;
        Ok(LogConsumer {
            inner: self.inner.clone(),
            name: name.to_string(),
            taken,
        })
    }

    /// Retains the log behind `position` for the consumer `name`, across restarts, until this is
    /// called again with a later position: at most the newest `bytes`. Durable when it returns.
    /// Also in a read-only group: a writer in another process then retains the log.
    ///
    /// # Errors
    /// [`Error::PositionExpired`] and [`Error::OtherHistory`] as [`Group::tail`]; [`Error::Limit`]
    /// for a name over 288 bytes and for more than 1024 consumers; [`Error::ConsumerInUse`]; errors
    /// of writes.
    pub fn keep_log_for(&self, name: &str, position: Position, bytes: u64) -> Result<()> {
        self.consume_log(name)?.keep(None, position, bytes)
    }

    /// Removes the consumer `name`: the log is no longer retained for it. False when there is none.
    ///
    /// # Errors
    /// [`Error::ConsumerInUse`]; errors of writes; [`Error::ReadOnly`] in a read-only group for a
    /// consumer that an earlier version noted in the manifest.
    pub fn release_log(&self, name: &str) -> Result<bool> {
        let known = self.log_consumers()?;
        // None that is damaged is known.
        if !known.iter().any(|(other, _, _)| other == name)
            && self
                .inner
                .sequencer
                .places()
                .read(name)
                .is_ok_and(|place| place.is_none())
        {
            return Ok(false);
        }
        self.consume_log(name)?.release()
    }

    /// Removes the consumers whose name `gone` accepts, those in use, too, and returns how many
    /// they were.
    ///
    /// # Errors
    /// Errors of writes.
    pub fn release_logs(&self, gone: &mut dyn FnMut(&str) -> bool) -> Result<usize> {
        check_consumers_open(&self.inner.core, &self.inner.versions)?;
        let mut found = 0;
        let places = self.inner.sequencer.places();
        {
            let _all = places.lock()?;
            for place in places.list()?.0 {
                if gone(&place.name) {
                    found += usize::from(places.remove(&place.name)?);
                    // The next call of a handle that holds it fails.
                    if places.take(&place.name).is_ok() {
                        places.remove_lock(&place.name);
                    }
                }
            }
        }
        found += forget_holds(&self.inner.sequencer, &self.inner.versions, gone)?;
        release_segments(&self.inner.sequencer, &self.inner.versions)?;
        Ok(found)
    }

    /// The named consumers of the log: name, position, and the most bytes retained for it.
    ///
    /// # Errors
    /// Files cannot be read. One that is damaged is left out: [`Group::check`] reports it.
    pub fn log_consumers(&self) -> Result<Vec<(String, Position, u64)>> {
        self.inner.versions.check_open()?;
        let (places, _) = self.inner.sequencer.places().list()?;
        let mut order = self.inner.versions.manifest.lock().order.clone();
        supersede(&mut order, &places);
        let history = order.history;
        let noted = order.holds.into_iter().map(|(name, hold)| {
            let seq = hold.position;
            (name, Position { history, seq }, hold.bytes)
        });
        let places = places.into_iter();
        let mut all: Vec<_> = places
            .map(|place| (place.name, place.position, place.bytes))
            .chain(noted)
            .collect();
        all.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        Ok(all)
    }

    /// The order of commits of a copy that has what `snapshot` sees: with the places of the
    /// consumers, and with what they have not read of that in log segment `number` of the copy.
    pub(crate) fn copy_consumers(
        &self,
        snapshot: &Snapshot,
        copy: &TableSource,
        number: u64,
        stop: Option<&Stop>,
    ) -> Result<Order> {
        let inner = &self.inner;
        let tried = copy_consumers(inner, snapshot, copy, number, stop);
        match tried {
            // A consumer went on, and a writer let go of what it had read.
            Err(Error::PositionExpired { .. }) => {
                let _still = inner.sequencer.places().lock()?;
                copy_consumers(inner, snapshot, copy, number, stop)
            }
            tried => tried,
        }
    }

    /// Bytes of log from `position` on: those of the segments that have a write behind it, each as
    /// a whole.
    pub fn log_bytes_behind(&self, position: Position) -> u64 {
        if position.seq >= self.inner.sequencer.visible() {
            return 0;
        }
        let log = &self.inner.sequencer.log;
        let closed = log.closed.lock();
        let segments = log.segments.lock();
        let closed_bytes = closed.iter().filter(|one| one.last > position.seq);
        // A segment is in both lists while its generation is not in tables.
        let open = segments.iter().filter(|one| {
            let last = one.last.load(Ordering::Acquire);
            last > position.seq && closed.iter().all(|closed| closed.number != one.number)
        });
        let open_bytes: u64 = open
            .filter_map(|one| one.log.as_ref())
            .map(|log| log.len())
            .sum();
        closed_bytes.map(|one| one.len).sum::<u64>() + open_bytes
    }
}

impl LogConsumer {
    /// Its position, and the most bytes retained for it; `None` of a new one.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn place(&self) -> Result<Option<(Position, u64)>> {
        self.inner.versions.check_open()?;
        if let Some(place) = self.inner.sequencer.places().read(&self.name)? {
            return Ok(Some((place.position, place.bytes)));
        }
        let versions = self.inner.versions.manifest.lock();
        let history = versions.order.history;
        let hold = versions.order.holds.get(&self.name);
        Ok(hold.map(|hold| {
            let seq = hold.position;
            (Position { history, seq }, hold.bytes)
        }))
    }

    /// Retains the log behind `position` for this consumer, until this is called again with a later
    /// position: at most the newest `bytes`. Durable when it returns. The consumer is the one that
    /// the manifest, written by an earlier version, has under the name `replaced`, if any.
    ///
    /// # Errors
    /// As [`Group::keep_log_for`].
    pub fn keep(&self, replaced: Option<&str>, position: Position, bytes: u64) -> Result<()> {
        let inner = &*self.inner;
        let _own = self.own()?;
        start_consuming(inner)?;
        check_position(&inner.sequencer, &inner.versions, position)?;
        let places = inner.sequencer.places();
        let all = places.lock()?;
        // One that is damaged is replaced as a whole.
        let before = places.read_undamaged(&self.name)?;
        if before.is_none() {
            let there = places.list()?.0.len();
            check_limit("the number of consumers", MAX_CONSUMERS, there + 1)?;
        }
        let of_before = before.as_ref().and_then(|before| before.replaced.clone());
        places.write(&ConsumerPlace {
            name: self.name.clone(),
            position,
            bytes,
            replaced: replaced.map(str::to_string).or(of_before),
        })?;
        let asks_more = before.as_ref().is_none_or(|before| {
            let (was, history) = (before.position, position.history);
            was.history != history || position.seq < was.seq || before.bytes < bytes
        });
        if asks_more && let Err(error) = confirm_kept(inner, position) {
            match before {
                Some(before) => places.write(&before)?,
                None => drop(places.remove(&self.name)?),
            }
            return Err(error);
        }
        drop(all);
        inner.sequencer.consumed.store(true, Ordering::Relaxed);
        release_segments(&inner.sequencer, &inner.versions)
    }

    /// Removes the consumer: the log is no longer retained for it. False when it was new.
    ///
    /// # Errors
    /// As [`Group::release_log`].
    pub fn release(self) -> Result<bool> {
        let inner = &self.inner;
        let own = self.own()?;
        check_consumers_open(&inner.core, &inner.versions)?;
        let places = inner.sequencer.places();
        let all = places.lock()?;
        // One that is damaged is removed as it is.
        let place = places.read_undamaged(&self.name)?;
        let replaced = place.and_then(|place| place.replaced);
        let is_own = |name: &str| name == self.name || Some(name) == replaced.as_deref();
        // First, so that no earlier place comes back.
        let noted = forget_holds(&inner.sequencer, &inner.versions, &mut |name| is_own(name))? > 0;
        let found = places.remove(&self.name)?;
        drop((own, self.taken.take()));
        places.remove_lock(&self.name);
        drop(all);
        release_segments(&inner.sequencer, &inner.versions)?;
        Ok(found || noted)
    }

    /// Its lock, shared for a call.
    fn own(&self) -> Result<Arc<dyn Lock>> {
        self.taken.get().ok_or(Error::Closed)
    }
}

impl Drop for LogConsumer {
    fn drop(&mut self) {
        // After the group was closed the folder may be another's.
        let own = self.taken.take();
        if own.is_none() {
            return;
        }
        drop(own);
        // One that has no place leaves nothing behind.
        let places = self.inner.sequencer.places();
        if matches!(places.read(&self.name), Ok(None))
            && let Ok(Some(_all)) = places.try_lock()
            && places.take(&self.name).is_ok()
        {
            places.remove_lock(&self.name);
        }
    }
}

impl Internals<'_> {
    /// What is wrong with files of places.
    pub(crate) fn damaged_places(&self) -> Result<Vec<Error>> {
        Ok(self.0.sequencer.places().list()?.1)
    }
}

fn copy_consumers(
    inner: &Arc<Inner>,
    snapshot: &Snapshot,
    copy: &TableSource,
    number: u64,
    stop: Option<&Stop>,
) -> Result<Order> {
    inner.refresh()?;
    // Before the places, so that one bound meanwhile is in either.
    let noted = inner.versions.manifest.lock().order.holds.clone();
    let (places, _) = inner.sequencer.places().list()?;
    // After the places, so that a reader has seen the writes that they are behind.
    inner.refresh()?;
    let mut order = Order {
        holds: noted,
        ..inner.versions.manifest.lock().order.clone()
    };
    supersede(&mut order, &places);
    let history = order.history;
    // What is said of a place here, of another store or of lost writes, is said of it in the copy.
    let goes_on = |position: Position| {
        let checked = check_position(&inner.sequencer, &inner.versions, position);
        !matches!(checked, Err(Error::OtherHistory { .. }))
    };
    let (mut going_on, others): (Vec<_>, Vec<_>) = places
        .into_iter()
        .partition(|place| goes_on(place.position));
    let own = going_on.iter().map(|place| place.position.seq);
    let noted = order.holds.values().map(|hold| hold.position);
    let noted = noted.filter(|seq| goes_on(Position { history, seq: *seq }));
    let first = own.chain(noted).min();
    // Who is late already is so in the copy.
    let first = first.map(|first| first.max(inner.sequencer.oldest()));
    let kept = match first.filter(|first| *first < snapshot.seq()) {
        Some(first) => copy_log(inner, first, snapshot.seq(), copy, number, stop)?,
        None => None,
    };
    let order = Order {
        history: copy.fs.unique(),
        reserved: 0,
        kept: kept.into_iter().collect(),
        ..order
    };
    for place in &mut going_on {
        place.position.history = order.history;
        // Not what the copy does not have.
        place.position.seq = place.position.seq.min(snapshot.seq());
    }
    let of_copy = ConsumerPlaces::new(&*copy.fs, &copy.dir);
    for place in going_on.iter().chain(&others) {
        of_copy.make_folder()?;
        of_copy.write(place)?;
    }
    Ok(order)
}

/// Copies the writes behind `first` up to `last` to segment `number` of a copy.
fn copy_log(
    inner: &Arc<Inner>,
    first: Seq,
    last: Seq,
    copy: &TableSource,
    number: u64,
    stop: Option<&Stop>,
) -> Result<Option<ClosedSegment>> {
    let mut tail = Tail::new(inner.clone(), inner.sequencer.position_of(first))?;
    // Against flushes of this process.
    tail.hold(u64::MAX);
    let path = log_path(&copy.dir, number);
    let log = LogWriter::create(&*copy.fs, &path, LogFormat::WAL, number, None)?;
    let (mut end, mut time) = (first, None);
    while let Some(commit) = tail.next()? {
        stop.map_or(Ok(()), Stop::check)?;
        if commit.position().seq > last {
            break;
        }
        end = commit.position().seq;
        let changed = (tail.time() != time).then_some(tail.time().unwrap_or(0));
        time = tail.time();
        let payload = commit.payload();
        log.append_hashed(payload, rest_hash(payload), false, changed)?;
    }
    if end == first {
        drop(log);
        let removed = copy.fs.remove(&path);
        return removed
            .map(|()| None)
            .map_err(|e| Error::io(&path, "remove", e));
    }
    log.sync()?;
    Ok(Some(ClosedSegment {
        number,
        after: first,
        last: end,
        len: log.len(),
        ended: inner.core.options.log_time(),
    }))
}

/// Refuses a consumer where the group is closed or has failed; a read-only group catches up.
fn start_consuming(inner: &Inner) -> Result<()> {
    check_consumers_open(&inner.core, &inner.versions)?;
    let Some(reader) = &inner.reader else {
        return inner.core.check_poison();
    };
    inner.refresh()?;
    match reader.lock().recovered().order.history {
        0 => Err(Error::Invalid(
            "no version that has consumers has written to the store yet".to_string(),
        )),
        _ => Ok(()),
    }
}

/// Ensures that the log behind `position`, which a place says, is kept: it is listed, and durable.
/// Called with the lock of all places held, so no writer decides meanwhile what to remove.
fn confirm_kept(inner: &Inner, position: Position) -> Result<()> {
    if inner.reader.is_none() {
        // Removes nothing while that lock is held, and records the history.
        start_writing(
            &inner.sequencer,
            &inner.versions,
            &mut inner.sequencer.writer.lock(),
        )?;
        let oldest = oldest_kept(&inner.sequencer, &inner.versions.manifest.lock());
        if position.seq < oldest {
            let oldest = inner.sequencer.position_of(oldest);
            return Err(Error::PositionExpired { oldest });
        }
        inner.sequencer.sync()?;
    } else {
        inner.refresh()?;
        check_position(&inner.sequencer, &inner.versions, position)?;
    }
    // What the writer writes from here on it makes durable before it is only in this part of the
    // log. What is in tables already may not be durable here: it was kept because a consumer noted
    // a place at that moment.
    let closed = inner.sequencer.log.closed.lock().clone();
    let live = inner.sequencer.log.segments.lock().clone();
    let is_live = |number: u64| live.iter().any(|live| live.number == number);
    let unread = closed.iter().filter(|one| one.last > position.seq);
    for segment in unread.filter(|one| !is_live(one.number)) {
        let path = log_path(&inner.core.source.dir, segment.number);
        let synced = inner.core.source.fs.sync(&path);
        synced.map_err(|e| Error::io(&path, "sync", e))?;
    }
    Ok(())
}

fn check_consumers_open(core: &Core, versions: &VersionSet) -> Result<()> {
    if core.closing.load(Ordering::SeqCst) {
        Err(Error::Closed)
    } else {
        versions.check_open()
    }
}

/// The last write before the part of the log that the manifest keeps.
fn oldest_kept(sequencer: &Sequencer, locked: &Versions) -> Seq {
    let closed = sequencer.log.closed.lock();
    let live = sequencer.log.segments.lock();
    let kept = locked.order.kept.first().map(|kept| kept.after);
    let needed = closed.iter().find(|one| one.number >= locked.log);
    // A segment that is in tables is in both lists until it is removed.
    let live = live.iter().find(|live| live.number >= locked.log);
    kept.or(needed.map(|one| one.after))
        .or(live.map(|live| live.after))
        .unwrap_or_else(|| sequencer.visible())
}

/// Removes what the manifest notes of consumers that `gone` accepts.
fn forget_holds(
    sequencer: &Sequencer,
    versions: &VersionSet,
    gone: &mut dyn FnMut(&str) -> bool,
) -> Result<usize> {
    let noted = versions.manifest.lock().order.holds.clone();
    let gone: Vec<String> = noted.into_keys().filter(|name| gone(name)).collect();
    if gone.is_empty() {
        return Ok(0);
    }
    change_order(sequencer, versions, |order| {
        order.holds.retain(|name, _| !gone.contains(name))
    })?;
    Ok(gone.len())
}

/// Removes segments that no consumer waits for any more.
fn release_segments(sequencer: &Sequencer, versions: &VersionSet) -> Result<()> {
    {
        let mut locked = versions.manifest.lock();
        if locked.manifest.is_none() {
            // Nothing was written, or it is for the writer to do.
            return Ok(());
        }
        let mut order = locked.order.clone();
        let _held = sequencer.keep(&mut order, locked.log);
        if order != locked.order {
            record_order(sequencer, &mut locked, order)?;
        }
    }
    drop_segments(sequencer, versions);
    Ok(())
}
