//! An open table: point lookups and synopsis probes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::block::Layout;
use super::bytes::{Block, IndexBytes, Pinned, PinnedFilter};
use super::digest::DigestPlace;
use super::entries::BlockEntries;
use super::filter;
use super::format::{FOOTER_LEN, Footer, HEADER_LEN, Handle, WITH_DIGEST, check_header};
use super::found::{BlockHint, Found};
use super::index::{Index, Partition, Top};
use super::mapped::TableMap;
use super::meta::TableMeta;
use super::samples::Samples;
use crate::cache::BlockCache;
use crate::coding::Reader;
use crate::cost::Cost;
use crate::entry::{MAX_SEQ, Seq};
use crate::error::{Error, Result};
use crate::fs::{Fs, Mapped, ReadFile};
use crate::synopsis::{BlockSynopsis, Synopsis, ValueRange};

/// An immutable table, open for reading by any number of threads. Only its top-level index is kept
/// in memory; every other block comes through the block cache, or from the map of the file.
pub struct Table {
    pub(super) path: Arc<Path>,
    pub(super) file: Arc<dyn ReadFile>,
    /// The offset of the table in the file at `path`.
    pub(super) base: u64,
    /// The file as memory, if it is mapped.
    pub(super) map: Option<TableMap>,
    pub(super) meta: Arc<TableMeta>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) cache_id: u64,
    frame: Frame,
    /// Per partition, its index and key filter, pinned on first use if the cache had capacity to
    /// reserve: nearly every read needs them.
    pinned: Box<[OnceLock<Pinned>]>,
}

/// What is read when a table is opened.
#[derive(Default)]
pub(super) struct Frame {
    top: Top,
    samples: Samples,
    digest: Option<DigestPlace>,
}

/// The counts behind the table record in the properties: data blocks, bytes of keys, bytes of
/// values.
const PROPERTY_COUNTS: usize = 3;

impl Table {
    /// Opens the table that `meta` describes.
    ///
    /// # Errors
    /// [`Error::Io`] when the file is missing or unreadable; [`Error::Corruption`] when it is
    /// damaged, truncated, or not the table that `meta` describes; [`Error::NewerFormat`].
    pub fn open(
        fs: &dyn Fs,
        path: PathBuf,
        meta: impl Into<Arc<TableMeta>>,
        cache: Arc<BlockCache>,
    ) -> Result<Table> {
        let file = fs.open(&path).map_err(|e| Error::io(&path, "open", e))?;
        Table::open_in(file, None, path, 0, meta.into(), cache)
    }

    /// Opens the table that `meta` describes in `file`, a range of the file at `path` that begins
    /// at `base`, with the map of that range, if blocks are to be used from it.
    ///
    /// # Errors
    /// Those of [`Table::open`].
    pub(crate) fn open_in(
        file: Arc<dyn ReadFile>,
        map: Option<Arc<dyn Mapped>>,
        path: PathBuf,
        base: u64,
        meta: Arc<TableMeta>,
        cache: Arc<BlockCache>,
    ) -> Result<Table> {
        let cache_id = cache.next_id();
        let mut table = Table {
            path: Arc::from(path),
            file,
            base,
            map: None,
            meta,
            cache,
            cache_id,
            frame: Frame::default(),
            pinned: Box::default(),
        };
        table.frame = table.read_frame()?;
        table.map = map.and_then(|map| TableMap::new(map, table.meta.size));
        if table.map.is_some() {
            table.cache.add_mapped(table.meta.size);
        }
        table.pinned = (0..table.top().len()).map(|_| OnceLock::new()).collect();
        Ok(table)
    }

    /// Reads and checks header, footer, properties and top-level index.
    pub(super) fn read_frame(&self) -> Result<Frame> {
        let size = self
            .file
            .len()
            .map_err(|e| Error::io(&self.path, "read the length of", e))?;
        if size != self.meta.size || size < (HEADER_LEN + FOOTER_LEN) as u64 {
            let what = format!("the file has {size} bytes, not {}", self.meta.size);
            return Err(self.damaged(0, what));
        }
        let mut header = [0; HEADER_LEN];
        self.read_at(0, &mut header)?;
        let version = check_header(&header, &self.path, self.meta.number, self.base)?;
        let at = size - FOOTER_LEN as u64;
        let mut footer = [0; FOOTER_LEN];
        self.read_at(at, &mut footer)?;
        let at_in_file = self.base.saturating_add(at);
        let footer = Footer::decode(&footer, &self.path, self.meta.number, at_in_file)?;
        if footer.version != version {
            return Err(self.damaged(at, "header and footer are of different formats"));
        }

        let cost = Cost::default();
        let bytes = self.read_block(footer.properties, &cost)?;
        let malformed = || self.damaged(footer.properties.offset, "malformed properties");
        let mut reader = Reader::new(&bytes);
        let properties = TableMeta::decode(&mut reader).ok_or_else(malformed)?;
        let mut read_places = || {
            for _ in 0..PROPERTY_COUNTS {
                reader.varint()?;
            }
            let digest = match version {
                WITH_DIGEST => Some(DigestPlace::decode(&mut reader)?),
                _ => None,
            };
            Some((
                digest,
                Samples::decode(&mut reader, properties.zones.len())?,
            ))
        };
        let (digest, samples) = read_places().ok_or_else(malformed)?;
        // Only the manifest has these; `check` compares them with the entries.
        let (bounds, expiry) = (self.meta.bounds.clone(), self.meta.expiry);
        let properties = TableMeta {
            size,
            bounds,
            expiry,
            ..properties
        };
        if properties != *self.meta {
            let what = "the table's properties are not those in the manifest";
            return Err(self.damaged(footer.properties.offset, what));
        }
        let bytes = self.read_block(footer.top, &cost)?;
        let top = Top::decode(&bytes)
            .ok_or_else(|| self.damaged(footer.top.offset, "malformed top-level index"))?;
        if top.entries() != self.meta.entries || top.slots() != self.meta.zones.len() {
            let what = "the top-level index does not fit the table's properties";
            return Err(self.damaged(footer.top.offset, what));
        }
        Ok(Frame {
            top,
            samples,
            digest,
        })
    }

    /// The metadata of the table in the manifest.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes pinned by the open table, without its blocks in the cache.
    pub fn memory(&self) -> usize {
        let map = self.map.as_ref().map_or(0, TableMap::memory);
        self.frame.top.memory() + self.frame.samples.memory() + map + size_of::<Table>()
    }

    pub(super) fn samples(&self) -> &Samples {
        &self.frame.samples
    }

    pub(super) fn digest_place(&self) -> Option<DigestPlace> {
        self.frame.digest
    }

    #[inline]
    pub(super) fn top(&self) -> &Top {
        &self.frame.top
    }

    /// The newest entry of `key`. Touches at most three blocks: key filter, index, data.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the blocks that it reads.
    pub fn get(&self, key: &[u8], cost: &Cost) -> Result<Option<Found>> {
        let p = self.frame.top.find(0, key, MAX_SEQ);
        let Some(part) = self.frame.top.get(p) else {
            return Ok(None);
        };
        if !self.filter_admits(p, part, key, cost)? {
            return Ok(None);
        }
        let index = self.index_of(p, part, true, cost)?;
        let found = self.get_in(part, &index, key, cost)?;
        if found.is_none() && part.filter != Handle::NONE {
            Cost::add(&cost.filters_false, 1);
        }
        Ok(found)
    }

    fn get_in(
        &self,
        part: &Partition,
        index: &[u8],
        key: &[u8],
        cost: &Cost,
    ) -> Result<Option<Found>> {
        let malformed = || self.malformed(part.index);
        let index = Index::parse(index).ok_or_else(malformed)?;
        // Separators are exact: an entry of `key` is in this block, or nowhere.
        let b = index.find(0, key, MAX_SEQ).ok_or_else(malformed)?;
        let handle = index.entry(b).ok_or_else(malformed)?.handle;
        let block = self.block(handle, true, cost)?;
        let bytes = &*block;
        Cost::add(&cost.data_blocks, 1);
        let place = Layout::parse(bytes)
            .and_then(|layout| layout.seek(bytes, key, MAX_SEQ))
            .ok_or_else(|| self.malformed(handle))?;
        let place = place.filter(|place| place.is_of(bytes, key));
        Ok(place.map(|place| Found {
            seq: place.seq,
            kind: place.kind,
            value: block.into_slice(place.value_range()),
        }))
    }

    /// False when the table certainly has no entry of `key`: probes only the key filter.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the filter block.
    pub fn may_contain(&self, key: &[u8], cost: &Cost) -> Result<bool> {
        let p = self.frame.top.find(0, key, MAX_SEQ);
        match self.frame.top.get(p) {
            Some(part) => self.filter_admits(p, part, key, cost),
            None => Ok(false),
        }
    }

    #[inline]
    pub(super) fn filter_admits(
        &self,
        p: usize,
        part: &Partition,
        key: &[u8],
        cost: &Cost,
    ) -> Result<bool> {
        let hash = filter::hash(key);
        let pinned = self.pinned(p).and_then(|pinned| pinned.filter.as_ref());
        let admits = match pinned {
            Some(filter) => {
                Cost::add(&cost.blocks_cached, 1);
                filter::bits_admit(filter.bits(self.map()), filter.form, hash)
            }
            None if part.filter == Handle::NONE => return Ok(true),
            None => filter::may_contain(&self.filter_of(part, cost)?, hash),
        };
        let admits = admits.ok_or_else(|| self.malformed(part.filter))?;
        Cost::add(&cost.filters_probed, 1);
        Cost::add(&cost.filters_negative, u64::from(!admits));
        Ok(admits)
    }

    /// The key filter of a partition. The partition's index lies just before it, and is often
    /// needed next: where neither is cached they are read together.
    fn filter_of(&self, part: &Partition, cost: &Cost) -> Result<Block<'_>> {
        let (index, filter) = (part.index, part.filter);
        let together =
            index.end() == filter.offset && self.cache.capacity() > 0 && self.map.is_none();
        if !together || self.cached(filter).is_some() || self.cached(index).is_some() {
            return self.block(filter, true, cost);
        }
        cost.check_clock()?;
        self.check_handle(index)?;
        self.check_handle(filter)?;
        let mut sealed = vec![0; index.sealed_len() + filter.sealed_len()];
        self.read_at(index.offset, &mut sealed)?;
        Cost::add(&cost.blocks_read, 2);
        Cost::add(&cost.bytes_read, sealed.len() as u64);
        let (first, second) = sealed.split_at(index.sealed_len());
        let filter_bytes = Arc::new(self.unpack(second, filter)?);
        self.keep(filter, &filter_bytes);
        // Damage of the index is an error of the reads that need it.
        if let Ok(bytes) = self.unpack(first, index) {
            self.keep(index, &Arc::new(bytes));
        }
        Ok(Block::Loaded(filter_bytes))
    }

    #[inline]
    fn pinned(&self, p: usize) -> Option<&Pinned> {
        self.pinned.get(p)?.get()
    }

    /// True when the index block and the key filter of a partition are pinned.
    #[inline]
    pub(super) fn is_pinned(&self, p: usize) -> bool {
        self.pinned(p).is_some()
    }

    /// Pins the index blocks and key filters, as far as the cache has capacity: for a new table, so
    /// that its first reads cost no more than later ones. Read errors are left to the reads that
    /// need these blocks.
    pub(crate) fn warm(&self) {
        let cost = Cost::default();
        for p in 0..self.frame.top.len() {
            let Some(part) = self.top().get(p) else { break };
            let filter =
                part.filter == Handle::NONE || self.block(part.filter, true, &cost).is_ok();
            if !filter || self.index_of(p, part, true, &cost).is_err() || self.pinned(p).is_none() {
                break;
            }
        }
    }

    /// The index block of partition `p`. With `keep` it is pinned together with the key filter, if
    /// the cache has capacity for that.
    pub(super) fn index_of(
        &self,
        p: usize,
        part: &Partition,
        keep: bool,
        cost: &Cost,
    ) -> Result<IndexBytes<'_>> {
        if let Some(pinned) = self.pinned(p) {
            Cost::add(&cost.blocks_cached, 1);
            let index = &pinned.index;
            return Ok(IndexBytes::Pinned(index, index.bytes(self.map())));
        }
        let index = self.block(part.index, keep, cost)?;
        let Some(place) = self.pinned.get(p).filter(|_| keep) else {
            return Ok(IndexBytes::Loaded(index));
        };
        let filter = match part.filter {
            Handle::NONE => None,
            // The filter has just been probed; if it is evicted already, there is no capacity.
            handle => match self.at_hand(handle) {
                None => return Ok(IndexBytes::Loaded(index)),
                Some(filter) => PinnedFilter::of(&filter),
            },
        };
        let pinned = Pinned {
            index: index.clone().into(),
            filter,
        };
        let bytes = pinned.memory();
        if self.cache.pin(bytes) && place.set(pinned).is_err() {
            self.cache.unpin(bytes);
        }
        Ok(IndexBytes::Loaded(index))
    }

    /// The slot of an attribute, if the table was built with it.
    pub fn slot_of(&self, attribute_id: u32) -> Option<usize> {
        self.meta
            .zones
            .iter()
            .position(|(id, _)| *id == attribute_id)
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.frame.top.len()
    }

    /// The ends of the partitions: upper bounds of their keys.
    pub fn partition_keys(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.frame.top.len()).map(|p| self.frame.top.key(p))
    }

    /// Least and greatest sequence number in partition `p`.
    pub fn partition_bounds(&self, p: usize) -> (Seq, Seq) {
        self.frame
            .top
            .get(p)
            .map_or((MAX_SEQ, 0), |part| (part.min_seq, part.max_seq))
    }

    /// False when the zone map of partition `p` excludes the range.
    pub fn partition_may_match(&self, p: usize, slot: usize, range: &ValueRange) -> bool {
        self.frame
            .top
            .zone(p, slot)
            .is_some_and(|(min, max)| range.overlaps(min, max))
    }

    /// Appends the data blocks of partition `p` that may hold a value in `range`, in key order:
    /// those not excluded by their zone map or, for a range of one value, by their value filter.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the synopsis block.
    pub fn matching_blocks(
        &self,
        p: usize,
        slot: usize,
        range: &ValueRange,
        cost: &Cost,
        out: &mut Vec<BlockHint>,
    ) -> Result<()> {
        let hash = range.point().map(BlockSynopsis::hash);
        self.with_synopsis(p, cost, |synopsis| {
            let mut records = synopsis.slot(slot)?;
            let before = out.len();
            for (block, (min_seq, max_seq)) in synopsis.bounds().enumerate() {
                let record = records.next_block()?;
                if record
                    .zone
                    .is_some_and(|(min, max)| range.overlaps(min, max))
                    && hash.is_none_or(|hash| record.may_hold(hash))
                {
                    out.push(BlockHint {
                        partition: p,
                        block,
                        min_seq,
                        max_seq,
                    });
                }
            }
            let (asked, matching) = (synopsis.blocks(), out.len() - before);
            Cost::add(&cost.synopses_probed, asked as u64);
            Cost::add(&cost.synopses_negative, (asked - matching) as u64);
            Some(())
        })
    }

    /// Appends all data blocks of partition `p`, in key order.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the synopsis block.
    pub fn all_blocks(&self, p: usize, cost: &Cost, out: &mut Vec<BlockHint>) -> Result<()> {
        self.with_synopsis(p, cost, |synopsis| {
            out.extend(
                synopsis
                    .bounds()
                    .enumerate()
                    .map(|(block, (min_seq, max_seq))| BlockHint {
                        partition: p,
                        block,
                        min_seq,
                        max_seq,
                    }),
            );
            Some(())
        })
    }

    pub(super) fn with_synopsis(
        &self,
        p: usize,
        cost: &Cost,
        ask: impl FnOnce(Synopsis<'_>) -> Option<()>,
    ) -> Result<()> {
        let Some(part) = self.frame.top.get(p) else {
            return Ok(());
        };
        let bytes = self.block(part.synopsis, true, cost)?;
        Synopsis::parse(&bytes)
            .and_then(ask)
            .ok_or_else(|| self.malformed(part.synopsis))
    }

    /// The entries of a data block, read through the cache.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the index and the data block;
    /// [`Error::Invalid`] when the table has no such block.
    pub fn block_entries(&self, hint: &BlockHint, cost: &Cost) -> Result<BlockEntries> {
        let handle = self.handle_of(hint, cost)?;
        Cost::add(&cost.data_blocks, 1);
        self.entries_in(handle, self.block(handle, true, cost)?)
    }

    /// The location of a data block.
    pub(super) fn handle_of(&self, hint: &BlockHint, cost: &Cost) -> Result<Handle> {
        let none = || Error::Invalid(format!("{} has no {hint:?}", self.path.display()));
        let part = self.frame.top.get(hint.partition).ok_or_else(none)?;
        let index = self.index_of(hint.partition, part, true, cost)?;
        let index = Index::parse(&index).ok_or_else(|| self.malformed(part.index))?;
        Ok(index.entry(hint.block).ok_or_else(none)?.handle)
    }

    /// The entries of a data block in memory.
    pub(super) fn entries_in(&self, handle: Handle, block: Block<'_>) -> Result<BlockEntries> {
        let offset = self.base.saturating_add(handle.offset);
        BlockEntries::new(Arc::clone(&self.path), offset, block.into_shared())
            .ok_or_else(|| self.malformed(handle))
    }

    /// The entries of the data blocks spanned by the user keys in `[lo, hi)`, by number: from the
    /// first to before the second. Rounded up to whole blocks: never too few. `hi` of `None` is
    /// past the last key.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of up to two index blocks.
    pub fn spanned(&self, lo: &[u8], hi: Option<&[u8]>, cost: &Cost) -> Result<(u64, u64)> {
        if hi.is_some_and(|hi| hi <= lo || hi <= self.meta.smallest.as_slice())
            || lo > self.meta.largest.as_slice()
        {
            return Ok((0, 0));
        }
        let (skipped, _) = self.reach(Some(lo), cost)?;
        let (_, reached) = self.reach(hi, cost)?;
        Ok((skipped, reached))
    }

    /// The number of entries before the data block in which `key` would be (`None`: the last one),
    /// and up to its end.
    fn reach(&self, key: Option<&[u8]>, cost: &Cost) -> Result<(u64, u64)> {
        let last = self.frame.top.len().saturating_sub(1);
        let p = key.map_or(last, |key| self.frame.top.find(0, key, MAX_SEQ).min(last));
        let Some(part) = self.frame.top.get(p) else {
            return Ok((0, 0));
        };
        let bytes = self.index_of(p, part, true, cost)?;
        let position = || {
            let index = Index::parse(&bytes)?;
            let last = index.len().checked_sub(1)?;
            let b = match key {
                Some(key) => index.find(0, key, MAX_SEQ)?.min(last),
                None => last,
            };
            let before = part.before.checked_add(index.entries_before(b)?)?;
            let entry = index.entry(b)?;
            let after = before.checked_add(u64::from(entry.entries))?;
            Some((before, after))
        };
        position().ok_or_else(|| self.malformed(part.index))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let pinned = self.pinned.iter().filter_map(OnceLock::get);
        self.cache.unpin(pinned.map(Pinned::memory).sum());
        if self.map.is_some() {
            self.cache.remove_mapped(self.meta.size);
        }
    }
}
