//! What the layer asks of a store.

use std::ops::Range;
use std::sync::Arc;

use super::super::beside::beside;
use super::super::swap::Swapped;
use super::super::types::{Cell, Cells, Mark, Page, Read, TableKind, Write};
use super::gateway::HBase;
use super::messages::{Get, Put};
use super::names;
use super::wire::Writer;
use crate::error::{Error, Result};

/// The table of the rows that read the clock: that of the catalog, which always exists.
const CLOCKS: &str = "esker_state";
/// How long the row that reads the clock is kept, in milliseconds.
const CLOCK_KEPT: u64 = 60_000;

impl Cells for HBase {
    /// The time of a server: no call asks for it, so a row gets it as its timestamp. Each call has
    /// a row of its own, since a clock that was set back would not show beside a later timestamp.
    fn now(&self) -> Result<u64> {
        let row = names::row(self.clock_row().as_bytes())?;
        let put = Put {
            row: row.clone(),
            columns: vec![(vec![0], vec![1], None)],
            expires_in: Some(CLOCK_KEPT),
        };
        let mut request = Writer::call("putMultiple");
        request.binary(1, &self.full_name(CLOCKS));
        request.structures(2, &[put], |to, put| put.write(to));
        self.tell(request)?;
        let get = Get {
            row,
            ..Get::default()
        };
        let found = self.get(&CLOCKS.into(), &[get])?;
        let column = found.first().and_then(|found| found.columns.first());
        let at = column.and_then(|column| u64::try_from(column.at).ok());
        at.ok_or_else(|| Error::Unavailable("the cluster does not tell its time".to_string()))
    }

    fn create_table(&self, table: &str, kind: TableKind) -> Result<()> {
        self.make_table(table, kind)
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        self.remove_table(table)
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        self.write_all(writes)
    }

    fn has_compaction_hook(&self, table: &Arc<str>) -> bool {
        self.has_hook(table)
    }

    fn write_versions(&self, versions: Vec<(Write, Vec<Write>)>) -> Vec<Result<()>> {
        self.write_noted(versions)
    }

    fn read(&self, reads: Vec<Read>) -> Vec<Result<Vec<Cell>>> {
        self.read_all(reads)
    }

    fn parts(&self) -> u32 {
        names::PARTS
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
        self.scan_part(table, part, from, most, rows_only)
    }

    fn swap(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        self.swap_row(table, partition, row, expected, to)
    }

    fn swapped(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>> {
        self.rows_of(table, partition)
    }
}
