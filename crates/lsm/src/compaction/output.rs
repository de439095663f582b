//! Output of a flush or compaction: entries in order, cut into tables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::CompactionContext;
use crate::batch::TreeId;
use crate::coding::Own;
use crate::cursor::Cursor;
use crate::entry::{Kind, Seq};
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::obsolete::{self, SeqSet};
use crate::table::{Bounds, DigestSource, TableBuilder, TableMeta, TableOptions};
use crate::version::{
    ComponentId, Cutter, Cutting, Edit, MOST_PARTS, NewTable, Partitioner, Place, TableFile,
    TableSource, TreeVersion,
};

/// Tables under construction: one after the other, cut between keys at the table size, or side by
/// side, as the tree's partitioner cuts. Dropped before [`Self::finish`], it removes its files.
pub(super) struct Output<'a> {
    shop: &'a CompactionContext<'a>,
    options: TableOptions,
    cut: Cut<'a>,
    written: Written,
    /// Whether sequence numbers are recorded as they are written: those added to a bitmap tree.
    pub(super) notes_bits: bool,
    pub(super) last_key: Vec<u8>,
    pub(super) count: u64,
    /// Bytes of entries since the last progress report, and the bytes reported so far.
    unreported: usize,
    reported: u64,
}

/// Bytes of entries per progress report.
const REPORT_BYTES: usize = 64 << 10;

/// Where the open tables end.
enum Cut<'a> {
    BySize(Option<Box<TableBuilder<'a>>>),
    Parts {
        partitioner: Arc<dyn Partitioner>,
        cutter: Box<dyn Cutter>,
        /// Tables of the target run that must not be overlapped.
        beside: Vec<Arc<TableFile>>,
        /// The partition of the last key.
        at: usize,
        parts: Vec<Option<Part<'a>>>,
    },
}

/// A table of a partitioned output, with the bounds of its entries.
struct Part<'a> {
    table: TableBuilder<'a>,
    bounds: Vec<u8>,
}

/// A sketch of the expected input, for a partitioner.
#[derive(Default)]
pub(super) struct Expected {
    /// It is a memtable.
    is_flush: bool,
    bytes: u64,
    /// Keys of the input at even distances, in order.
    sample: Vec<Vec<u8>>,
    /// The tables that are read.
    within: Vec<Arc<TableFile>>,
    /// The tables of the target run that stay.
    beside: Vec<Arc<TableFile>>,
    /// The digest of its tables, if it is not made of their entries.
    pub(super) digest: Option<DigestSource>,
}

/// Approximate number of sampled keys.
const SAMPLE: usize = 1024;

/// Of tables, at most one data block in so many is read for the sample.
const SPARSE: usize = 8;

impl Expected {
    /// The sketch of a memtable; empty for trees without a partitioner.
    pub(super) fn of_memtable(tree: &TreeVersion, memtable: &Memtable) -> Result<Expected> {
        let mut expected = Expected {
            is_flush: true,
            ..Expected::default()
        };
        if tree.options.partitioner.is_none() {
            return Ok(expected);
        }
        let step = (memtable.len() / SAMPLE).max(1);
        let mut cursor = memtable.cursor();
        let mut at = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            expected.bytes += (cursor.key().len() + cursor.value().len()) as u64;
            if at % step == 0 {
                expected.sample.push(cursor.key().to_vec());
            }
            at += 1;
            cursor.next()?;
        }
        Ok(expected)
    }

    /// The sketch of a choice's tables. Keys of the sample are whole: those at the ends of blocks
    /// and partitions are shortened in the index, and a partitioner may look at the part that is
    /// missing.
    pub(super) fn of_tables<'t>(
        tree: &TreeVersion,
        tables: impl Iterator<Item = &'t Arc<TableFile>>,
        beside: Vec<Arc<TableFile>>,
        block_size: usize,
    ) -> Result<Expected> {
        let mut expected = Expected::default();
        if tree.options.partitioner.is_none() {
            return Ok(expected);
        }
        expected.beside = beside;
        expected.within.extend(tables.cloned());
        expected.bytes = expected.within.iter().map(|table| table.meta().size).sum();
        let blocks = expected.bytes as usize / block_size.max(1);
        let (every, mut passed) = ((blocks / SAMPLE).max(SPARSE), 0);
        for table in &expected.within {
            let table = table.table()?;
            table.sample_keys(every, &mut passed, &mut expected.sample)?;
        }
        expected.sample.sort();
        Ok(expected)
    }
}

fn all_bounds(tables: &[Arc<TableFile>]) -> Vec<&[u8]> {
    tables.iter().map(|table| table.bounds()).collect()
}

impl<'a> Output<'a> {
    pub(super) fn new(
        shop: &'a CompactionContext<'a>,
        tree: &TreeVersion,
        expected: &Expected,
    ) -> Output<'a> {
        let options = TableOptions {
            block_size: shop.options.block_size,
            compress: shop.options.compress
                && (tree.options.compresses_flushes || !expected.is_flush),
            filter_bits_per_key: tree.options.filter_bits_per_key,
            blocked_filter: shop.options.blocked_filter,
            value_filter_bits: shop.options.value_filter_bits,
            extractor: tree.options.extractor.clone(),
            digest: (expected.digest.clone()).or_else(|| {
                let digester = tree.options.digester.clone();
                digester.map(DigestSource::Entries)
            }),
            ..TableOptions::default()
        };
        let cut = match &tree.options.partitioner {
            None => Cut::BySize(None),
            Some(partitioner) => Cut::Parts {
                cutter: partitioner.cut(&Cutting {
                    bytes: expected.bytes,
                    table_size: shop.options.table_size,
                    sample: &expected.sample,
                    within: &all_bounds(&expected.within),
                    beside: &all_bounds(&expected.beside),
                }),
                beside: expected.beside.clone(),
                partitioner: partitioner.clone(),
                at: 0,
                parts: Vec::new(),
            },
        };
        Output {
            shop,
            options,
            cut,
            written: Written::default(),
            notes_bits: false,
            last_key: Vec::new(),
            count: 0,
            unreported: 0,
            reported: 0,
        }
    }

    pub(super) fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        self.count += 1;
        if self.count.is_multiple_of(1024) && self.shop.is_aborted() {
            return Err(Error::Closed);
        }
        self.unreported += key.len() + value.len();
        if self.unreported >= REPORT_BYTES {
            self.report_progress();
        }
        let new_key = self.count == 1 || self.last_key.as_slice() != key;
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            if self.notes_bits {
                obsolete::decode(key, value, &mut self.written.bits)
                    .map_err(|what| Error::Invalid(what.to_string()))?;
            }
        }
        self.table(new_key)?.add(key, seq, kind, value)
    }

    /// Reports the bytes written so far, and waits if they exceed the rate limit.
    fn report_progress(&mut self) {
        self.unreported = 0;
        let open: u64 = match &self.cut {
            Cut::BySize(table) => table.iter().map(|table| table.estimated_size()).sum(),
            Cut::Parts { parts, .. } => {
                let open = parts.iter().flatten();
                open.map(|part| part.table.estimated_size()).sum()
            }
        };
        let bytes = self.written.bytes() + open;
        let more = bytes.saturating_sub(self.reported);
        self.reported += more;
        if let Some(written) = self.shop.written {
            written.fetch_add(more, Ordering::Relaxed);
        }
        if let Some(pace) = self.shop.pace {
            pace.wait(more, self.shop.closing);
        }
    }

    /// The table for the key that was recorded last.
    fn table(&mut self, new_key: bool) -> Result<&mut TableBuilder<'a>> {
        let (shop, options, written) = (self.shop, &self.options, &mut self.written);
        match &mut self.cut {
            Cut::BySize(table) => {
                let size = shop.options.table_size;
                if let Some(full) = table.take_if(|b| new_key && b.estimated_size() >= size) {
                    written.end_table(shop, *full, None)?;
                }
                Ok(table.get_or_insert_with(|| Box::new(written.begin_table(shop, options))))
            }
            Cut::Parts {
                partitioner,
                cutter,
                at,
                parts,
                ..
            } => {
                if new_key {
                    *at = cutter.part(&self.last_key).min(MOST_PARTS - 1);
                }
                if parts.len() <= *at {
                    parts.resize_with(*at + 1, || None);
                }
                let part = parts.own_mut(*at).get_or_insert_with(|| Part {
                    table: written.begin_table(shop, options),
                    bounds: Vec::new(),
                });
                if new_key {
                    partitioner.cover(&mut part.bounds, &self.last_key);
                }
                Ok(&mut part.table)
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<Written> {
        match &mut self.cut {
            Cut::BySize(last) => {
                if let Some(last) = last.take() {
                    self.written.end_table(self.shop, *last, None)?;
                }
            }
            Cut::Parts {
                partitioner,
                beside,
                parts,
                ..
            } => {
                let parts: Vec<_> = std::mem::take(parts).into_iter().flatten().collect();
                let beside = beside.iter().map(|table| table.bounds());
                let bounds = parts.iter().map(|part| part.bounds.as_slice());
                for (at, part) in parts.iter().enumerate() {
                    let others = bounds.clone().skip(at + 1).chain(beside.clone());
                    if others
                        .into_iter()
                        .any(|other| partitioner.overlap(&part.bounds, other))
                    {
                        let what = format!("{partitioner:?} cuts tables that overlap");
                        return Err(Error::Invalid(what));
                    }
                }
                for part in parts {
                    let bounds = Bounds {
                        partitioner: partitioner.id(),
                        bytes: part.bounds,
                    };
                    self.written
                        .end_table(self.shop, part.table, Some(bounds))?;
                }
            }
        }
        self.report_progress();
        Ok(std::mem::take(&mut self.written))
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        self.written.remove(self.shop.source);
    }
}

/// The tables that an [`Output`] wrote.
#[derive(Default)]
pub(super) struct Written {
    pub(super) tables: Vec<(TableMeta, Option<Place>)>,
    files: Vec<u64>,
    /// In a bitmap tree, the added numbers.
    pub(super) bits: SeqSet,
}

impl Written {
    fn begin_table<'a>(
        &mut self,
        shop: &'a CompactionContext<'a>,
        options: &TableOptions,
    ) -> TableBuilder<'a> {
        let number = (shop.next_file)();
        self.files.push(number);
        let path = shop.source.path(number);
        TableBuilder::begin(&*shop.source.fs, &path, number, options)
    }

    fn end_table(
        &mut self,
        shop: &CompactionContext<'_>,
        table: TableBuilder<'_>,
        bounds: Option<Bounds>,
    ) -> Result<()> {
        let (mut meta, place) = match shop.shared {
            None => (table.finish()?, None),
            Some(shared) => {
                let (meta, small) = table.finish_small()?;
                let place = match small {
                    Some(small) => {
                        // The table gets no file of its own; the first table of a shared file gives
                        // the file its number.
                        self.files.retain(|number| *number != meta.number);
                        Some(shared.add(&small, &|| meta.number)?)
                    }
                    None => None,
                };
                (meta, place)
            }
        };
        meta.bounds = bounds;
        self.tables.push((meta, place));
        Ok(())
    }

    /// Appends the tables of another output, whose keys are all greater.
    pub(super) fn append(&mut self, mut other: Written) {
        self.tables.append(&mut other.tables);
        self.files.append(&mut other.files);
        self.bits.add_all(&other.bits);
    }

    /// Removes the files.
    pub(super) fn remove(&self, source: &TableSource) {
        for number in &self.files {
            let _ = source.fs.remove(&source.path(*number));
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tables.iter().map(|(meta, _)| meta.size).sum()
    }

    /// Records the tables in an edit: in run `run` of `level`, or as a run of its own. `component`
    /// spans the writes in the tables; without it, the span is computed from their entries.
    pub(super) fn enter(
        self,
        edit: &mut Edit,
        tree: TreeId,
        level: u32,
        run: Option<u64>,
        component: Option<ComponentId>,
    ) {
        let metas = || self.tables.iter().map(|(meta, _)| meta);
        let component = component.unwrap_or_else(|| ComponentId {
            min: metas().map(|meta| meta.min_seq).min().unwrap_or(0),
            max: metas().map(|meta| meta.max_seq).max().unwrap_or(0),
        });
        let first = metas().map(|meta| meta.number).min().unwrap_or(0);
        edit.files.extend(self.files);
        edit.add_bits(tree, &self.bits);
        edit.added
            .extend(self.tables.into_iter().map(|(meta, place)| NewTable {
                tree,
                level,
                run: run.unwrap_or(first),
                component,
                meta: Arc::new(meta),
                place,
            }));
    }
}
