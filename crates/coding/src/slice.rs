//! Bytes that a read returns: owned, or a range of a cached block that they keep alive.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Immutable bytes. Cloning is cheap for a range of a block and copies owned bytes.
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Owned(Vec<u8>),
    Shared {
        owner: Arc<Vec<u8>>,
        start: usize,
        end: usize,
    },
}

impl Slice {
    /// A range of `owner`, without copying. `start..end` is clamped to the owner's length.
    pub fn shared(owner: Arc<Vec<u8>>, start: usize, end: usize) -> Slice {
        let end = end.min(owner.len());
        Slice(Repr::Shared {
            start: start.min(end),
            end,
            owner,
        })
    }

    /// The bytes without their first `n`.
    pub fn skip(self, n: usize) -> Slice {
        match self.0 {
            Repr::Owned(mut bytes) => {
                bytes.drain(..n.min(bytes.len()));
                Slice(Repr::Owned(bytes))
            }
            Repr::Shared { owner, start, end } => Slice::shared(owner, start + n, end),
        }
    }

    /// The bytes, copied where they are less than half of the buffer that they keep alive: for
    /// callers that hold many.
    pub fn compact(self) -> Slice {
        match &self.0 {
            Repr::Shared { owner, start, end } if 2 * (end - start) < owner.capacity() => {
                Slice::from(&*self)
            }
            _ => self,
        }
    }

    /// The bytes as an owned vector.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Owned(bytes) => bytes,
            Repr::Shared { .. } => self.to_vec(),
        }
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Owned(bytes) => bytes,
            Repr::Shared { owner, start, end } => owner.get(*start..*end).unwrap_or_default(),
        }
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Slice(Repr::Owned(bytes))
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice(Repr::Owned(bytes.to_vec()))
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}
impl Eq for Slice {}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
