//! SQLite with an index on the first attribute: a write-ahead log that is never synced, a transaction per
//! write.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::suites::upkeep::store::{Counters, Range, Subject, Upsert};

/// The database.
pub struct Sqlite {
    db: Connection,
    number: i64,
}

const TABLE: &str = "
    CREATE TABLE tweets (id INTEGER PRIMARY KEY, number INTEGER, value INTEGER, body BLOB);
    CREATE INDEX indexed ON tweets (value, number);";

const PUT: &str = "
    INSERT INTO tweets VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
    SET number = ?2, value = ?3, body = ?4";

const GET: &str = "SELECT body FROM tweets WHERE id = ?1";

const FIND: &str = "
    SELECT body FROM tweets WHERE value BETWEEN ?1 AND ?2 ORDER BY number DESC";

const COUNT: &str = "SELECT count(*) FROM tweets WHERE value BETWEEN ?1 AND ?2";

impl Sqlite {
    /// Makes one in `dir`, with so many bytes of page cache.
    pub fn create(dir: &Path, cache_bytes: usize) -> Result<Sqlite> {
        let db = Connection::open(dir.join("sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "off")?;
        // Negative: in KiB.
        db.pragma_update(None, "cache_size", -((cache_bytes >> 10) as i64))?;
        db.execute_batch(TABLE)?;
        Ok(Sqlite { db, number: 0 })
    }
}

impl Subject for Sqlite {
    fn upsert(&mut self, record: &Upsert) -> Result<()> {
        self.number += 1;
        let (key, value) = (record.key as i64, record.value as i64);
        let mut put = self.db.prepare_cached(PUT)?;
        put.execute(params![key, self.number, value, record.body])?;
        Ok(())
    }

    fn get(&self, key: u64, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut get = self.db.prepare_cached(GET)?;
        let mut rows = get.query(params![key as i64])?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn find(&self, range: &Range, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut find = self.db.prepare_cached(FIND)?;
        let mut rows = find.query(params![range.lo as i64, range.hi as i64])?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn count(&self, range: &Range) -> Result<u64> {
        let mut count = self.db.prepare_cached(COUNT)?;
        let count: i64 =
            count.query_row(params![range.lo as i64, range.hi as i64], |row| row.get(0))?;
        Ok(count as u64)
    }

    fn settle(&mut self) -> Result<()> {
        let mut checkpoint = self.db.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let mut rows = checkpoint.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::default())
    }

    fn runs(&self) -> Result<(usize, usize)> {
        Ok((0, 0))
    }
}
