//! Requests are cut into pieces that one group has each.

use crate::ids::{GroupId, VolumeId};
use crate::system::{RANGE, group_at};

/// Cuts `offset .. offset + length` into pieces of one group each, of at most `most` bytes.
pub(super) fn pieces(
    placement: VolumeId,
    offset: u64,
    length: u64,
    most: u64,
    groups: u16,
) -> Vec<(GroupId, u64, u64)> {
    let (mut at, end) = (offset, offset + length);
    let mut pieces = Vec::new();
    while at < end {
        // Pieces end at multiples of `most`, so only the first and the last are parts of blocks.
        let border = (at / RANGE + 1) * RANGE;
        let upto = end.min(border).min((at / most + 1).saturating_mul(most));
        pieces.push((group_at(placement, at, groups), at, upto - at));
        at = upto;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_bytes_and_have_one_group_each() {
        for (offset, length) in [(0, 1), (RANGE - 1, 2), (123, 3 * RANGE), (0, 0)] {
            let mut at = offset;
            for (group, from, length) in pieces(VolumeId(3), offset, length, 1 << 20, 8) {
                assert_eq!(from, at);
                assert!((1..=1 << 20).contains(&length));
                assert_eq!(group, group_at(VolumeId(3), from + length - 1, 8));
                assert!((1..=8).contains(&group.0));
                at += length;
            }
            assert_eq!(at, offset + length);
        }
    }
}
