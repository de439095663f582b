//! Trees of points whose tables are cut by space: within a run no two tables share a place, so that an area meets few
//! tables of each. Points are packed by Sort-Tile-Recursive: into vertical slices of about the same number of points, and
//! each slice into tiles (chapter 5 of the Spatial-LSM paper). Where tables of the run stay, the plane is first cut along
//! their edges, until none is between the keys of a part; each part is then packed on its own. Keys lie in the bounds of the
//! tables that are merged, so tables that stay elsewhere need no cuts.
//!
//! Coordinates are compared as they are encoded, as whole numbers: between two neighbours there is nothing, so that a cut
//! leaves each point on one side. The bounds of a table are the least box around its points: least and greatest first
//! coordinate, least and greatest second, 8 bytes each. Points at a time have a third coordinate, their time, and are packed
//! by it like by the others.

use std::fmt;

use esker_lsm::{Cutter, Cutting, Partitioner};
use esker_model::geometry::Bounds;
use esker_model::schema::{POINT_LEN, POINT_TIME_LEN, coordinate, time_at};

/// The numbers of the orders in which tables are disjoint, of points and of points at a time. They are on disk: never change
/// them.
const IDS: [u32; 2] = [0x5372, 0x5373];

/// The most tiles: a compaction may need more tables than tiles, along the edges of tables that stay.
const MOST_TILES: u64 = 64;

/// Cuts by the coordinates of the points with which keys begin: two, or with the time three.
#[derive(Clone, Copy)]
pub(super) struct Boxes<const D: usize>;

impl<const D: usize> fmt::Debug for Boxes<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the partitioner of points")
    }
}

/// A box: the least and the greatest of each coordinate.
type Rect<const D: usize> = [[u64; 2]; D];

/// The coordinates of a point.
type Place<const D: usize> = [u64; D];

/// Where coordinates begin in a value: they are the last that it has.
pub(super) const fn first_coordinate(dimensions: usize) -> usize {
    match dimensions {
        3 => POINT_TIME_LEN - 24,
        _ => POINT_LEN - 16,
    }
}

/// The place of a key; a malformed one has a place, too.
fn place<const D: usize>(key: &[u8]) -> Place<D> {
    std::array::from_fn(|dimension| {
        let from = first_coordinate(D) + 8 * dimension;
        let bytes = key.get(from..from + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_be_bytes)
    })
}

fn rect<const D: usize>(bounds: &[u8]) -> Option<Rect<D>> {
    let (numbers, rest) = bounds.as_chunks::<16>();
    let mut rect = [[0; 2]; D];
    for (span, bytes) in rect.iter_mut().zip(numbers) {
        let number = u128::from_be_bytes(*bytes);
        *span = [(number >> 64) as u64, number as u64];
    }
    let fits = rest.is_empty() && numbers.len() == D && rect.iter().all(|[low, high]| low <= high);
    fits.then_some(rect)
}

fn holds<const D: usize>(rect: Rect<D>, place: Place<D>) -> bool {
    let mut sides = rect.iter().zip(place);
    sides.all(|([low, high], at)| (*low..=*high).contains(&at))
}

fn meet<const D: usize>(a: Rect<D>, b: Rect<D>) -> bool {
    let mut sides = a.iter().zip(&b);
    sides.all(|(a, b)| a[0] <= b[1] && b[0] <= a[1])
}

/// The least box around both.
fn hull<const D: usize>(mut a: Rect<D>, b: Rect<D>) -> Rect<D> {
    for (a, b) in a.iter_mut().zip(b) {
        *a = [a[0].min(b[0]), a[1].max(b[1])];
    }
    a
}

/// What is in both, if anything.
fn clip<const D: usize>(mut a: Rect<D>, b: Rect<D>) -> Option<Rect<D>> {
    if !meet(a, b) {
        return None;
    }
    for (a, b) in a.iter_mut().zip(b) {
        *a = [a[0].max(b[0]), a[1].min(b[1])];
    }
    Some(a)
}

/// The bits of the coordinates in turn, the most significant first.
fn interleaved<const D: usize>(place: Place<D>) -> Vec<u8> {
    let mut bytes = vec![0; 8 * D];
    for bit in 0..64 {
        for (dimension, at) in place.iter().enumerate() {
            let (position, is_set) = (bit * D + dimension, at >> (63 - bit) & 1);
            if let Some(byte) = bytes.get_mut(position / 8) {
                *byte |= (is_set as u8) << (7 - position % 8);
            }
        }
    }
    bytes
}

/// The box around the points of a table, and their least and greatest time, if they have one; `None` for damaged bounds.
pub(super) fn bounds_of(bounds: &[u8]) -> Option<(Bounds, Option<(i64, i64)>)> {
    let (place, times) = match rect::<3>(bounds) {
        Some([x, y, [from, to]]) => ([x, y], Some((time_at(from), time_at(to)))),
        None => (rect::<2>(bounds)?, None),
    };
    let [[x0, x1], [y0, y1]] = place.map(|span| span.map(coordinate));
    let bounds = Bounds {
        min_x: x0?,
        min_y: y0?,
        max_x: x1?,
        max_y: y1?,
    };
    Some((bounds, times))
}

impl<const D: usize> Partitioner for Boxes<D> {
    fn id(&self) -> u32 {
        let [points, timed] = IDS;
        if D == 3 { timed } else { points }
    }

    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]) {
        let point = place::<D>(key).map(|at| [at, at]);
        let wider = rect(bounds).map_or(point, |rect| hull(rect, point));
        bounds.clear();
        for number in wider.as_flattened() {
            bounds.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool {
        rect::<D>(bounds).is_some_and(|rect| holds(rect, place(key)))
    }

    fn overlap(&self, a: &[u8], b: &[u8]) -> bool {
        match (rect::<D>(a), rect::<D>(b)) {
            (Some(a), Some(b)) => meet(a, b),
            _ => true,
        }
    }

    /// By the z-value of the box's centre (the paper's round-robin), of coordinates as they are encoded.
    fn turn(&self, bounds: &[u8]) -> Option<Vec<u8>> {
        let rect = rect::<D>(bounds)?;
        let centre = rect.map(|[low, high]| low + (high - low) / 2);
        Some(interleaved(centre))
    }

    fn cut(&self, output: &Cutting<'_>) -> Box<dyn Cutter> {
        let rects = |bounds: &[&[u8]]| -> Vec<Rect<D>> {
            let rects = bounds.iter().filter_map(|bounds| rect(bounds));
            rects.collect()
        };
        let mut within = rects(output.within);
        if within.is_empty() || within.len() < output.within.len() {
            within = vec![[[0, u64::MAX]; D]];
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
    /// What the cut leaves below is in the first node, the rest in the second.
    Cut(Cut, usize, usize),
    /// The table of the region, once it has one.
    Leaf(Option<usize>),
}

/// Regions that tile the space, as a tree of cuts; the root comes last.
struct Tiles<const D: usize> {
    nodes: Vec<Node>,
    /// Tables that have keys.
    used: usize,
    /// Tables for each point of the sample.
    density: f64,
}

impl<const D: usize> Tiles<D> {
    /// Tiles for keys of which `points` is a sample, and which all lie in the boxes `within`; none may reach into the boxes
    /// `beside`.
    fn new(
        points: Vec<Place<D>>,
        tables: usize,
        within: Vec<Rect<D>>,
        beside: &[Rect<D>],
    ) -> Tiles<D> {
        let mut tiles = Tiles {
            nodes: Vec::new(),
            used: 0,
            density: tables as f64 / points.len().max(1) as f64,
        };
        tiles.part(within, points, beside, 0);
        tiles
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Cuts the part of the space whose keys lie in `within` along the edges of boxes that stay, until none of these is
    /// between its keys, and packs what is left.
    fn part(
        &mut self,
        within: Vec<Rect<D>>,
        points: Vec<Place<D>>,
        beside: &[Rect<D>],
        depth: u32,
    ) -> usize {
        let Some(hull) = within.iter().copied().reduce(hull) else {
            // No keys come here.
            return self.add(Node::Leaf(None));
        };
        let near = beside.iter().copied().filter(|b| meet(*b, hull));
        let near: Vec<Rect<D>> = near.collect();
        let Some(cut) = best_cut(hull, &within, &near, depth) else {
            let tables = (self.density * points.len() as f64).round().max(1.0);
            return self.pack(points, tables as usize, 0);
        };
        let (low, high) = cut.halves();
        let clipped = |half: Rect<D>| within.iter().filter_map(|b| clip(*b, half)).collect();
        let (in_low, in_high) = points.into_iter().partition(|point| holds(low, *point));
        let low = self.part(clipped(low), in_low, &near, depth + 1);
        let high = self.part(clipped(high), in_high, &near, depth + 1);
        self.add(Node::Cut(cut, low, high))
    }

    /// Packs points: by this coordinate into slices, and each slice by those that follow.
    fn pack(&mut self, mut points: Vec<Place<D>>, tables: usize, dimension: usize) -> usize {
        let left = D.saturating_sub(dimension);
        if left == 0 || tables <= 1 {
            return self.add(Node::Leaf(None));
        }
        // As many slices as there would be of a cube.
        let slices = match left {
            1 => tables,
            _ => (tables as f64).powf(1.0 / left as f64).ceil() as usize,
        };
        let along = |point: &Place<D>| point.get(dimension).copied().unwrap_or_default();
        points.sort_unstable_by_key(along);
        let cuts = quantiles(points.iter().map(along), slices);
        let per_slice = tables.div_ceil(slices.max(1));
        let mut regions = Vec::new();
        for end in cuts.into_iter().chain([u64::MAX]) {
            let after = points.split_off(points.partition_point(|point| along(point) <= end));
            let slice = std::mem::replace(&mut points, after);
            regions.push((end, self.pack(slice, per_slice, dimension + 1)));
        }
        self.joined(&regions, dimension)
    }

    /// One node for neighbours, each up to its number.
    fn joined(&mut self, parts: &[(u64, usize)], dimension: usize) -> usize {
        let (first, second) = parts.split_at(parts.len() / 2);
        match (first.last(), second) {
            (None, [(_, only)]) => *only,
            (Some((at, _)), _) => {
                let cut = Cut { dimension, at: *at };
                let (a, b) = (
                    self.joined(first, dimension),
                    self.joined(second, dimension),
                );
                self.add(Node::Cut(cut, a, b))
            }
            (None, _) => self.add(Node::Leaf(None)),
        }
    }
}

/// Everything up to a coordinate is apart from everything behind it.
#[derive(Clone, Copy)]
struct Cut {
    dimension: usize,
    at: u64,
}

impl Cut {
    fn halves<const D: usize>(self) -> (Rect<D>, Rect<D>) {
        let (mut low, mut high) = ([[0, u64::MAX]; D], [[0, u64::MAX]; D]);
        if let (Some(low), Some(high)) = (low.get_mut(self.dimension), high.get_mut(self.dimension))
        {
            *low = [0, self.at];
            *high = [self.at.saturating_add(1), u64::MAX];
        }
        (low, high)
    }

    /// True for what is up to the cut.
    fn is_below<const D: usize>(self, place: &Place<D>) -> bool {
        place.get(self.dimension).is_none_or(|at| *at <= self.at)
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
fn best_cut<const D: usize>(
    hull: Rect<D>,
    within: &[Rect<D>],
    near: &[Rect<D>],
    depth: u32,
) -> Option<Cut> {
    let edges: [Vec<u64>; D] = std::array::from_fn(|dimension| edges(near, &hull, dimension));
    if depth >= DEEP {
        let (dimension, edges) = edges.iter().enumerate().max_by_key(|(_, e)| e.len())?;
        let at = *edges.get(edges.len() / 2)?;
        return Some(Cut { dimension, at });
    }
    let spread = |(dimension, edges): (usize, Vec<u64>)| {
        let step = edges.len().div_ceil(COMPARED).max(1);
        let some = edges.into_iter().skip(step / 2).step_by(step);
        some.map(move |at| Cut { dimension, at })
    };
    let cuts = edges.into_iter().enumerate().flat_map(spread);
    cuts.min_by_key(|cut| {
        let (low, high) = cut.halves();
        let count =
            |boxes: &[Rect<D>], half: Rect<D>| boxes.iter().filter(|b| meet(**b, half)).count();
        let (within_low, within_high) = (count(within, low), count(within, high));
        let (near_low, near_high) = (count(near, low), count(near, high));
        let pairs = within_low * near_low + within_high * near_high;
        let crossed = within_low + within_high - within.len();
        let cost = pairs + CROSSED * crossed;
        (cost, crossed, near_low.max(near_high))
    })
}

/// Where boxes can be cut off, in order, each once: the greatest coordinate of the lower part, which leaves something of the
/// hull on both sides.
fn edges<const D: usize>(boxes: &[Rect<D>], hull: &Rect<D>, dimension: usize) -> Vec<u64> {
    let Some([first, last]) = hull.get(dimension).copied() else {
        return Vec::new();
    };
    let ends = boxes.iter().filter_map(|b| b.get(dimension));
    let ends = ends.flat_map(|[low, high]| [low.checked_sub(1), Some(*high)]);
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

impl<const D: usize> Cutter for Tiles<D> {
    fn part(&mut self, key: &[u8]) -> usize {
        let place = place::<D>(key);
        let Some(mut at) = self.nodes.len().checked_sub(1) else {
            return 0;
        };
        loop {
            match self.nodes.get_mut(at) {
                Some(Node::Cut(cut, low, high)) => {
                    at = if cut.is_below(&place) { *low } else { *high };
                }
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
