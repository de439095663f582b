//! What the connections share, and the calls of the store that they make.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pubsub::Broker;
use tokio::sync::Semaphore;

use super::kept::{Kept, StoredSession};
use super::message::Clock;
use super::retaining::Retaining;
use super::router::Router;
use super::session::{Shares, source_for};
use super::sessions::{Away, Sessions};
use super::source::Begin;
use super::users::Users;
use super::{filter, kept, source};
use crate::config::MqttLimits;
use crate::http::Shared as App;
use crate::metrics;
use crate::problem::Problem;

/// How often a call is made again while the store has too much to do, and how long it waits before.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(25);

/// What the connections share.
pub(super) struct Mqtt {
    pub(super) app: App,
    pub(super) broker: Arc<Broker>,
    pub(super) kept: Kept,
    pub(super) retaining: Retaining,
    pub(super) router: Router,
    /// The number of the last publication of a client.
    pub(super) published: AtomicU64,
    pub(super) shares: Shares,
    pub(super) sessions: Arc<Sessions>,
    pub(super) users: Users,
    pub(super) limits: MqttLimits,
    /// How long a client may be silent within a packet, and not read.
    pub(super) idle: Duration,
    pub(super) connections: Arc<Semaphore>,
    /// Passwords that are checked at the same time: each takes much time and memory, by intention.
    pub(super) passwords: Semaphore,
}

impl Mqtt {
    /// Runs a call on a thread of the pool; again and again for a while if there are too many.
    ///
    /// # Errors
    /// Those of the call; 503.
    pub(super) async fn call<T: Send + 'static>(
        self: &Arc<Mqtt>,
        call: impl Fn(&Mqtt) -> Result<T, Problem> + Send + Sync + 'static,
    ) -> Result<T, Problem> {
        let call = Arc::new(call);
        for _ in 0..ATTEMPTS {
            let (mqtt, call) = (self.clone(), call.clone());
            match self.app.engine.step(move || call(&mqtt)).await {
                Err(problem) if problem.is_busy() => tokio::time::sleep(PAUSE).await,
                done => return done,
            }
        }
        Err(Problem::busy("too many requests wait for the store", 1))
    }

    pub(super) fn measured(&self) -> &metrics::Mqtt {
        &self.app.metrics.mqtt
    }

    /// What is looked up when measurements are asked for.
    pub(super) fn sampled(&self) -> metrics::Sampled {
        let mut sampled = metrics::Sampled {
            sessions: self.sessions.len() as u64,
            ..metrics::Sampled::default()
        };
        self.router.each(&mut |source| source.sample(&mut sampled));
        sampled
    }

    pub(super) fn clock(&self) -> Clock {
        Clock::of(&self.broker)
    }

    /// Takes up what is stored: which sessions there are, and the shared subscriptions. Calls the
    /// store.
    pub(super) fn take_up(&self) -> Result<(), Problem> {
        let now = kept::now();
        let mut lost = Vec::new();
        self.kept.each_session(|session| {
            for of in &session.subscriptions {
                self.take_up_share(&session.client, of);
            }
            // The connection of a session without this time ended with the server.
            let away = Away::of(&session, session.left.unwrap_or(now));
            (self.sessions).set_away(&session.client, &session.user, away);
            if session.left.is_none() {
                lost.push(session);
            }
        })?;
        for session in lost {
            let session = StoredSession {
                left: Some(now),
                ..session
            };
            self.kept.put_session(&session, esker::Durability::Os)?;
        }
        Ok(())
    }

    fn take_up_share(&self, client: &str, of: &kept::StoredSubscription) {
        let Ok(filter) = filter::Filter::parse(&of.filter) else {
            return;
        };
        if filter.share.is_none() {
            return;
        }
        let begin = Begin::After(of.position);
        let joined = (self.shares).join(&self.router, client, &filter, &of.conditions, begin);
        if let Ok((source, _)) = joined {
            source.advance(of.position);
            source.mark_sent(of.sent);
        }
    }

    /// Removes a session. Calls the store.
    pub(super) fn forget(&self, session: &StoredSession) -> Result<(), Problem> {
        self.kept.delete_session(&session.client)?;
        self.leave_shares(&session.client, &session.subscriptions);
        Ok(())
    }

    /// A session has these subscriptions no more.
    pub(super) fn leave_shares(&self, client: &str, subscriptions: &[kept::StoredSubscription]) {
        for of in subscriptions {
            if let Ok(filter) = filter::Filter::parse(&of.filter)
                && filter.share.is_some()
            {
                (self.shares).leave(&self.router, client, &filter, &of.conditions);
            }
        }
    }
}

/// The source of a stored subscription that is not shared.
pub(super) fn source_of(
    filter: &filter::Filter,
    of: &kept::StoredSubscription,
) -> Result<Arc<source::Source>, String> {
    let begin = match of.qos {
        // Nothing of the time without a connection.
        0 => Begin::Now,
        _ => Begin::After(of.position),
    };
    Ok(Arc::new(source_for(filter, &of.conditions, begin)?))
}
