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

use super::path::Path;
use super::scalars::{decode_float, encode_float};
use esker_coding::Reader;

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
