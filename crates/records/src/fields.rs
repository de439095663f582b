//! The fields of a dataset's records. Each table that has bodies carries a digest of their fields
//! (`esker_lsm::digest`), so that only the records in memory are read.
//!
//! **Invariants.** The set has every field of every record that a snapshot sees. It may also have
//! fields of records that were replaced or deleted since, until the dataset is compacted on
//! request. The digest of a data tree covers bodies alone: a record whose body is stored by
//! location is in the digest of that tree.

use esker_lsm::digest::{Digest, Digester};
use esker_lsm::{Component, Cursor, Kind, Snapshot, TreeId};
use esker_model::fields::{FieldGatherer, Fields};
use esker_model::record::RecordRef;

use crate::catalog::Layout;
use crate::error::{Error, Result};

/// Makes digests of stored records: the fields of their bodies.
pub(crate) struct FieldDigester;

impl Digester for FieldDigester {
    fn begin(&self) -> Box<dyn Digest> {
        Box::new(FieldDigest(FieldGatherer::default()))
    }
}

/// The fields of the entries of one table.
struct FieldDigest(FieldGatherer);

impl Digest for FieldDigest {
    #[inline]
    fn add(&mut self, _key: &[u8], value: &[u8]) {
        add(&mut self.0, value);
    }

    fn absorb(&mut self, stored: &[u8]) -> bool {
        match Fields::decode(stored) {
            Some(fields) => {
                self.0.absorb(&fields);
                true
            }
            None => false,
        }
    }

    fn is_covered_by(&self, stored: &[u8]) -> bool {
        Fields::decode(stored).is_some_and(|stored| stored.covers(self.0.fields()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.fields().encode(out);
    }
}

/// Adds the fields of a stored record, if it has its body. A malformed record has none: reads
/// report it.
#[inline]
fn add(fields: &mut FieldGatherer, stored: &[u8]) {
    if let Some(body) = RecordRef::body_of(stored)
        && !body.is_empty()
    {
        fields.add(body);
    }
}

/// The fields of the records that a snapshot sees; `None` if a table has no digest, because an
/// earlier version wrote it. Reads the digest of each table, and the records in memory.
///
/// # Errors
/// Any read error, and damage if a digest is malformed.
pub(crate) fn in_snapshot(layout: &Layout, snapshot: &Snapshot) -> Result<Option<Fields>> {
    let location_tree = match layout.clustered() {
        Some(attribute) => Some(attribute.index_tree()?),
        None => None,
    };
    let mut fields = FieldGatherer::default();
    for tree in [layout.data].into_iter().chain(location_tree) {
        if !add_tree(&mut fields, tree, snapshot)? {
            return Ok(None);
        }
    }
    Ok(Some(fields.into_fields()))
}

/// Adds the fields of a tree's records; false if a table has no digest.
fn add_tree(fields: &mut FieldGatherer, tree: TreeId, snapshot: &Snapshot) -> Result<bool> {
    let cost = snapshot.cost();
    for component in snapshot.components(tree) {
        match &component {
            Component::Run(run) => {
                for table in run.tables.iter() {
                    let Some(digest) = table.table()?.digest(&cost)? else {
                        return Ok(false);
                    };
                    let stored = Fields::decode(&digest.bytes).ok_or_else(|| {
                        let table = table.meta().number;
                        Error::damaged(format!("table {table} has a malformed set of fields"))
                    })?;
                    fields.absorb(&stored);
                }
            }
            Component::Memtable(_) => {
                let mut entries = snapshot.entries_in(std::slice::from_ref(&component), 0);
                entries.seek_first()?;
                while entries.valid() {
                    if entries.kind() != Kind::Delete {
                        add(fields, entries.value());
                    }
                    entries.next()?;
                }
            }
        }
    }
    Ok(true)
}
