//! What a client has while it is connected: subscriptions, and packets without acknowledgement.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use esker::{Expr, Seq};
use parking_lot::Mutex;
use pubsub::{Region, Subscription, Time};

use super::filter::Filter;
use super::kept::{Conditions, StoredPacket, StoredSession, StoredSubscription, StoredWill};
use super::message::Shared;
use super::router::Router;
use super::source::{Begin, Source, Wakeup};

/// A subscription.
pub(super) struct Subscribed {
    pub(super) filter: Filter,
    /// As the client gave it.
    pub(super) text: String,
    pub(super) qos: u8,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    pub(super) identifier: Option<u32>,
    pub(super) conditions: Conditions,
    pub(super) source: Arc<Source>,
    /// After which topic retained messages are to be sent, if any are.
    pub(super) retained: Option<String>,
}

impl Subscribed {
    pub(super) fn is_shared(&self) -> bool {
        self.filter.share.is_some()
    }
}

/// A packet that the client has not acknowledged.
pub(super) struct Unacknowledged {
    pub(super) id: u16,
    /// The number of the subscription.
    pub(super) of: u32,
    pub(super) seq: Seq,
    /// Of a shared subscription: for other members, if this one goes.
    pub(super) message: Option<Shared>,
    /// The topic, if it was a retained message.
    pub(super) retained: Option<String>,
}

/// The session of a connection.
pub(super) struct Session {
    pub(super) client: String,
    /// The user whose session it is.
    pub(super) user: String,
    /// Seconds; `u32::MAX` is for ever.
    pub(super) expiry: u32,
    pub(super) will: Option<StoredWill>,
    pub(super) subscriptions: BTreeMap<u32, Subscribed>,
    by_filter: HashMap<String, u32>,
    /// In the order in which they were sent.
    pub(super) packets: Vec<Unacknowledged>,
    number: u32,
    id: u16,
}

impl Session {
    pub(super) fn new(
        client: String,
        user: String,
        expiry: u32,
        will: Option<StoredWill>,
    ) -> Session {
        Session {
            client,
            user,
            expiry,
            will,
            subscriptions: BTreeMap::new(),
            by_filter: HashMap::new(),
            packets: Vec::new(),
            number: 0,
            id: 0,
        }
    }

    /// Goes on with a stored session; the sources are its subscriptions' in their order.
    pub(super) fn resume(
        &mut self,
        stored: StoredSession,
        mut source: impl FnMut(&Filter, &StoredSubscription) -> Result<Arc<Source>, String>,
    ) -> Result<(), String> {
        self.number = stored.number;
        self.id = stored.id;
        for one in stored.subscriptions {
            let filter = Filter::parse(&one.filter)?;
            let subscribed = Subscribed {
                source: source(&filter, &one)?,
                filter,
                text: one.filter,
                qos: one.qos,
                no_local: one.no_local,
                retain_as_published: one.retain_as_published,
                identifier: one.identifier,
                conditions: one.conditions,
                retained: one.retained,
            };
            self.by_filter.insert(subscribed.text.clone(), one.number);
            self.subscriptions.insert(one.number, subscribed);
        }
        for packet in stored.packets {
            // The others of a share go on with what was not acknowledged. A subscription that has
            // ended may have packets that were sent before.
            let of = self.subscriptions.get(&packet.of);
            if of.is_none_or(|of| !of.is_shared()) {
                self.packets.push(Unacknowledged {
                    id: packet.id,
                    of: packet.of,
                    seq: packet.seq,
                    message: None,
                    retained: packet.retained,
                });
            }
        }
        Ok(())
    }

    /// True if it outlives its connection, or something else has to be done after it.
    pub(super) fn is_stored(&self) -> bool {
        self.expiry > 0 || self.will.is_some()
    }

    /// The record of the session.
    pub(super) fn stored(&self, left: Option<u64>) -> StoredSession {
        let subscription = |(number, of): (&u32, &Subscribed)| StoredSubscription {
            number: *number,
            filter: of.text.clone(),
            qos: of.qos,
            no_local: of.no_local,
            retain_as_published: of.retain_as_published,
            identifier: of.identifier,
            conditions: of.conditions.clone(),
            position: of.source.settled(),
            sent: if of.is_shared() { of.source.sent() } else { 0 },
            retained: of.retained.clone(),
        };
        let packet = |packet: &Unacknowledged| StoredPacket {
            id: packet.id,
            of: packet.of,
            seq: packet.seq,
            retained: packet.retained.clone(),
        };
        StoredSession {
            client: self.client.clone(),
            user: self.user.clone(),
            expiry: self.expiry,
            left,
            will: self.will.clone(),
            number: self.number,
            id: self.id,
            subscriptions: self.subscriptions.iter().map(subscription).collect(),
            packets: self.packets.iter().map(packet).collect(),
        }
    }

    pub(super) fn number_of(&self, filter: &str) -> Option<u32> {
        self.by_filter.get(filter).copied()
    }

    /// The number for a new subscription.
    pub(super) fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        while self.subscriptions.contains_key(&self.number) {
            self.number = self.number.wrapping_add(1);
        }
        self.number
    }

    /// Adds a subscription, or replaces one; returns the one that was replaced.
    pub(super) fn insert(&mut self, number: u32, subscribed: Subscribed) -> Option<Subscribed> {
        self.by_filter.insert(subscribed.text.clone(), number);
        self.subscriptions.insert(number, subscribed)
    }

    pub(super) fn remove(&mut self, filter: &str) -> Option<(u32, Subscribed)> {
        let number = self.by_filter.remove(filter)?;
        Some((number, self.subscriptions.remove(&number)?))
    }

    /// A free packet identifier.
    pub(super) fn next_id(&mut self) -> u16 {
        // There are far fewer packets than identifiers.
        loop {
            self.id = self.id.checked_add(1).unwrap_or(1);
            if !self.packets.iter().any(|packet| packet.id == self.id) {
                return self.id;
            }
        }
    }

    /// The client has acknowledged a packet.
    pub(super) fn acknowledge(&mut self, id: u16) -> Option<Unacknowledged> {
        let at = self.packets.iter().position(|packet| packet.id == id)?;
        let packet = self.packets.remove(at);
        if packet.message.is_some()
            && let Some(of) = self.subscriptions.get(&packet.of)
        {
            of.source.settle(packet.seq);
        }
        Some(packet)
    }

    /// The packets of a shared subscription that ends stay with this client, which receives them
    /// again if it has to connect again.
    pub(super) fn keep(&mut self, number: u32, source: &Source) {
        for packet in self.packets.iter_mut().filter(|packet| packet.of == number) {
            if packet.message.take().is_some() {
                source.settle(packet.seq);
            }
        }
    }

    /// Takes the packets of a shared subscription back.
    pub(super) fn take_back(&mut self, number: u32) -> Vec<Shared> {
        let of_it = |packet: &mut Unacknowledged| packet.of == number && packet.message.is_some();
        let taken = self.packets.extract_if(.., of_it);
        taken.filter_map(|packet| packet.message).collect()
    }
}

/// An area, as conditions write it: `rect(W,S,E,N)`, `circle(LON,LAT,METRES)` or
/// `polygon([[LON,LAT],...])`.
pub(super) fn region(text: &str) -> Result<Region, String> {
    let wrong = || {
        format!(
            "area `{text}`: an area is rect(W,S,E,N), circle(LON,LAT,METRES) or polygon([[LON,LAT],...])"
        )
    };
    let text = text.trim();
    let (name, rest) = text.split_once('(').ok_or_else(wrong)?;
    let inner = rest.strip_suffix(')').ok_or_else(wrong)?;
    let region = if name == "polygon" {
        let ring: Vec<[f64; 2]> = serde_json::from_str(inner).map_err(|_| wrong())?;
        let mut closed = ring.clone();
        if closed.first() != closed.last() {
            closed.extend(ring.first());
        }
        let polygon = serde_json::json!({"type": "Polygon", "coordinates": [closed]});
        Region::Polygon(polygon.to_string().into())
    } else {
        let numbers: Result<Vec<f64>, _> = inner.split(',').map(|n| n.trim().parse()).collect();
        match (name, numbers.map_err(|_| wrong())?.as_slice()) {
            ("rect", &[west, south, east, north]) => Region::Rect {
                west,
                south,
                east,
                north,
            },
            ("circle", &[longitude, latitude, metres]) => Region::Circle {
                longitude,
                latitude,
                metres,
            },
            _ => return Err(wrong()),
        }
    };
    region
        .area()
        .map_err(|error| format!("area `{text}`: {error}"))?;
    Ok(region)
}

/// A source for a subscription.
///
/// # Errors
/// A sentence, if the conditions are not valid.
pub(super) fn source_for(
    filter: &Filter,
    conditions: &Conditions,
    begin: Begin,
) -> Result<Source, String> {
    let topics = filter.topics().map_err(|error| error.to_string())?;
    let from = conditions.from.unwrap_or(Time::MIN);
    let mut subscription = Subscription::to(topics).from(from);
    if let Some(to) = conditions.to {
        subscription = subscription.until(to);
    }
    if let Some(condition) = &conditions.condition {
        let condition: Expr = condition
            .parse()
            .map_err(|error| format!("where `{condition}`: {error}"))?;
        condition.check()?;
        subscription = subscription.matching(condition);
    }
    if let Some(area) = &conditions.area {
        subscription = subscription.within(region(area)?);
    }
    let is_conditional = conditions.condition.is_some() || conditions.area.is_some();
    Ok(Source::new(
        subscription,
        is_conditional,
        conditions.to,
        begin,
    ))
}

/// A share and its topics and conditions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ShareKey {
    share: String,
    filter: String,
    condition: Option<String>,
    area: Option<String>,
}

impl ShareKey {
    fn of(filter: &Filter, conditions: &Conditions) -> ShareKey {
        ShareKey {
            share: filter.share.clone().unwrap_or_default(),
            filter: filter.text.clone(),
            condition: conditions.condition.clone(),
            area: conditions.area.clone(),
        }
    }
}

struct Share {
    source: Arc<Source>,
    /// The sessions that have it, with a connection or without.
    clients: HashSet<String>,
}

/// All shared subscriptions.
#[derive(Default)]
pub(super) struct Shares {
    all: Mutex<HashMap<ShareKey, Share>>,
}

impl Shares {
    /// The source of a shared subscription, for a session that has it from now on. Also says
    /// whether it is new.
    ///
    /// # Errors
    /// As [`source_for`].
    pub(super) fn join(
        &self,
        router: &Router,
        client: &str,
        filter: &Filter,
        conditions: &Conditions,
        begin: Begin,
    ) -> Result<(Arc<Source>, bool), String> {
        let key = ShareKey::of(filter, conditions);
        let mut all = self.all.lock();
        if let Some(share) = all.get_mut(&key) {
            share.clients.insert(client.to_string());
            return Ok((share.source.clone(), false));
        }
        let source = Arc::new(source_for(filter, conditions, begin)?);
        let share = Share {
            source: source.clone(),
            clients: HashSet::from([client.to_string()]),
        };
        all.insert(key, share);
        drop(all);
        router.add(&filter.text, &source);
        Ok((source, true))
    }

    /// A session does not have a shared subscription any more.
    pub(super) fn leave(
        &self,
        router: &Router,
        client: &str,
        filter: &Filter,
        conditions: &Conditions,
    ) {
        let key = ShareKey::of(filter, conditions);
        let mut all = self.all.lock();
        let Some(share) = all.get_mut(&key) else {
            return;
        };
        share.clients.remove(client);
        if share.clients.is_empty()
            && let Some(share) = all.remove(&key)
        {
            drop(all);
            router.remove(&filter.text, &share.source);
        }
    }
}

/// The connection of a session takes from its sources.
pub(super) fn join_all(session: &Session, wakeup: &Arc<Wakeup>) {
    for (number, of) in &session.subscriptions {
        of.source.join(wakeup, *number);
        if of.retained.is_some() {
            wakeup.add(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_read() {
        for right in [
            "rect(9,53,11,54)",
            "circle(9.99, 53.55, 2000)",
            "polygon([[9,53],[11,53],[10,54]])",
        ] {
            assert!(region(right).is_ok(), "{right}: {:?}", region(right));
        }
        for wrong in [
            "",
            "rect(1,2,3)",
            "circle(1,2,x)",
            "circle(1,200,3)",
            "polygon(1)",
            "rect(9,53,11,54",
        ] {
            assert!(region(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn packet_identifiers_are_not_used_twice() {
        let mut session = Session::new("c".to_string(), "ann".to_string(), 0, None);
        session.id = u16::MAX - 1;
        for expected in [u16::MAX, 1, 2] {
            let id = session.next_id();
            assert_eq!(id, expected);
            session.packets.push(Unacknowledged {
                id,
                of: 1,
                seq: 1,
                message: None,
                retained: None,
            });
        }
        session.id = u16::MAX;
        assert_eq!(session.next_id(), 3);
        assert!(session.acknowledge(1).is_some());
        assert!(session.acknowledge(1).is_none());
        session.id = u16::MAX;
        assert_eq!(session.next_id(), 1);
    }
}
