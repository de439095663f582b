//! Generated keys for records without one: UUIDs of version 7 (RFC 9562), ascending within a
//! process.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use esker_model::schema::Path;

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
    // 4096 parts of a millisecond: less than 2^64 in the next 100,000 years.
    let now = (nanos * 4096 / 1_000_000) as u64;
    let later = |last: u64| Some(now.max(last + 1));
    let updated = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    let (Ok(last) | Err(last)) = updated;
    let time = now.max(last + 1);
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

/// The record `json`, with a generated key at `path`, in front of its other fields, as records
/// without a key get one ([`DatasetDef::auto_key`](crate::DatasetDef::auto_key)). `None` if `json`
/// is not an object, or the key belongs into another object inside of it.
pub fn with_generated_key(path: &Path, json: &[u8]) -> Option<Vec<u8>> {
    let mut names = path.names();
    let field = names.next().filter(|_| names.len() == 0)?;
    let brace = json.iter().position(|byte| *byte == b'{')?;
    let (head, rest) = json.split_at(brace + 1);
    let mut with_key = Vec::with_capacity(json.len() + 64);
    with_key.extend_from_slice(head);
    // Writing a string to memory does not fail.
    let _ = serde_json::to_writer(&mut with_key, field);
    with_key.extend_from_slice(b":\"");
    with_key.extend_from_slice(next().as_bytes());
    with_key.push(b'"');
    if !rest.trim_ascii_start().starts_with(b"}") {
        with_key.push(b',');
    }
    with_key.extend_from_slice(rest);
    Some(with_key)
}
