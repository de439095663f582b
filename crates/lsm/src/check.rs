//! Checking a store: reads every byte of every table and reports all damage, not only the first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::stop::Stop;
use crate::table::ReadOptions;
use crate::version::{Partitioner, RunCursor, TableFile};

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// All damage found.
    pub errors: Vec<Error>,
    /// Tables read.
    pub tables: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
}

impl Group {
    /// Reads every table of the current version and of named snapshots from its file, and verifies
    /// checksums, order, filters, synopses and counts, and the places of consumers. `CURRENT`, the
    /// manifest and the log were verified at opening.
    pub fn check(&self) -> CheckReport {
        let mut report = CheckReport::default();
        // Without a `stop` the check runs to its end.
        let _ = self.check_into(&mut report, None);
        report
    }

    /// As [`Group::check`], until `stop` stops it.
    ///
    /// # Errors
    /// Only [`Error::Cancelled`]; everything else is in the report.
    pub fn check_until(&self, stop: Option<&Stop>) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        self.check_into(&mut report, stop)?;
        Ok(report)
    }

    fn check_into(&self, report: &mut CheckReport, stop: Option<&Stop>) -> Result<()> {
        match self.internals().damaged_places() {
            Ok(damaged) => report.errors.extend(damaged),
            Err(error) => report.errors.push(error),
        }
        let snapshot = self.snapshot();
        let version = snapshot.version();
        let kept = version.kept().values();
        let kept = kept.flat_map(|kept| kept.picture().trees.values());
        let mut seen = HashSet::new();
        for tree in version.trees.values().chain(kept) {
            let tables = tree.tables();
            for table in tables.filter(|table| seen.insert(Arc::as_ptr(table))) {
                report.tables += 1;
                report.bytes += table.meta().size;
                match table.table() {
                    Ok(open) => {
                        let extractor = tree.options.extractor.as_deref();
                        let digester = tree.options.digester.as_deref();
                        let found = &mut |error| report.errors.push(error);
                        report.entries += open.verify_until(stop, extractor, digester, found)?;
                        if let Some(partitioner) = &tree.options.partitioner {
                            let outside = find_outside(&**partitioner, table, stop)?;
                            report.errors.extend(outside);
                        }
                    }
                    Err(error) => report.errors.push(error),
                }
            }
        }
        Ok(())
    }
}

/// Reports the first key of a table outside of the table's bounds. Unreadable blocks were reported
/// before.
fn find_outside(
    partitioner: &dyn Partitioner,
    table: &Arc<TableFile>,
    stop: Option<&Stop>,
) -> Result<Option<Error>> {
    let options = ReadOptions {
        fill_cache: false,
        readahead: 256 << 10,
    };
    let mut entries = RunCursor::new(Arc::new(vec![table.clone()]), options).until(stop);
    let mut moved = entries.seek_first();
    while moved.is_ok() && entries.valid() {
        if !partitioner.covers(table.bounds(), entries.key()) {
            let what = format!(
                "table {} has a key that the bounds of its place do not cover",
                table.meta().number
            );
            return Ok(Some(Error::corruption(&table.path(), table.offset(), what)));
        }
        moved = entries.next();
    }
    match moved {
        Err(Error::Cancelled { .. }) => moved.map(|()| None),
        _ => Ok(None),
    }
}
