//! The selection of the lists that a publication or a subscription must read.
//!
//! Topics overlap if they are equal or one is an ancestor of the other, and so do cells. A node and
//! its ancestors are a few keys, given the levels that exist ([`crate::lists::shape`]); its
//! descendants are a range of keys (the paper's Algorithm 5, which omits the ancestors).

use std::borrow::Cow;

use esker_coding::Own;

use crate::forms::anchor::AnchorRange;
use crate::forms::body::{ValueAt, values_of};
use crate::forms::cell::Cell;
use crate::forms::keys::{self, Filed, KeyRange, List};
use crate::forms::topic::{
    PatternLevels, Reach, Topic, TopicFilter, is_reserved, level_ends, with_wildcards,
};
use crate::lists::shape::{KnownAnchor, KnownShapes, KnownSubscriptions, SubscriptionShape};
use crate::lists::walk::Span;

/// The first `levels` levels of an encoded topic, which has at least as many.
fn first_levels(encoded: &[u8], levels: u8) -> &[u8] {
    let end = match usize::from(levels) {
        0 => 0,
        levels => *level_ends(encoded).own(levels - 1),
    };
    encoded.own(..end)
}

/// The quarters of the ancestor of a cell at `level`, which is no deeper than the cell.
fn first_quarters(cell: &Cell, level: u8) -> &[u8] {
    cell.quarters().own(..usize::from(level))
}

/// The lists that may hold subscriptions matching a publication.
pub(crate) fn for_publication(
    known: &KnownShapes,
    topic: &Topic,
    cells: &[Cell],
    body: &[u8],
) -> Vec<Span> {
    let encoded = topic.encoded();
    let ends = level_ends(encoded);
    let finder = known.value_finder.as_ref();
    let values = finder.map_or_else(Vec::new, |finder| values_of(finder, body));
    let mut spans = Vec::new();
    for KnownSubscriptions {
        shape,
        known_anchor,
    } in &known.subscriptions
    {
        let list = List::Subscriptions(shape.reach, Filed::by(known_anchor.as_ref()));
        let add_of_node = |spans: &mut Vec<Span>, node| {
            let key = keys::list_of_node(node, list);
            match known_anchor {
                Some(anchor) => spans.extend(parts_of(&key, anchor, &values)),
                None => spans.push(Span::key(key)),
            }
        };
        let patterns = patterns_of(shape, encoded, &ends);
        add_lists(&mut spans, patterns, shape.cell_level, cells, add_of_node);
    }
    spans
}

/// The patterns of a shape whose subscriptions can concern a topic, which is encoded and whose
/// levels end at `ends`. Subscriptions to all overlapping topics can also be below the topic.
/// `None` if no pattern of the shape fits the topic.
fn patterns_of<'t>(
    shape: &SubscriptionShape,
    encoded: &'t [u8],
    ends: &[usize],
) -> Option<TopicRange<'t>> {
    let PatternLevels { count, wild } = shape.pattern_levels;
    let (pattern_levels, topic_levels) = (usize::from(count), ends.len());
    match shape.reach {
        Reach::Overlap if pattern_levels > topic_levels => return Some(TopicRange::Below(encoded)),
        Reach::Exact if pattern_levels != topic_levels => return None,
        Reach::Below if pattern_levels > topic_levels => return None,
        _ => {}
    }
    let begins_wild = count == 0 || wild & 1 == 1;
    if shape.reach != Reach::Overlap && begins_wild && is_reserved(encoded) {
        return None;
    }
    let pattern = with_wildcards(encoded, ends, shape.pattern_levels);
    Some(TopicRange::One(pattern.into()))
}

/// The parts of the list at `key`, whose subscriptions are filed under an anchor, that can have a
/// condition which these values meet.
fn parts_of(key: &[u8], anchor: &KnownAnchor, values: &[ValueAt]) -> impl Iterator<Item = Span> {
    let at_path = values
        .iter()
        .filter(|value| value.path_number == anchor.path_number);
    let probes = at_path.filter_map(|value| anchor.shape.probe(value.scalar()));
    probes.map(|probe| filed_under(key, anchor, &probe))
}

/// The part of the list at `key`, whose subscriptions are filed, with anchors in `probe`.
fn filed_under(key: &[u8], anchor: &KnownAnchor, probe: &AnchorRange) -> Span {
    let with = |value: &[u8]| [key, &anchor.prefix, value].concat();
    if probe.first == probe.last {
        Span::key(with(&probe.first))
    } else {
        Span::Range(KeyRange {
            start: with(&probe.first),
            end: [with(&probe.last), vec![0]].concat(),
        })
    }
}

/// The lists that may hold publications matching a subscription.
pub(crate) fn for_subscription(
    known: &KnownShapes,
    topics: &TopicFilter,
    cells: &[Cell],
) -> Vec<Span> {
    let mut spans = Vec::new();
    for shape in &known.publications {
        let topics = topics_at(topics, shape.levels);
        let add_of_node = |spans: &mut Vec<Span>, node| {
            spans.push(Span::key(keys::list_of_node(node, List::Publications)));
        };
        add_lists(&mut spans, topics, shape.cell_level, cells, add_of_node);
    }
    spans
}

/// The lists that may hold other subscriptions to the same topics and cells: a self-join reads them
/// for earlier subscriptions of its user.
pub(crate) fn for_self_join(
    known: &KnownShapes,
    topics: &TopicFilter,
    cells: &[Cell],
) -> Vec<Span> {
    let mut spans = Vec::new();
    let shapes = known.subscriptions.iter().map(|known| &known.shape);
    for shape in shapes.filter(|shape| shape.reach == Reach::Overlap) {
        let patterns = topics_at(topics, shape.pattern_levels.count);
        let add_of_node = |spans: &mut Vec<Span>, node: Vec<u8>| {
            spans.push(subscriptions_of(&node, shape));
        };
        add_lists(&mut spans, patterns, shape.cell_level, cells, add_of_node);
    }
    spans
}

/// The list of a node that has subscriptions of this shape, under any anchor.
fn subscriptions_of(node: &[u8], shape: &SubscriptionShape) -> Span {
    let filing = Filed::by(shape.anchor.as_ref());
    let byte = List::Subscriptions(shape.reach, filing).byte();
    let start = [node, &[byte]].concat();
    match filing {
        Filed::Plain => Span::key(start),
        // Up to the next list of the node.
        Filed::UnderAnchors => Span::Range(KeyRange {
            start,
            end: [node, &[byte + 1]].concat(),
        }),
    }
}

/// Encoded topics, or patterns: one, or those below a topic.
enum TopicRange<'t> {
    One(Cow<'t, [u8]>),
    Below(&'t [u8]),
}

/// The topics with this number of levels that a filter matches. The range of a filter with
/// wildcards can have others, too. `None` if the filter matches no topic with so many levels.
fn topics_at(topics: &TopicFilter, levels: u8) -> Option<TopicRange<'_>> {
    let pattern = topics.pattern();
    let PatternLevels { count, wild } = topics.levels();
    match topics.reach() {
        Reach::Overlap if levels <= count => {
            Some(TopicRange::One(first_levels(pattern, levels).into()))
        }
        Reach::Overlap => Some(TopicRange::Below(pattern)),
        Reach::Exact if levels != count => None,
        Reach::Below if levels < count => None,
        _ if wild != 0 => Some(TopicRange::Below(topics.fixed())),
        _ if levels == count => Some(TopicRange::One(pattern.into())),
        _ => Some(TopicRange::Below(pattern)),
    }
}

/// Adds the lists of nodes that are in a range of topics, have cells of `cell_level`, and overlap
/// one of `cells`. For a single node, given its key, `add_of_node` adds the lists; of the nodes
/// below a topic or a cell, all lists are added as one range.
fn add_lists(
    spans: &mut Vec<Span>,
    topics: Option<TopicRange<'_>>,
    cell_level: u8,
    cells: &[Cell],
    add_of_node: impl Fn(&mut Vec<Span>, Vec<u8>),
) {
    match topics {
        Some(TopicRange::One(topic)) => {
            for cell in cells {
                if cell_level <= cell.level() {
                    add_of_node(spans, keys::node(&topic, first_quarters(cell, cell_level)));
                } else {
                    spans.push(Span::Range(keys::below_cell(&topic, cell.quarters())));
                }
            }
        }
        Some(TopicRange::Below(topic)) => spans.push(Span::Range(keys::below_topic(topic))),
        None => {}
    }
}
