//! A whole store.

use std::path::Path;
use std::sync::Arc;

use crate::batch::Batch;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::group::Group;
use crate::options::{Durability, Options};
use crate::version::{Current, PlainTrees};
use crate::wal::{LogFormat, LogWriter};
use esker_sim::memory::Memory;

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
