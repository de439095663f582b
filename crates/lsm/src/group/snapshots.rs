//! Named snapshots: the contents of a snapshot are kept under a name, across restarts and in copies
//! of the store, until it is dropped.
//!
//! *Keeping* one works like a checkpoint (`checkpoint.rs`): it stores the version of a snapshot,
//! and tables of the memtable entries visible to it. Memtables are flushed first, so these are only
//! the latest writes. It waits for no one, and concurrent writes are not in it. One edit of the
//! manifest adds it as a kept version (`version/kept.rs`), after the log is synced up to its last
//! write: it never sees a write lost in a power cut. The cost depends on the number of tables and
//! the size of memtables, not on the data.
//!
//! *Afterwards* it costs space: a file stays while a kept version has a table in it. Compactions,
//! sweeps of sets, and changes and drops of trees ignore it. The live rest of a shared file
//! (`space.rs`) is not copied elsewhere while a kept version needs the file.
//!
//! *Reading* it is reading any snapshot: with that version, its last write, and its time, so
//! entries that had not expired then stay visible in it.
//!
//! One is kept or dropped at a time (`naming`, the outermost lock), so the result of looking up a
//! name stays valid.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Group;
use super::bulk::copy_memtables;
use super::flush::{flush_all, make_durable};
use super::install::{install, work_on};
use super::rotate::start_writing;
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::batch::check_limit;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};
use crate::expiry::Horizon;
use crate::generation::{Generation, View};
use crate::read::Snapshot;
use crate::version::{Edit, Kept, MAX_SNAPSHOT_NAME, NewKept, Pictured, TableFile, Version};

/// The maximum number of named snapshots.
const MAX_SNAPSHOTS: usize = 1024;

/// A named snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedSnapshot {
    /// Its name.
    pub name: String,
    /// The last write that is visible in it.
    pub seq: Seq,
    /// The time by which it hides expired entries; 0 where nothing expired.
    pub time: Time,
    /// Bytes of its tables.
    pub bytes: u64,
    /// Bytes of the tables that only it uses, which are freed when it is dropped.
    pub own_bytes: u64,
}

impl NamedSnapshot {
    /// A snapshot with the writes up to `seq`, for stores of other crates.
    pub fn new(name: String, seq: Seq) -> NamedSnapshot {
        NamedSnapshot {
            name,
            seq,
            time: 0,
            bytes: 0,
            own_bytes: 0,
        }
    }
}

impl Group {
    /// Keeps a snapshot of the current state under `name`, until it is
    /// [dropped](Group::drop_snapshot): across restarts, and in [checkpoints](Group::checkpoint).
    /// Durable when it returns, with everything visible in it. Returns its last write. Costs a
    /// flush, and time by the number of tables; while it is kept, the space of tables that
    /// compactions have replaced since.
    ///
    /// # Errors
    /// [`Error::SnapshotExists`]; [`Error::Limit`] for a name over 255 bytes and for more than 1024
    /// snapshots, [`Error::Invalid`] for an empty name; errors of writes.
    pub fn keep_snapshot(&self, name: &str) -> Result<Seq> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.start_threads();
        keep_snapshot(sequencer, versions, scheduler, name)
    }

    /// Drops the snapshot named `name`. The files that only it needed are removed with their last
    /// reader.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`]; errors of writes.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.start_threads();
        drop_snapshot(sequencer, versions, scheduler, name)
    }

    /// The named snapshots, by name. Costs time by the number of their tables.
    pub fn snapshots(&self) -> Vec<NamedSnapshot> {
        list(&self.inner.versions.view.load_full().version)
    }

    /// Bytes of tables that only named snapshots use.
    pub fn snapshot_bytes(&self) -> u64 {
        let version = self.inner.versions.view.load_full().version.clone();
        if version.kept().is_empty() {
            return 0;
        }
        let mut seen: HashSet<*const TableFile> = version.tables().map(Arc::as_ptr).collect();
        let only_kept = version
            .all_tables()
            .filter(|table| seen.insert(Arc::as_ptr(table)));
        only_kept.map(|table| table.meta().size).sum()
    }

    /// The snapshot named `name`, with the contents it had when it was kept.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`].
    pub fn kept_snapshot(&self, name: &str) -> Result<Snapshot> {
        let kept = kept(&self.inner.versions, name)?;
        let view = View {
            active: Generation::new(kept.seq),
            full: Vec::new(),
            version: kept.version().clone(),
            closed: self.inner.versions.view.load().closed.clone(),
        };
        let clock = self.inner.core.clock.clone();
        let horizon = Horizon {
            now: kept.time,
            clock: (kept.time > 0).then_some(clock),
        };
        Ok(Snapshot::new(Arc::new(view), kept.seq, horizon))
    }
}

fn kept(versions: &VersionSet, name: &str) -> Result<Arc<Kept>> {
    let version = &versions.view.load().version;
    let kept = version.kept().get(name).cloned();
    kept.ok_or_else(|| Error::UnknownSnapshot {
        name: name.to_string(),
    })
}

fn keep_snapshot(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    name: &str,
) -> Result<Seq> {
    let core = &*sequencer.core;
    core.check_poison()?;
    if name.is_empty() {
        return Err(Error::Invalid("a snapshot needs a name".to_string()));
    }
    check_limit(
        "the name of a snapshot in bytes",
        MAX_SNAPSHOT_NAME,
        name.len(),
    )?;
    let _alone = versions.naming.lock();
    if kept(versions, name).is_ok() {
        let name = name.to_string();
        return Err(Error::SnapshotExists { name });
    }
    let count = versions.view.load().version.kept().len();
    check_limit("the number of snapshots", MAX_SNAPSHOTS, count + 1)?;
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    flush_all(sequencer, versions, scheduler)?;
    let snapshot = versions.snapshot(sequencer);
    make_durable(sequencer, versions, scheduler)?;
    let version = snapshot.view().version.clone();
    // Compactions may remove tables from the newest version before the edit is installed.
    let held = Held::new(&version);
    let kept = work_on(core, |edit| {
        let mut picture = version.as_picture();
        let new_file = || versions.new_file();
        let copied = copy_memtables(core, &snapshot, &core.source, &new_file, &mut picture);
        edit.files = std::mem::take(&mut picture.files);
        copied?;
        // A read-only copy does not need them.
        (picture.bits, picture.saw) = (BTreeMap::new(), BTreeMap::new());
        edit.kept.push(NewKept {
            name: name.to_string(),
            seq: snapshot.seq(),
            time: snapshot.time(),
            picture,
            of: Pictured(Some(version.clone())),
        });
        install(sequencer, versions, scheduler, edit, |view, version| {
            view.with(version)
        })
    });
    if kept.is_err() && core.is_poisoned() {
        // The manifest may refer to them anyway.
        std::mem::forget(held);
    }
    kept.map(|_retired| snapshot.seq())
}

fn drop_snapshot(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    name: &str,
) -> Result<()> {
    let core = &*sequencer.core;
    core.check_poison()?;
    let _alone = versions.naming.lock();
    kept(versions, name)?;
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    let mut edit = Edit {
        released: vec![name.to_string()],
        ..Edit::default()
    };
    drop(install(
        sequencer,
        versions,
        scheduler,
        &mut edit,
        |view, version| view.with(version),
    )?);
    scheduler.wake_background();
    Ok(())
}

/// Holds the tables of a version in their files.
struct Held<'v>(&'v Version);

impl Held<'_> {
    fn new(version: &Version) -> Held<'_> {
        version.tables().for_each(|table| table.hold_on());
        Held(version)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.tables().for_each(|table| table.forget());
    }
}

fn list(version: &Version) -> Vec<NamedSnapshot> {
    let mut uses: BTreeMap<*const TableFile, u32> = BTreeMap::new();
    if !version.kept().is_empty() {
        for table in version.all_tables() {
            *uses.entry(Arc::as_ptr(table)).or_default() += 1;
        }
    }
    let one = |(name, kept): (&String, &Arc<Kept>)| {
        let size = |table: &Arc<TableFile>| table.meta().size;
        let alone = |table: &&Arc<TableFile>| uses.get(&Arc::as_ptr(table)) == Some(&1);
        NamedSnapshot {
            name: name.clone(),
            seq: kept.seq,
            time: kept.time,
            bytes: kept.picture().tables().map(size).sum(),
            own_bytes: kept.picture().tables().filter(alone).map(size).sum(),
        }
    };
    version.kept().iter().map(one).collect()
}
