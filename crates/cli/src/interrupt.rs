//! SIGINT and SIGTERM while records come in: the command commits what it has read, says how far it is, and ends. A second
//! signal ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Tells whether the process was asked to end.
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// From here on the two signals are noted.
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        let (noted, again) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset.
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

    /// The number of the signal that asked for the end, if one did.
    pub(crate) fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(signal).ok(),
        }
    }
}
