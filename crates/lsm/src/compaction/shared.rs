//! Shared files: the small tables of one job in one file, created and synced once.
//!
//! A job that writes to eight trees or more (`Options::share_from`) puts tables of less than 256
//! KiB into one file, up to 8 MiB. With few trees each table has its own file, so that a damaged
//! file damages one tree only. A table keeps its own number, by which caches, checksums and the
//! manifest know it, and its bytes do not depend on its place in the file: offsets count from its
//! beginning (`extent.rs` of `esker-fs`).

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::fs::WriteFile;
use crate::version::{Edit, Place, TableSource};

/// Size at which a shared file is complete: its live rest is later moved in one step.
const FILE_LEN: u64 = 8 << 20;

/// Bytes buffered before they are appended to the file.
const APPEND_LEN: usize = 256 << 10;

/// The shared files of a job. Dropped before [`SharedFiles::finish`], it removes them.
pub(crate) struct SharedFiles<'a> {
    source: &'a TableSource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Files created, and the lengths of the complete ones.
    made: Vec<u64>,
    lens: BTreeMap<u64, u64>,
    failed: bool,
}

struct Open {
    number: u64,
    file: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    len: u64,
}

impl<'a> SharedFiles<'a> {
    pub(crate) fn new(source: &'a TableSource) -> SharedFiles<'a> {
        SharedFiles {
            source,
            state: Mutex::default(),
        }
    }

    /// Appends a table to a file; `next` allocates a file number where no file is open. The file's
    /// length is known when the job ends ([`SharedFiles::finish`]).
    pub(crate) fn add(&self, table: &[u8], next: &dyn Fn() -> u64) -> Result<Place> {
        let mut state = self.state.lock();
        let result = state.add(self.source, table, next);
        state.failed |= result.is_err();
        result
    }

    /// True when a write failed: no table in the files can be used.
    pub(crate) fn failed(&self) -> bool {
        self.state.lock().failed
    }

    /// Completes the last file, and records in `edit` the files and their lengths. A table that is
    /// alone in the file with its number needs no place.
    pub(crate) fn finish(&self, edit: &mut Edit) -> Result<()> {
        let mut state = self.state.lock();
        state.end_file(self.source)?;
        for new in &mut edit.added {
            let Some(place) = &mut new.place else {
                continue;
            };
            if let Some(len) = state.lens.get(&place.file) {
                place.len = *len;
                if place.file == new.meta.number && *len == new.meta.size {
                    new.place = None;
                }
            }
        }
        edit.files.append(&mut state.made);
        Ok(())
    }
}

impl State {
    fn add(&mut self, source: &TableSource, table: &[u8], next: &dyn Fn() -> u64) -> Result<Place> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let number = next();
                let path = source.path(number);
                self.made.push(number);
                let file = source.fs.create(&path);
                self.open.insert(Open {
                    number,
                    file: file.map_err(|e| Error::io(&path, "create", e))?,
                    buffer: Vec::new(),
                    len: 0,
                })
            }
        };
        let place = Place {
            file: open.number,
            offset: open.len,
            len: 0,
        };
        open.buffer.extend_from_slice(table);
        open.len += table.len() as u64;
        let full = open.len >= FILE_LEN;
        if open.buffer.len() >= APPEND_LEN {
            open.flush(source)?;
        }
        if full {
            self.end_file(source)?;
        }
        Ok(place)
    }

    fn end_file(&mut self, source: &TableSource) -> Result<()> {
        if let Some(mut open) = self.open.take() {
            open.flush(source)?;
            let synced = open.file.sync();
            synced.map_err(|e| Error::io(&source.path(open.number), "sync", e))?;
            self.lens.insert(open.number, open.len);
        }
        Ok(())
    }
}

impl Open {
    fn flush(&mut self, source: &TableSource) -> Result<()> {
        let appended = self.file.append(&self.buffer);
        appended.map_err(|e| Error::io(&source.path(self.number), "append", e))?;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for SharedFiles<'_> {
    fn drop(&mut self) {
        for number in &self.state.get_mut().made {
            let _ = self.source.fs.remove(&self.source.path(*number));
        }
    }
}
