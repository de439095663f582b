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

impl Written {
    fn add(&mut self, stored: Result<Seq, Problem>) {
        match stored {
            Ok(seq) => {
                self.last = seq;
                self.errors.push(None);
            }
            Err(problem) => self.errors.push(Some(problem)),
        }
    }
}

impl Mqtt {
    /// Publishes one: durably if it has QoS 1, but for a message that it retains. Returns the
    /// number of the publication. Calls the store.
    pub(super) fn publish(&self, outgoing: &Outgoing) -> Result<Seq, Problem> {
        let _retaining = self.retaining.begin(slice::from_ref(outgoing));
        self.store(outgoing)
    }

    /// Publishes one; what it retains is announced.
    fn store(&self, outgoing: &Outgoing) -> Result<Seq, Problem> {
        let published = self.broker.publish(&self.publication(outgoing)?)?;
        self.note(outgoing, &published)
    }

    /// Publishes several, in one write if that succeeds; durably if one of them has QoS 1. Calls
    /// the store.
    ///
    /// # Errors
    /// If none of them can be said to be stored; otherwise the error of each.
    pub(super) fn publish_all(&self, all: &[Outgoing]) -> Result<Written, Problem> {
        let mut written = Written {
            errors: Vec::with_capacity(all.len()),
            last: 0,
        };
        let _retaining = self.retaining.begin(all);
        match self.publish_together(all) {
            Ok(published) => {
                for (outgoing, published) in all.iter().zip(&published) {
                    written.add(self.note(outgoing, published));
                }
            }
            Err(problem) if all.len() < 2 => written.add(Err(problem)),
            // None is stored, perhaps because of one of them.
            Err(_) => {
                for outgoing in all {
                    written.add(self.store(outgoing));
                }
            }
        }
        self.published.fetch_max(written.last, Ordering::Relaxed);
        let is_durable = |outgoing: &Outgoing| outgoing.meta.qos > 0 && outgoing.meta.retain;
        if all.iter().any(is_durable) {
            self.kept.sync()?;
        }
        Ok(written)
    }

    /// Publishes all in one write, or none.
    fn publish_together(&self, all: &[Outgoing]) -> Result<Vec<Published>, Problem> {
        let publications = all.iter().map(|outgoing| self.publication(outgoing));
        let publications: Vec<Publication> = publications.collect::<Result<_, _>>()?;
        Ok(self.broker.publish_all(&publications)?)
    }

    /// What the broker is given.
    fn publication(&self, outgoing: &Outgoing) -> Result<Publication, Problem> {
        let topic: Topic = outgoing.topic.parse()?;
        let lifetime = outgoing.lifetime.unwrap_or(self.limits.keep);
        let durability = if outgoing.meta.qos > 0 {
            Durability::Sync
        } else {
            Durability::Os
        };
        let publication = Publication::new(topic, outgoing.payload.clone())
            .lives(lifetime)
            .tag(outgoing.meta.encode())
            .durability(durability);
        Ok(match outgoing.place {
            Some((longitude, latitude)) => publication.at_point(longitude, latitude),
            None => publication,
        })
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
