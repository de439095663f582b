//! A session whose connection is accepted.

use std::sync::Arc;
use std::time::Duration;

use super::session::Session;
use super::sessions::Claim;
use super::shared::Mqtt;
use super::source::Wakeup;
use crate::access::Caller;

/// A session whose connection is accepted.
pub(super) struct Begun {
    pub(super) session: Session,
    pub(super) caller: Caller,
    pub(super) claim: Claim,
    pub(super) wakeup: Arc<Wakeup>,
    /// What its subscriptions do not receive with No Local.
    pub(super) publisher: Option<u64>,
    pub(super) keep_alive: Option<Duration>,
    pub(super) receive_maximum: u16,
    pub(super) is_present: bool,
    pub(super) assigned: Option<String>,
    pub(super) expiry: Option<u32>,
    pub(super) maximum_packet_size: u32,
}

/// The subscriptions of a session receive nothing more for now.
pub(super) fn take_out(mqtt: &Mqtt, session: &Session) {
    for of in session.subscriptions.values().filter(|of| !of.is_shared()) {
        mqtt.router.remove(&of.filter.text, &of.source);
    }
}
