//! PUBLISH of clients, and wills.

use std::time::Duration;

use esker::Durability;
use pubsub::{Publication, Topic};

use super::Mqtt;
use super::message::{Clock, Message, Meta};
use super::packet::Publish;
use super::reason::{Reason, Refusal};
use crate::access::{Caller, Role};
use crate::problem::Problem;

/// A publication for the broker.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) meta: Meta,
    /// As long as the publisher says.
    pub(super) lifetime: Option<Duration>,
    /// Longitude and latitude.
    pub(super) place: Option<(f64, f64)>,
}

impl Outgoing {
    /// The publication of a packet whose topic was checked.
    ///
    /// # Errors
    /// A user property `position` that is none.
    pub(super) fn of(packet: Publish, publisher: Option<u64>) -> Result<Outgoing, Refusal> {
        let position = packet.user.iter().find(|(name, _)| name == "position");
        let place = position.map(|(_, text)| point(text)).transpose()?;
        Ok(Outgoing {
            topic: packet.topic,
            payload: packet.payload,
            meta: Meta {
                qos: packet.qos,
                retain: packet.retain,
                has_expiry: packet.expiry.is_some(),
                publisher,
                properties: packet.properties,
            },
            lifetime: (packet.expiry).map(|seconds| Duration::from_secs(seconds.into())),
            place,
        })
    }
}

/// `LON,LAT` in degrees.
fn point(text: &str) -> Result<(f64, f64), Refusal> {
    let parts = text.split_once(',').and_then(|(longitude, latitude)| {
        let longitude: f64 = longitude.trim().parse().ok()?;
        let latitude: f64 = latitude.trim().parse().ok()?;
        let is_right = (-180.0..=180.0).contains(&longitude) && (-90.0..=90.0).contains(&latitude);
        is_right.then_some((longitude, latitude))
    });
    parts.ok_or_else(|| {
        let why = format!("position `{text}`: a position is LON,LAT in degrees");
        Refusal::new(Reason::Implementation, why)
    })
}

/// Whether a caller may publish to a topic.
///
/// # Errors
/// Why not.
pub(super) fn may_publish(caller: &Caller, topic: &str) -> Result<(), Refusal> {
    let refused = |problem: Problem| Refusal::new(Reason::NotAuthorized, problem.detail());
    caller.may_topic(Role::Write, topic).map_err(refused)
}

impl Mqtt {
    /// Publishes without a sync. Calls the store.
    pub(super) fn publish(&self, outgoing: &Outgoing) -> Result<(), Problem> {
        let topic: Topic = outgoing.topic.parse()?;
        let lifetime = outgoing.lifetime.unwrap_or(self.limits.keep);
        let mut publication = Publication::new(topic, outgoing.payload.clone())
            .lives(lifetime)
            .tag(outgoing.meta.encode())
            .durability(Durability::Os);
        if let Some((longitude, latitude)) = outgoing.place {
            publication = publication.at_point(longitude, latitude);
        }
        let published = self.broker.publish(&publication)?;
        if let Some(error) = published.unread {
            // It is stored: followers and inboxes receive it.
            tracing::warn!("the subscriptions of a publication cannot be read: {error}");
        }
        if outgoing.meta.retain {
            let clock = Clock::of(&self.broker);
            self.kept.retain(&Message {
                seq: published.seq,
                topic: outgoing.topic.clone(),
                payload: outgoing.payload.clone(),
                time: clock.now,
                expires: outgoing.lifetime.map(|long| clock.after(long)),
                meta: outgoing.meta.clone(),
                may_be_duplicate: false,
                is_retained: true,
            })?;
        }
        Ok(())
    }

    /// Publishes several, durably if one of them has QoS 1. Calls the store.
    ///
    /// # Errors
    /// If none of them can be said to be stored; otherwise the error of each.
    pub(super) fn publish_all(&self, all: &[Outgoing]) -> Result<Vec<Option<Problem>>, Problem> {
        let each = all.iter().map(|outgoing| self.publish(outgoing).err());
        let each: Vec<Option<Problem>> = each.collect();
        if all.iter().any(|outgoing| outgoing.meta.qos > 0) {
            self.kept.sync()?;
        }
        Ok(each)
    }
}
