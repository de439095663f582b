//! Fuzzing of tables: changes the contents of a valid table's blocks and seals them again, so that
//! the parsers behind the checksums are reached.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a target says what must hold by failing"
)]

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::xxh3_64;

use super::digest::{DigestPlace, DigestSource};
use super::format::{FOOTER_LEN, Footer, Handle, checksum, expand, unseal};
use super::index::{Index, Top};
use super::samples::Samples;
use super::{ReadOptions, Table, TableBuilder, TableMeta, TableOptions};
use crate::attributes::{Extractor, Summary};
use crate::cache::BlockCache;
use crate::coding::Reader;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ};
use crate::error::{Error, Result};
use crate::synopsis::ValueRange;
use esker_sim::memory::Memory;

const NUMBER: u64 = 7;
const PATH: &str = "/fuzz/000007.tbl";

/// A valid table, and where its blocks are.
struct Sample {
    bytes: Vec<u8>,
    handles: Vec<Handle>,
    properties: Handle,
}

/// The last byte of the value is an attribute, twice: with filters and with fingerprints.
struct LastByte;

impl Extractor for LastByte {
    fn ids(&self) -> &[u32] {
        &[4, 9]
    }

    fn summary(&self, slot: usize) -> Summary {
        [Summary::Filters, Summary::Fingerprints][slot]
    }

    fn extract(&self, _: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        if let Some(last) = value.last() {
            emit(0, &[*last]);
            emit(1, &[*last]);
        }
    }
}

/// A plain table, a compressed one, and one with attributes and more versions.
fn samples() -> &'static [Sample; 3] {
    static SAMPLES: OnceLock<[Sample; 3]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        [
            sample(false, false),
            sample(true, false),
            sample(false, true),
        ]
    })
}

fn sample(compress: bool, attributes: bool) -> Sample {
    let options = TableOptions {
        block_size: 200,
        compress,
        partition_blocks: 3,
        extractor: attributes.then(|| Arc::new(LastByte) as Arc<dyn Extractor>),
        digest: compress.then(|| DigestSource::Inherited(Arc::new(b"a digest".repeat(9)))),
        ..TableOptions::default()
    };
    let fs = Memory::new();
    fs.write(Path::new(PATH), &[]);
    let mut builder = TableBuilder::begin(&fs, Path::new(PATH), NUMBER, &options);
    for i in 0..60_u64 {
        let key = format!("key{:03}", i / 2 * 7);
        let kind = [Kind::Put, Kind::Operand, Kind::Put, Kind::Delete][i as usize % 4];
        let value = format!("value {} ", i % 5).repeat(i as usize % 3);
        builder
            .add(key.as_bytes(), 900 - i, kind, value.as_bytes())
            .unwrap();
    }
    builder.finish().unwrap();
    let bytes = fs.read(Path::new(PATH)).unwrap();

    let at = bytes.len() - FOOTER_LEN;
    let footer = bytes[at..].first_chunk().unwrap();
    let footer = Footer::decode(footer, Path::new(PATH), NUMBER, at as u64).unwrap();
    let mut handles = vec![footer.top, footer.properties];
    let top = Top::decode(&payload(&bytes, footer.top)).unwrap();
    for p in 0..top.len() {
        let part = top.get(p).unwrap();
        handles.extend([part.index, part.filter, part.synopsis]);
        let index = payload(&bytes, part.index);
        let index = Index::parse(&index).unwrap();
        handles.extend((0..index.len()).map(|i| index.entry(i).unwrap().handle));
    }
    for map in top.maps() {
        handles.extend(map.pages.iter().map(|page| page.handle));
    }
    let properties = payload(&bytes, footer.properties);
    let mut reader = Reader::new(&properties);
    let meta = TableMeta::decode(&mut reader).unwrap();
    for _ in 0..3 {
        reader.varint().unwrap();
    }
    if compress {
        handles.push(DigestPlace::decode(&mut reader).unwrap().handle);
    }
    let samples = Samples::decode(&mut reader, meta.zones.len()).unwrap();
    assert_eq!(samples.handles().count(), meta.zones.len());
    handles.extend(samples.handles());
    Sample {
        bytes,
        handles,
        properties: footer.properties,
    }
}

fn payload(file: &[u8], handle: Handle) -> Vec<u8> {
    let at = handle.offset as usize;
    let sealed = &file[at..at + handle.sealed_len()];
    let packing = unseal(sealed, handle, NUMBER).unwrap();
    let mut out = Vec::new();
    expand(sealed, handle, packing, &mut out).unwrap();
    out
}

/// Decodes a table. The first byte selects a sample, or means that the rest is a file as it is.
/// Otherwise the rest are changes, four bytes each: in the block given by the first, the byte given
/// by the next two becomes the fourth. All checksums are corrected, and every read of the table is
/// made.
pub fn table(data: &[u8]) {
    let Some((pick, changes)) = data.split_first() else {
        return;
    };
    let Some(sample) = samples().get(usize::from(*pick) % 4) else {
        let meta = TableMeta {
            number: NUMBER,
            size: changes.len() as u64,
            ..TableMeta::default()
        };
        read_all(changes, meta);
        return;
    };
    let mut file = sample.bytes.clone();
    for change in changes.as_chunks::<4>().0 {
        let [which, a, b, value] = *change;
        let place = usize::from(u16::from_le_bytes([a, b]));
        if which == u8::MAX {
            let at = file.len() - FOOTER_LEN + place % FOOTER_LEN;
            file[at] = value;
        } else {
            let handle = sample.handles[usize::from(which) % sample.handles.len()];
            let at = handle.offset as usize + place % (handle.stored as usize + 1);
            file[at] = value;
        }
    }
    for handle in &sample.handles {
        let at = handle.offset as usize;
        let end = at + handle.sealed_len() - 4;
        let sum = checksum(&file[at..end], NUMBER, handle.offset);
        file[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    }
    let footer = file.len() - FOOTER_LEN;
    let sum = xxh3_64(&file[footer..footer + FOOTER_LEN - 16]);
    file[footer + FOOTER_LEN - 16..][..8].copy_from_slice(&sum.to_le_bytes());

    // The manifest would hold the changed properties.
    let (at, handle) = (sample.properties.offset as usize, sample.properties);
    let sealed = &file[at..at + handle.sealed_len()];
    let mut properties = Vec::new();
    let meta = unseal(sealed, handle, NUMBER)
        .and_then(|packing| expand(sealed, handle, packing, &mut properties))
        .ok()
        .and_then(|()| TableMeta::decode(&mut Reader::new(&properties)));
    if let Some(meta) = meta {
        let size = file.len() as u64;
        read_all(&file, TableMeta { size, ..meta });
    }
}

/// Every read succeeds, or fails as damage.
fn read_all(file: &[u8], meta: TableMeta) {
    let fs = Memory::new();
    fs.write(Path::new(PATH), file);
    let cache = Arc::new(BlockCache::new(1 << 20));
    let opened = Table::open(&fs, PATH.into(), meta, cache);
    let Some(table) = damage_or(opened) else {
        return;
    };
    let table = Arc::new(table);
    let cost = Cost::default();
    for key in [&b""[..], b"key", b"key014", b"key0145", b"key203", b"zz"] {
        damage_or(table.get(key, &cost));
        damage_or(table.may_contain(key, &cost));
        damage_or(table.spanned(key, Some(b"key1"), &cost));
        damage_or(table.extent(key, Some(b"key1"), &cost));
        damage_or(table.spanned(b"", Some(key), &cost));
    }
    for readahead in [0, 300] {
        damage_or(walk(&table, file.len(), readahead));
    }
    let range = ValueRange {
        lo: Bound::Included(b" ".to_vec()),
        hi: Bound::Unbounded,
        boxes: None,
    };
    for range in [range, ValueRange::only(b" ")] {
        for slot in 0..2 {
            let mut hints = Vec::new();
            damage_or(table.mapped_blocks(slot, &range, &cost, &mut hints));
            damage_or(table.sampled(slot, &cost, &|value| range.contains(value)));
            assert!(hints.len() <= file.len() * 16);
        }
        for p in 0..table.partitions().min(100) {
            for slot in 0..2 {
                let mut hints = Vec::new();
                table.partition_may_match(p, slot, &range);
                damage_or(table.matching_blocks(p, slot, &range, &cost, &mut hints));
                damage_or(table.all_blocks(p, &cost, &mut hints));
                for hint in hints.iter().take(100) {
                    let entries = table.block_entries(hint, &cost);
                    let Some(mut entries) = entries.ok() else {
                        continue;
                    };
                    let mut left = file.len() * 255;
                    while damage_or(entries.advance()) == Some(true) {
                        left = left.checked_sub(1).unwrap();
                    }
                }
            }
        }
    }
    damage_or(table.digest(&cost));
    let mut reported = 0;
    table.verify_with(Some(&LastByte), &mut |error| {
        damage_or::<()>(Err(error));
        reported += 1;
    });
}

/// Moves a cursor through the table in every way; terminates, because each entry takes bytes of the
/// file.
fn walk(table: &Arc<Table>, file: usize, readahead: usize) -> Result<()> {
    let mut cursor = table.cursor(ReadOptions {
        fill_cache: true,
        readahead,
    });
    let most = file * 255;
    let mut steps = 0;
    cursor.seek_first()?;
    while cursor.valid() {
        steps += 1;
        assert!(steps <= most);
        let _ = (
            cursor.key().len(),
            cursor.value().len(),
            cursor.value_slice(),
        );
        cursor.next()?;
    }
    cursor.seek_last()?;
    for _ in 0..most {
        if !cursor.valid() {
            break;
        }
        cursor.prev()?;
    }
    for key in [&b""[..], b"key014", b"key1", b"zz"] {
        cursor.seek(key, MAX_SEQ)?;
        if cursor.valid() {
            cursor.prev()?;
        }
        cursor.seek(key, 870)?;
        if cursor.valid() {
            cursor.next()?;
        }
    }
    Ok(())
}

fn damage_or<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(
                error.is_damage() || matches!(error, Error::Io { .. }),
                "{error}"
            );
            None
        }
    }
}
