//! The messages of the interface: publications, subscriptions, notifications, results.

use std::time::Duration;

use esker::{Durability, Expr, Result, Seq};

use crate::forms::element::{NEVER, StoredPublication, Threshold, Time};
use crate::forms::place::{Place, Region};
use crate::forms::topic::{Topic, TopicFilter};

/// A message to publish.
///
/// ```
/// use esker_pubsub::{Publication, Topic};
///
/// # fn main() -> esker::Result<()> {
/// let accident = Publication::new("traffic/a7".parse()?, br#"{"kind": "accident", "lanes": 2}"#)
///     .lives(std::time::Duration::from_secs(600))
///     .at_point(9.99, 53.55);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    pub(crate) topic: Topic,
    pub(crate) body: Vec<u8>,
    pub(crate) place: Place,
    pub(crate) time: Option<Time>,
    pub(crate) end: End,
    pub(crate) tag: Vec<u8>,
    pub(crate) durability: Option<Durability>,
}

/// The end of a publication or subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Never,
    At(Time),
    After(Duration),
}

impl Publication {
    /// A publication without expiry and without a place. Conditions of subscriptions test its body
    /// as JSON; a body that is not JSON meets no condition.
    pub fn new(topic: Topic, body: impl Into<Vec<u8>>) -> Publication {
        Publication {
            topic,
            body: body.into(),
            place: Place::Anywhere,
            time: None,
            end: End::Never,
            tag: Vec::new(),
            durability: None,
        }
    }

    /// Sets bytes of the program's own, which every notification of it has. Conditions do not test
    /// them.
    pub fn tag(mut self, tag: impl Into<Vec<u8>>) -> Publication {
        self.tag = tag.into();
        self
    }

    /// Sets how durable it is once it is published. Default: the store's
    /// [`Options::durability`](esker::Options::durability).
    pub fn durability(mut self, durability: Durability) -> Publication {
        self.durability = Some(durability);
        self
    }

    /// Sets the time at which it expires.
    pub fn expires(mut self, at: Time) -> Publication {
        self.end = End::At(at);
        self
    }

    /// Sets how long it lives.
    pub fn lives(mut self, long: Duration) -> Publication {
        self.end = End::After(long);
        self
    }

    /// Places it at a point, in degrees.
    pub fn at_point(self, longitude: f64, latitude: f64) -> Publication {
        self.at_place(Place::Point {
            longitude,
            latitude,
        })
    }

    /// Places it in an area.
    pub fn in_region(self, region: Region) -> Publication {
        self.at_place(Place::Region(region))
    }

    /// Sets its place.
    pub fn at_place(mut self, place: Place) -> Publication {
        self.place = place;
        self
    }

    /// Publishes it as of this time instead of the current time of the clock, for replaying past
    /// events. A subscription that has ended by the clock receives nothing more, not even later
    /// publications with a time in its interval: neither among the matches nor in an open inbox.
    pub fn at_time(mut self, time: Time) -> Publication {
        self.time = Some(time);
        self
    }
}

/// A request for publications in an interval around now.
///
/// ```
/// use std::time::Duration;
/// use esker_pubsub::{Region, Subscription};
///
/// # fn main() -> esker::Result<()> {
/// let nearby = Subscription::to("traffic".parse()?)
///     .since(Duration::from_secs(60))
///     .lasting(Duration::from_secs(60))
///     .within(Region::Circle { longitude: 10.0, latitude: 53.5, metres: 5_000.0 })
///     .matching("lanes >= 1".parse()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    pub(crate) topics: TopicFilter,
    pub(crate) place: Place,
    pub(crate) user: Vec<u8>,
    pub(crate) tag: Vec<u8>,
    /// The time that it is made at; `None`: the time of the call.
    pub(crate) made_at: Option<Time>,
    pub(crate) from: Start,
    pub(crate) end: End,
    pub(crate) condition: Option<Expr>,
    pub(crate) is_self_join: bool,
    pub(crate) change: Option<OnChange>,
}

/// The start of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    At(Time),
    Before(Duration),
}

/// The number in the body whose changes a subscription receives, and by how much it must change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OnChange {
    pub(crate) path: esker::Path,
    pub(crate) threshold: Threshold,
}

impl Subscription {
    /// A subscription to everything that is published to these topics from now on, without end.
    pub fn to(topics: TopicFilter) -> Subscription {
        Subscription {
            topics,
            place: Place::Anywhere,
            user: Vec::new(),
            tag: Vec::new(),
            made_at: None,
            from: Start::Now,
            end: End::Never,
            condition: None,
            is_self_join: false,
            change: None,
        }
    }

    /// Sets its start: it receives publications from this time on (T_min).
    pub fn from(mut self, time: Time) -> Subscription {
        self.from = Start::At(time);
        self
    }

    /// Sets its end: it receives publications up to and including this time (T_max).
    pub fn until(mut self, time: Time) -> Subscription {
        self.end = End::At(time);
        self
    }

    /// Also receives publications from up to this long before it is made.
    pub fn since(mut self, long: Duration) -> Subscription {
        self.from = Start::Before(long);
        self
    }

    /// Ends this long after it is made.
    pub fn lasting(mut self, long: Duration) -> Subscription {
        self.end = End::After(long);
        self
    }

    /// Receives only publications in this area.
    pub fn within(self, region: Region) -> Subscription {
        self.at_place(Place::Region(region))
    }

    /// Receives only publications at this place.
    pub fn at_place(mut self, place: Place) -> Subscription {
        self.place = place;
        self
    }

    /// Receives only publications whose body meets the condition.
    pub fn matching(mut self, condition: Expr) -> Subscription {
        self.condition = Some(condition);
        self
    }

    /// Sets the user that it belongs to.
    pub fn user(mut self, user: impl Into<Vec<u8>>) -> Subscription {
        self.user = user.into();
        self
    }

    /// Attaches bytes of the program's own, which every match returns.
    pub fn tag(mut self, tag: impl Into<Vec<u8>>) -> Subscription {
        self.tag = tag.into();
        self
    }

    /// Receives no publication that an earlier subscription of the same user received (the paper's
    /// self-join, section 6.1). [`Config::remember`](crate::Config) limits how far back it may
    /// look.
    pub fn join(mut self) -> Subscription {
        self.is_self_join = true;
        self
    }

    /// Receives a publication only if a number in its body differs by more than `threshold` from
    /// that of the previous publication: the newest earlier one on the same topic, in the same
    /// cell, that has the number and has not expired when publication and subscription are matched.
    /// For a publication in several cells it is the newest in any of these, also in cells that the
    /// subscription does not cover. The first publication has no previous one, and is not received.
    /// Later [self-joins](Subscription::join) do not count what it received.
    pub fn on_change(mut self, path: esker::Path, threshold: Threshold) -> Subscription {
        self.change = Some(OnChange { path, threshold });
        self
    }

    /// Makes it as of this time instead of the current time of the clock, for replaying past
    /// events.
    pub fn at_time(mut self, time: Time) -> Subscription {
        self.made_at = Some(time);
        self
    }
}

/// The result of publishing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Published {
    /// Its number: publications of a topic are delivered in the order of their numbers.
    pub seq: Seq,
    /// The subscriptions that it matches, ordered by number; empty if they could not be read.
    pub matches: Vec<Match>,
    /// The error if the subscriptions could not be read: the publication is stored, and
    /// [inboxes](crate::Broker::inbox) receive it, but its matches are unknown. Publishing it again
    /// would store it twice.
    pub unread: Option<esker::Error>,
}

impl PartialEq for Published {
    fn eq(&self, other: &Published) -> bool {
        self.seq == other.seq
            && self.matches == other.matches
            && self.unread.as_ref().map(esker::Error::kind)
                == other.unread.as_ref().map(esker::Error::kind)
    }
}

/// A subscription that matches a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Match {
    /// Its number.
    pub subscription: Seq,
    /// Its user.
    pub user: Vec<u8>,
    /// Its tag.
    pub tag: Vec<u8>,
}

/// The result of subscribing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Subscribed {
    /// Its number; 0 if it had ended before it was made, so that nothing is stored.
    pub id: Seq,
    /// Earlier publications that match it, oldest first; empty if they could not be read.
    pub past: Vec<Notification>,
    /// The error if the earlier publications could not be read: the subscription is stored under
    /// its number all the same. An [inbox](crate::Broker::inbox) from number 0 on returns them,
    /// too; subscribing again would store another subscription.
    pub unread: Option<esker::Error>,
}

impl Subscribed {
    /// The number of a subscription that is not stored: no write has it.
    pub(crate) const NOT_STORED: Seq = 0;
}

impl PartialEq for Subscribed {
    fn eq(&self, other: &Subscribed) -> bool {
        self.id == other.id
            && self.past == other.past
            && self.unread.as_ref().map(esker::Error::kind)
                == other.unread.as_ref().map(esker::Error::kind)
    }
}

/// A publication, as subscribers receive it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Notification {
    /// Its number.
    pub seq: Seq,
    /// The topic that it was published to.
    pub topic: Topic,
    /// The time at which it was published.
    pub time: Time,
    /// When it expires; `None` means never.
    pub expires: Option<Time>,
    /// Its place.
    pub place: Place,
    /// Its tag ([`Publication::tag`]); empty if it has none.
    pub tag: Vec<u8>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Notification {
    /// A stored publication, written as number `seq` to `topic`.
    pub(crate) fn of(publication: &StoredPublication<'_>, seq: Seq, topic: Topic) -> Notification {
        Notification {
            seq,
            topic,
            time: publication.time,
            expires: Some(publication.expires).filter(|expires| *expires != NEVER),
            place: publication.place.clone(),
            tag: publication.tag.to_vec(),
            body: publication.body.to_vec(),
        }
    }
}

/// [`Error::BadInput`](esker::Error::BadInput) with this text.
pub(crate) fn bad_input<T>(text: impl Into<String>) -> Result<T> {
    Err(esker::Error::BadInput(text.into()))
}
