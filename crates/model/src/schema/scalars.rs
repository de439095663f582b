//! The encodings of single numbers, booleans and texts. Encoded values have the order of the
//! values.

use esker_coding::{Own, Reader};

/// Parses a whole number in the range of an int.
pub(crate) fn parse_int(text: &str) -> Option<i128> {
    text.parse().ok().filter(|v| is_int(*v))
}

/// True if an integer is one that is encoded as itself.
pub(super) fn is_int(v: i128) -> bool {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&v)
}

#[inline]
pub(super) fn encode_int(v: i128, out: &mut Vec<u8>) {
    let v = v.clamp(i128::from(i64::MIN), i128::from(u64::MAX));
    let magnitude = v.unsigned_abs() as u64;
    let length = 8 - magnitude.leading_zeros() as usize / 8;
    let mut bytes = [0; 9];
    if v < 0 {
        bytes[0] = 0x80 - length as u8;
        bytes[1..].copy_from_slice(&(!magnitude << (64 - 8 * length)).to_be_bytes());
    } else {
        bytes[0] = 0x80 + length as u8;
        // Zero has no bytes of magnitude; the shift by 64 must give 0.
        let shifted = magnitude.checked_shl(64 - 8 * length as u32).unwrap_or(0);
        bytes[1..].copy_from_slice(&shifted.to_be_bytes());
    }
    out.extend_from_slice(bytes.own(..=length));
}

pub(super) fn int_length(header: u8) -> Option<usize> {
    let length = usize::from(header.abs_diff(0x80));
    (length <= 8).then_some(length)
}

/// As [`int_length`], but also accepts the stand-in of other values, which is a header without
/// further bytes.
pub(super) fn split_int(header: u8) -> Option<usize> {
    match header {
        0xff => Some(0),
        header => int_length(header),
    }
}

pub(super) fn decode_int(input: &mut Reader<'_>) -> Option<i128> {
    let header = input.u8()?;
    let flip = if header < 0x80 { 0xff } else { 0 };
    let bytes = input.take(int_length(header)?)?;
    if bytes.first().is_some_and(|first| first ^ flip == 0) {
        return None;
    }
    // The first four bytes and the last four, which overlap or touch; fewer than four bytes are
    // read one by one.
    let magnitude = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let shift = 8 * (bytes.len() - 4);
            u64::from(u32::from_be_bytes(*first)) << shift | u64::from(u32::from_be_bytes(*last))
        }
        _ => (bytes.iter()).fold(0, |v, byte| v << 8 | u64::from(*byte)),
    };
    let ones = u64::MAX
        .checked_shr(64 - 8 * bytes.len() as u32)
        .unwrap_or(0);
    let magnitude = i128::from(if header < 0x80 {
        magnitude ^ ones
    } else {
        magnitude
    });
    let v = if header < 0x80 { -magnitude } else { magnitude };
    (v >= i128::from(i64::MIN)).then_some(v)
}

#[inline]
pub(super) fn encode_float(v: f64, out: &mut Vec<u8>) {
    // Adding 0.0 makes -0.0 positive and leaves every other float unchanged.
    let bits = (v + 0.0).to_bits();
    let ordered = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    out.extend_from_slice(&ordered.to_be_bytes());
}

pub(super) fn decode_float(input: &mut Reader<'_>) -> Option<f64> {
    let ordered = u64::from_be_bytes(input.take(8)?.try_into().ok()?);
    let bits = if ordered >> 63 == 1 {
        ordered & !(1 << 63)
    } else {
        !ordered
    };
    let v = f64::from_bits(bits);
    (v.is_finite() && bits != 1 << 63).then_some(v)
}

#[inline]
pub(super) fn encode_bool(v: bool, out: &mut Vec<u8>) {
    out.push(u8::from(v));
}

#[inline]
pub(super) fn encode_string(v: &str, out: &mut Vec<u8>) {
    escape(v, out);
    out.extend_from_slice(&[0, 1]);
}

pub(super) fn escape(v: &str, out: &mut Vec<u8>) {
    let mut parts = v.as_bytes().split(|byte| *byte == 0);
    out.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        out.extend_from_slice(&[0, 0xff]);
        out.extend_from_slice(part);
    }
}

/// The escaped bytes of a string, without the terminator; takes both.
pub(super) fn take_string<'a>(input: &mut Reader<'a>) -> Option<&'a [u8]> {
    let bytes = input.rest();
    let mut length = 0;
    loop {
        length += bytes.get(length..)?.iter().position(|byte| *byte == 0)?;
        match bytes.get(length + 1)? {
            0xff => length += 2,
            1 => break,
            _ => return None,
        }
    }
    let text = input.take(length)?;
    input.take(2)?;
    Some(text)
}

pub(super) fn unescape(escaped: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        text.push(*byte);
        if *byte == 0 {
            bytes.next();
        }
    }
    text
}

/// Decodes a text; takes its terminator, too.
pub(super) fn decode_string(input: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(unescape(take_string(input)?)).ok()
}
