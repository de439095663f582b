//! Which tables and files exist, and how an edit changes the numbers of versions that have them.

use std::collections::HashMap;
use std::sync::Arc;

use super::file::{DataFile, NewTable, TableFile, TableSource};
use super::paths::Place;

/// Existing tables and files: a kept version shares these objects, so that they are opened once and
/// counted together.
#[derive(Default)]
pub(super) struct Known {
    tables: HashMap<(u64, u64, u64), Arc<TableFile>>,
    files: HashMap<u64, Arc<DataFile>>,
}

impl Known {
    pub(super) fn of<'t>(tables: impl Iterator<Item = &'t Arc<TableFile>>) -> Known {
        let mut known = Known::default();
        tables.for_each(|table| known.add(table));
        known
    }

    pub(super) fn add(&mut self, table: &Arc<TableFile>) {
        let file = table.file();
        let place = (table.meta().number, file.number(), table.offset());
        self.tables.insert(place, table.clone());
        self.files.insert(file.number(), file.clone());
    }

    /// The existing table of an edit's item.
    pub(super) fn table(&self, new: &NewTable) -> Option<&Arc<TableFile>> {
        let number = new.meta.number;
        let (file, offset) = new.place.map_or((number, 0), |at| (at.file, at.offset));
        let known = self.tables.get(&(number, file, offset));
        known.filter(|known| known.is_new(new))
    }

    /// The file of a new table.
    pub(super) fn file(&mut self, new: &NewTable, source: &TableSource) -> Arc<DataFile> {
        let make = || DataFile::new(&new.meta, new.place, source);
        match new.place {
            Some(Place { file, .. }) => self.files.entry(file).or_insert_with(make).clone(),
            None => self
                .files
                .get(&new.meta.number)
                .cloned()
                .unwrap_or_else(make),
        }
    }

    /// The existing table equal to this one.
    pub(super) fn same(&self, table: &TableFile) -> Option<&Arc<TableFile>> {
        let place = (table.meta().number, table.file().number(), table.offset());
        let known = self.tables.get(&place);
        known.filter(|known| known.is_same(table))
    }
}

/// The changes of table counts by an edit: made when the edit is on disk.
#[derive(Default)]
pub(crate) struct Turnover {
    /// Existing tables that one more version has now.
    pub(crate) gained: Vec<Arc<TableFile>>,
    /// Tables that a version no longer has.
    pub(crate) taken: Vec<Arc<TableFile>>,
}
