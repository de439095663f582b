//! The compaction filter that drops the postings of obsolete writes from lists. The engine drops
//! entries by their number; a list is one entry with the postings of many writes.

use esker_lsm::Seq;
use esker_lsm::merge::{
    CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, ObsoleteWrites,
};
use esker_model::posting::{PostingList, PostingWriter};

/// Makes a [`PostingFilter`] for each compaction of a tree of posting lists.
pub(super) struct PostingFilterFactory;

impl CompactionFilterFactory for PostingFilterFactory {
    fn begin(&self, obsolete: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        Box::new(PostingFilter(obsolete.clone()))
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn spans_keys(&self) -> bool {
        // The decision on an entry depends on nothing else.
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

/// The filter of one compaction, with the writes that are obsolete when it begins.
struct PostingFilter(ObsoleteWrites);

impl CompactionFilter for PostingFilter {
    fn decide(&mut self, entry: FilteredEntry<'_>, _: &mut dyn FnMut() -> bool) -> Decision {
        if self.0.is_empty() {
            return Decision::Keep;
        }
        // A malformed list is kept: a query that reads it reports the damage.
        match without_obsolete(entry.value, entry.seq, |seq| self.0.contains(seq)) {
            None => Decision::Keep,
            Some(left) if left.is_empty() => Decision::Drop,
            Some(left) => Decision::Rewrite(left),
        }
    }
}

/// The list without obsolete postings; `None` if it has no obsolete posting, or is malformed.
/// Cancellations stay: readers skip them, and without them compactions would keep the postings that
/// they cancel.
fn without_obsolete(list: &[u8], entry: Seq, is_obsolete: impl Fn(Seq) -> bool) -> Option<Vec<u8>> {
    let list = PostingList::parse(list, entry).ok()?;
    let mut writer = PostingWriter::new();
    let mut postings = list.reader();
    let mut dropped = false;
    while let Some(posting) = postings.next().ok()? {
        // A cancellation has the number of the write that removed the value, and applies to older
        // postings.
        if !posting.cancel && is_obsolete(posting.seq) {
            dropped = true;
        } else if !writer.push(posting) {
            debug_assert!(false, "a part of an ordered list is in order");
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
    fn obsolete_postings_are_dropped_and_cancellations_stay() {
        let mut writer = PostingWriter::new();
        for (seq, key, cancel) in [(9, "a", false), (7, "b", true), (5, "c", false)] {
            let key = key.as_bytes();
            assert!(writer.push(Posting { seq, key, cancel }));
        }
        let mut list = Vec::new();
        writer.finish(false, &mut list);
        let left = |obsolete: &[Seq]| {
            let left = without_obsolete(&list, 9, |seq| obsolete.contains(&seq))?;
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
