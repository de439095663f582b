//! The block cache: one bounded set of decompressed blocks for all tables of a store.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

/// What a cached block costs beside its bytes: the `Arc` and the vector's header (48 bytes with the
/// allocator's), the allocator's slack on the bytes (16), the cache's slot (48, doubled because its
/// slab grows by doubling), its hash table (12), and half a ghost slot for a recently evicted key
/// (30).
const OVERHEAD: u64 = 208;

/// The typical block size; used only to estimate the number of blocks.
const TYPICAL_BLOCK: u64 = 4 << 10;

/// The most blocks that a cache is laid out for at creation: memory is not taken before it is
/// needed.
const MOST_AT_ONCE: u64 = 1 << 20;

/// A shard smaller than this would be emptied by a single large block.
const SHARD_BYTES: u64 = 8 << 20;

/// A cache of blocks by (table, offset), bounded by the bytes that it really occupies.
/// Scan-resistant (CLOCK-Pro), sharded, thread-safe.
pub struct BlockCache {
    /// By table and offset.
    blocks: Option<Blocks>,
    capacity: u64,
    held: Mutex<Outside>,
    next_id: AtomicU64,
    /// Bytes of mapped tables: address space, no memory of this cache.
    mapped: AtomicU64,
}

/// Limits on the capacity that is left for blocks.
struct Outside {
    /// Bytes outside of `blocks` that count towards the capacity.
    pinned: u64,
    /// The limit that the budget sets.
    limit: u64,
    /// The capacity last set on `blocks`.
    announced: u64,
}

/// A decompressed block.
type Block = Arc<Vec<u8>>;

type Blocks = Cache<(u64, u64), Block, ByBytes, Mixing, Recycling>;

thread_local! {
    /// Buffers of blocks that this thread evicted, reused for its next reads.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Most spare buffers per thread.
const SPARE_BUFFERS: usize = 6;
/// A larger buffer is freed.
const SPARE_BYTES: usize = 16 << 10;

/// A buffer for a block of `len` bytes. Its contents are arbitrary.
///
/// Once a cache is full, each insertion evicts a block that was as likely as not read by another
/// thread: freeing it would take the lock of that thread's heap while that thread reads. So the new
/// block takes the buffer of an evicted one of about the right size: sizes are rounded up by a
/// sixteenth at most, so that what a block weighs depends on its length alone, whatever the thread
/// has done before.
pub(crate) fn buffer(len: usize) -> Vec<u8> {
    let step = (len / 16).max(1);
    let size = len.next_multiple_of(1 << step.ilog2());
    let fits = |spare: &Vec<u8>| spare.capacity() == size;
    let spare = SPARE.try_with(|spare| {
        let mut spare = spare.try_borrow_mut().ok()?;
        let at = spare.iter().position(fits)?;
        Some(spare.swap_remove(at))
    });
    spare
        .ok()
        .flatten()
        .unwrap_or_else(|| Vec::with_capacity(size))
}

/// Keeps a buffer for [`buffer`]; replaces the spare buffer that was unused for longest.
pub(crate) fn reuse(bytes: Vec<u8>) {
    if bytes.capacity() > SPARE_BYTES {
        return;
    }
    // Not in a thread that is ending.
    let _ = SPARE.try_with(|spare| {
        if let Ok(mut spare) = spare.try_borrow_mut() {
            if spare.len() == SPARE_BUFFERS {
                spare.remove(0);
            }
            spare.push(bytes);
        }
    });
}

/// Keeps the buffers of evicted blocks for [`buffer`].
#[derive(Clone)]
struct Recycling;

/// The blocks that one insertion evicted. Eviction happens under the lock of a shard, the recycling
/// of the blocks outside of it.
#[derive(Default)]
struct Evicted([Option<Block>; 2]);

impl Lifecycle<(u64, u64), Block> for Recycling {
    type RequestState = Evicted;

    #[inline]
    fn on_evict(&self, evicted: &mut Evicted, _: (u64, u64), block: Block) {
        if let Some(place) = evicted.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(block);
        }
    }
}

impl Drop for Evicted {
    #[inline]
    fn drop(&mut self) {
        for block in self.0.iter_mut().filter_map(Option::take) {
            // Unless a reader still holds it.
            let Some(bytes) = Arc::into_inner(block) else {
                continue;
            };
            reuse(bytes);
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<(u64, u64), Block> for ByBytes {
    #[inline]
    fn weight(&self, _: &(u64, u64), block: &Block) -> u64 {
        block.capacity() as u64 + OVERHEAD
    }
}

/// A deterministic hash of table numbers and offsets, so that evictions, and with them file reads,
/// are a function of the accesses. These numbers are not chosen by an attacker.
#[derive(Clone)]
struct Mixing;

#[derive(Default)]
struct Mix(u64);

impl BuildHasher for Mixing {
    type Hasher = Mix;

    #[inline]
    fn build_hasher(&self) -> Mix {
        Mix::default()
    }
}

impl Hasher for Mix {
    /// The finalizer of SplitMix64: each output bit depends on all input bits, as the shards and
    /// the table need it.
    #[inline]
    fn write_u64(&mut self, n: u64) {
        let mut z = (self.0 ^ n).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = z ^ (z >> 31);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl BlockCache {
    /// A cache that holds at most `capacity` bytes, its own bookkeeping included. 0 caches nothing.
    pub fn new(capacity: usize) -> BlockCache {
        let capacity = capacity as u64;
        // The initial layout; it grows as needed.
        let items = (capacity / (TYPICAL_BLOCK + OVERHEAD)).min(MOST_AT_ONCE) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(capacity)
            .shards((capacity / SHARD_BYTES).clamp(1, 64) as usize)
            .build();
        let blocks = match options {
            Ok(options) if capacity > 0 => {
                Some(Cache::with_options(options, ByBytes, Mixing, Recycling))
            }
            _ => None,
        };
        BlockCache {
            blocks,
            capacity,
            held: Mutex::new(Outside {
                pinned: 0,
                limit: capacity,
                announced: capacity,
            }),
            next_id: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
        }
    }

    /// A number for a new table. File numbers would not do: two stores may share a cache.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The block of `table` at `offset`.
    #[inline]
    pub fn get(&self, table: u64, offset: u64) -> Option<Arc<Vec<u8>>> {
        self.blocks.as_ref()?.get(&(table, offset))
    }

    /// Offers a block. A block over an eighth of the capacity is refused: it would evict too many.
    pub fn insert(&self, table: u64, offset: u64, block: &Arc<Vec<u8>>) {
        if let Some(blocks) = &self.blocks
            && block.capacity() as u64 + OVERHEAD <= self.capacity / 8
        {
            blocks.insert((table, offset), Arc::clone(block));
        }
    }

    /// Reserves `bytes` of the capacity for something that its owner keeps, until
    /// [`BlockCache::unpin`]; false when half of the capacity is reserved already.
    pub fn pin(&self, bytes: u64) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut held = self.held.lock();
        if held.pinned + bytes > self.capacity / 2 {
            return false;
        }
        held.pinned += bytes;
        self.fit(&mut held);
        true
    }

    /// Releases what [`BlockCache::pin`] reserved.
    pub fn unpin(&self, bytes: u64) {
        if bytes > 0 {
            let mut held = self.held.lock();
            held.pinned = held.pinned.saturating_sub(bytes);
            self.fit(&mut held);
        }
    }

    /// Counts the bytes of a table that is mapped, apart from the capacity, until
    /// [`BlockCache::remove_mapped`].
    pub(crate) fn add_mapped(&self, bytes: u64) {
        self.mapped.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Uncounts a mapped table.
    pub(crate) fn remove_mapped(&self, bytes: u64) {
        self.mapped.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of the mapped tables of the stores that share the cache. They are not memory of the
    /// process: the system's page cache holds those of their pages that are used.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped.load(Ordering::Relaxed)
    }

    /// Limits the cache to `bytes`, and to its capacity.
    pub(crate) fn limit(&self, bytes: usize) {
        let limit = self.capacity.min(bytes as u64);
        let mut held = self.held.lock();
        if held.limit != limit {
            held.limit = limit;
            self.fit(&mut held);
        }
    }

    /// The current limit.
    pub(crate) fn limited_to(&self) -> usize {
        self.held.lock().limit as usize
    }

    fn fit(&self, held: &mut Outside) {
        // In steps, because setting the capacity of the cache visits all of its shards.
        let step = (self.capacity / 64).max(1);
        let taken = (self.capacity - held.limit + held.pinned).div_ceil(step) * step;
        let left = self.capacity.saturating_sub(taken);
        if let Some(blocks) = &self.blocks
            && held.announced != left
        {
            held.announced = left;
            blocks.set_capacity(left);
        }
    }

    /// Bytes held now, bookkeeping and pinned bytes included.
    pub fn used_bytes(&self) -> usize {
        let blocks = self.blocks.as_ref().map_or(0, Cache::weight);
        (blocks + self.held.lock().pinned) as usize
    }

    /// The most bytes that the cache holds.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_capacity_and_refuses_giants() {
        let cache = BlockCache::new(1 << 20);
        let table = cache.next_id();
        cache.insert(table, 0, &Arc::new(vec![0; 200 << 10]));
        assert!(cache.get(table, 0).is_none());
        for offset in 0..2000 {
            cache.insert(table, offset, &Arc::new(vec![offset as u8; 4000]));
            assert!(cache.used_bytes() <= cache.capacity());
        }
        assert!(cache.used_bytes() > cache.capacity() / 2);
        let held = (0..2000).filter(|&o| {
            cache
                .get(table, o)
                .is_some_and(|block| block.first() == Some(&(o as u8)))
        });
        assert!(held.count() > 100);
        assert!(cache.get(cache.next_id(), 1999).is_none());
    }

    #[test]
    fn evictions_are_deterministic() {
        let held = || {
            // Several shards, each too small.
            let cache = BlockCache::new(4 * SHARD_BYTES as usize);
            let table = cache.next_id();
            for offset in 0..20_000 {
                cache.insert(table, offset, &Arc::new(vec![0; 4000]));
            }
            let held = (0..20_000).filter(|&offset| cache.get(table, offset).is_some());
            held.collect::<Vec<u64>>()
        };
        assert_eq!(held(), held());
    }

    #[test]
    fn buffers_of_evicted_blocks_are_used_again_unless_they_are_read() {
        let cache = BlockCache::new(1 << 20);
        let table = cache.next_id();
        let mut read = Vec::new();
        for offset in 0..2000u64 {
            let mut bytes = buffer(4000);
            bytes.resize(4000, 0);
            bytes.fill(offset as u8);
            let block = Arc::new(bytes);
            cache.insert(table, offset, &block);
            if offset % 7 == 0 {
                read.push((offset, block));
            }
        }
        // A new buffer is empty.
        let used = buffer(4000);
        assert!(!used.is_empty() && used.capacity() < 4500);
        assert!(buffer(100).is_empty());
        reuse(vec![0; SPARE_BYTES + 1]);
        assert!(buffer(SPARE_BYTES + 1).is_empty());
        for (offset, block) in read {
            assert!(block.iter().all(|&byte| byte == offset as u8));
        }
    }

    #[test]
    fn none_at_all() {
        let cache = BlockCache::new(0);
        cache.insert(0, 0, &Arc::new(vec![1]));
        assert!(cache.get(0, 0).is_none());
        assert_eq!(cache.used_bytes(), 0);
    }
}
