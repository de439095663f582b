//! The queues for batched reads where the platform has none.

use std::sync::Arc;

use crate::faults::RingFaults;

/// Queues for batched reads: this platform has none.
pub struct Rings;

impl Rings {
    /// The queues of the process.
    pub fn shared() -> &'static Rings {
        &Rings
    }

    /// Separate queues, with injected faults.
    pub fn with_faults(_: Arc<dyn RingFaults>) -> Rings {
        Rings
    }
}
