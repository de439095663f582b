//! The files, partitions and blocks that wait to be searched, best first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use esker_lsm::Seq;

use super::best_candidates::BestCandidates;
use super::ranked::Ranked;

/// The units of a search, best first, each with the best rank that it can contain. The search ends
/// when enough is found and the first unit cannot contain anything better.
pub(super) struct Queue<T>(BinaryHeap<Reverse<Ranked<T>>>);

impl<T> Queue<T> {
    /// An empty queue.
    pub(super) fn new() -> Queue<T> {
        Queue(BinaryHeap::new())
    }

    /// Queues a unit whose sequence numbers lie between two bounds, unless `best` would keep none
    /// of them.
    pub(super) fn push(&mut self, (min, max): (Seq, Seq), item: T, best: &mut BestCandidates) {
        if best.admits_span(min, max) {
            let rank = best.order().best_rank(min, max);
            self.0.push(Reverse(Ranked { rank, item }));
        } else {
            best.note_skipped();
        }
    }

    /// Takes the best unit; `None` if the queue is empty, or no unit can contain a better
    /// candidate.
    pub(super) fn pop(&mut self, best: &mut BestCandidates) -> Option<Ranked<T>> {
        let Reverse(head) = self.0.pop()?;
        if best.is_beyond(head.rank) {
            best.note_skipped();
            return None;
        }
        Some(head)
    }

    /// Takes the best unit if `wanted` returns something of it; returns both.
    pub(super) fn pop_map<W>(
        &mut self,
        wanted: impl FnOnce(&T) -> Option<W>,
    ) -> Option<(Ranked<T>, W)> {
        let head = self.0.peek_mut()?;
        let part = wanted(&head.0.item)?;
        let Reverse(head) = PeekMut::pop(head);
        Some((head, part))
    }
}

#[cfg(test)]
mod tests {
    use super::super::best_candidates::Window;
    use super::*;
    use esker_model::query::Recency;

    fn best(order: Recency, after: Option<Seq>) -> BestCandidates {
        BestCandidates::new(Window {
            order,
            after,
            want: 2,
            bytes: usize::MAX,
        })
    }

    #[test]
    fn units_come_best_first_and_end_when_nothing_better_is_left() {
        for (order, expected) in [(Recency::Newest, ["c", "b"]), (Recency::Oldest, ["a", "b"])] {
            let mut best = best(order, None);
            let mut queue = Queue::new();
            for (name, bounds) in [("b", (4, 6)), ("a", (1, 2)), ("c", (7, 9))] {
                queue.push(bounds, name, &mut best);
            }
            let found: Vec<&str> = (0..2)
                .filter_map(|_| Some(queue.pop(&mut best)?.item))
                .collect();
            assert_eq!(found, expected);
            for seq in [4, 6] {
                best.offer(seq, b"key");
            }
            assert!(queue.pop(&mut best).is_none(), "the last unit is worse");
            assert!(best.finish().1, "the skipped unit was not noted");
        }
    }

    #[test]
    fn units_without_wanted_entries_are_not_queued() {
        let mut best = best(Recency::Newest, Some(5));
        let mut queue = Queue::new();
        queue.push((5, 9), "returned before", &mut best);
        queue.push((3, 9), "in part", &mut best);
        assert!(
            queue
                .pop_map(|name| (*name == "returned before").then_some(()))
                .is_none()
        );
        assert_eq!(queue.pop(&mut best).map(|head| head.item), Some("in part"));
        assert!(queue.pop(&mut best).is_none());
        assert!(!best.finish().1, "entries returned before count as skipped");
    }
}
