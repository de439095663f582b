//! PUBLISH of clients, and wills.

use esker::Durability;
use pubsub::{Publication, Topic};

use super::message::{Clock, Message};
use super::outgoing::Outgoing;
use super::reason::{Reason, Refusal};
use super::shared::Mqtt;
use crate::access::{Caller, Role};
use crate::problem::Problem;

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
