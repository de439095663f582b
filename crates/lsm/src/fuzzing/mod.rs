//! Entry points for fuzzing: each takes arbitrary bytes and feeds them to one decoder, or to one
//! structure and a model of it. None may panic, hang or allocate without bound; each asserts the
//! invariants of what it decodes.
//!
//! Only with the feature `fuzzing`, and in tests, which run each briefly with [`campaign`]. The
//! targets for `cargo fuzz` are in `fuzz/`.

#![allow(
    clippy::unwrap_used,
    reason = "a target says what must hold by failing"
)]

mod campaign;
mod fingerprints;
mod memtable;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

pub use crate::table::fuzzing::table;
pub use campaign::campaign;
pub use fingerprints::fingerprints;
pub use memtable::memtable;

use crate::batch::{Batch, decode};
use crate::cache::BlockCache;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{MAX_SEQ, seq_key};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::group::Group;
use crate::obsolete::{self, SeqSet};
use crate::options::{Durability, Options};
use crate::version::{ConsumerPlace, Current, Edit, PlainTrees, TableSource, TreeOptions, Version};
use crate::wal::{LogFormat, LogWriter, Record, replay, reseal};
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

/// A whole store: the first part of the bytes (up to a `|`) as a manifest record and the rest as a
/// log record; opened, read, written to, and opened again.
pub fn store(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'|');
    let (manifest, log) = data.split_at(at.unwrap_or(data.len()));
    let (fs, dir) = (Memory::new(), Path::new("/fuzz"));
    fs.create_dir(dir).unwrap();
    let current = Current {
        manifest: 1,
        seal: None,
    };
    current.write(&fs, dir).unwrap();
    let (log_name, wal) = (dir.join("000002.log"), LogFormat::WAL);
    for (path, kind, payload, number) in [
        (
            dir.join("MANIFEST-000001"),
            LogFormat::MANIFEST,
            manifest,
            1,
        ),
        (log_name, wal, log.get(1..).unwrap_or_default(), 2),
    ] {
        let file = LogWriter::create(&fs, &path, kind, number, None).unwrap();
        if !payload.is_empty() {
            file.append(&[payload]).unwrap();
        }
    }
    let options = Options {
        fs: Arc::new(fs),
        background: false,
        memory_budget: 1 << 20,
        ..Options::default()
    };
    for _ in 0..2 {
        if let Err(error) = use_store(dir, &options) {
            assert!(typed(&error), "{error}");
        }
    }
}

fn use_store(dir: &Path, options: &Options) -> Result<()> {
    let group = Group::open(dir, options.clone(), Arc::new(PlainTrees), false)?;
    let snapshot = group.snapshot();
    let mut batch = Batch::new();
    for tree in snapshot.version().trees.keys() {
        let mut cursor = snapshot.entries(*tree, 0);
        let mut scan = || {
            cursor.seek_first()?;
            while cursor.valid() {
                cursor.next()?;
            }
            Ok(())
        };
        let scanned = scan();
        assert!(scanned.as_ref().is_ok() || scanned.is_err_and(|e| typed(&e)));
        batch.put(*tree, b"key", b"value")?;
    }
    if !batch.is_empty() {
        group.write(&mut batch, Durability::Sync)?;
        let tree = *snapshot.version().trees.keys().next().unwrap();
        let found = group.snapshot().get(tree, b"key", &Cost::default())?;
        assert_eq!(&*found.unwrap().value, b"value");
        group.flush()?;
    }
    group.close()
}

/// True for errors that the contents of a store's files may cause.
fn typed(error: &Error) -> bool {
    !matches!(error, Error::Locked { .. } | Error::NoStore { .. })
}
