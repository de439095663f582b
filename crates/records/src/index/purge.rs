//! Leaves postings out of lists at merges when the writes that made them are over: a list is one entry with
//! many facts, so the engine cannot do it by the entry's number.

use lsm::merge::{Judge, Judged, MergeFilter, Over, Verdict};

use crate::posting::{PostingList, PostingWriter};

pub(super) struct Purge;

impl MergeFilter for Purge {
    fn begin(&self, over: &Over) -> Box<dyn Judge> {
        Box::new(Pass(over.clone()))
    }

    fn may_be_passed_over(&self) -> bool {
        true
    }
}

/// One merge.
struct Pass(Over);

impl Judge for Pass {
    fn judge(&mut self, entry: Judged<'_>, _: &mut dyn FnMut() -> bool) -> Verdict {
        if self.0.is_empty() {
            return Verdict::Keep;
        }
        // What cannot be read stays as it is, for the query that will say so.
        match without(entry.value, entry.seq, &self.0) {
            None => Verdict::Keep,
            Some(left) if left.is_empty() => Verdict::Drop,
            Some(left) => Verdict::Rewrite(left),
        }
    }
}

/// The list without the postings that are over; `None` when there is none of them, or the list is
/// malformed.
fn without(list: &[u8], entry: u64, over: &Over) -> Option<Vec<u8>> {
    let list = PostingList::parse(list, entry).ok()?;
    let mut writer = PostingWriter::new();
    let mut postings = list.reader();
    let mut dropped = false;
    while let Some(posting) = postings.next().ok()? {
        // A cancel belongs to the write that took the value away, and speaks of older ones.
        if !posting.cancel && over.contains(posting.seq) {
            dropped = true;
        } else if !writer.push(posting) {
            return None;
        }
    }
    dropped.then(|| {
        let mut left = Vec::new();
        writer.finish(list.is_settled(), &mut left);
        left
    })
}
