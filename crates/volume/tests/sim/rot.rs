//! Bytes on the victim's disk change: only of what it can know to have been durable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::extents::{FIRST_RECORD, HEADER_BYTES, RecordHeader};
use esker_volume::ids::{DiskId, GroupId, Slot};
use esker_volume::place::Place;

use super::node::DIR;
use super::world::{Event, World};

/// A record on a disk.
#[derive(Clone)]
struct Record {
    path: PathBuf,
    at: usize,
    /// Bytes, with its header.
    length: usize,
    kind: u8,
    group: GroupId,
    slot: Slot,
    lsn: u64,
    /// Up to which LSN all was synced before. 0 where its header is damaged.
    synced: u64,
}

/// What the kinds of records are called on disk, and the group of records of the node itself.
const ENTRY: u8 = 1;
const BASE: u8 = 3;
const MEMBERS: u8 = 6;
const NODE: GroupId = GroupId(u16::MAX);

/// Bytes of a sector of the disk.
const SECTOR_BYTES: usize = 512;

/// The records of a segment.
fn records(path: &Path, bytes: &[u8], disk: DiskId) -> Vec<Record> {
    let name = path.file_stem().and_then(|name| name.to_str());
    let segment = name.and_then(|name| name.parse().ok()).unwrap();
    let u64_at = |at: usize| {
        bytes
            .get(at..at + 8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
    };
    let mut all: Vec<Record> = Vec::new();
    let mut at = FIRST_RECORD as usize;
    while let (Some(kind), Some(slot), Some(lsn), Some(length)) =
        (u64_at(at), u64_at(at + 8), u64_at(at + 24), u64_at(at + 40))
    {
        let length = HEADER_BYTES + (length as u32 as usize).next_multiple_of(8);
        let last = all.last();
        let follows = last.is_none_or(|last| last.lsn + last.length as u64 == lsn);
        if !follows || at + length > bytes.len() {
            break;
        }
        let offset = at as u32;
        let header = bytes.get(at..at + HEADER_BYTES);
        let header =
            header.and_then(|bytes| RecordHeader::decode(bytes, disk, Place { segment, offset }));
        all.push(Record {
            path: path.to_path_buf(),
            at,
            length,
            kind: (kind >> 32) as u8,
            group: GroupId((kind >> 48) as u16),
            slot: Slot(slot),
            lsn,
            synced: header.map_or(0, |header| header.synced),
        });
        at += length;
    }
    all
}

impl World {
    /// The durable records of the victim.
    fn durable_records(&mut self) -> Vec<Record> {
        let id = self.victim();
        let durable = self.node(id).memory.power_cut(0, PowerCut::Lost);
        let segments = Path::new(DIR).join("segments");
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "seg");
        let paths = durable.paths().into_iter();
        let all = paths.filter(|path| path.starts_with(&segments) && is_segment(path));
        let disk = self.node(id).disk_id();
        all.flat_map(|path| records(&path, &durable.read(&path).unwrap(), disk))
            .collect()
    }

    /// Those of which it can know that they were durable.
    fn known_records(&mut self) -> Vec<Record> {
        let all = self.durable_records();
        let synced = all.iter().map(|record| record.synced).max().unwrap_or(0);
        let is_known = |record: &Record| record.lsn + record.length as u64 <= synced;
        all.into_iter().filter(is_known).collect()
    }

    /// The data of the last write change.
    pub(crate) fn rot_last(&mut self) {
        let all = self.durable_records();
        let is_write = |record: &&Record| record.kind == ENTRY && record.length > 512;
        let last = all.iter().rev().find(is_write).unwrap();
        self.damage(last, last.length - 16, 1);
    }

    /// The data of the newest writes change.
    pub(crate) fn rot_newest(&mut self) {
        let is_write = |record: &Record| record.kind == ENTRY && record.length > 512;
        let known = self.known_records().into_iter();
        let writes: Vec<Record> = known.filter(is_write).collect();
        count("rot of what is newest");
        for record in writes.iter().rev().take(8) {
            self.damage(record, record.length - 16, 1);
        }
    }

    /// Bytes of a record change.
    fn damage(&mut self, record: &Record, from: usize, many: usize) {
        let memory = self.node(self.victim()).memory.clone();
        let Some(mut bytes) = memory.read(&record.path) else {
            return;
        };
        let (from, end) = (record.at + from, record.at + record.length);
        for byte in bytes.iter_mut().take(end).skip(from).take(many) {
            *byte ^= self.random.u8(1..);
        }
        let (path, lsn) = (record.path.display(), record.lsn);
        self.say(|| format!("  rot at {path}:{from}, LSN {lsn}"));
        memory.write(&record.path, &bytes);
    }

    pub(crate) fn rot(&mut self, kind: u8) {
        if kind >= 240 {
            return self.rot_formation();
        }
        let known = self.known_records();
        if known.is_empty() {
            return;
        }
        count("rot");
        if kind & 32 != 0 {
            return self.rot_sector(&known);
        }
        for _ in 0..=kind % 3 {
            let record = known[self.random.usize(..known.len())].clone();
            // In the header, in the payload, or some bytes anywhere.
            let from = match kind / 3 % 3 {
                0 => self.random.usize(..HEADER_BYTES),
                _ => self.random.usize(..record.length),
            };
            let many = if kind & 64 == 0 {
                1
            } else {
                self.random.usize(1..200)
            };
            self.damage(&record, from, many);
        }
    }

    /// A sector of a segment changes, of several records where they are short.
    fn rot_sector(&mut self, known: &[Record]) {
        let record = known[self.random.usize(..known.len())].clone();
        let of_path = known.iter().filter(|other| other.path == record.path);
        let end = of_path.map(|other| other.at + other.length).max();
        let from = record.at + self.random.usize(..record.length);
        let sector = from & !(SECTOR_BYTES - 1);
        let from = sector.max(FIRST_RECORD as usize);
        let end = end.map_or(sector, |end| end.min(sector + SECTOR_BYTES));
        let memory = self.node(self.victim()).memory.clone();
        let Some(mut bytes) = memory.read(&record.path) else {
            return;
        };
        for byte in bytes.iter_mut().take(end).skip(from) {
            *byte ^= self.random.u8(1..);
        }
        let path = record.path.display();
        self.say(|| format!("  rot at {path}:{from}..{end}"));
        memory.write(&record.path, &bytes);
    }

    /// All that says what cluster the victim's disk belongs to changes, and it is started again.
    fn rot_formation(&mut self) {
        let is_of = |record: &Record| {
            record.kind == MEMBERS || (record.kind == BASE && record.group == NODE)
        };
        let known = self.known_records();
        for record in known.iter().filter(|record| is_of(record)) {
            self.damage(record, HEADER_BYTES, 1);
        }
        count("rot of the formation");
        let id = self.victim();
        if self.node(id).core.is_some() {
            self.crash(id, PowerCut::Kept, 0, 50);
        }
    }

    /// An entry that the victim has read back, and that is not state yet, changes.
    pub(crate) fn rot_ahead(&mut self) {
        let id = self.victim();
        let Some((map, _)) = self.node(id).core.as_ref().map(|core| core.readers()) else {
            return;
        };
        let is_ahead =
            |record: &Record| record.kind == ENTRY && record.slot > map.applied(record.group);
        let known = self.known_records().into_iter();
        let known: Vec<Record> = known.filter(is_ahead).collect();
        if let Some(record) = known.first() {
            count("rot of what is not state yet");
            self.damage(record, HEADER_BYTES, 1);
        }
    }

    /// Members have changed: an entry before that, which is state, changes on the victim's disk,
    /// and it is started again.
    pub(crate) fn rot_past(&mut self) {
        let id = self.victim();
        let Some((map, _)) = self.node(id).core.as_ref().map(|core| core.readers()) else {
            return;
        };
        if self.node(id).has_failed() || map.flush().is_err() {
            return;
        }
        let is_past =
            |record: &Record| record.kind == ENTRY && record.slot < map.applied(record.group);
        let known = self.known_records();
        let last = known.last().map(|record| record.path.clone());
        let of_last = |record: &&Record| Some(&record.path) == last.as_ref() && is_past(record);
        let past: Vec<Record> = known.iter().filter(of_last).cloned().collect();
        count("rot of what is state, behind a change of members");
        let mut groups = BTreeSet::new();
        for record in &past {
            if groups.insert(record.group) {
                self.damage(record, HEADER_BYTES, 1);
            }
        }
        self.crash(id, PowerCut::Kept, 0, 50);
    }

    /// Bytes of a file of the victim's map change. Its operator replaces it once it is seen, or
    /// when all is healed: until then it is a lost disk, of which there is one at a time.
    pub(crate) fn rot_map(&mut self, kind: u8) {
        let id = self.victim();
        let is_whole = !self.is_rotten && self.changing.is_none() && self.members.len() > 2;
        if !is_whole || !self.members.contains(&id) || self.node(id).core.is_none() {
            return;
        }
        if kind.is_multiple_of(3) {
            return self.rot_tables();
        }
        let memory = self.node(id).memory.clone();
        let durable = memory.power_cut(0, PowerCut::Lost);
        let is_map = |path: &std::path::PathBuf| path.starts_with(Path::new(DIR).join("map"));
        let paths: Vec<_> = durable.paths().into_iter().filter(is_map).collect();
        if paths.is_empty() {
            return;
        }
        let path = &paths[self.random.usize(..paths.len())];
        let length = durable.read(path).map_or(0, |bytes| bytes.len());
        let Some(mut bytes) = memory.read(path).filter(|_| length > 0) else {
            return;
        };
        count("rot of the map");
        let from = self.random.usize(..length);
        let many = match kind % 2 {
            0 => 1,
            _ => self.random.usize(1..200),
        };
        for byte in bytes.iter_mut().take(length).skip(from).take(many) {
            *byte ^= self.random.u8(1..);
        }
        self.say(|| format!("  rot at {}:{from}", path.display()));
        memory.write(path, &bytes);
        self.is_rotten = true;
        self.node(id).may_fail = true;
    }

    /// All tables of the victim's map change, and it is to lead and asked for what they have.
    fn rot_tables(&mut self) {
        let id = self.victim();
        let (groups, node) = (self.settings.groups as u8, (id.0 - 1) as u8);
        (1..=groups).for_each(|group| self.transfer(group, node));
        let core = self.node(id).core.as_ref();
        let flushed = core.map(|core| core.readers().0.flush());
        let Some(Ok(())) = flushed else { return };
        count("rot of tables");
        let memory = self.node(id).memory.clone();
        let map = Path::new(DIR).join("map");
        let is_table = |path: &PathBuf| path.extension().is_some_and(|end| end == "tbl");
        let paths = memory.paths().into_iter();
        for path in paths.filter(|path| path.starts_with(&map) && is_table(path)) {
            let mut bytes = memory.read(&path).unwrap_or_default();
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
            memory.write(&path, &bytes);
        }
        self.is_rotten = true;
        self.node(id).may_fail = true;
        for after in [100, 400, 1000] {
            self.after(after, Event::Duel(id, 0));
        }
    }
}
