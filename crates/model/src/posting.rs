//! Posting lists: the keys of the records that have (or had) a value, newest first.
//!
//! A list is stored as fragments, operands of its key in the index tree (LevelDB++'s lazy index,
//! section 4.1.2 of the paper, in binary form). A write appends a fragment of one posting blindly;
//! flushes and compactions combine adjacent fragments up to a chunk size, so that a list of any
//! length is processed in bounded memory.
//!
//! ```text
//! fragment  varint  newest seq << 2 | normalised << 1 | cancels
//!           varint  newest seq - oldest seq
//!           postings, newest first
//! posting   varint  (previous seq - seq) << 1 | cancel          the first: 0 | cancel
//!           byte    shared with the previous key << 4 | further bytes; 15: 15 + a varint
//!           the varints, the further bytes
//! ```
//!
//! `cancels`: there may be cancels. `normalised`: no key occurs more often than the tree keeps
//! versions, and keys are prefix-compressed. A newest seq of 0, with one posting, stands for the
//! sequence number of the entry that holds the fragment, because a write does not know its number
//! when it is encoded. The first key shares nothing, so combining an older fragment with a newer
//! one rewrites only its first delta; [`normalise`] does the rest once per compaction.
//!
//! A *cancel* is a tombstone: as of its sequence number the record no longer has the value.

use std::collections::HashMap;
use std::fmt;

use esker_coding::{MAX_SEQ, Own, Seq};
use esker_coding::{Reader, put_varint};

use crate::schema::MAX_PRIMARY_KEY;

/// The size in bytes above which [`PostingMerge`] keeps fragments separate.
pub const CHUNK_BYTES: usize = 4 << 10;

/// Stands for the sequence number of the entry; no write has the number 0.
const IMPLIED: Seq = 0;

const CANCELS: u64 = 1;
const NORMALISED: u64 = 2;

/// Up to this many keys, pairwise comparison is faster than hashing.
const FEW: usize = 12;

/// An entry of a posting list, which is the list of the records that have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting<'a> {
    /// The write that created it.
    pub seq: Seq,
    /// The encoded primary key of the record.
    pub key: &'a [u8],
    /// True if the record lost the value in this write.
    pub cancel: bool,
}

/// The bytes are not a posting list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed posting list")
    }
}

impl std::error::Error for Malformed {}

/// Appends a fragment with one posting, which one write adds to a list. The posting's sequence
/// number is that of the entry that will hold the fragment.
pub fn encode_one(out: &mut Vec<u8>, key: &[u8], cancel: bool) {
    Posting {
        seq: IMPLIED,
        key,
        cancel,
    }
    .encode(out);
}

impl Posting<'_> {
    /// Appends a fragment with this posting only.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, (self.seq << 2) | if self.cancel { CANCELS } else { 0 });
        put_varint(out, 0);
        put_posting(out, 0, self, 0);
    }
}

/// Appends a posting whose key shares `shared` bytes with the previous one.
fn put_posting(out: &mut Vec<u8>, delta: u64, posting: &Posting<'_>, shared: usize) {
    put_varint(out, delta << 1 | u64::from(posting.cancel));
    let further = posting.key.own(shared..);
    out.push((shared.min(15) << 4 | further.len().min(15)) as u8);
    for length in [shared, further.len()] {
        if length >= 15 {
            put_varint(out, (length - 15) as u64);
        }
    }
    out.extend_from_slice(further);
}

/// A fragment with a decoded head.
#[derive(Debug, Clone, Copy)]
pub struct PostingList<'a> {
    newest: Seq,
    oldest: Seq,
    flags: u64,
    head_len: usize,
    body: &'a [u8],
}

impl<'a> PostingList<'a> {
    /// Decodes the head of a fragment in an entry with sequence number `entry`.
    ///
    /// # Errors
    /// If the head is malformed. Postings are checked as they are read.
    pub fn parse(bytes: &'a [u8], entry: Seq) -> Result<PostingList<'a>, Malformed> {
        PostingList::head(bytes, entry).ok_or(Malformed)
    }

    fn head(bytes: &'a [u8], entry: Seq) -> Option<PostingList<'a>> {
        let mut input = Reader::new(bytes);
        let first = input.varint()?;
        let newest = if first >> 2 == IMPLIED {
            entry
        } else {
            first >> 2
        };
        // No write has the number 0.
        let span = input.varint()?;
        let oldest = newest.checked_sub(span).filter(|oldest| *oldest > 0)?;
        let body = input.rest();
        let head_len = bytes.len() - body.len();
        let list = PostingList {
            newest,
            oldest,
            flags: first & 3,
            head_len,
            body,
        };
        (newest <= MAX_SEQ && !body.is_empty()).then_some(list)
    }

    /// The sequence number of the newest posting.
    pub fn newest(&self) -> Seq {
        self.newest
    }

    /// The sequence number of the oldest posting.
    pub fn oldest(&self) -> Seq {
        self.oldest
    }

    /// True if no key occurs twice.
    pub fn is_normalised(&self) -> bool {
        self.flags & NORMALISED != 0
    }

    /// A reader of the postings, newest first. To get the newest K, stop early: postings after the
    /// reader's position are not decoded.
    pub fn reader(&self) -> PostingReader<'a> {
        PostingReader {
            list: *self,
            rest: Reader::new(self.body),
            seq: None,
            key: Vec::new(),
        }
    }
}

/// Reads the postings of a fragment one by one.
#[derive(Debug, Clone)]
pub struct PostingReader<'a> {
    list: PostingList<'a>,
    rest: Reader<'a>,
    seq: Option<Seq>,
    key: Vec<u8>,
}

impl<'a> PostingReader<'a> {
    /// The next posting; `None` at the end.
    ///
    /// # Errors
    /// If the bytes are malformed; the reader must not be used further.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "the posting borrows from the reader"
    )]
    pub fn next(&mut self) -> Result<Option<Posting<'_>>, Malformed> {
        if self.rest.is_empty() {
            let complete = self.seq == Some(self.list.oldest);
            return if complete { Ok(None) } else { Err(Malformed) };
        }
        let (seq, cancel) = self.step().ok_or(Malformed)?;
        Ok(Some(Posting {
            seq,
            key: &self.key,
            cancel,
        }))
    }

    #[inline]
    fn step(&mut self) -> Option<(Seq, bool)> {
        let head = self.rest.varint()?;
        let (delta, cancel) = (head >> 1, head & 1 == 1);
        let seq = match self.seq {
            None if delta == 0 => self.list.newest,
            Some(seq) if delta > 0 => seq.checked_sub(delta)?,
            _ => return None,
        };
        if seq < self.list.oldest {
            return None;
        }
        let (shared, further) = key_parts(&mut self.rest)?;
        if shared > self.key.len() || shared + further.len() > MAX_PRIMARY_KEY {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(further);
        self.seq = Some(seq);
        Some((seq, cancel))
    }
}

/// The length of the prefix shared with the previous key, and the remaining bytes.
#[inline]
fn key_parts<'a>(input: &mut Reader<'a>) -> Option<(usize, &'a [u8])> {
    let token = input.u8()?;
    let mut length = |nibble: u8| match nibble {
        15 => usize::try_from(input.varint()?).ok()?.checked_add(15),
        _ => Some(usize::from(nibble)),
    };
    let shared = length(token >> 4)?;
    let further = length(token & 15)?;
    Some((shared, input.take(further)?))
}

/// Encodes a fragment of many postings, with prefix-compressed keys.
#[derive(Debug, Default)]
pub struct PostingWriter {
    body: Vec<u8>,
    previous: Vec<u8>,
    newest: Seq,
    oldest: Seq,
    flags: u64,
}

impl PostingWriter {
    /// An empty writer.
    pub fn new() -> PostingWriter {
        PostingWriter::default()
    }

    /// Adds a posting, which must be older than the previous ones. Returns false and does nothing
    /// if it is not, or if its key is too long.
    pub fn push(&mut self, posting: Posting<'_>) -> bool {
        let first = self.body.is_empty();
        if posting.key.len() > MAX_PRIMARY_KEY || (!first && posting.seq >= self.oldest) {
            return false;
        }
        let delta = if first { 0 } else { self.oldest - posting.seq };
        if first {
            self.newest = posting.seq;
        }
        self.oldest = posting.seq;
        self.flags |= if posting.cancel { CANCELS } else { 0 };
        let shared = shared_prefix(&self.previous, posting.key);
        put_posting(&mut self.body, delta, &posting, shared);
        self.previous.truncate(shared);
        self.previous.extend_from_slice(posting.key.own(shared..));
        true
    }

    /// Bytes of the postings so far.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// True if there are no postings.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Appends the fragment to `out` and starts a new one. Appends nothing if it is empty.
    /// `normalised` says that no key occurs more often than allowed.
    pub fn finish(&mut self, normalised: bool, out: &mut Vec<u8>) {
        if !self.body.is_empty() {
            let flags = if normalised {
                self.flags | NORMALISED
            } else {
                self.flags
            };
            put_head(out, self.newest, self.oldest, flags);
            out.extend_from_slice(&self.body);
        }
        self.body.clear();
        self.previous.clear();
        self.flags = 0;
    }
}

fn put_head(out: &mut Vec<u8>, newest: Seq, oldest: Seq, flags: u64) {
    put_varint(out, newest << 2 | flags);
    put_varint(out, newest - oldest);
}

fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Appends `older` to `newer` by copying. Returns false and leaves `newer` unchanged if `older` is
/// not entirely older, or if one of the two is malformed. The sequence numbers are those of the
/// entries that hold the fragments.
pub fn append(newer: &mut Vec<u8>, newer_entry: Seq, older: &[u8], older_entry: Seq) -> bool {
    join(newer, newer_entry, older, older_entry).is_some()
}

fn join(newer: &mut Vec<u8>, newer_entry: Seq, older: &[u8], older_entry: Seq) -> Option<()> {
    let front = PostingList::head(newer, newer_entry)?;
    let back = PostingList::head(older, older_entry)?;
    let delta = front
        .oldest
        .checked_sub(back.newest)
        .filter(|delta| *delta > 0)?;
    let mut first = Reader::new(back.body);
    let cancel = first.varint().filter(|head| *head <= 1)?;
    // The first key shares nothing, so it can follow any other.
    let keys = first.rest();
    if keys.first()? >> 4 != 0 {
        return None;
    }
    let (head_len, newest, flags) = (front.head_len, front.newest, front.flags | back.flags);
    // The new head is written behind the rest, and moved over the old one.
    let end = newer.len();
    put_head(newer, newest, back.oldest, flags & CANCELS);
    let new_len = newer.len() - end;
    if new_len == head_len {
        newer.copy_within(end.., 0);
        newer.truncate(end);
    } else {
        newer.rotate_right(new_len);
        newer.drain(new_len..new_len + head_len);
    }
    put_varint(newer, delta << 1 | cancel);
    newer.extend_from_slice(keys);
    Some(())
}

/// Drops from a fragment each posting that has `versions` newer postings of the same key (counting
/// cancels), and, if nothing older can exist (`oldest`), also the cancels. Returns false if nothing
/// is left. Leaves a malformed fragment unchanged. O(postings); O(1) for a normalised fragment.
/// `entry` is the number of the entry that holds the fragment.
pub fn normalise(fragment: &mut Vec<u8>, entry: Seq, oldest: bool, versions: usize) -> bool {
    match normalised(fragment, entry, oldest, versions) {
        Some(Normalised::As(new)) if new.is_empty() => false,
        Some(Normalised::As(new)) => {
            *fragment = new;
            true
        }
        Some(Normalised::Already) | None => true,
    }
}

enum Normalised {
    Already,
    As(Vec<u8>),
}

fn normalised(fragment: &[u8], entry: Seq, oldest: bool, versions: usize) -> Option<Normalised> {
    let list = PostingList::head(fragment, entry)?;
    let drop_cancels = oldest && list.flags & CANCELS != 0;
    let distinct = list.flags & NORMALISED != 0 || list.newest == list.oldest;
    if distinct && !drop_cancels {
        return Some(Normalised::Already);
    }
    // Prefix-compressed keys may expand to far more bytes; damaged ones without bound.
    let budget = (1 << 20) + fragment.len() * 256;
    let mut keys = Vec::with_capacity(fragment.len());
    let mut postings = Vec::new();
    let mut reader = list.reader();
    while let Some(posting) = reader.next().ok()? {
        let start = keys.len();
        keys.extend_from_slice(posting.key);
        postings.push((posting.seq, posting.cancel, start..keys.len()));
        if keys.len() > budget {
            return None;
        }
    }
    let few = postings.len() <= FEW;
    let mut seen_few: [&[u8]; FEW] = [&[]; FEW];
    let mut seen: HashMap<&[u8], usize> = if few {
        HashMap::new()
    } else {
        HashMap::with_capacity(postings.len())
    };
    let mut writer = PostingWriter::new();
    writer.body.reserve(fragment.len());
    for (i, (seq, cancel, range)) in postings.into_iter().enumerate() {
        let key = keys.get(range)?;
        let wanted = if few {
            let (before, here) = seen_few.split_at_mut_checked(i)?;
            *here.first_mut()? = key;
            before.iter().filter(|other| **other == key).count() < versions
        } else {
            let times = seen.entry(key).or_default();
            *times += 1;
            *times <= versions
        };
        if wanted && !(cancel && oldest) {
            writer.push(Posting { seq, key, cancel });
        }
    }
    let mut out = Vec::with_capacity(writer.body.len() + 16);
    writer.finish(true, &mut out);
    Some(Normalised::As(out))
}

/// Combines the fragments of posting lists in flushes and compactions.
#[derive(Debug, Clone, Copy)]
pub struct PostingMerge {
    /// A fragment of this many bytes is not extended.
    pub chunk_bytes: usize,
    /// The number of postings to keep per key.
    pub versions: usize,
}

impl Default for PostingMerge {
    fn default() -> PostingMerge {
        PostingMerge {
            chunk_bytes: CHUNK_BYTES,
            versions: 1,
        }
    }
}

impl PostingMerge {
    /// Appends an older fragment to a newer one. Returns false if they stay separate, with the
    /// newer one unchanged.
    pub fn combine(
        &self,
        newer: &mut Vec<u8>,
        newer_seq: Seq,
        older: &[u8],
        older_seq: Seq,
    ) -> bool {
        newer.len() < self.chunk_bytes && append(newer, newer_seq, older, older_seq)
    }

    /// Normalises a combined fragment before it is stored; `oldest` says that nothing older exists.
    /// Returns false if nothing is left.
    pub fn finish(&self, seq: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        normalise(operand, seq, oldest, self.versions)
    }
}

#[cfg(test)]
#[path = "posting_tests.rs"]
mod tests;
