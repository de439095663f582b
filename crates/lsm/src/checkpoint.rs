//! Online checkpoints: a copy of the store as of now, made of hard links where the file system has
//! them, while reads and writes go on.

use std::path::Path;

use crate::error::{Error, Result};
use crate::group::Group;
use crate::version::{Current, Manifest, Seal, log_path, table_path};
use crate::wal::{LogKind, LogWriter};

/// Number of the segment and the manifest of a checkpoint, above those of all its tables.
const NUMBERS: u64 = 2;

impl Group {
    /// Makes a store of its own in `dest` (which must not exist, or be empty) that holds everything
    /// written before the call. Tables are immutable, so links to them are enough.
    pub fn checkpoint(&self, dest: &Path) -> Result<()> {
        let fs = &*self.source().fs;
        if fs.exists(dest)
            && !fs
                .list(dest)
                .map_err(|e| Error::io(dest, "list", e))?
                .is_empty()
        {
            return Err(Error::Invalid(format!("{}: not empty", dest.display())));
        }
        fs.create_dir(dest)
            .map_err(|e| Error::io(dest, "create the folder", e))?;
        self.flush()?;
        // The snapshot keeps the tables from being removed while they are linked.
        let snapshot = self.snapshot();
        let version = snapshot.version();
        let mut next = 1;
        let mut last_seq = 0;
        for table in version.tables() {
            let number = table.meta().number;
            let to = table_path(dest, number);
            fs.link(&table.path(), &to)
                .map_err(|e| Error::io(&to, "link", e))?;
            next = next.max(number + 1);
            last_seq = last_seq.max(table.component().max);
        }
        let log = LogWriter::create(fs, &log_path(dest, next), LogKind::Wal, next, None)?;
        log.sync()?;
        let mut edit = version.snapshot();
        edit.log = Some(next);
        edit.next_file = Some(next + NUMBERS);
        edit.next_tree = Some(self.internals().next_tree());
        edit.last_seq = Some(last_seq);
        let manifest = Manifest::create(fs, dest, next + 1, &edit)?;
        manifest.sync()?;
        let seal = Seal {
            manifest_len: manifest.len(),
            logs: vec![(next, log.len())],
        };
        Current {
            manifest: manifest.number(),
            seal: Some(seal),
        }
        .write(fs, dest)
    }
}
