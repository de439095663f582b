//! Where bytes are in the append-only file of a node.

/// A position in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The segment's number.
    pub segment: u32,
    /// Bytes from the beginning of the segment's file.
    pub offset: u32,
}
