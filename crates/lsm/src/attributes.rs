//! Attributes of entries: what synopses remember of the entries of a block, a file, a memtable.

/// Tells the attributes of an entry, so that tables can carry a synopsis of them (a zone map and a
/// value filter per block, LevelDB++ section 3) and memtables an ordered map.
///
/// Called for each `Put` of a memtable on the thread of the reader that asks for its maps first, and
/// on flush and merge threads for each `Put` written to a table. It must be deterministic, must not block, and must not
/// call into the engine. Bytes that it cannot read have no attributes.
pub trait Extractor: Send + Sync {
    /// The stable numbers of the attributes, at most 64; the position in this list is the *slot*.
    /// Numbers are on disk: a number always means the same attribute of the tree.
    fn ids(&self) -> &[u32];

    /// Calls `emit(slot, value)` for each attribute value of the entry. Values are compared as
    /// bytes. An attribute may be emitted any number of times, or not at all.
    fn extract(&self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8]));
}
