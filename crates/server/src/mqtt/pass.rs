//! Publications of QoS 0 that go to their subscribers without being stored, if the settings say so.
//!
//! **Invariants.** The publications of a client reach each subscription in their order, and none is
//! lost while its subscriber is connected: one is passed only if all that the client has published
//! before was given to the sources, and if all sources have room for it. Otherwise it is stored.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::yield_now;

use super::connection::Connection;
use super::message::Message;
use super::outgoing::Outgoing;
use super::source::Room;

/// How often subscribers may take what is queued before a publication is stored.
const TURNS: usize = 32;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Gives a publication of QoS 0 to its subscribers. Returns false if it has to be stored.
    pub(super) async fn pass(&mut self, outgoing: &Outgoing) -> bool {
        let is_stored = self.mqtt.limits.store_qos0
            || outgoing.meta.retain
            || outgoing.lifetime.is_some()
            || self.mqtt.app.live.has_listeners()
            || self.last_stored > self.mqtt.router.offered();
        if is_stored {
            return false;
        }
        for _ in 0..TURNS {
            let message = || {
                Arc::new(Message {
                    seq: 0,
                    topic: outgoing.topic.clone(),
                    payload: outgoing.payload.clone(),
                    time: self.mqtt.broker.now(),
                    expires: None,
                    meta: outgoing.meta.clone(),
                    may_be_duplicate: false,
                    is_retained: false,
                })
            };
            match self.mqtt.router.pass(&outgoing.topic, message) {
                Room::Now => {
                    self.mqtt.measured().received(0, 1);
                    return true;
                }
                Room::Later => yield_now().await,
                Room::Store => return false,
            }
        }
        false
    }
}
