//! Reads the digest of a table.

use super::digest::TableDigest;
use super::reader::Table;
use crate::cost::Cost;
use crate::error::Result;

impl Table {
    /// The table's digest; `None` if it has none: its tree has no digests, or it was written before
    /// the tree had.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) and [`Error::Corruption`](crate::Error::Corruption) of the
    /// block.
    pub fn digest(&self, cost: &Cost) -> Result<Option<TableDigest>> {
        let Some(place) = self.digest_place() else {
            return Ok(None);
        };
        Ok(Some(TableDigest {
            bytes: self.block(place.handle, true, cost)?.into_shared(),
            is_inherited: place.is_inherited,
        }))
    }

    /// True if the table has a digest of its own entries. Reads nothing.
    pub fn has_own_digest(&self) -> bool {
        self.digest_place().is_some_and(|place| !place.is_inherited)
    }
}
