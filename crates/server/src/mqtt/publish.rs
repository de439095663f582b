//! PUBLISH of clients, and wills.

use std::slice;
use std::sync::atomic::Ordering;

use esker::{Durability, Seq};
use pubsub::{Publication, Published, Topic};

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
    /// Publishes one, without a sync. Returns its number. Calls the store.
    pub(super) fn publish(&self, outgoing: &Outgoing) -> Result<Seq, Problem> {
        let _retaining = self.retaining.begin(slice::from_ref(outgoing));
        self.store(outgoing)
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
        let _retaining = self.retaining.begin(all);
        // One by one, so that subscribers receive the first while the next are written: all at once
        // would be more than their queues take.
        for outgoing in all {
            let stored = self.store(outgoing);
            if let Ok(seq) = stored {
                written.last = seq;
                self.published.fetch_max(seq, Ordering::Relaxed);
            }
            written.errors.push(stored.err());
        }
        if all.iter().any(|outgoing| outgoing.meta.qos > 0) {
            self.kept.sync()?;
        }
        Ok(written)
    }

    /// Publishes one, without a sync; what it retains is announced.
    fn store(&self, outgoing: &Outgoing) -> Result<Seq, Problem> {
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
        self.note(outgoing, &published)
    }

    /// Retains a publication that is stored, without a sync, if it asks for that. Returns its
    /// number.
    fn note(&self, outgoing: &Outgoing, published: &Published) -> Result<Seq, Problem> {
        if let Some(error) = &published.unread {
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
}
