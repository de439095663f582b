//! Verifies a table's consistency: every block, read from the file and not from the cache.

use std::sync::Arc;

use super::block::BlockCursor;
use super::filter;
use super::format::Handle;
use super::index::{Index, IndexEntry};
use super::meta::Expiry;
use super::reader::Table;
use crate::attributes::{Extractor, Summary};
use crate::cost::Cost;
use crate::digest::{Digest, Digester};
use crate::entry::{Kind, Seq, Timed, compare};
use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::synopsis::{
    ANYTHING, BlockSynopsis, MapPage, Synopsis, ValueRange, ZoneRef, count_sample, map_hash,
    zone_ref,
};

impl Table {
    /// Reads the whole file and checks it: checksums, the order of entries, the index, that key
    /// filters admit each key, that sequence bounds and zone maps enclose their entries, and the
    /// counts. Reports all damage, and continues after each. Returns the number of entries that
    /// could be read.
    pub fn verify(&self, report: &mut dyn FnMut(Error)) -> u64 {
        self.verify_with(None, report)
    }

    /// As [`Table::verify`], and also checks that the synopses cover the attribute values of each
    /// entry, as extracted by `extractor`.
    pub fn verify_with(
        &self,
        extractor: Option<&dyn Extractor>,
        report: &mut dyn FnMut(Error),
    ) -> u64 {
        // Without a `stop` it runs to its end.
        self.verify_until(None, extractor, None, report)
            .unwrap_or(0)
    }

    /// As [`Table::verify_with`], until `stop` stops it; also checks that the digest covers the
    /// entries.
    ///
    /// # Errors
    /// Only [`Error::Cancelled`]; everything else is reported.
    pub fn verify_until(
        &self,
        stop: Option<&Stop>,
        extractor: Option<&dyn Extractor>,
        digester: Option<&dyn Digester>,
        report: &mut dyn FnMut(Error),
    ) -> Result<u64> {
        let check = || stop.map_or(Ok(()), Stop::check);
        let slots = extractor
            .map(|e| e.ids().iter().map(|&id| self.slot_of(id)).collect())
            .unwrap_or_default();
        let mut audit = Audit {
            table: self,
            extractor,
            digest: digester.map(Digester::begin),
            slots,
            report,
            clean: true,
            counts: [0; 3],
            expiry: None,
            last: None,
            block: BlockCursor::new(),
            maps: Vec::new(),
        };
        if let Err(e) = self.read_frame() {
            audit.found(e);
        }
        audit.read_maps();
        audit.read_samples();
        for p in 0..self.partitions() {
            check()?;
            audit.partition(p);
        }
        audit.totals();
        audit.check_digest();
        Ok(audit.counts.iter().sum())
    }
}

struct Audit<'a> {
    table: &'a Table,
    extractor: Option<&'a dyn Extractor>,
    /// A digest of the entries that were read.
    digest: Option<Box<dyn Digest>>,
    /// The table's slot for each of the extractor's.
    slots: Vec<Option<usize>>,
    report: &'a mut dyn FnMut(Error),
    clean: bool,
    /// Entries by kind.
    counts: [u64; 3],
    expiry: Option<Expiry>,
    /// The last entry read.
    last: Option<(Vec<u8>, Seq)>,
    block: BlockCursor,
    /// Per fingerprint map of the table, its pages (about a hundredth of the file).
    maps: Vec<Vec<Vec<u8>>>,
}

/// The description of one data block in its partition.
struct Claim<'a> {
    partition: usize,
    block: usize,
    entry: IndexEntry<'a>,
    separator: &'a [u8],
    filter: Option<&'a [u8]>,
    bounds: Option<(Seq, Seq)>,
    synopses: Vec<BlockSynopsis<'a>>,
}

impl Audit<'_> {
    fn found(&mut self, error: Error) {
        self.clean = false;
        (self.report)(error);
    }

    fn read(&mut self, handle: Handle) -> Option<Vec<u8>> {
        self.table
            .read_block(handle, &Cost::default())
            .map_err(|e| self.found(e))
            .ok()
    }

    fn partition(&mut self, p: usize) {
        let part = self.table.top().own(p);
        let filter = if part.filter == Handle::NONE {
            None
        } else {
            self.read(part.filter)
        };
        let synopsis = self.read(part.synopsis);
        let Some(index) = self.read(part.index) else {
            return;
        };
        let Some(index) = Index::parse(&index) else {
            self.found(self.table.malformed(part.index));
            return;
        };
        let entries: Option<Vec<_>> = (0..index.len()).map(|b| index.entry(b)).collect();
        let Some(entries) = entries else {
            self.found(self.table.malformed(part.index));
            return;
        };
        let sum: u64 = entries.iter().map(|entry| u64::from(entry.entries)).sum();
        let last = entries.last().map(|entry| (index.key_of(entry), entry.seq));
        let top = (self.table.top().key(p).to_vec(), part.last_seq);
        if sum != part.entries || last != Some(top) {
            let what = "the index block does not fit the top-level index";
            self.found(self.table.damaged(part.index.offset, what));
        }

        let parsed = synopsis
            .as_deref()
            .and_then(|bytes| records(bytes, entries.len()));
        let meta = self.table.meta();
        let described = parsed.as_ref().is_some_and(|(bounds, slots)| {
            part.min_seq >= meta.min_seq
                && part.max_seq <= meta.max_seq
                && bounds
                    .iter()
                    .all(|&(min, max)| min >= part.min_seq && max <= part.max_seq)
                && slots.len() == meta.zones.len()
                && slots.iter().enumerate().all(|(slot, blocks)| {
                    let whole = self.table.top().zone(p, slot);
                    let file = meta.zones.get(slot).and_then(|(_, z)| zone_ref(z));
                    // A partition without its own zone map has wider bounds than its table.
                    let fits = whole == Some(ANYTHING) || encloses(file, whole);
                    fits && blocks.iter().all(|b| encloses(whole, b.zone))
                })
        });
        if synopsis.is_some() && !described {
            let what = "the synopsis block does not fit the top-level index";
            self.found(self.table.damaged(part.synopsis.offset, what));
        }
        let (bounds, synopses) = parsed.filter(|_| described).unwrap_or_default();

        for (b, entry) in entries.into_iter().enumerate() {
            let separator = index.key_of(&entry);
            let synopses = synopses
                .iter()
                .filter_map(|slot| slot.get(b).copied())
                .collect();
            let bounds = bounds.get(b).copied();
            let filter = filter.as_deref();
            let claim = Claim {
                partition: p,
                block: b,
                entry,
                separator: &separator,
                filter,
                bounds,
                synopses,
            };
            if let Err(e) = self.data_block(&claim) {
                self.found(e);
                // The next block is compared with the expected end of this one.
                self.last = Some((separator, entry.seq));
            }
        }
    }

    fn data_block(&mut self, claim: &Claim<'_>) -> Result<()> {
        let handle = claim.entry.handle;
        let wrong = |what: &str| self.table.damaged(handle.offset, what);
        let malformed = || self.table.malformed(handle);
        let bytes = self.table.read_block(handle, &Cost::default())?;
        self.block.load(Arc::new(bytes)).ok_or_else(malformed)?;
        let mut entries = 0;
        while self.block.next().ok_or_else(malformed)? {
            entries += 1;
            let (key, seq) = (self.block.key(), self.block.seq());
            let (kind, expires, value) = Timed::of(self.block.kind(), self.block.value());
            if self.block.kind() == Kind::Timed && expires.is_none() {
                return Err(wrong("an entry that expires does not say when"));
            }
            if let Some(expires) = expires {
                self.expiry = Some(Expiry::with(self.expiry, expires));
            }
            if let Some(count) = self.counts.get_mut(kind as usize) {
                *count += 1;
            }
            match &self.last {
                None if key != self.table.meta().smallest => {
                    return Err(wrong("the table's smallest key is not its first"));
                }
                Some((k, s)) if compare(k, *s, key, seq).is_ge() => {
                    return Err(wrong("entries out of order"));
                }
                _ => {}
            }
            if compare(key, seq, claim.separator, claim.entry.seq).is_gt() {
                return Err(wrong("an entry is past its block's separator"));
            }
            if let Some(filter) = claim.filter
                && filter::may_contain(filter, filter::hash(key)) != Some(true)
            {
                return Err(wrong("the key filter denies a key that is there"));
            }
            if claim
                .bounds
                .is_some_and(|(min, max)| seq < min || seq > max)
            {
                return Err(wrong("an entry is outside of its block's sequence bounds"));
            }
            if kind != Kind::Delete && !self.covered(value, claim) {
                return Err(wrong("a synopsis denies a value that is there"));
            }
            if kind != Kind::Delete
                && let Some(digest) = &mut self.digest
            {
                digest.add(key, value);
            }
            let last = self.last.get_or_insert_default();
            last.0.clear();
            last.0.extend_from_slice(key);
            last.1 = seq;
        }
        if entries != claim.entry.entries {
            return Err(wrong(
                "a block's number of entries is not that of the index",
            ));
        }
        // The next block has to begin behind the separator.
        self.last = Some((claim.separator.to_vec(), claim.entry.seq));
        Ok(())
    }

    /// True when the block's synopses admit every attribute value of the current entry.
    fn covered(&self, value: &[u8], claim: &Claim<'_>) -> bool {
        let Some(extractor) = self.extractor else {
            return true;
        };
        let mut covered = true;
        extractor.extract(self.block.key(), value, &mut |slot, value| {
            let summary = extractor.summary(slot);
            let Some(slot) = self.slots.get(slot).copied().flatten() else {
                return;
            };
            let only = match summary {
                Summary::Boxes(from) => {
                    let corner = value.get(from..).unwrap_or(&[]).to_vec();
                    ValueRange::in_boxes(vec![(corner.clone(), corner)])
                }
                _ => ValueRange::only(value),
            };
            let admits =
                |zone: Option<ZoneRef<'_>>| zone.is_some_and(|(min, max)| only.overlaps(min, max));
            let table = self.table.meta().zones.get(slot);
            covered &= table.is_none_or(|(_, zone)| admits(zone_ref(zone)));
            if let Some(synopsis) = claim.synopses.get(slot) {
                let hash = BlockSynopsis::hash(value);
                covered &= self.mapped(slot, hash, claim)
                    && synopsis.may_hold(hash)
                    && admits(synopsis.zone);
            }
        });
        covered
    }

    /// Reads and checks the pages of the fingerprint maps.
    fn read_maps(&mut self) {
        for map in self.table.top().maps() {
            let mut pages = Vec::new();
            for place in &map.pages {
                let Some(bytes) = self.read(place.handle) else {
                    pages.push(Vec::new());
                    continue;
                };
                let mut blocks = Vec::new();
                let whole = MapPage::parse(&bytes).is_some_and(|page| {
                    page.least() == place.least && page.all_blocks(&mut blocks).is_some()
                });
                let parts = self.table.partitions();
                if !whole || blocks.iter().any(|block| block >> map.shift >= parts) {
                    self.found(self.table.malformed(place.handle));
                }
                pages.push(bytes);
            }
            self.maps.push(pages);
        }
    }

    /// Reads and checks the samples of the values.
    fn read_samples(&mut self) {
        let entries = self.table.meta().entries;
        for handle in self.table.samples().handles() {
            let Some(bytes) = self.read(handle) else {
                continue;
            };
            let sampled = count_sample(&bytes, &|_| false);
            if sampled.is_none_or(|sampled| sampled.entries > entries) {
                self.found(self.table.malformed(handle));
            }
        }
    }

    /// Reads the digest of the table, and compares it with that of the entries.
    fn check_digest(&mut self) {
        let Some(place) = self.table.digest_place() else {
            return;
        };
        let Some(stored) = self.read(place.handle) else {
            return;
        };
        let own = self.digest.as_ref();
        if own.is_some_and(|own| !own.is_covered_by(&stored)) {
            let what = "the table's digest does not cover its entries";
            self.found(self.table.damaged(place.handle.offset, what));
        }
    }

    /// True unless the fingerprint map of a slot excludes a value from a block. Damaged pages were
    /// reported before, and exclude nothing.
    fn mapped(&self, slot: usize, hash: u64, claim: &Claim<'_>) -> bool {
        let maps = self.table.top().maps();
        let Some(at) = maps.iter().position(|map| map.slot == slot) else {
            return true;
        };
        let (Some(map), Some(pages)) = (maps.get(at), self.maps.get(at)) else {
            return true;
        };
        let hash = map_hash(hash);
        let behind = map.pages.partition_point(|page| page.least <= hash);
        let Some(bytes) = behind.checked_sub(1).and_then(|at| pages.get(at)) else {
            return false;
        };
        let mut blocks = Vec::new();
        MapPage::parse(bytes)
            .and_then(|page| page.blocks(hash, &mut blocks))
            .is_none_or(|()| blocks.contains(&(claim.partition << map.shift | claim.block)))
    }

    /// Compares the counts with those in the manifest. Skipped for a table with unreadable blocks,
    /// whose counts cannot be right.
    fn totals(&mut self) {
        let meta = self.table.meta();
        let [deletes, puts, operands] = self.counts;
        let counted = (deletes + puts + operands, deletes, operands);
        if self.clean && self.expiry != meta.expiry {
            let what = "the table's entries do not expire when the manifest says";
            self.found(self.table.damaged(0, what));
        }
        if self.clean && counted != (meta.entries, meta.deletes, meta.operands) {
            let what = "the table's counts are not those of its entries";
            self.found(self.table.damaged(0, what));
        }
        if self.clean
            && self
                .last
                .as_ref()
                .is_some_and(|(key, _)| *key != meta.largest)
        {
            self.found(
                self.table
                    .damaged(0, "the table's largest key is not its last"),
            );
        }
    }
}

/// Sequence bounds per block, and per slot the synopsis of each block.
type Records<'a> = (Vec<(Seq, Seq)>, Vec<Vec<BlockSynopsis<'a>>>);

/// The contents of a synopsis block of `blocks` data blocks; `None` when it is malformed.
fn records(bytes: &[u8], blocks: usize) -> Option<Records<'_>> {
    let synopsis = Synopsis::parse(bytes).filter(|synopsis| synopsis.blocks() == blocks)?;
    let slots = (0..synopsis.slots()).map(|slot| {
        let mut records = synopsis.slot(slot)?;
        (0..blocks).map(|_| records.next_block()).collect()
    });
    Some((synopsis.bounds().collect(), slots.collect::<Option<_>>()?))
}

/// True when the zone map `outer` encloses `inner`.
fn encloses(outer: Option<ZoneRef<'_>>, inner: Option<ZoneRef<'_>>) -> bool {
    match (outer, inner) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some((outer_min, outer_max)), Some((min, max))) => {
            outer_min <= min && outer_max.is_none_or(|outer| max.is_some_and(|max| max <= outer))
        }
    }
}
