//! Opening a group: to write it, with a lock, or to read it beside the writer (`reader.rs`). The
//! replay of the log is in `recover.rs`.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::core::Core;
use super::inner::Inner;
use super::log::Log;
use super::reader::{Reader, tolerate_missing, with_retries};
use super::recover::{Recovery, highest_number, recover_beside};
use super::scheduler::Scheduler;
use super::sequencer::{Sequencer, Writer};
use super::version_set::{VersionSet, Versions};
use crate::budget::Budget;
use crate::entry::Time;
use crate::error::{Error, Result};
use crate::expiry::ExpiryClock;
use crate::folder::{create_folder, lock_folder};
use crate::fs::{Fs, Gate};
use crate::generation::{Generation, View};
use crate::options::{LogMode, Options};
use crate::version::{
    Current, Order, Recovered, TableSource, TreeProvider, Version, manifest_has_trees,
    manifest_path, recover,
};

pub(super) fn open(
    dir: &Path,
    mut options: Options,
    provider: Arc<dyn TreeProvider>,
    create: bool,
) -> Result<Inner> {
    options.check()?;
    let (gate, there) = hold(dir, options.fs.clone(), create)?;
    options.fs = gate.clone();
    let budget = options.make_budget();
    let source = source(dir, &options, &budget);
    let mut log = Recovery {
        now: options.log_time(),
        ..Recovery::default()
    };
    let (mut synced, mut next_seq, mut kept_time) = (0, 1, 0);
    let (version, versions, next_file) = if there {
        let tree_options = |name: &str, config: &[u8]| provider.tree_options(name, config);
        let mut recovered = recover(&source, &tree_options, false)?;
        check_mode(&options, &recovered, dir)?;
        recovered.version.load_bitmaps();
        log.last_seq = recovered.last_seq;
        synced = recovered.synced;
        kept_time = recovered.time;
        if recovered.current.seal.is_none() {
            let manifest = recovered.current.manifest;
            log.unsynced.push(manifest_path(&source.dir, manifest));
        }
        log.replay_all(&source, &recovered)?;
        let mut order = recovered.order;
        // A handle that skipped lost numbers may have written nothing.
        let lost = order.lost.last().map_or(0, |(_, upto)| *upto);
        next_seq = log.last_seq.max(lost) + 1;
        if recovered.current.seal.is_none() && order.reserved > next_seq {
            // The numbers in between may have been seen.
            next_seq = order.reserved;
            order.lose(log.last_seq, next_seq - 1);
        }
        if order.history == 0 {
            order.history = source.fs.unique();
        }
        let next_file = recovered.next_file.max(log.highest + 1);
        let versions = Versions {
            log: recovered.log,
            next_tree: recovered.next_tree,
            last_seq: recovered.last_seq,
            ..Versions::new(order)
        };
        (recovered.version, versions, next_file)
    } else {
        let order = Order {
            history: source.fs.unique(),
            ..Order::default()
        };
        let names = source.fs.list(dir).map_err(|e| Error::io(dir, "list", e))?;
        let next_file = highest_number(&names) + 1;
        (Version::default(), Versions::new(order), next_file)
    };
    log.generations.reverse();
    let replayed = log.end();
    let view = View {
        active: Generation::new(log.last_seq),
        full: log.generations,
        version: Arc::new(version),
        closed: Arc::default(),
    };
    let writer = Writer {
        next_seq,
        last: log.last_seq,
        replayed,
        unsynced: log.unsynced,
        discarded: log.discarded,
        ..Writer::default()
    };
    let clock = open_clock(&source, &options, kept_time, true)?;
    let core = Arc::new(Core::new(source, options, budget, clock, provider, false));
    core.count_memory(&view);
    let history = versions.order.history;
    let log = Log::new(synced, log.closed);
    Ok(Inner {
        sequencer: Sequencer::new(core.clone(), writer, log, history),
        versions: VersionSet::new(view, versions, next_file),
        scheduler: Scheduler::new(&core.options),
        core,
        reader: None,
        gate: Some(gate),
    })
}

/// Locks the folder of a store, which is created with `create`. Also returns whether it has a
/// store.
fn hold(dir: &Path, fs: Arc<dyn Fs>, create: bool) -> Result<(Arc<Gate>, bool)> {
    if !has_store(&*fs, dir)? {
        if !create {
            return Err(no_store(dir));
        }
        create_folder(&*fs, dir)?;
    }
    let lock = lock_folder(&*fs, dir)?;
    // Looked up again, because another process may have created the store before the lock was
    // acquired here.
    let there = has_store(&*fs, dir)?;
    if !there && !create {
        return Err(no_store(dir));
    }
    Ok((Arc::new(Gate::new(fs, lock)), there))
}

/// Refuses a store that was created with another mode of its log.
fn check_mode(options: &Options, recovered: &Recovered, dir: &Path) -> Result<()> {
    let is_own = !recovered.external_log;
    if is_own == (options.log == LogMode::Own) {
        Ok(())
    } else {
        Err(Error::OtherLog {
            path: dir.to_path_buf(),
            is_own,
        })
    }
}

fn open_clock(
    source: &TableSource,
    options: &Options,
    kept: Time,
    writes: bool,
) -> Result<Arc<ExpiryClock>> {
    let clock = options.clock.clone();
    let clock = ExpiryClock::open(clock, &source.fs, &source.dir, kept, writes)?;
    Ok(Arc::new(clock))
}

/// Opens a group to read it beside the writer.
pub(super) fn open_reader(
    dir: &Path,
    options: Options,
    provider: Arc<dyn TreeProvider>,
) -> Result<Inner> {
    options.check()?;
    options.needs_log("reading a store beside its writer")?;
    let fs = options.fs.clone();
    if !has_store(&*fs, dir)? {
        return Err(no_store(dir));
    }
    let budget = options.make_budget();
    let source = source(dir, &options, &budget);
    let mut reader = with_retries(|time| {
        let (recovered, recovery) = recover_beside(&source, &*provider, 0)?;
        check_mode(&options, &recovered, dir)?;
        recovered
            .version
            .hold_files()
            .or_else(|e| tolerate_missing(e, time))?;
        Reader::new(&source, recovered, recovery)
    })?;
    let view = reader.first_view();
    let recovered = reader.recovered();
    let mut order = recovered.order.clone();
    if order.history == 0 {
        // Temporary, until the first handle of a version with histories writes.
        order.history = source.fs.unique();
    }
    let versions = Versions {
        log: recovered.log,
        next_tree: recovered.next_tree,
        last_seq: recovered.last_seq,
        ..Versions::new(order)
    };
    let visible = reader.visible();
    let writer = Writer {
        next_seq: visible + 1,
        last: visible,
        ..Writer::default()
    };
    let clock = open_clock(&source, &options, recovered.time, false)?;
    let core = Arc::new(Core::new(source, options, budget, clock, provider, true));
    core.count_memory(&view);
    let history = versions.order.history;
    let log = Log::new(0, reader.segments());
    Ok(Inner {
        sequencer: Sequencer::new(core.clone(), writer, log, history),
        versions: VersionSet::new(view, versions, 0),
        scheduler: Scheduler::new(&core.options),
        core,
        reader: Some(Mutex::new(reader)),
        gate: None,
    })
}

fn no_store(dir: &Path) -> Error {
    Error::NoStore {
        path: dir.to_path_buf(),
    }
}

fn source(dir: &Path, options: &Options, budget: &Budget) -> TableSource {
    TableSource {
        fs: options.fs.clone(),
        dir: dir.to_path_buf(),
        cache: budget.cache().clone(),
        mapped: options.mapped_reads,
    }
}

/// True when `dir` holds a store. Refuses one that lost its `CURRENT`.
fn has_store(fs: &dyn Fs, dir: &Path) -> Result<bool> {
    if Current::exists(fs, dir) {
        return Ok(true);
    }
    if !fs.exists(dir) {
        return Ok(false);
    }
    match refuse_headless(fs, dir) {
        // Another process has created it meanwhile.
        Err(_) if Current::exists(fs, dir) => Ok(true),
        refused => refused.map(|()| false),
    }
}

/// A folder without `CURRENT` but with tables, or with a manifest that has trees, is a store that
/// lost it, not a place for a new one. (A first opening that was cut off leaves a manifest without
/// trees.)
fn refuse_headless(fs: &dyn Fs, dir: &Path) -> Result<()> {
    for name in fs.list(dir).map_err(|e| Error::io(dir, "list", e))? {
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("MANIFEST-"));
        let is_store = match number.and_then(|number| number.parse().ok()) {
            Some(number) => manifest_has_trees(fs, dir, number)?,
            None => name.extension().is_some_and(|e| e == "tbl"),
        };
        if is_store {
            let what = format!("missing, but {} is there", name.display());
            return Err(Error::corruption(&dir.join("CURRENT"), 0, what));
        }
    }
    Ok(())
}
