//! Devices in memory, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use super::device::{Device, Done, Exports, Failure, Refused, Run};

/// Bytes of a block of a [`Memory`].
pub(super) const BLOCK: usize = 4096;

/// Outcomes that wait for [`Memory::release`].
type Held = Vec<Box<dyn FnOnce() + Send>>;

/// A device in memory that several connections share.
pub(super) struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// Blocks that were written since they were last discarded.
    allocated: Mutex<BTreeSet<usize>>,
    held: Mutex<Held>,
    /// Outcomes of writes are held until they are released.
    pub(super) is_slow: AtomicBool,
    /// Requests fail with this error number, where it is not 0; the largest one panics.
    pub(super) errno: AtomicU32,
    /// Requests are dropped without an outcome.
    pub(super) is_careless: AtomicBool,
    pub(super) is_read_only: bool,
    /// How often a connection to it has ended.
    pub(super) closed: AtomicU32,
}

impl Memory {
    pub(super) fn new(size: usize, is_read_only: bool) -> Arc<Memory> {
        Arc::new(Memory {
            bytes: Mutex::new(vec![0; size]),
            allocated: Mutex::default(),
            held: Mutex::default(),
            is_slow: AtomicBool::new(false),
            errno: AtomicU32::new(0),
            is_careless: AtomicBool::new(false),
            is_read_only,
            closed: AtomicU32::new(0),
        })
    }

    pub(super) fn held(&self) -> usize {
        self.held.lock().len()
    }

    /// Ends the requests that are held, the newest first.
    pub(super) fn release(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter().rev().for_each(|end| end());
    }

    pub(super) fn contents(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    fn end<T: Send + 'static>(&self, done: Done<T>, value: T, may_wait: bool) {
        if self.is_careless.load(Ordering::SeqCst) {
            return;
        }
        let outcome = match self.errno.load(Ordering::SeqCst) {
            0 => Ok(value),
            u32::MAX => panic!("as the test wants it"),
            errno => Err(Failure::new(errno, "as the test wants it")),
        };
        if may_wait && self.is_slow.load(Ordering::SeqCst) {
            self.held.lock().push(Box::new(move || done(outcome)));
        } else {
            done(outcome);
        }
    }
}

impl Device for Memory {
    fn size(&self) -> u64 {
        self.bytes.lock().len() as u64
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    fn read_only(&self) -> bool {
        self.is_read_only
    }
    fn description(&self) -> Option<String> {
        Some("in memory".to_owned())
    }
    fn read(&self, offset: u64, length: u32, done: Done<Vec<u8>>) {
        let from = offset as usize;
        let data = self.bytes.lock()[from..from + length as usize].to_vec();
        self.end(done, data, false);
    }
    fn write(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        let from = offset as usize;
        self.bytes.lock()[from..from + data.len()].copy_from_slice(&data);
        let blocks = from / BLOCK..(from + data.len()).div_ceil(BLOCK);
        self.allocated.lock().extend(blocks);
        self.end(done, (), true);
    }
    fn discard(&self, offset: u64, length: u64, _zeros: bool, done: Done<()>) {
        let (from, to) = (offset as usize, (offset + length) as usize);
        self.bytes.lock()[from..to].fill(0);
        let mut allocated = self.allocated.lock();
        for block in from.div_ceil(BLOCK)..to / BLOCK {
            allocated.remove(&block);
        }
        drop(allocated);
        self.end(done, (), true);
    }
    fn flush(&self, done: Done<()>) {
        self.end(done, (), false);
    }
    fn extents(&self, offset: u64, length: u64, done: Done<Vec<Run>>) {
        let allocated = self.allocated.lock();
        let (mut at, end) = (offset, offset + length);
        let mut runs = Vec::new();
        while at < end {
            let block = at / BLOCK as u64;
            let to = ((block + 1) * BLOCK as u64).min(end);
            let is_hole = !allocated.contains(&(block as usize));
            let length = to - at;
            runs.push(Run { length, is_hole });
            at = to;
        }
        drop(allocated);
        self.end(done, runs, false);
    }
    fn closed(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// Exports by name.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) devices: BTreeMap<String, Arc<Memory>>,
}

impl Exports for Shelf {
    fn list(&self) -> Vec<String> {
        self.devices.keys().cloned().collect()
    }
    fn open(&self, name: &str, client: Option<&str>) -> Result<Arc<dyn Device>, Refused> {
        match (name, client) {
            ("", Some(client)) => self.open(client, None),
            ("forbidden", _) => Err(Refused::Forbidden("not for you".to_owned())),
            ("away", _) => Err(Refused::Unavailable("no quorum".to_owned())),
            _ => match self.devices.get(name) {
                Some(device) => Ok(Arc::clone(device) as Arc<dyn Device>),
                None => Err(Refused::Unknown),
            },
        }
    }
}
