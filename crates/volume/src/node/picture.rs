//! Where a node has the blocks of a volume: `esker volume map`.

use super::layout::{RANGE_BYTES, group_of};
use crate::map::Map;
use crate::wire::{Refusal, Source};

/// By block, where it is: layer, segment, offset. Blocks that read as zeros are left out.
pub(super) fn places(
    map: &Map,
    source: Source,
    first: u64,
    count: u32,
    groups: u16,
) -> Result<Vec<(u64, u32, u32, u32)>, Refusal> {
    let (size, block_size) = map.system().shape(source).ok_or(Refusal::NoVolume)?;
    let block = u64::from(block_size);
    let end = first.saturating_add(u64::from(count)).min(size / block);
    let (mut at, mut places) = (first, Vec::new());
    while at < end {
        let border = ((at * block) / RANGE_BYTES + 1) * RANGE_BYTES / block;
        let upto = end.min(border);
        let group = group_of(at * block, groups);
        let found = map.find(group, source, at, (upto - at) as u32);
        let found = found.map_err(|error| Refusal::Failed(error.to_string()))?;
        for (number, found) in (at..upto).zip(found.unwrap_or_default()) {
            if let Some((layer, extent)) = found {
                places.push((number, layer.0, extent.place.segment, extent.place.offset));
            }
        }
        at = upto;
    }
    Ok(places)
}
