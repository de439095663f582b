//! Where a node has the blocks of a volume: `esker volume map`.

use crate::ids::LayerId;
use crate::map::{self, Map};
use crate::system::{RANGE, Shape, group_at};
use crate::wire::{Refusal, Source};

/// By block, where it is: layer, segment, offset. Blocks that read as zeros are left out.
pub(super) fn places(
    map: &Map,
    source: Source,
    first: u64,
    count: u32,
    groups: u16,
) -> Result<Vec<(u64, u32, u32, u32)>, Refusal> {
    let shape = map.system().shape(source).ok_or(Refusal::NoVolume)?;
    let Shape {
        size,
        block_size,
        placement,
    } = shape;
    let block = u64::from(block_size);
    let end = first.saturating_add(u64::from(count)).min(size / block);
    let (mut at, mut places) = (first, Vec::new());
    while at < end {
        let border = ((at * block) / RANGE + 1) * RANGE / block;
        let upto = end.min(border);
        let group = group_at(placement, at * block, groups);
        let failed = |error: crate::error::Error| Refusal::Failed(error.to_string());
        let found = map
            .look(group, source, at, (upto - at) as u32)
            .map_err(failed)?;
        for (number, extent) in (at..upto).zip(found) {
            let Some(extent) = extent else { continue };
            // Any layer: the newest may have been merged, or be a clone's.
            let any = map::Source::Layer(LayerId(u32::MAX));
            let layer = map
                .refers(group, any, number, extent.place)
                .map_err(failed)?;
            let layer = layer.map_or(0, |layer| layer.0);
            places.push((number, layer, extent.place.segment, extent.place.offset));
        }
        at = upto;
    }
    Ok(places)
}
