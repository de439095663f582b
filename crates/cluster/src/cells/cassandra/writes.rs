//! Writes. Those of one partition are sent together: a node carries them out as one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use scylla::statement::batch::{Batch, BatchType};

use super::super::types::Write;
use super::connect::Cassandra;
use super::requests::{IN_FLIGHT, again};
use super::statements::Statement;
use crate::error::Result;

/// How long a write is sent again: shorter than the deadline of a writer.
const PATIENCE: Duration = Duration::from_secs(15);
/// The most rows of a request, and the bytes behind which no row is added to it.
const MOST: usize = 64;
const MOST_BYTES: usize = 32 << 10;

/// Writes of one request: puts or deletions of rows of one partition, by their places.
struct Group {
    places: Vec<usize>,
    bytes: usize,
}

/// The writes that are sent together, each in one group.
fn groups(writes: &[Write]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open: HashMap<(&Arc<str>, &[u8], bool), usize> = HashMap::new();
    for (place, write) in writes.iter().enumerate() {
        let of = (
            &write.table,
            write.partition.as_slice(),
            write.value.is_some(),
        );
        let value = write.value.as_ref().map_or(0, Vec::len);
        let bytes = write.partition.len() + write.row.len() + value;
        let known = open.get(&of).and_then(|at| groups.get_mut(*at));
        match known {
            Some(group) if group.places.len() < MOST && group.bytes < MOST_BYTES => {
                group.places.push(place);
                group.bytes += bytes;
            }
            _ => {
                open.insert(of, groups.len());
                let places = vec![place];
                groups.push(Group { places, bytes });
            }
        }
    }
    groups
}

impl Cassandra {
    /// Sends writes; returns their outcomes, in their order.
    pub(super) async fn write_all(&self, writes: &[Write]) -> Vec<Result<()>> {
        let groups = groups(writes);
        let sent = stream::iter(&groups).map(|group| {
            let of = group.places.iter().filter_map(|place| writes.get(*place));
            self.write_group(of.collect())
        });
        let outcomes: Vec<Result<()>> = sent.buffered(IN_FLIGHT).collect().await;
        let mut all: Vec<(usize, Result<()>)> = Vec::with_capacity(writes.len());
        for (group, outcome) in groups.iter().zip(outcomes) {
            all.extend(group.places.iter().map(|place| (*place, outcome.clone())));
        }
        all.sort_unstable_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn write_group(&self, writes: Vec<&Write>) -> Result<()> {
        let Some(first) = writes.first() else {
            return Ok(());
        };
        let statement = match first.value {
            Some(_) => Statement::Put,
            None => Statement::Delete,
        };
        let prepared = self.prepared(&first.table, statement).await?;
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        if writes.len() > 1 {
            for _ in &writes {
                batch.append_statement((*prepared).clone());
            }
        }
        let at = |write: &Write| i64::try_from(write.at).unwrap_or(i64::MAX);
        let (session, batch, prepared) = (&self.session, &batch, &prepared);
        let put = |write: &'_ Write| {
            let value = write.value.clone().unwrap_or_default();
            (write.partition.clone(), write.row.clone(), value, at(write))
        };
        let deletion = |write: &'_ Write| (at(write), write.partition.clone(), write.row.clone());
        let done = again(PATIENCE, || async {
            match (statement, writes.as_slice()) {
                (Statement::Put, [one]) => session.execute_unpaged(prepared, put(one)).await,
                (Statement::Put, all) => {
                    let values: Vec<_> = all.iter().map(|write| put(write)).collect();
                    session.batch(batch, values).await
                }
                (_, [one]) => session.execute_unpaged(prepared, deletion(one)).await,
                (_, all) => {
                    let values: Vec<_> = all.iter().map(|write| deletion(write)).collect();
                    session.batch(batch, values).await
                }
            }
        });
        done.await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(table: &str, partition: u8, row: u32, value: Option<usize>) -> Write {
        Write {
            table: table.into(),
            partition: vec![partition],
            row: row.to_be_bytes().to_vec(),
            value: value.map(|length| vec![0; length]),
            at: 1,
        }
    }

    fn places(writes: &[Write]) -> Vec<Vec<usize>> {
        groups(writes)
            .into_iter()
            .map(|group| group.places)
            .collect()
    }

    #[test]
    fn writes_of_a_partition_are_sent_together() {
        let writes = [
            write("a", 1, 1, Some(0)),
            write("a", 2, 1, Some(0)),
            write("a", 1, 2, Some(0)),
            write("a", 1, 3, None),
            write("b", 1, 4, Some(0)),
            write("a", 1, 5, None),
        ];
        assert_eq!(places(&writes), [vec![0, 2], vec![1], vec![3, 5], vec![4]]);
        assert!(places(&[]).is_empty());
    }

    #[test]
    fn a_request_is_bounded() {
        let small: Vec<Write> = (0..200).map(|row| write("a", 1, row, Some(0))).collect();
        let lengths: Vec<usize> = places(&small).iter().map(Vec::len).collect();
        assert_eq!(lengths, [64, 64, 64, 8]);
        let large: Vec<Write> = (0..4).map(|row| write("a", 1, row, Some(20_000))).collect();
        assert_eq!(places(&large), [[0, 1], [2, 3]]);
    }
}
