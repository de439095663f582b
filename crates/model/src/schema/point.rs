//! Points as values of attributes: their encoding, whose order is the z-order, and their place in a
//! record.
//!
//! | bytes | content |
//! | --- | --- |
//! | 8 | the cell, big-endian |
//! | 8 | the exact first coordinate, encoded as a float |
//! | 8 | the exact second coordinate |
//!
//! A cell has 32 bits of each coordinate. They alternate, the most significant first, the first
//! coordinate's bit before the second's.
//!
//! Cells of degrees are equal parts of 360 and of 180 degrees; cells of the plane are the leading
//! bits of the coordinates' encodings. Both grow with the coordinates, so the points in a rectangle
//! have cells in the rectangle of its corners' cells.

use std::ops::ControlFlow;

use esker_coding::{Own, Reader};

use super::at_path::Found;
use super::found::{describe, nearest_float};
use super::path::Path;
use super::readable::without_repeated_names;
use super::scalars::{decode_float, encode_float};
use super::types::Type;
use super::walk::{Numbers, Rest, Sink, Trie};
use crate::error::{Error, Result};
use crate::geometry::{Bounds, Point, Space};

/// The length of an encoded point in bytes.
pub const POINT_LEN: usize = 24;

/// Bits of a cell in each dimension.
pub(crate) const CELL_BITS: u32 = 32;

/// Appends the encoding of a point.
pub(super) fn encode_point(space: Space, point: Point, out: &mut Vec<u8>) {
    let (cell_x, cell_y) = cell_of(space, point);
    let z = interleave(cell_x, cell_y);
    out.extend_from_slice(&z.to_be_bytes());
    encode_float(point.x(), out);
    encode_float(point.y(), out);
}

/// Decodes a point; `None` if the bytes are malformed.
pub fn decode_point(space: Space, bytes: &[u8]) -> Option<Point> {
    let (z, rest) = bytes.split_first_chunk::<8>()?;
    let mut input = Reader::new(rest);
    let (x, y) = (decode_float(&mut input)?, decode_float(&mut input)?);
    let point = Point::new(space, x, y).ok()?;
    let (cell_x, cell_y) = cell_of(space, point);
    (input.is_empty() && interleave(cell_x, cell_y) == u64::from_be_bytes(*z)).then_some(point)
}

/// Decodes a coordinate from its encoding, read as a whole number; `None` if it is not a
/// coordinate.
pub fn coordinate(ordered: u64) -> Option<f64> {
    decode_float(&mut Reader::new(&ordered.to_be_bytes()))
}

/// The encoding of a coordinate, which follows the cell.
pub fn coordinate_bytes(value: f64) -> [u8; 8] {
    let mut bytes = Vec::with_capacity(8);
    encode_float(value, &mut bytes);
    bytes.first_chunk().copied().unwrap_or_default()
}

/// The smallest cell of a point, in both dimensions.
pub(crate) fn cell_of(space: Space, point: Point) -> (u32, u32) {
    (cell(space, true, point.x()), cell(space, false, point.y()))
}

/// The cell of a coordinate: the first one (a longitude) or the second one.
fn cell(space: Space, is_first: bool, value: f64) -> u32 {
    match space {
        Space::Sphere => {
            let half = if is_first { 180.0 } else { 90.0 };
            // The conversion saturates at the upper end.
            ((value + half) / (2.0 * half) * 4_294_967_296.0) as u32
        }
        Space::Plane => {
            let mut ordered = Vec::with_capacity(8);
            encode_float(value, &mut ordered);
            ordered
                .first_chunk::<4>()
                .map_or(0, |leading| u32::from_be_bytes(*leading))
        }
    }
}

/// The bounds of the points in a cell of this level, which spans `CELL_BITS - level` bits of the
/// smallest cells in each dimension.
pub(crate) fn cell_bounds(space: Space, level: u32, x: u32, y: u32) -> Bounds {
    let (min_x, max_x) = cell_side(space, true, level, x);
    let (min_y, max_y) = cell_side(space, false, level, y);
    Bounds {
        min_x,
        min_y,
        max_x,
        max_y,
    }
}

/// The bounds of a cell of this level in one dimension: the first coordinate (a longitude) or the
/// second one.
pub(crate) fn cell_side(space: Space, is_first: bool, level: u32, at: u32) -> (f64, f64) {
    match space {
        Space::Sphere => {
            let half = if is_first { 180.0 } else { 90.0 };
            let size = 2.0 * half * f64::from_bits(u64::from(1023 - level) << 52);
            // Larger than the rounding errors, and much smaller than the smallest cell.
            let slack = 1e-11;
            let low = f64::from(at) * size - half;
            ((low - slack).max(-half), (low + size + slack).min(half))
        }
        Space::Plane => {
            let rest = CELL_BITS - level;
            let low = u64::from(at) << rest << 32;
            let width = (1_u64 << rest << 32).wrapping_sub(1);
            let value = |ordered: u64| {
                let bits = match ordered >> 63 {
                    1 => ordered & !(1 << 63),
                    _ => !ordered,
                };
                let value = f64::from_bits(bits);
                if value.is_finite() {
                    value
                } else if ordered >> 63 == 1 {
                    // Beyond all finite numbers.
                    f64::MAX
                } else {
                    f64::MIN
                }
            };
            if rest == 32 {
                (f64::MIN, f64::MAX)
            } else {
                (value(low), value(low | width))
            }
        }
    }
}

/// Alternates the bits of two numbers, beginning with the most significant one of `x`.
pub(crate) const fn interleave(x: u32, y: u32) -> u64 {
    spread(x) << 1 | spread(y)
}

const fn spread(v: u32) -> u64 {
    let mut v = v as u64;
    v = (v | v << 16) & 0x0000_ffff_0000_ffff;
    v = (v | v << 8) & 0x00ff_00ff_00ff_00ff;
    v = (v | v << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    v = (v | v << 2) & 0x3333_3333_3333_3333;
    (v | v << 1) & 0x5555_5555_5555_5555
}

/// The paths of a record's point: one path, of a GeoJSON point or an array of two numbers, or two
/// paths joined by a comma, longitude first.
///
/// # Errors
/// If there are more than two paths, or one is invalid.
pub fn coordinate_paths(path: &Path) -> Result<Vec<Path>> {
    let text = path.to_string();
    let parts: Vec<Path> = text.split(',').map(str::parse).collect::<Result<_>>()?;
    match parts.len() {
        1 | 2 => Ok(parts),
        more => Err(Error::bad_input(format!(
            "`{path}`: a point is at one path or at two, not at {more}"
        ))),
    }
}

/// The field of a GeoJSON point with its coordinates.
pub(super) const COORDINATES: &str = "coordinates";

/// A part of a point, by the path of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The first coordinate.
    X,
    /// The second coordinate.
    Y,
    /// The next coordinate of an array.
    Next,
    /// The same, or a GeoJSON object around the array.
    Place,
}

/// The coordinates found for a point of a record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Coordinates {
    x: Option<f64>,
    y: Option<f64>,
    /// The number of coordinates found; a third one may be an altitude.
    found: u8,
    /// An object was found at the path, which may be a GeoJSON point.
    is_object: bool,
    /// The first value found that cannot be a coordinate.
    wrong: Option<&'static str>,
}

impl Coordinates {
    /// Takes a number: the first (`Some(true)`) or the second coordinate, or the next one of an
    /// array.
    fn take(&mut self, first: Option<bool>, value: f64) {
        let place = match first {
            Some(true) => &mut self.x,
            Some(false) => &mut self.y,
            None if self.found == 0 => &mut self.x,
            None if self.found == 1 => &mut self.y,
            None => {
                self.found = self.found.saturating_add(1);
                if self.found > 3 {
                    self.refuse("more than one point");
                }
                return;
            }
        };
        if place.replace(value).is_some() {
            self.refuse("more than one point");
        }
        self.found = self.found.saturating_add(1);
    }

    /// Notes that an object begins at the path.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_object, true) {
            self.refuse("more than one point");
        }
    }

    fn refuse(&mut self, found: &'static str) {
        self.wrong.get_or_insert(found);
    }

    /// Takes the value of a part of the point.
    pub(super) fn see(&mut self, part: Part, found: Found<'_>) {
        let first = match part {
            Part::X => Some(true),
            Part::Y => Some(false),
            Part::Next | Part::Place => None,
        };
        match found {
            Found::Null => {}
            Found::Object if part == Part::Place => self.begin(),
            Found::Int(v) => self.take(first, nearest_float(v)),
            Found::Float(v) | Found::Long(_, v) => self.take(first, v),
            found => self.refuse(describe(Type::Float, found)),
        }
    }

    /// The place. The error names the value that cannot be a part of a point.
    pub(super) fn point(&self, space: Space) -> std::result::Result<Place, &'static str> {
        match (self.wrong, self.x, self.y) {
            // A GeoJSON object of another type, or another object.
            (Some(_), _, _) if self.is_object => Ok(Place::NoPoint),
            (Some(wrong), _, _) => Err(wrong),
            (None, None, None) if self.is_object => Ok(Place::NoPoint),
            (None, None, None) => Ok(Place::Nowhere),
            (None, Some(x), Some(y)) => match Point::new(space, x, y) {
                Ok(point) => Ok(Place::At(point)),
                Err(_) => Ok(Place::NoPoint),
            },
            _ if self.is_object => Ok(Place::NoPoint),
            _ => Err("one coordinate without the other"),
        }
    }
}

/// The result of the coordinates found.
pub(super) enum Place {
    /// There are no coordinates.
    Nowhere,
    At(Point),
    /// There is no valid point: an object of another kind, or coordinates out of range.
    NoPoint,
}

/// Reads the point at a path in JSON texts.
#[derive(Debug, Clone)]
pub struct PointAt {
    trie: Trie,
    /// The parts at each target of the trie.
    parts: [Part; 2],
}

impl PointAt {
    /// Prepares a path: of a GeoJSON point, an array of two numbers, or `LON_PATH,LAT_PATH`.
    ///
    /// # Errors
    /// The errors of [`coordinate_paths`].
    pub fn new(path: &Path) -> Result<PointAt> {
        let mut trie = Trie::new();
        let mut parts = [Part::X, Part::Y];
        let mut paths = coordinate_paths(path)?;
        if paths.len() == 1 {
            parts = [Part::Place, Part::Next];
            paths.push(path.child(COORDINATES));
        }
        for (path, target) in paths.iter().zip(0..) {
            trie.add(path, target, Numbers::Exact);
        }
        Ok(PointAt { trie, parts })
    }

    /// The point; `None` if there is nothing at the path, or no valid point.
    pub fn find(&self, space: Space, json: &[u8]) -> Option<Point> {
        let text = std::str::from_utf8(json).ok()?;
        let mut found = self.walk(text)?;
        if found.is_repeated {
            found = self.walk(&without_repeated_names(text)?)?;
        }
        match found.coordinates.point(space) {
            Ok(Place::At(point)) => Some(point),
            _ => None,
        }
    }

    /// What is found in a text; `None` if it is not JSON.
    fn walk(&self, text: &str) -> Option<Seen> {
        let mut seen = Seen {
            parts: self.parts,
            coordinates: Coordinates::default(),
            is_repeated: false,
        };
        let mut input = serde_json::Deserializer::from_str(text);
        let walked = self.trie.walk(&mut input, Rest::Skipped, &mut seen);
        (walked.is_ok() || seen.is_repeated).then_some(seen)
    }
}

/// The parts of a point that a walk finds.
struct Seen {
    parts: [Part; 2],
    coordinates: Coordinates,
    is_repeated: bool,
}

impl Sink for Seen {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        for target in targets {
            let part = self.parts.own(*target as usize);
            self.coordinates.see(*part, found);
        }
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
        ControlFlow::Break(())
    }
}
