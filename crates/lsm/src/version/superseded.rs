//! How a tree says that writes to another are obsolete.

/// The bitmap tree that says which writes to a tree are obsolete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededBy {
    /// Its name. Compactions drop puts whose sequence number is in it; in a tree with a
    /// [`CompactionFilterFactory`](crate::merge::CompactionFilterFactory) the filter gets the set
    /// and decides.
    pub tree: String,
    /// What flushes and compactions do about puts that they drop because newer versions of the key
    /// exist.
    pub drop_policy: DropPolicy,
}

/// How flushes and compactions drop a put that has enough newer versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropPolicy {
    /// Nothing is reported.
    Silent,
    /// Its number is added to the bitmap tree, atomically.
    Record,
    /// Only once the bitmap tree's repair watermark has passed the write that replaced it: until
    /// then it is kept for a repair scan to find.
    KeepUntilRepaired,
    /// Nothing is reported, and puts whose number is in the bitmap tree stay, too. Only queries
    /// skip them.
    Regardless,
}
