//! The lists that a publication or a subscription must read.
//!
//! Topics overlap if they are equal or one is an ancestor of the other, and so do cells. A node and
//! its ancestors are a few keys, given the levels that exist ([`crate::shape`]); its descendants
//! are a range of keys (the paper's Algorithm 5, which omits the ancestors).

use esker_model::schema::{Path, Scalar, Values};

use crate::cell::Cell;
use crate::keys::{self, List};
use crate::shape::{Known, Shape};
use crate::topic::{Reach, Topic, TopicFilter, hides_from_wildcards, level_ends, with_wildcards};
use crate::walk::Span;

/// A scalar value of a publication's body.
#[derive(Debug, Clone)]
pub(crate) enum BodyValue {
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

/// The values of a body at the paths of all anchors.
pub(crate) fn values_of(known: &Known, body: &[u8]) -> Vec<(usize, BodyValue)> {
    let mut found = Vec::new();
    if let Some(values) = &known.values {
        values.visit(body, &mut |path, scalar| {
            let value = match scalar {
                Scalar::Bool(v) => BodyValue::Bool(v),
                Scalar::Str(v) => BodyValue::Text(v.to_owned()),
                Scalar::Int(v) => BodyValue::Number(v as f64),
                Scalar::Float(v) => BodyValue::Number(v),
            };
            found.push((path, value));
        });
    }
    found
}

/// The first levels of an encoded topic.
fn cut<'t>(encoded: &'t [u8], ends: &[usize], levels: u8) -> &'t [u8] {
    let end = match usize::from(levels) {
        0 => 0,
        levels => ends.get(levels - 1).copied().unwrap_or(encoded.len()),
    };
    encoded.get(..end).unwrap_or(encoded)
}

fn quarters(cell: &Cell, level: u8) -> &[u8] {
    let all = cell.quarters();
    all.get(..usize::from(level)).unwrap_or(all)
}

/// The lists that may hold subscriptions matching a publication.
pub(crate) fn for_publication(
    known: &Known,
    topic: &Topic,
    cells: &[Cell],
    body: &[u8],
) -> Vec<Span> {
    let encoded = topic.encoded();
    let own = level_ends(encoded).len();
    let values = values_of(known, body);
    let mut spans = Vec::new();
    for (shape, path) in &known.subscriptions {
        let Shape::Subscriptions {
            reach,
            levels,
            wild,
            cell: level,
            anchor,
            ..
        } = shape
        else {
            continue;
        };
        let deep = usize::from(*levels);
        match reach {
            Reach::Overlap if deep > own => {
                let (low, high) = keys::below_topic(encoded);
                spans.push(Span::Range(low, high));
                continue;
            }
            Reach::Exact if deep != own => continue,
            Reach::Below if deep > own => continue,
            _ => {}
        }
        let is_wild_first = *reach != Reach::Overlap && (deep == 0 || wild & 1 == 1);
        if is_wild_first && hides_from_wildcards(encoded) {
            continue;
        }
        let pattern = with_wildcards(encoded, *levels, *wild);
        for cell in cells {
            if *level > cell.level() {
                let (low, high) = keys::below_cell(&pattern, cell.quarters());
                spans.push(Span::Range(low, high));
                continue;
            }
            let of = List::Subscriptions(*reach, anchor.is_some());
            let key = keys::list(&pattern, quarters(cell, *level), of);
            let Some(anchor) = anchor else {
                spans.push(Span::key(key));
                continue;
            };
            let found = values.iter().filter(|(at, _)| Some(*at) == *path);
            for (low, high) in found.filter_map(|(_, value)| anchor.probe(value.scalar())) {
                let with = |value: &[u8]| [key.as_slice(), &anchor.prefix(), value].concat();
                spans.push(if low == high {
                    Span::key(with(&low))
                } else {
                    Span::Range(with(&low), [with(&high), vec![0]].concat())
                });
            }
        }
    }
    spans
}

/// The lists that may hold publications matching a subscription.
pub(crate) fn for_subscription(known: &Known, topics: &TopicFilter, cells: &[Cell]) -> Vec<Span> {
    let mut spans = Vec::new();
    for (levels, level) in &known.publications {
        match topics_at(topics, *levels) {
            Some(TopicRange::One(topic)) => {
                nodes(&mut spans, &topic, *level, cells, &mut |key, spans| {
                    let key = [key, &[1]].concat();
                    spans.push(Span::key(key));
                })
            }
            Some(TopicRange::Below(topic)) => {
                let (low, high) = keys::below_topic(&topic);
                spans.push(Span::Range(low, high));
            }
            None => {}
        }
    }
    spans
}

/// The lists that may hold other subscriptions to the same topics and cells: a self-join reads them
/// for earlier subscriptions of its user.
pub(crate) fn for_self_join(known: &Known, topics: &TopicFilter, cells: &[Cell]) -> Vec<Span> {
    let mut spans = Vec::new();
    for (shape, _) in &known.subscriptions {
        let Shape::Subscriptions {
            reach: reach @ Reach::Overlap,
            levels,
            cell: level,
            anchor,
            ..
        } = shape
        else {
            continue;
        };
        match topics_at(topics, *levels) {
            Some(TopicRange::One(topic)) => {
                nodes(&mut spans, &topic, *level, cells, &mut |key, spans| {
                    let filed = List::Subscriptions(*reach, anchor.is_some());
                    let list = [key, &[filed.byte()]].concat();
                    spans.push(match anchor {
                        None => Span::key(list),
                        Some(_) => Span::Range(list, [key, &[filed.byte() + 1]].concat()),
                    });
                })
            }
            Some(TopicRange::Below(topic)) => {
                let (low, high) = keys::below_topic(&topic);
                spans.push(Span::Range(low, high));
            }
            None => {}
        }
    }
    spans
}

/// The topics of one level that a filter matches: a single one, or some below a topic.
enum TopicRange {
    One(Vec<u8>),
    Below(Vec<u8>),
}

/// `None` if the filter matches no topic with this number of levels.
fn topics_at(topics: &TopicFilter, levels: u8) -> Option<TopicRange> {
    let pattern = topics.pattern();
    let (own, wild) = topics.shape();
    let is_wild = wild != 0;
    match topics.reach() {
        Reach::Overlap if levels <= own => {
            let ends = level_ends(pattern);
            Some(TopicRange::One(cut(pattern, &ends, levels).to_vec()))
        }
        Reach::Overlap => Some(TopicRange::Below(pattern.to_vec())),
        Reach::Exact if levels != own => None,
        Reach::Below if levels < own => None,
        _ if is_wild => Some(TopicRange::Below(topics.fixed().to_vec())),
        _ if levels == own => Some(TopicRange::One(pattern.to_vec())),
        _ => Some(TopicRange::Below(pattern.to_vec())),
    }
}

/// The nodes of a topic, with cells of `level`, that overlap some cells: passes the key of each to
/// `add`, or adds the range below a cell.
fn nodes(
    spans: &mut Vec<Span>,
    topic: &[u8],
    level: u8,
    cells: &[Cell],
    add: &mut dyn FnMut(&[u8], &mut Vec<Span>),
) {
    for cell in cells {
        if level <= cell.level() {
            add(&keys::node(topic, quarters(cell, level)), spans);
        } else {
            let (low, high) = keys::below_cell(topic, cell.quarters());
            spans.push(Span::Range(low, high));
        }
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
        let mut found = None;
        self.0
            .visit(body, &mut |_, scalar| found = found.or(scalar.as_f64()));
        found
    }
}
