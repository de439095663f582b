//! The fingerprint map of a table: for one attribute, the data blocks that hold a value. It
//! replaces a Bloom filter per block: a lookup probes one page of it, not every filter.
//!
//! A value is identified by its hash, of which the map keeps as much as is needed for about one
//! false positive per [`SPARSITY`] lookups: some 9 bits beyond those implied by its position in the
//! map. With the number of its block that makes a little over 3 bytes per value and block. The map
//! is written once, in hash order, and cut into pages of some 4 KiB, each a separate block of the
//! file:
//!
//! ```text
//! least hash u64, span u64 (greatest - least + 1), blocks u32, entries u32, list bits u64
//! buckets   per bucket, as many as entries: a one bit per entry in it, and a zero bit
//! entries   per entry: 9 bits of remainder, and `width` bits: a block, or `blocks` + the place of
//!           a list
//! lists     of values in more than 3 blocks
//! ```
//!
//! Each part is padded to 8 bytes. A hash `h` (the upper 40 bits of the value's) has the position
//! `p = (h - least) * entries * 512 / span`; its bucket is `p / 512`, its remainder `p % 512`. A
//! list is the number of blocks (Elias gamma), a parameter `k` (5 bits), the first block, and for
//! each further one the gap to the one before less 1, in Rice code: `gap >> k` zeros and a one, `k`
//! bits.

use super::bits::{BitWriter, Bits, MAX_WIDTH, width_of};

/// Bits of a pair for the block, below those of the hash.
const BLOCK_BITS: u32 = 24;
/// The inverse of the false positive rate.
const SPARSITY: u64 = 1 << REMAINDER_BITS;
const REMAINDER_BITS: u32 = 9;
/// Approximate bytes of a page.
const PAGE_LEN: usize = 4 << 10;
/// Bytes in front of the buckets.
const HEADER_LEN: usize = 32;
/// Up to this many blocks, a value has an entry for each of them; beyond, a list.
const MAX_SINGLE: usize = 3;
const RICE_BITS: u32 = 5;

/// The part of a value's hash that maps keep.
#[inline]
pub(crate) fn map_hash(hash: u64) -> u64 {
    hash >> BLOCK_BITS
}

/// Builds the map of one attribute of one table: 8 bytes per value and block until it is written.
#[derive(Default)]
pub(crate) struct MapBuilder {
    /// Hash and block, combined in one number.
    pairs: Vec<u64>,
    /// The table has more blocks than a map can number.
    overflowed: bool,
}

impl MapBuilder {
    /// Adds a value with this hash in a block.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64, block: usize) {
        if block >> BLOCK_BITS != 0 {
            self.overflowed = true;
            return;
        }
        let pair = map_hash(hash) << BLOCK_BITS | block as u64;
        if self.pairs.last() != Some(&pair) {
            self.pairs.push(pair);
        }
    }

    /// Approximate bytes of the map.
    pub(crate) fn size(&self) -> usize {
        self.pairs.len() * 13 / 4
    }

    /// Passes the pages of the map to the sink, each with its least hash, ascending. False when
    /// there is no map, because the table has too many blocks.
    pub(crate) fn finish<E>(
        mut self,
        mut page: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.overflowed {
            return Ok(false);
        }
        self.pairs.sort_unstable();
        self.pairs.dedup();
        let block_of = |pair: &u64| pair & ((1 << BLOCK_BITS) - 1);
        let blocks = self
            .pairs
            .iter()
            .map(block_of)
            .max()
            .map_or(0, |max| max + 1);
        let mut open = PageBuilder::new(blocks);
        let mut bytes = Vec::new();
        for group in self
            .pairs
            .chunk_by(|a, b| a >> BLOCK_BITS == b >> BLOCK_BITS)
        {
            let hash = group.first().map_or(0, |pair| pair >> BLOCK_BITS);
            open.add(hash, group.len(), group.iter().map(block_of));
            if open.size() >= PAGE_LEN {
                page(open.finish(&mut bytes), &bytes)?;
            }
        }
        if !open.entries.is_empty() {
            page(open.finish(&mut bytes), &bytes)?;
        }
        Ok(true)
    }
}

/// Builds one page after another.
struct PageBuilder {
    /// Upper bound of block numbers.
    blocks: u64,
    /// Hash and code.
    entries: Vec<(u64, u64)>,
    lists: BitWriter,
}

impl PageBuilder {
    fn new(blocks: u64) -> PageBuilder {
        PageBuilder {
            blocks,
            entries: Vec::new(),
            lists: BitWriter::default(),
        }
    }

    /// Bits of an entry's code.
    fn width(&self) -> u32 {
        width_of(self.blocks + self.lists.len() as u64)
    }

    fn size(&self) -> usize {
        let entry = (2 + REMAINDER_BITS + self.width()) as usize;
        HEADER_LEN + (self.entries.len() * entry + self.lists.len()) / 8
    }

    /// Adds a value in these blocks, ascending.
    fn add(&mut self, hash: u64, count: usize, blocks: impl Iterator<Item = u64> + Clone) {
        if count <= MAX_SINGLE {
            self.entries.extend(blocks.map(|block| (hash, block)));
        } else {
            let place = self.lists.len() as u64;
            self.entries.push((hash, self.blocks + place));
            self.add_list(count as u64, blocks);
        }
    }

    fn add_list(&mut self, count: u64, mut blocks: impl Iterator<Item = u64> + Clone) {
        let bits = width_of(count);
        self.lists.put_unary(u64::from(bits));
        self.lists.put(count, bits);
        let first = blocks.next().unwrap_or_default();
        let mean = (blocks.clone().last().unwrap_or(first) - first) / count;
        let k = width_of(mean).saturating_sub(1);
        self.lists.put(u64::from(k), RICE_BITS);
        self.lists.put(first, width_of(self.blocks));
        let mut before = first;
        for block in blocks {
            let gap = block - before - 1;
            self.lists.put_unary(gap >> k);
            self.lists.put(gap & ((1 << k) - 1), k);
            before = block;
        }
    }

    /// Appends the page to `out`, returns its least hash, and begins the next.
    fn finish(&mut self, out: &mut Vec<u8>) -> u64 {
        let least = self.entries.first().map_or(0, |(hash, _)| *hash);
        let greatest = self.entries.last().map_or(0, |(hash, _)| *hash);
        let (span, count) = (greatest - least + 1, self.entries.len() as u64);
        out.clear();
        out.extend_from_slice(&least.to_le_bytes());
        out.extend_from_slice(&span.to_le_bytes());
        out.extend_from_slice(&(self.blocks as u32).to_le_bytes());
        out.extend_from_slice(&(count as u32).to_le_bytes());
        out.extend_from_slice(&(self.lists.len() as u64).to_le_bytes());
        let (mut buckets, mut codes) = (BitWriter::default(), BitWriter::default());
        let width = self.width();
        let mut bucket = 0;
        for (hash, code) in &self.entries {
            let position = (hash - least) * (count * SPARSITY) / span;
            while bucket < position / SPARSITY {
                buckets.put(0, 1);
                bucket += 1;
            }
            buckets.put(1, 1);
            codes.put(
                (position % SPARSITY) | (code << REMAINDER_BITS),
                REMAINDER_BITS + width,
            );
        }
        for _ in bucket..count {
            buckets.put(0, 1);
        }
        buckets.write_to(out);
        codes.write_to(out);
        self.lists.write_to(out);
        self.entries.clear();
        self.lists.clear();
        least
    }
}

/// A view of a page.
#[derive(Clone, Copy)]
pub(crate) struct MapPage<'a> {
    least: u64,
    span: u64,
    blocks: u64,
    entries: usize,
    width: u32,
    buckets: Bits<'a>,
    codes: Bits<'a>,
    lists: Bits<'a>,
    list_bits: usize,
}

impl<'a> MapPage<'a> {
    /// Parses `bytes`; `None` when they are malformed.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<MapPage<'a>> {
        let mut reader = crate::coding::Reader::new(bytes);
        let (least, span) = (reader.u64()?, reader.u64()?);
        let (blocks, entries) = (u64::from(reader.u32()?), reader.u32()? as usize);
        let list_bits = usize::try_from(reader.u64()?).ok()?;
        let (words, []) = reader.rest().as_chunks::<8>() else {
            return None;
        };
        let width = width_of(blocks.checked_add(list_bits as u64)?);
        let entry = (REMAINDER_BITS + width) as usize;
        let fits = span > 0 && entries > 0 && entry <= MAX_WIDTH as usize;
        let (buckets, rest) = words.split_at_checked(entries.checked_mul(2)?.div_ceil(64))?;
        let (codes, lists) = rest.split_at_checked(entries.checked_mul(entry)?.div_ceil(64))?;
        (fits && lists.len() == list_bits.div_ceil(64)).then_some(MapPage {
            least,
            span,
            blocks,
            entries,
            width,
            buckets: Bits::new(buckets),
            codes: Bits::new(codes),
            lists: Bits::new(lists),
            list_bits,
        })
    }

    /// The least hash of the page.
    pub(crate) fn least(&self) -> u64 {
        self.least
    }

    /// Appends the blocks that may hold the value with this hash (of [`map_hash`]); a block may
    /// come twice. `None` when the page is malformed.
    pub(crate) fn blocks(&self, hash: u64, out: &mut Vec<usize>) -> Option<()> {
        let Some(beyond) = hash.checked_sub(self.least).filter(|x| *x < self.span) else {
            return Some(());
        };
        let positions = (self.entries as u64).checked_mul(SPARSITY)?;
        let position = beyond.checked_mul(positions)? / self.span;
        let bucket = usize::try_from(position / SPARSITY).ok()?;
        let mut at = self.buckets.behind_zero(bucket)?;
        let most = self.most(out);
        while self.buckets.get(at, 1)? == 1 {
            let (remainder, code) = self.entry(at - bucket)?;
            if remainder > position % SPARSITY {
                break;
            }
            if remainder == position % SPARSITY {
                self.expand(code, out)?;
            }
            if out.len() > most {
                return None;
            }
            at += 1;
        }
        Some(())
    }

    /// Appends the blocks of every entry in order: to check the page.
    pub(crate) fn all_blocks(&self, out: &mut Vec<usize>) -> Option<()> {
        let most = self.most(out);
        for at in 0..self.entries {
            self.expand(self.entry(at)?.1, out)?;
            if out.len() > most {
                return None;
            }
        }
        (self.buckets.behind_zero(self.entries)? == 2 * self.entries).then_some(())
    }

    /// The maximum length of `out` after this page, if no two entries share a list.
    fn most(&self, out: &[usize]) -> usize {
        out.len() + self.entries + self.list_bits
    }

    #[inline]
    fn entry(&self, at: usize) -> Option<(u64, u64)> {
        let width = REMAINDER_BITS + self.width;
        let entry = self.codes.get(at.checked_mul(width as usize)?, width)?;
        (at < self.entries).then_some((entry % SPARSITY, entry / SPARSITY))
    }

    #[inline]
    fn expand(&self, code: u64, out: &mut Vec<usize>) -> Option<()> {
        match code.checked_sub(self.blocks) {
            None => {
                out.push(code as usize);
                Some(())
            }
            Some(place) => self.list(usize::try_from(place).ok()?, out),
        }
    }

    /// Each block of a list takes at least one bit.
    fn list(&self, mut at: usize, out: &mut Vec<usize>) -> Option<()> {
        let mut take = |width: u32| {
            let number = self.lists.get(at, width);
            at += width as usize;
            number.filter(|_| at <= self.list_bits && width <= BLOCK_BITS + 1)
        };
        let mut bits = 0;
        while take(1)? == 0 {
            bits += 1;
        }
        let (count, k) = (take(bits)?, take(RICE_BITS)? as u32);
        let mut block = take(width_of(self.blocks))?;
        for further in 0..count {
            if further > 0 {
                let zeros = self.lists.unary(at)?;
                at = at
                    .checked_add(usize::try_from(zeros).ok()?)?
                    .checked_add(1)?;
                let low = self.lists.get(at, k)?;
                at += k as usize;
                let gap = zeros.checked_shl(k)?.checked_add(low)?;
                block = block.checked_add(gap)?.checked_add(1)?;
            }
            if block >= self.blocks || at > self.list_bits {
                return None;
            }
            out.push(block as usize);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The pages of a map over pairs of hash and block.
    fn pages(pairs: &[(u64, usize)]) -> Vec<(u64, Vec<u8>)> {
        let (mut builder, mut pages) = (MapBuilder::default(), Vec::new());
        for (hash, block) in pairs {
            builder.add(*hash, *block);
        }
        let done = builder.finish(|least, bytes| {
            pages.push((least, bytes.to_vec()));
            Ok::<(), ()>(())
        });
        assert_eq!(done, Ok(true));
        pages
    }

    fn probe(pages: &[(u64, Vec<u8>)], hash: u64) -> Vec<usize> {
        let mut found = Vec::new();
        let at = pages.partition_point(|(least, _)| *least <= map_hash(hash));
        if let Some((_, bytes)) = at.checked_sub(1).and_then(|at| pages.get(at)) {
            let page = MapPage::parse(bytes).unwrap();
            page.blocks(map_hash(hash), &mut found).unwrap();
        }
        found
    }

    #[test]
    fn a_map_never_denies_what_is_there() {
        for seed in esker_sim::seeds(esker_sim::by_tier(10, 20)) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let blocks = [1, 2, 70, 16_000, 1 << BLOCK_BITS][rng.usize(..5)];
            let (values, most) = ([1, 3, 300, 20_000][rng.usize(..4)], rng.usize(1..30));
            let mut model: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
            let mut pairs = Vec::new();
            for _ in 0..values {
                // Some hashes are close together.
                let hash = rng.u64(..) >> [0, 0, 0, 30][rng.usize(..4)];
                let dense = rng.u8(..50) == 0;
                let count = if dense {
                    blocks.min(5000)
                } else {
                    rng.usize(1..=most)
                };
                let start = rng.usize(..blocks);
                for i in 0..count {
                    let block = if dense {
                        (start + i) % blocks
                    } else {
                        rng.usize(..blocks)
                    };
                    model.entry(map_hash(hash)).or_default().insert(block);
                    pairs.push((hash, block));
                }
            }
            rng.shuffle(&mut pairs);
            let pages = pages(&pairs);
            let mut all = Vec::new();
            for (least, bytes) in &pages {
                let page = MapPage::parse(bytes).unwrap();
                assert_eq!(page.least(), *least);
                page.all_blocks(&mut all).unwrap();
            }
            assert_eq!(all.len(), model.values().map(BTreeSet::len).sum::<usize>());
            for (hash, _) in pairs.iter().take(esker_sim::by_tier(800, 2000)) {
                let found: BTreeSet<usize> = probe(&pages, *hash).into_iter().collect();
                assert!(found.is_superset(&model[&map_hash(*hash)]), "seed {seed}");
                assert!(found.iter().all(|block| *block < blocks));
            }
        }
    }

    #[test]
    fn a_map_takes_about_three_bytes_and_errs_about_once_in_512() {
        let mut rng = fastrand::Rng::with_seed(7);
        let pairs: Vec<(u64, usize)> = (0..120_000).map(|i| (rng.u64(..), i / 8)).collect();
        let pages = pages(&pairs);
        let bytes: usize = pages.iter().map(|(_, bytes)| bytes.len()).sum();
        let each = bytes as f64 / pairs.len() as f64;
        assert!((3.0..3.3).contains(&each), "{each} bytes");
        assert!(pages.iter().all(|(_, bytes)| bytes.len() < PAGE_LEN + 64));
        let wrong: usize = (0..200_000).map(|_| probe(&pages, rng.u64(..)).len()).sum();
        assert!((250..550).contains(&wrong), "{wrong} of 200,000");
    }

    #[test]
    fn a_value_in_every_block_takes_bits() {
        let pairs: Vec<(u64, usize)> = (0..16_000).map(|block| (1 << 50, block)).collect();
        let pages = pages(&pairs);
        assert!(
            pages.len() == 1 && pages[0].1.len() < 2500,
            "{}",
            pages[0].1.len()
        );
        assert_eq!(probe(&pages, 1 << 50).len(), 16_000);
    }

    #[test]
    fn changed_pages_are_refused_or_wrong_but_never_more() {
        let mut rng = fastrand::Rng::with_seed(5);
        let dense = (0..40).map(|block| (9 << 40, block));
        let sparse = (0..60).map(|block| (rng.u64(..), block * 3));
        let pairs: Vec<(u64, usize)> = dense.chain(sparse.collect::<Vec<_>>()).collect();
        let (_, whole) = pages(&pairs).remove(0);
        for round in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..[HEADER_LEN, bytes.len()][round % 2]);
                bytes[at] = rng.u8(..);
            }
            bytes.truncate(bytes.len() - [0, 0, 8, 1][rng.usize(..4)]);
            if let Some(page) = MapPage::parse(&bytes) {
                let mut found = Vec::new();
                for (hash, _) in &pairs {
                    page.blocks(map_hash(*hash), &mut found);
                }
                page.all_blocks(&mut found);
                assert!(found.len() <= bytes.len() * 16 * (pairs.len() + 1));
            }
        }
    }
}
