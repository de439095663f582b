//! RocksDB, set up as its users would: LZ4, 10-bit Bloom filters, an LRU block cache, two background
//! jobs, everything else as it comes (write buffers of 64 MiB, blocks of 4 KiB, leveled with dynamic
//! level sizes). The data and each index are a column family.

use std::collections::BTreeMap;

use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    FlushOptions, Options, ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::keyed::{self, Candidate, Store};
use super::{Indexes, Put, Reads, Setup, Subject, Visit, Writes};
use crate::failure::{Failure, Result};
use crate::workload::{Attribute, Find, Record};

const DATA: &str = "data";
const USER: &str = "user";
const TIME: &str = "time";

pub(super) struct Rocks {
    db: DB,
    options: Options,
    counting: bool,
    indexes: Indexes,
    number: keyed::Number,
    record: Vec<u8>,
}

impl Rocks {
    pub(super) fn open(indexes: Indexes, setup: &Setup) -> Result<Rocks> {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(setup.cache_bytes));
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_block_based_table_factory(&table);
        options.set_max_background_jobs(2);
        if setup.direct {
            options.set_use_direct_reads(true);
            options.set_use_direct_io_for_flush_and_compaction(true);
            // Blocks are counted only here: counting costs a few percent.
            options.enable_statistics();
            options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }
        let families = [DATA, USER, TIME]
            .iter()
            .take(if indexes == Indexes::None { 1 } else { 3 })
            .map(|name| ColumnFamilyDescriptor::new(*name, options.clone()));
        let db = DB::open_cf_descriptors(&options, &setup.dir, families)?;
        Ok(Rocks {
            db,
            options,
            counting: setup.direct,
            indexes,
            number: 0,
            record: Vec::new(),
        })
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily> {
        self.db
            .cf_handle(name)
            .ok_or_else(|| Failure::new(format!("no column family {name}")))
    }
}

impl Subject for Rocks {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.number += 1;
        keyed::store(&mut self.record, self.number, record);
        let key = keyed::key(record.key);
        let data = self.family(DATA)?;
        if self.indexes == Indexes::None {
            return Ok(self.db.put_cf(data, key, &self.record)?);
        }
        let (user, time) = (self.family(USER)?, self.family(TIME)?);
        let mut batch = WriteBatch::default();
        if self.indexes == Indexes::Eager
            && let Some(old) = self.db.get_pinned_cf(data, key)?
        {
            let [old_user, old_time] = keyed::entries_of(&old);
            batch.delete_cf(user, old_user);
            batch.delete_cf(time, old_time);
        }
        batch.put_cf(data, key, &self.record);
        batch.put_cf(user, keyed::entry(record.user, self.number), key);
        batch.put_cf(time, keyed::entry(record.second, self.number), key);
        Ok(self.db.write(batch)?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        Reads::get(self, key, visit)
    }

    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()> {
        Reads::find(self, find, visit)
    }

    fn shared(&self) -> Option<&dyn Reads> {
        Some(self)
    }

    fn shared_writes(&self) -> Option<&dyn Writes> {
        (self.indexes == Indexes::None).then_some(self)
    }

    fn settle(&mut self) -> Result<()> {
        let mut names = vec![DATA];
        if self.indexes != Indexes::None {
            names.extend([USER, TIME]);
        }
        let families = names
            .iter()
            .map(|name| self.family(name))
            .collect::<Result<Vec<_>>>()?;
        self.db.flush_cfs_opt(
            &families.iter().collect::<Vec<_>>(),
            &FlushOptions::default(),
        )?;
        Ok(self
            .db
            .wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        if !self.counting {
            return BTreeMap::new();
        }
        let of = |ticker| self.options.get_ticker_count(ticker) as f64;
        [
            ("blocks_read", of(Ticker::BlockCacheMiss)),
            ("blocks_cached", of(Ticker::BlockCacheHit)),
        ]
        .map(|(name, count)| (name.to_string(), count))
        .into()
    }
}

impl Writes for Rocks {
    fn writer(&self, synced: bool) -> Result<Put<'_>> {
        let data = self.family(DATA)?;
        let mut options = WriteOptions::default();
        options.set_sync(synced);
        let mut stored = Vec::new();
        Ok(Box::new(move |record| {
            // Only indexes need the number.
            keyed::store(&mut stored, 0, record);
            let key = keyed::key(record.key);
            Ok(self.db.put_cf_opt(data, key, &stored, &options)?)
        }))
    }
}

impl Reads for Rocks {
    fn get(&self, key: u64, visit: Visit<'_>) -> Result<()> {
        let data = self.family(DATA)?;
        if let Some(bytes) = self.db.get_pinned_cf(data, keyed::key(key))? {
            visit(keyed::stored(&bytes).1);
        }
        Ok(())
    }

    fn find(&self, find: &Find, visit: Visit<'_>) -> Result<()> {
        keyed::find(self, find, self.indexes == Indexes::Blind, visit)
    }
}

impl Store for Rocks {
    fn scan(
        &self,
        attribute: Attribute,
        from: &[u8; 16],
        to: &[u8; 16],
        each: &mut dyn FnMut(Candidate) -> Result<bool>,
    ) -> Result<()> {
        let family = self.family(match attribute {
            Attribute::User => USER,
            Attribute::Time => TIME,
        })?;
        let mut options = ReadOptions::default();
        // The bound is exclusive; a byte more makes it include `to`.
        options.set_iterate_upper_bound([&to[..], &[0]].concat());
        let mut entries = self.db.raw_iterator_cf_opt(family, options);
        entries.seek(from);
        while let Some((entry, key)) = entries.item() {
            if !each(Candidate::new(entry, key))? {
                return Ok(());
            }
            entries.next();
        }
        Ok(entries.status()?)
    }

    fn fetch(
        &self,
        candidates: &[Candidate],
        each: &mut dyn FnMut(&Candidate, &[u8]),
    ) -> Result<()> {
        let data = self.family(DATA)?;
        // For a few records, single gets are a little faster; for many, batched ones by far.
        if candidates.len() < keyed::TOGETHER {
            for candidate in candidates {
                if let Some(bytes) = self.db.get_pinned_cf(data, candidate.key)? {
                    each(candidate, &bytes);
                }
            }
            return Ok(());
        }
        let keys = candidates.iter().map(|candidate| &candidate.key);
        let found = self.db.batched_multi_get_cf(data, keys, false);
        for (candidate, bytes) in candidates.iter().zip(found) {
            if let Some(bytes) = bytes? {
                each(candidate, &bytes);
            }
        }
        Ok(())
    }
}
