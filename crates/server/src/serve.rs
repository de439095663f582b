//! Starts a server and ends it: listeners, connections with their limits, signals.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use esker::{Database, Options};
use esker_store::ServedAt;
use pubsub::PubSub;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::access::Tokens;
use crate::config::Config;
use crate::connections::Connections;
use crate::engine::Engine;
use crate::http::{App, Bodies, Shared, document, router};
use crate::jobs::Jobs;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::mqtt;
use crate::pages::Pages;
use crate::rates::Rates;
use crate::tls::Certificate;

/// The memory budget of the store, if the settings have none.
const MEMORY: usize = 128 << 20;

/// Why a server cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The settings are not valid.
    Settings(String),
    /// The store cannot be opened.
    Store(esker::Error),
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting that has it.
        setting: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Settings(why) => f.write_str(why),
            StartError::Store(error) => write!(f, "{error}"),
            StartError::Listen {
                address,
                setting,
                error,
            } => match error.kind() {
                io::ErrorKind::AddrInUse => write!(
                    f,
                    "{address} is in use by another program: choose another address with `{setting}`"
                ),
                _ => write!(f, "cannot listen on {address} (`{setting}`): {error}"),
            },
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
    /// Says in the store's folder where it is served.
    said: Option<ServedAt>,
    mqtt: Option<mqtt::Served>,
}

impl Server {
    /// Opens the store, creates it if it does not exist, and serves it.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn start(config: Config) -> Result<Server, StartError> {
        let tokens = Tokens::new(&config.tokens).map_err(StartError::Settings)?;
        check_addresses(&config)?;
        // HTTP/2, or else HTTP/1.1.
        let certificate = config.tls.as_ref();
        let certificate = certificate.map(|tls| Certificate::read(tls, &["h2", "http/1.1"]));
        let certificate = certificate.transpose().map_err(StartError::Settings)?;
        let (listener, address) = bind(config.listen, "listen").await?;
        let doors = doors(&config).await?;
        let options = Options::new()
            .memory_budget(config.memory.unwrap_or(MEMORY))
            .compress(config.compress)
            .mapped_reads(config.mapped_reads);
        let options = PubSub::register(options);
        let dir = config.dir.clone();
        let opened = tokio::task::spawn_blocking(move || Database::create_or_open(dir, options));
        let db = opened
            .await
            .map_err(|error| StartError::Settings(error.to_string()))?
            .map_err(StartError::Store)?;
        let url = url(address, config.tls.is_some());
        // Without the file a locked store does not say where it is served: no more is lost.
        let said = ServedAt::say(&config.dir, &url)
            .inspect_err(|error| tracing::warn!("{}: {error}", config.dir.display()))
            .ok();
        let app = Arc::new(App {
            engine: Engine::new(db, &config.dir, config.limits.query_time),
            pages: Pages::default(),
            jobs: Arc::new(Jobs::default()),
            bodies: Bodies::default(),
            backups: config.backups.clone(),
            live: Live::new(config.limits.subscriptions),
            tokens,
            limits: config.limits.clone(),
            rates: Rates::new(config.limits.token_requests_per_second),
            metrics: Metrics::default(),
            logs_requests: config.log.requests,
            origins: config.cors.origins.clone(),
            document: document(config.needs_token()).map_err(StartError::Settings)?,
        });
        let mqtt = if config.has_mqtt() {
            let served = mqtt::start(&app, &config, doors).await;
            Some(served.map_err(StartError::Settings)?)
        } else {
            None
        };
        let (end, ended) = oneshot::channel();
        let sockets = match &mqtt {
            Some(served) if config.mqtt_websocket => served.routes(),
            _ => Router::new(),
        };
        let routes = router(app.clone(), &config, sockets);
        let connections = Connections::new(routes, app.clone(), certificate);
        let accepting = tokio::spawn(connections.serve(listener, ended));
        Ok(Server {
            address,
            app,
            end,
            accepting,
            said,
            mqtt,
        })
    }

    /// Where HTTP is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where MQTT is served without TLS, if it is.
    pub fn mqtt_address(&self) -> Option<SocketAddr> {
        self.mqtt.as_ref()?.address(false)
    }

    /// Where MQTT is served over TLS, if it is.
    pub fn mqtt_tls_address(&self) -> Option<SocketAddr> {
        self.mqtt.as_ref()?.address(true)
    }

    /// Accepts nothing more, lets requests end, and closes the store.
    ///
    /// # Errors
    /// Those of closing the store.
    pub async fn stop(self) -> esker::Result<()> {
        // A listener that has ended already does not hear it.
        let _ = self.end.send(());
        self.app.live.end();
        self.app.jobs.cancel_all();
        let ended = match self.mqtt {
            Some(mqtt) => Some(mqtt.stop().await),
            None => None,
        };
        let _ = self.accepting.await;
        // Requests that were running may have begun further jobs.
        self.app.jobs.cancel_all();
        drop(self.said);
        let app = self.app;
        app.live.all_ended().await;
        let closed = tokio::task::spawn_blocking(move || {
            let closed = app.engine.close();
            if let Some(ended) = ended {
                ended.join();
            }
            closed
        });
        let closed = closed.await;
        closed.unwrap_or(Err(esker::Error::Closed))
    }
}

/// Listens on the address of a setting; the address that was bound has a port.
async fn bind(
    address: SocketAddr,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen {
        address,
        setting,
        error,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// The listeners of MQTT.
async fn doors(config: &Config) -> Result<Vec<mqtt::Door>, StartError> {
    let mut doors = Vec::new();
    if let Some(address) = config.mqtt {
        let (listener, _) = bind(address, "mqtt").await?;
        doors.push(mqtt::Door::new(listener, None));
    }
    if let Some(address) = config.mqtt_tls {
        let tls = config.tls.as_ref().ok_or_else(|| {
            let why = "mqtt_tls needs a certificate and its key: [tls] in the settings";
            StartError::Settings(why.to_string())
        })?;
        let certificate = Certificate::read(tls, &["mqtt"]).map_err(StartError::Settings)?;
        let (listener, _) = bind(address, "mqtt_tls").await?;
        doors.push(mqtt::Door::new(listener, Some(certificate)));
    }
    Ok(doors)
}

/// An address as clients on this machine use it.
fn url(address: SocketAddr, is_encrypted: bool) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let scheme = if is_encrypted { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// HTTP without tokens, and MQTT without tokens and users, are served on loopback addresses alone.
fn check_addresses(config: &Config) -> Result<(), StartError> {
    let http = Some(config.listen).filter(|_| !config.needs_token());
    let of_mqtt = [config.mqtt, config.mqtt_tls];
    let [mqtt, mqtt_tls] = of_mqtt.map(|address| address.filter(|_| !config.needs_user()));
    let is_open = |address: &SocketAddr| !is_loopback(address.ip());
    if let Some(open) = [http, mqtt, mqtt_tls].into_iter().flatten().find(is_open) {
        return Err(StartError::Settings(format!(
            "{open} can be reached from other machines: give tokens (for MQTT also: users) in the settings (`esker token`), or listen on 127.0.0.1"
        )));
    }
    Ok(())
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
