//! SQLite: a table with the attributes as columns, an index of each with the number of the write, a
//! write-ahead log, a transaction per put. `off` never syncs; `normal`, the usual choice with such a
//! log, syncs when the log is moved into the table.

use rusqlite::{Connection, params};

use super::{Setup, Subject, Visit};
use crate::failure::{Failure, Result};
use crate::workload::{Attribute, Find, Record};

pub(super) struct Sqlite {
    db: Connection,
    number: i64,
}

const TABLE: &str = "
    CREATE TABLE tweets (id INTEGER PRIMARY KEY, number INTEGER, user_id INTEGER,
        created_at INTEGER, body BLOB);
    CREATE INDEX users ON tweets (user_id, number);
    CREATE INDEX times ON tweets (created_at, number);";

const PUT: &str = "
    INSERT INTO tweets VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
    SET number = ?2, user_id = ?3, created_at = ?4, body = ?5";

const GET: &str = "SELECT body FROM tweets WHERE id = ?1";

const OF_USER: &str = "
    SELECT body FROM tweets WHERE user_id = ?1 ORDER BY number DESC LIMIT ?3";

/// The index gives the newest before any record is read.
const OF_USERS: &str = "
    SELECT body FROM (SELECT id AS found, number AS nth FROM tweets
        WHERE user_id BETWEEN ?1 AND ?2 ORDER BY number DESC LIMIT ?3)
    CROSS JOIN tweets ON id = found ORDER BY nth DESC";

/// A record's time is when it was written, so that this is newest first.
const OF_TIME: &str = "
    SELECT body FROM tweets WHERE created_at BETWEEN ?1 AND ?2
    ORDER BY created_at DESC, number DESC LIMIT ?3";

impl Sqlite {
    pub(super) fn open(synchronous: &str, setup: &Setup) -> Result<Sqlite> {
        if !["off", "normal"].contains(&synchronous) {
            return Err(Failure::new(format!(
                "there is no subject `sqlite {synchronous}`"
            )));
        }
        let db = Connection::open(setup.dir.join("sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", synchronous)?;
        // Negative: in KiB.
        db.pragma_update(None, "cache_size", -((setup.cache_bytes >> 10) as i64))?;
        db.execute_batch(TABLE)?;
        Ok(Sqlite { db, number: 0 })
    }
}

impl Subject for Sqlite {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.number += 1;
        let (key, user, second) = (record.key as i64, record.user as i64, record.second as i64);
        let mut put = self.db.prepare_cached(PUT)?;
        put.execute(params![key, self.number, user, second, record.body])?;
        Ok(())
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let mut get = self.db.prepare_cached(GET)?;
        let mut rows = get.query(params![key as i64])?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()> {
        let text = match find.attribute {
            Attribute::User if find.lo == find.hi => OF_USER,
            Attribute::User => OF_USERS,
            Attribute::Time => OF_TIME,
        };
        let limit = find.limit.map_or(-1, |limit| limit as i64);
        let mut select = self.db.prepare_cached(text)?;
        let mut rows = select.query(params![find.lo as i64, find.hi as i64, limit])?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        let mut checkpoint = self.db.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let mut rows = checkpoint.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }
}
