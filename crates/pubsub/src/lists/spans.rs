//! The lists that a publication or a subscription must read.
//!
//! Topics overlap if they are equal or one is an ancestor of the other, and so do cells. A node and
//! its ancestors are a few keys, given the levels that exist ([`crate::lists::shape`]); its
//! descendants are a range of keys (the paper's Algorithm 5, which omits the ancestors).

use std::borrow::Cow;

use esker_coding::Own;
use esker_model::schema::{Path, Scalar, Values};

use crate::forms::anchor::AnchorRange;
use crate::forms::cell::Cell;
use crate::forms::keys::{self, Filed, KeyRange, List};
use crate::forms::topic::{Reach, Topic, TopicFilter, is_reserved, level_ends, with_wildcards};
use crate::lists::shape::{KnownAnchor, KnownShapes, KnownSubscriptions, SubscriptionShape};
use crate::lists::walk::Span;

/// A scalar value of a publication's body.
#[derive(Debug, Clone)]
enum BodyValue {
    Bool(bool),
    Number(f64),
    Text(String),
}

impl BodyValue {
    fn scalar(&self) -> Scalar<'_> {
        match self {
            BodyValue::Bool(v) => Scalar::Bool(*v),
            BodyValue::Number(v) => Scalar::Float(*v),
            BodyValue::Text(v) => Scalar::Str(v),
        }
    }
}

/// A value of a body at the path of an anchor, by the number of the path
/// ([`KnownShapes::values`]).
struct ValueAt {
    path: usize,
    value: BodyValue,
}

/// The values of a body at the paths of all anchors.
fn values_of(known: &KnownShapes, body: &[u8]) -> Vec<ValueAt> {
    let mut values_at = Vec::new();
    if let Some(values) = &known.values {
        values.visit(body, &mut |path, scalar| {
            let value = match scalar {
                Scalar::Bool(v) => BodyValue::Bool(v),
                Scalar::Str(v) => BodyValue::Text(v.to_owned()),
                Scalar::Int(v) => BodyValue::Number(v as f64),
                Scalar::Float(v) => BodyValue::Number(v),
            };
            values_at.push(ValueAt { path, value });
        });
    }
    values_at
}

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
    let values = values_of(known, body);
    let mut spans = Vec::new();
    for KnownSubscriptions { shape, anchor } in &known.subscriptions {
        let pattern = match patterns_of(shape, encoded, &ends) {
            Some(TopicRange::One(pattern)) => pattern,
            Some(TopicRange::Below(topic)) => {
                spans.push(Span::Range(keys::below_topic(topic)));
                continue;
            }
            None => continue,
        };
        for cell in cells {
            if shape.cell > cell.level() {
                spans.push(Span::Range(keys::below_cell(&pattern, cell.quarters())));
                continue;
            }
            let list = List::Subscriptions(shape.reach, Filed::by(anchor.as_ref()));
            let key = keys::list(&pattern, first_quarters(cell, shape.cell), list);
            let Some(anchor) = anchor else {
                spans.push(Span::key(key));
                continue;
            };
            let at_path = values.iter().filter(|value| value.path == anchor.path);
            let probes = at_path.filter_map(|value| anchor.shape.probe(value.value.scalar()));
            spans.extend(probes.map(|probe| filed_under(&key, anchor, &probe)));
        }
    }
    spans
}

/// The patterns of a shape that match an encoded topic whose levels end at `ends`.
fn patterns_of<'t>(
    shape: &SubscriptionShape,
    encoded: &'t [u8],
    ends: &[usize],
) -> Option<TopicRange<'t>> {
    let levels = usize::from(shape.levels.count);
    let own_levels = ends.len();
    match shape.reach {
        Reach::Overlap if levels > own_levels => return Some(TopicRange::Below(encoded)),
        Reach::Exact if levels != own_levels => return None,
        Reach::Below if levels > own_levels => return None,
        _ => {}
    }
    let begins_wild = levels == 0 || shape.levels.wild & 1 == 1;
    if shape.reach != Reach::Overlap && begins_wild && is_reserved(encoded) {
        return None;
    }
    let pattern = with_wildcards(encoded, ends, shape.levels);
    Some(TopicRange::One(pattern.into()))
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
        match topics_at(topics, shape.levels) {
            Some(TopicRange::One(topic)) => {
                add_nodes(&mut spans, &topic, shape.cell, cells, &|node| {
                    Span::key([node, &[List::Publications.byte()]].concat())
                });
            }
            Some(TopicRange::Below(topic)) => {
                spans.push(Span::Range(keys::below_topic(topic)));
            }
            None => {}
        }
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
        match topics_at(topics, shape.levels.count) {
            Some(TopicRange::One(topic)) => {
                let list_of = |node: &[u8]| subscriptions_of(node, shape);
                add_nodes(&mut spans, &topic, shape.cell, cells, &list_of);
            }
            Some(TopicRange::Below(topic)) => {
                spans.push(Span::Range(keys::below_topic(topic)));
            }
            None => {}
        }
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

/// The topics of `levels` levels that a filter matches, or, for a filter with wildcards, may match;
/// `None` if it matches no topic with this number of levels.
fn topics_at(topics: &TopicFilter, levels: u8) -> Option<TopicRange<'_>> {
    let pattern = topics.pattern();
    let own = topics.levels();
    match topics.reach() {
        Reach::Overlap if levels <= own.count => {
            Some(TopicRange::One(first_levels(pattern, levels).into()))
        }
        Reach::Overlap => Some(TopicRange::Below(pattern)),
        Reach::Exact if levels != own.count => None,
        Reach::Below if levels < own.count => None,
        _ if own.wild != 0 => Some(TopicRange::Below(topics.fixed())),
        _ if levels == own.count => Some(TopicRange::One(pattern.into())),
        _ => Some(TopicRange::Below(pattern)),
    }
}

/// Adds lists of the nodes of a topic, with cells of `level`, that overlap some cells: the list
/// that `list_of` returns for the key of a node, or all lists below a cell.
fn add_nodes(
    spans: &mut Vec<Span>,
    topic: &[u8],
    level: u8,
    cells: &[Cell],
    list_of: &dyn Fn(&[u8]) -> Span,
) {
    for cell in cells {
        spans.push(if level <= cell.level() {
            list_of(&keys::node(topic, first_quarters(cell, level)))
        } else {
            Span::Range(keys::below_cell(topic, cell.quarters()))
        });
    }
}

/// Finds a number in bodies.
pub(crate) struct NumberAt(Values);

impl NumberAt {
    /// Prepares a path.
    pub(crate) fn new(path: &Path) -> NumberAt {
        NumberAt(Values::new(std::slice::from_ref(path)))
    }

    /// The first number at the path.
    pub(crate) fn find(&self, body: &[u8]) -> Option<f64> {
        let mut first = None;
        self.0
            .visit(body, &mut |_, scalar| first = first.or(scalar.as_f64()));
        first
    }
}
