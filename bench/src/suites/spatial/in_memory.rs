//! `rstar`: an R*-tree in memory, the records in a list beside it. It keeps nothing on a disk, so it shows how far a search
//! could go.

use rstar::primitives::GeomWithData;
use rstar::{AABB, RTree};

use super::places::{Place, Rect};
use super::store::{Item, Space, Visit};
use crate::failure::Result;

type Entry = GeomWithData<[f64; 2], u32>;

/// The tree, and the records by primary key: numbers from 0.
#[derive(Default)]
pub struct InMemory {
    tree: RTree<Entry>,
    records: Vec<(Place, Box<[u8]>)>,
}

fn entry(at: Place, id: u32) -> Entry {
    Entry::new(at.degrees().into(), id)
}

fn envelope(rect: &Rect) -> AABB<[f64; 2]> {
    AABB::from_corners(rect.low.degrees().into(), rect.high.degrees().into())
}

impl Space for InMemory {
    fn put(&mut self, items: &[Item], _: bool) -> Result<()> {
        for item in items {
            let (at, record) = (item.id as usize, (item.at, item.body.clone().into()));
            match self.records.get_mut(at) {
                Some(old) => {
                    self.tree.remove(&entry(old.0, item.id));
                    *old = record;
                }
                None => {
                    self.records.resize_with(at, Default::default);
                    self.records.push(record);
                }
            }
            self.tree.insert(entry(item.at, item.id));
        }
        Ok(())
    }

    fn find(&mut self, rect: &Rect, visit: Visit<'_>) -> Result<()> {
        for found in self.tree.locate_in_envelope(envelope(rect)) {
            if let Some((_, body)) = self.records.get(found.data as usize) {
                visit(body);
            }
        }
        Ok(())
    }

    fn count(&mut self, rect: &Rect) -> Result<u64> {
        Ok(self.tree.locate_in_envelope(envelope(rect)).count() as u64)
    }

    /// By the distance in degrees, which is not quite the same.
    fn nearest(&mut self, at: Place, records: usize, visit: Visit<'_>) -> Result<bool> {
        let near = self.tree.nearest_neighbor_iter(at.degrees().into());
        for found in near.take(records) {
            if let Some((_, body)) = self.records.get(found.data as usize) {
                visit(body);
            }
        }
        Ok(true)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}
