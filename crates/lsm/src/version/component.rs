//! The identifiers of components.

use crate::entry::Seq;

/// The span of sequence numbers of a component's writes. Comparable between the trees of a group,
/// because they flush together (Luo & Carey section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    /// The first sequence number of the component's generation (or of the oldest one compacted into
    /// it).
    pub min: Seq,
    /// The last sequence number.
    pub max: Seq,
}

impl ComponentId {
    /// The smallest span that covers both.
    pub fn hull(self, other: ComponentId) -> ComponentId {
        ComponentId {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// True when this span contains `other`.
    pub fn includes(self, other: ComponentId) -> bool {
        self.min <= other.min && other.max <= self.max
    }
}
