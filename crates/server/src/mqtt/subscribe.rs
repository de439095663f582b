//! SUBSCRIBE and UNSUBSCRIBE.

use std::sync::Arc;

use esker::Durability;
use esker::units::parse_duration;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::filter::Filter;
use super::kept::Conditions;
use super::message::Clock;
use super::packet::{Entry, Subscribe, Unsubscribe};
use super::reason::{Reason, Refusal};
use super::session::{Subscribed, region, source_for};
use super::source::{Begin, Source};
use crate::access::Role;

/// What the user properties of a SUBSCRIBE ask for.
fn conditions(user: &[(String, String)], clock: Clock) -> Result<Conditions, String> {
    let mut conditions = Conditions::default();
    for (name, value) in user {
        let wrong = |why: String| format!("{name} `{value}`: {why}");
        match name.as_str() {
            "since" => {
                let long = parse_duration(value).map_err(wrong)?;
                conditions.from = Some(clock.before(long));
            }
            "for" => {
                let long = parse_duration(value).map_err(wrong)?;
                conditions.to = Some(clock.after(long));
            }
            "where" => conditions.condition = Some(value.clone()),
            "area" => {
                region(value)?;
                conditions.area = Some(value.clone());
            }
            // Programs may have properties of their own.
            _ => {}
        }
    }
    Ok(conditions)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    pub(super) async fn subscribe(&mut self, packet: Subscribe) -> Result<(), Refusal> {
        let conditions = conditions(&packet.user, self.mqtt.clock());
        let mut reasons = Vec::new();
        let mut why = String::new();
        let mut begun: Vec<Arc<Source>> = Vec::new();
        for entry in packet.entries {
            let subscribed = match &conditions {
                Ok(conditions) => self.subscribe_one(entry, packet.identifier, conditions.clone()),
                Err(wrong) => Err(Refusal::new(Reason::Implementation, wrong.as_str())),
            };
            match subscribed {
                Ok((qos, source)) => {
                    begun.extend(source);
                    reasons.push(if qos == 0 {
                        Reason::Success
                    } else {
                        Reason::GrantedQos1
                    });
                }
                Err(refusal) => {
                    reasons.push(refusal.reason);
                    if why.is_empty() {
                        why = refusal.why;
                    }
                }
            }
        }
        // Everything after this number comes to the new sources; of what is before it, the retained
        // messages.
        let begun_at = self.mqtt.call(|mqtt| {
            let position = mqtt.kept.position();
            mqtt.retaining.settle();
            Ok(position)
        });
        let position = begun_at.await?;
        for source in begun {
            source.start(position);
        }
        self.write_record(Durability::Sync).await?;
        (self.encoder).suback(&mut self.out, packet.id, &reasons, &why);
        Ok(())
    }

    /// Adds a subscription. Returns its QoS, and its source if that begins now.
    fn subscribe_one(
        &mut self,
        entry: Entry,
        identifier: Option<u32>,
        conditions: Conditions,
    ) -> Result<(u8, Option<Arc<Source>>), Refusal> {
        let filter = Filter::parse(&entry.filter)
            .map_err(|why| Refusal::new(Reason::TopicFilterInvalid, why))?;
        (self.caller.may_topic(Role::Read, filter.fixed()))
            .map_err(|problem| Refusal::new(Reason::NotAuthorized, problem.detail()))?;
        if filter.share.is_some() && (conditions.from.is_some() || conditions.to.is_some()) {
            let why = "a shared subscription has neither `since` nor `for`";
            return Err(Refusal::new(Reason::Implementation, why));
        }
        let former = self.session.number_of(&entry.filter);
        let most = self.mqtt.app.limits.subscriptions;
        if former.is_none() && self.session.subscriptions.len() >= most {
            let why = "too many subscriptions";
            return Err(Refusal::new(Reason::QuotaExceeded, why));
        }
        let qos = entry.qos.min(1);
        let sends_retained = match entry.retain_handling {
            0 => true,
            1 => former.is_none(),
            _ => false,
        };
        let is_shared = filter.share.is_some();
        let mut subscribed = Subscribed {
            source: self.source(&filter, former, &conditions)?,
            text: entry.filter,
            qos,
            no_local: entry.no_local,
            retain_as_published: entry.retain_as_published,
            identifier,
            retained: (sends_retained && !is_shared).then(String::new),
            filter,
            conditions,
        };
        let old = former.and_then(|number| self.session.subscriptions.get(&number));
        let is_same = old.is_some_and(|old| Arc::ptr_eq(&old.source, &subscribed.source));
        if is_same && subscribed.retained.is_none() {
            subscribed.retained = old.and_then(|old| old.retained.clone());
        }
        let begins = (former.is_none() && subscribed.conditions.from.is_none())
            .then(|| subscribed.source.clone());
        let number = former.unwrap_or_else(|| self.session.next_number());
        let source = subscribed.source.clone();
        let (text, has_retained) = (
            subscribed.filter.text.clone(),
            subscribed.retained.is_some(),
        );
        let replaced = self.session.insert(number, subscribed);
        if let Some(replaced) = replaced.filter(|_| !is_same) {
            self.drop_source(number, &replaced);
        }
        if !is_same {
            if !is_shared {
                self.mqtt.router.add(&text, &source);
            }
            source.join(&self.wakeup, number);
        }
        if has_retained {
            self.wakeup.add(number);
        }
        Ok((qos, begins.filter(|_| !is_same)))
    }

    /// The source of a subscription: the former one if the same is asked for, or one that goes on
    /// where it was.
    fn source(
        &self,
        filter: &Filter,
        former: Option<u32>,
        conditions: &Conditions,
    ) -> Result<Arc<Source>, Refusal> {
        let wrong = |why| Refusal::new(Reason::Implementation, why);
        let former = former.and_then(|number| self.session.subscriptions.get(&number));
        if let Some(former) = former.filter(|former| former.conditions == *conditions) {
            return Ok(former.source.clone());
        }
        let begin = match former {
            _ if conditions.from.is_some() => Begin::After(0),
            Some(former) => Begin::After(former.source.settled()),
            None => Begin::Now,
        };
        if filter.share.is_some() {
            let client = &self.session.client;
            let joined =
                (self.mqtt.shares).join(&self.mqtt.router, client, filter, conditions, begin);
            return joined.map(|(source, _)| source).map_err(wrong);
        }
        Ok(Arc::new(
            source_for(filter, conditions, begin).map_err(wrong)?,
        ))
    }

    /// A subscription has ended, or another source.
    fn drop_source(&mut self, number: u32, of: &Subscribed) {
        // What was sent has to be completed, also after a further connection. Other members of a
        // share get what a session without one would lose.
        let unacknowledged = if self.session.expiry > 0 {
            self.session.keep(number, &of.source);
            Vec::new()
        } else {
            self.session.take_back(number)
        };
        if of.is_shared() {
            of.source.leave(&self.wakeup, unacknowledged);
            let client = &self.session.client;
            (self.mqtt.shares).leave(&self.mqtt.router, client, &of.filter, &of.conditions);
        } else {
            self.mqtt.router.remove(&of.filter.text, &of.source);
            of.source.leave(&self.wakeup, unacknowledged);
        }
    }

    pub(super) async fn unsubscribe(&mut self, packet: Unsubscribe) -> Result<(), Refusal> {
        let mut reasons = Vec::new();
        for text in &packet.filters {
            reasons.push(match self.session.remove(text) {
                Some((number, of)) => {
                    self.drop_source(number, &of);
                    Reason::Success
                }
                None if Filter::parse(text).is_err() => Reason::TopicFilterInvalid,
                None => Reason::NoSubscription,
            });
        }
        self.write_record(Durability::Sync).await?;
        (self.encoder).unsuback(&mut self.out, packet.id, &reasons);
        Ok(())
    }

    /// Removes subscriptions whose time (`for`) has ended.
    pub(super) async fn end_subscriptions(&mut self) -> Result<(), Refusal> {
        let now = self.mqtt.clock().now;
        let is_over = |of: &&Subscribed| of.source.ends().is_some_and(|ends| ends < now);
        let over = self.session.subscriptions.values().filter(is_over);
        let over: Vec<String> = over.map(|of| of.text.clone()).collect();
        if over.is_empty() {
            return Ok(());
        }
        for text in over {
            if let Some((number, of)) = self.session.remove(&text) {
                self.drop_source(number, &of);
            }
        }
        self.write_record(Durability::Os).await
    }
}
