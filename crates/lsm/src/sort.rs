//! External sorting of keys: full buffers are sorted and appended, as sorted runs, to a temporary file in the store's
//! folder, and merged when read. The file is unlinked as soon as it is open: it goes with the process, however that
//! ends, and no other process takes it for a leftover. Where a system cannot unlink open files, the sorter, or its
//! result, does so on drop, or a later process does.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::coding::{Reader, put_bytes, put_varint};
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile, WriteFile};

/// File names: `PROCESS-NUMBER.sort`.
const SUFFIX: &str = ".sort";
/// Bytes per write, and the bounds of the bytes per read of a run.
const WRITE: usize = 256 << 10;
const LEAST_READ: usize = 4 << 10;
const MOST_READ: usize = 256 << 10;
/// How often creating a file is retried when it was removed at once.
const LOOKS: u32 = 3;

/// True when a file of this name belongs to a sorter whose process has ended.
pub(crate) fn is_leftover(name: &str) -> bool {
    let process = name
        .strip_suffix(SUFFIX)
        .and_then(|name| name.split_once('-'))
        .and_then(|(process, _)| process.parse::<u32>().ok());
    process.is_some_and(|process| process != std::process::id())
}

/// Collects keys with sequence numbers, any number of them in any order.
pub struct Sorter {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    memory: usize,
    /// The keys of the buffer, and the range of each.
    bytes: Vec<u8>,
    entries: Vec<(u32, u32, Seq)>,
    file: Option<Spill>,
}

/// The file of the sorted runs.
struct Spill {
    name: Named,
    file: Box<dyn WriteFile>,
    read: Arc<dyn ReadFile>,
    len: u64,
    /// The end of each run.
    ends: Vec<u64>,
}

/// A file that is removed with this value, if not before.
struct Named {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    is_gone: bool,
}

impl Drop for Named {
    fn drop(&mut self) {
        if !self.is_gone {
            let _ = self.fs.remove(&self.path);
        }
    }
}

impl Sorter {
    /// A sorter that holds about `memory` bytes, and spills the rest into a file in `dir`.
    pub fn new(fs: Arc<dyn Fs>, dir: &Path, memory: usize) -> Sorter {
        Sorter {
            fs,
            dir: dir.to_path_buf(),
            memory: memory.clamp(LEAST_READ, 1 << 30),
            bytes: Vec::new(),
            entries: Vec::new(),
            file: None,
        }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`Error::Io`] when a full buffer cannot be written.
    pub fn add(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.entries.push((start as u32, key.len() as u32, seq));
        if self.bytes.len() + self.entries.len() * size_of::<(u32, u32, Seq)>() > self.memory {
            self.spill()?;
        }
        Ok(())
    }

    /// The keys in order.
    ///
    /// [`Error::Io`] when the runs cannot be written or read, [`Error::Corruption`] when they differ from what was
    /// written.
    pub fn finish(mut self) -> Result<Sorted> {
        if self.file.is_some() && !self.entries.is_empty() {
            self.spill()?;
        }
        let Some(spill) = self.file.take() else {
            self.sort();
            let (bytes, entries) = (self.bytes, self.entries.into_iter());
            return Ok(Sorted::new(Source::Memory(bytes, entries)));
        };
        let (name, file) = (spill.name, spill.read);
        drop(spill.file);
        let read = (self.memory / spill.ends.len()).clamp(LEAST_READ, MOST_READ);
        let mut pieces = BinaryHeap::new();
        let mut at = 0;
        for end in spill.ends {
            let mut piece = Piece {
                file: file.clone(),
                at,
                end,
                read,
                buffer: Vec::new(),
                used: 0,
                key: Vec::new(),
                seq: 0,
            };
            if piece.advance(&name.path)? {
                pieces.push(Reverse(piece));
            }
            at = end;
        }
        Ok(Sorted::new(Source::File(pieces, name)))
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries
            .sort_unstable_by(|a, b| order(slot(bytes, a), a.2, slot(bytes, b), b.2));
    }

    /// Writes the buffer as a run and empties it.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let spill = match &mut self.file {
            Some(spill) => spill,
            none => none.insert(Spill::create(self.fs.clone(), &self.dir)?),
        };
        let mut out = Vec::with_capacity(WRITE);
        for entry in &self.entries {
            put_bytes(&mut out, slot(&self.bytes, entry));
            put_varint(&mut out, entry.2);
            if out.len() >= WRITE {
                spill.append(&mut out)?;
            }
        }
        spill.append(&mut out)?;
        spill.ends.push(spill.len);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }
}

/// By key, and per key the largest sequence number first.
fn order(a: &[u8], a_seq: Seq, b: &[u8], b_seq: Seq) -> Ordering {
    a.cmp(b).then(b_seq.cmp(&a_seq))
}

fn slot<'a>(bytes: &'a [u8], entry: &(u32, u32, Seq)) -> &'a [u8] {
    let start = entry.0 as usize;
    bytes
        .get(start..start + entry.1 as usize)
        .unwrap_or_default()
}

impl Spill {
    fn create(fs: Arc<dyn Fs>, dir: &Path) -> Result<Spill> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut looks = 0;
        loop {
            let number = NEXT.fetch_add(1, Relaxed);
            let path = dir.join(format!("{}-{number}{SUFFIX}", std::process::id()));
            let file = fs.create(&path);
            let file = file.map_err(|e| Error::io(&path, "create", e))?;
            let mut name = Named {
                fs: fs.clone(),
                path,
                is_gone: false,
            };
            match fs.open(&name.path) {
                Ok(read) => {
                    name.is_gone = fs.remove(&name.path).is_ok();
                    return Ok(Spill {
                        name,
                        file,
                        read,
                        len: 0,
                        ends: Vec::new(),
                    });
                }
                // The store's process has just removed the file as a leftover.
                Err(e) if e.kind() == ErrorKind::NotFound && looks < LOOKS => looks += 1,
                Err(e) => return Err(Error::io(&name.path, "open", e)),
            }
        }
    }

    fn append(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.file
            .append(out)
            .map_err(|e| Error::io(&self.name.path, "append", e))?;
        self.len += out.len() as u64;
        out.clear();
        Ok(())
    }
}

/// Keys in ascending order, each once, with the largest of its sequence numbers.
pub struct Sorted {
    source: Source,
    /// The key returned last.
    key: Vec<u8>,
    started: bool,
}

enum Source {
    Memory(Vec<u8>, std::vec::IntoIter<(u32, u32, Seq)>),
    File(BinaryHeap<Reverse<Piece>>, Named),
}

impl Sorted {
    fn new(source: Source) -> Sorted {
        Sorted {
            source,
            key: Vec::new(),
            started: false,
        }
    }

    /// The next key, and the largest of its sequence numbers; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the file.
    #[allow(
        clippy::should_implement_trait,
        reason = "it lends the key, which an iterator cannot"
    )]
    pub fn next(&mut self) -> Result<Option<(&[u8], Seq)>> {
        let seq = loop {
            let (key, started) = (&mut self.key, self.started);
            let mut take = |next: &[u8]| {
                let new = !started || next != key.as_slice();
                if new {
                    key.clear();
                    key.extend_from_slice(next);
                }
                new
            };
            match &mut self.source {
                Source::Memory(bytes, entries) => {
                    let Some(entry) = entries.next() else {
                        return Ok(None);
                    };
                    if take(slot(bytes, &entry)) {
                        break entry.2;
                    }
                }
                Source::File(pieces, name) => {
                    let Some(mut least) = pieces.peek_mut() else {
                        return Ok(None);
                    };
                    let (new, seq) = (take(&least.0.key), least.0.seq);
                    if !least.0.advance(&name.path)? {
                        PeekMut::pop(least);
                    }
                    if new {
                        break seq;
                    }
                }
            }
        };
        self.started = true;
        Ok(Some((&self.key, seq)))
    }
}

/// A sorted run of the file as it is read.
struct Piece {
    file: Arc<dyn ReadFile>,
    /// The offset of the unread bytes, and the bytes per read.
    at: u64,
    end: u64,
    read: usize,
    /// The bytes read, and how many of them were used.
    buffer: Vec<u8>,
    used: usize,
    /// The first key that was not returned yet.
    key: Vec<u8>,
    seq: Seq,
}

impl Piece {
    /// Moves to the next key; false at the end.
    fn advance(&mut self, path: &Path) -> Result<bool> {
        loop {
            let rest = self.buffer.get(self.used..).unwrap_or_default();
            let mut reader = Reader::new(rest);
            if let (Some(key), Some(seq)) = (reader.bytes(), reader.varint()) {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.seq = seq;
                self.used = self.buffer.len() - reader.rest().len();
                return Ok(true);
            }
            if self.at == self.end {
                return match rest {
                    [] => Ok(false),
                    _ => Err(Error::corruption(path, self.end, "a sorted key is cut off")),
                };
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            let held = self.buffer.len();
            let more = (self.end - self.at).min(self.read as u64) as usize;
            self.buffer.resize(held + more, 0);
            let room = self.buffer.get_mut(held..).unwrap_or_default();
            self.file
                .read_at(self.at, room)
                .map_err(|e| Error::io(path, "read", e))?;
            self.at += more as u64;
        }
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Piece) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Piece {}
impl PartialOrd for Piece {
    fn partial_cmp(&self, other: &Piece) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Piece {
    fn cmp(&self, other: &Piece) -> Ordering {
        order(&self.key, self.seq, &other.key, other.seq)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fs::memory::Memory;

    #[test]
    fn keys_come_in_order_and_once_and_no_file_stays() {
        let (fs, dir) = (Arc::new(Memory::new()), Path::new("/sort"));
        fs.create_dir(dir).unwrap();
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let memory = [0, 10_000, 1 << 20][rng.usize(0..3)];
            let mut sorter = Sorter::new(fs.clone(), dir, memory);
            let mut model: BTreeMap<Vec<u8>, Seq> = BTreeMap::new();
            for _ in 0..rng.usize(0..5000) {
                let len = [0, 4, 100, 9000][if rng.u8(..) == 0 { 3 } else { rng.usize(0..3) }];
                let key: Vec<u8> = (0..len).map(|_| rng.u8(0..3)).collect();
                let seq = rng.u64(0..1000);
                sorter.add(&key, seq).unwrap();
                let newest = model.entry(key).or_default();
                *newest = seq.max(*newest);
            }
            let mut sorted = sorter.finish().unwrap();
            // It is unlinked, so no process can remove it, and it cannot be left over.
            assert!(fs.list(dir).unwrap().is_empty());
            for (key, seq) in &model {
                assert_eq!(
                    sorted.next().unwrap(),
                    Some((&key[..], *seq)),
                    "seed {seed}"
                );
            }
            assert_eq!(sorted.next().unwrap(), None);
            assert_eq!(sorted.next().unwrap(), None);
            drop(sorted);
            assert!(fs.list(dir).unwrap().is_empty());
        }
    }

    #[test]
    fn files_of_other_processes_are_left_over() {
        let own = std::process::id();
        assert!(is_leftover(&format!("{}-0.sort", own + 1)));
        for name in [&format!("{own}-0.sort"), "x-0.sort", "5.sort", "5-0.tbl"] {
            assert!(!is_leftover(name));
        }
    }
}
