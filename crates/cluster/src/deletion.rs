//! Deletion by condition.
//!
//! A query finds the records as of its start, which may be a minute ago. So each group of
//! deletions takes its timestamps first and then reads the newest version of each key: it deletes
//! those whose newest version is still the record that was found. Of a write of the key by another
//! process, then:
//!
//! - if it was acknowledged before that read, the read finds it, and the key is left as it is;
//! - if it began after the deletion took its timestamp, it has a later one (by clocks that differ
//!   by [`CLOCK_BOUND`](crate::time::CLOCK_BOUND) at most), and counts;
//! - if it was under way all the time between the two, the later timestamp counts, as of any two
//!   plain writes.
//!
//! A record that another write has replaced is judged again, by its newest version. The query is
//! not repeated: it would find records that did not match when the deletion began, which stay.
//!
//! A conditional write by compare-and-set would decide the last case, too, but only against other
//! conditional writes, and each deleted key would leave a head for good.

use std::ops::ControlFlow;

use esker_coding::Seq;
use esker_model::Key;
use esker_model::condition::Expr;
use esker_model::query::{Compiled, NoEstimates, Order, Request};

use crate::cells::Write;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::find::confirms;
use crate::view::{Newest, View};
use crate::write::{Change, Operation};

/// The records that are deleted under one deadline.
const GROUP: usize = 512;
/// The number of times in a row that other writers may replace records of a group.
const MAX_ATTEMPTS: usize = 100;

/// The outcome of a group of deletions.
#[derive(Debug, Default)]
struct Deleted {
    count: u64,
    /// The newest versions of the keys that other writers put, if they satisfy the condition.
    overtaken: Vec<(Key, Seq)>,
}

impl Dataset {
    /// Deletes every record that satisfies the condition when the call begins; `progress` gets the
    /// number so far, and can stop the deletion. Returns the number. A record that another write
    /// replaces meanwhile is deleted only if the new one satisfies the condition, too; of a write
    /// that runs at the same moment as the deletion of its record the later timestamp counts.
    ///
    /// # Errors
    /// As [`Dataset::find`]; [`Error::Conflict`] if other writers replaced records of a group a
    /// hundred times in a row.
    pub fn delete_where(
        &self,
        request: &Request,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let mut request = request.clone();
        request.order = Order::Any;
        let condition = request.condition.as_ref();
        let mut answer = self.find(&request)?;
        let mut found: Vec<(Key, Seq)> = Vec::new();
        let mut count = 0;
        loop {
            let next = answer.next_record()?;
            let is_end = next.is_none();
            found.extend(next.map(|record| (record.key().clone(), record.seq())));
            if found.len() >= GROUP || (is_end && !found.is_empty()) {
                self.delete_group(std::mem::take(&mut found), condition, &mut count)?;
                if progress(count).is_break() {
                    return Ok(count);
                }
            }
            if is_end {
                return Ok(count);
            }
        }
    }

    /// Deletes the records of a group, and adds their number to `count`.
    fn delete_group(
        &self,
        mut found: Vec<(Key, Seq)>,
        condition: Option<&Expr>,
        count: &mut u64,
    ) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let deleted = self.delete_found(&found, condition)?;
            *count += deleted.count;
            found = deleted.overtaken;
            if found.is_empty() {
                return Ok(());
            }
        }
        let what = format!(
            "other writers changed the records to be deleted {MAX_ATTEMPTS} times in a row: try \
             again"
        );
        Err(Error::Conflict { key: None, what })
    }

    /// Deletes those of the records that are still the newest of their keys.
    fn delete_found(&self, found: &[(Key, Seq)], condition: Option<&Expr>) -> Result<Deleted> {
        let shared = &self.shared;
        let bound = self.bound()?;
        let compiled = Compiled::new(&bound.shape, condition.cloned(), &mut NoEstimates)?;
        let operation = Operation::begin(shared, &bound)?;
        // Before the read: a write that begins later is newer than the deletion.
        let deletions = found.iter().map(|(key, at)| {
            let at = operation.stamp(*at)?;
            Ok(Change::delete(key, &bound).version(at))
        });
        let deletions: Vec<Write> = deletions.collect::<Result<_>>()?;
        let keys: Vec<&[u8]> = found.iter().map(|(key, _)| key.as_bytes()).collect();
        let newest = View::LATEST.newest(shared, &bound, &keys);
        let mut deleted = Deleted::default();
        let mut versions = Vec::new();
        for (((key, at), deletion), newest) in found.iter().zip(deletions).zip(newest) {
            match newest? {
                Some(Newest {
                    at: now,
                    record: Some(_),
                }) if now == *at => {
                    versions.push((deletion, Vec::new()));
                }
                Some(Newest {
                    at: now,
                    record: Some(record),
                }) => {
                    if confirms(&compiled, &bound, &record) {
                        deleted.overtaken.push((key.clone(), now));
                    }
                }
                // Another process has deleted it.
                Some(Newest { record: None, .. }) | None => {}
            }
        }
        deleted.count = versions.len() as u64;
        operation.check()?;
        operation.write_versions(versions)?;
        operation.check()?;
        Ok(deleted)
    }
}
