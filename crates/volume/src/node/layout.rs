//! Which group has which bytes of a volume: ranges of 4 MiB, hashed.

use crate::ids::GroupId;

/// Bytes of a range, all of which one group has. A multiple of each block size.
pub const RANGE_BYTES: u64 = 4 << 20;

/// The group of the range that has the byte at `offset`, of `groups` groups (at least 1) without the system group. It is the
/// same for all volumes, so that a clone finds its origin's blocks in its own groups.
pub fn group_of(offset: u64, groups: u16) -> GroupId {
    let range = (offset / RANGE_BYTES).to_le_bytes();
    // The remainder is below 2^16.
    GroupId(1 + (crate::command::checksum(&range) % u64::from(groups.max(1))) as u16)
}

/// Cuts `offset .. offset + length` into pieces of one group each, of at most `most` bytes.
pub fn pieces(
    offset: u64,
    length: u64,
    most: u64,
    groups: u16,
) -> Vec<(GroupId, u64, u64)> {
    let (mut at, end) = (offset, offset + length);
    let mut pieces = Vec::new();
    while at < end {
        // Pieces end at multiples of `most`, so that only the first and the last are parts of blocks.
        let border = (at / RANGE_BYTES + 1) * RANGE_BYTES;
        let upto = end.min(border).min((at / most + 1) * most);
        pieces.push((group_of(at, groups), at, upto - at));
        at = upto;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_bytes_and_have_one_group_each() {
        for (offset, length) in [(0, 1), (RANGE_BYTES - 1, 2), (123, 3 * RANGE_BYTES), (0, 0)] {
            let mut at = offset;
            for (group, from, length) in pieces(offset, length, 1 << 20, 8) {
                assert_eq!(from, at);
                assert!((1..=1 << 20).contains(&length));
                assert_eq!(group, group_of(from + length - 1, 8));
                assert!((1..=8).contains(&group.0));
                at += length;
            }
            assert_eq!(at, offset + length);
        }
    }
}
