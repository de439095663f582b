//! Checking a store: every byte of every table is read again, and all damage is reported, not the
//! first only.

use crate::error::Error;
use crate::group::Group;

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Everything that is wrong.
    pub errors: Vec<Error>,
    /// Tables read.
    pub tables: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
}

impl Group {
    /// Reads every table of the current version from its file, and verifies checksums, order,
    /// filters, synopses and counts. `CURRENT`, the manifest and the log were verified at opening.
    pub fn check(&self) -> CheckReport {
        let mut report = CheckReport::default();
        let snapshot = self.snapshot();
        for tree in snapshot.version().trees.values() {
            for table in tree.runs.iter().flat_map(|run| run.tables.iter()) {
                report.tables += 1;
                report.bytes += table.meta().size;
                match table.table() {
                    Ok(open) => {
                        report.entries += open
                            .verify_with(tree.options.extractor.as_deref(), &mut |error| {
                                report.errors.push(error)
                            })
                    }
                    Err(error) => report.errors.push(error),
                }
            }
        }
        report
    }
}
