//! Digests: what the creator of a tree keeps about the entries of each table, as bytes that the
//! engine stores and hands back, and does not understand.
//!
//! A table that is written from memtables, by a bulk load, or by a compaction on request, has a
//! digest of its own entries. A compaction of the background does not look at entries again: its
//! tables get the digests of its inputs, combined. So the digest of a table covers its entries, and
//! may cover more, until the tree is compacted on request ([`crate::Group::compact`]).

/// Makes the digests of a tree's tables.
///
/// Called on flush and compaction threads, and by those who check tables. It must be deterministic,
/// must not block, and must not call into the engine.
pub trait Digester: Send + Sync {
    /// An empty digest.
    fn begin(&self) -> Box<dyn Digest>;
}

/// A digest that is being made. Its size should be bounded: it is kept in memory while a table is
/// written, and read as one block.
pub trait Digest: Send {
    /// Adds an entry that is no delete. Bytes that it cannot read must not fail it.
    fn add(&mut self, key: &[u8], value: &[u8]);

    /// Adds a stored digest; false if it is malformed.
    #[must_use]
    fn absorb(&mut self, stored: &[u8]) -> bool;

    /// True if a stored digest covers everything that was added here: for the check of a table.
    fn is_covered_by(&self, stored: &[u8]) -> bool;

    /// Appends the stored form.
    fn encode(&self, out: &mut Vec<u8>);
}
