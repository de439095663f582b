//! Integers on disk, lists of byte strings, places that the program computed, and 8-byte prefixes
//! of keys.

pub use ::esker_coding::{ByteList, Misplaced, Own, Reader, put_bytes, put_varint};

/// The first 8 bytes as a number with the same order; equal numbers decide nothing.
#[inline]
pub(crate) fn head(rest: &[u8]) -> u64 {
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest
            .iter()
            .enumerate()
            .fold(0, |head, (i, &b)| head | u64::from(b) << (56 - 8 * i)),
    }
}
