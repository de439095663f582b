//! The elements of value lists, as they are stored.
//!
//! An operand of a list is elements one after the other, newest first. Each is its length (varint), then a head: kind
//! (1 byte), sequence number (8 bytes) and the time of the store's clock from which it is of no use to anybody (8
//! bytes), then what its kind has.

use std::sync::Arc;

use esker::{Error, Result, Seq};
use esker_coding::{Reader, put_bytes, put_varint};

use crate::place::Place;

/// A time, in the unit of the broker (by default milliseconds since 1970; see [`Config::resolution`](crate::Config)).
pub type Time = i64;

/// The time of what never ends.
pub(crate) const NEVER: Time = Time::MAX;

/// True when what expires then is there at a time: what never does also is at the last of all times.
pub(crate) fn lives_at(expires: Time, time: Time) -> bool {
    expires == NEVER || expires > time
}

const PUBLICATION: u8 = 1;
const RETRACTED: u8 = 2;
const SUBSCRIPTION: u8 = 3;
const ENDED: u8 = 4;

/// Bytes of an element's numbers, and of most places.
const FEW: usize = 80;

/// The sequence number, the time by which it is useless, and the kind of an element, with the rest of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    pub(crate) seq: Seq,
    pub(crate) useless: u64,
    kind: u8,
    rest: &'a [u8],
}

/// What an element says.
#[derive(Debug)]
pub(crate) enum Element<'a> {
    Publication(StoredPublication<'a>),
    /// The publication with this number, of this time, is withdrawn.
    Retracted(Seq, Time),
    Subscription(StoredSubscription<'a>),
    /// The form of a subscription with this number, which asked for this interval, is void here.
    Ended(Seq, Time, Time),
}

/// The times that an element is about: of a publication when it was published, of a subscription the interval that it asks for,
/// and of what makes others void those of the others. Who looks for a time outside of these can do without the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Publication(Time),
    Subscription(Time, Time),
}

#[derive(Debug)]
pub(crate) struct StoredPublication<'a> {
    pub(crate) time: Time,
    /// No publication with a smaller sequence number has a later time: where a walk from the newest to the oldest may
    /// stop, whatever the clock did (section 5.2.1, made exact).
    pub(crate) latest: Time,
    pub(crate) expires: Time,
    pub(crate) place: Place,
    pub(crate) body: &'a [u8],
}

/// Which of a topic's changes in a number are worth a notification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredChange {
    pub(crate) path: Arc<str>,
    pub(crate) is_relative: bool,
    pub(crate) threshold: f64,
}

#[derive(Debug)]
pub(crate) struct StoredSubscription<'a> {
    /// Which of its forms it is: the number of the write that made it. A subscription that moves gets another, and one that is
    /// renewed where that makes a difference for what was published before.
    pub(crate) form: Seq,
    pub(crate) id: Seq,
    /// It is about publications from this number on, and those below `ended`; 0 where it has no such bound.
    pub(crate) begins: Seq,
    pub(crate) ended: Seq,
    pub(crate) made: Time,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) joins: bool,
    /// True when it is filed under the anchors of its condition.
    pub(crate) filed: bool,
    pub(crate) user: &'a [u8],
    pub(crate) tag: &'a [u8],
    pub(crate) place: Place,
    pub(crate) condition: &'a str,
    pub(crate) change: Option<StoredChange>,
}

pub(crate) fn damaged(what: &str) -> Error {
    Error::Damaged {
        path: None,
        offset: None,
        what: format!("a value list of publish/subscribe: {what}"),
    }
}

/// The elements of an operand, newest first.
pub(crate) struct Elements<'a>(Reader<'a>);

impl<'a> Elements<'a> {
    pub(crate) fn of(operand: &'a [u8]) -> Elements<'a> {
        Elements(Reader::new(operand))
    }
}

impl<'a> Iterator for Elements<'a> {
    /// The element, and the bytes that hold it, its length among them.
    type Item = Result<(Raw<'a>, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let before = self.0.rest();
        let read = self.0.bytes().and_then(Raw::parse);
        let Some(raw) = read else {
            self.0 = Reader::new(&[]);
            return Some(Err(damaged("an element is malformed")));
        };
        let len = before.len() - self.0.rest().len();
        Some(Ok((raw, before.get(..len).unwrap_or_default())))
    }
}

impl<'a> Raw<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Raw<'a>> {
        let mut input = Reader::new(bytes);
        Some(Raw {
            kind: input.u8()?,
            seq: input.u64()?,
            useless: input.u64()?,
            rest: input.rest(),
        })
    }

    pub(crate) fn is_publication(&self) -> bool {
        matches!(self.kind, PUBLICATION | RETRACTED)
    }

    /// What it makes void: older elements that are of the same publication or subscription. The first one of a form has
    /// none.
    pub(crate) fn voids(&self) -> Option<Subject> {
        match self.kind {
            PUBLICATION => None,
            SUBSCRIPTION if self.number() == Some(self.seq) => None,
            _ => self.subject(),
        }
    }

    /// What it is about.
    pub(crate) fn subject(&self) -> Option<Subject> {
        match self.kind {
            PUBLICATION => Some(Subject::Publication(self.seq)),
            RETRACTED => Some(Subject::Publication(self.number()?)),
            SUBSCRIPTION | ENDED => Some(Subject::Subscription(self.number()?)),
            _ => None,
        }
    }

    /// What every element but a publication begins with: a publication's number, or that of a form.
    fn number(&self) -> Option<Seq> {
        Reader::new(self.rest).u64()
    }

    /// Until when a subscription asks for publications, without reading the rest of it.
    pub(crate) fn until(&self) -> Option<Time> {
        match self.kind {
            SUBSCRIPTION => self.time_at(TO),
            _ => None,
        }
    }

    /// The times that it is about, without reading the rest of it.
    pub(crate) fn times(&self) -> Option<Times> {
        let interval = |at| {
            let end = at + size_of::<Time>();
            Some(Times::Subscription(self.time_at(at)?, self.time_at(end)?))
        };
        match self.kind {
            PUBLICATION => self.time_at(0).map(Times::Publication),
            RETRACTED => self.time_at(OF_VOID).map(Times::Publication),
            SUBSCRIPTION => interval(FROM),
            ENDED => interval(OF_VOID),
            _ => None,
        }
    }

    fn time_at(&self, at: usize) -> Option<Time> {
        time(&mut Reader::new(self.rest.get(at..)?))
    }

    /// True when it is a subscription of this user.
    pub(crate) fn is_of(&self, user: &[u8]) -> bool {
        let stored = || Reader::new(self.rest.get(USER..)?).bytes();
        self.kind == SUBSCRIPTION && stored() == Some(user)
    }

    /// True when it has no use but to make others void.
    pub(crate) fn is_void(&self) -> bool {
        matches!(self.kind, RETRACTED | ENDED)
    }

    pub(crate) fn decode(&self) -> Result<Element<'a>> {
        let mut input = Reader::new(self.rest);
        let read = match self.kind {
            PUBLICATION => publication(&mut input).map(Element::Publication),
            RETRACTED => retracted(&mut input),
            SUBSCRIPTION => subscription(&mut input).map(Element::Subscription),
            ENDED => ended(&mut input),
            _ => None,
        };
        read.ok_or_else(|| damaged("an element's content is malformed"))
    }
}

/// Whom an element is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Publication(Seq),
    /// A form of one.
    Subscription(Seq),
}

fn time(input: &mut Reader<'_>) -> Option<Time> {
    Some(input.u64()? as Time)
}

fn publication<'a>(input: &mut Reader<'a>) -> Option<StoredPublication<'a>> {
    Some(StoredPublication {
        time: time(input)?,
        latest: time(input)?,
        expires: time(input)?,
        place: Place::decode(input)?,
        body: input.rest(),
    })
}

fn retracted<'a>(input: &mut Reader<'_>) -> Option<Element<'a>> {
    Some(Element::Retracted(input.u64()?, time(input)?))
}

fn ended<'a>(input: &mut Reader<'_>) -> Option<Element<'a>> {
    Some(Element::Ended(input.u64()?, time(input)?, time(input)?))
}

/// Where the times are of what is void, among the bytes of what makes it void: behind its number.
const OF_VOID: usize = size_of::<u64>();
/// Where the interval of a subscription is among its bytes, and its user: behind seven numbers and the flags.
const FROM: usize = 5 * size_of::<u64>();
const TO: usize = 6 * size_of::<u64>();
const USER: usize = 7 * size_of::<u64>() + 1;

/// Flags of a subscription.
const JOINS: u8 = 1;
const ON_CHANGE: u8 = 2;
const RELATIVE: u8 = 4;
const FILED: u8 = 8;

pub(crate) fn subscription<'a>(input: &mut Reader<'a>) -> Option<StoredSubscription<'a>> {
    let (form, id, begins, ended) = (input.u64()?, input.u64()?, input.u64()?, input.u64()?);
    let (made, from, to) = (time(input)?, time(input)?, time(input)?);
    let flags = input.u8()?;
    let (user, tag) = (input.bytes()?, input.bytes()?);
    let place = Place::decode(input)?;
    let condition = std::str::from_utf8(input.bytes()?).ok()?;
    let change = match flags & ON_CHANGE {
        0 => None,
        _ => Some(StoredChange {
            path: std::str::from_utf8(input.bytes()?).ok()?.into(),
            is_relative: flags & RELATIVE != 0,
            threshold: f64::from_bits(input.u64()?),
        }),
    };
    Some(StoredSubscription {
        form,
        id,
        begins,
        ended,
        made,
        from,
        to,
        joins: flags & JOINS != 0,
        filed: flags & FILED != 0,
        user,
        tag,
        place,
        condition,
        change,
    })
}

impl StoredPublication<'_> {
    /// True when it has not expired at a time of the broker's clock, nor at its own, which may be ahead of that.
    pub(crate) fn is_alive(&self, now: Time) -> bool {
        lives_at(self.expires, self.time.max(now))
    }
}

impl<'a> StoredSubscription<'a> {
    pub(crate) fn copy(&self) -> StoredSubscription<'a> {
        StoredSubscription {
            place: self.place.clone(),
            change: self.change.clone(),
            ..*self
        }
    }

    /// About how many bytes it takes, beside a few.
    pub(crate) fn about(&self) -> usize {
        FEW + self.user.len() + self.tag.len() + self.condition.len()
    }

    /// True when it has met a publication with the number and time.
    pub(crate) fn has_met(&self, seq: Seq, time: Time) -> bool {
        let is_after = seq >= self.begins && (self.ended == 0 || seq < self.ended);
        is_after && time >= self.from && time <= self.to
    }

    /// True when it got a publication: with the number, time and expiry, provided that it asked for it.
    pub(crate) fn was_told(&self, seq: Seq, time: Time, expires: Time) -> bool {
        let was_there = if seq < self.form {
            self.made.max(time)
        } else {
            time
        };
        self.has_met(seq, time) && lives_at(expires, was_there)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [self.form, self.id, self.begins, self.ended];
        let times = [self.made, self.from, self.to].map(|time| time as u64);
        for number in numbers.into_iter().chain(times) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let is_relative = self.change.as_ref().is_some_and(|c| c.is_relative);
        let flags = [
            (self.joins, JOINS),
            (self.change.is_some(), ON_CHANGE),
            (is_relative, RELATIVE),
            (self.filed, FILED),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        out.push(set.fold(0, |all, (_, flag)| all | flag));
        put_bytes(out, self.user);
        put_bytes(out, self.tag);
        self.place.encode(out);
        put_bytes(out, self.condition.as_bytes());
        if let Some(change) = &self.change {
            put_bytes(out, change.path.as_bytes());
            out.extend_from_slice(&change.threshold.to_le_bytes());
        }
    }
}

impl Element<'_> {
    /// Appends it as it is stored.
    pub(crate) fn encode(&self, seq: Seq, useless: u64, out: &mut Vec<u8>) {
        let number = |n: u64, out: &mut Vec<u8>| out.extend_from_slice(&n.to_le_bytes());
        let begin = out.len();
        out.reserve(self.about());
        out.push(self.kind());
        number(seq, out);
        number(useless, out);
        match self {
            Element::Publication(publication) => {
                number(publication.time as u64, out);
                number(publication.latest as u64, out);
                number(publication.expires as u64, out);
                publication.place.encode(out);
                out.extend_from_slice(publication.body);
            }
            Element::Retracted(target, time) => {
                number(*target, out);
                number(*time as u64, out);
            }
            Element::Subscription(subscription) => subscription.encode(out),
            Element::Ended(form, from, to) => {
                number(*form, out);
                number(*from as u64, out);
                number(*to as u64, out);
            }
        }
        // The length goes first, and is known last.
        let end = out.len();
        put_varint(out, (end - begin) as u64);
        let len = out.len() - end;
        out.get_mut(begin..).unwrap_or_default().rotate_right(len);
    }

    fn kind(&self) -> u8 {
        match self {
            Element::Publication(_) => PUBLICATION,
            Element::Retracted(..) => RETRACTED,
            Element::Subscription(_) => SUBSCRIPTION,
            Element::Ended(..) => ENDED,
        }
    }

    /// About how many bytes it takes, seldom less.
    fn about(&self) -> usize {
        match self {
            Element::Publication(publication) => FEW + publication.body.len(),
            Element::Subscription(subscription) => FEW + subscription.about(),
            Element::Retracted(..) | Element::Ended(..) => FEW,
        }
    }
}
