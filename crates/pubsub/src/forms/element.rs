//! The elements of value lists, as they are stored.
//!
//! An operand of a list is a sequence of elements, newest first. Each element is its length
//! (varint) and a head: kind (1 byte), sequence number (8 bytes), and the time of the store's clock
//! from which it can be dropped (8 bytes). The rest depends on the kind.
//!
//! A later element *voids* an older one of the same publication or form of a subscription. An
//! element that only voids others is a *tombstone*; it lives as long as its target.

use std::sync::Arc;

use esker::{Error, Result, Seq};
use esker_coding::{Own, Reader, put_bytes, put_varint};

use crate::forms::place::Place;

/// A time, in the unit of the broker (by default milliseconds since 1970; see
/// [`Config::resolution`](crate::Config)).
pub type Time = i64;

/// A time of the store's clock, in milliseconds.
pub(crate) type Tick = esker::extension::Time;

/// The end of something that never ends.
pub(crate) const NEVER: Time = Time::MAX;

/// True if something that expires at `expires` is alive at `time`. With [`NEVER`] it is alive even
/// at the last of all times.
pub(crate) fn lives_at(expires: Time, time: Time) -> bool {
    expires == NEVER || expires > time
}

/// The kinds of elements, as stored.
const PUBLICATION: u8 = 1;
const RETRACTED: u8 = 2;
const SUBSCRIPTION: u8 = 3;
const ENDED: u8 = 4;
/// A publication with a tag. One without is stored as older versions read it.
const TAGGED: u8 = 5;

/// Estimated bytes of an element's numbers and place.
const FIXED_LEN_ESTIMATE: usize = 80;

/// An element whose head is decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawElement<'a> {
    pub(crate) seq: Seq,
    /// The time of the store's clock from which the element can be dropped.
    pub(crate) drop_time: Tick,
    kind: u8,
    /// The bytes behind the head.
    rest: &'a [u8],
    /// The whole element as stored, its length included.
    pub(crate) encoded: &'a [u8],
}

/// A decoded element.
#[derive(Debug)]
pub(crate) enum Element<'a> {
    Publication(StoredPublication<'a>),
    /// A tombstone of a publication, by its number and time.
    Retracted {
        publication: Seq,
        time: Time,
    },
    Subscription(StoredSubscription<'a>),
    /// A tombstone, in this list, of a subscription's form, by its number and interval.
    Ended {
        form: Seq,
        from: Time,
        to: Time,
    },
}

/// The times that an element covers: the time of a publication, the interval of a subscription. A
/// tombstone has the times of its target. A read of other times can skip the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementTimes {
    Publication(Time),
    /// Both ends included.
    Subscription {
        from: Time,
        to: Time,
    },
}

/// A publication as its element stores it; the sequence number is in the head.
#[derive(Debug)]
pub(crate) struct StoredPublication<'a> {
    pub(crate) time: Time,
    /// No publication with a smaller sequence number has a later time. So a walk from new to old
    /// may stop by it, even if clocks stepped back (section 5.2.1, made exact).
    pub(crate) latest: Time,
    pub(crate) expires: Time,
    pub(crate) place: Place,
    /// Empty if it has none.
    pub(crate) tag: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// How much a number must change for the publication to be received.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Threshold {
    /// By more than this.
    Absolute(f64),
    /// By more than this many per cent of the previous number.
    Percent(f64),
}

/// By how much a number in the body must change for a notification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredChange {
    pub(crate) path: Arc<str>,
    pub(crate) threshold: Threshold,
}

/// A form of a subscription, as elements and the directory store it.
#[derive(Debug)]
pub(crate) struct StoredSubscription<'a> {
    /// The number of its form: the sequence number of the write that made it. A move makes a new
    /// form. So does a renewal that may change which stored publications match.
    pub(crate) form: Seq,
    /// The number of the subscription: that of its first form.
    pub(crate) id: Seq,
    /// It receives publications with numbers from `begins` on, of which 0 excludes none, and before
    /// `ended`.
    pub(crate) begins: Seq,
    /// The number of the write that ended it; `None` while it is the newest form.
    pub(crate) ended: Option<Seq>,
    /// The time at which the form was made.
    pub(crate) made_at: Time,
    /// It receives publications with times from `from` to `to`, both included.
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) is_self_join: bool,
    /// True if it is filed under the anchors of its condition, which then has some.
    pub(crate) is_filed: bool,
    /// Empty if it belongs to no user.
    pub(crate) user: &'a [u8],
    pub(crate) tag: &'a [u8],
    pub(crate) place: Place,
    /// The condition that bodies must meet, as text.
    pub(crate) condition: Option<&'a str>,
    pub(crate) change: Option<StoredChange>,
}

/// [`Error::Damaged`] for stored data of publish/subscribe; `what` names the malformed data.
pub(crate) fn damaged(what: &str) -> Error {
    Error::Damaged {
        path: None,
        offset: None,
        what: format!("publish/subscribe: {what}"),
    }
}

/// Iterates over the elements of an operand, newest first. Decodes only their heads. Ends after the
/// first malformed element, which it returns as an error.
pub(crate) struct Elements<'a>(Reader<'a>);

impl<'a> Elements<'a> {
    pub(crate) fn of(operand: &'a [u8]) -> Elements<'a> {
        Elements(Reader::new(operand))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<RawElement<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let before = self.0.rest();
        let read = self.0.bytes().and_then(|content| {
            let len = before.len() - self.0.rest().len();
            RawElement::parse(content, before.own(..len))
        });
        let Some(raw) = read else {
            self.0 = Reader::new(&[]);
            return Some(Err(damaged("an element of a value list is malformed")));
        };
        Some(Ok(raw))
    }
}

impl<'a> RawElement<'a> {
    /// Decodes the head of an element; `content` is `encoded` without the length.
    fn parse(content: &'a [u8], encoded: &'a [u8]) -> Option<RawElement<'a>> {
        let mut input = Reader::new(content);
        Some(RawElement {
            kind: input.u8()?,
            seq: input.u64()?,
            drop_time: input.u64()?,
            rest: input.rest(),
            encoded,
        })
    }

    /// True for a publication or a tombstone of one.
    pub(crate) fn is_publication(&self) -> bool {
        matches!(self.kind, PUBLICATION | TAGGED | RETRACTED)
    }

    /// The publication or form whose older elements this one voids. A publication, and the first
    /// element of a form, void nothing.
    pub(crate) fn voids(&self) -> Option<Target> {
        match self.kind {
            PUBLICATION | TAGGED => None,
            SUBSCRIPTION if self.target_number() == Some(self.seq) => None,
            _ => self.target(),
        }
    }

    /// The publication or form that the element concerns.
    pub(crate) fn target(&self) -> Option<Target> {
        match self.kind {
            PUBLICATION | TAGGED => Some(Target::Publication(self.seq)),
            RETRACTED => Some(Target::Publication(self.target_number()?)),
            SUBSCRIPTION | ENDED => Some(Target::Subscription(self.target_number()?)),
            _ => None,
        }
    }

    /// The number of the publication or form that the element concerns, which every element except
    /// a publication begins with.
    fn target_number(&self) -> Option<Seq> {
        Reader::new(self.rest).u64()
    }

    /// The end of a subscription's interval, without decoding the rest.
    pub(crate) fn subscription_end(&self) -> Option<Time> {
        match self.kind {
            SUBSCRIPTION => self.time_at(TO),
            _ => None,
        }
    }

    /// The times that it covers, without decoding the rest.
    pub(crate) fn times(&self) -> Option<ElementTimes> {
        let interval = |at| {
            let end = at + size_of::<Time>();
            Some(ElementTimes::Subscription {
                from: self.time_at(at)?,
                to: self.time_at(end)?,
            })
        };
        match self.kind {
            PUBLICATION | TAGGED => self.time_at(0).map(ElementTimes::Publication),
            RETRACTED => self.time_at(TARGET_TIMES).map(ElementTimes::Publication),
            SUBSCRIPTION => interval(FROM),
            ENDED => interval(TARGET_TIMES),
            _ => None,
        }
    }

    /// The time at an offset in `rest`; `None` if the element is too short.
    fn time_at(&self, offset: usize) -> Option<Time> {
        time(&mut Reader::new(self.rest.get(offset..)?))
    }

    /// True for a subscription of this user.
    pub(crate) fn is_subscription_of(&self, user: &[u8]) -> bool {
        let stored = || Reader::new(self.rest.get(USER..)?).bytes();
        self.kind == SUBSCRIPTION && stored() == Some(user)
    }

    /// True if it only voids other elements.
    pub(crate) fn is_tombstone(&self) -> bool {
        matches!(self.kind, RETRACTED | ENDED)
    }

    /// Decodes the rest of the element.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is malformed.
    pub(crate) fn decode(&self) -> Result<Element<'a>> {
        let mut input = Reader::new(self.rest);
        let read = match self.kind {
            PUBLICATION | TAGGED => {
                let is_tagged = self.kind == TAGGED;
                StoredPublication::decode(&mut input, is_tagged).map(Element::Publication)
            }
            RETRACTED => decode_retracted(&mut input),
            SUBSCRIPTION => StoredSubscription::decode(&mut input).map(Element::Subscription),
            ENDED => decode_ended(&mut input),
            _ => None,
        };
        read.ok_or_else(|| damaged("the content of a value list's element is malformed"))
    }
}

/// The publication or subscription that an element concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Publication(Seq),
    /// By the number of its form.
    Subscription(Seq),
}

fn time(input: &mut Reader<'_>) -> Option<Time> {
    Some(input.u64()? as Time)
}

fn decode_retracted<'a>(input: &mut Reader<'_>) -> Option<Element<'a>> {
    Some(Element::Retracted {
        publication: input.u64()?,
        time: time(input)?,
    })
}

fn decode_ended<'a>(input: &mut Reader<'_>) -> Option<Element<'a>> {
    Some(Element::Ended {
        form: input.u64()?,
        from: time(input)?,
        to: time(input)?,
    })
}

/// Offset of the target's times within a tombstone: behind the target's number.
const TARGET_TIMES: usize = size_of::<u64>();
/// Offsets within a subscription: of its interval, and of its user, which follows seven numbers and
/// the flags.
const FROM: usize = 5 * size_of::<u64>();
const TO: usize = 6 * size_of::<u64>();
const USER: usize = 7 * size_of::<u64>() + 1;

/// Stored as the end of a form that has not ended: no write has this number.
const NOT_ENDED: Seq = 0;

/// Flags of a subscription.
const SELF_JOIN: u8 = 1;
const ON_CHANGE: u8 = 2;
const RELATIVE: u8 = 4;
const FILED: u8 = 8;

impl<'a> StoredPublication<'a> {
    fn decode(input: &mut Reader<'a>, is_tagged: bool) -> Option<StoredPublication<'a>> {
        Some(StoredPublication {
            time: time(input)?,
            latest: time(input)?,
            expires: time(input)?,
            place: Place::decode(input)?,
            tag: if is_tagged { input.bytes()? } else { &[] },
            body: input.rest(),
        })
    }

    /// True if it has not expired at `now`, nor at its own time, which may be ahead of the clock.
    pub(crate) fn is_alive(&self, now: Time) -> bool {
        lives_at(self.expires, self.time.max(now))
    }
}

impl<'a> StoredSubscription<'a> {
    /// Decodes what [`StoredSubscription::encode`] wrote; `None` if it is malformed.
    pub(crate) fn decode(input: &mut Reader<'a>) -> Option<StoredSubscription<'a>> {
        let (form, id, begins, ended) = (input.u64()?, input.u64()?, input.u64()?, input.u64()?);
        let (made_at, from, to) = (time(input)?, time(input)?, time(input)?);
        let flags = input.u8()?;
        let (user, tag) = (input.bytes()?, input.bytes()?);
        let place = Place::decode(input)?;
        let condition = std::str::from_utf8(input.bytes()?).ok()?;
        let change = if flags & ON_CHANGE == 0 {
            None
        } else {
            let path = std::str::from_utf8(input.bytes()?).ok()?.into();
            let by = f64::from_bits(input.u64()?);
            let threshold = if flags & RELATIVE == 0 {
                Threshold::Absolute(by)
            } else {
                Threshold::Percent(by)
            };
            Some(StoredChange { path, threshold })
        };
        Some(StoredSubscription {
            form,
            id,
            begins,
            ended: Some(ended).filter(|ended| *ended != NOT_ENDED),
            made_at,
            from,
            to,
            is_self_join: flags & SELF_JOIN != 0,
            is_filed: flags & FILED != 0,
            user,
            tag,
            place,
            condition: Some(condition).filter(|condition| !condition.is_empty()),
            change,
        })
    }

    /// A copy that borrows the same texts.
    pub(crate) fn copy(&self) -> StoredSubscription<'a> {
        StoredSubscription {
            place: self.place.clone(),
            change: self.change.clone(),
            ..*self
        }
    }

    /// Estimated bytes of the encoding.
    pub(crate) fn estimated_len(&self) -> usize {
        let condition = self.condition.map_or(0, str::len);
        FIXED_LEN_ESTIMATE + self.user.len() + self.tag.len() + condition
    }

    /// True if a publication with this number and time lies within its bounds and its interval.
    pub(crate) fn has_met(&self, seq: Seq, time: Time) -> bool {
        let is_within = seq >= self.begins && self.ended.is_none_or(|ended| seq < ended);
        is_within && time >= self.from && time <= self.to
    }

    /// True if it received a matching publication with this number, time and expiry.
    pub(crate) fn has_received(&self, seq: Seq, time: Time, expires: Time) -> bool {
        // A form receives earlier publications when it is made, later ones when they are published.
        let received_at = if seq < self.form {
            self.made_at.max(time)
        } else {
            time
        };
        self.has_met(seq, time) && lives_at(expires, received_at)
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let ended = self.ended.unwrap_or(NOT_ENDED);
        let numbers = [self.form, self.id, self.begins, ended];
        let times = [self.made_at, self.from, self.to].map(|time| time as u64);
        for number in numbers.into_iter().chain(times) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let threshold = self.change.as_ref().map(|change| change.threshold);
        let flags = [
            (self.is_self_join, SELF_JOIN),
            (threshold.is_some(), ON_CHANGE),
            (matches!(threshold, Some(Threshold::Percent(_))), RELATIVE),
            (self.is_filed, FILED),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        out.push(set.fold(0, |all, (_, flag)| all | flag));
        put_bytes(out, self.user);
        put_bytes(out, self.tag);
        self.place.encode(out);
        put_bytes(out, self.condition.unwrap_or("").as_bytes());
        if let Some(StoredChange { path, threshold }) = &self.change {
            let (Threshold::Absolute(by) | Threshold::Percent(by)) = threshold;
            put_bytes(out, path.as_bytes());
            out.extend_from_slice(&by.to_le_bytes());
        }
    }
}

impl Element<'_> {
    /// Appends the stored form of the element that write `seq` writes, and that can be dropped from
    /// `drop_time` of the store's clock on.
    pub(crate) fn encode(&self, seq: Seq, drop_time: Tick, out: &mut Vec<u8>) {
        let number = |n: u64, out: &mut Vec<u8>| out.extend_from_slice(&n.to_le_bytes());
        let begin = out.len();
        out.reserve(self.estimated_len());
        out.push(self.kind());
        number(seq, out);
        number(drop_time, out);
        match self {
            Element::Publication(publication) => {
                number(publication.time as u64, out);
                number(publication.latest as u64, out);
                number(publication.expires as u64, out);
                publication.place.encode(out);
                if !publication.tag.is_empty() {
                    put_bytes(out, publication.tag);
                }
                out.extend_from_slice(publication.body);
            }
            Element::Retracted { publication, time } => {
                number(*publication, out);
                number(*time as u64, out);
            }
            Element::Subscription(subscription) => subscription.encode(out),
            Element::Ended { form, from, to } => {
                number(*form, out);
                number(*from as u64, out);
                number(*to as u64, out);
            }
        }
        // The length goes first, but is known last.
        let end = out.len();
        put_varint(out, (end - begin) as u64);
        let len = out.len() - end;
        out.own_mut(begin..).rotate_right(len);
    }

    fn kind(&self) -> u8 {
        match self {
            Element::Publication(publication) if publication.tag.is_empty() => PUBLICATION,
            Element::Publication(_) => TAGGED,
            Element::Retracted { .. } => RETRACTED,
            Element::Subscription(_) => SUBSCRIPTION,
            Element::Ended { .. } => ENDED,
        }
    }

    /// Estimated bytes of the encoding, seldom too few.
    fn estimated_len(&self) -> usize {
        match self {
            Element::Publication(publication) => {
                FIXED_LEN_ESTIMATE + publication.tag.len() + publication.body.len()
            }
            Element::Subscription(subscription) => {
                FIXED_LEN_ESTIMATE + subscription.estimated_len()
            }
            Element::Retracted { .. } | Element::Ended { .. } => FIXED_LEN_ESTIMATE,
        }
    }
}
