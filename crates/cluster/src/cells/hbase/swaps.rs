//! Compare-and-set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::swap::Swapped;
use super::super::types::Cell;
use super::errors::may_pass;
use super::gateway::{HBase, PATIENCE};
use super::messages::{FAMILY, Get, Put};
use super::reads::cell;
use super::wire::{Writer, kind, malformed};
use super::{names, values};
use crate::error::Result;

impl HBase {
    /// Sets a row. If an attempt was not answered, the row is read, which says whether it happened:
    /// values of one row are never the same twice. An attempt that takes effect later finds another
    /// value than it expects.
    pub(super) fn swap_row(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        let begun = Instant::now();
        loop {
            let error = match self.swap_once(table, partition, row, expected, to) {
                // What it finds may be an earlier attempt of its own, that had no answer, or was
                // sent again by the gateway.
                Ok(Swapped::Other(now)) if now.as_deref() == to => return Ok(Swapped::Done),
                Ok(outcome) => return Ok(outcome),
                Err(error) if may_pass(&error) => error,
                Err(error) => return Err(error),
            };
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200));
            let now = self.row(table, partition, row)?;
            if now.as_deref() == to {
                return Ok(Swapped::Done);
            }
            if now.as_deref() != expected {
                return Ok(Swapped::Other(now));
            }
        }
    }

    fn swap_once(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        let cell = expected.map(values::plain);
        if self.check_and_put(table, partition, row, cell.as_deref(), to)? {
            return Ok(Swapped::Done);
        }
        let now = self.row(table, partition, row)?;
        if expected.is_none() && now.is_none() {
            // It was removed: the cell says so.
            let removed = values::swapped(None);
            if self.check_and_put(table, partition, row, Some(&removed), to)? {
                return Ok(Swapped::Done);
            }
            return Ok(Swapped::Other(self.row(table, partition, row)?));
        }
        Ok(Swapped::Other(now))
    }

    /// Puts a cell if the present one is `expected`; `None` for none at all.
    fn check_and_put(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<bool> {
        let at = names::row(partition)?;
        // The server gives it a timestamp that is not before that of the present cell.
        let put = Put {
            row: at.clone(),
            columns: vec![(row.to_vec(), values::swapped(to), None)],
            expires_in: None,
        };
        let mut request = Writer::call("checkAndPut");
        request.binary(1, &self.full_name(table));
        request.binary(2, &at);
        request.binary(3, FAMILY);
        request.binary(4, row);
        if let Some(expected) = expected {
            request.binary(5, expected);
        }
        request.structure(6, |to| put.write(to));
        let done = self.once(request, |from, of| match of {
            kind::BOOL => from.bool(),
            _ => Err(malformed("the outcome is missing")),
        })?;
        Ok(done.unwrap_or(false))
    }

    fn row(&self, table: &Arc<str>, partition: &[u8], row: &[u8]) -> Result<Option<Vec<u8>>> {
        let rows = self.rows_of(table, partition)?;
        let found = rows.into_iter().find(|cell| cell.row == row);
        Ok(found.map(|cell| cell.value))
    }

    /// The rows of a partition that is changed by compare-and-set.
    pub(super) fn rows_of(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>> {
        let get = Get {
            row: names::row(partition)?,
            ..Get::default()
        };
        let found = self.get(table, &[get])?;
        let columns = found.into_iter().flat_map(|found| found.columns);
        let cells = columns.map(|column| cell(Vec::new(), column, false));
        cells.filter_map(Result::transpose).collect()
    }
}
