//! The keys of value lists.
//!
//! A *node* is a topic and a cell. Its key is the topic's encoding, `1`, the cell's quarters, `0`.
//! A node has one list of publications and several of subscriptions, side by side (DualDB, section
//! 5.3): the key of a list is the key of its node, a byte that identifies the list, and the anchor
//! if its subscriptions are filed. Descendants sort directly behind their ancestor: topics behind
//! their topic, and cells, within one topic, behind their cell.

use esker::Result;

use crate::anchor::Anchor;
use crate::cell::Cell;
use crate::element::damaged;
use crate::topic::{Reach, Topic, split_level};

/// The end of a topic.
const END: u8 = 1;
/// Greater than every quarter of a cell, and than the first byte of every level of a topic.
const BEYOND: u8 = 5;

/// A list of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// By reach, and whether the subscriptions are filed under anchors.
    Subscriptions(Reach, bool),
    Publications,
}

impl List {
    pub(crate) fn byte(self) -> u8 {
        match self {
            List::Subscriptions(Reach::Overlap, false) => 0,
            List::Publications => 1,
            List::Subscriptions(Reach::Overlap, true) => 2,
            List::Subscriptions(Reach::Exact, false) => 3,
            List::Subscriptions(Reach::Exact, true) => 4,
            List::Subscriptions(Reach::Below, false) => 5,
            List::Subscriptions(Reach::Below, true) => 6,
        }
    }

    fn from_byte(byte: u8) -> Option<List> {
        Some(match byte {
            0 => List::Subscriptions(Reach::Overlap, false),
            1 => List::Publications,
            2 => List::Subscriptions(Reach::Overlap, true),
            3 => List::Subscriptions(Reach::Exact, false),
            4 => List::Subscriptions(Reach::Exact, true),
            5 => List::Subscriptions(Reach::Below, false),
            6 => List::Subscriptions(Reach::Below, true),
            _ => return None,
        })
    }
}

/// A parsed key, without the anchor.
#[derive(Debug)]
pub(crate) struct ListKey<'a> {
    pub(crate) topic: &'a [u8],
    pub(crate) cell: &'a [u8],
    pub(crate) list: List,
}

impl<'a> ListKey<'a> {
    /// # Errors
    /// If it is not the key of a list, which is damage.
    pub(crate) fn parse(key: &'a [u8]) -> Result<ListKey<'a>> {
        ListKey::read(key).ok_or_else(|| damaged("the key of a value list is malformed"))
    }

    fn read(key: &'a [u8]) -> Option<ListKey<'a>> {
        let mut rest = key;
        while rest.first() != Some(&END) {
            rest = split_level(rest)?.1;
        }
        let topic = key.get(..key.len() - rest.len())?;
        let rest = rest.get(1..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        let list = List::from_byte(*rest.get(end + 1)?)?;
        let cell = rest.get(..end)?;
        Some(ListKey { topic, cell, list })
    }

    /// The topic of a list of publications.
    ///
    /// # Errors
    /// If it is damaged: it may have no wildcards.
    pub(crate) fn topic(&self) -> Result<Topic> {
        Topic::decode(self.topic).ok_or_else(|| damaged("the topic of a value list is malformed"))
    }
}

/// The key of a node, which the keys of its lists begin with.
pub(crate) fn node(topic: &[u8], cell: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(topic.len() + cell.len() + 16);
    key.extend_from_slice(topic);
    key.push(END);
    key.extend_from_slice(cell);
    key.push(0);
    key
}

/// The key of a list, without an anchor.
pub(crate) fn list(topic: &[u8], cell: &[u8], list: List) -> Vec<u8> {
    let mut key = node(topic, cell);
    key.push(list.byte());
    key
}

/// The key of the list that holds a subscription.
pub(crate) fn subscriptions(
    pattern: &[u8],
    cell: &Cell,
    reach: Reach,
    anchor: Option<&Anchor>,
) -> Vec<u8> {
    let of = List::Subscriptions(reach, anchor.is_some());
    let mut key = list(pattern, cell.quarters(), of);
    if let Some(anchor) = anchor {
        key.extend(anchor.key());
    }
    key
}

/// The key range of all nodes strictly below a cell, in one topic: start, and end (excluded).
pub(crate) fn below_cell(topic: &[u8], cell: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut low = node(topic, cell);
    low.pop();
    let mut high = low.clone();
    low.push(1);
    high.push(BEYOND);
    (low, high)
}

/// The key range of all nodes strictly below a topic, including wildcards: start, and end
/// (excluded).
pub(crate) fn below_topic(topic: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut low, mut high) = (topic.to_vec(), topic.to_vec());
    low.push(END + 1);
    high.push(BEYOND);
    (low, high)
}
