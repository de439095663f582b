//! A batch: writes to any trees of a group that are applied atomically. Its bytes are the payload
//! of one log record, so each entry is encoded once.
//!
//! ```text
//! payload := first sequence u64 | operations u32 | operation*
//! operation := tag u8 (kind in the low 2 bits; 0x80: shares the sequence of the one before)
//!            | tree varint | key bytes | value bytes (not for deletes)
//! ```

use crate::coding::{Own, Reader, put_bytes, put_varint};
use crate::entry::{Kind, MAX_KEY_LEN, MAX_SEQ, MAX_VALUE_LEN, Seq, TIMED_LEN, Time, Timed};
use crate::error::{Error, Result};
use crate::wal::rest_hash;

/// The number of a tree within its group; not reused after the tree is dropped.
pub type TreeId = u32;

const HEADER: usize = 12;
/// Length of the header field that is set when the batch gets its place in the log.
const FIRST_LEN: usize = 8;
/// Up to this many trees are recorded without duplicates.
const FEW_TREES: usize = 16;
const SHARES: u8 = 0x80;
/// At most so many bytes of an operation are neither key nor value: a tag and three varints.
const AROUND: usize = 16;
/// Bytes of memory that a batch begins with.
const FIRST: usize = 256;

/// Writes that are applied atomically. Each write takes the next sequence number, unless it was
/// added by one of the `also_` methods: then it shares the number of the write before, as a record
/// and its index entries do.
#[derive(Debug, Clone)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Offsets of the writes in the bytes, so that applying them does not decode what was just
    /// encoded.
    places: Vec<Place>,
    sequences: u32,
    made_for: Option<u64>,
    /// The trees written to; with many trees, some occur more than once.
    trees: Vec<TreeId>,
    /// Hash of the bytes behind the header's first field; cleared when a write is added.
    hash: Option<u64>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

/// A write in the bytes of a batch.
#[derive(Debug, Clone, Copy)]
struct Place {
    tree: TreeId,
    kind: Kind,
    shares: bool,
    key: (u32, u32),
    /// The value's start and end.
    value: (u32, u32),
}

/// Visits a write: tree, kind, key, value.
pub type ShowWrite<'v> = dyn FnMut(TreeId, Kind, &[u8], &[u8]) + 'v;

/// A savepoint: a position in a batch to which the batch can be rewound.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint(usize, usize, u32, usize);

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        let mut bytes = Vec::with_capacity(FIRST);
        bytes.resize(HEADER, 0);
        Batch {
            bytes,
            places: Vec::new(),
            sequences: 0,
            made_for: None,
            trees: Vec::new(),
            hash: None,
        }
    }

    /// True when the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Number of writes.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Number of sequence numbers that the batch takes.
    pub fn sequences(&self) -> u32 {
        self.sequences
    }

    /// Bytes that the batch takes in the log.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that the batch has allocated.
    pub fn memory(&self) -> usize {
        let places = self.places.capacity() * size_of::<Place>();
        self.bytes.capacity() + places + self.trees.capacity() * size_of::<TreeId>()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER);
        self.places.clear();
        self.sequences = 0;
        self.made_for = None;
        self.trees.clear();
        self.hash = None;
    }

    /// Binds the batch to the trees as of `changes` ([`crate::version::Version::changes`]): after
    /// one more change the batch is refused ([`Error::Stale`]), because it may have to write to
    /// other trees.
    pub fn made_for(&mut self, changes: u64) {
        self.made_for = Some(changes);
    }

    /// True when the batch is bound to another state of the trees than `changes`.
    pub(crate) fn is_stale(&self, changes: u64) -> bool {
        self.made_for.is_some_and(|made| made != changes)
    }

    /// Visits each write in the order of addition: tree, kind, key, value (empty for deletes). A
    /// write that expires is shown as it is stored ([`Timed`]).
    pub fn each(&self, visit: &mut ShowWrite<'_>) {
        // The sequence numbers do not matter here.
        for write in self.operations(1) {
            visit(write.tree, write.kind, write.key, write.value);
        }
    }

    /// The writes in the order of addition, given the batch's first sequence number: what
    /// [`decode`] finds in the payload.
    pub(crate) fn operations(&self, first: Seq) -> impl Iterator<Item = Operation<'_>> {
        let slice = |(start, end): (u32, u32)| self.bytes.own(start as usize..end as usize);
        let mut next = first;
        self.places.iter().map(move |place| {
            // The first shares its number with none.
            next += u64::from(!place.shares);
            Operation {
                seq: next - 1,
                kind: place.kind,
                tree: place.tree,
                key: slice(place.key),
                value: slice(place.value),
            }
        })
    }

    /// Adds the writes of another batch behind those that are there.
    pub fn append(&mut self, other: &Batch) -> Result<()> {
        let writes = other.bytes.own(HEADER..);
        check_limit(
            "batch length in bytes",
            u32::MAX as usize / 2,
            self.bytes.len() + writes.len(),
        )?;
        // Both begin with a header. The length was checked.
        let shift = (self.bytes.len() - HEADER) as u32;
        let shifted = |(start, end): (u32, u32)| (start + shift, end + shift);
        let places = other.places.iter().map(|place| Place {
            key: shifted(place.key),
            value: shifted(place.value),
            ..*place
        });
        self.places.extend(places);
        self.bytes.extend_from_slice(writes);
        self.sequences += other.sequences;
        self.trees.extend_from_slice(&other.trees);
        self.hash = None;
        Ok(())
    }

    /// A savepoint at the current end of the batch.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(
            self.bytes.len(),
            self.places.len(),
            self.sequences,
            self.trees.len(),
        )
    }

    /// Removes all writes added since `savepoint`.
    pub fn rewind(&mut self, savepoint: Savepoint) {
        self.bytes.truncate(savepoint.0);
        self.places.truncate(savepoint.1);
        self.sequences = savepoint.2;
        self.trees.truncate(savepoint.3);
        self.hash = None;
    }

    /// Sets `key` to `value`. Refuses keys over [`MAX_KEY_LEN`] and values over [`MAX_VALUE_LEN`].
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(Kind::Put, tree, key, &[value], false)
    }

    /// As [`Batch::put`], with the value in parts.
    pub fn put_parts(&mut self, tree: TreeId, key: &[u8], value: &[&[u8]]) -> Result<()> {
        self.add(Kind::Put, tree, key, value, false)
    }

    /// Removes `key`.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.add(Kind::Delete, tree, key, &[], false)
    }

    /// Appends a merge operand to `key`.
    pub fn operand(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(Kind::Operand, tree, key, &[value], false)
    }

    /// As [`Batch::put`] with an expiry time: from `expires` on, `key` reads as deleted. Times over
    /// [`MAX_TIME`](crate::entry::MAX_TIME) are clamped to it.
    pub fn put_until(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        expires: Time,
    ) -> Result<()> {
        self.add_until(Kind::Put, tree, key, value, expires, false)
    }

    /// As [`Batch::operand`] with an expiry time: from then on the operand is hidden. Operands of a
    /// key that expire at different times are combined only where the operator knows the times of
    /// their elements ([`crate::merge::MergeOperator::times_elements`]).
    pub fn operand_until(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        expires: Time,
    ) -> Result<()> {
        self.add_until(Kind::Operand, tree, key, value, expires, false)
    }

    /// As [`Batch::also`] for a put or an operand that expires.
    pub fn also_until(
        &mut self,
        kind: Kind,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        expires: Time,
    ) -> Result<()> {
        self.add_until(kind, tree, key, value, expires, self.sequences > 0)
    }

    fn add_until(
        &mut self,
        kind: Kind,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        expires: Time,
        shares: bool,
    ) -> Result<()> {
        if !matches!(kind, Kind::Put | Kind::Operand) {
            return Err(Error::Invalid(format!("{kind:?} cannot expire")));
        }
        check_limit(
            "value length in bytes",
            MAX_VALUE_LEN - TIMED_LEN,
            value.len(),
        )?;
        let front = Timed::front(kind, expires);
        self.add(Kind::Timed, tree, key, &[&front, value], shares)
    }

    /// Adds a write that shares the sequence number of the write before. Two writes of one number
    /// must not have the same tree and key.
    pub fn also(&mut self, kind: Kind, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(kind, tree, key, &[value], self.sequences > 0)
    }

    /// As [`Batch::also`] for a put, with the value in parts.
    pub fn also_parts(&mut self, tree: TreeId, key: &[u8], value: &[&[u8]]) -> Result<()> {
        self.add(Kind::Put, tree, key, value, self.sequences > 0)
    }

    fn add(
        &mut self,
        kind: Kind,
        tree: TreeId,
        key: &[u8],
        value: &[&[u8]],
        shares: bool,
    ) -> Result<()> {
        // A deletion has none.
        let value = if kind == Kind::Delete { &[] } else { value };
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        check_limit("key length in bytes", MAX_KEY_LEN, key.len())?;
        check_limit("value length in bytes", MAX_VALUE_LEN, value_len)?;
        check_limit(
            "batch length in bytes",
            u32::MAX as usize / 2,
            self.bytes.len() + key.len() + value_len,
        )?;
        self.bytes.reserve(key.len() + value_len + AROUND);
        self.bytes
            .push(kind as u8 | if shares { SHARES } else { 0 });
        put_varint(&mut self.bytes, u64::from(tree));
        put_bytes(&mut self.bytes, key);
        let key_end = self.bytes.len();
        if kind != Kind::Delete {
            put_varint(&mut self.bytes, value_len as u64);
        }
        let value_start = self.bytes.len();
        for part in value {
            self.bytes.extend_from_slice(part);
        }
        // The lengths were checked.
        self.places.push(Place {
            tree,
            kind,
            shares,
            key: ((key_end - key.len()) as u32, key_end as u32),
            value: (value_start as u32, (value_start + value_len) as u32),
        });
        self.sequences += u32::from(!shares);
        self.hash = None;
        let is_noted = self.trees.len() <= FEW_TREES && self.trees.contains(&tree);
        if !is_noted && self.trees.last() != Some(&tree) {
            self.trees.push(tree);
        }
        Ok(())
    }

    /// The trees written to; some occur more than once.
    pub fn trees(&self) -> &[TreeId] {
        &self.trees
    }

    /// Hashes the writes, so that [`Batch::seal`] need not do it under a lock.
    pub(crate) fn hash(&mut self) -> u64 {
        if let Some(hash) = self.hash {
            return hash;
        }
        let operations = (self.places.len() as u32).to_le_bytes();
        let place = self.bytes.own_mut(FIRST_LEN..HEADER);
        place.copy_from_slice(&operations);
        *self.hash.insert(rest_hash(&self.bytes))
    }

    /// The payload for the log, given the batch's first sequence number.
    pub(crate) fn seal(&mut self, first: Seq) -> &[u8] {
        self.hash();
        if let Some(place) = self.bytes.first_chunk_mut() {
            *place = first.to_le_bytes();
        }
        &self.bytes
    }
}

/// Refuses a key or value over the engine's limits.
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    check_limit("key length in bytes", MAX_KEY_LEN, key.len())?;
    check_limit("value length in bytes", MAX_VALUE_LEN, value.len())
}

pub(crate) fn check_limit(what: &'static str, limit: usize, value: usize) -> Result<()> {
    if value > limit {
        return Err(Error::Limit {
            what,
            limit: limit as u64,
            value: value as u64,
        });
    }
    Ok(())
}

/// One operation of a decoded batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Calls `visit` for each operation of a log record's payload; returns the last sequence number, or
/// `None` when the payload is malformed (operations before the malformed one were visited).
pub(crate) fn decode<'a>(payload: &'a [u8], mut visit: impl FnMut(Operation<'a>)) -> Option<Seq> {
    let mut reader = Reader::new(payload);
    let first = reader.u64()?;
    let operations = reader.u32()?;
    let mut next = first;
    for index in 0..operations {
        let tag = reader.u8()?;
        let kind = Kind::from_byte(tag & !SHARES)?;
        if tag & SHARES == 0 {
            next = next.checked_add(1).filter(|next| *next <= MAX_SEQ)?;
        } else if index == 0 {
            return None;
        }
        let tree = TreeId::try_from(reader.varint()?).ok()?;
        let key = reader.bytes()?;
        let value = if kind == Kind::Delete {
            &[]
        } else {
            reader.bytes()?
        };
        check_limits(key, value).ok()?;
        if kind == Kind::Timed {
            Timed::parse(value)?;
        }
        visit(Operation {
            seq: next - 1,
            kind,
            tree,
            key,
            value,
        });
    }
    (reader.is_empty() && next > first).then(|| next - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_decodes_to_what_was_added() {
        let mut batch = Batch::new();
        batch.put(1, b"a", b"one").unwrap();
        batch.also(Kind::Operand, 2, b"x", b"a").unwrap();
        batch.also(Kind::Delete, 3, b"y", b"ignored").unwrap();
        let savepoint = batch.savepoint();
        batch.put(9, b"gone", b"gone").unwrap();
        batch.rewind(savepoint);
        batch.delete(1, b"b").unwrap();
        assert_eq!(batch.sequences(), 2);
        let mut seen = Vec::new();
        let operations = batch.clone();
        let mut operations = operations.operations(7);
        let last = decode(batch.seal(7), |op| {
            assert_eq!(operations.next(), Some(op), "without decoding");
            seen.push((op.seq, op.kind, op.tree, op.key.to_vec(), op.value.to_vec()))
        });
        assert_eq!((last, operations.next()), (Some(8), None));
        assert_eq!(
            seen,
            vec![
                (7, Kind::Put, 1, b"a".to_vec(), b"one".to_vec()),
                (7, Kind::Operand, 2, b"x".to_vec(), b"a".to_vec()),
                (7, Kind::Delete, 3, b"y".to_vec(), b"".to_vec()),
                (8, Kind::Delete, 1, b"b".to_vec(), b"".to_vec()),
            ]
        );
    }

    #[test]
    fn a_batch_goes_on_with_the_writes_of_another() {
        let mut batch = Batch::new();
        batch.put(1, b"a", b"one").unwrap();
        let mut other = Batch::new();
        other.put(2, b"b", b"two").unwrap();
        other.also(Kind::Delete, 3, b"c", b"").unwrap();
        batch.append(&other).unwrap();
        batch.append(&Batch::new()).unwrap();
        assert_eq!((batch.sequences(), batch.trees()), (2, &[1, 2, 3][..]));
        let mut seen = Vec::new();
        let joined = batch.clone();
        let mut operations = joined.operations(7);
        let last = decode(batch.seal(7), |op| {
            assert_eq!(operations.next(), Some(op), "without decoding");
            seen.push((op.seq, op.tree));
        });
        assert_eq!((last, seen), (Some(8), vec![(7, 1), (8, 2), (8, 3)]));
    }

    #[test]
    fn a_cut_or_changed_batch_is_refused_or_different_but_never_a_panic() {
        let mut batch = Batch::new();
        batch.put(1, b"key", b"value").unwrap();
        batch.also(Kind::Put, 300, b"k2", b"v2").unwrap();
        let bytes = batch.seal(1).to_vec();
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut], |_| ()), None, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                decode(&changed, |_| ());
            }
        }
    }

    #[test]
    fn numbers_and_lengths_over_their_limits_are_refused() {
        let mut batch = Batch::new();
        batch.put(1, b"key", b"value").unwrap();
        assert!(decode(batch.seal(MAX_SEQ - 1), |_| ()).is_some());
        for first in [MAX_SEQ, u64::MAX] {
            assert_eq!(decode(batch.seal(first), |_| panic!()), None);
        }
        let mut long = Batch::new().seal(1).to_vec();
        long[8] = 1;
        long.extend_from_slice(&[Kind::Delete as u8, 1]);
        crate::coding::put_bytes(&mut long, &vec![0; MAX_KEY_LEN + 1]);
        assert_eq!(decode(&long, |_| panic!()), None);
    }

    #[test]
    fn limits_name_themselves() {
        let mut batch = Batch::new();
        let long = vec![0; MAX_KEY_LEN + 1];
        match batch.put(1, &long, b"") {
            Err(Error::Limit { limit, value, .. }) => {
                assert_eq!((limit, value), (MAX_KEY_LEN as u64, MAX_KEY_LEN as u64 + 1));
            }
            other => panic!("{other:?}"),
        }
        assert!(batch.is_empty());
    }
}
