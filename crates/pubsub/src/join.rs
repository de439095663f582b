//! Self-joins: of the publications for a subscription, those that another subscription of the same
//! user received are dropped.

use std::collections::HashSet;

use esker::{Result, Seq};
use esker_coding::{Misplaced, Reader};

use crate::broker::{Inner, View};
use crate::element::{Element, NEVER, Raw, StoredSubscription, Time, subscription};
use crate::matching::Subject;
use crate::message::Notification;
use crate::spans;
use crate::subscribe::Ready;
use crate::subscribers::is_for;
use crate::walk::{Next, Span, tidy, walk};

/// Collects the other subscriptions of a user, and decides what they received.
pub(crate) struct SelfJoin<'a> {
    inner: &'a Inner,
    view: &'a View,
    ready: &'a Ready,
    /// The number of the form of the subscription that joins.
    form: Seq,
    /// If true, drops only publications that the other subscription received first.
    as_published: bool,
    /// The lists whose subscriptions were read.
    read: Vec<Span>,
    others: Vec<UserSubscription>,
}

/// Another subscription of the user: its list, and its stored form.
struct UserSubscription {
    list: Vec<u8>,
    form: Vec<u8>,
}

impl<'a> SelfJoin<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        view: &'a View,
        ready: &'a Ready,
        form: Seq,
        as_published: bool,
    ) -> SelfJoin<'a> {
        SelfJoin {
            inner,
            view,
            ready,
            form,
            as_published,
            read: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Collects a subscription if it is another one of the user and its interval reaches that of
    /// the one that joins.
    pub(crate) fn visit(&mut self, list: &[u8], raw: &Raw<'_>) -> Result<Next> {
        if raw.is_of(&self.ready.user)
            && let Element::Subscription(subscription) = raw.decode()?
            && subscription.form != self.form
            && subscription.to >= self.ready.from
            // Which changes it received may depend on publications that have expired since.
            && subscription.change.is_none()
        {
            let mut form = Vec::new();
            subscription.encode(&mut form);
            let list = list.to_vec();
            self.others.push(UserSubscription { list, form });
        }
        Ok(Next::On)
    }

    /// Collects the subscriptions in these lists.
    pub(crate) fn read(&mut self, lists: Vec<Span>) -> Result<()> {
        let inner = self.inner;
        let snapshot = &self.view.snapshot;
        let cost = snapshot.cost();
        let wanted = inner.wanted().subscriptions(self.ready.from, Time::MAX);
        let tree = inner.trees.subscriptions;
        walk(snapshot, tree, &lists, &wanted, &cost, &mut |list, raw| {
            if raw.is_publication() {
                Ok(Next::EndList)
            } else {
                self.visit(list, raw)
            }
        })?;
        inner.count(&cost);
        self.note_read(lists);
        Ok(())
    }

    /// Records that the subscriptions in these lists were visited.
    pub(crate) fn note_read(&mut self, lists: Vec<Span>) {
        self.read.extend(lists);
    }

    /// Drops the publications that another subscription of the user received.
    pub(crate) fn drop_received(mut self, found: &mut Vec<Notification>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        self.read_elsewhere(found)?;
        let mut others = Vec::with_capacity(self.others.len());
        for other in &self.others {
            let form = subscription(&mut Reader::new(&other.form));
            let form = form.ok_or_else(|| Misplaced::here())?;
            others.push((other.list.as_slice(), form));
        }
        let mut kept = Vec::with_capacity(found.len());
        for publication in found.drain(..) {
            if !self.has_received(&others, &publication)? {
                kept.push(publication);
            }
        }
        *found = kept;
        Ok(())
    }

    /// Reads the lists with subscriptions to these publications that were not read yet, such as
    /// those of ancestors and wildcards.
    fn read_elsewhere(&mut self, found: &[Notification]) -> Result<()> {
        let inner = self.inner;
        let mut elsewhere = HashSet::new();
        for publication in found {
            let cells = inner.cells(&*inner.compiled.extent(&publication.place)?);
            let known = &self.view.known;
            let lists =
                spans::for_publication(known, &publication.topic, &cells, &publication.body);
            let is_unread = |list: &Span| !self.read.iter().any(|read| read.holds(list));
            elsewhere.extend(lists.into_iter().filter(is_unread));
        }
        if elsewhere.is_empty() {
            return Ok(());
        }
        self.read(tidy(elsewhere.into_iter().collect()))
    }

    /// True if one of the other subscriptions, each with its list, received a publication.
    fn has_received(
        &self,
        others: &[(&[u8], StoredSubscription<'_>)],
        publication: &Notification,
    ) -> Result<bool> {
        let inner = self.inner;
        let extent = inner.compiled.extent(&publication.place)?;
        let cells = inner.cells(&extent);
        let subject = Subject {
            time: publication.time,
            place: &extent,
            body: &publication.body,
        };
        let expires = publication.expires.unwrap_or(NEVER);
        for (list, other) in others {
            let may_have_received = self.counts(other, publication.seq)
                && other.has_received(publication.seq, publication.time, expires)
                && is_for(list, &publication.topic, &cells)?;
            if may_have_received && inner.compiled.admits(other, &subject)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if another subscription keeps this one from the publication with this number, should it
    /// have received it.
    fn counts(&self, other: &StoredSubscription<'_>, publication: Seq) -> bool {
        if !self.as_published {
            true
        } else if publication > self.form {
            // A form newer than the publication received it by a renewal, after others.
            other.id < self.ready.id && other.form < publication
        } else {
            other.form < self.form
        }
    }
}
