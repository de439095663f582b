//! The eager index (LevelDB++ section 4.1.1): each write reads, changes and rewrites the posting
//! list of the value. Lists are split into chunks of a few KiB, so that memory is bounded and a
//! write reads and writes at most one chunk. It still slows writes most, as the papers show.
//!
//! The key of a chunk is the value and the chunk's number, complemented so that the newest chunk
//! comes first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map;
use std::ops::RangeInclusive;
use std::sync::Arc;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Batch, Component, Cursor, Kind, RunSink, Seq, Snapshot, TreeCursor, TreeOptions};
use esker_model::posting::{Posting, PostingMerge};

use super::lazy::{entries_of_piece, offer_piece};
use crate::error::Result;
use crate::index::build::{Build, ListBuilder, WritePiece};
use crate::index::cost::{Access, Figures};
use crate::index::estimate::{Postings, ValuePosition};
use crate::index::posting_filter::PostingFilterFactory;
use crate::index::{
    Attribute, BestCandidates, Completion, DeferredChange, Entry, IndexEntry, IndexType, Lookup,
    Range, Recency, VisitPosting, Writes,
};

/// The size of a full chunk.
const CHUNK_BYTES: usize = 8 << 10;

/// The first chunk number of lists written while the index is built: the build gives chunks of
/// older postings the numbers below.
const FIRST_WHILE_BUILT: u32 = 1 << 31;

/// The eager index.
pub(super) struct Eager;

impl IndexType for Eager {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        writes.defer_add(index_entry)
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        writes.defer_cancel(index_entry)
    }

    fn prepare(
        &self,
        changes: &[&DeferredChange],
        snapshot: &Snapshot,
    ) -> Result<Box<dyn Completion>> {
        Ok(Box::new(Heads::look_up(changes, snapshot)?))
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        let (lo, hi) = range.key_bounds();
        let is_point = range.point().is_some();
        let mut cursor = lookup.snapshot.cursor(attribute.index_tree()?, 0);
        cursor.within(&lo, hi.as_deref());
        cursor.seek_first()?;
        while cursor.valid() {
            // The chunks of a value are ordered newest first.
            if is_point
                && best.order() == Recency::Newest
                && best.is_beyond(Recency::Newest.rank(cursor.seq()))
            {
                best.note_skipped();
                break;
            }
            offer_piece(cursor.value(), cursor.seq(), attribute, best)?;
            cursor.next()?;
        }
        lookup.index_cost.absorb(&cursor.cost());
        Ok(())
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        let lists = Postings {
            are_rewritten: true,
        };
        lookup.estimate(attribute, range, ValuePosition::BeforeNumber, &lists)
    }

    fn tree_options(&self, _versions: usize) -> Option<TreeOptions> {
        Some(TreeOptions {
            filter: Some(Arc::new(PostingFilterFactory)),
            filter_bits_per_key: 0,
            ..TreeOptions::default()
        })
    }

    fn is_in_value_order(&self) -> bool {
        true
    }

    fn entries_of(
        &self,
        attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        entries_of_piece(attribute, entry, visit)
    }

    fn builder(&self) -> Option<Box<dyn Build>> {
        Some(Box::new(ListBuilder::new(CHUNK_BYTES, Chunks::default())))
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Entries,
            write: 15.0,
            lookup: 20.0,
            row: 5.2,
            entry: 0.0,
            bytes: 6.0,
        }
    }

    /// Its write cost grows with its lists.
    fn is_advised(&self) -> bool {
        false
    }
}

/// Writes the pieces of a built list as its oldest chunks. Newer chunks have higher numbers, and
/// come first.
#[derive(Default)]
struct Chunks {
    /// The value of the current list, and the number of its last chunk.
    value: Option<Vec<u8>>,
    chunk: u32,
    key: Vec<u8>,
}

impl WritePiece for Chunks {
    fn write(
        &mut self,
        value: &[u8],
        newest: Seq,
        piece: &[u8],
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()> {
        if self.value.as_deref() != Some(value) {
            self.value = Some(value.to_vec());
            self.chunk = FIRST_WHILE_BUILT;
        }
        self.chunk -= 1;
        self.key.clear();
        self.key.extend_from_slice(value);
        self.key
            .extend_from_slice(&(u32::MAX - self.chunk).to_be_bytes());
        sink(&self.key, newest, Kind::Put, piece)
    }
}

/// The heads (newest chunks) of the lists that a batch changes. They are read before the append, so
/// that no writer waits for the reads. Later changes to a list are in the memtables, and are found
/// without I/O.
struct Heads {
    /// The head of each list, by the value; `None` if there is no list.
    by_value: HashMap<Vec<u8>, Option<Head>>,
    /// The snapshot of the lookup.
    snapshot: Snapshot,
}

/// The newest chunk of a list.
#[derive(Clone)]
struct Head {
    key: Vec<u8>,
    chunk: Vec<u8>,
    /// The sequence number of its entry.
    seq: Seq,
}

impl Head {
    /// The number of the chunk in the list of `value`.
    fn number(&self, value: &[u8]) -> std::result::Result<u32, Misplaced> {
        let suffix = self.key.strip_prefix(value).and_then(<[u8]>::first_chunk);
        let complemented = suffix.ok_or_else(|| Misplaced::here())?;
        Ok(u32::MAX - u32::from_be_bytes(*complemented))
    }
}

impl Heads {
    /// Reads the heads of all changed lists.
    fn look_up(changes: &[&DeferredChange], snapshot: &Snapshot) -> esker_lsm::Result<Heads> {
        let mut by_value = HashMap::new();
        for change in changes {
            if let hash_map::Entry::Vacant(place) = by_value.entry(change.value.clone()) {
                let cursor = snapshot.cursor(change.tree, 0);
                place.insert(head(cursor, &change.value)?);
            }
        }
        Ok(Heads {
            by_value,
            snapshot: snapshot.clone(),
        })
    }

    /// The current head of a list, under the writer lock. Every write to a list writes its head. So
    /// if a list changed since the lookup, its new head is in a memtable, unless the head was
    /// deleted: then the lookup must be repeated. The lookup must also be repeated if the tree was
    /// flushed or compacted: a compaction may have dropped postings from the head, and the obsolete
    /// set may have forgotten them since.
    ///
    /// # Errors
    /// [`esker_lsm::Error::Conflict`] if the lookup must be repeated.
    fn current_head(
        &self,
        change: &DeferredChange,
        snapshot: &Snapshot,
    ) -> esker_lsm::Result<Option<Head>> {
        let overtaken = || esker_lsm::Error::Conflict("the batch was overtaken".to_string());
        let seq = self.snapshot.seq();
        if snapshot.flushed() > seq || !snapshot.has_tables_of(&self.snapshot, change.tree) {
            return Err(overtaken());
        }
        let mut components = snapshot.components(change.tree);
        components.retain(|component| matches!(component, Component::Memtable(_)));
        let newer = head(snapshot.cursor_over(&components, 0), &change.value)?;
        if let Some(newer) = newer.filter(|newer| newer.seq > seq) {
            return Ok(Some(newer));
        }
        let known = self.by_value.get(&change.value);
        let known = known.ok_or_else(|| Misplaced::here())?;
        if let Some(known) = known {
            let now = snapshot.get_in_memory(change.tree, &known.key);
            if now.is_some_and(|now| now.seq > seq) {
                return Err(overtaken());
            }
        }
        Ok(known.clone())
    }
}

/// The first chunk of the list of `value`.
fn head(mut cursor: TreeCursor, value: &[u8]) -> esker_lsm::Result<Option<Head>> {
    cursor.within(value, esker_model::range::after_prefix(value).as_deref());
    cursor.seek_first()?;
    Ok(cursor.valid().then(|| Head {
        key: cursor.key().to_vec(),
        chunk: cursor.value().to_vec(),
        seq: cursor.seq(),
    }))
}

impl Completion for Heads {
    /// Applies the changes to the lists as `snapshot` has them, and adds the changed chunks to
    /// `batch`. Writes each changed list once.
    fn complete(
        &self,
        changes: &[&DeferredChange],
        batch: &mut Batch,
        seqs: RangeInclusive<Seq>,
        snapshot: &Snapshot,
    ) -> esker_lsm::Result<()> {
        let (first, last) = seqs.into_inner();
        let mut changes = changes.to_vec();
        changes.sort_by(|a, b| (&a.value, Reverse(a.ordinal)).cmp(&(&b.value, Reverse(b.ordinal))));
        for list in changes.chunk_by(|a, b| a.value == b.value) {
            let change = list.first().ok_or_else(|| Misplaced::here())?;
            let operator = PostingMerge {
                chunk_bytes: CHUNK_BYTES,
                versions: change.versions as usize,
            };
            let mut pieces: Vec<Vec<u8>> = Vec::new();
            for change in list {
                let mut one = Vec::new();
                Posting {
                    seq: first + Seq::from(change.ordinal),
                    key: &change.key,
                    cancel: change.cancels,
                }
                .encode(&mut one);
                let joined = pieces
                    .last_mut()
                    .is_some_and(|piece| operator.combine(piece, last, &one, last));
                if !joined {
                    pieces.push(one);
                }
            }
            let head = self.current_head(change, snapshot)?;
            write_list(batch, change, pieces, head, &operator, last)?;
        }
        Ok(())
    }
}

/// Writes `pieces` (newest first) in front of the list of `change`'s value. The oldest piece is
/// joined with the newest existing chunk if that has room.
fn write_list(
    batch: &mut Batch,
    change: &DeferredChange,
    mut pieces: Vec<Vec<u8>>,
    head: Option<Head>,
    operator: &PostingMerge,
    last: Seq,
) -> esker_lsm::Result<()> {
    let mut number = if change.is_being_built {
        FIRST_WHILE_BUILT
    } else {
        0
    };
    if let Some(head) = &head {
        number = head.number(&change.value)?;
        let is_joined = pieces.last_mut().is_some_and(|oldest| {
            // Only the size of the old chunk decides, because the new piece is small.
            head.chunk.len() < CHUNK_BYTES && operator.combine(oldest, last, &head.chunk, head.seq)
        });
        if !is_joined {
            number += 1;
        }
    }
    for (number, mut piece) in (number..).zip(pieces.into_iter().rev()) {
        let key = [change.value.as_slice(), &(u32::MAX - number).to_be_bytes()].concat();
        // A cancellation is dropped once no older chunk is left that it could apply to.
        let oldest = number == 0;
        if operator.finish(last, &mut piece, oldest) {
            batch.also(Kind::Put, change.tree, &key, &piece)?;
        } else if head.as_ref().is_some_and(|head| head.key == key) {
            batch.also(Kind::Delete, change.tree, &key, &[])?;
        }
    }
    Ok(())
}
