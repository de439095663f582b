//! Stored shapes that are malformed, and shapes of a directory that another process writes.

use super::{PublicationShape, Shape, ShapeUntil, Shapes};
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
    // In order: the kind, the reach, the levels, the level of the cell, whether of changes, the
    // wildcards, the filing and its bits.
    for (at, wrong) in [(1, 9), (2, 65), (4, 2), (5, 4), (13, 9), (14, 1)] {
        let mut malformed = stored.clone();
        malformed[at] = wrong;
        assert_eq!(Shape::decode(&malformed), None, "byte {at}");
    }
}

/// The levels of the known shapes of publications.
fn known(shapes: &Shapes) -> Vec<u8> {
    let known = shapes.known();
    let mut levels: Vec<u8> = known
        .publications
        .iter()
        .map(|shape| shape.levels)
        .collect();
    levels.sort_unstable();
    levels
}

#[test]
fn a_reader_drops_shapes_that_the_writer_has_dropped_and_whose_time_has_passed() {
    let until = |levels, until| ShapeUntil {
        shape: Shape::Publications(PublicationShape {
            levels,
            cell_level: 0,
        }),
        until,
    };
    let shapes = Shapes::load([until(1, 10), until(2, 10), until(3, 30)]);
    // While the clock may be wrong nothing is dropped.
    shapes.merge([until(2, 10)], 20, false);
    assert_eq!(known(&shapes), [1, 2, 3]);
    // A directory of before the third shape was written may be merged late.
    shapes.merge([until(2, 10)], 20, true);
    assert_eq!(known(&shapes), [2, 3]);
    // Nor does an earlier directory take time back.
    shapes.merge([until(3, 25)], 27, true);
    assert_eq!(known(&shapes), [3]);
}
