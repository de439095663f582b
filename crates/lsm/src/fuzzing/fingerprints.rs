//! Pages of a fingerprint map, and maps built from the input.

use crate::synopsis::{MapBuilder, MapPage, map_hash};

/// Decodes the bytes as a page; and builds a map from them, taken as pairs of a hash and a block,
/// ten bytes each.
pub fn fingerprints(data: &[u8]) {
    let mut found = Vec::new();
    if let Some(page) = MapPage::parse(data) {
        for hash in [
            0,
            page.least(),
            page.least().saturating_add(1),
            1 << 39,
            u64::MAX,
        ] {
            found.clear();
            page.blocks(hash, &mut found);
            assert!(found.len() <= data.len() * 16);
        }
        found.clear();
        page.all_blocks(&mut found);
        assert!(found.len() <= data.len() * 16);
    }
    let pairs: Vec<(u64, usize)> = data
        .as_chunks::<10>()
        .0
        .iter()
        .map(|[h @ .., a, b]| {
            (
                u64::from_le_bytes(*h),
                usize::from(u16::from_le_bytes([*a, *b])),
            )
        })
        .collect();
    let mut builder = MapBuilder::default();
    for (hash, block) in &pairs {
        builder.add(*hash, *block);
    }
    let mut pages = Vec::new();
    let complete = builder.finish(|least, page| {
        pages.push((least, page.to_vec()));
        Ok::<(), ()>(())
    });
    assert_eq!(complete, Ok(true));
    for (hash, block) in &pairs {
        let at = pages.partition_point(|(least, _)| *least <= map_hash(*hash));
        let page = MapPage::parse(&pages[at - 1].1).unwrap();
        found.clear();
        page.blocks(map_hash(*hash), &mut found).unwrap();
        assert!(found.contains(block));
    }
}
