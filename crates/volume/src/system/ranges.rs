//! Which group has which part of a volume.

use crate::ids::{GroupId, VolumeId};

/// Bytes that are next to each other in one group. A multiple of each block size.
pub const RANGE: u64 = 4 << 20;

/// The group that has the byte at `offset`. Successive ranges are in successive groups. The system
/// group where there are no data groups.
pub fn group_at(placement: VolumeId, offset: u64, groups: u16) -> GroupId {
    let Some(groups) = Some(u64::from(groups)).filter(|groups| *groups > 0) else {
        return GroupId::SYSTEM;
    };
    // Spreads the first ranges of small volumes.
    let first = u64::from(placement.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    GroupId(1 + ((first + offset / RANGE) % groups) as u16)
}
