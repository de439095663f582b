//! MQTT on its addresses: their connections, and the thread that follows the log for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use axum::Router;
use esker::Stop;
use pubsub::{Follow, Subscription, TopicFilter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connect;
use super::kept::Kept;
use super::retaining::Retaining;
use super::router;
use super::session::Shares;
use super::shared::Mqtt;
use super::users::Users;
use super::websocket;
use crate::config::Config;
use crate::http::Shared as App;
use crate::metrics::Carried;
use crate::tls::{Certificate, is_usual};

/// Passwords that are checked at the same time: those of strangers leave the store's threads free.
const PASSWORDS: usize = 2;

/// How long connections may take to end once the server ends.
const TO_END: Duration = Duration::from_secs(30);

/// How long the thread that follows the log sleeps at most.
const FOLLOW: Duration = Duration::from_secs(5);

/// How often the certificate is looked at.
const REFRESH: Duration = Duration::from_secs(5);

/// How long is waited when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener, with TLS if it has a certificate.
pub(crate) struct Door {
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
}

impl Door {
    pub(crate) fn new(listener: TcpListener, certificate: Option<Certificate>) -> Door {
        Door {
            listener,
            certificate: certificate.map(Arc::new),
        }
    }
}

/// An address of MQTT.
struct Address {
    of: SocketAddr,
    is_encrypted: bool,
}

/// MQTT, while it is served.
pub(crate) struct Served {
    mqtt: Arc<Mqtt>,
    addresses: Vec<Address>,
    end: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
    sweeping: JoinHandle<()>,
    following: thread::JoinHandle<()>,
}

impl Mqtt {
    async fn accept(self: Arc<Mqtt>, door: Door, ending: watch::Receiver<bool>) {
        let mut ended = ending.clone();
        let mut refresh = tokio::time::interval(REFRESH);
        loop {
            let accepted = tokio::select! {
                _ = ended.wait_for(|ending| *ending) => break,
                _ = refresh.tick(), if door.certificate.is_some() => {
                    if let Some(certificate) = door.certificate.clone() {
                        tokio::task::spawn_blocking(move || certificate.refresh());
                    }
                    continue;
                }
                accepted = door.listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Of one connection, or of all while descriptors are short.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(slot) = self.connections.clone().try_acquire_owned() else {
                self.measured().beyond.inc();
                tracing::warn!(%peer, "refused: there are too many connections");
                continue;
            };
            // Packets are small: waiting for more of them costs more than it saves.
            let _ = stream.set_nodelay(true);
            let (mqtt, ending) = (self.clone(), ending.clone());
            let certificate = door.certificate.clone();
            tokio::spawn(async move {
                match certificate {
                    None => connect::serve(mqtt, stream, Carried::Tcp, peer, ending).await,
                    Some(certificate) => mqtt.encrypt(&certificate, stream, peer, ending).await,
                }
                drop(slot);
            });
        }
    }

    /// Serves a connection over TLS.
    async fn encrypt(
        self: Arc<Mqtt>,
        certificate: &Certificate,
        stream: TcpStream,
        peer: SocketAddr,
        mut ending: watch::Receiver<bool>,
    ) {
        let handshake = timeout(self.idle, certificate.acceptor().accept(stream));
        let done = tokio::select! {
            _ = ending.wait_for(|ending| *ending) => return,
            done = handshake => done,
        };
        match done {
            Ok(Ok(stream)) => connect::serve(self, stream, Carried::Tls, peer, ending).await,
            Ok(Err(error)) if is_usual(&error) => tracing::debug!(%peer, "no TLS: {error}"),
            Ok(Err(error)) => tracing::info!(%peer, "no TLS: {error}"),
            Err(_) => tracing::debug!(%peer, "the handshake took too long"),
        }
    }

    /// Waits until all connections have ended.
    async fn all_ended(&self) {
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

/// Serves MQTT at these listeners.
///
/// # Errors
/// A sentence.
pub(crate) async fn start(app: &App, config: &Config, doors: Vec<Door>) -> Result<Served, String> {
    let address = |door: &Door| {
        let of = door.listener.local_addr();
        of.map(|of| Address {
            of,
            is_encrypted: door.certificate.is_some(),
        })
    };
    let addresses: Result<Vec<Address>, _> = doors.iter().map(address).collect();
    let addresses = addresses.map_err(|error| error.to_string())?;
    let users = Users::new(&config.users, config.needs_user())?;
    let (limits, idle) = (config.mqtt_limits.clone(), config.limits.idle);
    let connections = config.limits.connections.min(Semaphore::MAX_PERMITS);
    let shared = app.clone();
    let opened = app.engine.step(move || {
        let broker = shared.engine.broker()?;
        let handle = shared.engine.handle(&Stop::new());
        let mqtt = Arc::new(Mqtt {
            kept: Kept::open(handle.db().clone())?,
            retaining: Retaining::default(),
            broker: broker.clone(),
            app: shared,
            router: router::Router::default(),
            published: AtomicU64::new(0),
            shares: Shares::default(),
            sessions: Arc::default(),
            users,
            limits,
            idle,
            connections: Arc::new(Semaphore::new(connections)),
            passwords: Semaphore::new(PASSWORDS),
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
    let sampled = Arc::downgrade(&mqtt);
    (mqtt.measured()).sample_with(Box::new(move || Some(sampled.upgrade()?.sampled())));
    let (end, ending) = watch::channel(false);
    let of_thread = mqtt.clone();
    let following = thread::Builder::new()
        .name("mqtt".to_string())
        .spawn(move || follow(&of_thread, followed))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let sweeping = tokio::spawn(mqtt.clone().sweep(ending.clone()));
    let accept = |door| tokio::spawn(mqtt.clone().accept(door, ending.clone()));
    let accepting = doors.into_iter().map(accept).collect();
    Ok(Served {
        mqtt,
        addresses,
        end,
        accepting,
        sweeping,
        following,
    })
}

impl Served {
    pub(crate) fn address(&self, is_encrypted: bool) -> Option<SocketAddr> {
        let mut addresses = self.addresses.iter();
        let found = addresses.find(|address| address.is_encrypted == is_encrypted);
        found.map(|address| address.of)
    }

    /// The routes of HTTP by which MQTT is a WebSocket.
    pub(crate) fn routes(&self) -> Router {
        websocket::routes(self.mqtt.clone(), self.end.subscribe())
    }

    /// Accepts nothing more, and ends the connections. The thread that follows the log ends when
    /// the store is closed: [`Ended::join`] waits for it.
    pub(crate) async fn stop(self) -> Ended {
        // Those who listen have ended otherwise.
        let _ = self.end.send(true);
        for accepting in self.accepting {
            let _ = accepting.await;
        }
        self.mqtt.all_ended().await;
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
