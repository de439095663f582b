//! The tasks that read the recent changes of datasets, one for each dataset that has streams.

use std::sync::Arc;
use std::time::Instant;

use esker::changes::Listening;
use esker::{Dataset, Key, Stop};

use super::super::app::Shared;
use crate::live::{Follower, Recent, STEP_TIME};
use crate::problem::Problem;

/// The recent changes of a dataset; begins to read them if there was no stream. Called on the
/// engine's threads.
///
/// # Errors
/// Those of the store.
pub(super) fn recent(app: &Shared, dataset: &Dataset<Key>) -> Result<Arc<Recent>, Problem> {
    // The reads do not end with the stream that was the first.
    let dataset = dataset.with_stop(&Stop::new());
    let (recent, follower) = app.live.recent(&dataset)?;
    if let Some(follower) = follower {
        let listening = follower.listen()?;
        tokio::spawn(follow(app.clone(), follower, listening));
    }
    Ok(recent)
}

/// Reads as long as a stream needs it, and until the end of the server.
async fn follow(app: Shared, mut follower: Follower, listening: Listening) {
    let woken = follower.woken();
    let mut ended = app.live.ended();
    loop {
        let read = app.engine.step_in_turn(move || {
            let is_more = follower.read(Instant::now() + STEP_TIME);
            (follower, is_more)
        });
        // After a panic the follower has gone, and the streams read the log themselves.
        let Ok((back, is_more)) = read.await else {
            break;
        };
        follower = back;
        match is_more {
            None => break,
            Some(true) => {}
            Some(false) => tokio::select! {
                () = woken.notified() => {}
                _ = ended.wait_for(|ended| *ended) => break,
            },
        }
    }
    drop(listening);
}
