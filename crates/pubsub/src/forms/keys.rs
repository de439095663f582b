//! The keys of value lists.
//!
//! A *node* is a topic and a cell. Its key is the topic's encoding, `1`, the cell's quarters, `0`.
//! A node has one list of publications and several of subscriptions, side by side (DualDB, section
//! 5.3): the key of a list is the key of its node, a byte that identifies the list, and the anchor
//! if its subscriptions are filed. Descendants sort directly behind their ancestor: topics behind
//! their topic, and cells, within one topic, behind their cell.

use esker::Result;

use crate::forms::anchor::Anchor;
use crate::forms::cell::Cell;
use crate::forms::element::damaged;
use crate::forms::topic::{MAX_LEVELS, Reach, Topic, split_level};

/// The end of a topic.
const TOPIC_END: u8 = 1;
/// The end of a cell.
const CELL_END: u8 = 0;
/// Greater than every quarter of a cell, and than the first byte of every level of a topic.
const BEYOND: u8 = 5;

/// A list of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    Subscriptions(Reach, Filed),
    Publications,
}

/// How the subscriptions of a list are filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Filed {
    /// In the list of their node.
    Plain,
    /// In a list for each anchor of their conditions.
    UnderAnchors,
}

impl Filed {
    /// The filing of a subscription with this anchor or without one.
    pub(crate) fn by<A>(anchor: Option<A>) -> Filed {
        if anchor.is_some() {
            Filed::UnderAnchors
        } else {
            Filed::Plain
        }
    }
}

impl List {
    /// The byte that identifies the list in keys.
    pub(crate) fn byte(self) -> u8 {
        match self {
            List::Subscriptions(Reach::Overlap, Filed::Plain) => 0,
            List::Publications => 1,
            List::Subscriptions(Reach::Overlap, Filed::UnderAnchors) => 2,
            List::Subscriptions(Reach::Exact, Filed::Plain) => 3,
            List::Subscriptions(Reach::Exact, Filed::UnderAnchors) => 4,
            List::Subscriptions(Reach::Below, Filed::Plain) => 5,
            List::Subscriptions(Reach::Below, Filed::UnderAnchors) => 6,
        }
    }

    fn from_byte(byte: u8) -> Option<List> {
        Some(match byte {
            0 => List::Subscriptions(Reach::Overlap, Filed::Plain),
            1 => List::Publications,
            2 => List::Subscriptions(Reach::Overlap, Filed::UnderAnchors),
            3 => List::Subscriptions(Reach::Exact, Filed::Plain),
            4 => List::Subscriptions(Reach::Exact, Filed::UnderAnchors),
            5 => List::Subscriptions(Reach::Below, Filed::Plain),
            6 => List::Subscriptions(Reach::Below, Filed::UnderAnchors),
            _ => return None,
        })
    }
}

/// A parsed key, without the anchor.
#[derive(Debug)]
pub(crate) struct ListKey<'a> {
    /// The encoded topic, or the encoded pattern of a list of subscriptions.
    pub(crate) topic: &'a [u8],
    /// The quarters of the cell.
    pub(crate) cell: &'a [u8],
    pub(crate) list: List,
}

impl<'a> ListKey<'a> {
    /// Parses the key of a list.
    ///
    /// # Errors
    /// [`esker::Error::Damaged`] if it is not the key of a list.
    pub(crate) fn parse(key: &'a [u8]) -> Result<ListKey<'a>> {
        ListKey::read(key).ok_or_else(|| damaged("the key of a value list is malformed"))
    }

    fn read(key: &'a [u8]) -> Option<ListKey<'a>> {
        let mut rest = key;
        let mut levels = 0;
        while rest.first() != Some(&TOPIC_END) {
            rest = split_level(rest)?.1;
            levels += 1;
        }
        if levels > MAX_LEVELS {
            return None;
        }
        let topic = key.get(..key.len() - rest.len())?;
        let rest = rest.get(1..)?;
        let end = rest.iter().position(|b| *b == CELL_END)?;
        let list = List::from_byte(*rest.get(end + 1)?)?;
        let cell = rest.get(..end)?;
        Some(ListKey { topic, cell, list })
    }

    /// The topic of a list of publications.
    ///
    /// # Errors
    /// [`esker::Error::Damaged`] if it is malformed or has a wildcard.
    pub(crate) fn topic(&self) -> Result<Topic> {
        Topic::decode(self.topic).ok_or_else(|| damaged("the topic of a value list is malformed"))
    }

    /// True if the cell of the list overlaps one of these.
    pub(crate) fn is_in(&self, cells: &[Cell]) -> bool {
        cells.iter().any(|cell| {
            cell.quarters().starts_with(self.cell) || self.cell.starts_with(cell.quarters())
        })
    }
}

/// A range of keys, from `start` to before `end`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyRange {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// The key of a node, which the keys of its lists begin with.
pub(crate) fn node(topic: &[u8], cell: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(topic.len() + cell.len() + 16);
    key.extend_from_slice(topic);
    key.push(TOPIC_END);
    key.extend_from_slice(cell);
    key.push(CELL_END);
    key
}

/// The key of a list, without an anchor.
pub(crate) fn list(topic: &[u8], cell: &[u8], list: List) -> Vec<u8> {
    list_of_node(node(topic, cell), list)
}

/// The key of a list of a node, without an anchor.
pub(crate) fn list_of_node(node: Vec<u8>, list: List) -> Vec<u8> {
    let mut key = node;
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
    let kind = List::Subscriptions(reach, Filed::by(anchor));
    let mut key = list(pattern, cell.quarters(), kind);
    if let Some(anchor) = anchor {
        key.extend(anchor.key());
    }
    key
}

/// The keys of all nodes strictly below a cell, in one topic.
pub(crate) fn below_cell(topic: &[u8], cell: &[u8]) -> KeyRange {
    let mut start = node(topic, cell);
    start.pop();
    let mut end = start.clone();
    start.push(CELL_END + 1);
    end.push(BEYOND);
    KeyRange { start, end }
}

/// The keys of all nodes strictly below a topic, including those with wildcards.
pub(crate) fn below_topic(topic: &[u8]) -> KeyRange {
    let (mut start, mut end) = (topic.to_vec(), topic.to_vec());
    start.push(TOPIC_END + 1);
    end.push(BEYOND);
    KeyRange { start, end }
}
