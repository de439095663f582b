//! Datasets stored by location. The data tree has *stubs*: stored records with their attributes but
//! without their JSON. The tree of the clustered attribute has the full records, under point and
//! key (`index/spatial/clustered.rs`). Stub and record belong to one write and share its number. A
//! record without a point is stored in full in the data tree, as in other datasets.
//!
//! A stub suffices for the record's existence, write number and expiry, and for the attributes
//! declared at the dataset's creation. For anything else this module reads the full record: one by
//! one, or many in location order, so that neighbours come from the same blocks.
//!
//! A record with one point and several times is stored in full under each of them. A walk of the
//! location tree counts it once (`index::stands_for_record`); a stub leads to the first copy.
//!
//! **Invariant.** If a stub is the newest entry of its key in a snapshot, the same snapshot has its
//! record under its number; otherwise the store is damaged. The record of an older stub may have
//! been dropped.

use std::collections::VecDeque;

use esker_lsm::{Component, Cost, Expected, LookupOptions, Seq, Slice, Snapshot};
use esker_model::record::RecordRef;

use crate::catalog::{Attribute, Layout};
use crate::error::{Error, Result};

/// The key of a stub's record in the location tree.
fn place_of(attribute: &Attribute, key: &[u8], stub: &[u8]) -> Result<Vec<u8>> {
    let record = RecordRef::parse(stub);
    let point = record.and_then(|record| {
        let mut values = record.attributes();
        values.find_map(|(id, value)| (id == attribute.id).then_some(value))
    });
    let point = point.ok_or_else(|| {
        Error::damaged(format!(
            "a stored record has neither JSON nor a point at {}",
            attribute.path
        ))
    })?;
    Ok([point, key].concat())
}

#[cold]
fn missing(attribute: &Attribute, seq: Seq) -> Error {
    let path = &attribute.path;
    Error::damaged(format!(
        "the record of write {seq} is not stored at the location of its point at {path}"
    ))
}

/// The full record of a key's newest entry: the entry itself, or the record of the stub.
#[inline]
pub(crate) fn whole(
    layout: &Layout,
    snapshot: &Snapshot,
    (key, seq): (&[u8], Seq),
    stored: Slice,
    cost: &Cost,
) -> Result<Slice> {
    match layout.clustered() {
        Some(attribute) if RecordRef::is_stub(&stored) => {
            let place = place_of(attribute, key, &stored)?;
            let found = snapshot.get(attribute.index_tree()?, &place, cost)?;
            let found = found.filter(|found| found.seq == seq);
            Ok(found.ok_or_else(|| missing(attribute, seq))?.value)
        }
        _ => Ok(stored),
    }
}

/// As [`whole`], for an entry found in a memtable: its record is in a memtable, too.
pub(crate) fn whole_in_memory(
    layout: &Layout,
    snapshot: &Snapshot,
    (key, seq): (&[u8], Seq),
    stored: Slice,
) -> Option<Slice> {
    match layout.clustered() {
        Some(attribute) if RecordRef::is_stub(&stored) => {
            let place = place_of(attribute, key, &stored).ok()?;
            let found = snapshot.get_in_memory(attribute.tree?, &place)?;
            (found.seq == seq).then_some(found.value)
        }
        _ => Some(stored),
    }
}

/// A stub whose record is to be read.
struct Wanted {
    place: Vec<u8>,
    seq: Seq,
    at: usize,
}

/// Receives the records of stubs, each with the index under which its stub was added.
pub(crate) type TakeWhole<'t> = dyn FnMut(usize, Slice) -> Result<()> + 't;

/// Stubs whose records are read together, in location order.
pub(crate) struct Stubs<'a> {
    attribute: &'a Attribute,
    snapshot: &'a Snapshot,
    components: Vec<Component>,
    wanted: Vec<Wanted>,
}

impl<'a> Stubs<'a> {
    /// An empty set; `None` if the dataset has no stubs.
    pub(crate) fn new(layout: &'a Layout, snapshot: &'a Snapshot) -> Result<Option<Stubs<'a>>> {
        let Some(attribute) = layout.clustered() else {
            return Ok(None);
        };
        Ok(Some(Stubs {
            attribute,
            snapshot,
            components: snapshot.components(attribute.index_tree()?),
            wanted: Vec::new(),
        }))
    }

    /// The attribute by which records are stored.
    pub(crate) fn attribute(&self) -> &'a Attribute {
        self.attribute
    }

    /// Adds the newest entry of a key, under an index that the caller chooses.
    pub(crate) fn add(&mut self, at: usize, (key, seq): (&[u8], Seq), stub: &[u8]) -> Result<()> {
        let place = place_of(self.attribute, key, stub)?;
        self.wanted.push(Wanted { place, seq, at });
        Ok(())
    }

    /// The share of stubs in a budget of `bytes` for stubs and records, in proportion to their
    /// total sizes. `data` are the components of the data tree.
    pub(crate) fn share_of_stubs(&self, data: &[Component], bytes: usize) -> usize {
        let (stubs, records) = (size(data), size(&self.components));
        let share = stubs as f64 / (stubs + records).max(1) as f64;
        ((bytes as f64 * share) as usize).max(1)
    }

    /// The approximate size of all records in the location tree.
    pub(crate) fn bytes_of_records(&self) -> u64 {
        size(&self.components)
    }

    /// The number of stubs that wait to be read.
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Reads the records of all added stubs, in location order, and clears the set.
    pub(crate) fn read(
        &mut self,
        options: LookupOptions,
        cost: &Cost,
        take: &mut TakeWhole<'_>,
    ) -> Result<()> {
        let wanted = self.wanted.len();
        let found = self.read_there(options, cost, take)?;
        match found.0 == wanted {
            true => Ok(()),
            false => Err(missing(self.attribute, found.1)),
        }
    }

    /// As [`Stubs::read`], for stubs that may be obsolete: skips records that were dropped. Returns
    /// the number of records found, and the number of a write whose record was not found.
    pub(crate) fn read_there(
        &mut self,
        options: LookupOptions,
        cost: &Cost,
        take: &mut TakeWhole<'_>,
    ) -> Result<(usize, Seq)> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.sort_unstable_by(|a, b| a.place.cmp(&b.place));
        let keys: Vec<&[u8]> = wanted
            .iter()
            .map(|wanted| wanted.place.as_slice())
            .collect();
        let seqs: Vec<Seq> = wanted.iter().map(|wanted| wanted.seq).collect();
        let expected = Expected::Exactly(&seqs);
        let lookup = (self.snapshot).lookup(&self.components, &keys, expected, options, cost);
        let (mut there, mut gone, mut failed) = (vec![false; wanted.len()], 0, Ok(()));
        lookup.visit_all(&mut |nth, found| {
            if let (Some(wanted), Some(there)) = (wanted.get(nth), there.get_mut(nth))
                && found.seq == wanted.seq
                && failed.is_ok()
            {
                *there = true;
                failed = take(wanted.at, found.value);
            }
        })?;
        failed?;
        for (wanted, there) in wanted.iter().zip(&there) {
            if !there {
                gone = wanted.seq;
            }
        }
        Ok((there.iter().filter(|there| **there).count(), gone))
    }
}

fn size(components: &[Component]) -> u64 {
    let each = components.iter().map(|component| match component {
        Component::Memtable(memtable) => memtable.memory() as u64,
        Component::Run(run) => run.tables.iter().map(|table| table.meta().size).sum(),
    });
    each.sum()
}

/// A key and its stored record.
pub(crate) struct Item {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) stored: Slice,
}

impl Item {
    pub(crate) fn new(key: &[u8], seq: Seq, stored: Slice) -> Item {
        let key = key.to_vec();
        Item { key, seq, stored }
    }
}

/// A buffer of a scan by key, whose stubs are replaced by their records together. Its capacity
/// adapts to the size of the records read before: about a mebibyte.
pub(crate) struct Ahead {
    items: VecDeque<Item>,
    most: usize,
}

/// The approximate size of the records that are read ahead.
const AHEAD_BYTES: usize = 1 << 20;

/// The first and the largest capacity.
const FIRST_AHEAD: usize = 64;
const MOST_AHEAD: usize = 4096;

impl Ahead {
    pub(crate) fn new() -> Ahead {
        Ahead {
            items: VecDeque::new(),
            most: FIRST_AHEAD,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= self.most
    }

    pub(crate) fn push(&mut self, key: &[u8], seq: Seq, stored: Slice) {
        self.items.push_back(Item::new(key, seq, stored.compact()));
    }

    /// The next item, in insertion order.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// Replaces all stubs in the buffer by their records.
    pub(crate) fn fill(&mut self, layout: &Layout, snapshot: &Snapshot, cost: &Cost) -> Result<()> {
        let Some(mut stubs) = Stubs::new(layout, snapshot)? else {
            return Ok(());
        };
        for (at, item) in self.items.iter().enumerate() {
            if RecordRef::is_stub(&item.stored) {
                stubs.add(at, (&item.key, item.seq), &item.stored)?;
            }
        }
        let (read, mut bytes) = (stubs.len(), 0);
        stubs.read(LookupOptions::default(), cost, &mut |at, record| {
            bytes += record.len();
            if let Some(item) = self.items.get_mut(at) {
                item.stored = record.compact();
            }
            Ok(())
        })?;
        if let Some(each) = bytes.checked_div(read) {
            let fits = AHEAD_BYTES / (each + 1);
            self.most = fits.clamp(1, MOST_AHEAD.min(self.most * 4));
        }
        Ok(())
    }
}
