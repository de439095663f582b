//! Trees of points whose tables are cut by space: within a run no two tables share a place, so that an area meets few
//! tables of each. Points are packed by Sort-Tile-Recursive: into vertical slices of about the same number of points, and
//! each slice into tiles (chapter 5 of the Spatial-LSM paper). Where tables of the run stay, the plane is first cut along
//! their edges, until none is between the keys of a part; each part is then packed on its own. Keys lie in the bounds of the
//! tables that are merged, so tables that stay elsewhere need no cuts.
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

const EVERYWHERE: Rect = [0, u64::MAX, 0, u64::MAX];

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

/// The least box around both.
fn hull(a: Rect, b: Rect) -> Rect {
    [
        a[0].min(b[0]),
        a[1].max(b[1]),
        a[2].min(b[2]),
        a[3].max(b[3]),
    ]
}

/// What is in both, if anything.
fn clip(a: Rect, b: Rect) -> Option<Rect> {
    meet(a, b).then_some([
        a[0].max(b[0]),
        a[1].min(b[1]),
        a[2].max(b[2]),
        a[3].min(b[3]),
    ])
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
        let rects = |bounds: &[&[u8]]| -> Vec<Rect> {
            let rects = bounds.iter().filter_map(|bounds| rect(bounds));
            rects.collect()
        };
        let mut within = rects(output.within);
        if within.is_empty() || within.len() < output.within.len() {
            within = vec![EVERYWHERE];
        }
        let tables = output.bytes.div_ceil(output.table_size.max(1));
        Box::new(Tiles::new(
            output.sample.iter().map(|key| place(key)).collect(),
            tables.clamp(1, MOST_TILES) as usize,
            within,
            &rects(output.beside),
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
    /// Tables for each point of the sample.
    density: f64,
}

/// A point of the sample.
type Place = (u64, u64);

impl Tiles {
    /// Tiles for keys of which `points` is a sample, and which all lie in the boxes `within`; none may reach into the boxes
    /// `beside`.
    fn new(mut points: Vec<Place>, tables: usize, within: Vec<Rect>, beside: &[Rect]) -> Tiles {
        let mut tiles = Tiles {
            nodes: Vec::new(),
            used: 0,
            density: tables as f64 / points.len().max(1) as f64,
        };
        points.sort_unstable();
        tiles.part(within, points, beside, 0);
        tiles
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Cuts the part of the plane whose keys lie in `within` along the edges of boxes that stay, until none of these is
    /// between its keys, and packs what is left.
    fn part(
        &mut self,
        within: Vec<Rect>,
        points: Vec<Place>,
        beside: &[Rect],
        depth: u32,
    ) -> usize {
        let Some(hull) = within.iter().copied().reduce(hull) else {
            // No keys come here.
            return self.add(Node::Leaf(None));
        };
        let near = beside.iter().copied().filter(|b| meet(*b, hull));
        let near: Vec<Rect> = near.collect();
        let Some(cut) = best_cut(hull, &within, &near, depth) else {
            return self.pack(&points);
        };
        let (low, high) = cut.halves();
        let clipped = |half: Rect| within.iter().filter_map(|b| clip(*b, half)).collect();
        let (in_low, in_high) = points.into_iter().partition(|point| holds(low, *point));
        let low = self.part(clipped(low), in_low, &near, depth + 1);
        let high = self.part(clipped(high), in_high, &near, depth + 1);
        self.add(match cut {
            Cut::X(at) => Node::X(at, low, high),
            Cut::Y(at) => Node::Y(at, low, high),
        })
    }

    /// Packs points, by their first coordinate, into slices, and each slice into tiles.
    fn pack(&mut self, points: &[Place]) -> usize {
        let tables = (self.density * points.len() as f64).round().max(1.0) as usize;
        let slices = (tables as f64).sqrt().ceil() as usize;
        let per_slice = tables.div_ceil(slices.max(1));
        let by_x = quantiles(points.iter().map(|point| point.0), slices);
        let mut regions = Vec::new();
        let mut rest = points;
        for end in by_x.into_iter().chain([u64::MAX]) {
            let (slice, after) = rest.split_at(rest.partition_point(|point| point.0 <= end));
            rest = after;
            let mut ys: Vec<u64> = slice.iter().map(|point| point.1).collect();
            ys.sort_unstable();
            let tops = quantiles(ys.iter().copied(), per_slice).into_iter();
            let tops: Vec<(u64, usize)> = tops
                .chain([u64::MAX])
                .map(|top| (top, self.add(Node::Leaf(None))))
                .collect();
            regions.push((end, self.joined(&tops, Node::Y)));
        }
        self.joined(&regions, Node::X)
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
}

/// Everything up to a coordinate is apart from everything behind it.
#[derive(Clone, Copy)]
enum Cut {
    X(u64),
    Y(u64),
}

impl Cut {
    fn halves(self) -> (Rect, Rect) {
        const MAX: u64 = u64::MAX;
        match self {
            Cut::X(at) => ([0, at, 0, MAX], [at.saturating_add(1), MAX, 0, MAX]),
            Cut::Y(at) => ([0, MAX, 0, at], [0, MAX, at.saturating_add(1), MAX]),
        }
    }
}

/// The most cuts compared in each direction: evenly spread over the edges.
const COMPARED: usize = 48;

/// From this depth on edges are halved whatever that cuts, so that the tree stays shallow.
const DEEP: u32 = 40;

/// What a cut through a box of keys weighs against a pair of boxes that are not apart yet: each is one more table, each pair
/// at most a further cut. From 2 to 16 makes no difference that can be measured.
const CROSSED: usize = 8;

/// The best cut along an edge of one of the boxes `near`: few boxes of `within` are cut, and few pairs of one of these and one
/// of `near` are left on one side. `None` where there is no edge within the hull.
fn best_cut(hull: Rect, within: &[Rect], near: &[Rect], depth: u32) -> Option<Cut> {
    let xs = edges(near, [hull[0], hull[1]], |b| [b[0], b[1]]);
    let ys = edges(near, [hull[2], hull[3]], |b| [b[2], b[3]]);
    if depth >= DEEP {
        let (edges, cut): (_, fn(u64) -> Cut) = match xs.len() >= ys.len() {
            true => (xs, Cut::X),
            false => (ys, Cut::Y),
        };
        return edges.get(edges.len() / 2).copied().map(cut);
    }
    let spread = |edges: Vec<u64>| {
        let step = edges.len().div_ceil(COMPARED).max(1);
        edges.into_iter().skip(step / 2).step_by(step)
    };
    let cuts = spread(xs).map(Cut::X).chain(spread(ys).map(Cut::Y));
    cuts.min_by_key(|cut| {
        let (low, high) = cut.halves();
        let count = |boxes: &[Rect], half: Rect| boxes.iter().filter(|b| meet(**b, half)).count();
        let (within_low, within_high) = (count(within, low), count(within, high));
        let (near_low, near_high) = (count(near, low), count(near, high));
        let pairs = within_low * near_low + within_high * near_high;
        let crossed = within_low + within_high - within.len();
        let cost = pairs + CROSSED * crossed;
        (cost, crossed, near_low.max(near_high))
    })
}

/// Where boxes can be cut off, in order, each once: the greatest coordinate of the lower part, which leaves something of the
/// span on both sides.
fn edges(boxes: &[Rect], [first, last]: [u64; 2], span: fn(&Rect) -> [u64; 2]) -> Vec<u64> {
    let ends = boxes.iter().flat_map(|b| {
        let [low, high] = span(b);
        [low.checked_sub(1), Some(high)]
    });
    let inside = ends.flatten().filter(|at| (first..last).contains(at));
    let mut edges: Vec<u64> = inside.collect();
    edges.sort_unstable();
    edges.dedup();
    edges
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
