//! The digest of a table: how it is made, and where it is.

use std::sync::Arc;

use super::format::Handle;
use crate::coding::{Reader, put_varint};
use crate::digest::Digester;

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
