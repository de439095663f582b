//! Items ordered by rank: candidates, and the units of a search.

use std::cmp::Ordering;

/// An item with its rank ([`Recency::rank`](esker_model::query::Recency::rank)): smaller is better.
pub(super) struct Ranked<T> {
    pub(super) rank: u64,
    pub(super) item: T,
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
