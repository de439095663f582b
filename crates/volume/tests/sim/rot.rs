//! Bytes on the victim's disk change: only of what it can know to have been durable.

use std::path::Path;

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::extents::{FIRST_RECORD, HEADER_BYTES};

use super::node::DIR;
use super::world::World;

/// The records of a segment: where each begins, its length, its LSN, and up to which LSN all was
/// synced before.
fn records(bytes: &[u8]) -> Vec<(usize, usize, u64, u64)> {
    let u64_at = |at: usize| {
        bytes
            .get(at..at + 8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
    };
    let mut all: Vec<(usize, usize, u64, u64)> = Vec::new();
    let mut at = FIRST_RECORD as usize;
    while let (Some(lsn), Some(synced), Some(length)) =
        (u64_at(at + 24), u64_at(at + 32), u64_at(at + 40))
    {
        let length = HEADER_BYTES + (length as u32 as usize).next_multiple_of(8);
        let follows = all.last().is_none_or(|last| last.2 + last.1 as u64 == lsn);
        if !follows || at + length > bytes.len() {
            break;
        }
        all.push((at, length, lsn, synced));
        at += length;
    }
    all
}

impl World {
    pub(crate) fn rot(&mut self, kind: u8) {
        let id = self.victim();
        let memory = self.node(id).memory.clone();
        let durable = memory.power_cut(0, PowerCut::Lost);
        let is_segment =
            |path: &std::path::PathBuf| path.starts_with(Path::new(DIR).join("segments"));
        let paths: Vec<_> = durable.paths().into_iter().filter(is_segment).collect();
        let all = paths
            .iter()
            .map(|path| records(&durable.read(path).unwrap()));
        let all: Vec<_> = all.collect();
        let synced = all
            .iter()
            .flatten()
            .map(|record| record.3)
            .max()
            .unwrap_or(0);
        let known: Vec<(usize, (usize, usize, u64, u64))> = all
            .iter()
            .enumerate()
            .flat_map(|(path, records)| records.iter().map(move |record| (path, *record)))
            .filter(|(_, record)| record.2 + record.1 as u64 <= synced)
            .collect();
        if known.is_empty() {
            return;
        }
        count("rot");
        for _ in 0..=kind % 3 {
            let (path, (at, length, lsn, _)) = known[self.random.usize(..known.len())];
            let Some(mut bytes) = memory.read(&paths[path]) else {
                continue;
            };
            // In the header, in the payload, or some bytes anywhere.
            let from = at
                + match kind / 3 % 3 {
                    0 => self.random.usize(..HEADER_BYTES),
                    _ => self.random.usize(..length),
                };
            let many = if kind & 64 == 0 {
                1
            } else {
                self.random.usize(1..200)
            };
            for byte in bytes.iter_mut().take(at + length).skip(from).take(many) {
                *byte ^= self.random.u8(1..);
            }
            self.say(|| format!("  rot at {}:{from}, LSN {lsn}", paths[path].display()));
            memory.write(&paths[path], &bytes);
        }
    }

    /// Bytes of a file of the victim's map change. Its operator replaces it once it is seen, or when
    /// all is healed: until then it is a lost disk, of which there is one at a time.
    pub(crate) fn rot_map(&mut self, kind: u8) {
        let id = self.victim();
        let is_whole = !self.is_rotten && self.changing.is_none() && self.members.len() > 2;
        if !is_whole || !self.members.contains(&id) || self.node(id).core.is_none() {
            return;
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
    }
}
