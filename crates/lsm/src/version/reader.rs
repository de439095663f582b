//! Versions in a read-only group: the support for changes of the store by another process.

use std::io::ErrorKind;

use super::known::Known;
use super::version::Version;
use crate::entry::Seq;
use crate::error::{Error, Result};

impl Version {
    /// The last write in its tables: reads of the version include at least this.
    pub(crate) fn flushed(&self) -> Seq {
        self.flushed
    }

    pub(crate) fn set_flushed(&mut self, seq: Seq) {
        self.flushed = seq;
    }

    /// Replaces `before` in the same process, rebuilt from another manifest: tables in both stay
    /// open.
    pub(crate) fn succeed(&mut self, before: &Version) {
        (self.changes, self.ordinal) = (before.changes + 1, before.ordinal + 1);
        self.reuse_tables(&Known::of(before.all_tables()));
    }

    /// Opens the files of all tables, so that they stay readable after another process has removed
    /// them. At the limit of open files the rest are opened on first read.
    ///
    /// # Errors
    /// A file is missing.
    pub(crate) fn hold_files(&self) -> Result<()> {
        let held = self.all_tables().try_for_each(|table| table.hold());
        held.or_else(|error| match &error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }
}
