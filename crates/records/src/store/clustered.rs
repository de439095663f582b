//! Datasets that are stored by place. The tree of the data has *stubs*: stored records with their attributes and without their
//! JSON; the tree of the clustered attribute has the records, under point and key (`index/spatial/clustered.rs`). Both are one write
//! and have its number. A record without a point is whole in the data, as all are in other datasets.
//!
//! Here a stub becomes the record: one at a time, or many together in the order of place, so that neighbours come from the same
//! blocks. What a stub says is enough for: is the record there, of which write, has it expired, and the attributes that were declared
//! when the dataset was created. Whoever needs more, or gives the record out, has it read here.
//!
//! A record of one place and several times is under each of them, whole. Who goes through the tree by place counts it once
//! (`index::stands_for_record`); a stub leads to the first.
//!
//! **Invariant.** The record of a stub that is the newest entry of its key, in the same snapshot, is there under its number: where it
//! is not, the store is damaged. That of an older stub may be gone.

use std::collections::VecDeque;

use esker_lsm::{Component, Cost, Expected, LookupOptions, Seq, Slice, Snapshot};
use esker_model::record::RecordRef;

use crate::catalog::{Attribute, Layout};
use crate::error::{Error, Result};

/// The key of a stub's record in the tree by place.
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

/// The record of the newest entry of a key: itself, unless it is a stub.
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

/// The same of an entry that was found in a memtable: its record is in one, too.
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

/// A stub whose record is wanted.
struct Wanted {
    place: Vec<u8>,
    seq: Seq,
    at: usize,
}

/// Is given the records of stubs, each with the number that it was added with.
pub(crate) type TakeWhole<'t> = dyn FnMut(usize, Slice) -> Result<()> + 't;

/// Stubs whose records are read together, in the order of place.
pub(crate) struct Stubs<'a> {
    attribute: &'a Attribute,
    snapshot: &'a Snapshot,
    components: Vec<Component>,
    wanted: Vec<Wanted>,
}

impl<'a> Stubs<'a> {
    /// None yet; `None` where the dataset has no stubs.
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

    /// The attribute by whose place records are stored.
    pub(crate) fn attribute(&self) -> &'a Attribute {
        self.attribute
    }

    /// Adds what is stored of a key, and is the newest of it, under a number of the caller's.
    pub(crate) fn add(&mut self, at: usize, (key, seq): (&[u8], Seq), stub: &[u8]) -> Result<()> {
        let place = place_of(self.attribute, key, stub)?;
        self.wanted.push(Wanted { place, seq, at });
        Ok(())
    }

    /// Of so many bytes for records how many are for their stubs, in `data`, where both are to fit: by what all of them take.
    pub(crate) fn share_of_stubs(&self, data: &[Component], bytes: usize) -> usize {
        let (stubs, records) = (size(data), size(&self.components));
        let share = stubs as f64 / (stubs + records).max(1) as f64;
        ((bytes as f64 * share) as usize).max(1)
    }

    /// Bytes of all records that are stored by place, about.
    pub(crate) fn bytes_of_records(&self) -> u64 {
        size(&self.components)
    }

    /// How many wait to be read.
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Gives the records of all that were added, in the order of place, and forgets them.
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

    /// The same, of stubs that may be obsolete: without the records that are gone. Returns how many were there, and the number of
    /// one that was not.
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

/// A record by its key.
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

/// What a scan by key gives, some of it at a time, so that stubs become records together: as many as fit a mebibyte, about, by the
/// size of those before.
pub(crate) struct Ahead {
    items: VecDeque<Item>,
    most: usize,
}

/// Bytes of records that are read ahead, about.
const AHEAD_BYTES: usize = 1 << 20;

/// How many at first, and at most.
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

    /// The next one, in the order in which they were added.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// Makes all that are there whole.
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
