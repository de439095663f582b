//! Polling the writer's files for all who listen in a read-only group: one thread, from the first
//! listener to the last.
//!
//! A writing group needs none: the publishing thread calls. A thread that waits in a read-only
//! group polls for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::inner::Inner;
use crate::error::{Error, Result};

/// The polling interval of a reader.
pub(super) const POLL: Duration = Duration::from_millis(5);

/// The polling interval for listeners after polls that found nothing: a look costs some 50
/// microseconds, and idle listeners are to take less than 1 % of a core.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// Keeps the thread polling until it is dropped.
pub(super) struct Polls {
    inner: Arc<Inner>,
}

impl Polls {
    /// Counts a listener; the first one starts the thread.
    pub(super) fn new(inner: &Arc<Inner>) -> Result<Polls> {
        let mut state = inner.sequencer.tails.polling.state.lock();
        if state.stop.is_none() {
            let stop = Arc::new(AtomicBool::new(false));
            let (polls, stopped) = (inner.clone(), stop.clone());
            let thread = std::thread::Builder::new().name("esker-poll".to_string());
            thread
                .spawn(move || poll(&polls, &stopped))
                .map_err(|e| Error::io(&inner.core.source.dir, "start a thread for", e))?;
            state.stop = Some(stop);
        }
        state.count += 1;
        drop(state);
        Ok(Polls {
            inner: inner.clone(),
        })
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        let mut state = self.inner.sequencer.tails.polling.state.lock();
        state.count -= 1;
        // The thread ends at its next look. It is not joined: it may be the one that drops this.
        if state.count == 0
            && let Some(stop) = state.stop.take()
        {
            stop.store(true, Ordering::Release);
        }
    }
}

fn poll(inner: &Inner, stop: &AtomicBool) {
    let mut has_failed = false;
    let mut pause = POLL;
    while !stop.load(Ordering::Acquire) && !inner.core.is_ended() {
        let before = inner.sequencer.visible();
        let refreshed = inner.refresh();
        // Called once for an error: the listener that looks then gets it.
        if refreshed.is_err() && !has_failed {
            inner.core.commits.notify();
        }
        has_failed = refreshed.is_err();
        let has_news = inner.sequencer.visible() != before;
        pause = if has_news {
            POLL
        } else {
            (2 * pause).min(IDLE_POLL)
        };
        std::thread::sleep(pause);
    }
}
