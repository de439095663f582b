//! Points at a time as values of attributes: their encoding, which interleaves place and time, and
//! their place in a record.
//!
//! | bytes | content |
//! | --- | --- |
//! | 4 | the period, big-endian: the 25 leading bits of the time |
//! | 8 | the cell in the period, big-endian |
//! | 8 | the exact first coordinate, encoded as a float |
//! | 8 | the exact second coordinate |
//! | 8 | the exact time: microseconds since 1970, big-endian, the sign bit flipped |
//!
//! A period is 2^39 microseconds, about 6.4 days. A cell has 21 bits of the first coordinate, of
//! the second one, and of the time in the period. They alternate in this order, the most
//! significant first.
//!
//! An area at a time has few ranges per period; a longer time has ranges in each of its periods.
//! GeoMesa's index Z3 bins time in the same way.

use super::path::Path;
use super::point::{CELL_BITS, cell_of};
use super::scalars::{decode_float, encode_float};
use esker_coding::Reader;

use crate::error::{Error, Result};
use crate::geometry::{Point, Space};

/// The length of an encoded point at a time in bytes.
pub const POINT_TIME_LEN: usize = 36;

/// Bits of a cell in each dimension.
pub(crate) const TIMED_BITS: u32 = 21;

/// Bits of a time in its period.
pub(crate) const PERIOD_BITS: u32 = 39;

/// Separates the path of a point from the path of its time.
const SEPARATOR: char = '@';

/// A time as a whole number in the same order.
pub fn time_coordinate(micros: i64) -> u64 {
    micros as u64 ^ 1 << 63
}

/// The time from the result of [`time_coordinate`].
pub fn time_at(ordered: u64) -> i64 {
    (ordered ^ 1 << 63) as i64
}

/// Appends the encoding of a point at a time.
pub(super) fn encode_point_time(space: Space, point: Point, micros: i64, out: &mut Vec<u8>) {
    let ordered = time_coordinate(micros);
    let (period, cell) = head(space, point, ordered);
    out.extend_from_slice(&period.to_be_bytes());
    out.extend_from_slice(&cell.to_be_bytes());
    encode_float(point.x(), out);
    encode_float(point.y(), out);
    out.extend_from_slice(&ordered.to_be_bytes());
}

fn head(space: Space, point: Point, ordered: u64) -> (u32, u64) {
    let (x, y) = cell_of(space, point);
    let less = CELL_BITS - TIMED_BITS;
    let in_period = ordered & ((1 << PERIOD_BITS) - 1);
    let t = (in_period >> (PERIOD_BITS - TIMED_BITS)) as u32;
    let period = (ordered >> PERIOD_BITS) as u32;
    (period, interleave3(x >> less, y >> less, t))
}

/// Decodes a point and its time, in microseconds; `None` if the bytes are malformed.
pub fn decode_point_time(space: Space, bytes: &[u8]) -> Option<(Point, i64)> {
    let mut input = Reader::new(bytes);
    let period = u32::from_be_bytes(input.take(4)?.try_into().ok()?);
    let cell = u64::from_be_bytes(input.take(8)?.try_into().ok()?);
    let (x, y) = (decode_float(&mut input)?, decode_float(&mut input)?);
    let ordered = u64::from_be_bytes(input.take(8)?.try_into().ok()?);
    let point = Point::new(space, x, y).ok()?;
    let fits = input.is_empty() && head(space, point, ordered) == (period, cell);
    fits.then_some((point, time_at(ordered)))
}

/// Alternates the bits of three numbers of 21 bits, beginning with the most significant one of `x`.
pub(crate) fn interleave3(x: u32, y: u32, t: u32) -> u64 {
    spread3(x) << 2 | spread3(y) << 1 | spread3(t)
}

fn spread3(v: u32) -> u64 {
    let mut v = u64::from(v) & 0x1f_ffff;
    v = (v | v << 32) & 0x001f_0000_0000_ffff;
    v = (v | v << 16) & 0x001f_0000_ff00_00ff;
    v = (v | v << 8) & 0x100f_00f0_0f00_f00f;
    v = (v | v << 4) & 0x10c3_0c30_c30c_30c3;
    (v | v << 2) & 0x1249_2492_4924_9249
}

/// The path of the point and the path of its time, from a path `POINT@TIME`.
///
/// # Errors
/// If one of the two is missing or invalid.
pub fn point_time_paths(path: &Path) -> Result<(Path, Path)> {
    let text = path.to_string();
    let parts = text.rsplit_once(SEPARATOR);
    let Some((point, time)) = parts.filter(|(point, time)| !point.is_empty() && !time.is_empty())
    else {
        return Err(Error::bad_input(format!(
            "`{path}`: place and time are at two paths, as in position@at"
        )));
    };
    Ok((point.parse()?, time.parse()?))
}
