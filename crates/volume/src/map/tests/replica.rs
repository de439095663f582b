//! A map with the log that it applies, and the segments that it refers to.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use esker_sim::memory::{Memory, PowerCut};

use super::model::{Content, Model};
use crate::command::Command;
use crate::error::Error;
use crate::ids::{Ballot, GroupId, LayerId, Slot, VolumeId};
use crate::map::{Applied, Extent, ImageEntry, Map, Run, Source};
use crate::place::Place;

/// Blocks of a volume.
pub(super) const BLOCKS: u64 = 64;
const SEGMENT: u32 = 96 << 10;

/// By group, commands from slot 1 on, and what became of them when they were first applied.
#[derive(Default)]
pub(super) struct Log(pub(super) BTreeMap<GroupId, Vec<(Command, Option<Applied>)>>);

pub(super) struct Replica {
    pub(super) memory: Memory,
    /// None while it is being opened.
    pub(super) map: Option<Map>,
    next: Place,
    /// Where the data of writes are.
    places: HashMap<(GroupId, Slot), Place>,
    /// The checksum of the block here, and who wrote it.
    disk: HashMap<Place, (u64, Source)>,
    /// The slots in each segment.
    slots: HashMap<u32, Vec<(GroupId, Slot)>>,
}

impl Replica {
    /// A replica whose segments begin with `segment`.
    pub(super) fn new(segment: u32) -> Replica {
        let mut replica = Replica {
            memory: Memory::new(),
            map: None,
            next: Place {
                segment,
                offset: 64,
            },
            places: HashMap::new(),
            disk: HashMap::new(),
            slots: HashMap::new(),
        };
        replica.open();
        replica
    }

    pub(super) fn map(&self) -> &Map {
        self.map.as_ref().unwrap()
    }

    fn open(&mut self) {
        let fs = Arc::new(self.memory.clone());
        let map = Map::open_with(fs, Path::new("/map"), 512 << 10, false).unwrap();
        self.map = Some(map);
    }

    /// The power is cut, and comes back.
    pub(super) fn crash(&mut self, seed: u64, mode: PowerCut) {
        let durable = self.map().durable();
        let cut = self.memory.power_cut(seed, mode);
        self.map = None;
        self.memory = cut;
        self.open();
        for (group, slot) in durable {
            let map = self.map();
            let is_there = map.is_incomplete(group) || map.applied(group) >= slot;
            assert!(is_there, "group {group} was durable up to {slot}");
        }
    }

    fn place(&mut self, bytes: u32) -> Place {
        if self.next.offset + bytes > SEGMENT {
            self.next = Place {
                segment: self.next.segment + 1,
                offset: 64,
            };
        }
        let place = self.next;
        self.next.offset += bytes + 64;
        place
    }

    /// Applies the next command of a group. False where there is none.
    pub(super) fn apply(
        &mut self,
        log: &mut Log,
        block_sizes: &HashMap<VolumeId, u32>,
        group: GroupId,
    ) -> bool {
        let slot = self.map().applied(group).next();
        let entries = log.0.entry(group).or_default();
        let Some((command, outcome)) = entries.get_mut(slot.0 as usize - 1) else {
            return false;
        };
        let data = match &*command {
            Command::Write {
                blocks, checksums, ..
            } => {
                let size = block_sizes[&blocks.volume];
                let known = self.places.get(&(group, slot)).copied();
                let place = known.unwrap_or_else(|| {
                    let place = self.place(size * blocks.count);
                    for (at, sum) in checksums.iter().enumerate() {
                        let offset = place.offset + size * at as u32;
                        let block = Place { offset, ..place };
                        self.disk
                            .insert(block, (*sum, Source::Volume(blocks.volume)));
                    }
                    self.slots
                        .entry(place.segment)
                        .or_default()
                        .push((group, slot));
                    self.places.insert((group, slot), place);
                    place
                });
                assert!(self.disk.contains_key(&place), "slot {slot} was removed");
                Some(place)
            }
            _ => None,
        };
        let applied = self
            .map()
            .apply(group, slot, Ballot(slot.0 / 10), command, data)
            .unwrap();
        match outcome {
            Some(before) => assert_eq!(*before, applied, "group {group}, slot {slot}: {command:?}"),
            None => *outcome = Some(applied),
        }
        true
    }

    /// Copies what is live in a segment, as vacuum does.
    pub(super) fn vacuum(&mut self, segment: u32) {
        let mut live = self.map().live_blocks(Some(segment));
        let mut moves = Vec::new();
        while let Some(block) = live.next_block().unwrap() {
            moves.push(block);
        }
        for block in moves {
            let from = block.extent.place;
            let (checksum, source) = self.disk[&from];
            let found = self
                .map()
                .refers(block.group, source, block.block, from)
                .unwrap();
            assert_eq!(found, Some(block.layer), "{source:?}");
            let size = self.block_size(block.group, block.layer);
            let to = self.place(size);
            self.disk.insert(to, (checksum, Source::Layer(block.layer)));
            let wrong = Place {
                segment: u32::MAX,
                offset: 0,
            };
            let map = self.map();
            let moved = |from| {
                map.moved(block.group, block.layer, block.block, from, to)
                    .unwrap()
            };
            assert!(!moved(wrong) && moved(from) && !moved(from));
        }
        assert_eq!(self.map().usage().get(&segment), None);
    }

    /// The segments that nothing is added to, and that have live data.
    pub(super) fn segments(&self) -> Vec<u32> {
        let usage = self.map().usage();
        usage
            .range(..self.next.segment)
            .map(|(segment, _)| *segment)
            .collect()
    }

    /// Removes the segments that nothing needs.
    pub(super) fn remove_segments(&mut self) -> usize {
        let durable: HashMap<GroupId, Slot> = self.map().durable().into_iter().collect();
        let free = self.map().free_segments();
        assert!(free.iter().all(|segment| self.map().is_free(*segment)));
        let mut segments: Vec<u32> = self.disk.keys().map(|place| place.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        let mut removed = 0;
        for segment in segments {
            let slots = self
                .slots
                .get(&segment)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let mut slots = slots.iter();
            let is_applied =
                slots.all(|(group, slot)| durable.get(group).is_some_and(|d| slot <= d));
            if segment < self.next.segment && is_applied && self.map().is_free(segment) {
                self.disk.retain(|place, _| place.segment != segment);
                self.map().forget_segment(segment);
                removed += 1;
            }
        }
        removed
    }

    fn block_size(&self, group: GroupId, layer: LayerId) -> u32 {
        self.map().writer.lock().groups[&group]
            .layers
            .block_size(layer)
    }

    /// Live bytes, counted.
    pub(super) fn check_usage(&self) {
        let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
        let mut live = self.map().live_blocks(None);
        while let Some(block) = live.next_block().unwrap() {
            let place = block.extent.place;
            assert_eq!(
                self.disk.get(&place).map(|(sum, _)| *sum),
                Some(block.extent.checksum)
            );
            let size = self.block_size(block.group, block.layer);
            *counted.entry(place.segment).or_default() += u64::from(size);
        }
        assert_eq!(self.map().usage(), counted);
    }

    fn check_blocks(&self, found: Vec<Option<Extent>>, first: u64, content: &Content) {
        for (block, found) in (first..).zip(found) {
            assert_eq!(
                found.map(|e| e.checksum),
                content.get(&block).copied(),
                "block {block}"
            );
            if let Some(extent) = found {
                assert_eq!(
                    self.disk.get(&extent.place).map(|(sum, _)| *sum),
                    Some(extent.checksum)
                );
            }
        }
    }

    /// Compares a group that has applied the whole log with the model.
    pub(super) fn check(&self, group: GroupId, model: &Model, rng: &mut fastrand::Rng) {
        let map = self.map();
        for (id, volume) in &model.volumes {
            self.check_blocks(
                map.lookup(group, *id, 0, BLOCKS as u32).unwrap(),
                0,
                &volume.content,
            );
            let first = rng.u64(0..BLOCKS);
            let few = map.lookup(group, *id, first, 3).unwrap();
            assert_eq!(few.len(), 3);
            self.check_blocks(few, first, &volume.content);
            let runs = map
                .allocated(group, *id, (first, BLOCKS - first), 1000)
                .unwrap();
            let is_data = (first..BLOCKS).map(|block| volume.content.contains_key(&block));
            let told = runs
                .iter()
                .flat_map(|run| (0..run.blocks).map(|_| run.is_data));
            assert!(is_data.eq(told), "{runs:?}");
            assert!(runs.windows(2).all(|two| two[0].is_data != two[1].is_data));
            let two: Vec<Run> = runs.iter().take(2).copied().collect();
            assert_eq!(
                map.allocated(group, *id, (first, BLOCKS - first), 2)
                    .unwrap(),
                two
            );
            assert_eq!(map.is_held(group, *id), model.is_held(*id));
        }
        for (layer, (_, _, content)) in &model.snapshots {
            let found = map.lookup_layer(group, *layer, 0, BLOCKS as u32).unwrap();
            self.check_blocks(found, 0, content);
        }
        let unknown = map.lookup(group, VolumeId(u32::MAX), 0, 1);
        assert!(matches!(unknown, Err(Error::UnknownVolume { .. })));
        let unknown = map.lookup_layer(group, LayerId(u32::MAX), 0, 1);
        assert!(matches!(unknown, Err(Error::UnknownLayer { .. })));
    }

    /// Replaces a group by another replica's image. Stops after `most` chunks, if so many there
    /// are: false then.
    pub(super) fn install(
        &mut self,
        from: &Replica,
        group: GroupId,
        bytes: usize,
        most: usize,
    ) -> bool {
        let image = from.map().image(group).unwrap();
        let mut encoded = Vec::new();
        image.meta().encode(&mut encoded);
        let meta =
            super::super::ImageMeta::decode(&mut esker_coding::Reader::new(&encoded)).unwrap();
        assert_eq!(meta, *image.meta());
        self.map().begin_install(group, &meta).unwrap();
        let early = self.map().install_chunk(group, &[]);
        assert!(matches!(early, Err(Error::NotInstalling { .. })));
        while !self.map().clear_former(group, 10).unwrap() {}
        assert!(self.map().clear_former(group, 10).unwrap());
        assert!(self.map().is_incomplete(group));
        assert!(matches!(
            self.map().state_hash(group),
            Err(Error::Incomplete { .. })
        ));
        let (mut after, mut chunks) = (None, 0);
        loop {
            if chunks == most {
                return false;
            }
            let chunk = image.chunk(after.as_deref(), bytes).unwrap();
            let entries = chunk.entries.iter().map(|entry| {
                let extent = entry.extent.map(|extent| {
                    assert!(image.segments().contains(&extent.place.segment));
                    assert_eq!(from.disk[&extent.place].0, extent.checksum);
                    let place = self.place(meta.block_size(entry.layer).unwrap());
                    let source = Source::Layer(entry.layer);
                    self.disk.insert(place, (extent.checksum, source));
                    Extent { place, ..extent }
                });
                ImageEntry { extent, ..*entry }
            });
            let entries: Vec<ImageEntry> = entries.collect();
            // A chunk that is sent again changes nothing.
            self.map().install_chunk(group, &entries).unwrap();
            self.map().install_chunk(group, &entries).unwrap();
            chunks += 1;
            after = chunk.after;
            if after.is_none() {
                break;
            }
        }
        self.map()
            .finish_install(group, meta.slot, meta.ballot)
            .unwrap();
        assert_eq!(self.map().applied(group), meta.slot);
        true
    }
}
