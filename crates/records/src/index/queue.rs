//! The units of a search (memtables, tables, partitions, blocks) that wait to be searched, best
//! first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use esker_lsm::Seq;

use super::best_candidates::BestCandidates;
use super::ranked::Ranked;

/// The units of a search, best first, each with the best rank that it can contain. The search ends
/// when enough is found and the first unit cannot contain anything better.
pub(super) struct Queue<T> {
    waiting: BinaryHeap<Waiting<T>>,
    /// The number of units that were queued so far.
    queued: u64,
}

/// A unit that waits. The greatest comes first: the best one, and of equally good ones the one that
/// was queued last. Units of a later page are often equally good: those with writes on both sides
/// of the page token. So the blocks of one partition are searched before the next partition queues
/// its own.
struct Waiting<T> {
    unit: Ranked<T>,
    /// The number of units that were queued before it.
    turn: u64,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Waiting<T>) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<T> Eq for Waiting<T> {}
impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Waiting<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Waiting<T>) -> Ordering {
        let by_rank = other.unit.cmp(&self.unit);
        by_rank.then(self.turn.cmp(&other.turn))
    }
}

impl<T> Queue<T> {
    /// An empty queue.
    pub(super) fn new() -> Queue<T> {
        Queue {
            waiting: BinaryHeap::new(),
            queued: 0,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a unit whose sequence numbers lie between two bounds, unless `best` would keep none
    /// of them.
    pub(super) fn push(&mut self, (min, max): (Seq, Seq), item: T, best: &mut BestCandidates) {
        if best.admits_span(min, max) {
            let rank = best.best_wanted_rank(min, max);
            self.waiting.push(Waiting {
                unit: Ranked { rank, item },
                turn: self.queued,
            });
            self.queued += 1;
        } else {
            best.note_skipped();
        }
    }

    /// Takes the best unit; `None` if the queue is empty, or no unit can contain a better
    /// candidate. `None` ends the search: the queue is not used again.
    pub(super) fn pop(&mut self, best: &mut BestCandidates) -> Option<Ranked<T>> {
        let head = self.waiting.pop()?.unit;
        if best.is_beyond(head.rank) {
            best.note_skipped();
            return None;
        }
        Some(head)
    }

    /// Takes the best unit and the value that `wanted` returns for it; takes nothing if that is
    /// `None`. Unlike [`Queue::pop`], does not check whether the unit can contain a better
    /// candidate: the caller does.
    pub(super) fn pop_map<W>(
        &mut self,
        wanted: impl FnOnce(&T) -> Option<W>,
    ) -> Option<(Ranked<T>, W)> {
        let head = self.waiting.peek_mut()?;
        let value = wanted(&head.unit.item)?;
        Some((PeekMut::pop(head).unit, value))
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

    /// A unit of the walk over a tree.
    enum Unit {
        Table(usize),
        Partition(usize, usize),
        Block(usize, usize, usize),
    }

    const TABLES: usize = 4;
    const PARTITIONS: usize = 32;
    const BLOCKS: usize = 32;
    const ENTRIES: usize = 16;

    /// Walks over tables whose keys are in no order of time, so that the writes of each block, and
    /// of each partition, are all over those of its table. Returns the candidates and the greatest
    /// length of the queue.
    fn walk(tables: &[Vec<Seq>], order: Recency, after: Option<Seq>) -> (Vec<Seq>, usize) {
        let block = |table: usize, partition: usize, block: usize| {
            let first = (partition * BLOCKS + block) * ENTRIES;
            &tables[table][first..first + ENTRIES]
        };
        let partition = |table: usize, partition: usize| {
            let first = partition * BLOCKS * ENTRIES;
            &tables[table][first..first + BLOCKS * ENTRIES]
        };
        let bounds = |seqs: &[Seq]| (*seqs.iter().min().unwrap(), *seqs.iter().max().unwrap());
        let mut best = best(order, after);
        let mut queue = Queue::new();
        for (at, table) in tables.iter().enumerate() {
            queue.push(bounds(table), Unit::Table(at), &mut best);
        }
        let mut peak = queue.len();
        while let Some(head) = queue.pop(&mut best) {
            match head.item {
                Unit::Table(t) => {
                    for p in 0..PARTITIONS {
                        let unit = Unit::Partition(t, p);
                        queue.push(bounds(partition(t, p)), unit, &mut best);
                    }
                }
                Unit::Partition(t, p) => {
                    for b in 0..BLOCKS {
                        let unit = Unit::Block(t, p, b);
                        queue.push(bounds(block(t, p, b)), unit, &mut best);
                    }
                }
                Unit::Block(t, p, b) => {
                    for seq in block(t, p, b) {
                        best.offer(*seq, b"key");
                    }
                }
            }
            peak = peak.max(queue.len());
        }
        let found = best.finish().0.into_iter().map(|one| one.seq);
        (found.collect(), peak)
    }

    /// Behind the first page, no more blocks wait than those of a few partitions.
    #[test]
    fn a_later_page_does_not_queue_all_blocks() {
        let of_table = (PARTITIONS * BLOCKS * ENTRIES) as Seq;
        let mut rng = fastrand::Rng::with_seed(1);
        let mut tables: Vec<Vec<Seq>> = Vec::new();
        for table in 0..TABLES as Seq {
            let mut seqs: Vec<Seq> = (table * of_table + 1..=(table + 1) * of_table).collect();
            rng.shuffle(&mut seqs);
            tables.push(seqs);
        }
        // In the middle of the third table.
        let after = 2 * of_table + of_table / 2;
        for (order, expected) in [
            (Recency::Newest, [after - 1, after - 2]),
            (Recency::Oldest, [after + 1, after + 2]),
        ] {
            let (found, peak) = walk(&tables, order, Some(after));
            assert_eq!(found, expected);
            let few = TABLES + 2 * PARTITIONS + 2 * BLOCKS;
            assert!(peak <= few, "{order:?}: {peak} units waited");
        }
    }
}
