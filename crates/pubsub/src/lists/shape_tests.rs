//! Stored shapes that are malformed.

use super::Shape;
use crate::forms::anchor::anchors;
use crate::forms::topic::{PatternLevels, Reach};
use crate::lists::shape::SubscriptionShape;

/// A shape whose path cannot be parsed would hide all filed subscriptions from publications.
#[test]
fn malformed_shapes_are_refused() {
    let expr: esker::Expr = "n = 1".parse().unwrap();
    let filter = esker_model::condition::Filter::new(&expr);
    let shape = Shape::Subscriptions(SubscriptionShape {
        reach: Reach::Exact,
        pattern_levels: PatternLevels { count: 2, wild: 1 },
        cell_level: 3,
        anchor: anchors(&filter).pop().map(|anchor| anchor.shape),
        changes: true,
    });
    let stored = shape.encode();
    assert_eq!(Shape::decode(&stored), Some(shape));
    let (path, before) = stored.split_last().unwrap();
    assert_eq!(*path, b'n');
    assert_eq!(Shape::decode(&[before, b"\\"].concat()), None);
    assert_eq!(Shape::decode(&[&stored[..], b"n"].concat()), None);
    let unknown = [&[3][..], &stored[1..]].concat();
    assert_eq!(Shape::decode(&unknown), None);
}
