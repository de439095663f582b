//! Versions of a reader beside the writer: what it needs so that somebody else can change the store meanwhile.

use std::io::ErrorKind;

use super::{Known, Version};
use crate::entry::Seq;
use crate::error::{Error, Result};

impl Version {
    /// Up to here the version is to be read, whatever else is visible: its tables have it.
    pub(crate) fn flushed(&self) -> Seq {
        self.flushed
    }

    pub(crate) fn set_flushed(&mut self, seq: Seq) {
        self.flushed = seq;
    }

    /// Takes the place of `before` in the same process, rebuilt from another manifest: tables that are in both are those
    /// that are open already.
    pub(crate) fn succeed(&mut self, before: &Version) {
        (self.changes, self.ordinal) = (before.changes + 1, before.ordinal + 1);
        self.take_over(&Known::of(before.all_tables()));
    }

    /// Opens the files of all tables, so that they can be read after somebody else has removed them. Where the process
    /// may have no more files open the rest waits until it is read.
    ///
    /// # Errors
    /// A file is not there.
    pub(crate) fn hold_files(&self) -> Result<()> {
        let held = self.all_tables().try_for_each(|table| table.hold());
        held.or_else(|error| match &error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }
}
