//! The manifest of a handle: started with its first write, and rewritten when it has grown.
//!
//! A manifest is a log of edits whose first one is a whole version. Each flush and compaction appends one, so the
//! manifest of a handle that lives for months would be mostly history. When it is several times its initial length, a
//! new one is started with the current version: written and synced while the old one is current, then named by
//! `CURRENT` in one rename. A power cut leaves the one or the other, and both have the same contents.

use std::path::PathBuf;

use super::Inner;
use super::version_set::Versions;
use crate::error::{Error, Result};
use crate::version::{Current, Edit, Manifest, Order, Version, manifest_path};

/// A manifest is not rewritten while it is shorter than this, or than this multiple of its first record.
const RENEW_OVER: u64 = 64 << 10;
const RENEW_FACTOR: u64 = 2;

impl Inner {
    /// Starts a manifest with `version`, durably, its name included. `CURRENT` does not name it yet, so the caller
    /// still has to [note](Inner::note_order) its order of commits.
    pub(super) fn begin_manifest(
        &self,
        number: u64,
        version: &Version,
        versions: &mut Versions,
    ) -> Result<(Manifest, Order)> {
        let (fs, dir) = (&*self.core.source.fs, &self.core.source.dir);
        let order = self.sequencer.first_order(versions);
        let edit = Edit {
            log: Some(versions.log),
            next_file: Some(self.versions.next_file()),
            next_tree: Some(versions.next_tree),
            last_seq: Some(versions.last_seq),
            synced: Some(self.sequencer.log.synced()),
            order: Some(order.clone()),
            external_log: self.core.has_external_log(),
            time: version.is_timed().then(|| self.core.clock.kept()),
            ..version.snapshot()
        };
        let manifest = Manifest::create(fs, dir, number, &edit)?;
        fs.sync_dir(dir).map_err(|e| Error::io(dir, "sync", e))?;
        versions.renew_at = RENEW_OVER.max(manifest.len().saturating_mul(RENEW_FACTOR));
        Ok((manifest, order))
    }

    /// Rewrites a manifest that has grown, under the manifest lock: its last edit is installed and durable. Returns
    /// the replaced manifest, to be removed.
    pub(super) fn renew_manifest(&self, versions: &mut Versions) -> Option<PathBuf> {
        let old = versions
            .manifest
            .as_ref()
            .map(|old| (old.number(), old.len()));
        let (old, len) = old.filter(|(_, len)| *len >= versions.renew_at)?;
        let (fs, dir) = (&*self.core.source.fs, &self.core.source.dir);
        let number = self.versions.new_file();
        let version = self.versions.view.load().version.clone();
        let current = Current {
            manifest: number,
            seal: None,
        };
        let begun = self
            .begin_manifest(number, &version, versions)
            .and_then(|begun| current.prepare(fs, dir).map(|()| begun));
        let Ok((manifest, order)) = begun else {
            // The old one stays in use. The next attempt is when it has doubled.
            let _ = fs.remove(&manifest_path(dir, number));
            versions.renew_at = len.saturating_mul(2);
            return None;
        };
        if let Err(error) = Current::replace(fs, dir) {
            // An edit in either of the two may be lost.
            self.core.poison_with(&error);
            return None;
        }
        self.sequencer.note_order(versions, order);
        versions.manifest = Some(manifest);
        Some(manifest_path(dir, old))
    }
}
