//! The bound of all bodies that are in memory at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// The bytes of all bodies together.
const TOGETHER: usize = 512 << 20;

/// A unit of the bodies' bound, in bytes.
const UNIT: usize = 16 << 10;

/// The bound of all bodies.
pub(crate) struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Arc::new(Semaphore::new(TOGETHER / UNIT)))
    }
}

impl Bodies {
    /// Takes as much of the bound as a body of so many bytes needs, beside what it has.
    ///
    /// # Errors
    /// 503 if there is not so much left.
    pub(super) fn grow(
        &self,
        held: &mut Option<OwnedSemaphorePermit>,
        bytes: usize,
    ) -> Result<(), Problem> {
        let have = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(UNIT).saturating_sub(have);
        let Ok(more @ 1..) = u32::try_from(more) else {
            return Ok(());
        };
        let taken = self.0.clone().try_acquire_many_owned(more);
        let taken = taken.map_err(|_| Problem::busy("too many bodies are being read", 1))?;
        match held {
            Some(held) => held.merge(taken),
            None => *held = Some(taken),
        }
        Ok(())
    }
}
