//! The units of a search (memtables, tables, partitions, blocks) that wait to be searched, best
//! first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use esker_lsm::Seq;

use super::best_candidates::BestCandidates;
use super::ranked::Ranked;

/// With more units waiting, a part's blocks are searched at once, whatever their order.
const MAX_QUEUED: usize = 64 << 10;

/// The units of a search, best first, each with the best rank that it can contain. The search ends
/// when enough is found and the first unit cannot contain anything better.
///
/// The units of a part are queued only when the part is taken. A search without matches would queue
/// every block, so above [`MAX_QUEUED`] units callers search a part at once.
pub(super) struct Queue<T> {
    waiting: BinaryHeap<Waiting<T>>,
    /// The number of units that were queued so far.
    queued: u64,
    /// See [`Queue::is_full`].
    max: usize,
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
            max: MAX_QUEUED,
        }
    }

    /// True if so many units wait that the caller is to search a part at once, without queueing its
    /// blocks.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.max
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

    /// A walk over tables.
    #[derive(Clone, Copy)]
    struct Case {
        order: Recency,
        after: Option<Seq>,
        /// The number of units at which the queue is full.
        max: usize,
        /// True if the entries match.
        matches: bool,
    }

    /// Tables whose keys are in no order of time, so that the writes of each block, and of each
    /// partition, are all over those of its table.
    fn tables() -> Vec<Vec<Seq>> {
        let of_table = (PARTITIONS * BLOCKS * ENTRIES) as Seq;
        let mut rng = fastrand::Rng::with_seed(1);
        let mut tables: Vec<Vec<Seq>> = Vec::new();
        for table in 0..TABLES as Seq {
            let mut seqs: Vec<Seq> = (table * of_table + 1..=(table + 1) * of_table).collect();
            rng.shuffle(&mut seqs);
            tables.push(seqs);
        }
        tables
    }

    /// Walks over tables. Returns the candidates and the greatest length of the queue.
    fn walk(tables: &[Vec<Seq>], case: Case) -> (Vec<Seq>, usize) {
        let block = |table: usize, partition: usize, block: usize| {
            let first = (partition * BLOCKS + block) * ENTRIES;
            &tables[table][first..first + ENTRIES]
        };
        let partition = |table: usize, partition: usize| {
            let first = partition * BLOCKS * ENTRIES;
            &tables[table][first..first + BLOCKS * ENTRIES]
        };
        let bounds = |seqs: &[Seq]| (*seqs.iter().min().unwrap(), *seqs.iter().max().unwrap());
        let offer = |seqs: &[Seq], best: &mut BestCandidates| {
            for seq in seqs.iter().filter(|_| case.matches) {
                best.offer(*seq, b"key");
            }
        };
        let mut best = best(case.order, case.after);
        let mut queue = Queue {
            max: case.max,
            ..Queue::new()
        };
        for (at, table) in tables.iter().enumerate() {
            queue.push(bounds(table), Unit::Table(at), &mut best);
        }
        let mut peak = queue.waiting.len();
        while let Some(head) = queue.pop(&mut best) {
            match head.item {
                Unit::Table(t) => {
                    for p in 0..PARTITIONS {
                        let unit = Unit::Partition(t, p);
                        queue.push(bounds(partition(t, p)), unit, &mut best);
                    }
                }
                Unit::Partition(t, p) => {
                    let is_full = queue.is_full();
                    for b in 0..BLOCKS {
                        let bounds = bounds(block(t, p, b));
                        if !is_full {
                            queue.push(bounds, Unit::Block(t, p, b), &mut best);
                        } else if best.admits_span(bounds.0, bounds.1) {
                            offer(block(t, p, b), &mut best);
                        } else {
                            best.note_skipped();
                        }
                    }
                }
                Unit::Block(t, p, b) => offer(block(t, p, b), &mut best),
            }
            peak = peak.max(queue.waiting.len());
        }
        let found = best.finish().0.into_iter().map(|one| one.seq);
        (found.collect(), peak)
    }

    /// Behind the first page, no more blocks wait than those of a few partitions.
    #[test]
    fn a_later_page_does_not_queue_all_blocks() {
        let tables = tables();
        let of_table = tables[0].len() as Seq;
        // In the middle of the third table.
        let after = 2 * of_table + of_table / 2;
        for (order, expected) in [
            (Recency::Newest, [after - 1, after - 2]),
            (Recency::Oldest, [after + 1, after + 2]),
        ] {
            let (found, peak) = walk(
                &tables,
                Case {
                    order,
                    after: Some(after),
                    max: MAX_QUEUED,
                    matches: true,
                },
            );
            assert_eq!(found, expected);
            let few = TABLES + 2 * PARTITIONS + 2 * BLOCKS;
            assert!(peak <= few, "{order:?}: {peak} units waited");
        }
    }

    /// A search whose entries do not match looks at every block. Then at most so many units wait:
    /// partitions are queued without a bound, and the last of them that queued its blocks did so
    /// just before the queue was full.
    #[test]
    fn a_search_without_matches_does_not_queue_all_blocks() {
        let tables = tables();
        for order in [Recency::Newest, Recency::Oldest] {
            for max in [1, 40, 200] {
                let case = Case {
                    order,
                    after: None,
                    max,
                    matches: false,
                };
                let (found, peak) = walk(&tables, case);
                assert!(found.is_empty());
                let most = max + TABLES * PARTITIONS + BLOCKS;
                assert!(peak <= most, "{order:?}, {max}: {peak} units waited");
            }
        }
    }

    #[test]
    fn a_full_queue_changes_no_answer() {
        let tables = tables();
        let last = (TABLES * tables[0].len()) as Seq;
        for order in [Recency::Newest, Recency::Oldest] {
            for after in [None, Some(last / 2), Some(1), Some(last)] {
                let case = |max| Case {
                    order,
                    after,
                    max,
                    matches: true,
                };
                let (expected, _) = walk(&tables, case(MAX_QUEUED));
                for max in [0, 1, 40] {
                    let (found, _) = walk(&tables, case(max));
                    assert_eq!(found, expected, "{order:?} after {after:?}, {max}");
                }
            }
        }
    }
}
