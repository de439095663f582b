//! Bytes that a read returns: owned, or a range of a cached block or of a mapped file, which they
//! keep alive.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The owner of memory that slices keep alive, for example a mapped file. Behind a second
/// reference, so that a slice is small.
pub type Owner = Arc<Arc<dyn AsRef<[u8]> + Send + Sync>>;

/// Immutable bytes. Cloning is cheap for a range of other memory and copies owned bytes.
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
    Within {
        owner: Owner,
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

    /// A range of `owner`, without copying. A range outside of it is empty.
    pub fn within(owner: Owner, start: usize, end: usize) -> Slice {
        Slice(Repr::Within { owner, start, end })
    }

    /// The bytes without their first `n`.
    pub fn skip(self, n: usize) -> Slice {
        match self.0 {
            Repr::Owned(mut bytes) => {
                bytes.drain(..n.min(bytes.len()));
                Slice(Repr::Owned(bytes))
            }
            Repr::Shared { owner, start, end } => Slice::shared(owner, start + n, end),
            Repr::Within { owner, start, end } => Slice::within(owner, (start + n).min(end), end),
        }
    }

    /// The bytes, copied where they are less than half of the buffer that they keep alive, or keep
    /// a file alive: for callers that hold many.
    pub fn compact(self) -> Slice {
        match &self.0 {
            Repr::Shared { owner, start, end } if 2 * (end - start) < owner.capacity() => {
                Slice::from(&*self)
            }
            Repr::Within { .. } => Slice::from(&*self),
            _ => self,
        }
    }

    /// The bytes as an owned vector.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Owned(bytes) => bytes,
            Repr::Shared { .. } | Repr::Within { .. } => self.to_vec(),
        }
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Owned(bytes) => bytes,
            Repr::Shared { owner, start, end } => owner.get(*start..*end).unwrap_or_default(),
            Repr::Within { owner, start, end } => {
                let memory = (***owner).as_ref();
                memory.get(*start..*end).unwrap_or_default()
            }
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
