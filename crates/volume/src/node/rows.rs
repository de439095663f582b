//! Blocks whose data lie one behind the other are read in one call.

use crate::extents::Reader;
use crate::map::Extent;

/// True where the blocks' data lie one behind the other.
pub(super) fn is_next(one: Option<Extent>, next: Option<Extent>, block_size: u32) -> bool {
    match (one, next) {
        (Some(one), Some(next)) => {
            let end = one.place.offset.checked_add(block_size);
            one.place.segment == next.place.segment && end == Some(next.place.offset)
        }
        (one, next) => one.is_none() && next.is_none(),
    }
}

/// Reads blocks whose data lie one behind the other, in one call. False where one of them has to be
/// looked at by itself.
pub(super) fn read_row(reader: &Reader, row: &[Option<Extent>], out: &mut [u8]) -> bool {
    let Some(Some(first)) = row.first() else {
        return true;
    };
    let size = out.len() / row.len();
    if size == 0 || reader.read(first.place, out).is_err() {
        return false;
    }
    let blocks = out.chunks_exact(size);
    let sums = row
        .iter()
        .map(|extent| extent.map(|extent| extent.checksum));
    blocks
        .map(|data| Some(crate::command::checksum(data)))
        .eq(sums)
}
