//! MQTT on an address: its connections, and the thread that follows the log for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use esker::Stop;
use pubsub::{Follow, Subscription, TopicFilter};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connect;
use super::kept::Kept;
use super::router::Router;
use super::session::Shares;
use super::shared::Mqtt;
use super::users::Users;
use crate::config::Config;
use crate::http::Shared as App;

/// How long connections may take to end once the server ends.
const TO_END: Duration = Duration::from_secs(30);

/// How long the thread that follows the log sleeps at most.
const FOLLOW: Duration = Duration::from_secs(5);

/// MQTT on an address.
pub(crate) struct Served {
    address: SocketAddr,
    end: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    sweeping: JoinHandle<()>,
    following: thread::JoinHandle<()>,
}

impl Mqtt {
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
