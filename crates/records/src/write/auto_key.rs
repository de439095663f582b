//! Generated keys for records without one: UUIDs of version 7 (RFC 9562), ascending within a
//! process.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The timestamp of the last key: milliseconds since 1970 in 48 bits, and 12 bits of their
/// fraction.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The source of random bits: the random keys of a hash function.
static RANDOM: OnceLock<RandomState> = OnceLock::new();

/// The next key.
pub(super) fn next() -> String {
    // 0 if the clock is before 1970: keys ascend all the same.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    // 4096 parts of a millisecond.
    let now = u64::try_from(nanos * 4096 / 1_000_000).unwrap_or(0);
    let later = |last: u64| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    let time = now.max(last.unwrap_or(0) + 1);
    let random = RANDOM.get_or_init(RandomState::new).hash_one(time);
    let (millis, fraction) = (time >> 12, time & 0xFFF);
    format!(
        "{:08x}-{:04x}-7{fraction:03x}-{:04x}-{:012x}",
        millis >> 16 & 0xFFFF_FFFF,
        millis & 0xFFFF,
        random >> 48 & 0x3FFF | 0x8000,
        random & 0xFFFF_FFFF_FFFF
    )
}

/// Writes the record `json` to `out`, with a generated key in the field `field` in front of its
/// other fields. False if `json` is not an object.
pub(super) fn add(field: &str, json: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(at) = json.iter().position(|byte| *byte == b'{') else {
        return false;
    };
    let (head, rest) = json.split_at(at + 1);
    out.clear();
    out.extend_from_slice(head);
    // Writing a string to memory does not fail.
    let _ = serde_json::to_writer(&mut *out, field);
    out.extend_from_slice(b":\"");
    out.extend_from_slice(next().as_bytes());
    out.push(b'"');
    if !rest.trim_ascii_start().starts_with(b"}") {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    true
}
