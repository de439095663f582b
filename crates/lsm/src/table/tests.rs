mod damage;
mod files;
mod synopses;

use std::path::PathBuf;
use std::sync::Arc;

use files::Files;

use super::*;
use crate::cache::BlockCache;
use crate::coding::Reader;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::digest::{Digest, Digester};
use crate::entry::{Kind, MAX_KEY_LEN, MAX_SEQ, Seq, compare};
use crate::error::{Error, Result};
use crate::fs::Fs;
use esker_coding::Slice;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    value: Vec<u8>,
}

const NUMBER: u64 = 42;

fn path() -> PathBuf {
    PathBuf::from("42.table")
}

fn build(files: &Files, options: &TableOptions, entries: &[Entry]) -> TableMeta {
    let mut builder = TableBuilder::begin(files, &path(), NUMBER, options);
    assert!(builder.is_empty());
    for entry in entries {
        builder
            .add(&entry.key, entry.seq, entry.kind, &entry.value)
            .unwrap();
    }
    let estimate = builder.estimated_size();
    let meta = builder.finish().unwrap();
    // The compressed size is not predictable.
    if !options.compress {
        assert!(
            estimate <= meta.size + meta.size / 2 + 10_000,
            "{estimate} of {}",
            meta.size
        );
        assert!(
            meta.size <= estimate + estimate / 2 + 10_000,
            "{estimate} of {}",
            meta.size
        );
    }
    meta
}

fn open(files: &Files, meta: &TableMeta, cache: usize) -> Result<Arc<Table>> {
    let cache = Arc::new(BlockCache::new(cache));
    Ok(Arc::new(Table::open(files, path(), meta.clone(), cache)?))
}

/// As [`open`], through a map of the file.
fn open_mapped(files: &Files, meta: &TableMeta, cache: usize) -> Result<Arc<Table>> {
    let cache = Arc::new(BlockCache::new(cache));
    let file = files.open(&path()).unwrap();
    let (map, meta) = (file.map(), Arc::new(meta.clone()));
    let table = Table::open_in(file, map, path(), 0, meta, cache)?;
    Ok(Arc::new(table))
}

fn current(cursor: &TableCursor) -> Option<Entry> {
    let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
    assert_eq!(*cursor.value_slice(), value);
    cursor.valid().then(|| Entry {
        key,
        seq: cursor.seq(),
        kind: cursor.kind(),
        value,
    })
}

fn entry(key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Entry {
    Entry {
        key: key.to_vec(),
        seq,
        kind,
        value: value.to_vec(),
    }
}

fn random_key(rng: &mut fastrand::Rng, shape: usize) -> Vec<u8> {
    match shape {
        0 => (0..rng.usize(..4)).map(|_| rng.u8(..3)).collect(),
        1 => format!("user:{:08}", rng.u32(..3000)).into_bytes(),
        2 => {
            let mut key = vec![b'p'; 300];
            key.extend_from_slice(&rng.u16(..500).to_be_bytes());
            key
        }
        _ => {
            let mut key = vec![0xff; rng.usize(..12)];
            key.push(rng.u8(..));
            key
        }
    }
}

fn any_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let shape = rng.usize(..4);
    random_key(rng, shape)
}

fn random_entries(rng: &mut fastrand::Rng) -> Vec<Entry> {
    let shape = rng.usize(..4);
    let keys = rng.usize(1..150);
    let mut entries = Vec::new();
    for _ in 0..keys {
        let key = random_key(rng, shape);
        for _ in 0..[1, 1, 1, 3, 60][rng.usize(..5)] {
            let kind = Kind::from_byte(rng.u8(..3)).unwrap();
            let seq = [rng.u64(..2000), MAX_SEQ - rng.u64(..500)][usize::from(rng.u8(..20) == 0)];
            let len = [0, 1, 20, 200, 3000][rng.usize(..5)];
            let value = vec![rng.u8(..); len];
            entries.push(Entry {
                key: key.clone(),
                seq,
                kind,
                value,
            });
        }
    }
    entries.sort_by(|a, b| compare(&a.key, a.seq, &b.key, b.seq));
    entries.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
    entries
}

fn random_options(rng: &mut fastrand::Rng) -> TableOptions {
    TableOptions {
        block_size: [1, 200, 1000, 4096][rng.usize(..4)],
        compress: rng.bool(),
        filter_bits_per_key: [0, 1, 10, 20][rng.usize(..4)],
        blocked_filter: rng.bool(),
        value_filter_bits: [0, 1, 10, 20][rng.usize(..4)],
        partition_blocks: [1, 2, 5, 64][rng.usize(..4)],
        extractor: None,
        digest: match rng.u8(..3) {
            0 => None,
            1 => Some(DigestSource::Entries(Arc::new(Lengths))),
            _ => Some(DigestSource::Inherited(Arc::new(vec![7; rng.usize(..300)]))),
        },
    }
}

/// Digests with the number of entries that are no deletes, and of their bytes.
struct Lengths;

impl Digester for Lengths {
    fn begin(&self) -> Box<dyn Digest> {
        Box::new(Sums::default())
    }
}

#[derive(Default)]
struct Sums(u32, u32);

impl Digest for Sums {
    fn add(&mut self, _key: &[u8], value: &[u8]) {
        self.0 += 1;
        self.1 += value.len() as u32;
    }

    fn absorb(&mut self, _stored: &[u8]) -> bool {
        false
    }

    fn is_covered_by(&self, stored: &[u8]) -> bool {
        let mut own = Vec::new();
        self.encode(&mut own);
        own == stored
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.0.to_le_bytes());
        out.extend(self.1.to_le_bytes());
    }
}

fn check_digest(table: &Table, options: &TableOptions, entries: &[Entry]) {
    let found = table.digest(&Cost::default()).unwrap();
    assert_eq!(
        table.has_own_digest(),
        found.as_ref().is_some_and(|found| !found.is_inherited)
    );
    match &options.digest {
        None => assert_eq!(found, None),
        Some(DigestSource::Inherited(bytes)) => {
            assert_eq!(found.map(|found| found.bytes), Some(bytes.clone()));
        }
        Some(DigestSource::Entries(_)) => {
            let mut expected = Sums::default();
            for entry in entries.iter().filter(|entry| entry.kind != Kind::Delete) {
                expected.add(&entry.key, &entry.value);
            }
            assert!(expected.is_covered_by(&found.unwrap().bytes));
            let mut damage = 0;
            let mut report = |_| damage += 1;
            let verified = table.verify_until(None, None, Some(&Lengths), &mut report);
            assert_eq!((verified.unwrap(), damage), (entries.len() as u64, 0));
        }
    }
}

#[test]
fn a_digest_that_lacks_an_entry_is_reported() {
    let (files, entries) = (
        Files::default(),
        random_entries(&mut fastrand::Rng::with_seed(1)),
    );
    let options = TableOptions {
        digest: Some(DigestSource::Inherited(Arc::new(vec![0; 8]))),
        ..TableOptions::default()
    };
    let meta = build(&files, &options, &entries);
    let table = open(&files, &meta, 0).unwrap();
    let mut damage = Vec::new();
    let mut report = |error: Error| damage.push(error.to_string());
    table
        .verify_until(None, None, Some(&Lengths), &mut report)
        .unwrap();
    assert!(
        damage.len() == 1 && damage[0].contains("digest"),
        "{damage:?}"
    );
}

fn random_read_options(rng: &mut fastrand::Rng) -> ReadOptions {
    ReadOptions {
        fill_cache: rng.bool(),
        readahead: [0, 1, 5000, 1 << 18][rng.usize(..4)],
    }
}

#[test]
fn tables_answer_as_the_model_does() {
    for seed in 0..esker_sim::by_tier(50, 120) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (entries, options) = (random_entries(&mut rng), random_options(&mut rng));
        let files = Files::default();
        let meta = build(&files, &options, &entries);
        check_meta(&meta, &entries);
        let open = [open, open_mapped][rng.usize(..2)];
        let table = open(&files, &meta, [0, 1 << 16, 1 << 24][rng.usize(..3)]).unwrap();
        assert_eq!(*table.meta(), meta);
        assert!(table.memory() > 0);

        let counted = table.verify(&mut |e| panic!("{e}"));
        assert_eq!(counted, entries.len() as u64);
        check_moves(&table, &entries, &mut rng);
        check_lookups(&table, &entries, &mut rng, options.filter_bits_per_key > 0);
        check_extents(&table, &entries, &mut rng);
        check_blocks(&table, &entries);
        check_digest(&table, &options, &entries);
        check_ranges(&table, &entries, &mut rng);
    }
}

fn check_meta(meta: &TableMeta, entries: &[Entry]) {
    let count = |kind| entries.iter().filter(|e| e.kind == kind).count() as u64;
    assert_eq!(meta.number, NUMBER);
    assert_eq!(meta.entries, entries.len() as u64);
    assert_eq!(
        (meta.deletes, meta.operands),
        (count(Kind::Delete), count(Kind::Operand))
    );
    assert_eq!(meta.smallest, entries[0].key);
    assert_eq!(meta.largest, entries.last().unwrap().key);
    assert_eq!(meta.min_seq, entries.iter().map(|e| e.seq).min().unwrap());
    assert_eq!(meta.max_seq, entries.iter().map(|e| e.seq).max().unwrap());
}

fn check_moves(table: &Arc<Table>, entries: &[Entry], rng: &mut fastrand::Rng) {
    let mut cursor = table.cursor(random_read_options(rng));
    assert_eq!(current(&cursor), None);
    cursor.seek_first().unwrap();
    for entry in entries {
        assert_eq!(current(&cursor).as_ref(), Some(entry));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    let mut cursor = table.cursor(random_read_options(rng));
    cursor.seek_last().unwrap();
    for entry in entries.iter().rev() {
        assert_eq!(current(&cursor).as_ref(), Some(entry));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());

    // Random moves, with some seeks near the previous one.
    let mut cursor = table.cursor(random_read_options(rng));
    let mut at: Option<usize> = None;
    for _ in 0..600 {
        match (rng.u8(..10), at) {
            (0, _) => {
                cursor.seek_first().unwrap();
                at = Some(0);
            }
            (1, _) => {
                cursor.seek_last().unwrap();
                at = Some(entries.len() - 1);
            }
            (2..5, Some(i)) => {
                cursor.next().unwrap();
                at = Some(i + 1);
            }
            (5..7, Some(i)) => {
                cursor.prev().unwrap();
                at = i.checked_sub(1);
            }
            (_, near) => {
                let base = near
                    .filter(|_| rng.bool())
                    .unwrap_or(rng.usize(..entries.len()));
                let target = &entries[(base + rng.usize(..4)).min(entries.len() - 1)];
                let mut key = target.key.clone();
                match rng.u8(..6) {
                    0 => key.push(rng.u8(..)),
                    1 => drop(key.pop()),
                    2 => key = any_key(rng),
                    _ => {}
                }
                let seq = [target.seq, target.seq.saturating_sub(1), MAX_SEQ, 0][rng.usize(..4)];
                cursor.seek(&key, seq).unwrap();
                at = Some(entries.partition_point(|e| compare(&e.key, e.seq, &key, seq).is_lt()));
            }
        }
        at = at.filter(|&i| i < entries.len());
        assert_eq!(current(&cursor).as_ref(), at.map(|i| &entries[i]));
    }
}

fn check_lookups(table: &Table, entries: &[Entry], rng: &mut fastrand::Rng, filtered: bool) {
    let cost = Cost::default();
    let lookup = |key: &[u8]| {
        let found = table.get(key, &cost).unwrap();
        let first = entries.iter().find(|e| e.key == key);
        assert_eq!(
            found,
            first.map(|e| Found {
                seq: e.seq,
                kind: e.kind,
                value: Slice::from(&*e.value)
            })
        );
        let may = table.may_contain(key, &cost).unwrap();
        assert!(may || first.is_none());
    };
    for entry in entries {
        lookup(&entry.key);
    }
    assert_eq!(
        (cost.filters_negative.get(), cost.filters_false.get()),
        (0, 0)
    );
    assert_eq!(cost.filters_probed.get() > 0, filtered);
    for _ in 0..200 {
        let mut key = entries[rng.usize(..entries.len())].key.clone();
        match rng.u8(..4) {
            0 => key = any_key(rng),
            1 => drop(key.pop()),
            _ => key.push(rng.u8(..)),
        }
        lookup(&key);
    }
    lookup(b"");
    lookup(&[0xff; 20]);
}

fn check_extents(table: &Table, entries: &[Entry], rng: &mut fastrand::Rng) {
    let cost = Cost::default();
    let count = |lo: &[u8], hi: Option<&[u8]>| {
        let (from, to) = table.spanned(lo, hi, &cost).unwrap();
        to.saturating_sub(from)
    };
    assert_eq!(count(b"", None), entries.len() as u64);
    for _ in 0..60 {
        let mut bound = || any_key(rng);
        let (lo, hi) = (bound(), bound());
        let held = entries.iter().filter(|e| e.key >= lo && e.key < hi).count() as u64;
        let spanned = count(&lo, Some(&hi));
        assert!(spanned >= held && spanned <= entries.len() as u64);
        let extent = table.extent(&lo, Some(&hi), &cost).unwrap();
        let edges: u64 = extent.edges.iter().map(|edge| edge.amount.entries).sum();
        assert!(
            extent.whole.entries <= held + 2 && held <= extent.whole.entries + edges,
            "{held} in {extent:?}"
        );
        assert_eq!(extent.whole.entries + edges, spanned, "{extent:?}");
        let from = entries.iter().filter(|e| e.key >= lo).count() as u64;
        assert!(count(&lo, None) >= from);
    }
}

/// The blocks of several ranges: each once, in order, all that have something of a range, and few
/// others.
fn check_ranges(table: &Table, entries: &[Entry], rng: &mut fastrand::Rng) {
    let cost = Cost::default();
    for _ in 0..20 {
        let mut keys: Vec<Vec<u8>> = (0..2 * rng.usize(1..6)).map(|_| any_key(rng)).collect();
        keys.sort();
        let open_end = rng.u8(..4) == 0;
        let last = keys.len() / 2 - 1;
        let ranges: Vec<KeyRange<'_>> = (keys.chunks_exact(2).enumerate())
            .map(|(at, pair)| {
                let hi = (!open_end || at < last).then_some(pair[1].as_slice());
                (pair[0].as_slice(), hi)
            })
            .collect();
        let inside = |key: &[u8]| {
            let holds = |(lo, hi): &KeyRange<'_>| *lo <= key && hi.is_none_or(|hi| key < hi);
            ranges.iter().any(holds)
        };
        let (mut hints, mut next) = (Vec::new(), 0);
        for (lo, hi) in &ranges {
            let partitions = table.partitions_between(lo, *hi);
            for p in partitions.start.max(next)..partitions.end {
                table.blocks_between(p, &ranges, &cost, &mut hints).unwrap();
            }
            next = next.max(partitions.end);
        }
        let ascend = |pair: &[BlockHint]| {
            (pair[0].partition, pair[0].block) < (pair[1].partition, pair[1].block)
        };
        assert!(hints.windows(2).all(ascend));
        let (mut found, mut without) = (Vec::new(), 0);
        for hint in &hints {
            let mut block = table.block_entries(hint, &cost).unwrap();
            let before = found.len();
            while block.advance().unwrap() {
                assert!(block.seq() >= hint.min_seq && block.seq() <= hint.max_seq);
                if inside(block.key()) {
                    found.push((block.key().to_vec(), block.seq()));
                }
            }
            without += usize::from(found.len() == before);
        }
        let expected = entries.iter().filter(|e| inside(&e.key));
        let expected: Vec<_> = expected.map(|e| (e.key.clone(), e.seq)).collect();
        assert_eq!(found, expected);
        assert!(without <= 2 * ranges.len(), "{without} of {ranges:?}");
    }
}

fn check_blocks(table: &Table, entries: &[Entry]) {
    let (cost, mut hints) = (Cost::default(), Vec::new());
    for p in 0..table.partitions() {
        let before = hints.len();
        table.all_blocks(p, &cost, &mut hints).unwrap();
        let (min, max) = table.partition_bounds(p);
        let hints = &hints[before..];
        assert!(
            hints
                .iter()
                .all(|h| h.min_seq >= min && h.max_seq <= max && h.partition == p)
        );
    }
    let mut expected = entries.iter();
    for hint in &hints {
        let mut block = table.block_entries(hint, &cost).unwrap();
        while block.advance().unwrap() {
            assert!(block.seq() >= hint.min_seq && block.seq() <= hint.max_seq);
            let found = entry(block.key(), block.seq(), block.kind(), block.value());
            assert_eq!(*block.value_slice(), found.value);
            assert_eq!(Some(&found), expected.next());
        }
    }
    assert_eq!(expected.next(), None);
    let beyond = BlockHint {
        partition: table.partitions(),
        block: 0,
        min_seq: 0,
        max_seq: 0,
    };
    assert!(matches!(
        table.block_entries(&beyond, &cost),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn extreme_entries() {
    let options = TableOptions::default();
    let chain: Vec<_> = (0..5000)
        .rev()
        .map(|seq| entry(b"k", seq, Kind::Operand, &[1; 100]))
        .collect();
    let giants: Vec<_> = (0..3u8)
        .flat_map(|i| {
            let noise: Vec<u8> = fastrand::Rng::with_seed(1)
                .u64(..)
                .to_le_bytes()
                .repeat(1 << 17);
            [
                entry(&[i, 0], 1, Kind::Put, b"small"),
                entry(&[i, 1], 1, Kind::Put, &noise),
            ]
        })
        .collect();
    let keys = [b'a', b'b'].map(|b| entry(&vec![b; MAX_KEY_LEN], 7, Kind::Put, b""));
    let one = [entry(b"", 0, Kind::Delete, b"")];
    for entries in [&chain[..], &giants[..], &keys[..], &one[..]] {
        let files = Files::default();
        let meta = build(&files, &options, entries);
        let table = open(&files, &meta, 1 << 20).unwrap();
        assert_eq!(table.verify(&mut |e| panic!("{e}")), entries.len() as u64);
        let mut rng = fastrand::Rng::with_seed(5);
        check_moves(&table, entries, &mut rng);
        check_lookups(&table, entries, &mut rng, true);
        check_blocks(&table, entries);
    }
}

#[test]
fn an_empty_table() {
    let files = Files::default();
    let meta = build(&files, &TableOptions::default(), &[]);
    let table = open(&files, &meta, 0).unwrap();
    assert_eq!(table.get(b"a", &Cost::default()).unwrap(), None);
    assert_eq!(table.spanned(b"", None, &Cost::default()).unwrap(), (0, 0));
    let mut cursor = table.cursor(ReadOptions::default());
    cursor.seek_first().unwrap();
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    assert!(!cursor.valid());
    cursor.seek(b"", MAX_SEQ).unwrap();
    assert!(!cursor.valid());
    assert_eq!(table.verify(&mut |e| panic!("{e}")), 0);
}

#[test]
fn limits_are_refused() {
    let files = Files::default();
    let options = TableOptions::default();
    let mut builder = TableBuilder::begin(&files, &path(), NUMBER, &options);
    let long = vec![0; MAX_KEY_LEN + 1];
    assert!(matches!(
        builder.add(&long, 0, Kind::Put, b""),
        Err(Error::Limit { .. })
    ));
    assert!(matches!(
        builder.add(b"", MAX_SEQ + 1, Kind::Put, b""),
        Err(Error::Limit { .. })
    ));
}

fn numbered(count: u32) -> Vec<Entry> {
    (0..count)
        .map(|i| {
            entry(
                format!("key{i:06}").as_bytes(),
                u64::from(i),
                Kind::Put,
                &[7; 200],
            )
        })
        .collect()
}

#[test]
fn costs_are_what_the_design_says() {
    let files = Files::default();
    let entries = numbered(20_000);
    let options = TableOptions {
        compress: false,
        ..TableOptions::default()
    };
    let meta = build(&files, &options, &entries);
    let table = open(&files, &meta, 64 << 20).unwrap();
    assert!(table.partitions() > 10);

    let cost = Cost::default();
    assert!(table.get(&entries[9000].key, &cost).unwrap().is_some());
    // The index was read together with the filter.
    assert_eq!((cost.blocks_read.get(), cost.blocks_cached.get()), (3, 1));
    assert!(table.get(&entries[9000].key, &cost).unwrap().is_some());
    assert_eq!((cost.blocks_read.get(), cost.blocks_cached.get()), (3, 4));

    // Ascending seeks read each data block and each index block once.
    let mut cursor = table.cursor(ReadOptions::default());
    for entry in entries.iter().step_by(3) {
        cursor.seek(&entry.key, MAX_SEQ).unwrap();
        assert_eq!(cursor.key(), entry.key);
    }
    let (cost, mut blocks) = (Cost::default(), Vec::new());
    (0..table.partitions()).for_each(|p| table.all_blocks(p, &cost, &mut blocks).unwrap());
    let touched = cursor.cost().blocks_read.get() + cursor.cost().blocks_cached.get();
    assert_eq!(touched, (blocks.len() + table.partitions()) as u64);

    // For absent keys few data blocks are read.
    let cost = Cost::default();
    for i in 0..20_000 {
        assert!(
            table
                .get(format!("key{i:06}x").as_bytes(), &cost)
                .unwrap()
                .is_none()
        );
    }
    assert!(
        cost.filters_false.get() < 400,
        "{} false positives",
        cost.filters_false.get()
    );
    let answered = cost.filters_negative.get() + cost.filters_false.get();
    assert_eq!(answered, cost.filters_probed.get());
}

#[test]
fn metadata_round_trips() {
    let meta = TableMeta {
        number: 1,
        size: 2,
        entries: 3,
        deletes: 4,
        operands: 5,
        smallest: b"a".to_vec(),
        largest: b"b".to_vec(),
        min_seq: 6,
        max_seq: MAX_SEQ,
        zones: vec![
            (7, None),
            (u32::MAX, Some((b"x".to_vec(), None))),
            (9, Some((Vec::new(), Some(b"y".to_vec())))),
        ],
        bounds: None,
        expiry: None,
    };
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    let mut reader = Reader::new(&bytes);
    assert_eq!(TableMeta::decode(&mut reader), Some(meta));
    assert!(reader.is_empty());
    for len in 0..bytes.len() {
        assert_eq!(TableMeta::decode(&mut Reader::new(&bytes[..len])), None);
    }
}
