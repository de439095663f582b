//! Trees of points whose tables are cut by space: within a run no two tables share a place, so that an area meets few
//! tables of each. Points are packed by Sort-Tile-Recursive: into vertical slices of about the same number of points, and
//! each slice into tiles (chapter 5 of the Spatial-LSM paper). Where tables of the run stay, tiles are cut along their edges
//! until none reaches over one.
//!
//! Coordinates are compared as they are encoded, as whole numbers: between two neighbours there is nothing, so that a cut
//! leaves each point on one side. The bounds of a table are the least box around its points: least and greatest first
//! coordinate, least and greatest second, 8 bytes each.

use std::fmt;

use lsm::{Cutter, Cutting, Partitioner};
use model::geometry::Bounds;
use model::schema::{POINT_LEN, coordinate};

/// The number of the order in which tables are disjoint. It is on disk: never change it.
const ID: u32 = 0x5372;

/// The most tiles: a compaction may need more tables than tiles, along the edges of tables that stay.
const MOST_TILES: u64 = 64;

/// Cuts by the coordinates of the point with which keys begin.
#[derive(Clone, Copy)]
pub(super) struct Boxes;

impl fmt::Debug for Boxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the partitioner of points")
    }
}

/// A box: the least and the greatest of the first coordinate, and of the second.
type Rect = [u64; 4];

/// The place of a key; a malformed one has a place, too.
fn place(key: &[u8]) -> (u64, u64) {
    let at = |from: usize| {
        let bytes = key.get(from..from + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_be_bytes)
    };
    (at(POINT_LEN - 16), at(POINT_LEN - 8))
}

fn rect(bounds: &[u8]) -> Option<Rect> {
    let (numbers, rest) = bounds.as_chunks::<8>();
    let [x0, x1, y0, y1] = numbers else {
        return None;
    };
    let rect = [x0, x1, y0, y1].map(|bytes| u64::from_be_bytes(*bytes));
    (rest.is_empty() && rect[0] <= rect[1] && rect[2] <= rect[3]).then_some(rect)
}

fn holds([x0, x1, y0, y1]: Rect, (x, y): (u64, u64)) -> bool {
    (x0..=x1).contains(&x) && (y0..=y1).contains(&y)
}

fn meet(a: Rect, b: Rect) -> bool {
    a[0] <= b[1] && b[0] <= a[1] && a[2] <= b[3] && b[2] <= a[3]
}

/// The coordinates of a table's bounds; `None` for damaged ones.
pub(super) fn bounds_of(bounds: &[u8]) -> Option<Bounds> {
    let [x0, x1, y0, y1] = rect(bounds)?.map(coordinate);
    Some(Bounds {
        min_x: x0?,
        min_y: y0?,
        max_x: x1?,
        max_y: y1?,
    })
}

impl Partitioner for Boxes {
    fn id(&self) -> u32 {
        ID
    }

    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]) {
        let (x, y) = place(key);
        let [x0, x1, y0, y1] = rect(bounds).unwrap_or([x, x, y, y]);
        let wider = [x0.min(x), x1.max(x), y0.min(y), y1.max(y)];
        bounds.clear();
        for number in wider {
            bounds.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool {
        rect(bounds).is_some_and(|rect| holds(rect, place(key)))
    }

    fn overlap(&self, a: &[u8], b: &[u8]) -> bool {
        match (rect(a), rect(b)) {
            (Some(a), Some(b)) => meet(a, b),
            _ => true,
        }
    }

    fn cut(&self, output: &Cutting<'_>) -> Box<dyn Cutter> {
        let beside = output.beside.iter().filter_map(|bounds| rect(bounds));
        let tables = output.bytes.div_ceil(output.table_size.max(1));
        let points = output.sample.iter().map(|key| place(key)).collect();
        Box::new(Tiles::new(
            points,
            tables.clamp(1, MOST_TILES) as usize,
            &beside.collect::<Vec<Rect>>(),
        ))
    }
}

/// A cut of a region in two, or a region that is not cut further.
enum Node {
    /// First coordinates up to this one are in the first node, the others in the second.
    X(u64, usize, usize),
    Y(u64, usize, usize),
    /// The table of the region, once it has one.
    Leaf(Option<usize>),
}

/// Regions that tile the plane, as a tree of cuts; the root comes last.
struct Tiles {
    nodes: Vec<Node>,
    /// Tables that have keys.
    used: usize,
}

/// A point of the sample.
type Place = (u64, u64);

impl Tiles {
    fn new(mut points: Vec<Place>, tables: usize, beside: &[Rect]) -> Tiles {
        let mut tiles = Tiles {
            nodes: Vec::new(),
            used: 0,
        };
        let slices = (tables as f64).sqrt().ceil() as usize;
        points.sort_unstable();
        let by_x = quantiles(points.iter().map(|point| point.0), slices);
        let per_slice = tables.div_ceil(slices.max(1));
        let mut regions = Vec::new();
        let mut left = 0;
        for end in by_x.iter().copied().chain([u64::MAX]) {
            let inside = |point: &&Place| (left..=end).contains(&point.0);
            let mut slice: Vec<Place> = points.iter().filter(inside).copied().collect();
            slice.sort_unstable_by_key(|point| point.1);
            let by_y = quantiles(slice.iter().map(|point| point.1), per_slice);
            let mut tops = Vec::new();
            let mut low = 0;
            for top in by_y.iter().copied().chain([u64::MAX]) {
                let region = [left, end, low, top];
                let held = slice.iter().filter(|point| holds(region, **point));
                let held: Vec<Place> = held.copied().collect();
                let node = tiles.cut_along(region, held, beside);
                tops.push((top, node));
                low = top.saturating_add(1);
            }
            let slice = tiles.joined(&tops, Node::Y);
            regions.push((end, slice));
            left = end.saturating_add(1);
        }
        tiles.joined(&regions, Node::X);
        tiles
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// One node for neighbours, each up to its number.
    fn joined(&mut self, parts: &[(u64, usize)], cut: fn(u64, usize, usize) -> Node) -> usize {
        let (first, second) = parts.split_at(parts.len() / 2);
        match (first.last(), second) {
            (None, [(_, only)]) => *only,
            (Some((end, _)), _) => {
                let (a, b) = (self.joined(first, cut), self.joined(second, cut));
                self.add(cut(*end, a, b))
            }
            (None, _) => self.add(Node::Leaf(None)),
        }
    }

    /// A region, cut along the edges of boxes that reach into it until none does but those that cover all of a part,
    /// where no keys come.
    fn cut_along(&mut self, region: Rect, points: Vec<Place>, beside: &[Rect]) -> usize {
        let near: Vec<Rect> = beside
            .iter()
            .copied()
            .filter(|b| meet(*b, region))
            .collect();
        let Some((is_x, at)) = best_cut(region, &points, &near) else {
            return self.add(Node::Leaf(None));
        };
        let [x0, x1, y0, y1] = region;
        let (low, high) = match is_x {
            true => ([x0, at, y0, y1], [at.saturating_add(1), x1, y0, y1]),
            false => ([x0, x1, y0, at], [x0, x1, at.saturating_add(1), y1]),
        };
        let (in_low, in_high) = points.into_iter().partition(|point| holds(low, *point));
        let low = self.cut_along(low, in_low, &near);
        let high = self.cut_along(high, in_high, &near);
        self.add(match is_x {
            true => Node::X(at, low, high),
            false => Node::Y(at, low, high),
        })
    }
}

/// Where to cut a region so that one of the boxes is apart from as many points as can be: whether by the first coordinate, and
/// the greatest one of the lower part. `None` where no box reaches into the region, or one covers it.
fn best_cut([x0, x1, y0, y1]: Rect, points: &[Place], near: &[Rect]) -> Option<(bool, u64)> {
    let at_x = |at: u64| (x0 <= at && at < x1).then_some((true, at));
    let at_y = |at: u64| (y0 <= at && at < y1).then_some((false, at));
    let mut best: Option<(usize, (bool, u64))> = None;
    for [a0, a1, b0, b1] in near.iter().copied() {
        let edges = [
            a0.checked_sub(1).and_then(at_x).map(|cut| (cut, false)),
            at_x(a1).map(|cut| (cut, true)),
            b0.checked_sub(1).and_then(at_y).map(|cut| (cut, false)),
            at_y(b1).map(|cut| (cut, true)),
        ];
        if edges.iter().all(Option::is_none) {
            // All of the region is covered: no keys come there.
            return None;
        }
        for ((is_x, at), box_is_low) in edges.into_iter().flatten() {
            let is_low = |point: &&Place| if is_x { point.0 <= at } else { point.1 <= at };
            let lows = points.iter().filter(is_low).count();
            let beside_it = if box_is_low {
                lows
            } else {
                points.len() - lows
            };
            if best.is_none_or(|(least, _)| beside_it < least) {
                best = Some((beside_it, (is_x, at)));
            }
            if beside_it == 0 {
                return Some((is_x, at));
            }
        }
    }
    best.map(|(_, cut)| cut)
}

/// At most `parts - 1` of some numbers in order, which cut them into parts of about the same size: each is the greatest of
/// its part. The last part is never empty.
fn quantiles(sorted: impl ExactSizeIterator<Item = u64> + Clone, parts: usize) -> Vec<u64> {
    let count = sorted.len();
    let greatest = sorted.clone().last();
    let mut cuts: Vec<u64> = Vec::new();
    for part in 1..parts {
        let at = part * count / parts;
        let cut = at.checked_sub(1).and_then(|at| sorted.clone().nth(at));
        if let Some(cut) = cut
            && Some(cut) != greatest
            && cuts.last().is_none_or(|last| *last < cut)
        {
            cuts.push(cut);
        }
    }
    cuts
}

impl Cutter for Tiles {
    fn part(&mut self, key: &[u8]) -> usize {
        let (x, y) = place(key);
        let Some(mut at) = self.nodes.len().checked_sub(1) else {
            return 0;
        };
        loop {
            match self.nodes.get_mut(at) {
                Some(Node::X(cut, low, high)) => at = if x <= *cut { *low } else { *high },
                Some(Node::Y(cut, low, high)) => at = if y <= *cut { *low } else { *high },
                Some(Node::Leaf(part)) => {
                    return *part.get_or_insert_with(|| {
                        self.used += 1;
                        self.used - 1
                    });
                }
                None => return 0,
            }
        }
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
