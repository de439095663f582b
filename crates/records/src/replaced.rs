//! What a batch replaces, for the strategies that know it when they write: eager maintenance reads the old
//! record and takes its index entries back (Luo & Carey section 3.1), a mutable bitmap has the bit of
//! the old write set (section 5.2), and an insert must replace nothing. All begin with the
//! primary-key index, which tells new keys from known ones without touching a record.
//!
//! Looked up before the batch has its place, all keys of the batch together, so that writers do not wait
//! for each other's reads. Under the writer lock it is only checked that it is still so: what was
//! written to a key since is in the memtables, and found there without I/O.

use std::collections::HashSet;

use lsm::{Batch, Cost, Kind, Seq, Snapshot};

use crate::def::Maintenance;
use crate::error::Result;
use crate::index::{self, Fact, Writes};
use crate::layout::Layout;
use crate::record::RecordRef;

/// A record that a batch puts or deletes.
pub(crate) struct Touched {
    pub(crate) key: Vec<u8>,
    /// Which of the batch's sequence numbers it has.
    pub(crate) ordinal: u32,
    /// Its key must be new.
    pub(crate) insert: bool,
}

/// What is there of a batch's keys.
pub(crate) struct Replaced {
    /// The batch's keys, ascending, each once, and the write that each had last.
    found: Vec<(Vec<u8>, Option<Seq>)>,
    /// Up to this write.
    seq: Seq,
}

/// Why a batch cannot be completed now.
pub(crate) enum Conflict {
    /// Somebody wrote one of the keys since: look again.
    Changed,
    /// The key of an insert is there.
    Exists(Vec<u8>),
}

impl Replaced {
    /// Looks the keys up in the primary-key index: in one batch.
    pub(crate) fn look_up(
        layout: &Layout,
        snapshot: &Snapshot,
        touched: &[Touched],
    ) -> Result<Replaced> {
        let needed = |t: &&Touched| t.insert || layout.stored.upkeep.maintenance.looks_at_writes();
        let keys = touched
            .iter()
            .filter(needed)
            .map(|touched| touched.key.clone());
        let mut found: Vec<(Vec<u8>, Option<Seq>)> = keys.map(|key| (key, None)).collect();
        found.sort_unstable();
        found.dedup();
        let keys: Vec<Vec<u8>> = found.iter().map(|(key, _)| key.clone()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        if let Some(tree) = layout.keys {
            let cost = Cost::default();
            match keys.as_slice() {
                [key] => {
                    let entry = snapshot.get(tree, key, &cost)?;
                    if let (Some(entry), Some(slot)) = (entry, found.first_mut()) {
                        slot.1 = Some(entry.seq);
                    }
                }
                _ => snapshot.visit_batch(tree, &keys, &cost, &mut |at, entry| {
                    if let Some(slot) = found.get_mut(at) {
                        slot.1 = Some(entry.seq);
                    }
                })?,
            }
        }
        Ok(Replaced {
            found,
            seq: snapshot.seq(),
        })
    }

    /// Adds what takes the index entries of the old records back, but for the values that the batch gives
    /// the record again: eager maintenance.
    pub(crate) fn cancel(
        &self,
        layout: &Layout,
        snapshot: &Snapshot,
        writes: &mut Writes,
    ) -> Result<()> {
        // What the batch leaves of each of its records. A record that comes several times has the facts of
        // its earlier versions to be taken back, too.
        let mut left: Vec<(Vec<u8>, Vec<Facts>)> = Vec::new();
        writes.batch.each(&mut |tree, kind, key, value| {
            if tree == layout.data {
                let facts = match (kind, RecordRef::parse(value)) {
                    (Kind::Put, Some(record)) => facts_of(&record),
                    _ => Facts::new(),
                };
                left.push((key.to_vec(), vec![facts]));
            }
        });
        // Stable: of equal keys the later one is the newer.
        left.sort_by(|a, b| a.0.cmp(&b.0));
        left.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1.append(&mut later.1);
            }
            same
        });
        let known = self.found.iter().filter(|(_, seq)| seq.is_some());
        let keys: Vec<&[u8]> = known.map(|(key, _)| key.as_slice()).collect();
        let cost = Cost::default();
        snapshot.visit_batch(layout.data, &keys, &cost, &mut |at, old| {
            let place = keys.get(at).and_then(|key| {
                left.binary_search_by(|(other, _)| other.as_slice().cmp(key))
                    .ok()
            });
            let facts = RecordRef::parse(&old.value).map(|record| facts_of(&record));
            if let (Some((_, versions)), Some(facts)) =
                (place.and_then(|place| left.get_mut(place)), facts)
            {
                versions.insert(0, facts);
            }
        })?;
        writes.own_numbers = true;
        let result = cancel_all(layout, &left, writes);
        writes.own_numbers = false;
        result
    }

    /// Under the writer lock, with everything before the batch in `snapshot`: checks that what was found is
    /// what is there, and sets the bits of what is replaced.
    pub(crate) fn complete(
        &self,
        layout: &Layout,
        touched: &[Touched],
        batch: &mut Batch,
        first: Seq,
        snapshot: &Snapshot,
    ) -> std::result::Result<lsm::Result<()>, Conflict> {
        // Writes between the look-up and now are in the memtables, unless these were flushed.
        if snapshot.flushed() > self.seq {
            return Err(Conflict::Changed);
        }
        let maintenance = layout.stored.upkeep.maintenance;
        let tree = layout.keys.unwrap_or(layout.data);
        let mut current = Vec::with_capacity(self.found.len());
        for (key, seq) in &self.found {
            current.push(match snapshot.get_in_memory(tree, key) {
                Some(entry) if entry.seq > self.seq => {
                    // The bits of a record need its last write, its index entries need its values.
                    if maintenance == Maintenance::Eager {
                        return Err(Conflict::Changed);
                    }
                    Some(entry.seq).filter(|_| entry.kind == Kind::Put)
                }
                _ => *seq,
            });
        }
        let mut inserted = HashSet::new();
        for touched in touched.iter().filter(|touched| touched.insert) {
            let place = self
                .found
                .binary_search_by(|(key, _)| key.cmp(&touched.key));
            let there = place
                .ok()
                .and_then(|place| current.get(place))
                .copied()
                .flatten();
            if there.is_some() || !inserted.insert(touched.key.as_slice()) {
                return Err(Conflict::Exists(touched.key.clone()));
            }
        }
        let (Maintenance::MutableBitmap, Some(bitmap)) = (maintenance, layout.superseded) else {
            return Ok(Ok(()));
        };
        let mut set = |seq: Seq| batch.also(Kind::Put, bitmap, &lsm::entry::seq_key(seq), &[]);
        let mut result = Ok(());
        for seq in current.into_iter().flatten() {
            result = result.and_then(|()| set(seq));
        }
        // A record that comes several times replaces itself.
        let mut order: Vec<&Touched> = touched.iter().collect();
        order.sort_by(|a, b| a.key.cmp(&b.key));
        for pair in order.windows(2) {
            if let [earlier, later] = pair
                && earlier.key == later.key
            {
                result = result.and_then(|()| set(first + Seq::from(earlier.ordinal)));
            }
        }
        Ok(result)
    }
}

/// Attribute ids and values of a record.
type Facts = Vec<(u32, Vec<u8>)>;

fn facts_of(record: &RecordRef<'_>) -> Facts {
    record
        .attributes()
        .map(|(id, value)| (id, value.to_vec()))
        .collect()
}

/// Takes back what versions of records had and their last version has not.
fn cancel_all(layout: &Layout, left: &[(Vec<u8>, Vec<Facts>)], writes: &mut Writes) -> Result<()> {
    for (key, versions) in left {
        let Some((last, earlier)) = versions.split_last() else {
            continue;
        };
        let mut over: Vec<&(u32, Vec<u8>)> = earlier.iter().flatten().collect();
        over.sort_unstable();
        over.dedup();
        for (id, value) in over.into_iter().filter(|fact| !last.contains(fact)) {
            for (_, attribute) in layout.written().filter(|(_, a)| a.id == *id) {
                if let Some(index) = index::of(attribute.kind) {
                    let fact = Fact {
                        attribute,
                        value,
                        key,
                    };
                    index.cancel(writes, fact)?;
                }
            }
        }
    }
    Ok(())
}
