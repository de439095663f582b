//! The connections of HTTP: accepted up to a number, encrypted if there is a certificate, with
//! limits of time and size before a request is read.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use axum::routing::future::RouteFuture;
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use crate::config::Limits;
use crate::http::Shared;
use crate::live::Connection;
use crate::problem::Problem;
use crate::rates::{Rates, network};
use crate::tls::{Certificate, is_usual};

/// How long requests may take to end once the server ends.
const TO_END: Duration = Duration::from_secs(30);

/// How often what has ended is removed, and the certificate looked at.
const SWEEP: Duration = Duration::from_secs(5);

/// A client that takes nothing of what was sent for this long is cut off.
const UNREAD: Duration = Duration::from_secs(300);

/// The requests of a connection of HTTP/2 at the same time.
const STREAMS: u32 = 32;

/// What a request of HTTP/2 buffers of its answer, in bytes.
const SEND_BUFFER: usize = 64 << 10;

/// How long is waited when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections of a listener.
pub(crate) struct Connections {
    routes: Router,
    app: Shared,
    certificate: Option<Arc<Certificate>>,
    rates: Arc<Rates<IpAddr>>,
}

/// What each connection has.
struct Accepted {
    peer: SocketAddr,
    service: Routes,
    limits: Limits,
    watcher: Watcher,
    app: Shared,
    _slot: OwnedSemaphorePermit,
}

impl Connections {
    pub(crate) fn new(
        routes: Router,
        app: Shared,
        certificate: Option<Certificate>,
    ) -> Connections {
        Connections {
            routes,
            rates: Arc::new(Rates::new(app.limits.requests_per_second)),
            app,
            certificate: certificate.map(Arc::new),
        }
    }

    /// Accepts connections until `ended` says so, and then lets their requests end.
    pub(crate) async fn serve(self, listener: TcpListener, mut ended: oneshot::Receiver<()>) {
        let slots = Arc::new(Semaphore::new(self.app.limits.connections));
        let graceful = GracefulShutdown::new();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            let accepted = tokio::select! {
                _ = &mut ended => break,
                _ = sweep.tick() => {
                    self.sweep();
                    continue;
                }
                accepted = listener.accept() => accepted,
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
            let Ok(slot) = slots.clone().try_acquire_owned() else {
                self.app.metrics.refused.inc();
                continue;
            };
            let service = Routes {
                routes: self.routes.clone(),
                rates: self.rates.clone(),
                peer,
                asked: Arc::default(),
                streams: Connection::default(),
            };
            let accepted = Accepted {
                peer,
                service,
                limits: self.app.limits.clone(),
                watcher: graceful.watcher(),
                app: self.app.clone(),
                _slot: slot,
            };
            tokio::spawn(accepted.begin(stream, self.certificate.clone()));
        }
        drop(listener);
        if timeout(TO_END, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests were still running after {} s", TO_END.as_secs());
        }
    }

    fn sweep(&self) {
        self.app.pages.sweep();
        self.rates.sweep();
        self.app.rates.sweep();
        if let Some(certificate) = self.certificate.clone() {
            tokio::task::spawn_blocking(move || certificate.refresh());
        }
    }
}

impl Accepted {
    async fn begin(self, stream: TcpStream, certificate: Option<Arc<Certificate>>) {
        // Answers are small: to wait for more of them costs more than it saves.
        let _ = stream.set_nodelay(true);
        let unread = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, unread);
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let Some(certificate) = certificate else {
            return self.serve(stream).await;
        };
        let handshake = certificate.acceptor().accept(stream);
        match timeout(self.limits.idle, handshake).await {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) if is_usual(&error) => {
                tracing::debug!(peer = %self.peer, "no TLS: {error}");
            }
            Ok(Err(error)) => tracing::info!(peer = %self.peer, "no TLS: {error}"),
            Err(_) => tracing::debug!(peer = %self.peer, "the handshake took too long"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let limits = &self.limits;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            // hyper needs at least this much.
            .max_buf_size(limits.headers.max(8 << 10));
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.idle)
            // Each may have a body or an answer in memory.
            .max_concurrent_streams(STREAMS)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(limits.headers).unwrap_or(u32::MAX));
        let asked = self.service.asked.clone();
        let streams = self.service.streams.clone();
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), self.service);
        self.app.metrics.connections.inc();
        let mut connection = pin!(self.watcher.watch(connection.into_owned()));
        let requests = async {
            // Before the first request nothing else limits how long a client may say nothing.
            let ended = tokio::select! {
                ended = &mut connection => Some(ended),
                () = sleep(limits.idle) => None,
            };
            match ended {
                Some(ended) => ended,
                None if asked.load(Ordering::Relaxed) => connection.await,
                None => Ok(()),
            }
        };
        let ended = tokio::select! {
            ended = requests => ended,
            () = self.app.live.is_stuck(&streams) => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %self.peer, "connection: {error}");
        }
        self.app.metrics.connections.dec();
    }
}

/// The routes, for the requests of one connection.
#[derive(Clone)]
struct Routes {
    routes: Router,
    rates: Arc<Rates<IpAddr>>,
    peer: SocketAddr,
    /// Set at the first request.
    asked: Arc<AtomicBool>,
    streams: Connection,
}

/// The answer of the routes, or of the limit of requests.
type Answering = Either<RouteFuture<Infallible>, Ready<Result<Response<Body>, Infallible>>>;

impl hyper::service::Service<Request<Incoming>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, mut request: Request<Incoming>) -> Answering {
        request.extensions_mut().insert(self.streams.clone());
        request.extensions_mut().insert(self.peer);
        self.asked.store(true, Ordering::Relaxed);
        if let Err(seconds) = self.rates.check(&network(self.peer.ip())) {
            let problem = Problem::too_many("you make too many requests", seconds);
            return Either::Right(ready(Ok(problem.into_response())));
        }
        let mut routes = self.routes.clone();
        // The router is always ready.
        Either::Left(routes.call(request))
    }
}
