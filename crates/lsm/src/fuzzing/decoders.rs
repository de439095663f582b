//! Decoders of single files and records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::batch::decode;
use crate::cache::BlockCache;
use crate::entry::{MAX_SEQ, seq_key};
use crate::obsolete::{self, SeqSet};
use crate::version::{ConsumerPlace, Current, Edit, TableSource, TreeOptions, Version};
use crate::wal::{LogFormat, Record, replay, reseal};
use esker_sim::memory::Memory;

/// A log record's payload.
pub fn batch(data: &[u8]) {
    let mut visited = 0;
    let last = decode(data, |operation| {
        visited += 1;
        assert!(operation.seq <= MAX_SEQ);
        assert!(operation.key.len() + operation.value.len() <= data.len());
    });
    assert!(visited <= data.len());
    assert!(last.is_none_or(|last| last <= MAX_SEQ));
}

/// A manifest record's payload, and the version that it produces.
pub fn edit(data: &[u8]) {
    let Some(edit) = Edit::decode(data) else {
        return;
    };
    // Numbers have several encodings; the encoder writes the shortest.
    assert_eq!(Edit::decode(&edit.encode()).unwrap(), edit);
    let source = TableSource {
        fs: Arc::new(Memory::new()),
        dir: PathBuf::from("/fuzz"),
        cache: Arc::new(BlockCache::new(0)),
        mapped: false,
    };
    let options = |_: &str, _: &[u8]| Ok(TreeOptions::default());
    let path = Path::new("/fuzz/MANIFEST-000001");
    if let Ok((version, _)) = Version::default().apply(&edit, &source, &options, path) {
        let again = Version::default().apply(&version.snapshot(), &source, &options, path);
        assert_eq!(again.unwrap().0.snapshot(), version.snapshot());
    }
}

/// An entry of a bitmap tree: a chunk of the obsolete set, with the first eight bytes as its key,
/// and with a matching key.
pub fn obsolete(data: &[u8]) {
    let (key, value) = data.split_at(data.len().min(8));
    for key in [key, &seq_key(3 << 16)] {
        let mut set = SeqSet::new();
        if obsolete::decode(key, value, &mut set).is_err() {
            continue;
        }
        assert!(!set.is_empty() && set.last() <= Some(MAX_SEQ));
        assert_eq!(set.iter().count() as u64, set.len());
        let mut again = SeqSet::new();
        obsolete::encode(&set, &mut |key, value| {
            obsolete::decode(key, value, &mut again)
        })
        .unwrap();
        assert_eq!(again, set);
        let mut more = set.clone();
        more.extend([0, 3 << 16 | 77, MAX_SEQ]);
        more.shrink();
        assert!(set.iter().all(|seq| more.contains(seq)));
        more.remove_all(&set);
        assert!(set.iter().all(|seq| !more.contains(seq)));
    }
}

/// The file `CURRENT`, unchanged and with its checksum corrected.
pub fn current(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&xxh3_64(data).to_le_bytes());
    for bytes in [data, &sealed] {
        let fs = Memory::new();
        let dir = Path::new("/fuzz");
        fs.write(&dir.join("CURRENT"), bytes);
        match Current::read(&fs, dir) {
            Ok(current) => {
                current.write(&fs, dir).unwrap();
                assert_eq!(Current::read(&fs, dir).unwrap(), current);
            }
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
    }
}

/// The place of a consumer, unchanged and with its checksum corrected.
pub fn place(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&xxh3_64(data).to_le_bytes());
    let path = Path::new("/fuzz/place");
    for bytes in [data, &sealed] {
        match ConsumerPlace::decode(bytes, path) {
            Ok(place) => {
                let again = ConsumerPlace::decode(&place.encode(), path).unwrap();
                assert_eq!(again, place);
            }
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
    }
}

/// A log, unchanged and with the checksums of its header and records corrected.
pub fn log(data: &[u8]) {
    let mut resealed = data.to_vec();
    reseal(&mut resealed, 1);
    let path = Path::new("/fuzz/000001.log");
    for bytes in [data, &resealed] {
        let fs = Memory::new();
        fs.write(path, bytes);
        for (kind, sealed) in [
            (LogFormat::WAL, None),
            (LogFormat::WAL, Some(bytes.len() as u64)),
            (LogFormat::MANIFEST, None),
        ] {
            let mut end = 0;
            let replayed = replay(&fs, path, kind, 1, sealed, &mut |offset, record| {
                assert!(offset >= end);
                end = offset + 1;
                if let Record::Data { payload, .. } = record {
                    end = offset + payload.len() as u64;
                    if kind == LogFormat::WAL {
                        batch(payload);
                    }
                }
                Ok(())
            });
            match replayed {
                Ok(replayed) => assert!(replayed.end <= bytes.len() as u64),
                Err(error) => assert!(error.is_damage(), "{error}"),
            }
        }
    }
}
