//! The first items by rank within a bound of memory: a pass over all answers keeps what it has
//! room for, and the next pass begins behind that. So an answer may be of any size, and each pass
//! reads all of it.

use std::collections::BTreeMap;

/// The most items that are held to sort them, and their bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

/// The room of the answer of a query.
pub(crate) const ROOM: Room = Room {
    items: 1 << 16,
    bytes: 64 << 20,
};

/// The first items of a pass.
pub(crate) struct FirstInRoom<R, T> {
    room: Room,
    kept: BTreeMap<R, (usize, T)>,
    bytes: usize,
    /// The least rank that there was no room for: what is behind it belongs to later passes.
    end: Option<R>,
}

impl<R: Ord, T> FirstInRoom<R, T> {
    pub(crate) fn new(room: Room) -> FirstInRoom<R, T> {
        FirstInRoom {
            room,
            kept: BTreeMap::new(),
            bytes: 0,
            end: None,
        }
    }

    /// Adds an item of so many bytes. At least one item is kept, however large.
    pub(crate) fn add(&mut self, rank: R, bytes: usize, item: T) {
        if self.end.as_ref().is_some_and(|end| rank >= *end) {
            return;
        }
        self.bytes += bytes;
        if let Some((replaced, _)) = self.kept.insert(rank, (bytes, item)) {
            self.bytes -= replaced;
        }
        while self.kept.len() > self.room.items.max(1)
            || (self.bytes > self.room.bytes && self.kept.len() > 1)
        {
            if let Some((rank, (bytes, _))) = self.kept.pop_last() {
                self.bytes -= bytes;
                self.end = Some(rank);
            }
        }
    }

    /// True if there was no room for some items.
    pub(crate) fn is_cut(&self) -> bool {
        self.end.is_some()
    }

    /// The items and their ranks, the first one first.
    pub(crate) fn finish(self) -> impl ExactSizeIterator<Item = (R, T)> {
        self.kept.into_iter().map(|(rank, (_, item))| (rank, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_give_all_items_in_order_within_the_room() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..200 {
            let room = Room {
                items: rng.usize(1..20),
                bytes: rng.usize(1..400),
            };
            let mut items: Vec<(u32, usize)> = (0..rng.u32(..80))
                .map(|rank| (rank, rng.usize(1..60)))
                .collect();
            let sorted = items.clone();
            let (mut found, mut behind) = (Vec::new(), None);
            loop {
                rng.shuffle(&mut items);
                let mut first = FirstInRoom::new(room);
                for (rank, bytes) in &items {
                    if behind.is_none_or(|behind| *rank > behind) {
                        first.add(*rank, *bytes, *bytes);
                        let held: usize = first.kept.values().map(|(bytes, _)| bytes).sum();
                        assert_eq!(held, first.bytes);
                        assert!(first.kept.len() <= room.items);
                        assert!(held <= room.bytes || first.kept.len() == 1);
                    }
                }
                let is_cut = first.is_cut();
                found.extend(first.finish());
                behind = found.last().map(|(rank, _)| *rank);
                if !is_cut {
                    break;
                }
            }
            assert_eq!(found, sorted);
        }
    }
}
