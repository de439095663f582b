//! The digest of a table: where it is, and how it was made.

use std::sync::Arc;

use super::format::Handle;
use super::reader::Table;
use crate::coding::{Reader, put_varint};
use crate::cost::Cost;
use crate::digest::Digester;
use crate::error::Result;

/// How a table gets its digest.
#[derive(Clone)]
pub enum DigestSource {
    /// It is made of the table's entries.
    Entries(Arc<dyn Digester>),
    /// It is given: the digests of the tables that the entries come from.
    Inherited(Arc<Vec<u8>>),
}

/// The digest of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDigest {
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// False if it was made of the table's own entries; true if it comes from the tables that were
    /// compacted into this one, and may cover entries that were dropped.
    pub is_inherited: bool,
}

/// The block of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DigestPlace {
    pub(super) is_inherited: bool,
    pub(super) handle: Handle,
}

impl DigestPlace {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.is_inherited));
        self.handle.put(out);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<DigestPlace> {
        Some(DigestPlace {
            is_inherited: match reader.varint()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            handle: Handle::read(reader)?,
        })
    }
}

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
            bytes: self.block(place.handle, true, cost)?,
            is_inherited: place.is_inherited,
        }))
    }

    /// True if the table has a digest of its own entries. Reads nothing.
    pub fn has_own_digest(&self) -> bool {
        self.digest_place().is_some_and(|place| !place.is_inherited)
    }
}
