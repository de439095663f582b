//! External sorting of keys, for large answers and for repairs: full buffers are sorted and
//! appended, as sorted runs, to a temporary file in the store's folder, and merged when read. The
//! file is unlinked as soon as it is open: it goes with the process, however that ends, and no
//! other process takes it for a leftover. Where a system cannot unlink open files, the sorter, or
//! its result, does so on drop, or a later process does.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xxhash_rust::xxh3::xxh3_64;

use crate::coding::{Own, Reader, put_bytes, put_varint};
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile, WriteFile};

/// File names: `PROCESS-NUMBER.sort`.
const SUFFIX: &str = ".sort";
/// Bytes per write, and the bounds of the bytes per read of a run.
const WRITE: usize = 256 << 10;
const LEAST_READ: usize = 4 << 10;
const MOST_READ: usize = 256 << 10;
/// Bytes of entries that have a checksum together, about: none is used before it was verified.
const FRAME: usize = 4 << 10;
/// What stands in front of them: their length (u32) and their checksum (u64), little-endian.
const HEADER: usize = 4 + 8;
/// How often creating a file is retried when it was removed at once.
const MAX_ATTEMPTS: u32 = 3;

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
    count: u64,
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
            count: 0,
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
        self.count += 1;
        if self.bytes.len() + self.entries.len() * size_of::<(u32, u32, Seq)>() > self.memory {
            self.spill()?;
        }
        Ok(())
    }

    /// How many keys were added.
    pub fn added(&self) -> u64 {
        self.count
    }

    /// How many runs are on disk; a last one is added at the end where there is any.
    pub fn spilled(&self) -> u64 {
        self.file
            .as_ref()
            .map_or(0, |spill| spill.ends.len() as u64)
    }

    /// The keys in order.
    ///
    /// [`Error::Io`] when the runs cannot be written or read, [`Error::Corruption`] when they
    /// differ from what was written.
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
        let mut runs = BinaryHeap::new();
        let mut at = 0;
        for end in spill.ends {
            let mut run = SortedRun {
                file: file.clone(),
                at,
                end,
                read,
                buffer: Vec::new(),
                used: 0,
                verified: 0,
                key: Vec::new(),
                seq: 0,
            };
            if run.advance(&name.path)? {
                runs.push(Reverse(run));
            }
            at = end;
        }
        Ok(Sorted::new(Source::File(runs, name)))
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
        let (mut out, mut frame) = (Vec::with_capacity(WRITE + 2 * FRAME), Vec::new());
        for entry in &self.entries {
            put_bytes(&mut frame, slot(&self.bytes, entry));
            put_varint(&mut frame, entry.2);
            if frame.len() >= FRAME {
                put_frame(&mut out, &mut frame);
            }
            if out.len() >= WRITE {
                spill.append(&mut out)?;
            }
        }
        put_frame(&mut out, &mut frame);
        spill.append(&mut out)?;
        spill.ends.push(spill.len);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }
}

/// Moves entries behind their header.
fn put_frame(out: &mut Vec<u8>, frame: &mut Vec<u8>) {
    out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    out.extend_from_slice(&xxh3_64(frame).to_le_bytes());
    out.append(frame);
}

/// By key, and per key the largest sequence number first.
fn order(a: &[u8], a_seq: Seq, b: &[u8], b_seq: Seq) -> Ordering {
    a.cmp(b).then(b_seq.cmp(&a_seq))
}

fn slot<'a>(bytes: &'a [u8], entry: &(u32, u32, Seq)) -> &'a [u8] {
    let start = entry.0 as usize;
    bytes.own(start..start + entry.1 as usize)
}

impl Spill {
    fn create(fs: Arc<dyn Fs>, dir: &Path) -> Result<Spill> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut attempts = 0;
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
                Err(e) if e.kind() == ErrorKind::NotFound && attempts < MAX_ATTEMPTS => {
                    attempts += 1
                }
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

/// Keys in ascending order, of one key the largest sequence number first.
pub struct Sorted {
    source: Source,
    /// The key returned last.
    key: Vec<u8>,
    seq: Seq,
    started: bool,
}

enum Source {
    Memory(Vec<u8>, std::vec::IntoIter<(u32, u32, Seq)>),
    File(BinaryHeap<Reverse<SortedRun>>, Named),
}

impl Sorted {
    fn new(source: Source) -> Sorted {
        Sorted {
            source,
            key: Vec::new(),
            seq: 0,
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
        self.step(false)
    }

    /// The next pair of a key and a sequence number, each pair once; `None` at the end.
    ///
    /// # Errors
    /// As [`Sorted::next`].
    pub fn next_pair(&mut self) -> Result<Option<(&[u8], Seq)>> {
        self.step(true)
    }

    fn step(&mut self, pairs: bool) -> Result<Option<(&[u8], Seq)>> {
        self.seq = loop {
            let (key, started, last) = (&mut self.key, self.started, self.seq);
            let mut take = |next: &[u8], seq: Seq| {
                let same_key = started && next == key.as_slice();
                if !same_key {
                    key.clear();
                    key.extend_from_slice(next);
                }
                !same_key || (pairs && seq != last)
            };
            match &mut self.source {
                Source::Memory(bytes, entries) => {
                    let Some(entry) = entries.next() else {
                        return Ok(None);
                    };
                    if take(slot(bytes, &entry), entry.2) {
                        break entry.2;
                    }
                }
                Source::File(runs, name) => {
                    let Some(mut least) = runs.peek_mut() else {
                        return Ok(None);
                    };
                    let seq = least.0.seq;
                    let new = take(&least.0.key, seq);
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
        Ok(Some((&self.key, self.seq)))
    }
}

/// A sorted run of the file as it is read.
struct SortedRun {
    file: Arc<dyn ReadFile>,
    /// The offset of the unread bytes, and the bytes per read.
    at: u64,
    end: u64,
    read: usize,
    /// The bytes read, and how many of them were used.
    buffer: Vec<u8>,
    used: usize,
    /// The end of the frame that was verified.
    verified: usize,
    /// The first key that was not returned yet.
    key: Vec<u8>,
    seq: Seq,
}

impl SortedRun {
    /// Moves to the next key; false at the end.
    fn advance(&mut self, path: &Path) -> Result<bool> {
        loop {
            if self.used < self.verified {
                let entries = self.buffer.get(self.used..self.verified);
                let mut reader = Reader::new(entries.unwrap_or_default());
                let (Some(key), Some(seq)) = (reader.bytes(), reader.varint()) else {
                    return Err(self.damaged(path));
                };
                self.key.clear();
                self.key.extend_from_slice(key);
                self.seq = seq;
                self.used = self.verified - reader.rest().len();
                return Ok(true);
            }
            let rest = self.buffer.own(self.used..);
            if rest.is_empty() && self.at == self.end {
                return Ok(false);
            }
            if let Some((header, rest)) = rest.split_first_chunk::<HEADER>() {
                let (len, checksum) = header.split_at(4);
                let len = len
                    .iter()
                    .rev()
                    .fold(0, |n, byte| n << 8 | usize::from(*byte));
                if let Some(frame) = rest.get(..len) {
                    if xxh3_64(frame).to_le_bytes() != *checksum {
                        return Err(self.damaged(path));
                    }
                    self.used += HEADER;
                    self.verified = self.used + len;
                    continue;
                }
                if len as u64 > rest.len() as u64 + (self.end - self.at) {
                    return Err(self.damaged(path));
                }
            }
            if self.at == self.end {
                return Err(self.damaged(path));
            }
            self.buffer.drain(..self.used);
            (self.used, self.verified) = (0, 0);
            let held = self.buffer.len();
            let more = (self.end - self.at).min(self.read as u64) as usize;
            self.buffer.resize(held + more, 0);
            let room = self.buffer.own_mut(held..);
            self.file
                .read_at(self.at, room)
                .map_err(|e| Error::io(path, "read", e))?;
            self.at += more as u64;
        }
    }
}

impl SortedRun {
    #[cold]
    fn damaged(&self, path: &Path) -> Error {
        Error::corruption(path, self.at, "sorted keys are not as they were written")
    }
}

impl PartialEq for SortedRun {
    fn eq(&self, other: &SortedRun) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for SortedRun {}
impl PartialOrd for SortedRun {
    fn partial_cmp(&self, other: &SortedRun) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SortedRun {
    fn cmp(&self, other: &SortedRun) -> Ordering {
        order(&self.key, self.seq, &other.key, other.seq)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use esker_sim::memory::Memory;

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
    fn pairs_come_in_order_and_once() {
        let (fs, dir) = (Arc::new(Memory::new()), Path::new("/sort"));
        fs.create_dir(dir).unwrap();
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let memory = [0, 10_000, 1 << 20][rng.usize(0..3)];
            let mut sorter = Sorter::new(fs.clone(), dir, memory);
            let mut model = std::collections::BTreeSet::new();
            let count = rng.u64(0..5000);
            for _ in 0..count {
                let (key, seq) = ([rng.u8(0..20), 7], rng.u64(0..50));
                sorter.add(&key, seq).unwrap();
                model.insert((key, Reverse(seq)));
            }
            assert_eq!(sorter.added(), count);
            let in_memory = sorter.spilled() == 0;
            assert!(memory > 0 || in_memory == (count < 250), "seed {seed}");
            let mut sorted = sorter.finish().unwrap();
            for (key, Reverse(seq)) in &model {
                assert_eq!(sorted.next_pair().unwrap(), Some((&key[..], *seq)));
            }
            assert_eq!(sorted.next_pair().unwrap(), None);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_run_is_found() {
        let (fs, path) = (Memory::new(), Path::new("/sort/run"));
        fs.create_dir(Path::new("/sort")).unwrap();
        let (mut run, mut frame) = (Vec::new(), Vec::new());
        for part in 0..3_u8 {
            for seq in 0..5 {
                put_bytes(&mut frame, &[part, seq as u8]);
                put_varint(&mut frame, seq << 20);
            }
            put_frame(&mut run, &mut frame);
        }
        let read = |bytes: &[u8]| {
            fs.create(path).unwrap().append(bytes).unwrap();
            let mut run = SortedRun {
                file: fs.open(path).unwrap(),
                at: 0,
                end: bytes.len() as u64,
                read: 16,
                buffer: Vec::new(),
                used: 0,
                verified: 0,
                key: Vec::new(),
                seq: 0,
            };
            let mut keys = 0;
            let read = loop {
                match run.advance(path) {
                    Ok(true) => keys += 1,
                    Ok(false) => break Ok(keys),
                    Err(error) => break Err(error),
                }
            };
            fs.remove(path).unwrap();
            read
        };
        assert_eq!(read(&run).unwrap(), 15);
        for bit in 0..run.len() * 8 {
            let mut damaged = run.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
        for end in 1..run.len() {
            let whole = read(&run[..end]);
            assert!(whole.is_err() || end % (run.len() / 3) == 0, "{end}");
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
