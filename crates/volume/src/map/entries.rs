//! The entries of the map: keys and values on disk.
//!
//! ```text
//! key   := group u16 | layer u32 | block u64, big-endian
//! value := segment u32 | offset u32 | checksum u64, little-endian; empty for a hole
//! ```

use crate::ids::{GroupId, LayerId};
use crate::place::Place;

/// Bytes of a key.
pub(super) const KEY_LEN: usize = 14;

/// Where a block's data are, and their checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where the block begins.
    pub place: Place,
    /// The checksum of its data ([`crate::command::checksum`]).
    pub checksum: u64,
}

/// What a layer has of a block. `None` is a hole: the block reads as zeros, whatever is below.
pub(super) type Value = Option<Extent>;

pub(super) fn key(group: GroupId, layer: LayerId, block: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let (of, place) = key.split_at_mut(6);
    let (of_group, of_layer) = of.split_at_mut(2);
    of_group.copy_from_slice(&group.0.to_be_bytes());
    of_layer.copy_from_slice(&layer.0.to_be_bytes());
    place.copy_from_slice(&block.to_be_bytes());
    key
}

/// Reads a key; `None` where the bytes are none.
pub(super) fn parse_key(key: &[u8]) -> Option<(GroupId, LayerId, u64)> {
    let (group, rest) = key.split_first_chunk()?;
    let (layer, rest) = rest.split_first_chunk()?;
    Some((
        GroupId(u16::from_be_bytes(*group)),
        LayerId(u32::from_be_bytes(*layer)),
        u64::from_be_bytes(rest.try_into().ok()?),
    ))
}

/// The encoding of a value, and how many bytes of it are used.
pub(super) fn encode(value: Value) -> ([u8; 16], usize) {
    let mut bytes = [0; 16];
    let Some(extent) = value else {
        return (bytes, 0);
    };
    let (place, checksum) = bytes.split_at_mut(8);
    let (segment, offset) = place.split_at_mut(4);
    segment.copy_from_slice(&extent.place.segment.to_le_bytes());
    offset.copy_from_slice(&extent.place.offset.to_le_bytes());
    checksum.copy_from_slice(&extent.checksum.to_le_bytes());
    (bytes, 16)
}

/// Reads a value; `None` where the bytes are none.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return Some(None);
    }
    let (segment, rest) = bytes.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    Some(Some(Extent {
        place: Place {
            segment: u32::from_le_bytes(*segment),
            offset: u32::from_le_bytes(*offset),
        },
        checksum: u64::from_le_bytes(rest.try_into().ok()?),
    }))
}
