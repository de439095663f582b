//! SIGINT and SIGTERM while records arrive: the command commits the records it has read, reports
//! its position and ends. A second signal ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// The signals that the process has received.
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Records the two signals from now on.
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        let (noted, again) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        for signal in [SIGINT, SIGTERM] {
            // The order matters: at the first signal the flag is not set yet.
            let registered = flag::register_conditional_default(signal, Arc::clone(&again))
                .and_then(|_| flag::register(signal, Arc::clone(&again)))
                .and_then(|_| {
                    flag::register_usize(signal, Arc::clone(&noted), signal.unsigned_abs() as usize)
                });
            registered
                .map_err(|error| Failure::Usage(format!("cannot watch for signals: {error}")))?;
        }
        Ok(Interrupt(noted))
    }

    /// The number of the last signal, if one was received.
    pub(crate) fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(signal).ok(),
        }
    }
}
