//! SQLite: the record as text, the fields that are asked for as columns, and the same indexes.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};
use serde::Deserialize;

use super::asked::{Answer, Question};
use super::task::{MEMORY, Subject};
use crate::failure::Result;
use crate::workload::Record;

const TABLE: &str = "
    CREATE TABLE tweets (id INTEGER PRIMARY KEY, user_id INTEGER, created_at INTEGER, lang TEXT,
        source TEXT, retweets INTEGER, likes INTEGER, body TEXT);
    CREATE INDEX by_user ON tweets (user_id);
    CREATE INDEX by_time ON tweets (created_at);
    CREATE INDEX by_likes ON tweets (likes);
    CREATE INDEX by_retweets ON tweets (retweets);";

/// Records of a transaction.
const BATCH: usize = 1000;

#[derive(Deserialize)]
struct Columns<'r> {
    id: i64,
    user_id: i64,
    created_at: i64,
    lang: &'r str,
    source: &'r str,
    retweets: i64,
    likes: i64,
}

pub(super) struct Sqlite {
    db: Connection,
    in_batch: usize,
}

impl Sqlite {
    pub(super) fn create(dir: &Path) -> Result<Sqlite> {
        let db = Connection::open(dir.join("sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "off")?;
        // Negative: in KiB.
        db.pragma_update(None, "cache_size", -((MEMORY >> 10) as i64))?;
        db.execute_batch(TABLE)?;
        Ok(Sqlite { db, in_batch: 0 })
    }

    fn commit(&mut self) -> Result<()> {
        if self.in_batch > 0 {
            self.db.execute_batch("COMMIT")?;
        }
        self.in_batch = 0;
        Ok(())
    }
}

impl Subject for Sqlite {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        if self.in_batch == 0 {
            self.db.execute_batch("BEGIN")?;
        }
        let columns: Columns<'_> = serde_json::from_slice(record.body)?;
        let body = std::str::from_utf8(record.body)?;
        let mut put = self.db.prepare_cached(
            "INSERT OR REPLACE INTO tweets VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        put.execute(params![
            columns.id,
            columns.user_id,
            columns.created_at,
            columns.lang,
            columns.source,
            columns.retweets,
            columns.likes,
            body
        ])?;
        drop(put);
        self.in_batch += 1;
        if self.in_batch == BATCH {
            self.commit()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.commit()?;
        self.db.execute_batch("ANALYZE")?;
        let mut checkpoint = self.db.prepare("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let mut rows = checkpoint.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    fn ask(&mut self, question: &Question) -> Result<Answer> {
        let mut select = self.db.prepare_cached(&question.sql("tweets", "/"))?;
        let columns = select.column_count();
        let mut rows = select.query([])?;
        let mut answer = Answer::default();
        while let Some(row) = rows.next()? {
            let mut cells = Vec::with_capacity(columns);
            for at in 0..columns {
                cells.push(match row.get_ref(at)? {
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    other => format!("{other:?}"),
                });
            }
            answer.push(cells);
        }
        Ok(answer)
    }
}
