//! The manifest of a handle: started with its first write, and rewritten when it has grown.
//!
//! A manifest is a log of edits whose first one is a whole version. Each flush and compaction
//! appends one, so the manifest of a handle that lives for months would be mostly history. When it
//! is several times its initial length, a new one is started with the current version: written and
//! synced while the old one is current, then named by `CURRENT` in one rename. A power cut leaves
//! the one or the other, and both have the same contents.

use std::path::PathBuf;

use super::sequencer::Sequencer;
use super::version_set::{VersionSet, Versions};
use crate::error::{Error, Result};
use crate::version::{Current, Edit, Manifest, Order, Version, manifest_path};

/// A manifest is not rewritten while it is shorter than this, or than this multiple of its first
/// record.
const RENEW_OVER: u64 = 64 << 10;
const RENEW_FACTOR: u64 = 2;

/// Starts a manifest with `version`, durably, its name included. `CURRENT` does not name it yet, so
/// the caller still has to [note](Sequencer::note_order) its order of commits.
pub(super) fn begin_manifest(
    sequencer: &Sequencer,
    set: &VersionSet,
    number: u64,
    version: &Version,
    versions: &mut Versions,
) -> Result<(Manifest, Order)> {
    let (fs, dir) = (&*sequencer.core.source.fs, &sequencer.core.source.dir);
    let order = sequencer.first_order(versions);
    let edit = Edit {
        log: Some(versions.log),
        next_file: Some(set.next_file()),
        next_tree: Some(versions.next_tree),
        last_seq: Some(versions.last_seq),
        synced: Some(sequencer.log.synced()),
        order: Some(order.clone()),
        external_log: sequencer.core.has_external_log(),
        time: version.is_timed().then(|| sequencer.core.clock.kept()),
        ..version.snapshot()
    };
    let manifest = Manifest::create(fs, dir, number, &edit)?;
    fs.sync_dir(dir).map_err(|e| Error::io(dir, "sync", e))?;
    versions.renew_at = RENEW_OVER.max(manifest.len().saturating_mul(RENEW_FACTOR));
    Ok((manifest, order))
}

/// Rewrites a manifest that has grown, under the manifest lock: its last edit is installed and
/// durable. Returns the replaced manifest, to be removed.
pub(super) fn renew_manifest(
    sequencer: &Sequencer,
    set: &VersionSet,
    versions: &mut Versions,
) -> Option<PathBuf> {
    let old = versions
        .manifest
        .as_ref()
        .map(|old| (old.number(), old.len()));
    let (old, len) = old.filter(|(_, len)| *len >= versions.renew_at)?;
    let (fs, dir) = (&*sequencer.core.source.fs, &sequencer.core.source.dir);
    let number = set.new_file();
    let version = set.view.load().version.clone();
    let current = Current {
        manifest: number,
        seal: None,
    };
    let begun = begin_manifest(sequencer, set, number, &version, versions)
        .and_then(|begun| current.prepare(fs, dir).map(|()| begun));
    let Ok((manifest, order)) = begun else {
        // The old one stays in use. The next attempt is when it has doubled.
        let _ = fs.remove(&manifest_path(dir, number));
        versions.renew_at = len.saturating_mul(2);
        return None;
    };
    if let Err(error) = Current::replace(fs, dir) {
        // An edit in either of the two may be lost.
        sequencer.core.poison_with(&error);
        return None;
    }
    sequencer.note_order(versions, order);
    versions.manifest = Some(manifest);
    Some(manifest_path(dir, old))
}

/// Appends an edit to the manifest, durably.
pub(super) fn record(
    sequencer: &Sequencer,
    versions: &mut Versions,
    edit: &mut Edit,
) -> Result<()> {
    // Everything that the edit refers to was synced before.
    edit.synced = Some(sequencer.log.synced());
    sequencer.core.check_poison()?;
    let manifest = versions.manifest.as_mut().ok_or(Error::Closed)?;
    if let Err(failed) = manifest.append(edit) {
        if !(failed.rolled_back && failed.error.is_disk_full()) {
            // It is unknown how much of the record is on disk.
            sequencer.core.poison_with(&failed.error);
        }
        return Err(failed.error);
    }
    if let Some(time) = edit.time {
        sequencer.core.clock.note_written(time);
    }
    if let Some(order) = edit.order.clone() {
        sequencer.note_order(versions, order);
    }
    Ok(())
}

/// Records a change of the order, durably.
pub(super) fn record_order(
    sequencer: &Sequencer,
    versions: &mut Versions,
    order: Order,
) -> Result<()> {
    let mut edit = Edit {
        order: Some(order),
        ..Edit::default()
    };
    record(sequencer, versions, &mut edit)
}
