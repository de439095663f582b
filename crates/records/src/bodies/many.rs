//! The bodies of many records, read together: their keys in the location tree are sorted first, so
//! that each block is read once.

use esker_lsm::coding::Own;
use esker_lsm::{Component, Cost, Expected, LookupOptions, Seq, Slice, Snapshot};
use esker_model::record::RecordRef;

use super::location_key::{location_key, missing, no_location_tree};
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::Attribute;

/// A head whose record is to be read.
struct Wanted {
    /// The key of the record in the location tree.
    location_key: Vec<u8>,
    /// The write that made both.
    seq: Seq,
    /// The index that the caller chose for it.
    at: usize,
}

/// Receives records with their bodies, each with the index under which its head was added.
pub(crate) type TakeRecord<'t> = dyn FnMut(usize, Slice) -> Result<()> + 't;

/// Bodies that are read together, in location order. In a dataset whose records are whole, none is
/// ever missing.
pub(crate) struct Bodies<'a> {
    /// The attribute by which records are stored, if they are stored by location.
    attribute: Option<&'a Attribute>,
    snapshot: &'a Snapshot,
    components: Vec<Component>,
    wanted: Vec<Wanted>,
}

impl<'a> Bodies<'a> {
    /// An empty set.
    pub(crate) fn new(layout: &'a Layout, snapshot: &'a Snapshot) -> Result<Bodies<'a>> {
        let attribute = layout.clustered();
        Ok(Bodies {
            components: match attribute {
                Some(attribute) => snapshot.components(attribute.index_tree()?),
                None => Vec::new(),
            },
            attribute,
            snapshot,
            wanted: Vec::new(),
        })
    }

    /// A set for which no body is missing, for callers that do not need bodies.
    pub(crate) fn not_needed(snapshot: &'a Snapshot) -> Bodies<'a> {
        Bodies {
            attribute: None,
            snapshot,
            components: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// True if a stored record has only its head.
    #[inline]
    pub(crate) fn lacks(&self, stored: &[u8]) -> bool {
        self.attribute.is_some() && RecordRef::lacks_body(stored)
    }

    /// Adds the newest entry of a key, under an index that the caller chooses. Only heads may be
    /// added ([`Bodies::lacks`]).
    ///
    /// # Errors
    /// Damage if the head has no point, or the dataset is not stored by location.
    pub(crate) fn add(&mut self, at: usize, key: &[u8], seq: Seq, head: &[u8]) -> Result<()> {
        let attribute = self.attribute.ok_or_else(no_location_tree)?;
        let location_key = location_key(attribute, key, head)?;
        self.wanted.push(Wanted {
            location_key,
            seq,
            at,
        });
        Ok(())
    }

    /// The share of heads in a budget of `bytes` for heads and records, in proportion to their
    /// total sizes. `data` are the components of the data tree.
    pub(crate) fn share_of_heads(&self, data: &[Component], bytes: usize) -> usize {
        if self.attribute.is_none() {
            return bytes;
        }
        let (heads, records) = (size_of_all(data), size_of_all(&self.components));
        let share = heads as f64 / (heads + records).max(1) as f64;
        ((bytes as f64 * share) as usize).max(1)
    }

    /// The approximate size of all records in the location tree.
    pub(crate) fn total_bytes(&self) -> u64 {
        size_of_all(&self.components)
    }

    /// The number of records that wait to be read.
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Reads the records of all added heads, in location order, and clears the set.
    ///
    /// # Errors
    /// Damage if a record is missing; any read error; any error of `take`.
    pub(crate) fn read(
        &mut self,
        options: LookupOptions,
        cost: &Cost,
        take: &mut TakeRecord<'_>,
    ) -> Result<()> {
        match self.read_existing(options, cost, take)? {
            None => Ok(()),
            Some(seq) => Err(missing(self.attribute.ok_or_else(no_location_tree)?, seq)),
        }
    }

    /// As [`Bodies::read`], for heads that may be obsolete: skips records that were dropped.
    /// Returns a write whose record was not found, if there is one.
    pub(crate) fn read_existing(
        &mut self,
        options: LookupOptions,
        cost: &Cost,
        take: &mut TakeRecord<'_>,
    ) -> Result<Option<Seq>> {
        if self.wanted.is_empty() {
            return Ok(None);
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.sort_unstable_by(|a, b| a.location_key.cmp(&b.location_key));
        let keys: Vec<&[u8]> = wanted
            .iter()
            .map(|wanted| wanted.location_key.as_slice())
            .collect();
        let seqs: Vec<Seq> = wanted.iter().map(|wanted| wanted.seq).collect();
        let expected = Expected::Exactly(&seqs);
        let lookup = (self.snapshot).lookup(&self.components, &keys, expected, options, cost);
        let mut is_read = vec![false; wanted.len()];
        let mut taken = Ok(());
        lookup.visit_all(&mut |nth, record| {
            let wanted = wanted.own(nth);
            if record.seq == wanted.seq && taken.is_ok() {
                *is_read.own_mut(nth) = true;
                taken = take(wanted.at, record.value);
            }
        })?;
        taken?;
        let mut missing = wanted
            .iter()
            .zip(&is_read)
            .filter(|(_, is_read)| !**is_read);
        Ok(missing.next_back().map(|(wanted, _)| wanted.seq))
    }
}

/// The approximate size of components, in bytes.
fn size_of_all(components: &[Component]) -> u64 {
    let each = components.iter().map(|component| match component {
        Component::Memtable(memtable) => memtable.memory() as u64,
        Component::Run(run) => run.tables.iter().map(|table| table.meta().size).sum(),
    });
    each.sum()
}
