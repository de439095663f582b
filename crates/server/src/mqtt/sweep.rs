//! The end of sessions without a connection: their wills, and what is left of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::kept;
use super::outgoing::Outgoing;
use super::sessions::Away;
use super::shared::Mqtt;
use crate::problem::Problem;

/// How often what has ended is removed.
const SWEEP: Duration = Duration::from_millis(500);

/// How often retained messages that have expired are removed.
const SWEEP_RETAINED: u32 = 600;

impl Mqtt {
    /// Ends what has ended of a session without a connection: publishes its will, removes it. Calls
    /// the store.
    fn end_session(&self, client: &str) -> Result<Option<(String, Away)>, Problem> {
        let now = kept::now();
        let Some(mut session) = self.kept.session(client)? else {
            return Ok(None);
        };
        let left = session.left.unwrap_or(now);
        let away = Away::of(&session, left);
        if away.is_will_due(now)
            && let Some(will) = session.will.take()
        {
            self.publish_will(will.publication.into())?;
        }
        if away.is_over(now) {
            self.forget(&session)?;
            return Ok(None);
        }
        self.kept.put_session(&session, esker::Durability::Sync)?;
        let away = Away::of(&session, left);
        Ok(Some((session.user, away)))
    }

    /// Publishes a will. Calls the store.
    pub(super) fn publish_will(&self, will: Outgoing) -> Result<(), Problem> {
        self.publish(&will)?;
        self.kept.sync()
    }

    /// Ends sessions and removes retained messages until the server ends.
    pub(super) async fn sweep(self: Arc<Mqtt>, mut ending: watch::Receiver<bool>) {
        let mut rounds: u32 = 0;
        loop {
            tokio::select! {
                _ = ending.wait_for(|ending| *ending) => return,
                () = tokio::time::sleep(SWEEP) => {}
            }
            for client in self.sessions.due(kept::now()) {
                let Some(mut claim) = self.sessions.claim_idle(&client) else {
                    continue;
                };
                let name = client.clone();
                match self.call(move |mqtt| mqtt.end_session(&name)).await {
                    Ok(Some((user, away))) => self.sessions.set_away(&client, &user, away),
                    Ok(None) => claim.done(),
                    Err(problem) => {
                        // It stays, and is tried again in a while.
                        let again = kept::now().saturating_add(10_000);
                        claim.again(again);
                        tracing::warn!(client, "a session cannot be ended: {}", problem.detail());
                    }
                }
            }
            if rounds.is_multiple_of(SWEEP_RETAINED) {
                match (self.call(|mqtt| mqtt.kept.sweep_retained(mqtt.clock()))).await {
                    Ok(left) => self.measured().retained(left),
                    Err(problem) => {
                        let why = problem.detail();
                        tracing::warn!("retained messages cannot be removed: {why}");
                    }
                }
            }
            rounds = rounds.wrapping_add(1);
        }
    }
}
