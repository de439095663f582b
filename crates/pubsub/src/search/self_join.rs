//! Self-joins (the paper's section 6.1): drops those publications for a subscription that another
//! subscription of the same user received.

use std::collections::HashSet;

use esker::{Result, Seq};
use esker_coding::{Misplaced, Reader};

use crate::broker::{Inner, View};
use crate::forms::element::{Element, NEVER, RawElement, StoredSubscription, Time};
use crate::forms::message::Notification;
use crate::lists::select;
use crate::lists::walk::{Next, Span, normalise, walk};
use crate::matching::PublicationParts;
use crate::search::prepared::PreparedSubscription;
use crate::search::subscribers::holds_subscriptions_to;

/// Which of a user's subscriptions receives a publication that several match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinPrecedence {
    /// Any stored one, as a new subscription decides.
    AsSubscribed,
    /// The one that received it first, as publishers decide: of the subscriptions that are older
    /// than the publication, the one with the least number.
    AsPublished {
        /// The number of the self-join, which is stored.
        id: Seq,
        /// The number of its form.
        form: Seq,
    },
}

/// Collects the other subscriptions of a user, and decides which publications they received.
pub(crate) struct SelfJoin<'a> {
    inner: &'a Inner,
    view: &'a View,
    prepared: &'a PreparedSubscription,
    precedence: JoinPrecedence,
    /// The lists whose subscriptions were read.
    read_lists: Vec<Span>,
    others: Vec<UserSubscription>,
}

/// Another subscription of the user.
struct UserSubscription {
    /// The key of its list.
    list: Vec<u8>,
    /// Its encoded form.
    form: Vec<u8>,
}

/// The same, decoded.
struct DecodedSubscription<'a> {
    list: &'a [u8],
    form: StoredSubscription<'a>,
}

impl<'a> DecodedSubscription<'a> {
    fn decode(other: &'a UserSubscription) -> Result<DecodedSubscription<'a>> {
        let form = StoredSubscription::decode(&mut Reader::new(&other.form));
        Ok(DecodedSubscription {
            list: &other.list,
            form: form.ok_or_else(|| Misplaced::here())?,
        })
    }
}

impl<'a> SelfJoin<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        view: &'a View,
        prepared: &'a PreparedSubscription,
        precedence: JoinPrecedence,
    ) -> SelfJoin<'a> {
        SelfJoin {
            inner,
            view,
            prepared,
            precedence,
            read_lists: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Collects a subscription if it is another one of the user and its interval reaches that of
    /// the one that joins.
    pub(crate) fn visit(&mut self, list: &[u8], raw: &RawElement<'_>) -> Result<Next> {
        if raw.is_subscription_of(&self.prepared.user)
            && let Element::Subscription(subscription) = raw.decode()?
            && !self.is_own(&subscription)
            && subscription.to >= self.prepared.from
            // Which changes it received may depend on publications that have expired since.
            && subscription.change.is_none()
        {
            let mut form = Vec::new();
            subscription.encode(&mut form);
            let list = list.to_vec();
            self.others.push(UserSubscription { list, form });
        }
        Ok(Next::Continue)
    }

    /// True for the form of the self-join itself.
    fn is_own(&self, subscription: &StoredSubscription<'_>) -> bool {
        match self.precedence {
            JoinPrecedence::AsSubscribed => false,
            JoinPrecedence::AsPublished { form, .. } => subscription.form == form,
        }
    }

    /// Collects the subscriptions in these lists.
    pub(crate) fn read(&mut self, lists: Vec<Span>) -> Result<()> {
        let inner = self.inner;
        let snapshot = &self.view.snapshot;
        let cost = snapshot.cost();
        let times = inner
            .time_filter()
            .with_subscriptions(self.prepared.from, Time::MAX);
        let tree = inner.trees.subscriptions;
        walk(snapshot, tree, &lists, &times, &cost, &mut |list, raw| {
            if raw.is_publication() {
                Ok(Next::EndList)
            } else {
                self.visit(list, raw)
            }
        })?;
        inner.add_reads(&cost);
        self.note_read(lists);
        Ok(())
    }

    /// Records that the subscriptions in these lists were visited.
    pub(crate) fn note_read(&mut self, lists: Vec<Span>) {
        self.read_lists.extend(lists);
    }

    /// The publications among these that no other subscription of the user received.
    pub(crate) fn without_received(
        mut self,
        publications: Vec<Notification>,
    ) -> Result<Vec<Notification>> {
        self.read_elsewhere(&publications)?;
        let decode = |other| DecodedSubscription::decode(other);
        let others: Vec<DecodedSubscription<'_>> =
            self.others.iter().map(decode).collect::<Result<_>>()?;
        let mut kept = Vec::with_capacity(publications.len());
        for publication in publications {
            if !self.has_received(&others, &publication)? {
                kept.push(publication);
            }
        }
        Ok(kept)
    }

    /// Reads the lists with subscriptions to these publications that were not read yet, such as
    /// those of ancestors and wildcards.
    fn read_elsewhere(&mut self, publications: &[Notification]) -> Result<()> {
        let inner = self.inner;
        let mut elsewhere = HashSet::new();
        for publication in publications {
            let cells = inner.cells(&*inner.match_cache.extent(&publication.place)?);
            let known = &self.view.known;
            let lists =
                select::for_publication(known, &publication.topic, &cells, &publication.body);
            let is_unread = |list: &Span| !self.read_lists.iter().any(|read| read.holds(list));
            elsewhere.extend(lists.into_iter().filter(is_unread));
        }
        if elsewhere.is_empty() {
            return Ok(());
        }
        self.read(normalise(elsewhere.into_iter().collect()))
    }

    /// True if one of the other subscriptions received a publication.
    fn has_received(
        &self,
        others: &[DecodedSubscription<'_>],
        publication: &Notification,
    ) -> Result<bool> {
        let inner = self.inner;
        let extent = inner.match_cache.extent(&publication.place)?;
        let cells = inner.cells(&extent);
        let parts = PublicationParts {
            time: publication.time,
            place: &extent,
            body: &publication.body,
        };
        let expires = publication.expires.unwrap_or(NEVER);
        for DecodedSubscription { list, form } in others {
            let may_have_received = self.takes_precedence(form, publication.seq)
                && form.has_received(publication.seq, publication.time, expires)
                && holds_subscriptions_to(list, &publication.topic, &cells)?;
            if may_have_received && inner.match_cache.admits(&form.parts(), &parts)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if another subscription keeps this one from the publication with this number, provided
    /// that it received the publication.
    fn takes_precedence(&self, other: &StoredSubscription<'_>, publication: Seq) -> bool {
        match self.precedence {
            JoinPrecedence::AsSubscribed => true,
            // A form newer than the publication received it by a renewal, after others.
            JoinPrecedence::AsPublished { id, form } if publication > form => {
                other.id < id && other.form < publication
            }
            JoinPrecedence::AsPublished { form, .. } => other.form < form,
        }
    }
}
