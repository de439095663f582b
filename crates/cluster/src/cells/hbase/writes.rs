//! Writes: many rows of a table in a request.

use std::sync::Arc;

use super::super::types::Write;
use super::gateway::{HBase, together};
use super::messages::{Delete, Put};
use super::notes::note;
use super::wire::Writer;
use super::{names, values};
use crate::error::{Error, Result};

/// The most writes of a request, and about the most bytes.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// A write, with the cell that it puts.
struct Sent {
    /// Its place among the writes of the call.
    place: usize,
    table: Arc<str>,
    partition: Vec<u8>,
    row: Vec<u8>,
    cell: Option<Vec<u8>>,
    at: u64,
}

impl Sent {
    fn new(place: usize, write: Write, note: Option<Vec<u8>>) -> Sent {
        let cell = write.value.map(|value| match note {
            Some(note) => values::noted(&value, &note),
            None => values::plain(&value),
        });
        Sent {
            place,
            table: write.table,
            partition: write.partition,
            row: write.row,
            cell,
            at: write.at,
        }
    }

    fn size(&self) -> usize {
        self.partition.len() + self.row.len() + self.cell.as_ref().map_or(0, Vec::len) + 64
    }
}

/// Writes of one table that are all puts, or all deletions.
#[derive(Default)]
struct Group {
    writes: Vec<Sent>,
    bytes: usize,
}

impl HBase {
    /// Writes all; the order of the outcomes is that of the writes.
    pub(super) fn write_all(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        let writes = writes.into_iter().enumerate();
        self.send(writes.map(|(at, write)| Sent::new(at, write, None)))
    }

    /// Writes versions, with notes of their entries where the table has the coprocessor.
    pub(super) fn write_noted(&self, versions: Vec<(Write, Vec<Write>)>) -> Vec<Result<()>> {
        let versions = versions.into_iter().enumerate();
        self.send(versions.map(|(at, (version, entries))| {
            let is_record = version
                .value
                .as_ref()
                .is_some_and(|value| !value.is_empty());
            let note = if is_record && self.has_hook(&version.table) {
                note(&version, &entries)
            } else {
                None
            };
            Sent::new(at, version, note)
        }))
    }

    fn send(&self, writes: impl Iterator<Item = Sent>) -> Vec<Result<()>> {
        let groups = grouped(writes);
        let outcomes = together(&groups, |group| self.send_group(group));
        let mut all: Vec<(usize, Result<()>)> = Vec::new();
        for (group, outcome) in groups.iter().zip(outcomes) {
            let places = group.writes.iter().map(|sent| sent.place);
            all.extend(places.map(|place| (place, outcome.clone())));
        }
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn send_group(&self, group: &Group) -> Result<()> {
        let Some(first) = group.writes.first() else {
            return Ok(());
        };
        let table = self.full_name(&first.table);
        if first.cell.is_some() {
            let mut puts: Vec<Put> = Vec::new();
            for sent in &group.writes {
                let row = names::row(&sent.partition)?;
                if puts.last().is_none_or(|put| put.row != row) {
                    let put = Put {
                        row,
                        ..Put::default()
                    };
                    puts.push(put);
                }
                if let Some(put) = puts.last_mut() {
                    let cell = sent.cell.clone().unwrap_or_default();
                    put.columns
                        .push((sent.row.clone(), cell, Some(timestamp(sent.at)?)));
                }
            }
            let mut request = Writer::call("putMultiple");
            request.binary(1, &table);
            request.structures(2, &puts, |to, put| put.write(to));
            return self.tell(request);
        }
        let mut deletes: Vec<Delete> = Vec::new();
        for sent in &group.writes {
            let row = names::row(&sent.partition)?;
            if deletes.last().is_none_or(|delete| delete.row != row) {
                let columns = Vec::new();
                deletes.push(Delete { row, columns });
            }
            if let Some(delete) = deletes.last_mut() {
                delete.columns.push((sent.row.clone(), timestamp(sent.at)?));
            }
        }
        let mut request = Writer::call("deleteMultiple");
        request.binary(1, &table);
        request.structures(2, &deletes, |to, delete| delete.write(to));
        self.tell(request)
    }
}

/// Groups of writes of one table and kind, in which those of one partition are adjacent.
fn grouped(writes: impl Iterator<Item = Sent>) -> Vec<Group> {
    let mut writes: Vec<Sent> = writes.collect();
    // Of several writes of one row the last one stays the last one.
    writes.sort_by(|a, b| {
        let order = |sent: &Sent| sent.cell.is_some();
        (&a.table, order(a), &a.partition, a.place).cmp(&(
            &b.table,
            order(b),
            &b.partition,
            b.place,
        ))
    });
    let mut groups: Vec<Group> = Vec::new();
    for sent in writes {
        let fits = groups.last().is_some_and(|group| {
            group.bytes < MOST_BYTES
                && group.writes.len() < MOST
                && group.writes.last().is_some_and(|last| {
                    last.table == sent.table && last.cell.is_some() == sent.cell.is_some()
                })
        });
        if !fits {
            groups.push(Group::default());
        }
        if let Some(group) = groups.last_mut() {
            group.bytes += sent.size();
            group.writes.push(sent);
        }
    }
    groups
}

pub(super) fn timestamp(at: u64) -> Result<i64> {
    i64::try_from(at).map_err(|_| Error::BadInput(format!("{at} is not a timestamp")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_one_table_and_kind_and_a_bound() {
        let write = |place: usize, table: &str, value: Option<Vec<u8>>| {
            let write = Write {
                table: table.into(),
                partition: vec![(place % 7) as u8],
                row: vec![1],
                value,
                at: 1,
            };
            Sent::new(place, write, None)
        };
        let writes = (0..1000).map(|n| {
            let table = if n % 2 == 0 { "a" } else { "b" };
            write(n, table, (n % 3 > 0).then(|| vec![0; 10_000]))
        });
        let groups = grouped(writes);
        let mut places: Vec<usize> = Vec::new();
        for group in &groups {
            let first = &group.writes[0];
            let is_same =
                |s: &Sent| s.table == first.table && s.cell.is_some() == first.cell.is_some();
            assert!(group.writes.iter().all(is_same));
            assert!(group.writes.len() <= MOST && group.bytes < MOST_BYTES + 20_000);
            assert!(group.writes.is_sorted_by_key(|sent| &sent.partition));
            places.extend(group.writes.iter().map(|sent| sent.place));
        }
        places.sort_unstable();
        assert_eq!(places, (0..1000).collect::<Vec<_>>());
    }
}
