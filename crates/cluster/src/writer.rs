//! The writers of a keyspace: each has a number, which it holds by a lease.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::catalog::STATE;
use crate::cells::{Cells, Swapped};
use crate::clock::Checked;
use crate::error::{Error, Result};
use crate::time::{CLOCK_BOUND, Clocks, GRACE, Stamps, WRITERS};
use crate::unique::unique;

const PARTITION: &[u8] = b"writers";
/// A lease is valid for this time, in milliseconds.
const LEASE: u64 = 30_000;
/// It is renewed after this time.
const RENEW: u64 = 8_000;

/// The row of a writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    /// Another number in each value of the row.
    id: u64,
    /// The end of the lease, by the cluster's clock; 0 if the writer has ended it.
    until: u64,
    /// The millisecond of its last timestamp, if it has ended the lease.
    #[serde(default)]
    last: u64,
}

impl Row {
    /// True if the number may be used again: no writer with it makes timestamps any more, and those
    /// that were made are in the past.
    fn is_free(&self, now: u64) -> bool {
        match self.until {
            0 => self.last + 2 * CLOCK_BOUND < now,
            until => until + GRACE < now,
        }
    }
}

/// A lease.
pub(crate) struct Lease {
    pub(crate) stamps: Arc<Stamps>,
    number: u16,
    /// The number of the keyspace: in another one, another writer may have the same number.
    keyspace: u64,
    row: Row,
    /// When it was made or renewed, by the steady clock.
    since: u64,
}

/// This process as a writer.
pub(crate) struct Writers {
    cells: Arc<dyn Cells>,
    clocks: Arc<dyn Clocks>,
    clock: Arc<Checked>,
    table: Arc<str>,
    lease: Mutex<Option<Arc<Lease>>>,
    /// Of the last lease that ended without this process.
    last: Mutex<Option<Arc<Stamps>>>,
}

impl Writers {
    pub(crate) fn new(
        cells: Arc<dyn Cells>,
        clocks: Arc<dyn Clocks>,
        clock: Arc<Checked>,
    ) -> Writers {
        Writers {
            cells,
            clocks,
            clock,
            table: STATE.into(),
            lease: Mutex::new(None),
            last: Mutex::new(None),
        }
    }

    /// The lease of this process in a keyspace, valid now; made or renewed if need be. No call of
    /// another thread waits unless it needs a lease, too.
    pub(crate) fn lease(&self, keyspace: u64) -> Result<Arc<Lease>> {
        let mut held = self.lease.lock();
        if let Some(lease) = &*held
            && lease.keyspace == keyspace
            && self.clocks.steady().saturating_sub(lease.since) < RENEW
        {
            return Ok(lease.clone());
        }
        let known = held.take();
        let mut last = self.last.lock();
        if let Some(lease) = &known {
            *last = Some(lease.stamps.clone());
        }
        let mine = known.filter(|lease| lease.keyspace == keyspace);
        let renewed = mine.map(|lease| self.renew(&lease)).transpose()?;
        let lease = match renewed.flatten() {
            Some(lease) => lease,
            None => self.acquire(keyspace, last.as_deref())?,
        };
        *held = Some(lease.clone());
        Ok(lease)
    }

    /// True while a lease is valid.
    pub(crate) fn is_valid(&self, lease: &Lease) -> bool {
        self.clocks.steady().saturating_sub(lease.since) < LEASE
    }

    /// Ends the lease, so that others need not wait for its end.
    pub(crate) fn end(&self) {
        if let Some(lease) = self.lease.lock().take() {
            let ended = Row {
                id: unique(),
                until: 0,
                last: lease.stamps.last_millis(),
            };
            let (from, to) = (encode(&lease.row), encode(&ended));
            let number = lease.number.to_be_bytes();
            let (table, cells) = (&self.table, &self.cells);
            // Without an answer the lease ends by itself.
            let _ = cells.swap(table, PARTITION, &number, Some(&from), Some(&to));
        }
    }

    fn rows(&self) -> Result<Vec<(u16, Row, Vec<u8>)>> {
        let mut found = Vec::new();
        for cell in self.cells.swapped(&self.table, PARTITION)? {
            let number = cell.row.as_slice().try_into().map(u16::from_be_bytes);
            let row = serde_json::from_slice(&cell.value);
            match (number, row) {
                (Ok(number), Ok(row)) => found.push((number, row, cell.value)),
                _ => {
                    let what = "the row of a writer cannot be read".to_string();
                    return Err(Error::Damaged(what));
                }
            }
        }
        Ok(found)
    }

    fn renew(&self, lease: &Lease) -> Result<Option<Arc<Lease>>> {
        let since = self.clocks.steady();
        let now = self.clock.now()?;
        let row = Row {
            id: unique(),
            until: now + LEASE,
            last: 0,
        };
        let number = lease.number.to_be_bytes();
        let swapped = self.cells.swap(
            &self.table,
            PARTITION,
            &number,
            Some(&encode(&lease.row)),
            Some(&encode(&row)),
        )?;
        let renewed = Arc::new(Lease {
            // Threads may still use the lease as it was: they share the timestamps.
            stamps: lease.stamps.clone(),
            number: lease.number,
            keyspace: lease.keyspace,
            row,
            since,
        });
        Ok((swapped == Swapped::Done).then_some(renewed))
    }

    fn acquire(&self, keyspace: u64, last: Option<&Stamps>) -> Result<Arc<Lease>> {
        loop {
            let since = self.clocks.steady();
            let now = self.clock.now()?;
            let rows = self.rows()?;
            let held = |number: u16| rows.iter().find(|(held, ..)| *held == number);
            let free = (0..WRITERS)
                .find(|number| held(*number).is_none_or(|(_, row, _)| row.is_free(now)));
            let Some(number) = free else {
                return Err(Error::Busy(format!("{WRITERS} writers are connected")));
            };
            let row = Row {
                id: unique(),
                until: now + LEASE,
                last: 0,
            };
            let before = held(number).map(|(.., bytes)| bytes.as_slice());
            let swapped = self.cells.swap(
                &self.table,
                PARTITION,
                &number.to_be_bytes(),
                before,
                Some(&encode(&row)),
            )?;
            if swapped == Swapped::Done {
                return Ok(Arc::new(Lease {
                    stamps: Arc::new(Stamps::new(number, last)),
                    number,
                    keyspace,
                    row,
                    since,
                }));
            }
        }
    }
}

fn encode(row: &Row) -> Vec<u8> {
    // A struct of numbers always serialises.
    serde_json::to_vec(row).unwrap_or_default()
}
