//! Records, and how their headers are encoded.

use esker_coding::Reader;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::{Ballot, DiskId, GroupId};
use crate::place::Place;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 64;

/// Records begin at multiples of this many bytes.
pub(super) const ALIGNMENT: usize = 8;

/// The most bytes of a record's payload.
pub const MOST_PAYLOAD: u32 = 64 << 20;

/// The first bytes of each record.
pub(super) const MAGIC: [u8; 4] = *b"EVR1";

/// The part of a header that its own checksum covers.
const COVERED: usize = HEADER_BYTES - 8;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An entry of a group's log; the payload is the encoded command and a write's data.
    Entry,
    /// A vote, or a ballot that was joined.
    Vote,
    /// What is needed to start reading a group's records at this segment.
    Base,
    /// A copy of live data by vacuum. Never part of a log.
    Moved,
    /// States what is synced, and nothing of any group.
    Sync,
    /// Members of a group.
    Members,
    /// A group's log ends at this slot: its entries behind it are void. The payload is the members
    /// as of the slot.
    End,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Entry => 1,
            Kind::Vote => 2,
            Kind::Base => 3,
            Kind::Moved => 4,
            Kind::Sync => 5,
            Kind::Members => 6,
            Kind::End => 7,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::Entry,
            2 => Kind::Vote,
            3 => Kind::Base,
            4 => Kind::Moved,
            5 => Kind::Sync,
            6 => Kind::Members,
            7 => Kind::End,
            _ => return None,
        })
    }
}

/// What precedes a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// What the record is.
    pub kind: Kind,
    /// The group that it belongs to.
    pub group: GroupId,
    /// The slot of the log; of a moved record, the layer, and the number of its blocks behind the
    /// first << 32.
    pub slot: u64,
    /// The ballot in which it was written.
    pub ballot: Ballot,
    /// Bytes of all records before this one, in all segments.
    pub lsn: u64,
    /// Everything before this LSN was synced when the record was placed.
    pub synced: u64,
    /// Bytes of the payload.
    pub bytes: u32,
    /// XXH3 of the payload.
    pub checksum: u64,
}

/// Bytes that a record with such a payload occupies: header, payload, zeros up to the alignment.
pub(super) fn occupied(payload: u32) -> u64 {
    (HEADER_BYTES as u64 + u64::from(payload)).next_multiple_of(ALIGNMENT as u64)
}

impl RecordHeader {
    /// Bytes that the record occupies: header, payload, zeros up to the alignment.
    pub fn occupied(&self) -> u64 {
        occupied(self.bytes)
    }

    /// Appends the encoding. The checksum depends on disk and place: a record that is found
    /// elsewhere, also inside the data of a client, is none.
    pub fn encode(&self, disk: DiskId, place: Place, out: &mut Vec<u8>) {
        let mut head = Vec::with_capacity(HEADER_BYTES);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&[self.kind.code(), 0]);
        head.extend_from_slice(&self.group.0.to_le_bytes());
        for number in [self.slot, self.ballot.0, self.lsn, self.synced] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&self.bytes.to_le_bytes());
        head.extend_from_slice(&[0; 4]);
        head.extend_from_slice(&self.checksum.to_le_bytes());
        let sum = xxh3_64_with_seed(&head, seed(disk, place));
        head.extend_from_slice(&sum.to_le_bytes());
        out.append(&mut head);
    }

    /// Reads the header of the record at `place` of the disk; `None` where the bytes are none.
    pub fn decode(bytes: &[u8], disk: DiskId, place: Place) -> Option<RecordHeader> {
        let from = &mut Reader::new(bytes);
        if from.take(4)? != MAGIC {
            return None;
        }
        let covered = bytes.get(..COVERED)?;
        let sum = Reader::new(bytes.get(COVERED..)?).u64()?;
        if sum != xxh3_64_with_seed(covered, seed(disk, place)) {
            return None;
        }
        let (kind, zero) = (Kind::of(from.u8()?)?, from.u8()?);
        let group = GroupId(u16::from_le_bytes(from.take(2)?.try_into().ok()?));
        let header = RecordHeader {
            kind,
            group,
            slot: from.u64()?,
            ballot: Ballot(from.u64()?),
            lsn: from.u64()?,
            synced: from.u64()?,
            bytes: from.u32()?,
            checksum: match from.u32()? {
                0 => from.u64()?,
                _ => return None,
            },
        };
        let is_right = zero == 0 && header.bytes <= MOST_PAYLOAD && header.synced <= header.lsn;
        is_right.then_some(header)
    }
}

fn seed(disk: DiskId, place: Place) -> u64 {
    disk.0 ^ (u64::from(place.segment) << 32 | u64::from(place.offset))
}
