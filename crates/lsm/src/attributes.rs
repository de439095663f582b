//! Attributes of entries: the values that synopses record for the entries of a block, a table or a
//! memtable.

/// How a table finds the data blocks that may hold a value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Summary {
    /// A value filter per data block: a lookup probes all of them.
    #[default]
    Filters,
    /// One map from value fingerprints to blocks: a lookup probes one page of it.
    Fingerprints,
    /// Nothing per block, so each block may hold any value: the table keeps only its zone map
    /// ([`crate::table::TableMeta::zones`]).
    Zones,
    /// The values end in numbers of 8 bytes, big-endian, of which the first begins here: a block
    /// keeps the least and the greatest of each, which is a box.
    Boxes(usize),
}

/// Extracts the attributes of an entry, so that tables can carry a synopsis of them (a zone map and
/// a value filter per block, LevelDB++ section 3) and memtables an ordered map.
///
/// Called for each `Put` of a memtable on the first reader thread that needs the memtable's maps,
/// and on flush and compaction threads for each `Put` and each operand written to a table: of
/// operands that were combined, for the result. It must be deterministic, must not block, and must
/// not call into the engine. Bytes that it cannot parse have no attributes.
pub trait Extractor: Send + Sync {
    /// The stable numbers of the attributes, at most 64; the position in this list is the *slot*.
    /// The numbers are on disk: a number always means the same attribute of the tree.
    fn ids(&self) -> &[u32];

    /// How tables find the values of a slot, beside zone maps. May change between openings: every
    /// table records how it was written.
    fn summary(&self, slot: usize) -> Summary {
        let _ = slot;
        Summary::Filters
    }

    /// Calls `emit(slot, value)` for each attribute value of the entry. Values are compared as
    /// bytes. An attribute may be emitted any number of times, or not at all.
    fn extract(&self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8]));
}
