//! What goes in and comes out: publications, subscriptions, notifications.

use std::time::Duration;

use esker::{Expr, Result, Seq};

use crate::element::Time;
use crate::place::{Place, Region};
use crate::topic::{Topic, TopicFilter};

/// Something to be published.
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
}

/// When something ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Never,
    At(Time),
    After(Duration),
}

impl Publication {
    /// A publication that lives for ever, nowhere in particular. Conditions of subscriptions are about its body as
    /// JSON; a body that is not JSON meets no condition.
    pub fn new(topic: Topic, body: impl Into<Vec<u8>>) -> Publication {
        Publication {
            topic,
            body: body.into(),
            place: Place::Anywhere,
            time: None,
            end: End::Never,
        }
    }

    /// It is gone from this time on.
    pub fn expires(mut self, at: Time) -> Publication {
        self.end = End::At(at);
        self
    }

    /// It is gone after so long.
    pub fn lives(mut self, long: Duration) -> Publication {
        self.end = End::After(long);
        self
    }

    /// It is about a point, in degrees.
    pub fn at_point(self, longitude: f64, latitude: f64) -> Publication {
        self.at_place(Place::Point {
            longitude,
            latitude,
        })
    }

    /// It is about an area.
    pub fn in_region(self, region: Region) -> Publication {
        self.at_place(Place::Region(region))
    }

    /// It is about a place.
    pub fn at_place(mut self, place: Place) -> Publication {
        self.place = place;
        self
    }

    /// It is published at this time, and not at that of the clock when it is stored: for replaying what has happened. A
    /// subscription that has ended by the clock is forgotten: what is published later with a time that it asked for is not
    /// for it, neither among the matches nor in an inbox that was open before.
    pub fn at_time(mut self, time: Time) -> Publication {
        self.time = Some(time);
        self
    }
}

/// What a user wants to get of what is published, in an interval about now.
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
    pub(crate) made: Option<Time>,
    pub(crate) from: Start,
    pub(crate) end: End,
    pub(crate) condition: Option<Expr>,
    pub(crate) joins: bool,
    pub(crate) change: Option<OnChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    At(Time),
    Before(Duration),
}

/// By how much a number has to change.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Threshold {
    /// By more than this.
    Absolute(f64),
    /// By more than this many per cent of what it was.
    Percent(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OnChange {
    pub(crate) path: esker::Path,
    pub(crate) threshold: Threshold,
}

impl Subscription {
    /// To what is published from now on, for ever.
    pub fn to(topics: TopicFilter) -> Subscription {
        Subscription {
            topics,
            place: Place::Anywhere,
            user: Vec::new(),
            tag: Vec::new(),
            made: None,
            from: Start::Now,
            end: End::Never,
            condition: None,
            joins: false,
            change: None,
        }
    }

    /// Takes what was published at this time or later (T_min).
    pub fn from(mut self, time: Time) -> Subscription {
        self.from = Start::At(time);
        self
    }

    /// Takes what was published up to this time (T_max), itself included.
    pub fn until(mut self, time: Time) -> Subscription {
        self.end = End::At(time);
        self
    }

    /// Takes what was published so long before it is made, too.
    pub fn since(mut self, long: Duration) -> Subscription {
        self.from = Start::Before(long);
        self
    }

    /// Ends so long after it is made.
    pub fn lasting(mut self, long: Duration) -> Subscription {
        self.end = End::After(long);
        self
    }

    /// Takes what is about this area.
    pub fn within(self, region: Region) -> Subscription {
        self.at_place(Place::Region(region))
    }

    /// Takes what is about this place.
    pub fn at_place(mut self, place: Place) -> Subscription {
        self.place = place;
        self
    }

    /// Takes publications whose body satisfies a condition.
    pub fn matching(mut self, condition: Expr) -> Subscription {
        self.condition = Some(condition);
        self
    }

    /// Is of this user.
    pub fn user(mut self, user: impl Into<Vec<u8>>) -> Subscription {
        self.user = user.into();
        self
    }

    /// Carries bytes of the program's own, which every match shows.
    pub fn tag(mut self, tag: impl Into<Vec<u8>>) -> Subscription {
        self.tag = tag.into();
        self
    }

    /// Takes nothing that an earlier subscription of the same user got (the paper's self-join, section 6.1). How far
    /// back it may look says [`Config::remember`](crate::Config).
    pub fn join(mut self) -> Subscription {
        self.joins = true;
        self
    }

    /// Takes a publication only where a number in its body differs by more than `threshold` from that of the
    /// publication before it: the newest earlier one on the same topic, in the same cell, that has the number and is
    /// there when the two meet. The first has none before it, and is not taken. What it gets does not count for later
    /// [self-joins](Subscription::join).
    pub fn on_change(mut self, path: esker::Path, threshold: Threshold) -> Subscription {
        self.change = Some(OnChange { path, threshold });
        self
    }

    /// Is made at this time, and not at that of the clock when it is stored: for replaying what has happened.
    pub fn at_time(mut self, time: Time) -> Subscription {
        self.made = Some(time);
        self
    }
}

/// A publication that was stored.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Published {
    /// Its number: publications of a topic are delivered in this order.
    pub seq: Seq,
    /// Whom it is for, by the numbers of the subscriptions. None where that could not be read.
    pub matches: Vec<Match>,
    /// Why it is not known whom it is for: the publication is stored, and [inboxes](crate::Broker::inbox) get it, but
    /// reading the subscriptions failed. To publish it again would store it twice.
    pub unread: Option<esker::Error>,
}

impl PartialEq for Published {
    fn eq(&self, other: &Published) -> bool {
        let of = |all: &Published| (all.seq, all.unread.as_ref().map(esker::Error::kind));
        of(self) == of(other) && self.matches == other.matches
    }
}

/// A subscription that a publication is for.
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

/// A subscription that was made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Subscribed {
    /// Its number; 0 where it had ended before it was made, so that nothing is stored.
    pub id: Seq,
    /// What was published before and is for it, oldest first. Nothing where that could not be read.
    pub past: Vec<Notification>,
    /// Why it is not known what was published before: the subscription is stored, under its number, but reading failed.
    /// An [inbox](crate::Broker::inbox) from number 0 on gives that, too; to subscribe again would make another one.
    pub unread: Option<esker::Error>,
}

impl PartialEq for Subscribed {
    fn eq(&self, other: &Subscribed) -> bool {
        let of = |all: &Subscribed| (all.id, all.unread.as_ref().map(esker::Error::kind));
        of(self) == of(other) && self.past == other.past
    }
}

/// A publication, as its subscribers get it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Notification {
    /// Its number.
    pub seq: Seq,
    /// Where it was published.
    pub topic: Topic,
    /// When.
    pub time: Time,
    /// From when on it is gone; never without it.
    pub expires: Option<Time>,
    /// What it is about.
    pub place: Place,
    /// Its body.
    pub body: Vec<u8>,
}

/// Checks that a number of something fits its type.
pub(crate) fn bad_input<T>(text: impl Into<String>) -> Result<T> {
    Err(esker::Error::BadInput(text.into()))
}
