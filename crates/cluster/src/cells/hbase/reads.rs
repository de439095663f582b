//! Reads of partitions, and scans of tables.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::super::types::{Cell, Mark, Page, Read};
use super::filters::{Columns, columns};
use super::gateway::{HBase, together};
use super::messages::{Column, Found, Get, Scan};
use super::wire::{Reader, Writer, kind, malformed};
use super::{names, values};
use crate::error::{Error, Result};

/// The most reads of a request, and the most rows of its answer.
const MOST: usize = 64;
const MOST_ROWS: usize = 16_000;
/// Rows of a page of a read from the end.
const PAGE: usize = 10_000;
/// The most rows of a partition in one result of a scan.
const TOGETHER: usize = 8;

impl HBase {
    pub(super) fn read_all(&self, reads: Vec<Read>) -> Vec<Result<Vec<Cell>>> {
        let mut places: Vec<usize> = (0..reads.len()).collect();
        places.sort_by_key(|at| reads.get(*at).map(|read| (&read.table, read.reverse)));
        let mut groups: Vec<Vec<(usize, &Read)>> = Vec::new();
        let mut rows = 0_usize;
        for place in places {
            let Some(read) = reads.get(place) else {
                continue;
            };
            rows = rows.saturating_add(read.most);
            let fits = groups.last().is_some_and(|group| {
                let first = group.first();
                group.len() < MOST
                    && rows <= MOST_ROWS
                    && !read.reverse
                    && first.is_some_and(|(_, first)| first.table == read.table && !first.reverse)
            });
            if !fits {
                groups.push(Vec::new());
                rows = read.most;
            }
            if let Some(group) = groups.last_mut() {
                group.push((place, read));
            }
        }
        let answers = together(&groups, |group| self.read_group(group));
        let mut all: Vec<(usize, Result<Vec<Cell>>)> = Vec::new();
        for (group, answer) in groups.iter().zip(answers) {
            let places = group.iter().map(|(place, _)| *place);
            match answer {
                Ok(answers) => all.extend(places.zip(answers.into_iter().map(Ok))),
                Err(error) => all.extend(places.map(|place| (place, Err(error.clone())))),
            }
        }
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, answer)| answer).collect()
    }

    fn read_group(&self, group: &[(usize, &Read)]) -> Result<Vec<Vec<Cell>>> {
        if let [(_, read)] = group
            && read.reverse
        {
            return Ok(vec![self.read_from_the_end(read)?]);
        }
        let Some((_, first)) = group.first() else {
            return Ok(Vec::new());
        };
        let gets = group
            .iter()
            .map(|(_, read)| get(read, &read.from, true, read.most));
        let gets = gets.collect::<Result<Vec<_>>>()?;
        let found = self.get(&first.table, &gets)?;
        let cells = group.iter().zip(found).map(|((_, read), found)| {
            let cells = found.columns.into_iter();
            let cells = cells.map(|column| cell(Vec::new(), column, read.rows_only));
            cells.filter_map(Result::transpose).collect()
        });
        cells.collect()
    }

    /// HBase reads columns forward only: all are read, without their values.
    fn read_from_the_end(&self, read: &Read) -> Result<Vec<Cell>> {
        let mut last: VecDeque<Vec<u8>> = VecDeque::new();
        let mut from = (read.from.clone(), true);
        let names_only = Read {
            rows_only: true,
            ..read.clone()
        };
        loop {
            let found = self.get(&read.table, &[get(&names_only, &from.0, from.1, PAGE)?])?;
            let names: Vec<Vec<u8>> = found
                .into_iter()
                .flat_map(|found| found.columns)
                .map(|column| column.name)
                .collect();
            let is_end = names.len() < PAGE;
            if let Some(name) = names.last() {
                from = (name.clone(), false);
            }
            last.extend(names);
            while last.len() > read.most {
                last.pop_front();
            }
            if is_end {
                break;
            }
        }
        let (Some(first), false) = (last.front(), read.rows_only) else {
            let cells = last.into_iter().rev().map(|row| Cell {
                partition: Vec::new(),
                row,
                value: Vec::new(),
            });
            return Ok(cells.collect());
        };
        let found = self.get(&read.table, &[get(read, first, true, read.most)?])?;
        let columns = found.into_iter().flat_map(|found| found.columns).rev();
        let cells = columns.map(|column| cell(Vec::new(), column, false));
        cells.filter_map(Result::transpose).collect()
    }

    /// The columns of rows, in the order of `gets`.
    pub(super) fn get(&self, table: &Arc<str>, gets: &[Get]) -> Result<Vec<Found>> {
        let mut request = Writer::call("getMultiple");
        request.binary(1, &self.full_name(table));
        request.structures(2, gets, |to, get| get.write(to));
        let found = self.ask(request, found)?;
        if found.len() == gets.len() {
            Ok(found)
        } else {
            Err(Error::Damaged(
                "the gateway's answer has another number of rows".to_string(),
            ))
        }
    }

    /// A page of a part of a table.
    pub(super) fn scan_part(
        &self,
        table: &Arc<str>,
        part: u32,
        from: Option<&Mark>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page> {
        let (begin, end) = names::rows_of(part);
        let mut from = match from {
            Some(mark) => Place::decode(mark)?,
            None => Place::Row(begin),
        };
        if let Place::Column(row, column) = &from {
            let filter = columns(&Columns {
                from: column,
                with_from: false,
                to: None,
                names_only: rows_only,
            });
            let get = Get {
                row: row.clone(),
                filter,
                most: Some(limit(most)),
            };
            let found = self.get(table, &[get])?;
            let (found, is_whole) = page(found, most, rows_only)?;
            let next = match (is_whole, found.last()) {
                (false, Some(last)) => Place::Column(row.clone(), last.row.clone()),
                _ => Place::Row([row, &[0][..]].concat()),
            };
            if !found.is_empty() {
                return Ok(Page {
                    cells: found,
                    next: Some(next.encode()),
                });
            }
            from = next;
        }
        let Place::Row(begin) = from else {
            return Ok(Page::default());
        };
        self.scan_rows(table, begin..end, most, rows_only)
    }

    fn scan_rows(
        &self,
        table: &Arc<str>,
        rows: Range<Vec<u8>>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page> {
        let results = (most / 2).max(1);
        let scan = Scan {
            from: rows.start,
            to: rows.end,
            filter: columns(&Columns {
                names_only: rows_only,
                with_from: true,
                ..Columns::default()
            }),
            together: limit(TOGETHER),
            most: limit(results),
        };
        let mut request = Writer::call("getScannerResults");
        request.binary(1, &self.full_name(table));
        request.structure(2, |to| scan.write(to));
        request.i32(3, limit(results));
        let found = self.ask(request, found)?;
        let is_end = found.len() < results;
        let last = found
            .last()
            .map(|last| (last.row.clone(), last.columns.clone()));
        let (cells, _) = page(found, usize::MAX, rows_only)?;
        let next = match last {
            Some((row, columns)) if !is_end => Some(match columns.last() {
                Some(last) if columns.len() >= TOGETHER => Place::Column(row, last.name.clone()),
                _ => Place::Row([&row[..], &[0]].concat()),
            }),
            _ => None,
        };
        Ok(Page {
            cells,
            next: next.map(|next| next.encode()),
        })
    }
}

/// The read of columns of a partition.
fn get(read: &Read, from: &[u8], with_from: bool, most: usize) -> Result<Get> {
    Ok(Get {
        row: names::row(&read.partition)?,
        filter: columns(&Columns {
            from,
            with_from,
            to: read.to.as_deref(),
            names_only: read.rows_only,
        }),
        most: Some(limit(most)),
    })
}

fn limit(most: usize) -> i32 {
    i32::try_from(most).unwrap_or(i32::MAX).max(1)
}

/// Results of a request.
pub(super) fn found(from: &mut Reader<'_>, of: u8) -> std::io::Result<Vec<Found>> {
    match of {
        kind::LIST => from.structures(Found::read),
        _ => Err(malformed("a list of results is missing")),
    }
}

/// The row of a column; `None` if a compare-and-set has removed it.
pub(super) fn cell(partition: Vec<u8>, column: Column, rows_only: bool) -> Result<Option<Cell>> {
    let value = if rows_only {
        Some(Vec::new())
    } else {
        values::read(column.value)?
    };
    Ok(value.map(|value| Cell {
        partition,
        row: column.name,
        value,
    }))
}

/// The rows of results; false if there may be more than `most`.
fn page(found: Vec<Found>, most: usize, rows_only: bool) -> Result<(Vec<Cell>, bool)> {
    let mut cells = Vec::new();
    let mut count = 0;
    for found in found {
        for column in found.columns {
            count += 1;
            let partition = names::partition(&found.row)?;
            cells.extend(cell(partition, column, rows_only)?);
        }
    }
    Ok((cells, count < most))
}

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// At a row.
    Row(Vec<u8>),
    /// Behind a column of a row.
    Column(Vec<u8>, Vec<u8>),
}

impl Place {
    fn encode(&self) -> Mark {
        Mark(match self {
            Place::Row(row) => [&[0], row.as_slice()].concat(),
            Place::Column(row, column) => {
                let length = u32::try_from(row.len()).unwrap_or(u32::MAX).to_be_bytes();
                [&[1], &length[..], row, column].concat()
            }
        })
    }

    fn decode(mark: &Mark) -> Result<Place> {
        let read = || match mark.0.split_first()? {
            (0, row) => Some(Place::Row(row.to_vec())),
            (1, rest) => {
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = u32::from_be_bytes(*length) as usize;
                let (row, column) = rest.split_at_checked(length)?;
                Some(Place::Column(row.to_vec(), column.to_vec()))
            }
            _ => None,
        };
        read().ok_or_else(|| Error::BadInput("the mark is of another store".to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_again() {
        let places = [
            Place::Row(b"r".to_vec()),
            Place::Column(b"row".to_vec(), b"column".to_vec()),
        ];
        for place in places {
            assert_eq!(Place::decode(&place.encode()).unwrap(), place);
        }
        for bytes in [&b""[..], b"\x02", b"\x01\0\0\0\x09r"] {
            assert!(Place::decode(&Mark(bytes.to_vec())).is_err());
        }
    }
}
