//! What the key-value stores share: how records and hand-made composite indexes are laid out, and
//! how they are searched.
//!
//! A record is stored under its key (8 bytes, big endian) as the number of its write (8 bytes),
//! then the JSON. An index entry is: value, then the complement of the number of the write, so that
//! the entries of a value come newest first; it has the record's key. An entry is current if the
//! record has the same number: cheaper than comparing attributes, and exact.

use crate::failure::Result;
use crate::subjects::Visit;
use crate::workload::{Attribute, Find, Record};

/// Records fetched together, at most.
pub(super) const TOGETHER: usize = 32;

/// The number of a write: higher is newer.
pub(super) type Number = u64;

/// A record's key as it is stored.
pub(super) fn key(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Puts the stored form of a record in `out`.
pub(super) fn store(out: &mut Vec<u8>, number: Number, record: &Record<'_>) {
    out.clear();
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(record.body);
}

/// The number and the JSON of a stored record.
pub(super) fn stored(bytes: &[u8]) -> (Number, &[u8]) {
    bytes
        .split_first_chunk()
        .map_or((0, bytes), |(number, body)| {
            (Number::from_le_bytes(*number), body)
        })
}

/// The index entry of an attribute.
pub(super) fn entry(value: u64, number: Number) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&value.to_be_bytes());
    entry[8..].copy_from_slice(&(!number).to_be_bytes());
    entry
}

/// A record that an index entry points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The write that made the entry.
    pub(super) number: Number,
    /// The record's key.
    pub(super) key: [u8; 8],
}

impl Candidate {
    /// From an index entry and the key in it.
    pub(super) fn new(entry: &[u8], key: &[u8]) -> Candidate {
        let number = entry
            .last_chunk()
            .map_or(0, |number| !Number::from_be_bytes(*number));
        Candidate {
            number,
            key: key.first_chunk().copied().unwrap_or_default(),
        }
    }
}

/// The index entries (of user, of time) that a stored record has. Found in the JSON as cheaply as
/// can be: the fields are near its front.
pub(super) fn entries_of(bytes: &[u8]) -> [[u8; 16]; 2] {
    let (number, body) = stored(bytes);
    let field = |name: &[u8]| {
        let at = body.windows(name.len()).position(|here| here == name);
        let digits = at.map_or(&[][..], |at| &body[at + name.len()..]);
        digits
            .iter()
            .take_while(|digit| digit.is_ascii_digit())
            .fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
    };
    [
        entry(field(b"\"user_id\":"), number),
        entry(field(b"\"created_at\":"), number),
    ]
}

/// A store at one moment.
pub(super) trait Store {
    /// Hands the entries of an index from one to another, both included, to `each`, in order, until
    /// it returns false.
    fn scan(
        &self,
        attribute: Attribute,
        from: &[u8; 16],
        to: &[u8; 16],
        each: &mut dyn FnMut(Candidate) -> Result<bool>,
    ) -> Result<()>;

    /// Hands the stored records of the candidates to `each`, in their order.
    fn fetch(
        &self,
        candidates: &[Candidate],
        each: &mut dyn FnMut(&Candidate, &[u8]),
    ) -> Result<()>;
}

/// Answers a question. With `check`, entries may be out of date.
pub(super) fn find(store: &impl Store, find: &Find, check: bool, visit: Visit<'_>) -> Result<()> {
    let (from, to) = (entry(find.lo, Number::MAX), entry(find.hi, 0));
    let mut left = find.limit.unwrap_or(usize::MAX);
    let mut waiting: Vec<Candidate> = Vec::new();
    let mut fetch = |candidates: &[Candidate], left: &mut usize| {
        store.fetch(candidates, &mut |candidate, bytes| {
            let (number, body) = stored(bytes);
            if !check || number == candidate.number {
                visit(body);
                *left -= 1;
            }
        })
    };
    // Entries of one value come newest first, those of several have to be sorted.
    let sorted = find.lo == find.hi;
    store.scan(find.attribute, &from, &to, &mut |candidate| {
        waiting.push(candidate);
        if sorted && waiting.len() >= left.min(TOGETHER) {
            fetch(&waiting, &mut left)?;
            waiting.clear();
        }
        Ok(left > 0)
    })?;
    if !sorted {
        waiting.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.number));
    }
    let mut rest = waiting.as_slice();
    while left > 0 && !rest.is_empty() {
        let (now, later) = rest.split_at(left.min(TOGETHER).min(rest.len()));
        fetch(now, &mut left)?;
        rest = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_ordered_by_value_then_newest_first_and_found_in_the_stored_record() {
        let mut ordered = [entry(2, 5), entry(1, 4), entry(2, 9), entry(1, u64::MAX)];
        ordered.sort_unstable();
        assert_eq!(
            ordered,
            [entry(1, u64::MAX), entry(1, 4), entry(2, 9), entry(2, 5)]
        );
        let candidate = Candidate {
            number: 77,
            key: key(8),
        };
        assert_eq!(Candidate::new(&entry(3, 77), &key(8)), candidate);
        let record = Record {
            key: 8,
            user: 34,
            second: 1_700_000_000,
            body: br#"{"id":8,"user_id":34,"created_at":1700000000,"text":"\"user_id\":5"}"#,
        };
        let mut bytes = Vec::new();
        store(&mut bytes, 77, &record);
        assert_eq!(stored(&bytes), (77, record.body));
        assert_eq!(
            entries_of(&bytes),
            [entry(34, 77), entry(1_700_000_000, 77)]
        );
    }
}
