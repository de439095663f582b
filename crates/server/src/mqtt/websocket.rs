//! MQTT over WebSocket: the messages of a socket as a stream of bytes. Packets may span messages,
//! and a message may have several of them.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{RequestExt, Router};
use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::connect;
use super::shared::Mqtt;
use crate::http::is_own_origin;
use crate::metrics::Carried;
use crate::problem::Problem;

/// The name of MQTT among the protocols of a WebSocket.
const PROTOCOL: &str = "mqtt";

/// What is read and written at once.
const BUFFER: usize = 4 << 10;

/// The largest message that is sent.
const LARGEST: usize = 64 << 10;

/// What the route needs.
#[derive(Clone)]
struct Sockets {
    mqtt: Arc<Mqtt>,
    ending: watch::Receiver<bool>,
}

/// The route `/mqtt`. It asks for no bearer token: CONNECT says who the client is.
pub(super) fn routes(mqtt: Arc<Mqtt>, ending: watch::Receiver<bool>) -> Router {
    let sockets = Sockets { mqtt, ending };
    Router::new()
        .route("/mqtt", any(upgrade))
        .with_state(sockets)
}

async fn upgrade(
    State(sockets): State<Sockets>,
    Extension(peer): Extension<SocketAddr>,
    request: Request,
) -> Result<Response, Problem> {
    let Sockets { mqtt, ending } = sockets;
    // A page has no password unless a user gives it one; without users it needs none.
    if !mqtt.users.is_needed() && !is_own_origin(&request, &mqtt.app.origins) {
        let detail = "without users, pages of other origins may not use this server";
        return Err(Problem::forbidden(detail));
    }
    if !offers_mqtt(request.headers()) {
        return Err(Problem::bad_request(
            "/mqtt is a WebSocket with the protocol `mqtt`",
        ));
    }
    let upgrade: WebSocketUpgrade = match request.extract().await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return Ok(IntoResponse::into_response(rejection)),
    };
    if *ending.borrow() {
        return Err(Problem::busy("the server ends", 1));
    }
    let Ok(slot) = mqtt.connections.clone().try_acquire_owned() else {
        mqtt.measured().beyond.inc();
        return Err(Problem::busy("there are too many connections", 1));
    };
    let most = usize::try_from(mqtt.limits.packet_size()).unwrap_or(usize::MAX);
    let most = most.max(LARGEST);
    Ok(upgrade
        .protocols([PROTOCOL])
        .max_message_size(most)
        .max_frame_size(most)
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .on_upgrade(move |socket| async move {
            connect::serve(
                mqtt,
                Messages::new(socket),
                Carried::Websocket,
                peer,
                ending,
            )
            .await;
            drop(slot);
        })
        .into_response())
}

fn offers_mqtt(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let lists = offered.iter().filter_map(|list| list.to_str().ok());
    lists
        .flat_map(|list| list.split(','))
        .any(|one| one.trim() == PROTOCOL)
}

/// The bytes of a socket's messages.
struct Messages {
    socket: WebSocket,
    /// What is left of the message that was read last.
    rest: Bytes,
    /// True once a message was refused.
    is_refused: bool,
}

impl Messages {
    fn new(socket: WebSocket) -> Messages {
        Messages {
            socket,
            rest: Bytes::new(),
            is_refused: false,
        }
    }

    fn socket(&mut self) -> Pin<&mut WebSocket> {
        Pin::new(&mut self.socket)
    }
}

impl AsyncRead for Messages {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // A message may be empty, and to read nothing would be the end.
        while self.rest.is_empty() {
            match ready!(self.socket().poll_next(cx)) {
                Some(Ok(Message::Binary(data))) => self.rest = data,
                // The library answers pings.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_))) => {
                    self.is_refused = true;
                    let why = "the client sent a text message";
                    return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, why)));
                }
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(Error::other(error))),
            }
        }
        let len = self.rest.len().min(buffer.remaining());
        buffer.put_slice(self.rest.get(..len).unwrap_or_default());
        self.rest.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Messages {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let data = data.get(..LARGEST).unwrap_or(data);
        ready!(self.socket().poll_ready(cx)).map_err(Error::other)?;
        let message = Message::Binary(Bytes::copy_from_slice(data));
        self.socket().start_send(message).map_err(Error::other)?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.socket().poll_flush(cx).map_err(Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if std::mem::take(&mut self.is_refused) {
            let frame = CloseFrame {
                code: close_code::UNSUPPORTED,
                reason: "messages are binary".into(),
            };
            // A client that has gone does without it.
            let _ = self.socket().start_send(Message::Close(Some(frame)));
        }
        self.socket().poll_close(cx).map_err(Error::other)
    }
}
