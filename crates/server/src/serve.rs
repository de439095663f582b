//! Starts a server and ends it: listeners, connections with their limits, signals.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use esker::{Database, Options};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use pubsub::PubSub;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::access::Tokens;
use crate::config::Config;
use crate::engine::Engine;
use crate::http::{App, Shared, document, router};
use crate::pages::Pages;

/// How long requests may take to end once the server ends.
const TO_END: Duration = Duration::from_secs(30);

/// How often what is over is removed.
const SWEEP: Duration = Duration::from_secs(5);

/// Why a server cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The settings are not valid.
    Settings(String),
    /// The store cannot be opened.
    Store(esker::Error),
    /// An address cannot be listened on.
    Listen(SocketAddr, io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Settings(why) => f.write_str(why),
            StartError::Store(error) => write!(f, "{error}"),
            StartError::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// A server that runs. It needs a tokio runtime.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker_server::{Config, Server};
///
/// let runtime = tokio::runtime::Runtime::new()?;
/// runtime.block_on(async {
///     let mut config = Config::default();
///     config.dir = dir.path().join("db");
///     config.listen = "127.0.0.1:0".parse()?;
///     let server = Server::start(config).await?;
///     println!("http://{}", server.address());
///     server.stop().await?;
///     Ok(())
/// })
/// # }
/// ```
pub struct Server {
    address: SocketAddr,
    app: Shared,
    /// Ends the listeners.
    end: oneshot::Sender<()>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Opens the store, creates it if it does not exist, and serves it.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn start(config: Config) -> Result<Server, StartError> {
        let tokens = Tokens::new(&config.tokens).map_err(StartError::Settings)?;
        check_addresses(&config)?;
        let listener = TcpListener::bind(config.listen).await;
        let listener = listener.map_err(|error| StartError::Listen(config.listen, error))?;
        let address = listener.local_addr();
        let address = address.map_err(|error| StartError::Listen(config.listen, error))?;
        let options = PubSub::register(Options::new().memory_budget(config.memory));
        let dir = config.dir.clone();
        let opened = tokio::task::spawn_blocking(move || Database::create_or_open(dir, options));
        let db = opened
            .await
            .map_err(|error| StartError::Settings(error.to_string()))?
            .map_err(StartError::Store)?;
        let app = Arc::new(App {
            engine: Engine::new(db, &config.dir, config.limits.query_time),
            pages: Pages::default(),
            tokens,
            limits: config.limits.clone(),
            document: document().map_err(StartError::Settings)?,
        });
        let (end, ended) = oneshot::channel();
        let routes = router(app.clone(), &config);
        let connections = Connections {
            routes,
            config,
            app: app.clone(),
        };
        let accepting = tokio::spawn(connections.serve(listener, ended));
        Ok(Server {
            address,
            app,
            end,
            accepting,
        })
    }

    /// Where HTTP is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, lets requests end, and closes the store.
    ///
    /// # Errors
    /// Those of closing the store.
    pub async fn stop(self) -> esker::Result<()> {
        // A listener that has ended already does not hear it.
        let _ = self.end.send(());
        let _ = self.accepting.await;
        let app = self.app;
        let closed = tokio::task::spawn_blocking(move || app.engine.close()).await;
        closed.unwrap_or(Err(esker::Error::Closed))
    }
}

/// Without tokens, only loopback addresses are served.
fn check_addresses(config: &Config) -> Result<(), StartError> {
    let addresses = [Some(config.listen), config.mqtt];
    let is_open = |address: &SocketAddr| !is_loopback(address.ip());
    if !config.is_protected()
        && let Some(open) = addresses.into_iter().flatten().find(is_open)
    {
        return Err(StartError::Settings(format!(
            "{open} can be reached from other machines: give tokens in the settings (`esker token`), or listen on 127.0.0.1"
        )));
    }
    Ok(())
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The connections of a listener.
struct Connections {
    routes: Router,
    config: Config,
    app: Shared,
}

impl Connections {
    async fn serve(self, listener: TcpListener, mut ended: oneshot::Receiver<()>) {
        let slots = Arc::new(Semaphore::new(self.config.limits.connections));
        let graceful = GracefulShutdown::new();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            let accepted = tokio::select! {
                _ = &mut ended => break,
                _ = sweep.tick() => {
                    self.app.pages.sweep();
                    continue;
                }
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
            let Ok(slot) = slots.clone().try_acquire_owned() else {
                tracing::warn!(%peer, "refused: there are too many connections");
                continue;
            };
            self.connection(stream, peer, slot, &graceful);
        }
        drop(listener);
        if timeout(TO_END, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests were still running after {} s", TO_END.as_secs());
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: tokio::sync::OwnedSemaphorePermit,
        graceful: &GracefulShutdown,
    ) {
        // Answers are small: waiting for more of them costs more than it saves.
        let _ = stream.set_nodelay(true);
        let limits = &self.config.limits;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_buf_size(limits.headers.max(8 << 10));
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.idle)
            .max_header_list_size(u32::try_from(limits.headers).unwrap_or(u32::MAX));
        let service = TowerToHyperService::new(self.routes.clone());
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%peer, "connection: {error}");
            }
            drop(slot);
        });
    }
}
