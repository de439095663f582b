//! The metadata of a table, which is in the manifest.

use crate::coding::{Reader, put_bytes, put_varint};
use crate::entry::{Seq, Time};
use crate::synopsis::{Zone, put_zone, read_zone, zone_owned, zone_ref};

/// The metadata of a table in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableMeta {
    /// The file's number, unique in its store.
    pub number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Entries, of all kinds.
    pub entries: u64,
    /// Entries that are deletes.
    pub deletes: u64,
    /// Entries that are merge operands.
    pub operands: u64,
    /// The least user key.
    pub smallest: Vec<u8>,
    /// The greatest user key.
    pub largest: Vec<u8>,
    /// The least sequence number.
    pub min_seq: Seq,
    /// The greatest sequence number.
    pub max_seq: Seq,
    /// Per attribute that the table was built with, in the order of its slots: the attribute's
    /// number, and the zone map of its values; `None` when the table holds no value of it.
    pub zones: Vec<(u32, Option<Zone>)>,
    /// In a tree with a [`crate::Partitioner`]: the table's range in its order.
    pub bounds: Option<Bounds>,
    /// The expiry of its entries, if any expire.
    pub expiry: Option<Expiry>,
}

/// The expiry of a table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// The number of entries that expire.
    pub entries: u64,
    /// The earliest expiry time.
    pub min: Time,
    /// The latest expiry time.
    pub max: Time,
}

impl Expiry {
    /// Adds an entry that expires at `expires`.
    pub(crate) fn with(before: Option<Expiry>, expires: Time) -> Expiry {
        before.map_or(
            Expiry {
                entries: 1,
                min: expires,
                max: expires,
            },
            |before| Expiry {
                entries: before.entries + 1,
                min: before.min.min(expires),
                max: before.max.max(expires),
            },
        )
    }
}

/// The range of a table in the order of a [`crate::Partitioner`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The partitioner's number.
    pub partitioner: u32,
    /// The partitioner's encoding of the range.
    pub bytes: Vec<u8>,
}

impl TableMeta {
    /// True when all of the table is hidden at `now`: it only has deletes and expired entries.
    pub fn is_expired(&self, now: Time) -> bool {
        let expiry = self.expiry.filter(|expiry| expiry.max <= now);
        expiry.is_some_and(|expiry| expiry.entries + self.deletes == self.entries)
    }

    /// Appends the record that [`TableMeta::decode`] reads: all but the bounds and the expiry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for n in [
            self.number,
            self.size,
            self.entries,
            self.deletes,
            self.operands,
            self.min_seq,
            self.max_seq,
        ] {
            put_varint(out, n);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        put_varint(out, self.zones.len() as u64);
        for (id, zone) in &self.zones {
            put_varint(out, u64::from(*id));
            put_zone(out, zone_ref(zone));
        }
    }

    /// Reads a record from the front of `reader`; `None` when it is malformed.
    pub fn decode(reader: &mut Reader<'_>) -> Option<TableMeta> {
        let mut meta = TableMeta {
            number: reader.varint()?,
            size: reader.varint()?,
            entries: reader.varint()?,
            deletes: reader.varint()?,
            operands: reader.varint()?,
            min_seq: reader.varint()?,
            max_seq: reader.varint()?,
            smallest: reader.bytes()?.to_vec(),
            largest: reader.bytes()?.to_vec(),
            zones: Vec::new(),
            bounds: None,
            expiry: None,
        };
        for _ in 0..reader.varint()? {
            let id = reader.varint()?.try_into().ok()?;
            meta.zones.push((id, zone_owned(read_zone(reader)?)));
        }
        Some(meta)
    }
}
