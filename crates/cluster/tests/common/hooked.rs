//! A store behind a hook: a test looks at its calls, lets writes fail, or does something else
//! first.

use std::sync::Arc;

use esker_cluster::cells::{Cell, Cells, Mark, Page, Read, Swapped, TableKind, Write};
use esker_cluster::{Error, Result};

/// What a test does at the calls of a store. Every method has a default that does nothing.
pub(crate) trait Hook: Send + Sync {
    /// Before each call that a writer makes; each write is a call of its own if
    /// [`Hook::is_one_by_one`].
    fn called(&self) {}

    /// True if writes are sent one by one.
    fn is_one_by_one(&self) -> bool {
        false
    }

    /// Sees writes before they are sent; returns the places of those that fail, and are not sent.
    fn writes(&self, writes: &[Write]) -> Vec<usize> {
        let _ = writes;
        Vec::new()
    }

    /// After a page of a scan.
    fn scanned(&self) {}

    /// Before a compare-and-set of a row of the partition.
    fn swaps(&self, partition: &[u8]) {
        let _ = partition;
    }

    /// True if a compare-and-set of a row of the partition fails, and is not sent.
    fn fails(&self, partition: &[u8]) -> bool {
        let _ = partition;
        false
    }

    /// After a compare-and-set of a row; returns what the caller gets.
    fn swapped(&self, table: &str, partition: &[u8], found: Result<Swapped>) -> Result<Swapped> {
        let _ = (table, partition);
        found
    }

    /// Before the rows of a partition are read that is changed by compare-and-set.
    fn reads_swapped(&self, partition: &[u8]) {
        let _ = partition;
    }
}

/// The store.
pub(crate) struct Hooked<H> {
    cells: Arc<dyn Cells>,
    pub(crate) hook: H,
}

impl<H: Hook> Hooked<H> {
    pub(crate) fn new(cells: Arc<dyn Cells>, hook: H) -> Arc<Hooked<H>> {
        Arc::new(Hooked { cells, hook })
    }

    fn called(&self) -> &dyn Cells {
        self.hook.called();
        &*self.cells
    }

    /// Sends writes, all at once or one by one.
    fn send(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        if !self.hook.is_one_by_one() {
            return self.called().write(writes);
        }
        let sent = writes.into_iter();
        sent.flat_map(|write| self.called().write(vec![write]))
            .collect()
    }
}

impl<H: Hook> Cells for Hooked<H> {
    fn now(&self) -> Result<u64> {
        self.called().now()
    }

    fn create_table(&self, table: &str, kind: TableKind) -> Result<()> {
        self.cells.create_table(table, kind)
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        self.cells.drop_table(table)
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        let failing = self.hook.writes(&writes);
        let is_failing = |at: usize| failing.contains(&at);
        let count = writes.len();
        let sent = writes.into_iter().enumerate();
        let sent = sent.filter(|(at, _)| !is_failing(*at));
        let mut outcomes = self.send(sent.map(|(_, write)| write).collect());
        outcomes.reverse();
        let outcome = |at| {
            if is_failing(at) {
                Err(Error::Unavailable("no answer".to_string()))
            } else {
                outcomes.pop().unwrap()
            }
        };
        (0..count).map(outcome).collect()
    }

    fn read(&self, reads: Vec<Read>) -> Vec<Result<Vec<Cell>>> {
        self.called().read(reads)
    }

    fn parts(&self) -> u32 {
        self.cells.parts()
    }

    fn scan(
        &self,
        table: &Arc<str>,
        part: u32,
        from: Option<&Mark>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page> {
        let page = self.cells.scan(table, part, from, most, rows_only);
        self.hook.scanned();
        page
    }

    fn swap(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        self.hook.swaps(partition);
        if self.hook.fails(partition) {
            return Err(Error::Unavailable("no answer".to_string()));
        }
        let found = self.called().swap(table, partition, row, expected, to);
        self.hook.swapped(table, partition, found)
    }

    fn swapped(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>> {
        self.hook.reads_swapped(partition);
        self.called().swapped(table, partition)
    }
}
