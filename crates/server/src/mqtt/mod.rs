//! MQTT 5 and 3.1.1 on the broker of the store. The design is in `DESIGN.md`, section MQTT.

mod connect;
mod connection;
mod deliver;
mod encode;
mod filter;
mod kept;
mod message;
mod packet;
mod publish;
mod reason;
mod router;
mod session;
mod sessions;
mod source;
mod subscribe;
mod users;

pub use users::password_hash;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use esker::Stop;
use pubsub::{Broker, Follow, Subscription, TopicFilter};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::kept::{Kept, StoredSession};
use self::message::Clock;
use self::publish::Outgoing;
use self::router::Router;
use self::session::{Shares, source_for};
use self::sessions::{Away, Sessions};
use self::source::Begin;
use self::users::Users;
use crate::config::{Config, MqttLimits};
use crate::http::Shared as App;
use crate::problem::Problem;

/// How long connections may take to end once the server ends.
const TO_END: Duration = Duration::from_secs(30);

/// How often what is over is removed.
const SWEEP: Duration = Duration::from_millis(500);

/// How often retained messages that have expired are removed.
const SWEEP_RETAINED: u32 = 600;

/// How long the thread that follows the log sleeps at most.
const FOLLOW: Duration = Duration::from_secs(5);

/// How often a call is made again while the store has too much to do, and how long it waits before.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(25);

/// What the connections share.
pub(super) struct Mqtt {
    app: App,
    broker: Arc<Broker>,
    kept: Kept,
    router: Router,
    shares: Shares,
    sessions: Arc<Sessions>,
    users: Users,
    limits: MqttLimits,
    /// How long a client may be silent within a packet, and not read.
    idle: Duration,
    connections: Arc<Semaphore>,
}

/// MQTT on an address.
pub(crate) struct Served {
    address: SocketAddr,
    end: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    sweeping: JoinHandle<()>,
    following: thread::JoinHandle<()>,
}

impl Mqtt {
    /// Runs a call on a thread of the pool; again and again for a while if there are too many.
    ///
    /// # Errors
    /// Those of the call; 503.
    async fn call<T: Send + 'static>(
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

    fn clock(&self) -> Clock {
        Clock::of(&self.broker)
    }

    /// Takes up what is stored: which sessions there are, and the shared subscriptions. Calls the
    /// store.
    fn take_up(&self) -> Result<(), Problem> {
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

    /// Ends what is over of a session without a connection: publishes its will, removes it. Calls
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
    fn publish_will(&self, will: Outgoing) -> Result<(), Problem> {
        self.publish(&will)?;
        self.kept.sync()
    }

    /// Removes a session. Calls the store.
    fn forget(&self, session: &StoredSession) -> Result<(), Problem> {
        self.kept.delete_session(&session.client)?;
        self.leave_shares(&session.client, &session.subscriptions);
        Ok(())
    }

    /// A session has these subscriptions no more.
    fn leave_shares(&self, client: &str, subscriptions: &[kept::StoredSubscription]) {
        for of in subscriptions {
            if let Ok(filter) = filter::Filter::parse(&of.filter)
                && filter.share.is_some()
            {
                (self.shares).leave(&self.router, client, &filter, &of.conditions);
            }
        }
    }

    /// Ends sessions and removes retained messages until the server ends.
    async fn sweep(self: Arc<Mqtt>, mut ending: watch::Receiver<bool>) {
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
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(SWEEP_RETAINED)
                && let Err(problem) =
                    (self.call(|mqtt| mqtt.kept.sweep_retained(mqtt.clock()))).await
            {
                tracing::warn!("retained messages cannot be removed: {}", problem.detail());
            }
        }
    }

    async fn accept(self: Arc<Mqtt>, listener: TcpListener, ending: watch::Receiver<bool>) {
        let mut ended = ending.clone();
        loop {
            let accepted = tokio::select! {
                _ = ended.wait_for(|ending| *ending) => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Of one connection, or of all while descriptors are short.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(slot) = self.connections.clone().try_acquire_owned() else {
                tracing::warn!(%peer, "refused: there are too many connections");
                continue;
            };
            // Packets are small: waiting for more of them costs more than it saves.
            let _ = stream.set_nodelay(true);
            let (mqtt, ending) = (self.clone(), ending.clone());
            tokio::spawn(async move {
                connect::serve(mqtt, stream, peer, ending).await;
                drop(slot);
            });
        }
        drop(listener);
        let all = u32::try_from(self.app.limits.connections).unwrap_or(u32::MAX);
        let ended = timeout(TO_END, self.connections.acquire_many(all)).await;
        if ended.is_err() {
            tracing::warn!(
                "connections of MQTT were still there after {} s",
                TO_END.as_secs()
            );
        }
    }
}

/// Gives publications to the sources, until the store is closed.
fn follow(mqtt: &Mqtt, mut follow: Follow) {
    loop {
        match follow.wait(FOLLOW) {
            Ok(Some(notification)) => mqtt.router.offer(notification),
            Ok(None) if follow.is_ended() => return,
            Ok(None) => {}
            Err(error) => {
                if follow.is_ended() {
                    return;
                }
                // Of a damaged commit, it is reported once.
                tracing::error!("publications cannot be read: {error}");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Serves MQTT if the settings say so.
///
/// # Errors
/// A sentence.
pub(crate) async fn start(
    app: &App,
    config: &Config,
    listener: TcpListener,
) -> Result<Served, String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let users = Users::new(&config.users, config.needs_user())?;
    let (limits, idle) = (config.mqtt_limits.clone(), config.limits.idle);
    let connections = config.limits.connections.min(Semaphore::MAX_PERMITS);
    let shared = app.clone();
    let opened = app.engine.step(move || {
        let broker = shared.engine.broker()?;
        let handle = shared.engine.handle(&Stop::new());
        let mqtt = Arc::new(Mqtt {
            kept: Kept::open(handle.db().clone())?,
            broker: broker.clone(),
            app: shared,
            router: Router::default(),
            shares: Shares::default(),
            sessions: Arc::default(),
            users,
            limits,
            idle,
            connections: Arc::new(Semaphore::new(connections)),
        });
        // Before the first connection: it sees what is published from then on.
        let all = Subscription::to(TopicFilter::everything());
        let followed = broker.follow(&all, None)?;
        mqtt.take_up()?;
        Ok((mqtt, followed))
    });
    let (mqtt, followed) = opened
        .await
        .map_err(|problem| problem.detail().to_string())?;
    let (end, ending) = watch::channel(false);
    let of_thread = mqtt.clone();
    let following = thread::Builder::new()
        .name("mqtt".to_string())
        .spawn(move || follow(&of_thread, followed))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let sweeping = tokio::spawn(mqtt.clone().sweep(ending.clone()));
    let accepting = tokio::spawn(mqtt.accept(listener, ending));
    Ok(Served {
        address,
        end,
        accepting,
        sweeping,
        following,
    })
}

impl Served {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and ends the connections. The thread that follows the log ends when
    /// the store is closed: [`Ended::join`] waits for it.
    pub(crate) async fn stop(self) -> Ended {
        // Those who listen have ended otherwise.
        let _ = self.end.send(true);
        let _ = self.accepting.await;
        let _ = self.sweeping.await;
        Ended(self.following)
    }
}

/// A server of MQTT without connections.
pub(crate) struct Ended(thread::JoinHandle<()>);

impl Ended {
    /// Waits for its thread, once the store is closed.
    pub(crate) fn join(self) {
        // A panic was reported already.
        let _ = self.0.join();
    }
}

/// The source of a stored subscription that is not shared.
fn source_of(
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
