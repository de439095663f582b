//! Reads and scans: many requests in flight, each sent again while it may still succeed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

use super::super::beside::beside;
use super::super::swap::Swapped;
use super::super::types::{Cell, Cells, Mark, Page, Read, TableKind, Write};
use super::connect::{Cassandra, PATIENCE};
use super::errors::{failed, may_pass, unexpected};
use super::statements::Statement;
use crate::error::Result;

/// The most requests in flight.
pub(super) const IN_FLIGHT: usize = 128;
/// The parts of a scan: equal ranges of tokens.
const PARTS: u32 = 64;

impl Cassandra {
    async fn read_one(&self, read: Read) -> Result<Vec<Cell>> {
        let statement = Statement::Read {
            has_end: read.to.is_some(),
            rows_only: read.rows_only,
            reverse: read.reverse,
        };
        let prepared = self.prepared(&read.table, statement).await?;
        let most = i32::try_from(read.most).unwrap_or(i32::MAX);
        let found = again(PATIENCE, || async {
            match &read.to {
                Some(to) => {
                    let values = (&read.partition, &read.from, to, most);
                    self.session.execute_unpaged(&prepared, values).await
                }
                None => {
                    let values = (&read.partition, &read.from, most);
                    self.session.execute_unpaged(&prepared, values).await
                }
            }
        });
        rows(found.await?, read.rows_only)
    }
}

/// The rows of an answer of `c`, or of `c` and `v`.
pub(super) fn rows(found: QueryResult, rows_only: bool) -> Result<Vec<Cell>> {
    let found = found.into_rows_result().map_err(|e| unexpected(&e))?;
    let cell = |row, value: Option<Vec<u8>>| Cell {
        partition: Vec::new(),
        row,
        value: value.unwrap_or_default(),
    };
    if rows_only {
        let rows = found.rows::<(Vec<u8>,)>().map_err(|e| unexpected(&e))?;
        let rows = rows.map(|found| found.map(|(row,)| cell(row, None)));
        return rows
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| unexpected(&e));
    }
    let rows = found
        .rows::<(Vec<u8>, Option<Vec<u8>>)>()
        .map_err(|e| unexpected(&e))?;
    let rows = rows.map(|found| found.map(|(row, value)| cell(row, value)));
    rows.collect::<std::result::Result<_, _>>()
        .map_err(|e| unexpected(&e))
}

/// Makes a request, and makes it again for `patience` while it may still succeed.
pub(super) async fn again<F, T>(patience: Duration, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, ExecutionError>>,
{
    let begun = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        let error = match request().await {
            Ok(found) => return Ok(found),
            Err(error) => failed(&error),
        };
        if !may_pass(&error) || begun.elapsed() + pause > patience {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// The identity of a table: processes that create it at the same moment, by different nodes, create
/// the same one. In a keyspace that was dropped and made again it is another one, so that a node
/// that was down meanwhile does not bring the former rows back. `made` is when the keyspace was
/// made.
fn table_id(name: &str, made: i64) -> String {
    let digits = format!("{:032x}", xxh3_128(format!("{name} {made}").as_bytes()));
    let part = |from, to| digits.get(from..to).unwrap_or_default();
    // The form of a random identity (version 4).
    format!(
        "{}-{}-4{}-a{}-{}",
        part(0, 8),
        part(8, 12),
        part(13, 16),
        part(17, 20),
        part(20, 32)
    )
}

/// The tokens of a part.
fn tokens(part: u32) -> (i64, i64) {
    let width = (1_u128 << 64) / u128::from(PARTS);
    let from = i128::from(i64::MIN) + (u128::from(part) * width) as i128;
    let to = from + width as i128 - 1;
    let token = |at: i128| i64::try_from(at).unwrap_or(i64::MAX);
    (token(from), token(to))
}

impl Cells for Cassandra {
    fn now(&self) -> Result<u64> {
        let text = "SELECT toUnixTimestamp(now()) FROM system.local";
        let found = self.runtime.block_on(again(PATIENCE, || async {
            self.session.query_unpaged(text, &[]).await
        }))?;
        let rows = found.into_rows_result().map_err(|e| unexpected(&e))?;
        let (now,) = rows.first_row::<(i64,)>().map_err(|e| unexpected(&e))?;
        Ok(u64::try_from(now).unwrap_or(0))
    }

    fn create_table(&self, table: &str, kind: TableKind) -> Result<()> {
        let of = format!("{}.{table}", self.keyspace);
        // Reads check each entry of an index, so its deletions may be forgotten as soon as hints
        // are.
        let options = match kind {
            TableKind::Entries => " AND gc_grace_seconds = 10800",
            TableKind::Versions | TableKind::Swapped => "",
        };
        let id = table_id(&of, self.made()?);
        self.define(&format!(
            "CREATE TABLE IF NOT EXISTS {of} (p blob, c blob, v blob, PRIMARY KEY (p, c)) \
             WITH ID = {id} AND compaction = {{'class': 'SizeTieredCompactionStrategy'}} \
             AND read_repair = 'BLOCKING'{options}"
        ))
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        self.forget(table);
        self.define(&format!("DROP TABLE IF EXISTS {}.{table}", self.keyspace))
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        self.runtime.block_on(self.write_all(&writes))
    }

    fn read(&self, reads: Vec<Read>) -> Vec<Result<Vec<Cell>>> {
        let all = stream::iter(reads).map(|read| self.read_one(read));
        self.runtime.block_on(all.buffered(IN_FLIGHT).collect())
    }

    fn parts(&self) -> u32 {
        PARTS
    }

    fn beside(&self, parts: Range<u32>, work: &(dyn Fn(u32) -> Result<()> + Sync)) -> Result<()> {
        beside(parts, work)
    }

    fn scan(
        &self,
        table: &Arc<str>,
        part: u32,
        from: Option<&Mark>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page> {
        let state = || match from {
            Some(mark) => PagingState::new_from_raw_bytes(mark.0.as_slice()),
            None => PagingState::start(),
        };
        let (first, last) = tokens(part);
        let (found, next) = self.runtime.block_on(async {
            let prepared = self.prepared(table, Statement::Scan { rows_only }).await?;
            let mut prepared = (*prepared).clone();
            prepared.set_page_size(i32::try_from(most.max(1)).unwrap_or(i32::MAX));
            let prepared = &prepared;
            again(PATIENCE, || async move {
                let session = &self.session;
                let page = session.execute_single_page(prepared, (first, last), state());
                page.await
            })
            .await
        })?;
        let found = found.into_rows_result().map_err(|e| unexpected(&e))?;
        let mut page = Page::default();
        if rows_only {
            for row in found
                .rows::<(Vec<u8>, Vec<u8>)>()
                .map_err(|e| unexpected(&e))?
            {
                let (partition, row) = row.map_err(|e| unexpected(&e))?;
                let value = Vec::new();
                page.cells.push(Cell {
                    partition,
                    row,
                    value,
                });
            }
        } else {
            for row in found
                .rows::<(Vec<u8>, Vec<u8>, Option<Vec<u8>>)>()
                .map_err(|e| unexpected(&e))?
            {
                let (partition, row, value) = row.map_err(|e| unexpected(&e))?;
                let value = value.unwrap_or_default();
                page.cells.push(Cell {
                    partition,
                    row,
                    value,
                });
            }
        }
        if let PagingStateResponse::HasMorePages { state } = next {
            let bytes = state.as_bytes_slice().map(|bytes| bytes.to_vec());
            page.next = bytes.map(Mark);
        }
        Ok(page)
    }

    fn swap(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        self.runtime
            .block_on(self.swap_row(table, partition, row, expected, to))
    }

    fn swapped(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>> {
        self.runtime.block_on(self.swapped_rows(table, partition))
    }
}

impl Cassandra {
    pub(super) async fn swapped_rows(
        &self,
        table: &Arc<str>,
        partition: &[u8],
    ) -> Result<Vec<Cell>> {
        let prepared = self.prepared(table, Statement::Swapped).await?;
        let found = again(PATIENCE, || async {
            let values = (partition,);
            self.session.execute_unpaged(&prepared, values).await
        });
        rows(found.await?, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_identity() {
        let id = table_id("shop.esker_state", 7);
        assert_eq!(id, table_id("shop.esker_state", 7));
        assert_ne!(id, table_id("shop.esker_state", 8));
        assert_ne!(id, table_id("shop.esker_1", 7));
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
    }

    #[test]
    fn parts_cover_all_tokens_once() {
        let mut next = i128::from(i64::MIN);
        for part in 0..PARTS {
            let (from, to) = tokens(part);
            assert_eq!(i128::from(from), next);
            next = i128::from(to) + 1;
        }
        assert_eq!(next, i128::from(i64::MAX) + 1);
    }
}
