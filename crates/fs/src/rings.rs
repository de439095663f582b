//! The queues to the kernel for batched reads, on Linux.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::IoUring;
use parking_lot::Mutex;

use crate::faults::RingFaults;

/// Requests in flight at a time.
pub(crate) const DEPTH: usize = 64;
/// Bytes in flight at a time, unless a single request is larger.
pub(crate) const SPAN: usize = 1 << 20;
/// Satisfies the alignment of any file.
pub(crate) const ALIGNMENT: usize = 4096;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
/// The most idle rings.
const KEPT: usize = 8;

/// Queues to the kernel for batched reads.
pub struct Rings {
    /// The unused rings.
    idle: Mutex<Vec<Ring>>,
    /// Set when the kernel refused or failed a ring: no further ring is set up.
    pub(crate) refused: AtomicBool,
    pub(crate) faults: Option<Arc<dyn RingFaults>>,
}

static SHARED: Rings = Rings::new(None);

/// A queue to the kernel, and the memory that it reads into.
pub(crate) struct Ring {
    /// The process that created it: a forked process shares the queue with its parent and must not
    /// use it.
    process: u32,
    pub(crate) uring: IoUring,
    pub(crate) buffer: Vec<u8>,
}

impl Rings {
    const fn new(faults: Option<Arc<dyn RingFaults>>) -> Rings {
        Rings {
            idle: Mutex::new(Vec::new()),
            refused: AtomicBool::new(false),
            faults,
        }
    }

    /// The queues of the process.
    pub fn shared() -> &'static Rings {
        &SHARED
    }

    /// Separate queues, with injected faults.
    pub fn with_faults(faults: Arc<dyn RingFaults>) -> Rings {
        Rings::new(Some(faults))
    }

    pub(crate) fn take(&self) -> Option<Ring> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let process = std::process::id();
        while let Some(ring) = { self.idle.lock().pop() } {
            if ring.process == process {
                return Some(ring);
            }
            // Not even closed: the parent still uses it.
            std::mem::forget(ring);
        }
        match self.set_up() {
            Ok(uring) => Some(Ring {
                process,
                uring,
                buffer: Vec::new(),
            }),
            Err(error) => {
                // Too many open files or too little memory may be temporary; other errors are
                // permanent.
                let passing = [ENOMEM, ENFILE, EMFILE].map(Some);
                if !passing.contains(&error.raw_os_error()) {
                    self.refused.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }

    fn set_up(&self) -> io::Result<IoUring> {
        let fault = self.faults.as_ref().and_then(|faults| faults.set_up());
        match fault.map(io::Error::from_raw_os_error) {
            Some(fault) => Err(fault),
            None => IoUring::new(DEPTH as u32),
        }
    }

    pub(crate) fn return_memory(&self, ring: Ring) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT && ring.buffer.len() <= SPAN + 2 * ALIGNMENT {
            idle.push(ring);
        }
    }
}
