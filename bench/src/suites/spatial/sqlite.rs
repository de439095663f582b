//! SQLite: the records in a table, their points in its R*Tree, a write-ahead log that is never synced.

use std::path::Path;

use rusqlite::{Connection, params};

use super::places::{Place, Rect};
use super::store::{Item, Space, Visit};
use crate::failure::Result;

/// The database.
pub struct Sqlite {
    db: Connection,
}

const TABLES: &str = "
    CREATE TABLE places (id INTEGER PRIMARY KEY, lon REAL, lat REAL, body BLOB);
    CREATE VIRTUAL TABLE boxes USING rtree (id, west, east, south, north);";

const INSERT: [&str; 2] = [
    "INSERT INTO places VALUES (?1, ?2, ?3, ?4)",
    "INSERT INTO boxes VALUES (?1, ?2, ?2, ?3, ?3)",
];

const UPDATE: [&str; 2] = [
    "UPDATE places SET lon = ?2, lat = ?3, body = ?4 WHERE id = ?1",
    "UPDATE boxes SET west = ?2, east = ?2, south = ?3, north = ?3 WHERE id = ?1",
];

/// Boxes have coordinates of 32 bits, rounded away from the point; the table has them as they are.
const FIND: &str = "
    SELECT body FROM boxes CROSS JOIN places ON places.id = boxes.id
    WHERE west <= ?3 AND east >= ?1 AND south <= ?4 AND north >= ?2
    AND lon BETWEEN ?1 AND ?3 AND lat BETWEEN ?2 AND ?4";

/// To the exactness of the boxes, which costs least.
const COUNT: &str = "
    SELECT count(*) FROM boxes WHERE west <= ?3 AND east >= ?1 AND south <= ?4 AND north >= ?2";

impl Sqlite {
    /// Makes one in `dir`, with so many bytes of page cache.
    pub fn create(dir: &Path, cache_bytes: usize) -> Result<Sqlite> {
        let db = Connection::open(dir.join("sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "off")?;
        // Negative: in KiB.
        db.pragma_update(None, "cache_size", -((cache_bytes >> 10) as i64))?;
        db.execute_batch(TABLES)?;
        db.set_prepared_statement_cache_capacity(32);
        Ok(Sqlite { db })
    }
}

impl Space for Sqlite {
    fn put(&mut self, items: &[Item], new: bool) -> Result<()> {
        let [put, put_box] = if new { INSERT } else { UPDATE };
        let transaction = self.db.transaction()?;
        {
            let mut put = transaction.prepare_cached(put)?;
            let mut put_box = transaction.prepare_cached(put_box)?;
            for item in items {
                let (lon, lat) = item.at.degrees();
                put.execute(params![item.id, lon, lat, item.body])?;
                put_box.execute(params![item.id, lon, lat])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn find(&mut self, rect: &Rect, visit: Visit<'_>) -> Result<()> {
        let mut find = self.db.prepare_cached(FIND)?;
        let mut rows = find.query(rect.degrees())?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn count(&mut self, rect: &Rect) -> Result<u64> {
        let mut count = self.db.prepare_cached(COUNT)?;
        let count: i64 = count.query_row(rect.degrees(), |row| row.get(0))?;
        Ok(count as u64)
    }

    fn nearest(&mut self, _: Place, _: usize, _: Visit<'_>) -> Result<bool> {
        Ok(false)
    }

    fn settle(&mut self) -> Result<()> {
        let mut checkpoint = self.db.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let mut rows = checkpoint.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }
}
