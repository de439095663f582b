//! Drops postings from lists in compactions when the writes that made them are obsolete: a list is one entry with
//! many index entries, so the engine cannot do it by the entry's number.

use esker_lsm::Seq;
use esker_lsm::merge::{
    CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, ObsoleteWrites,
};
use esker_model::posting::{PostingList, PostingWriter};

pub(super) struct Purge;

impl CompactionFilterFactory for Purge {
    fn begin(&self, over: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        Box::new(Pass(over.clone()))
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn spans_keys(&self) -> bool {
        // An entry is judged by itself.
        false
    }

    fn writes(&self, entry: FilteredEntry<'_>, show: &mut dyn FnMut(Seq)) -> bool {
        let Ok(list) = PostingList::parse(entry.value, entry.seq) else {
            return false;
        };
        let mut postings = list.reader();
        loop {
            match postings.next() {
                Ok(Some(posting)) if posting.cancel => {}
                Ok(Some(posting)) => show(posting.seq),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn drops_obsolete(&self) -> bool {
        true
    }
}

/// One compaction.
struct Pass(ObsoleteWrites);

impl CompactionFilter for Pass {
    fn decide(&mut self, entry: FilteredEntry<'_>, _: &mut dyn FnMut() -> bool) -> Decision {
        if self.0.is_empty() {
            return Decision::Keep;
        }
        // What cannot be read stays as it is, for the query that will say so.
        match without(entry.value, entry.seq, |seq| self.0.contains(seq)) {
            None => Decision::Keep,
            Some(left) if left.is_empty() => Decision::Drop,
            Some(left) => Decision::Rewrite(left),
        }
    }
}

/// The list without the postings that are obsolete; `None` when there is none of them, or the list is
/// malformed. Cancels stay: nobody who reads a list minds them, but without them compactions would keep what they take back.
fn without(list: &[u8], entry: Seq, is_over: impl Fn(Seq) -> bool) -> Option<Vec<u8>> {
    let list = PostingList::parse(list, entry).ok()?;
    let mut writer = PostingWriter::new();
    let mut postings = list.reader();
    let mut dropped = false;
    while let Some(posting) = postings.next().ok()? {
        // A cancel belongs to the write that took the value away, and speaks of older ones.
        if !posting.cancel && is_over(posting.seq) {
            dropped = true;
        } else if !writer.push(posting) {
            return None;
        }
    }
    dropped.then(|| {
        let mut left = Vec::new();
        writer.finish(list.is_normalised(), &mut left);
        left
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_model::posting::Posting;

    #[test]
    fn what_is_over_goes_and_cancels_stay() {
        let mut writer = PostingWriter::new();
        for (seq, key, cancel) in [(9, "a", false), (7, "b", true), (5, "c", false)] {
            let key = key.as_bytes();
            assert!(writer.push(Posting { seq, key, cancel }));
        }
        let mut list = Vec::new();
        writer.finish(false, &mut list);
        let left = |over: &[Seq]| {
            let left = without(&list, 9, |seq| over.contains(&seq))?;
            let mut postings = PostingList::parse(&left, 9).unwrap().reader();
            let mut numbers = Vec::new();
            while let Some(posting) = postings.next().unwrap() {
                numbers.push(posting.seq);
            }
            Some(numbers)
        };
        assert_eq!(left(&[5, 7]), Some(vec![9, 7]));
        assert_eq!(left(&[9, 8]), Some(vec![7, 5]));
        assert_eq!(left(&[7]), None);
    }
}
