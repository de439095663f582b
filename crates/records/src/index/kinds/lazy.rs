//! The lazy index (LevelDB++ section 4.1.2): a posting list per value, appended to without reading.
//! A write adds an operand with one posting; flushes and compactions combine operands into pieces
//! of a few KiB, so that a list of any length is read and merged in bounded memory. The pieces of a
//! value are ordered newest first, within a component and between components, so a top-K lookup
//! stops early.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_lsm::{Kind, RunSink, Seq, TreeOptions};
use esker_model::posting::{self, Posting, PostingList, PostingMerge};

use crate::error::Result;
use crate::index::build::{Build, ListBuilder, WritePiece};
use crate::index::cost::{Access, AttributeProfile, Figures, Workload, percent};
use crate::index::estimate::{Postings, ValuePosition};
use crate::index::kind::EntryWrites;
use crate::index::posting_filter::PostingFilterFactory;
use crate::index::posting_merge::PostingOperator;
use crate::index::walk::walk;
use crate::index::{
    Attribute, BestCandidates, Entry, IndexEntry, IndexType, Lookup, Range, Recency, VisitPosting,
    Writes,
};

/// The lazy index.
pub(super) struct Lazy;

impl IndexType for Lazy {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        append(writes, index_entry, false)
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        append(writes, index_entry, true)
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        let tree = attribute.index_tree()?;
        if let Some(value) = range.point() {
            let mut walk = lookup.snapshot.walk(tree, value);
            while let Some(entry) = walk.next_entry()? {
                // Newest first: if the K best are found and this piece is older, so are all later
                // ones.
                if best.order() == Recency::Newest
                    && best.is_beyond(Recency::Newest.rank(entry.seq))
                {
                    best.note_skipped();
                    break;
                }
                offer_piece(&entry.value, entry.seq, attribute, best)?;
            }
            lookup.index_cost.absorb(walk.cost());
            return Ok(());
        }
        let (lo, hi) = range.key_bounds();
        let bounds = (lo.as_slice(), hi.as_deref());
        walk(
            lookup,
            tree,
            bounds,
            EntryWrites::OneAndOlder,
            best,
            &mut |entry, best| {
                if entry.kind == Kind::Operand {
                    offer_piece(entry.value, entry.seq, attribute, best)?;
                }
                Ok(())
            },
        )
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        let lists = Postings {
            are_rewritten: false,
        };
        lookup.estimate(attribute, range, ValuePosition::WholeKey, &lists)
    }

    /// Lists are looked up by their exact key.
    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        Some(TreeOptions {
            operator: Some(Arc::new(PostingOperator(PostingMerge {
                versions,
                ..PostingMerge::default()
            }))),
            filter: Some(Arc::new(PostingFilterFactory)),
            ..TreeOptions::default()
        })
    }

    fn is_in_value_order(&self) -> bool {
        true
    }

    fn counts_by_component(&self) -> Option<EntryWrites> {
        Some(EntryWrites::OneAndOlder)
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
        Some(Box::new(ListBuilder::new(posting::CHUNK_BYTES, Pieces)))
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Entries,
            write: 1.4,
            lookup: 40.0,
            row: 5.2,
            entry: 0.0,
            bytes: 5.0,
        }
    }

    fn why(&self, work: &Workload, profile: &AttributeProfile) -> String {
        let queries = percent(work.queries());
        if work.limited < 0.5 {
            format!(
                "{queries} of the operations query it, mostly for all of the {:.0} records of a value: a short list is read in one go",
                profile.matches().ceil()
            )
        } else {
            format!(
                "{queries} of the operations query it, for the newest {:.0}: the newest of a value's list lie together",
                work.limit
            )
        }
    }
}

/// Writes the pieces of a built list as operands of its value.
struct Pieces;

impl WritePiece for Pieces {
    fn write(
        &mut self,
        value: &[u8],
        newest: Seq,
        piece: &[u8],
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()> {
        sink(value, newest, Kind::Operand, piece)
    }
}

/// Visits the index entries of an entry that holds a piece of a posting list.
pub(super) fn entries_of_piece(
    attribute: &Attribute,
    entry: Entry<'_>,
    visit: &mut VisitPosting<'_>,
) -> Result<()> {
    let list = parse(entry.stored, entry.seq, attribute)?;
    visit_list(list, attribute, &mut |posting| {
        visit(entry.value, posting.key, posting.seq, posting.cancel)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Adds an operand with one posting, or with its cancellation.
fn append(writes: &mut Writes, index_entry: IndexEntry<'_>, cancel: bool) -> Result<()> {
    let mut operand = std::mem::take(&mut writes.scratch);
    operand.clear();
    posting::encode_one(&mut operand, index_entry.key, cancel);
    let tree = index_entry.attribute.index_tree()?;
    let result = writes.also(Kind::Operand, tree, index_entry.value, &operand);
    writes.scratch = operand;
    result
}

/// Offers the postings of a piece; `seq` is the number of the entry that holds it.
pub(super) fn offer_piece(
    piece: &[u8],
    seq: Seq,
    attribute: &Attribute,
    best: &mut BestCandidates,
) -> Result<()> {
    let list = parse(piece, seq, attribute)?;
    // A page of a long list skips the other pieces after reading their headers.
    if !best.admits_span(list.oldest(), list.newest()) {
        best.note_skipped();
        return Ok(());
    }
    visit_list(list, attribute, &mut |posting| {
        if posting.cancel {
            return Ok(ControlFlow::Continue(()));
        }
        if best.order() == Recency::Newest && best.is_beyond(Recency::Newest.rank(posting.seq)) {
            best.note_skipped();
            return Ok(ControlFlow::Break(()));
        }
        best.offer(posting.seq, posting.key);
        Ok(ControlFlow::Continue(()))
    })
}

/// Parses a piece; `seq` is the number of the entry that holds it.
fn parse<'p>(piece: &'p [u8], seq: Seq, attribute: &Attribute) -> Result<PostingList<'p>> {
    PostingList::parse(piece, seq).map_err(|_| attribute.malformed("posting list"))
}

/// Visits the postings of a list, newest first, until `visit` breaks.
fn visit_list(
    list: PostingList<'_>,
    attribute: &Attribute,
    visit: &mut dyn FnMut(Posting<'_>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut postings = list.reader();
    let malformed = |_| attribute.malformed("posting list");
    while let Some(posting) = postings.next().map_err(malformed)? {
        if visit(posting)?.is_break() {
            break;
        }
    }
    Ok(())
}
