//! The directory of a broker: the tree with the shapes of the lists, the stored subscriptions by
//! number, the late publications, and the latest time of all publications.
//!
//! The first byte of a key identifies the sort of entry; [`crate::lists::trees`] lists them.

use std::collections::HashMap;

use esker::extension::{Cursor, MAX_SEQ, Snapshot, TreeId};
use esker::{Result, Seq};
use esker_coding::{Misplaced, Reader, put_bytes};

use crate::forms::element::{StoredSubscription, Tick, Time, damaged};
use crate::forms::topic::TopicFilter;
use crate::lists::shape::{Shape, ShapeUntil};

/// The prefix of the keys of subscriptions.
const SUBSCRIPTION: u8 = b'i';
/// The prefix of the keys of late publications.
const LATE: u8 = b'l';
/// The prefix of the keys of shapes.
const SHAPE: u8 = b's';

/// The key of the latest time of all publications.
pub(crate) const LATEST_TIME_KEY: &[u8] = b"t";

/// The key of a shape.
pub(crate) fn shape_key(shape: &Shape) -> Vec<u8> {
    [&[SHAPE], shape.encode().as_slice()].concat()
}

/// The key of a subscription.
pub(crate) fn subscription_key(id: Seq) -> Vec<u8> {
    [&[SUBSCRIPTION], id.to_be_bytes().as_slice()].concat()
}

/// The key of a late publication: one written with a time long past. The value is the time of the
/// store's clock at the write.
pub(crate) fn late_key(seq: Seq) -> Vec<u8> {
    [&[LATE], seq.to_be_bytes().as_slice()].concat()
}

/// A cursor over the entries of the directory whose keys begin with a prefix.
fn prefix_range(snapshot: &Snapshot, directory: TreeId, prefix: u8) -> impl Cursor + use<> {
    let mut cursor = snapshot.cursor(directory, 0);
    // The prefixes are letters.
    cursor.within(&[prefix], Some(&[prefix + 1]));
    cursor
}

/// The late publications from sequence number `first` to sequence number `last`, with the times of
/// the store's clock when they were written. Costs one seek and a step for each.
///
/// # Errors
/// Any read error; [`esker::Error::Damaged`] if an entry is malformed.
pub(crate) fn read_late(
    snapshot: &Snapshot,
    directory: TreeId,
    first: Seq,
    last: Seq,
) -> Result<HashMap<Seq, Tick>> {
    debug_assert!(first <= last, "the sequence numbers are in order");
    let mut cursor = prefix_range(snapshot, directory, LATE);
    let mut late = HashMap::new();
    cursor.seek(&late_key(first), MAX_SEQ)?;
    while cursor.valid() {
        let (Ok([LATE, seq @ ..]), Ok(clock)) = (
            <&[u8; 9]>::try_from(cursor.key()),
            <[u8; 8]>::try_from(cursor.value()),
        ) else {
            return Err(damaged("the write time of a publication is malformed"));
        };
        let seq = Seq::from_be_bytes(*seq);
        if seq > last {
            break;
        }
        late.insert(seq, Tick::from_le_bytes(clock));
        cursor.next()?;
    }
    Ok(late)
}

/// The entry of a subscription: what it was when it was made, and after each change.
pub(crate) struct SubscriptionEntry<'a> {
    pub(crate) topics: TopicFilter,
    /// Its newest form.
    pub(crate) newest: StoredSubscription<'a>,
    /// Its older forms, newest first.
    pub(crate) older: Vec<StoredSubscription<'a>>,
}

impl<'a> SubscriptionEntry<'a> {
    /// Decodes an entry.
    ///
    /// # Errors
    /// [`esker::Error::Damaged`] if it is malformed or has no form.
    pub(crate) fn decode(stored: &'a [u8]) -> Result<SubscriptionEntry<'a>> {
        SubscriptionEntry::parse(stored)
            .ok_or_else(|| damaged("a subscription in the directory is malformed"))
    }

    fn parse(stored: &'a [u8]) -> Option<SubscriptionEntry<'a>> {
        let mut input = Reader::new(stored);
        let topics = TopicFilter::decode(input.bytes()?)?;
        let newest = StoredSubscription::decode(&mut input)?;
        let mut older = Vec::new();
        while !input.is_empty() {
            older.push(StoredSubscription::decode(&mut input)?);
        }
        Some(SubscriptionEntry {
            topics,
            newest,
            older,
        })
    }

    /// All its forms, newest first.
    pub(crate) fn forms(&self) -> impl Iterator<Item = &StoredSubscription<'a>> {
        std::iter::once(&self.newest).chain(&self.older)
    }
}

/// Encodes the entry of a subscription: its topics, then its forms, newest first.
pub(crate) fn encode_subscription(
    topics: &TopicFilter,
    newest: &StoredSubscription<'_>,
    older: &[StoredSubscription<'_>],
) -> Vec<u8> {
    debug_assert!(
        older.is_sorted_by(|a, b| a.form > b.form),
        "the forms are newest first"
    );
    let topics = topics.encode();
    let mut out = Vec::with_capacity(topics.len() + newest.estimated_len());
    put_bytes(&mut out, &topics);
    for form in std::iter::once(newest).chain(older) {
        form.encode(&mut out);
    }
    out
}

/// The stored entry of a subscription; `None` if it has none.
///
/// # Errors
/// Any read error.
pub(crate) fn read_subscription(
    snapshot: &Snapshot,
    directory: TreeId,
    id: Seq,
) -> Result<Option<Vec<u8>>> {
    let entry = snapshot.get(directory, &subscription_key(id), &snapshot.cost())?;
    Ok(entry.map(|entry| entry.value.to_vec()))
}

/// The stored latest time of all publications; `None` if there was none yet.
///
/// # Errors
/// Any read error; [`esker::Error::Damaged`] if the entry is malformed.
pub(crate) fn read_latest(snapshot: &Snapshot, directory: TreeId) -> Result<Option<Time>> {
    let entry = snapshot.get(directory, LATEST_TIME_KEY, &snapshot.cost())?;
    let latest = entry.map(|entry| {
        let latest = <[u8; 8]>::try_from(&*entry.value);
        let latest = latest.map_err(|_| damaged("the latest time is malformed"))?;
        Ok(Time::from_le_bytes(latest))
    });
    latest.transpose()
}

/// All stored shapes.
///
/// # Errors
/// Any read error; [`esker::Error::Damaged`] if an entry is malformed.
pub(crate) fn read_shapes(snapshot: &Snapshot, directory: TreeId) -> Result<Vec<ShapeUntil>> {
    let mut cursor = prefix_range(snapshot, directory, SHAPE);
    let mut shapes = Vec::new();
    cursor.seek_first()?;
    while cursor.valid() {
        // The cursor stays within the prefix.
        let encoded = cursor.key().strip_prefix(&[SHAPE]);
        let shape = Shape::decode(encoded.ok_or_else(|| Misplaced::here())?);
        let until = <[u8; 8]>::try_from(cursor.value());
        let (Some(shape), Ok(until)) = (shape, until) else {
            return Err(damaged("a shape in the directory is malformed"));
        };
        let until = Time::from_le_bytes(until);
        shapes.push(ShapeUntil { shape, until });
        cursor.next()?;
    }
    Ok(shapes)
}
