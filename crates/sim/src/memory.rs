//! A file system in memory, for stores that need not outlive the process and for tests: it tracks
//! durability, so that it can simulate a power cut.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use esker_fs::{Fs, Lock, Mapped, ReadFile, WriteFile};

use crate::map::{Map, Source};

const SECTOR: usize = 512;

/// A file system in memory. A clone is a second handle on the same.
///
/// A file's bytes are durable after `sync`, the names in a folder (created, replaced and removed
/// ones) after `sync_dir`, a folder as soon as it is created.
#[derive(Clone, Default)]
pub struct Memory {
    state: Arc<State>,
}

/// The fate of unsynced writes in a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// All are lost: data and names.
    Lost,
    /// All survive.
    Kept,
    /// Each file keeps a prefix of its unsynced bytes, the last sector (512 bytes) maybe as zeros
    /// or garbage. Each folder keeps a prefix of its changes.
    Torn,
    /// Each file keeps a part of its new length, and there each sector or zeros in its place. Each
    /// folder keeps a prefix of its changes.
    Reordered,
    /// All survive, except truncations: a file that was truncated since its last sync has the
    /// bytes from before the first time.
    Untruncated,
}

#[derive(Default)]
struct State {
    folders: Mutex<BTreeMap<PathBuf, Folder>>,
    locks: Mutex<HashSet<PathBuf>>,
    /// The last number returned by `unique`.
    unique: AtomicU64,
    /// Bytes that were given back.
    punched: AtomicU64,
}

type Names = BTreeMap<OsString, Arc<Inode>>;

#[derive(Default)]
struct Folder {
    names: Names,
    durable: Names,
    /// The changes from `durable` to `names`.
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Put(OsString, Arc<Inode>),
    Remove(OsString),
    Rename(OsString, OsString),
}

impl Change {
    fn apply(self, names: &mut Names) {
        match self {
            Change::Put(name, file) => {
                names.insert(name, file);
            }
            Change::Remove(name) => {
                names.remove(&name);
            }
            Change::Rename(from, to) => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

impl Folder {
    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.names);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        self.durable = self.names.clone();
        self.pending.clear();
    }

    fn get(&self, name: &OsString) -> io::Result<Arc<Inode>> {
        self.names.get(name).cloned().ok_or_else(not_found)
    }

    /// The names that survive a power cut.
    fn survivors(&self, mode: PowerCut, rng: &mut Rng) -> Names {
        match mode {
            PowerCut::Lost => self.durable.clone(),
            PowerCut::Kept | PowerCut::Untruncated => self.names.clone(),
            PowerCut::Torn | PowerCut::Reordered => {
                let kept = rng.up_to(self.pending.len());
                let mut names = self.durable.clone();
                self.pending
                    .iter()
                    .take(kept)
                    .cloned()
                    .for_each(|change| change.apply(&mut names));
                names
            }
        }
    }
}

#[derive(Default)]
struct Inode(RwLock<Stored>);

impl Source for Inode {
    fn with(&self, see: &mut dyn FnMut(&[u8])) {
        see(&self.0.read().content.bytes);
    }
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// The append position; the bytes behind it are zeros written ahead.
    end: usize,
}

impl Content {
    fn append(&mut self, data: &[u8]) {
        let over = data.len().min(self.bytes.len() - self.end);
        let (over, beyond) = data.split_at_checked(over).unwrap_or((data, &[]));
        if let Some(there) = self.bytes.get_mut(self.end..self.end + over.len()) {
            there.copy_from_slice(over);
        }
        self.bytes.extend_from_slice(beyond);
        self.end += data.len();
    }

    fn write_ahead(&mut self, len: usize) {
        let len = self.bytes.len().max(self.end + len);
        self.bytes.resize(len, 0);
    }
}

#[derive(Default)]
struct Stored {
    content: Content,
    /// The durable part of the appended bytes, and the file's length, at the last sync.
    durable: usize,
    durable_len: usize,
    /// The content before the first truncation since the last sync, which may reappear, and the
    /// shortest length since then: the bytes behind it may differ from the durable ones.
    before_cut: Option<(Content, usize)>,
    /// What the file had when it was begun anew: it lies under what is appended.
    under: Vec<u8>,
}

impl Stored {
    fn of(bytes: Vec<u8>) -> Stored {
        let end = bytes.len();
        Stored {
            content: Content { bytes, end },
            durable: end,
            durable_len: end,
            before_cut: None,
            under: Vec::new(),
        }
    }

    /// Replaces the bytes. Who appends goes on where it was, if the length stays.
    fn replace(&mut self, bytes: &[u8]) {
        let end = self.content.end;
        let is_same = !bytes.is_empty() && bytes.len() == self.content.bytes.len();
        let under = std::mem::take(&mut self.under);
        *self = Stored::of(bytes.to_vec());
        if is_same {
            (self.content.end, self.durable, self.under) = (end, end, under);
        }
    }

    fn cut(&mut self, len: usize) {
        if len < self.content.bytes.len() {
            match &mut self.before_cut {
                Some((_, shortest)) => *shortest = len.min(*shortest),
                none => *none = Some((self.content.clone(), len)),
            }
            self.content.bytes.truncate(len);
            self.content.end = self.content.end.min(len);
            self.under.truncate(len);
        }
    }

    /// The file is written anew: what it has stays until appends reach it.
    fn begin_anew(&mut self) {
        self.sync();
        self.under = self.content.bytes.clone();
        (self.content.end, self.durable) = (0, 0);
    }

    fn sync(&mut self) {
        self.durable = self.content.end;
        self.durable_len = self.content.bytes.len();
        self.before_cut = None;
    }

    /// The bytes that survive a power cut.
    fn survivors(&self, mode: PowerCut, rng: &mut Rng) -> Vec<u8> {
        let (base, durable, durable_len) = match &self.before_cut {
            Some((before, _))
                if matches!(mode, PowerCut::Lost | PowerCut::Untruncated)
                    || (mode != PowerCut::Kept && rng.coin()) =>
            {
                (before, self.durable, self.durable_len)
            }
            Some((_, shortest)) => (
                &self.content,
                self.durable.min(*shortest),
                self.durable_len.min(*shortest),
            ),
            None => (&self.content, self.durable, self.durable_len),
        };
        if matches!(mode, PowerCut::Kept | PowerCut::Untruncated) {
            return base.bytes.clone();
        }
        let appended = base.bytes.get(..base.end).unwrap_or_default();
        let (synced, tail) = appended
            .split_at_checked(durable)
            .unwrap_or((appended, &[]));
        let mut left = synced.to_vec();
        match mode {
            PowerCut::Lost | PowerCut::Kept | PowerCut::Untruncated => {}
            PowerCut::Torn => {
                left.extend(tail.iter().take(rng.up_to(tail.len())));
                let last_sector = left.len().saturating_sub(1) / SECTOR * SECTOR;
                let torn = left.iter_mut().skip(last_sector.max(durable));
                match rng.up_to(2) {
                    0 => torn.for_each(|byte| *byte = 0),
                    1 => torn.for_each(|byte| *byte = rng.next() as u8),
                    _ => {}
                }
            }
            PowerCut::Reordered => {
                left.extend(tail.iter().take(rng.up_to(tail.len())));
                let mut at = durable;
                while at < left.len() {
                    let end = (at / SECTOR + 1) * SECTOR;
                    if rng.coin() {
                        let sector = left.iter_mut().enumerate().take(end).skip(at);
                        sector.for_each(|(at, byte)| *byte = self.former(at));
                    }
                    at = end;
                }
            }
        }
        // Bytes written ahead that were not overwritten durably read as zeros.
        let rest = (left.len()..durable_len).map(|at| match base.bytes.get(at) {
            Some(byte) if at >= base.end => *byte,
            _ => self.former(at),
        });
        left.extend(rest.collect::<Vec<u8>>());
        left
    }

    /// What lies under an appended byte.
    fn former(&self, at: usize) -> u8 {
        self.under.get(at).copied().unwrap_or(0)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..=most`.
    fn up_to(&mut self, most: usize) -> usize {
        (self.next() % (most as u64).saturating_add(1)) as usize
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn split(path: &Path) -> io::Result<(&Path, OsString)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((path.parent().unwrap_or(Path::new("")), name.to_os_string()))
}

/// Roots always exist.
fn is_root(dir: &Path) -> bool {
    dir.parent().is_none()
}

impl Memory {
    /// An empty file system.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// A new file system with the state of this one after a power cut: everything synced, and of
    /// the rest what `mode` says, decided randomly by `seed`. This one continues unchanged, and the
    /// new one has no locks.
    pub fn power_cut(&self, seed: u64, mode: PowerCut) -> Memory {
        let mut rng = Rng(seed);
        // Hard links still share one file.
        let mut files: HashMap<*const Inode, Arc<Inode>> = HashMap::new();
        let mut left = BTreeMap::new();
        for (dir, folder) in &*self.state.folders.lock() {
            let mut names = Names::new();
            for (name, file) in folder.survivors(mode, &mut rng) {
                let copy = files.entry(Arc::as_ptr(&file)).or_insert_with(|| {
                    let bytes = file.0.read().survivors(mode, &mut rng);
                    Arc::new(Inode(RwLock::new(Stored::of(bytes))))
                });
                names.insert(name, copy.clone());
            }
            let folder = Folder {
                durable: names.clone(),
                names,
                pending: Vec::new(),
            };
            left.insert(dir.clone(), folder);
        }
        Memory {
            state: Arc::new(State {
                folders: Mutex::new(left),
                locks: Mutex::default(),
                punched: AtomicU64::new(0),
                unique: AtomicU64::new(self.state.unique.load(Ordering::SeqCst)),
            }),
        }
    }

    /// The bytes of a file, synced or not.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let file = self
            .in_folder(path, |folder, name| folder.get(&name))
            .ok()?;
        let bytes = file.0.read().content.bytes.clone();
        Some(bytes)
    }

    /// Replaces the bytes of a file, also for open handles, or creates the file and its folder. The
    /// bytes and all names in the folder are durable then. A path without a file name is ignored.
    pub fn write(&self, path: &Path, bytes: &[u8]) {
        let Ok((dir, name)) = split(path) else { return };
        let mut folders = self.state.folders.lock();
        for dir in dir.ancestors() {
            folders.entry(dir.to_path_buf()).or_default();
        }
        let folder = folders.entry(dir.to_path_buf()).or_default();
        let file = folder.names.entry(name).or_default();
        file.0.write().replace(bytes);
        folder.sync();
    }

    /// How many bytes were given back ([`Fs::punch`]) since the last power cut.
    pub fn punched(&self) -> u64 {
        self.state.punched.load(Ordering::SeqCst)
    }

    /// The paths of all files, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        let folders = self.state.folders.lock();
        let mut paths: Vec<PathBuf> = folders
            .iter()
            .flat_map(|(dir, folder)| folder.names.keys().map(move |name| dir.join(name)))
            .collect();
        paths.sort();
        paths
    }

    fn in_folder<T>(
        &self,
        path: &Path,
        work: impl FnOnce(&mut Folder, OsString) -> io::Result<T>,
    ) -> io::Result<T> {
        let (dir, name) = split(path)?;
        let mut folders = self.state.folders.lock();
        work(folder(&mut folders, dir)?, name)
    }
}

fn folder<'a>(
    folders: &'a mut BTreeMap<PathBuf, Folder>,
    dir: &Path,
) -> io::Result<&'a mut Folder> {
    if is_root(dir) {
        return Ok(folders.entry(dir.to_path_buf()).or_default());
    }
    folders.get_mut(dir).ok_or_else(not_found)
}

impl Fs for Memory {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.in_folder(path, |folder, name| {
            if let Ok(file) = folder.get(&name) {
                file.0.write().cut(0);
                return Ok(file);
            }
            let file = Arc::new(Inode::default());
            folder.change(Change::Put(name, file.clone()));
            Ok(file)
        })?;
        Ok(Box::new(Open(file)))
    }

    fn overwrite(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.in_folder(path, |folder, name| folder.get(&name))?;
        file.0.write().begin_anew();
        Ok(Box::new(Open(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(Open(
            self.in_folder(path, |folder, name| folder.get(&name))?,
        )))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = split(from)?;
        let (to_dir, to_name) = split(to)?;
        let mut folders = self.state.folders.lock();
        let file = folder(&mut folders, from_dir)?.get(&from_name)?;
        let target = folder(&mut folders, to_dir)?;
        if from_dir == to_dir {
            target.change(Change::Rename(from_name, to_name));
        } else {
            target.change(Change::Put(to_name, file));
            folder(&mut folders, from_dir)?.change(Change::Remove(from_name));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.in_folder(path, |folder, name| {
            folder.get(&name)?;
            folder.change(Change::Remove(name));
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.in_folder(from, |folder, name| folder.get(&name))?;
        self.in_folder(to, |folder, name| {
            if folder.names.contains_key(&name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            folder.change(Change::Put(name, file));
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut folders = self.state.folders.lock();
        Ok(folder(&mut folders, dir)?
            .names
            .keys()
            .map(PathBuf::from)
            .collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut folders = self.state.folders.lock();
        for dir in dir.ancestors() {
            folders.entry(dir.to_path_buf()).or_default();
        }
        Ok(())
    }

    /// The bytes are zeros at once, also after a power cut.
    fn punch(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        let file = self.in_folder(path, |folder, name| folder.get(&name))?;
        let stored = &mut *file.0.write();
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let (from, to) = (at(range.start), at(range.end));
        let before = stored.before_cut.as_mut().map(|(before, _)| before);
        for content in before.into_iter().chain([&mut stored.content]) {
            let punched = content.bytes.iter_mut().take(to).skip(from);
            punched.for_each(|byte| *byte = 0);
        }
        let punched = stored.content.bytes.len().min(to).saturating_sub(from);
        self.state
            .punched
            .fetch_add(punched as u64, Ordering::SeqCst);
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let file = self.in_folder(path, |folder, name| folder.get(&name))?;
        file.0.write().sync();
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        folder(&mut self.state.folders.lock(), dir)?.sync();
        Ok(())
    }

    fn unique(&self) -> u64 {
        // Unique among all file systems derived from this one, and the same in each run.
        1 + self.state.unique.fetch_add(1, Ordering::SeqCst)
    }

    fn exists(&self, path: &Path) -> bool {
        is_root(path)
            || self.state.folders.lock().contains_key(path)
            || self
                .in_folder(path, |folder, name| folder.get(&name))
                .is_ok()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.in_folder(path, |folder, name| {
            if folder.get(&name).is_err() {
                folder.change(Change::Put(name, Arc::default()));
            }
            Ok(())
        })?;
        if !self.state.locks.lock().insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Held {
            state: self.state.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state.locks.lock().contains(path))
    }
}

struct Held {
    state: Arc<State>,
    path: PathBuf,
}

impl Lock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        self.state.locks.lock().remove(&self.path);
    }
}

struct Open(Arc<Inode>);

impl WriteFile for Open {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.0.0.write().content.append(data);
        Ok(())
    }

    fn write_ahead(&self, len: usize) -> io::Result<()> {
        self.0.0.write().content.write_ahead(len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.0.write().sync();
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.0.0.write().cut(len);
        Ok(())
    }
}

impl ReadFile for Open {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let content = &self.0.0.read().content;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = content
            .bytes
            .get(from..)
            .and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.0.read().content.bytes.len() as u64)
    }

    fn map(&self) -> Option<Arc<dyn Mapped>> {
        Some(Arc::new(Map::new(self.0.clone())))
    }
}
