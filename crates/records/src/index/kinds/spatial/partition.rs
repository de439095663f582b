//! Trees of points with spatially partitioned tables: within a run no two tables overlap, so that
//! an area meets few tables per run. Points are packed by Sort-Tile-Recursive: into vertical slices
//! of about the same number of points, and each slice into tiles (chapter 5 of the Spatial-LSM
//! paper). If the run keeps tables that are not compacted, the plane is first cut along their
//! edges, until no kept table lies between the keys of a region; then each region is packed on its
//! own. All keys lie in the bounds of the input tables, so kept tables elsewhere need no cuts.
//!
//! Coordinates are compared in encoded form, as integers: no value lies between two neighbours, so
//! a cut leaves each point on one side. The bounds of a table are the bounding box of its points:
//! least and greatest first coordinate, least and greatest second, 8 bytes each. Points with a time
//! have it as a third coordinate, and are packed by it in the same way.

use std::fmt;

use esker_lsm::coding::Own;
use esker_lsm::{Cutter, Cutting, Partitioner};
use esker_model::geometry::Bounds;
use esker_model::schema::{POINT_LEN, POINT_TIME_LEN, coordinate, time_at};

/// The IDs of the partitioners of points without and with a time. They are stored on disk and must
/// never change.
const IDS: [u32; 2] = [0x5372, 0x5373];

/// The most tiles that are packed. Cuts along the edges of kept tables can add more tables.
const MAX_TILES: u64 = 64;

/// Partitions by the coordinates of the points that begin the keys: two, or three with time.
#[derive(Clone, Copy)]
pub(super) struct Boxes<const D: usize>;

impl<const D: usize> fmt::Debug for Boxes<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the partitioner of points")
    }
}

/// A box: the least and the greatest value of each coordinate.
type Rect<const D: usize> = [[u64; 2]; D];

/// The encoded coordinates of a point.
type Coordinates<const D: usize> = [u64; D];

/// The offset of the coordinates in a value, which are its last bytes.
pub(super) const fn first_coordinate(dimensions: usize) -> usize {
    match dimensions {
        3 => POINT_TIME_LEN - 24,
        _ => POINT_LEN - 16,
    }
}

/// The coordinates of a key; zeros for a malformed key, which must go to some table, too.
fn coordinates<const D: usize>(key: &[u8]) -> Coordinates<D> {
    std::array::from_fn(|dimension| {
        let from = first_coordinate(D) + 8 * dimension;
        let bytes = key.get(from..from + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_be_bytes)
    })
}

/// Decodes the bounds of a table; `None` for malformed bounds.
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

/// True if a point lies in a box.
fn holds<const D: usize>(rect: Rect<D>, point: Coordinates<D>) -> bool {
    let mut sides = rect.iter().zip(point);
    sides.all(|([low, high], at)| (*low..=*high).contains(&at))
}

/// True if two boxes have a point in common.
fn meet<const D: usize>(a: Rect<D>, b: Rect<D>) -> bool {
    let mut sides = a.iter().zip(&b);
    sides.all(|(a, b)| a[0] <= b[1] && b[0] <= a[1])
}

/// The bounding box of two boxes.
fn hull<const D: usize>(mut a: Rect<D>, b: Rect<D>) -> Rect<D> {
    for (a, b) in a.iter_mut().zip(b) {
        *a = [a[0].min(b[0]), a[1].max(b[1])];
    }
    a
}

/// The intersection of two boxes, if they meet.
fn clip<const D: usize>(mut a: Rect<D>, b: Rect<D>) -> Option<Rect<D>> {
    if !meet(a, b) {
        return None;
    }
    for (a, b) in a.iter_mut().zip(b) {
        *a = [a[0].max(b[0]), a[1].min(b[1])];
    }
    Some(a)
}

/// The interleaved bits of the coordinates, most significant first.
fn interleaved<const D: usize>(point: Coordinates<D>) -> Vec<u8> {
    let mut bytes = vec![0; 8 * D];
    for bit in 0..64 {
        for (dimension, at) in point.iter().enumerate() {
            let (position, is_set) = (bit * D + dimension, at >> (63 - bit) & 1);
            *bytes.own_mut(position / 8) |= (is_set as u8) << (7 - position % 8);
        }
    }
    bytes
}

/// The bounding box of a table's points.
pub(crate) struct PointBox {
    pub(crate) area: Bounds,
    /// Their first and their last time, if they have times.
    pub(super) times: Option<(i64, i64)>,
}

/// The bounding box of a table's points; `None` for malformed bounds.
pub(super) fn point_box(bounds: &[u8]) -> Option<PointBox> {
    let (spans, times) = match rect::<3>(bounds) {
        Some([x, y, [from, to]]) => ([x, y], Some((time_at(from), time_at(to)))),
        None => (rect::<2>(bounds)?, None),
    };
    let [[x0, x1], [y0, y1]] = spans.map(|span| span.map(coordinate));
    let area = Bounds {
        min_x: x0?,
        min_y: y0?,
        max_x: x1?,
        max_y: y1?,
    };
    Some(PointBox { area, times })
}

impl<const D: usize> Partitioner for Boxes<D> {
    fn id(&self) -> u32 {
        let [points, timed] = IDS;
        if D == 3 { timed } else { points }
    }

    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]) {
        let point = coordinates::<D>(key).map(|at| [at, at]);
        let wider = rect(bounds).map_or(point, |rect| hull(rect, point));
        bounds.clear();
        for number in wider.as_flattened() {
            bounds.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool {
        rect::<D>(bounds).is_some_and(|rect| holds(rect, coordinates(key)))
    }

    fn overlap(&self, a: &[u8], b: &[u8]) -> bool {
        match (rect::<D>(a), rect::<D>(b)) {
            (Some(a), Some(b)) => meet(a, b),
            _ => true,
        }
    }

    /// By the z-value of the box's centre in encoded coordinates: the paper's round-robin.
    fn turn(&self, bounds: &[u8]) -> Option<Vec<u8>> {
        let rect = rect::<D>(bounds)?;
        let centre = rect.map(|[low, high]| low + (high - low) / 2);
        Some(interleaved(centre))
    }

    fn cut(&self, output: &Cutting<'_>) -> Box<dyn Cutter> {
        let rects = |bounds: &[&[u8]]| -> Option<Vec<Rect<D>>> {
            bounds.iter().map(|bounds| rect(bounds)).collect()
        };
        // With unknown or malformed bounds, a key may lie anywhere.
        let within = rects(output.within).filter(|within| !within.is_empty());
        // The engine refuses output beside a table with malformed bounds, which overlap all others,
        // however it is cut.
        let beside = rects(output.beside);
        let tables = output.bytes.div_ceil(output.table_size.max(1));
        Box::new(Tiles::new(
            output.sample.iter().map(|key| coordinates(key)).collect(),
            tables.clamp(1, MAX_TILES) as usize,
            within.unwrap_or_else(|| vec![[[0, u64::MAX]; D]]),
            &beside.unwrap_or_default(),
        ))
    }
}

/// A node of the tree of cuts.
enum Node {
    /// A cut, and the nodes of its two sides.
    Cut { cut: Cut, low: usize, high: usize },
    /// An uncut region, with the number of its table once it has keys.
    Leaf(Option<usize>),
}

/// Regions that tile the space, as a tree of cuts; the root is the last node.
struct Tiles<const D: usize> {
    nodes: Vec<Node>,
    /// The number of tables with keys.
    used: usize,
    /// Tables per point of the sample.
    density: f64,
}

impl<const D: usize> Tiles<D> {
    /// Tiles for keys that all lie in the boxes `within`; `points` is a sample of them. No tile
    /// with keys may overlap the boxes `beside`.
    fn new(
        points: Vec<Coordinates<D>>,
        tables: usize,
        within: Vec<Rect<D>>,
        beside: &[Rect<D>],
    ) -> Tiles<D> {
        let mut tiles = Tiles {
            nodes: Vec::new(),
            used: 0,
            density: tables as f64 / points.len().max(1) as f64,
        };
        tiles.cut(within, points, beside, 0);
        debug_assert!(!tiles.nodes.is_empty(), "the last node is the root");
        tiles
    }

    /// Adds a node and returns its index.
    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Cuts a region of the space, whose keys lie in `within`, along the edges of the kept boxes
    /// `beside`, until no kept box lies between the keys of a region, and packs these regions.
    /// Returns the index of the region's node. `depth` is the number of cuts around the region.
    fn cut(
        &mut self,
        within: Vec<Rect<D>>,
        points: Vec<Coordinates<D>>,
        beside: &[Rect<D>],
        depth: u32,
    ) -> usize {
        let Some(hull) = within.iter().copied().reduce(hull) else {
            // No keys lie here.
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
        let low = self.cut(clipped(low), in_low, &near, depth + 1);
        let high = self.cut(clipped(high), in_high, &near, depth + 1);
        self.add(Node::Cut { cut, low, high })
    }

    /// Packs points into slices by this coordinate, and each slice by the next coordinates. Returns
    /// the index of the node.
    fn pack(&mut self, mut points: Vec<Coordinates<D>>, tables: usize, dimension: usize) -> usize {
        if dimension == D || tables <= 1 {
            return self.add(Node::Leaf(None));
        }
        // The number of slices that makes the tiles about cubic.
        let slices = match D - dimension {
            1 => tables,
            left => (tables as f64).powf(1.0 / left as f64).ceil() as usize,
        };
        let along = |point: &Coordinates<D>| *point.own(dimension);
        points.sort_unstable_by_key(along);
        let cuts = quantiles(points.iter().map(along), slices);
        let per_slice = tables.div_ceil(slices);
        let mut lower = Vec::new();
        for end in cuts {
            let after = points.split_off(points.partition_point(|point| along(point) <= end));
            let slice = std::mem::replace(&mut points, after);
            let node = self.pack(slice, per_slice, dimension + 1);
            lower.push(Slice { end, node });
        }
        let last = self.pack(points, per_slice, dimension + 1);
        self.joined(&lower, last, dimension)
    }

    /// Joins neighbouring slices into one node: `lower` and, above them, the node `last`.
    fn joined(&mut self, lower: &[Slice], last: usize, dimension: usize) -> usize {
        let (low, from_middle) = lower.split_at(lower.len() / 2);
        let Some((middle, high)) = from_middle.split_first() else {
            return last;
        };
        let at = middle.end;
        let low = self.joined(low, middle.node, dimension);
        let high = self.joined(high, last, dimension);
        let cut = Cut { dimension, at };
        self.add(Node::Cut { cut, low, high })
    }
}

/// A slice of a region, below another one.
struct Slice {
    /// Its greatest coordinate.
    end: u64,
    /// The index of its node.
    node: usize,
}

/// Separates the coordinates up to `at` from those above.
#[derive(Clone, Copy)]
struct Cut {
    dimension: usize,
    at: u64,
}

impl Cut {
    /// The boxes below and above the cut.
    fn halves<const D: usize>(self) -> (Rect<D>, Rect<D>) {
        let (mut low, mut high) = ([[0, u64::MAX]; D], [[0, u64::MAX]; D]);
        *low.own_mut(self.dimension) = [0, self.at];
        *high.own_mut(self.dimension) = [self.at.saturating_add(1), u64::MAX];
        (low, high)
    }

    /// True if a point is at or below the cut.
    fn is_below<const D: usize>(self, point: &Coordinates<D>) -> bool {
        *point.own(self.dimension) <= self.at
    }
}

/// The most cuts compared in each dimension, evenly spread over the edges.
const MAX_COMPARED: usize = 48;

/// From this depth on the median edge is cut, regardless of cost, so that the tree stays shallow.
const MEDIAN_DEPTH: u32 = 40;

/// The cost of a cut through a box of keys, relative to a pair of boxes that is not separated yet:
/// the first costs one more table, the second at most one more cut. Values from 2 to 16 make no
/// measurable difference.
const CROSSING_COST: usize = 8;

/// The best cut along an edge of a box in `near`: it cuts few boxes of `within`, and leaves few
/// pairs of a box of `within` and one of `near` on the same side. `None` if no edge lies inside the
/// hull.
fn best_cut<const D: usize>(
    hull: Rect<D>,
    within: &[Rect<D>],
    near: &[Rect<D>],
    depth: u32,
) -> Option<Cut> {
    let edges: [Vec<u64>; D] = std::array::from_fn(|dimension| edges(near, &hull, dimension));
    if depth >= MEDIAN_DEPTH {
        let (dimension, edges) = edges.iter().enumerate().max_by_key(|(_, e)| e.len())?;
        let at = *edges.get(edges.len() / 2)?;
        return Some(Cut { dimension, at });
    }
    let spread = |(dimension, edges): (usize, Vec<u64>)| {
        let step = edges.len().div_ceil(MAX_COMPARED).max(1);
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
        let cost = pairs + CROSSING_COST * crossed;
        (cost, crossed, near_low.max(near_high))
    })
}

/// The positions of possible cuts along the edges of boxes, in order, each once: the greatest
/// coordinate of the lower side. Both sides have a part of the hull.
fn edges<const D: usize>(boxes: &[Rect<D>], hull: &Rect<D>, dimension: usize) -> Vec<u64> {
    let [first, last] = *hull.own(dimension);
    let ends = boxes.iter().map(|b| b.own(dimension));
    let ends = ends.flat_map(|[low, high]| [low.checked_sub(1), Some(*high)]);
    let inside = ends.flatten().filter(|at| (first..last).contains(at));
    let mut edges: Vec<u64> = inside.collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// At most `parts - 1` of the sorted numbers, which split them into parts of about the same size:
/// each is the greatest number of its part. The last part is never empty.
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
        let point = coordinates::<D>(key);
        // The root is the last node.
        let mut at = self.nodes.len() - 1;
        loop {
            match self.nodes.own_mut(at) {
                Node::Cut { cut, low, high } => {
                    at = if cut.is_below(&point) { *low } else { *high };
                }
                Node::Leaf(part) => {
                    return *part.get_or_insert_with(|| {
                        self.used += 1;
                        self.used - 1
                    });
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
