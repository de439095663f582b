//! RocksDB with a table in z-order, as its users build one: the number in z-order, the coordinates and the primary key together
//! are the key. A write of a known record reads it first and removes its old entry, so that the table is exact.

use std::path::Path;

use esker_model::geometry::{Area, Space as Surface};
use esker_model::region::Region;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    FlushOptions, Options, ReadOptions, WaitForCompactOptions, WriteBatch,
};

use super::places::{Place, Rect};
use super::store::{Item, Space, Visit};
use crate::failure::{Failure, Result};

const DATA: &str = "data";
const Z: &str = "z";

/// Fewer records than this are read one by one.
const TOGETHER: usize = 32;

/// The store.
pub struct Rocks {
    db: DB,
}

/// Z-order, coordinates, primary key.
const ENTRY: usize = 20;

fn entry(at: Place, id: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..8].copy_from_slice(&at.z().to_be_bytes());
    entry[8..12].copy_from_slice(&at.lon.to_be_bytes());
    entry[12..16].copy_from_slice(&at.lat.to_be_bytes());
    entry[16..].copy_from_slice(&id.to_be_bytes());
    entry
}

fn number(bytes: &[u8], at: usize) -> [u8; 4] {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.copied().unwrap_or_default()
}

/// The coordinates in bytes that have them at an offset.
fn place(bytes: &[u8], at: usize) -> Place {
    Place {
        lon: i32::from_be_bytes(number(bytes, at)),
        lat: i32::from_be_bytes(number(bytes, at + 4)),
    }
}

impl Rocks {
    /// Makes one in `dir`, with so many bytes of block cache.
    pub fn create(dir: &Path, cache_bytes: usize) -> Result<Rocks> {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(cache_bytes));
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_block_based_table_factory(&table);
        options.set_max_background_jobs(2);
        let family = |name| ColumnFamilyDescriptor::new(name, options.clone());
        let families = [DATA, Z].map(family);
        let db = DB::open_cf_descriptors(&options, dir.join("rocksdb"), families)?;
        Ok(Rocks { db })
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily> {
        let family = self.db.cf_handle(name);
        family.ok_or_else(|| Failure::new(format!("no column family {name}")))
    }

    /// The primary keys of the records in a rectangle.
    fn keys(&self, rect: &Rect, each: &mut dyn FnMut([u8; 4])) -> Result<()> {
        let z = self.family(Z)?;
        let [west, south, east, north] = rect.degrees();
        let area = Area::rect(Surface::Sphere, west, south, east, north)?;
        for (lo, hi) in Region::new(area).key_ranges() {
            let mut options = ReadOptions::default();
            if let Some(hi) = hi {
                options.set_iterate_upper_bound(hi);
            }
            let mut entries = self.db.raw_iterator_cf_opt(z, options);
            entries.seek(lo);
            while let Some(entry) = entries.key() {
                if rect.holds(place(entry, 8)) {
                    each(number(entry, 16));
                }
                entries.next();
            }
            entries.status()?;
        }
        Ok(())
    }
}

impl Space for Rocks {
    fn put(&mut self, items: &[Item], new: bool) -> Result<()> {
        let (data, z) = (self.family(DATA)?, self.family(Z)?);
        let mut batch = WriteBatch::default();
        let mut seen = std::collections::HashMap::new();
        let mut stored = Vec::new();
        for item in items {
            let key = item.id.to_be_bytes();
            if !new {
                // An earlier one of the batch is not in the store yet.
                let before = match seen.insert(item.id, item.at) {
                    Some(before) => Some(before),
                    None => (self.db.get_pinned_cf(data, key)?).map(|old| place(&old, 0)),
                };
                if let Some(before) = before {
                    batch.delete_cf(z, entry(before, item.id));
                }
            }
            stored.clear();
            stored.extend_from_slice(&item.at.lon.to_be_bytes());
            stored.extend_from_slice(&item.at.lat.to_be_bytes());
            stored.extend_from_slice(&item.body);
            batch.put_cf(data, key, &stored);
            batch.put_cf(z, entry(item.at, item.id), []);
        }
        Ok(self.db.write(batch)?)
    }

    fn find(&mut self, rect: &Rect, visit: Visit<'_>) -> Result<()> {
        let data = self.family(DATA)?;
        let mut keys = Vec::new();
        self.keys(rect, &mut |key| keys.push(key))?;
        let mut give = |stored: &[u8]| visit(stored.get(8..).unwrap_or_default());
        if keys.len() < TOGETHER {
            for key in keys {
                if let Some(stored) = self.db.get_pinned_cf(data, key)? {
                    give(&stored);
                }
            }
            return Ok(());
        }
        keys.sort_unstable();
        // In parts, so that an answer of any length needs bounded memory.
        for keys in keys.chunks(4096) {
            for stored in self.db.batched_multi_get_cf(data, keys, true) {
                if let Some(stored) = stored? {
                    give(&stored);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, rect: &Rect) -> Result<u64> {
        let mut count = 0;
        self.keys(rect, &mut |_| count += 1)?;
        Ok(count)
    }

    fn nearest(&mut self, _: Place, _: usize, _: Visit<'_>) -> Result<bool> {
        Ok(false)
    }

    fn settle(&mut self) -> Result<()> {
        let families = [self.family(DATA)?, self.family(Z)?];
        self.db.flush_cfs_opt(
            &families.iter().collect::<Vec<_>>(),
            &FlushOptions::default(),
        )?;
        Ok(self
            .db
            .wait_for_compact(&WaitForCompactOptions::default())?)
    }
}
