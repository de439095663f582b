use super::super::block::{BlockBuilder, BlockCursor, Layout};
use super::super::filter;
use super::super::format::{HEADER_LEN, Handle, TRAILER_LEN, header};
use super::super::index::{Index, Top};
use super::*;
use xxhash_rust::xxh3::xxh3_64;

fn small() -> Vec<Entry> {
    let mut entries = Vec::new();
    for i in 0..12u64 {
        let key = format!("key{i:02}");
        for version in 0..[1, 2, 5][i as usize % 3] {
            let value = format!("value {i} {version}").repeat(version as usize);
            let kind = if i == 4 { Kind::Delete } else { Kind::Operand };
            entries.push(entry(key.as_bytes(), 100 - version, kind, value.as_bytes()));
        }
    }
    entries
}

fn small_options() -> TableOptions {
    TableOptions {
        block_size: 100,
        partition_blocks: 3,
        ..TableOptions::default()
    }
}

/// Makes all reads of the table, from the file and from a map of it: each is right or a typed
/// error. Returns whether all were right.
fn ask_everything(files: &Files, meta: &TableMeta, entries: &[Entry]) -> bool {
    let read = ask_everything_of(open(files, meta, 1 << 20), entries);
    let mapped = ask_everything_of(open_mapped(files, meta, 1 << 20), entries);
    assert_eq!(read, mapped);
    read
}

fn ask_everything_of(opened: Result<Arc<Table>>, entries: &[Entry]) -> bool {
    let table = match opened {
        Ok(table) => table,
        Err(e) => return !typed(&e),
    };
    let (cost, mut right) = (Cost::default(), true);
    for entry in entries {
        match table.get(&entry.key, &cost) {
            Ok(found) => {
                let first = entries.iter().find(|e| e.key == entry.key).unwrap();
                let found = found.expect("a key is lost silently");
                assert_eq!((found.seq, &*found.value), (first.seq, &*first.value));
            }
            Err(e) => right = !typed(&e),
        }
    }
    for readahead in [0, 300] {
        let mut cursor = table.cursor(ReadOptions {
            fill_cache: true,
            readahead,
        });
        let mut scan = || -> Result<()> {
            cursor.seek_first()?;
            for entry in entries {
                assert_eq!(current(&cursor).as_ref(), Some(entry));
                cursor.next()?;
            }
            assert!(!cursor.valid());
            cursor.seek_last()?;
            for entry in entries.iter().rev() {
                assert_eq!(current(&cursor).as_ref(), Some(entry));
                cursor.prev()?;
            }
            Ok(())
        };
        if let Err(e) = scan() {
            right = !typed(&e);
            assert!(!cursor.valid());
        }
    }
    let mut damage = 0;
    table.verify(&mut |e| damage += usize::from(typed(&e)));
    right && damage == 0
}

fn typed(e: &Error) -> bool {
    assert!(e.is_damage() && e.to_string().contains("42.table"), "{e}");
    true
}

#[test]
fn every_flipped_byte_is_noticed() {
    let (files, entries) = (Files::default(), small());
    let meta = build(&files, &small_options(), &entries);
    let file = Arc::clone(&files.0.lock()[&path()]);
    assert!(ask_everything(&files, &meta, &entries));
    for at in 0..meta.size as usize {
        for bits in [1, 0x80, 0xff] {
            file.lock()[at] ^= bits;
            assert!(
                !ask_everything(&files, &meta, &entries),
                "byte {at} may be anything"
            );
            file.lock()[at] ^= bits;
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let (files, entries) = (Files::default(), small());
    let meta = build(&files, &small_options(), &entries);
    let file = Arc::clone(&files.0.lock()[&path()]);
    let whole = file.lock().clone();
    for len in 0..whole.len() {
        *file.lock() = whole[..len].to_vec();
        // Even where the manifest has the same error as the file.
        for size in [meta.size, len as u64] {
            let meta = TableMeta {
                size,
                ..meta.clone()
            };
            assert!(typed(&open(&files, &meta, 0).err().unwrap()));
        }
    }
    *file.lock() = whole;
    let table = open(&files, &meta, 0).unwrap();
    file.lock().truncate(HEADER_LEN + 10);
    assert!(typed(&table.get(b"key00", &Cost::default()).unwrap_err()));
}

#[test]
fn a_stranger_is_refused() {
    let (files, entries) = (Files::default(), small());
    let meta = build(&files, &small_options(), &entries);
    for wrong in [
        TableMeta {
            number: 43,
            ..meta.clone()
        },
        TableMeta {
            entries: meta.entries + 1,
            ..meta.clone()
        },
        TableMeta {
            smallest: b"a".to_vec(),
            ..meta.clone()
        },
        TableMeta {
            max_seq: 9,
            ..meta.clone()
        },
        TableMeta {
            zones: vec![(1, None)],
            ..meta.clone()
        },
    ] {
        assert!(typed(&open(&files, &wrong, 0).err().unwrap()));
    }
    files.0.lock().clear();
    let missing = open(&files, &meta, 0).err().unwrap();
    assert!(
        matches!(&missing, Error::Io { op: "open", .. }),
        "{missing}"
    );
}

#[test]
fn a_newer_format_is_named() {
    let (files, entries) = (Files::default(), small());
    let meta = build(&files, &small_options(), &entries);
    let mut newer = header(NUMBER, 1);
    newer[8] = 3;
    let sum = xxh3_64(&newer[..HEADER_LEN - 8]).to_le_bytes();
    newer[HEADER_LEN - 8..].copy_from_slice(&sum);
    files.0.lock()[&path()].lock()[..HEADER_LEN].copy_from_slice(&newer);
    let error = open(&files, &meta, 0).err().unwrap();
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 3,
                supported: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn verify_reports_all_damage_and_continues() {
    let (files, entries) = (Files::default(), numbered(2000));
    let meta = build(&files, &TableOptions::default(), &entries);
    let table = open(&files, &meta, 0).unwrap();
    let file = Arc::clone(&files.0.lock()[&path()]);
    let mut cursor = table.cursor(ReadOptions::default());
    let first = Index::parse(
        &table
            .block(table.top().get(0).unwrap().index, false, &Cost::default())
            .unwrap(),
    )
    .map(|index| [0, 5, 9].map(|b| index.entry(b).unwrap().handle))
    .unwrap();
    for handle in first {
        file.lock()[handle.offset as usize + 3] ^= 1;
    }
    let mut damage = Vec::new();
    let counted = table.verify(&mut |e| damage.push(e));
    let offsets: Vec<u64> = damage
        .iter()
        .map(|e| match e {
            Error::Corruption { offset, .. } => *offset,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(offsets, first.map(|handle| handle.offset));
    assert!(counted > 1800 && counted < 2000, "{counted}");
    // After damage a cursor can be moved again.
    assert!(cursor.seek_first().is_err() && !cursor.valid());
    cursor.seek(&entries[1500].key, MAX_SEQ).unwrap();
    assert_eq!(cursor.key(), entries[1500].key);
}

#[test]
fn handles_are_checked_before_anything_is_allocated() {
    let size = 1000;
    let good = Handle {
        offset: 100,
        stored: 10,
        raw: 2000,
    };
    assert!(good.check(size).is_ok());
    for bad in [
        Handle { offset: 0, ..good },
        Handle {
            offset: u64::MAX,
            ..good
        },
        Handle {
            offset: size - 64 - 10 - TRAILER_LEN as u64 + 1,
            ..good
        },
        Handle {
            stored: u32::MAX,
            ..good
        },
        Handle { raw: 2615, ..good },
        Handle {
            offset: 100,
            stored: u32::MAX - 9,
            raw: u32::MAX,
        },
    ] {
        assert!(bad.check(size).is_err(), "{bad:?}");
    }
}

/// Blocks with a valid checksum and arbitrary contents.
#[test]
fn malformed_blocks_do_no_harm() {
    let seed = 17;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut builder = BlockBuilder::default();
    let mut before = Vec::new();
    for i in 0..40u8 {
        let key = [b'k', i / 10, i];
        builder.add(&before, &key, u64::from(i) * 7, Kind::Put, &[i; 5]);
        before = key.to_vec();
    }
    let good = builder.finish().to_vec();
    for round in 0..30_000 {
        let mut bytes = good.clone();
        for _ in 0..rng.usize(1..4) {
            let near_end = rng.bool();
            let at = if near_end {
                bytes.len() - 1 - rng.usize(..40)
            } else {
                rng.usize(..bytes.len())
            };
            bytes[at] = [rng.u8(..), rng.u8(..3), 0xff][round % 3];
        }
        bytes.truncate(bytes.len() - rng.usize(..3) * rng.usize(..50));
        if let Some(layout) = Layout::parse(&bytes) {
            layout.seek(&bytes, &[b'k', rng.u8(..5), rng.u8(..)], rng.u64(..400));
        }
        let mut cursor = BlockCursor::new();
        if cursor.load(Arc::new(bytes.clone())).is_some() {
            let mut steps = 0;
            let mut arrived = cursor.first();
            while arrived == Some(true) {
                assert!(cursor.value().len() <= bytes.len());
                arrived = cursor.next();
                steps += 1;
                assert!(steps <= bytes.len());
            }
            let mut arrived = cursor.last();
            for _ in 0..bytes.len() {
                if arrived == Some(true) {
                    arrived = cursor.prev();
                }
            }
        }
        if let Some(index) = Index::parse(&bytes) {
            for b in 0..index.len() {
                index.entry(b);
            }
            index.find(0, b"k", 0);
        }
        Top::decode(&bytes);
        filter::may_contain(&bytes, 99);
    }
}

#[test]
fn the_top_level_index_decodes_or_refuses() {
    let files = Files::default();
    let meta = build(&files, &small_options(), &small());
    let table = open(&files, &meta, 0).unwrap();
    let mut good = Vec::new();
    table.top().encode(&mut good);
    assert!(Top::decode(&good).is_some());
    for len in 0..good.len() {
        assert!(Top::decode(&good[..len]).is_none());
    }
    for at in 0..good.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            if let Some(top) = Top::decode(&bytes) {
                top.find(0, b"key05", 0);
                (0..top.len()).for_each(|p| assert!(top.zone(p, 0).is_none()));
            }
        }
    }
}
