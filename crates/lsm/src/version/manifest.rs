//! The manifest: a log of edits, from which the version is rebuilt at opening. A handle that begins
//! to write starts a new manifest with the whole version as its first record, so no manifest is
//! appended to across openings.

use std::path::{Path, PathBuf};

use super::current::Current;
use super::edit::Edit;
use super::file::{NewTable, TableSource};
use super::order::Order;
use super::paths::manifest_path;
use super::tree::TreeOptions;
use super::version::Version;
use crate::batch::TreeId;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};
use crate::fs::{Fs, Lock};
use crate::wal::{AppendError, Follower, LogFormat, LogWriter, Record, Tail, replay};

/// The manifest being written.
pub(crate) struct Manifest {
    number: u64,
    log: LogWriter,
    /// Shows readers that the manifest has a writer.
    _lock: Box<dyn Lock>,
}

/// True when the process that writes manifest `number` is alive and has not closed the store.
pub(crate) fn is_written(source: &TableSource, number: u64) -> Result<bool> {
    let path = manifest_path(&source.dir, number);
    let is_locked = source.fs.is_locked(&path);
    is_locked.map_err(|e| Error::io(&path, "look for the lock of", e))
}

impl Manifest {
    /// Starts manifest `number` with `snapshot` as its first record, durably. `CURRENT` does not
    /// name it yet.
    pub(crate) fn create(
        fs: &dyn Fs,
        dir: &Path,
        number: u64,
        snapshot: &Edit,
    ) -> Result<Manifest> {
        let path = manifest_path(dir, number);
        // Earlier builds would miss the log of a store that has none.
        let version = if snapshot.external_log {
            LogFormat::MANIFEST.version
        } else {
            4
        };
        let format = LogFormat {
            version,
            ..LogFormat::MANIFEST
        };
        let log = LogWriter::create(fs, &path, format, number, None)?;
        let lock = fs.lock(&path);
        let mut manifest = Manifest {
            number,
            log,
            _lock: lock.map_err(|e| Error::io(&path, "lock", e))?,
        };
        manifest.append(snapshot).map_err(|e| e.error)?;
        Ok(manifest)
    }

    /// Appends an edit, durably. After an error that was not rolled back the manifest must not be
    /// appended to again.
    pub(crate) fn append(&mut self, edit: &Edit) -> std::result::Result<(), AppendError> {
        if let Err(mut failed) = self.log.append(&[&edit.encode()]) {
            // Until a sync a power cut may restore the whole edit, and its files are removed now.
            failed.rolled_back = failed.rolled_back && self.log.sync().is_ok();
            return Err(failed);
        }
        self.sync().map_err(|error| AppendError {
            error,
            rolled_back: false,
        })?;
        // Losing the edit later is damage, because the files that it replaced are gone. Without the
        // marker it would pass for a torn record. The edit is durable, so a failure to write the
        // marker is no error of the edit.
        let _ = self.log.append_marker();
        Ok(())
    }

    /// Makes the current length of the manifest durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.log.sync()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn len(&self) -> u64 {
        self.log.len()
    }
}

/// The state recovered from the manifest.
pub(crate) struct Recovered {
    pub(crate) version: Version,
    pub(crate) current: Current,
    /// The first log segment that must be replayed.
    pub(crate) log: u64,
    pub(crate) next_file: u64,
    pub(crate) next_tree: TreeId,
    pub(crate) last_seq: Seq,
    /// The last write that the log, or a table, must contain.
    pub(crate) synced: Seq,
    pub(crate) order: Order,
    /// The time up to which expired entries were dropped.
    pub(crate) time: Time,
    /// The store has no log of its own.
    pub(crate) external_log: bool,
    /// The offset of the manifest's next record.
    end: u64,
    /// The last edit, if its writer may not have made it durable yet, with its offset. Also one
    /// that could not be applied.
    pending: Option<(u64, Edit)>,
    /// It is used again after an edit that could not be applied, so it must stay as it was.
    is_followed: bool,
}

/// Resolves the options of a tree by its name and configuration.
type AskOptions<'o> = dyn Fn(&str, &[u8]) -> Result<TreeOptions> + 'o;

/// Rebuilds the version from the manifest that `CURRENT` names. `beside` a writer, an edit is
/// applied once a sync marker behind it confirms that it is durable.
pub(crate) fn recover(
    source: &TableSource,
    options: &AskOptions<'_>,
    beside: bool,
) -> Result<Recovered> {
    let fs = &*source.fs;
    let current = Current::read(fs, &source.dir)?;
    let path = manifest_path(&source.dir, current.manifest);
    let mut recovered = Recovered {
        version: Version::default(),
        log: 0,
        next_file: current.manifest + 1,
        next_tree: 1,
        last_seq: 0,
        synced: 0,
        order: Order::default(),
        time: 0,
        external_log: false,
        end: 0,
        pending: None,
        is_followed: false,
        current,
    };
    let sealed = recovered
        .current
        .seal
        .as_ref()
        .map(|seal| seal.manifest_len);
    let mut records = 0u64;
    let number = recovered.current.manifest;
    let replayed = replay(
        fs,
        &path,
        LogFormat::MANIFEST,
        number,
        sealed,
        &mut |offset, record| {
            if let Record::Data { .. } = record {
                records += 1;
            }
            recovered.take(offset, record, source, options, &path)?;
            // For the first record, `CURRENT` naming the manifest is the confirmation.
            if records == 1 || !beside || sealed.is_some() {
                recovered.apply_pending(source, options, &path)
            } else {
                Ok(())
            }
        },
    )?;
    recovered.end = replayed.end;
    if records == 0 {
        let what = match replayed.tail {
            Tail::Torn { why, .. } => why,
            Tail::Clean => "no edits".to_string(),
        };
        return Err(Error::corruption(
            &path,
            0,
            format!("no version in the manifest: {what}"),
        ));
    }
    recovered.version.find_due(None);
    Ok(recovered)
}

/// True when manifest `number` has a tree. Damage counts as none.
pub(crate) fn manifest_has_trees(fs: &dyn Fs, dir: &Path, number: u64) -> Result<bool> {
    let mut found = false;
    let path = manifest_path(dir, number);
    let kind = LogFormat::MANIFEST;
    let replayed = replay(fs, &path, kind, number, None, &mut |_, record| {
        if let Record::Data { payload, .. } = record {
            found |= Edit::decode(payload).is_some_and(|edit| !edit.created.is_empty());
        }
        Ok(())
    });
    match replayed {
        Err(error) if !error.is_damage() => Err(error),
        _ => Ok(found),
    }
}

fn at_offset(error: Error, path: &PathBuf, offset: u64) -> Error {
    match error {
        Error::Corruption { path: p, what, .. } if p == *path => {
            Error::corruption(path, offset, what)
        }
        // The configuration was accepted when it was written.
        Error::Invalid(what) => Error::corruption(path, offset, what),
        other => other,
    }
}

impl Recovered {
    /// The manifest, to follow it.
    pub(crate) fn follow(&mut self, source: &TableSource) -> Result<Follower> {
        self.is_followed = true;
        let number = self.current.manifest;
        let path = manifest_path(&source.dir, number);
        Follower::open(&*source.fs, &path, LogFormat::MANIFEST, number, self.end)
    }

    /// Applies edits appended since; also an edit without a sync marker if there is no writer, for
    /// which `writer_is_gone` is called then. What was applied before an error stays: the version's
    /// [ordinal](Version::ordinal) tells.
    pub(crate) fn go_on(
        &mut self,
        manifest: &mut Follower,
        source: &TableSource,
        options: &AskOptions<'_>,
        writer_is_gone: impl FnOnce() -> bool,
    ) -> Result<()> {
        let path = manifest_path(&source.dir, self.current.manifest);
        loop {
            let offset = manifest.offset();
            let took = manifest.next_written(|record| {
                self.take(offset, record, source, options, &path).map(Some)
            })?;
            if took.is_none() {
                return self.apply_pending_where(source, options, writer_is_gone);
            }
        }
    }

    /// Applies the edit without a sync marker if there is no writer.
    pub(crate) fn apply_pending_where(
        &mut self,
        source: &TableSource,
        options: &AskOptions<'_>,
        writer_is_gone: impl FnOnce() -> bool,
    ) -> Result<()> {
        let path = manifest_path(&source.dir, self.current.manifest);
        if self.pending.is_some() && writer_is_gone() {
            self.apply_pending(source, options, &path)
        } else {
            Ok(())
        }
    }

    /// Reads a record of the manifest. An edit is pending until the next record confirms that it is
    /// durable.
    fn take(
        &mut self,
        offset: u64,
        record: Record<'_>,
        source: &TableSource,
        options: &AskOptions<'_>,
        path: &PathBuf,
    ) -> Result<()> {
        self.apply_pending(source, options, path)?;
        if let Record::Data { payload, .. } = record {
            let edit = Edit::decode(payload);
            let edit = edit.ok_or_else(|| Error::corruption(path, offset, "malformed edit"))?;
            self.pending = Some((offset, edit));
        }
        Ok(())
    }

    /// Applies the pending edit. After an error it is still pending: without it, what follows would
    /// be applied to another version than the writer's.
    fn apply_pending(
        &mut self,
        source: &TableSource,
        options: &AskOptions<'_>,
        path: &PathBuf,
    ) -> Result<()> {
        let Some((offset, edit)) = self.pending.take() else {
            return Ok(());
        };
        let applied = self.apply(&edit, source, options, path);
        if applied.is_err() {
            self.pending = Some((offset, edit));
        }
        applied.map_err(|e| at_offset(e, path, offset))
    }

    fn apply(
        &mut self,
        edit: &Edit,
        source: &TableSource,
        options: &AskOptions<'_>,
        path: &Path,
    ) -> Result<()> {
        let version = if self.is_followed {
            self.version.clone()
        } else {
            std::mem::take(&mut self.version)
        };
        let (version, turnover) = version.apply(edit, source, options, path)?;
        self.version = version;
        for table in turnover.gained {
            table.hold_on();
        }
        // The process that wrote the edit replaced them.
        for table in turnover.taken {
            table.forget();
        }
        self.log = edit.log.unwrap_or(self.log);
        self.next_file = edit.next_file.unwrap_or(self.next_file).max(self.next_file);
        self.next_tree = edit.next_tree.unwrap_or(self.next_tree);
        self.last_seq = edit.last_seq.unwrap_or(self.last_seq).max(self.last_seq);
        self.synced = edit.synced.unwrap_or(self.synced).max(self.synced);
        self.time = edit.time.unwrap_or(0).max(self.time);
        self.external_log |= edit.external_log;
        if let Some(order) = &edit.order {
            self.order = order.clone();
        }
        let kept = edit.kept.iter().flat_map(|kept| &kept.picture.added);
        for new in edit.added.iter().chain(kept) {
            let file = new.place.map_or(0, |place| place.file);
            self.next_file = self.next_file.max(new.meta.number.max(file) + 1);
        }
        Ok(())
    }
}

impl Version {
    /// The whole version, with the kept ones beside it, as one edit.
    pub(crate) fn snapshot(&self) -> Edit {
        Edit {
            kept: self.kept_pictures(),
            ..self.own_snapshot()
        }
    }

    /// The version as one edit.
    pub(super) fn own_snapshot(&self) -> Edit {
        let mut edit = Edit::default();
        for tree in self.trees.values() {
            edit.created
                .push((tree.id, tree.name.clone(), tree.config.to_vec()));
            for run in &tree.runs {
                for table in run.tables.iter() {
                    edit.added.push(NewTable {
                        tree: tree.id,
                        level: run.level,
                        run: run.number,
                        component: table.component(),
                        meta: table.meta().clone(),
                        place: table.place(),
                    });
                }
            }
            for (level, key) in &tree.cursors {
                edit.cursors.push((tree.id, *level, key.clone()));
            }
            if tree.repair_watermark > 0 {
                edit.repair_watermarks
                    .push((tree.id, tree.repair_watermark));
            }
            if tree.forgotten > 0 {
                edit.forgotten.push((tree.id, tree.forgotten));
            }
        }
        edit
    }
}
