//! Attributes of entries: what synopses remember of the entries of a block, a file, a memtable.

/// What a table has to tell which of its data blocks may hold a value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Summary {
    /// A value filter for each data block: a lookup asks all of them.
    #[default]
    Filters,
    /// One map from fingerprints of values to blocks: a lookup asks one page of it.
    Fingerprints,
    /// Nothing of its blocks, which may all hold any value: only the zone map of the table as a whole
    /// is kept ([`crate::table::TableMeta::zones`]).
    Zones,
}

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

    /// How tables find the values of a slot, beside zone maps. May change from one opening to the
    /// next: every table knows how it was written.
    fn summary(&self, slot: usize) -> Summary {
        let _ = slot;
        Summary::Filters
    }

    /// Calls `emit(slot, value)` for each attribute value of the entry. Values are compared as
    /// bytes. An attribute may be emitted any number of times, or not at all.
    fn extract(&self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8]));
}
