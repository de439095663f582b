//! The digests of tables that compactions write: see [`crate::digest`].

use std::sync::Arc;

use crate::cost::Cost;
use crate::table::DigestSource;
use crate::version::{TableFile, TreeVersion};

/// The digest of the tables that a compaction of `tables` writes. With `anew`, or if an input has
/// no readable digest, each gets one of its own entries; else all get the digests of the inputs
/// together.
pub(super) fn source<'t>(
    tree: &TreeVersion,
    tables: impl Iterator<Item = &'t Arc<TableFile>>,
    anew: bool,
) -> Option<DigestSource> {
    let digester = tree.options.digester.as_ref()?;
    let entries = || Some(DigestSource::Entries(Arc::clone(digester)));
    if anew {
        return entries();
    }
    let mut all = digester.begin();
    for table in tables {
        // A table that cannot be read fails the compaction itself.
        let read = table
            .table()
            .and_then(|table| table.digest(&Cost::default()));
        match read {
            Ok(Some(digest)) if all.absorb(&digest.bytes) => {}
            _ => return entries(),
        }
    }
    let mut bytes = Vec::new();
    all.encode(&mut bytes);
    Some(DigestSource::Inherited(Arc::new(bytes)))
}

/// True if the digest of a table is missing or may cover entries that the table does not have.
pub(super) fn are_stale<'t>(
    tree: &TreeVersion,
    mut tables: impl Iterator<Item = &'t Arc<TableFile>>,
) -> bool {
    let is_stale = |table: &Arc<TableFile>| {
        let exact = table.table().map(|table| table.has_own_digest());
        exact.is_ok_and(|exact| !exact)
    };
    tree.options.digester.is_some() && tables.any(is_stale)
}

/// True if a compaction on request has to renew digests of the tree.
pub(crate) fn has_stale_digests(tree: &TreeVersion) -> bool {
    are_stale(tree, tree.tables())
}
