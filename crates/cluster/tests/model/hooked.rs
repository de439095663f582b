//! A store whose writes a test looks at, lets fail, or lets wait for something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_cluster::cells::{Cell, Cells, Mark, Page, Read, Swapped, TableKind, Write};
use esker_cluster::{Error, Result};
use parking_lot::Mutex;

use crate::net::Net;

/// Sees writes before they are sent; returns the places of those that fail, and are not sent.
pub(crate) type OnWrites = Box<dyn FnMut(&[Write]) -> Vec<usize> + Send>;

/// Called once, after the first scan, before announcements of removals are read.
pub(crate) type AfterScan = Box<dyn FnOnce() + Send>;

/// The simulated store behind a hook.
pub(crate) struct Hooked {
    net: Arc<Net>,
    on_writes: Mutex<OnWrites>,
    has_scanned: AtomicBool,
    after_scan: Mutex<Option<AfterScan>>,
}

impl Hooked {
    pub(crate) fn new(net: Arc<Net>, on_writes: OnWrites) -> Arc<Hooked> {
        Arc::new(Hooked {
            net,
            on_writes: Mutex::new(on_writes),
            has_scanned: AtomicBool::new(false),
            after_scan: Mutex::new(None),
        })
    }

    /// A store in which something happens after the first scan.
    pub(crate) fn after_scan(net: Arc<Net>, then: AfterScan) -> Arc<Hooked> {
        let hooked = Hooked::new(net, Box::new(|_| Vec::new()));
        *hooked.after_scan.lock() = Some(then);
        hooked
    }

    /// A store in which something happens before announcements of removals are read.
    pub(crate) fn before_removals(net: Arc<Net>, then: AfterScan) -> Arc<Hooked> {
        let hooked = Hooked::after_scan(net, then);
        hooked.has_scanned.store(true, Ordering::SeqCst);
        hooked
    }
}

impl Cells for Hooked {
    fn now(&self) -> Result<u64> {
        Cells::now(&*self.net)
    }

    fn create_table(&self, table: &str, kind: TableKind) -> Result<()> {
        self.net.create_table(table, kind)
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        self.net.drop_table(table)
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        let failing = (self.on_writes.lock())(&writes);
        let is_failing = |at: usize| failing.contains(&at);
        let count = writes.len();
        let sent = writes.into_iter().enumerate();
        let sent = sent.filter(|(at, _)| !is_failing(*at));
        let mut outcomes = self.net.write(sent.map(|(_, write)| write).collect());
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
        self.net.read(reads)
    }

    fn parts(&self) -> u32 {
        self.net.parts()
    }

    fn scan(
        &self,
        table: &Arc<str>,
        part: u32,
        from: Option<&Mark>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page> {
        let page = self.net.scan(table, part, from, most, rows_only);
        self.has_scanned.store(true, Ordering::SeqCst);
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
        self.net.swap(table, partition, row, expected, to)
    }

    fn swapped(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>> {
        if partition.starts_with(b"removals") && self.has_scanned.load(Ordering::SeqCst) {
            let then = self.after_scan.lock().take();
            if let Some(then) = then {
                then();
            }
        }
        self.net.swapped(table, partition)
    }
}
