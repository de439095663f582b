//! Opening: the version from the manifest, then the writes that were not flushed from the log.
//!
//! Each segment names the one before it and that one's length, so that replay keeps a prefix of
//! what was written: after a torn segment nothing later is taken, unless the later segment tells
//! that it was synced, which includes everything before it; then the tear is damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};

use super::{Inner, Signals, Versions, Writer};
use crate::batch::{TreeId, decode};
use crate::cache::BlockCache;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::generation::{Generation, View};
use crate::options::{Options, TreeProvider};
use crate::stats::Counters;
use crate::version::{Current, Recovered, TableSource, Version, log_path, recover};
use crate::wal::{LogKind, Tail, replay};

const LOCK: &str = "LOCK";

pub(super) fn open(
    dir: &Path,
    options: Options,
    provider: Arc<dyn TreeProvider>,
    create: bool,
) -> Result<Inner> {
    let fs = options.fs.clone();
    let there = Current::exists(&*fs, dir);
    if !there && !create {
        return Err(Error::NoStore {
            path: dir.to_path_buf(),
        });
    }
    if !there {
        fs.create_dir(dir)
            .map_err(|e| Error::io(dir, "create the folder", e))?;
        refuse_headless(&*fs, dir)?;
    }
    let lock_path = dir.join(LOCK);
    let lock = fs.lock(&lock_path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked {
            path: dir.to_path_buf(),
        },
        _ => Error::io(&lock_path, "lock", e),
    })?;
    let cache = Arc::new(BlockCache::new(options.cache_bytes()));
    let source = TableSource {
        fs,
        dir: dir.to_path_buf(),
        cache,
    };
    let mut log = Log::default();
    let (version, versions, next_file) = if there {
        let tree_options = |name: &str, config: &[u8]| provider.tree_options(name, config);
        let recovered = recover(&source, &tree_options)?;
        log.last_seq = recovered.last_seq;
        log.replay_all(&source, &recovered)?;
        let next_file = recovered.next_file.max(log.highest + 1);
        let versions = Versions {
            manifest: None,
            log: recovered.log,
            next_tree: recovered.next_tree,
        };
        (recovered.version, versions, next_file)
    } else {
        (
            Version::default(),
            Versions {
                manifest: None,
                log: 0,
                next_tree: 1,
            },
            1,
        )
    };
    let active = Generation::new(&version, log.last_seq);
    log.generations.reverse();
    let view = View {
        active,
        full: log.generations,
        version: Arc::new(version),
    };
    Ok(Inner {
        source,
        options,
        provider,
        counters: Counters::default(),
        view: ArcSwap::from_pointee(view),
        view_change: Mutex::new(()),
        visible: AtomicU64::new(log.last_seq),
        writer: Mutex::new(Writer {
            next_seq: log.last_seq + 1,
            segment: None,
            replayed: log.end,
            forsaken: log.forsaken,
            delay: 0,
        }),
        syncing: Mutex::new(()),
        segments: Mutex::new(Vec::new()),
        manifest: Mutex::new(versions),
        next_file: AtomicU64::new(next_file),
        flushing: Mutex::new(()),
        merging: Mutex::new(()),
        signals: Mutex::new(Signals::default()),
        wake: Condvar::new(),
        flushed: Condvar::new(),
        closing: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
        poison: Mutex::new(None),
        pressure: AtomicU64::new(0),
        _lock: lock,
    })
}

/// A folder without `CURRENT` but with tables is a store that lost it, not a place for a new one.
fn refuse_headless(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let names = fs.list(dir).map_err(|e| Error::io(dir, "list", e))?;
    match names
        .iter()
        .find(|name| name.extension().is_some_and(|e| e == "tbl"))
    {
        Some(name) => {
            let what = format!("missing, but {} is there", name.display());
            Err(Error::corruption(&dir.join("CURRENT"), 0, what))
        }
        None => Ok(()),
    }
}

/// What the log segments gave.
#[derive(Default)]
struct Log {
    /// Oldest first.
    generations: Vec<Arc<Generation>>,
    last_seq: Seq,
    end: Option<(u64, u64)>,
    highest: u64,
    forsaken: Vec<PathBuf>,
}

impl Log {
    fn replay_all(&mut self, source: &TableSource, recovered: &Recovered) -> Result<()> {
        let names = source
            .fs
            .list(&source.dir)
            .map_err(|e| Error::io(&source.dir, "list", e))?;
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| segment_number(name))
            .collect();
        numbers.sort_unstable();
        self.highest = numbers.last().copied().unwrap_or(0);
        numbers.retain(|number| *number >= recovered.log);
        let sealed: Option<BTreeMap<u64, u64>> = recovered
            .current
            .seal
            .as_ref()
            .map(|seal| seal.logs.iter().copied().collect());
        let expected = match &sealed {
            Some(sealed) => sealed.keys().copied().collect(),
            None => vec![recovered.log],
        };
        if let Some(missing) = expected.iter().find(|number| !numbers.contains(number)) {
            return Err(Error::corruption(
                &log_path(&source.dir, *missing),
                0,
                "the segment is missing",
            ));
        }
        let mut torn: Option<(u64, u64, String)> = None;
        for number in numbers {
            let path = log_path(&source.dir, number);
            if let Some((torn_number, offset, why)) = &torn {
                // Only a sync mark can tell that this segment, and so the torn one, was durable.
                let later = replay(
                    &*source.fs,
                    &path,
                    LogKind::Wal,
                    number,
                    None,
                    &mut |_, _| Ok(()),
                )?;
                if later.synced > 0 {
                    return Err(Error::corruption(
                        &log_path(&source.dir, *torn_number),
                        *offset,
                        why.clone(),
                    ));
                }
                self.forsaken.push(path);
                continue;
            }
            let sealed_len = sealed
                .as_ref()
                .and_then(|sealed| sealed.get(&number).copied());
            torn = self.replay_one(source, recovered, number, sealed_len)?;
        }
        Ok(())
    }

    /// Replays one segment; returns where and why it (or the one before it) is torn.
    fn replay_one(
        &mut self,
        source: &TableSource,
        recovered: &Recovered,
        number: u64,
        sealed: Option<u64>,
    ) -> Result<Option<(u64, u64, String)>> {
        let path = log_path(&source.dir, number);
        let generation = Generation::new(&recovered.version, self.last_seq);
        let mut last_seq = self.last_seq;
        let next_tree = recovered.next_tree;
        let replayed = replay(
            &*source.fs,
            &path,
            LogKind::Wal,
            number,
            sealed,
            &mut |offset, payload| {
                let mut unknown: Option<TreeId> = None;
                let last = decode(payload, |operation| {
                    if !generation.insert(&operation) && operation.tree >= next_tree {
                        unknown = Some(operation.tree);
                    }
                });
                let last =
                    last.ok_or_else(|| Error::corruption(&path, offset, "malformed batch"))?;
                if let Some(tree) = unknown {
                    return Err(Error::corruption(
                        &path,
                        offset,
                        format!("tree {tree} is unknown"),
                    ));
                }
                generation.applied(payload.len(), last);
                last_seq = last_seq.max(last);
                Ok(())
            },
        )?;
        if let Some(header) = &replayed.header
            && let (Some((before, len)), Some((seen, end))) = (header.previous, self.end)
            && before == seen
            && len > end
        {
            // The segment before this one lost its tail without looking torn.
            if replayed.synced > 0 {
                let what = format!("{} bytes are missing at the end", len - end);
                return Err(Error::corruption(&log_path(&source.dir, seen), end, what));
            }
            self.forsaken.push(path);
            return Ok(Some((seen, end, "cut short".to_string())));
        }
        self.last_seq = last_seq;
        self.end = Some((number, replayed.end));
        generation.set_log(number);
        if generation.is_empty() && replayed.header.is_none() {
            self.forsaken.push(path);
            self.end = None;
        } else {
            self.generations.push(generation);
        }
        Ok(match replayed.tail {
            Tail::Clean => None,
            Tail::Torn { offset, why } => Some((number, offset, why)),
        })
    }
}

fn segment_number(name: &Path) -> Option<u64> {
    if name.extension()? != "log" {
        return None;
    }
    name.file_stem()?.to_str()?.parse().ok()
}

/// True when the file is one that the engine makes, is not `keep`, and may be removed.
pub(super) fn is_leftover(
    name: &str,
    keep_tables: &dyn Fn(u64) -> bool,
    log: u64,
    manifest: u64,
) -> bool {
    if let Some(number) = name.strip_suffix(".tbl") {
        return number.parse().is_ok_and(|number| !keep_tables(number));
    }
    if let Some(number) = name.strip_suffix(".log") {
        return number.parse().is_ok_and(|number: u64| number < log);
    }
    if let Some(number) = name.strip_prefix("MANIFEST-") {
        return number.parse().is_ok_and(|number: u64| number != manifest);
    }
    name == "CURRENT.new"
}
