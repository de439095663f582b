//! The first items in an order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Keeps the first items by rank, at most a number of them, in any order of arrival.
///
/// ```
/// use esker_model::query::First;
///
/// let mut first = First::new(2);
/// for (rank, item) in [("c", 1), ("a", 2), ("b", 3)] {
///     first.add(rank.as_bytes(), item);
/// }
/// let items: Vec<i32> = first.finish().into_iter().map(|(_, item)| item).collect();
/// assert_eq!(items, [2, 3]);
/// ```
#[derive(Debug)]
pub struct First<T> {
    most: usize,
    heap: BinaryHeap<Ranked<T>>,
}

#[derive(Debug)]
struct Ranked<T> {
    rank: Vec<u8>,
    item: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Ranked<T>) -> bool {
        self.rank == other.rank
    }
}
impl<T> Eq for Ranked<T> {}
impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Ranked<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Ranked<T>) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl<T> First<T> {
    /// Keeps at most `most` items.
    pub fn new(most: usize) -> First<T> {
        First {
            most,
            heap: BinaryHeap::new(),
        }
    }

    /// True if an item of this rank would be kept.
    pub fn admits(&self, rank: &[u8]) -> bool {
        self.heap.len() < self.most
            || self
                .heap
                .peek()
                .is_some_and(|last| rank < last.rank.as_slice())
    }

    /// Adds an item. Returns the item that is no longer kept: this one or another.
    pub fn add(&mut self, rank: &[u8], item: T) -> Option<T> {
        if !self.admits(rank) {
            return Some(item);
        }
        let rank = rank.to_vec();
        self.heap.push(Ranked { rank, item });
        if self.heap.len() <= self.most {
            return None;
        }
        self.heap.pop().map(|last| last.item)
    }

    /// The items and their ranks, the first one first.
    pub fn finish(self) -> Vec<(Vec<u8>, T)> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted.map(|ranked| (ranked.rank, ranked.item)).collect()
    }
}
