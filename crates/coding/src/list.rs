//! Byte strings one behind the other in one buffer.

use crate::Own;

/// A list of byte strings in two allocations, whatever their number: keys that a query or a repair
/// gathers before it looks them up together.
///
/// ```
/// use esker_coding::ByteList;
/// let mut keys = ByteList::default();
/// keys.push(b"b");
/// keys.push(b"abc");
/// assert_eq!(keys.last(), Some(&b"abc"[..]));
/// assert_eq!(keys.iter().map(<[u8]>::len).sum::<usize>(), 4);
/// ```
#[derive(Debug, Default, Clone)]
pub struct ByteList {
    bytes: Vec<u8>,
    /// The end of each string in `bytes`.
    ends: Vec<usize>,
}

impl ByteList {
    /// Appends a string.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without a string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all strings together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The string at `at`.
    ///
    /// # Panics
    ///
    /// Beyond the last.
    pub fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| *self.ends.own(before));
        self.bytes.own(start..*self.ends.own(at))
    }

    /// The last string.
    pub fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|at| self.get(at))
    }

    /// The strings, in the order in which they were appended.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let string = self.bytes.own(start..*end);
            start = *end;
            string
        })
    }

    /// Forgets the strings and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
