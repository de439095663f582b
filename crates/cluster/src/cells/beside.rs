//! Work on several parts of a scan at the same time.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::error::Result;

/// Scans at the same time.
const SCANS: usize = 4;

/// Does work on each part; returns the first error, after which no further part is begun.
pub(super) fn beside(parts: Range<u32>, work: &(dyn Fn(u32) -> Result<()> + Sync)) -> Result<()> {
    let (next, failed) = (AtomicU32::new(parts.start), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..SCANS.min(parts.len()) {
            scope.spawn(|| {
                loop {
                    let part = next.fetch_add(1, Ordering::Relaxed);
                    if part >= parts.end || failed.lock().is_some() {
                        return;
                    }
                    if let Err(error) = work(part) {
                        failed.lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn each_part_is_worked_on_once_and_an_error_is_returned() {
        let done = Mutex::new(Vec::new());
        let work = |part: u32| {
            done.lock().push(part);
            Ok(())
        };
        beside(3..40, &work).unwrap();
        let mut done = done.into_inner();
        done.sort_unstable();
        assert_eq!(done, (3..40).collect::<Vec<u32>>());
        let fails = |part: u32| match part {
            7 => Err(Error::ReadOnly),
            _ => Ok(()),
        };
        assert_eq!(beside(0..100, &fails), Err(Error::ReadOnly));
    }
}
