//! Bytes that are shared.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that are shared: a buffer, or a part of one, which stays in memory as a whole. So what a
/// frame brings is not copied out of it.
#[derive(Clone, Default)]
pub struct Bytes {
    of: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Bytes {
    /// A part of these bytes; `None` where they end before.
    pub fn part(&self, range: Range<usize>) -> Option<Bytes> {
        self.get(range.clone())?;
        let start = self.range.start;
        Some(Bytes {
            of: self.of.clone(),
            range: start + range.start..start + range.end,
        })
    }

    /// True where something else has the buffer, too.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.of) > 1
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::from(Arc::new(bytes))
    }
}

impl From<Arc<Vec<u8>>> for Bytes {
    fn from(of: Arc<Vec<u8>>) -> Bytes {
        let range = 0..of.len();
        Bytes { of, range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.of.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts() {
        let all = Bytes::from(b"0123456789".to_vec());
        let part = all.part(2..8).unwrap();
        assert_eq!(&*part, b"234567");
        assert_eq!(&*part.part(1..3).unwrap(), b"34");
        assert_eq!(part.part(0..6).unwrap(), part);
        assert!(part.part(0..7).is_none() && part.part(7..7).is_none());
        assert!(part.is_held() && Bytes::default().is_empty());
        drop(all);
        assert!(!part.is_held());
    }
}
