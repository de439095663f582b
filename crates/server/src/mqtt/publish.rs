//! PUBLISH of clients, and wills.

use std::sync::atomic::Ordering;

use esker::{Durability, Seq};
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

/// Publications that were written.
pub(super) struct Written {
    /// The error of each.
    pub(super) errors: Vec<Option<Problem>>,
    /// The number of the last one.
    pub(super) last: Seq,
}

impl Mqtt {
    /// Publishes without a sync. Returns the number of the publication. Calls the store.
    pub(super) fn publish(&self, outgoing: &Outgoing) -> Result<Seq, Problem> {
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
        Ok(published.seq)
    }

    /// Publishes several, durably if one of them has QoS 1. Calls the store.
    ///
    /// # Errors
    /// If none of them can be said to be stored; otherwise the error of each.
    pub(super) fn publish_all(&self, all: &[Outgoing]) -> Result<Written, Problem> {
        let mut written = Written {
            errors: Vec::with_capacity(all.len()),
            last: 0,
        };
        for outgoing in all {
            let published = self.publish(outgoing);
            if let Ok(seq) = published {
                written.last = seq;
                self.published.fetch_max(seq, Ordering::Relaxed);
            }
            written.errors.push(published.err());
        }
        if all.iter().any(|outgoing| outgoing.meta.qos > 0) {
            self.kept.sync()?;
        }
        Ok(written)
    }
}
