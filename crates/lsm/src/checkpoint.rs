//! Online checkpoints: a copy of the store as of one snapshot, made of hard links where the file
//! system supports them, while reads and writes continue.
//!
//! A copy is consistent by construction. It consists of one snapshot: the tables of its version,
//! and its memtables up to its sequence number, which are written to new tables of the copy.
//! Everything in a version (bits, watermarks, definitions, tables) refers to writes that were
//! visible when it was installed, and the snapshot sees all of those. So nothing in the copy refers
//! to a write that it lacks, whatever the store does meanwhile; the copy waits for no one and
//! changes nothing in the store. The sequence numbers of the copy continue from the snapshot's.
//! Named snapshots are a part of the version and are copied with it. The consumers of the log are
//! copied with their places, and with the writes that they have not read, as a retained segment of
//! the copy.
//!
//! A read-only group beside the process that writes makes one in the same way. It keeps the files
//! of its tables open: a file whose name the writer has removed meanwhile is copied from there.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::folder::{LOCK, create_folder, lock_folder};
use crate::fs::Fs;
use crate::group::Group;
use crate::options::LogMode;
use crate::read::Snapshot;
use crate::stop::Stop;
use crate::version::{ConsumerPlaces, Current, Manifest, Seal, TableSource, log_path, table_path};
use crate::wal::{LogFormat, LogWriter};

impl Group {
    /// Creates an independent store in `dest` (which must not exist, or be empty) that holds
    /// everything written before the call: exactly what one snapshot sees, with its sequence
    /// numbers. Tables are immutable and are linked; the contents of the memtables are written to
    /// new tables. On failure everything made in `dest` is removed. Of two checkpoints into one
    /// folder at the same time one fails, and leaves the other's. A read-only group copies what
    /// it sees: see [`Group::refresh`].
    pub fn checkpoint(&self, dest: &Path) -> Result<()> {
        self.checkpoint_until(dest, None)
    }

    /// As [`Group::checkpoint`], until `stop` stops it: checked before each table, because a table
    /// that cannot be linked is copied.
    ///
    /// # Errors
    /// Those of [`Group::checkpoint`], and [`Error::Cancelled`].
    pub fn checkpoint_until(&self, dest: &Path, stop: Option<&Stop>) -> Result<()> {
        let fs = &*self.source().fs;
        // As of the call. It keeps the tables from being removed during linking.
        let snapshot = self.snapshot();
        if fs.exists(dest) {
            refuse_files(fs, dest)?;
        }
        create_folder(fs, dest)?;
        // Another checkpoint may have begun there meanwhile, or ended. Nothing of it is removed.
        let lock = lock_folder(fs, dest)?;
        refuse_files(fs, dest)?;
        let result = self.copy_to(dest, &snapshot, stop);
        if result.is_err() {
            // `CURRENT` is removed first: the rest of a failed copy is then no store.
            let _ = fs.remove(&dest.join("CURRENT"));
            for name in fs.list(dest).unwrap_or_default() {
                let _ = fs.remove(&dest.join(name));
            }
            ConsumerPlaces::new(fs, dest).clear();
        }
        drop(lock);
        result
    }

    fn copy_to(&self, dest: &Path, snapshot: &Snapshot, stop: Option<&Stop>) -> Result<()> {
        let check = || stop.map_or(Ok(()), Stop::check);
        let fs: &dyn Fs = &*self.source().fs;
        let version = snapshot.version();
        let (mut next_file, next_tree) = self.internals().next_numbers();
        for table in version.all_tables() {
            next_file = next_file.max(table.meta().number.max(table.file().number()) + 1);
        }
        let tables = version.all_tables();
        let files = tables.map(|table| (table.file().number(), table));
        for (number, table) in files.collect::<BTreeMap<_, _>>() {
            check()?;
            let to = table_path(dest, number);
            match fs.link(&table.path(), &to) {
                Err(e) if e.kind() == ErrorKind::NotFound && self.is_reader() => {
                    table.file().copy_to(&to, stop)?;
                }
                linked => linked.map_err(|e| Error::io(&to, "link", e))?,
            }
        }
        check()?;
        let next = AtomicU64::new(next_file);
        let new_file = || next.fetch_add(1, Ordering::Relaxed);
        let mut edit = version.snapshot();
        let copy = TableSource {
            dir: dest.to_path_buf(),
            ..self.source().clone()
        };
        self.internals()
            .copy_memtables(snapshot, &copy, &new_file, &mut edit)?;
        // The copy's history diverges here.
        let order = self.copy_consumers(snapshot, &copy, new_file(), stop)?;
        let number = new_file();
        let create =
            || LogWriter::create(fs, &log_path(dest, number), LogFormat::WAL, number, None);
        let log = match self.options().log {
            LogMode::Own => Some(create()?),
            LogMode::External => None,
        };
        log.as_ref().map_or(Ok(()), |log| log.sync())?;
        let manifest = new_file();
        edit.external_log = log.is_none();
        edit.log = Some(number);
        edit.next_file = Some(next.load(Ordering::Relaxed));
        edit.next_tree = Some(next_tree);
        edit.last_seq = Some(snapshot.seq());
        edit.time = (snapshot.time() > 0).then(|| self.internals().kept_time());
        edit.order = Some(order);
        let manifest = Manifest::create(fs, dest, manifest, &edit)?;
        manifest.sync()?;
        let seal = Seal {
            manifest_len: manifest.len(),
            logs: log.iter().map(|log| (number, log.len())).collect(),
        };
        Current {
            manifest: manifest.number(),
            seal: Some(seal),
        }
        .write(fs, dest)
    }
}

/// Refuses a folder with files. The lock file may be there: it has no contents.
fn refuse_files(fs: &dyn Fs, dest: &Path) -> Result<()> {
    let names = fs.list(dest).map_err(|e| Error::io(dest, "list", e))?;
    if names.iter().all(|name| name.as_os_str() == LOCK) {
        Ok(())
    } else {
        Err(Error::Invalid(format!("{}: not empty", dest.display())))
    }
}
