//! The table entries of a bitmap tree: one for each non-empty chunk of 65,536 numbers.
//!
//! ```text
//! key    the number that the chunk begins with, u64 big-endian
//! value  one Roaring container, in the portable Roaring format
//! ```
//!
//! An entry with an empty value stands for the number of its key: memtables hold these, and so do
//! tables created before there were chunks. Both forms may occur in one run; together they are one
//! set.

use roaring::RoaringBitmap;

use super::SeqSet;
use super::set::MAX_LOW;
use crate::entry::{Seq, key_seq, seq_key};

/// The longest value: a bitmap container and its header.
const MAX_BYTES: usize = (8 << 10) + 16;

/// Decodes an entry of a bitmap tree and adds it to a set; returns a description of the damage
/// otherwise. Accepts any bytes.
pub(crate) fn decode(key: &[u8], value: &[u8], into: &mut SeqSet) -> Result<(), &'static str> {
    let first = key_seq(key).ok_or("a key is not a sequence number")?;
    if value.is_empty() {
        into.insert(first);
        return Ok(());
    }
    if first & Seq::from(MAX_LOW) != 0 {
        return Err("a chunk of the obsolete set begins in the middle of one");
    }
    into.add(
        first,
        container(value).ok_or("a chunk of the obsolete set is malformed")?,
    );
    Ok(())
}

/// Decodes one non-empty container in its canonical encoding.
fn container(value: &[u8]) -> Option<RoaringBitmap> {
    if value.len() > MAX_BYTES {
        return None;
    }
    let chunk = RoaringBitmap::deserialize_from(value).ok()?;
    let fits = chunk.max()? <= MAX_LOW && chunk.serialized_size() == value.len();
    (fits && chunk.internal_validate().is_ok()).then_some(chunk)
}

/// Receives entries: key and value.
pub(crate) type EntrySink<'s, E> = dyn FnMut(&[u8], &[u8]) -> Result<(), E> + 's;

/// Passes the entries of a set to `sink`, ascending.
pub(crate) fn encode<E>(set: &SeqSet, sink: &mut EntrySink<'_, E>) -> Result<(), E> {
    let mut value = Vec::new();
    for (first, chunk) in set.chunks() {
        let mut chunk = chunk.clone();
        chunk.optimize();
        value.clear();
        // Writing to memory does not fail.
        let _ = chunk.serialize_into(&mut value);
        sink(&seq_key(first), &value)?;
    }
    Ok(())
}

/// The number of entries of an encoded set.
pub(crate) fn entries(set: &SeqSet) -> u64 {
    set.chunks().len() as u64
}
