//! The manifest of a handle: begun with its first write, and written anew when it has grown.
//!
//! A manifest is a log of edits whose first one is a whole version. Each flush and merge adds one, so that of a
//! handle that lives for months most would be history. When it is several times as long as it began, a new one is
//! begun with the version of the moment: written and synced while the old one still counts, then named by `CURRENT`
//! in one rename. A power cut leaves the one or the other, and both say the same.

use std::path::PathBuf;

use super::Inner;
use super::version_set::Versions;
use crate::error::{Error, Result};
use crate::version::{Current, Edit, Manifest, Order, Version, manifest_path};

/// A manifest is not written anew while it is shorter than this, or than so many times its first record.
const RENEW_OVER: u64 = 64 << 10;
const RENEW_FACTOR: u64 = 2;

impl Inner {
    /// Begins a manifest with `version`, durably, its name too. `CURRENT` does not name it yet, so the order of commits
    /// that it says is still to be [noted](Inner::note_order).
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
            time: version.is_timed().then(|| self.core.clock.kept()),
            ..version.snapshot()
        };
        let manifest = Manifest::create(fs, dir, number, &edit)?;
        fs.sync_dir(dir).map_err(|e| Error::io(dir, "sync", e))?;
        versions.renew_at = RENEW_OVER.max(manifest.len().saturating_mul(RENEW_FACTOR));
        Ok((manifest, order))
    }

    /// Writes the manifest anew when it has grown, under the manifest lock: its last edit is installed and durable.
    /// Returns the one that it took the place of, to be removed.
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
            // The old one goes on. It is tried again when that has doubled.
            let _ = fs.remove(&manifest_path(dir, number));
            versions.renew_at = len.saturating_mul(2);
            return None;
        };
        if let Err(error) = Current::replace(fs, dir) {
            // An edit in either of the two may be lost with it.
            self.core.poison_with(&error);
            return None;
        }
        self.sequencer.note_order(versions, order);
        versions.manifest = Some(manifest);
        Some(manifest_path(dir, old))
    }
}
