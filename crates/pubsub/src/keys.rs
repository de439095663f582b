//! The keys of value lists.
//!
//! A *node* is a topic and a cell: the topic's encoding, `1`, the numbers of the quarters that lead to the cell, `0`. It
//! has a list of publications and several of subscriptions, which lie side by side behind it (DualDB, section 5.3):
//! its key and one byte that names the list, then the anchor where the list is filed by one. A topic's descendants
//! follow it, and so do a cell's within its topic.

use crate::anchor::Anchor;
use crate::cell::Cell;
use crate::topic::{Reach, Topic, split_level};

/// The end of a topic.
const END: u8 = 1;
/// What a cell's quarters, or a topic's levels, are less than.
const BEYOND: u8 = 5;

/// Which list of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
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

/// A key, taken apart.
#[derive(Debug)]
pub(crate) struct ListKey<'a> {
    pub(crate) topic: &'a [u8],
    pub(crate) cell: &'a [u8],
    pub(crate) list: List,
}

impl<'a> ListKey<'a> {
    pub(crate) fn parse(key: &'a [u8]) -> Option<ListKey<'a>> {
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

    pub(crate) fn topic(&self) -> Option<Topic> {
        Topic::decode(self.topic)
    }
}

/// The key of a node, without that of one of its lists.
pub(crate) fn node(topic: &[u8], cell: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(topic.len() + cell.len() + 16);
    key.extend_from_slice(topic);
    key.push(END);
    key.extend_from_slice(cell);
    key.push(0);
    key
}

/// The key of a list that is not filed.
pub(crate) fn list(topic: &[u8], cell: &[u8], list: List) -> Vec<u8> {
    let mut key = node(topic, cell);
    key.push(list.byte());
    key
}

/// The key of the list in which a subscription is filed.
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

/// The keys of all nodes strictly below a cell, in one topic: from, and before.
pub(crate) fn below_cell(topic: &[u8], cell: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut low = node(topic, cell);
    low.pop();
    let mut high = low.clone();
    low.push(1);
    high.push(BEYOND);
    (low, high)
}

/// The keys of all nodes strictly below a topic: from, and before. Those of wildcards among them.
pub(crate) fn below_topic(topic: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut low, mut high) = (topic.to_vec(), topic.to_vec());
    low.push(END + 1);
    high.push(BEYOND);
    (low, high)
}
