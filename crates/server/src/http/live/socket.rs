//! Messages of a WebSocket.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::stream::{Item, Stream};
use crate::live::Event;

/// The largest message of a client: none has a meaning.
const LARGEST: usize = 4096;

/// What is written at once, and at most waits.
const WRITTEN: usize = 16 << 10;

/// How long the last message may take.
const LAST: Duration = Duration::from_secs(1);

/// Upgrades a request, and sends the events of a stream.
pub(super) fn answer(upgrade: WebSocketUpgrade, stream: Stream) -> Response {
    upgrade
        .max_message_size(LARGEST)
        .max_frame_size(LARGEST)
        .read_buffer_size(LARGEST)
        .write_buffer_size(WRITTEN)
        .on_upgrade(|socket| serve(socket, stream))
}

/// An event as one JSON text: its data, with its id.
fn text(event: &Event) -> String {
    let mut out = json!({ "id": event.id }).to_string();
    if let Ok(data) = str::from_utf8(&event.data)
        && let Some(members) = data.strip_prefix('{')
    {
        out.pop();
        out.push(',');
        out.push_str(members);
    }
    out
}

/// Sends a message; false if the client has gone or the server ends.
async fn send(socket: &mut WebSocket, ended: &mut watch::Receiver<bool>, message: Message) -> bool {
    tokio::select! {
        sent = socket.send(message) => sent.is_ok(),
        // A client that does not read must not hold the server.
        _ = ended.wait_for(|ended| *ended) => false,
    }
}

async fn serve(mut socket: WebSocket, mut stream: Stream) {
    let mut ended = stream.ended();
    let (code, reason) = loop {
        let item = tokio::select! {
            item = stream.next() => item,
            received = socket.recv() => match received {
                // Pings are answered by the library; other messages have no meaning.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_) | Message::Binary(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            }
        };
        match item {
            Item::Events(events) => {
                let named = events.iter().filter(|event| !event.name.is_empty());
                for event in named {
                    let message = Message::Text(text(event).into());
                    if !send(&mut socket, &mut ended, message).await {
                        return;
                    }
                }
            }
            Item::Alive(_) => {
                let ping = Message::Ping(bytes::Bytes::new());
                if !send(&mut socket, &mut ended, ping).await {
                    return;
                }
            }
            Item::Failed(problem) => {
                let error = json!({ "error": problem }).to_string();
                send(&mut socket, &mut ended, Message::Text(error.into())).await;
                break (close_code::ERROR, problem.kind().to_string());
            }
            Item::Ended(true) => break (close_code::AWAY, "the server ends".to_string()),
            Item::Ended(false) => break (close_code::NORMAL, String::new()),
        }
    };
    let reason = reason.into();
    let close = Message::Close(Some(CloseFrame { code, reason }));
    // The client may have gone, or may not read.
    let _ = timeout(LAST, socket.send(close)).await;
}
