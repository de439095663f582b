//! Space in shared files. A file goes when the last of its tables does, so a few that stay could keep much that is not
//! used any more. When more than half of a file is unused, what is left of it is copied to another one, byte by byte:
//! a table does not depend on where it lies. So shared files take at most about twice what is used of them, and what
//! is copied is less than what was written.

use std::collections::BTreeSet;

use super::Inner;
use crate::error::Result;
use crate::stats::Counters;
use crate::version::{Edit, NewTable, TableAt, TableFile, Version};

impl Inner {
    /// Notes the file of a table that became obsolete, if it is due.
    pub(super) fn note_space(&self, table: &TableFile) {
        if table.place().is_some() && table.file().is_sparse() {
            self.versions.sparse.lock().insert(table.file().number());
        }
    }

    /// Moves what is left of the files that are due, under the `merging` lock. What fails is left until more of the
    /// file is unused, or the store is opened again.
    pub(super) fn move_tables(&self) -> Result<()> {
        let files = std::mem::take(&mut *self.versions.sparse.lock());
        if files.is_empty() {
            return Ok(());
        }
        let version = self.versions.view.load().version.clone();
        let write = |edit: &mut Edit| {
            let shared = crate::compaction::shared::SharedFiles::new(&self.core.source);
            for tree in version.trees.values() {
                for run in &tree.runs {
                    let tables = run.tables.iter();
                    for table in tables.filter(|table| files.contains(&table.file().number())) {
                        let bytes = table.read_all()?;
                        let place = shared.add(&bytes, &|| self.versions.new_file())?;
                        edit.removed.push(TableAt {
                            tree: tree.id,
                            number: table.meta().number,
                        });
                        edit.added.push(NewTable {
                            tree: tree.id,
                            level: run.level,
                            run: run.number,
                            component: table.component(),
                            meta: table.meta().clone(),
                            place: Some(place),
                        });
                    }
                }
            }
            shared.finish(edit)
        };
        self.start_writing(&mut self.sequencer.writer.lock())?;
        let moved = self.work_on(|edit| {
            write(edit)?;
            if edit.added.is_empty() {
                return Ok(());
            }
            let bytes = edit.added.iter().map(|new| new.meta.size).sum();
            drop(self.install(edit, |view, version| view.with(version))?);
            Counters::add(&self.core.counters.merge_read_bytes, bytes);
            Counters::add(&self.core.counters.merge_write_bytes, bytes);
            Ok(())
        });
        match moved {
            Err(error) if self.is_contained(&error) => {
                Counters::add(&self.core.counters.background_failures, 1);
                Ok(())
            }
            moved => moved,
        }
    }
}

/// The shared files of which a version uses less than half.
pub(super) fn sparse_files(version: &Version) -> BTreeSet<u64> {
    let shared = version.tables().filter(|table| table.place().is_some());
    let sparse = shared.filter(|table| table.file().is_sparse());
    sparse.map(|table| table.file().number()).collect()
}
