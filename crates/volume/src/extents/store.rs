//! The segments of a node: appending, and removal.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_fs::Fs;
use xxhash_rust::xxh3::Xxh3;

use super::batch::Batch;
use super::folder::{Folder, SEGMENT_HEADER, SegmentHeader};
use super::reader::Reader;
use super::record::{ALIGNMENT, HEADER_BYTES, Kind, MOST_PAYLOAD, RecordHeader, occupied};
use super::recover::recover;
use super::scan::{Found, Scan};
use super::shared::Shared;
use crate::bytes::Bytes;
use crate::command::checksum;
use crate::error::{Error, Result};
use crate::ids::{Ballot, DiskId, GroupId};
use crate::place::Place;

/// What fills a record up.
const ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// How segments are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a segment. One that begins with more, or with a larger record, is longer.
    pub segment_bytes: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            segment_bytes: 64 << 20,
        }
    }
}

/// A `Base` record to begin a segment with: what a group needs to be read from there on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The group.
    pub group: GroupId,
    /// Its last slot before the segment.
    pub slot: u64,
    /// Its ballot.
    pub ballot: Ballot,
    /// What else it needs.
    pub payload: Vec<u8>,
}

/// A record to append: its payload is the concatenation of `parts` and `data`.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Kind,
    /// The group.
    pub group: GroupId,
    /// The slot.
    pub slot: u64,
    /// The ballot.
    pub ballot: Ballot,
    /// What its payload begins with.
    pub parts: &'a [&'a [u8]],
    /// What its payload ends with. Where that is long it is not copied, and stays in memory until
    /// it is written.
    pub data: &'a Bytes,
    /// The checksum of its payload, where that is known.
    pub checksum: Option<u64>,
}

/// Where a record was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Where the record begins.
    pub place: Place,
    /// Where its payload begins.
    pub payload: Place,
    /// The record is durable when everything up to this LSN is.
    pub lsn_end: u64,
}

/// What is known of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: u32,
    /// Bytes of its file.
    pub bytes: u64,
    /// The largest slot of each group's entries. Empty also where opening did not read the segment.
    pub slots: BTreeMap<GroupId, u64>,
    /// True when [`Extents::remove`] would not refuse it.
    pub is_removable: bool,
    /// How many pins hold it.
    pub pins: usize,
}

struct Segment {
    bytes: u32,
    /// The LSN of the end of the records that it begins with.
    heads: u64,
    slots: BTreeMap<GroupId, u64>,
}

/// The append-only segments of a node, shared by all groups. One thread owns it; batches and
/// readers are for others.
pub struct Extents {
    shared: Arc<Shared>,
    settings: Settings,
    segments: BTreeMap<u32, Segment>,
    /// The segment that is appended to. None that an earlier process wrote.
    current: Option<u32>,
    next_number: u32,
    end: u64,
    synced: u64,
    /// Durable records say that everything before this LSN is synced.
    stated: u64,
    /// What the last record says.
    last_stated: u64,
    /// Batches that were taken: their ends, and what their records say.
    taken: VecDeque<(u64, u64)>,
    /// Segments that have records for the next batch, rising.
    pending: Vec<u32>,
}

impl Extents {
    /// Makes the folder that of an empty disk. Durable when it returns.
    ///
    /// # Errors
    /// `Formatted` where it is formatted already, and those of writing.
    pub fn format(fs: Arc<dyn Fs>, dir: &Path, disk: DiskId) -> Result<()> {
        if Folder::find(fs.clone(), dir)?.is_some() {
            return Err(Error::Formatted {
                path: dir.to_path_buf(),
            });
        }
        Folder::format(fs, dir, disk)
    }

    /// The disk that the folder was formatted as, where it was.
    ///
    /// # Errors
    /// `Corruption` where it was and the damage leaves no trace of which; `NewerFormat`; those of
    /// reading.
    pub fn is_formatted(fs: Arc<dyn Fs>, dir: &Path) -> Result<Option<DiskId>> {
        Ok(Folder::find(fs, dir)?.map(|folder| folder.disk))
    }

    /// Opens the folder and reads back its records, in order, from the segment `from` on, or from
    /// the oldest one. What an interrupted write left is cut, and what was found is durable when
    /// this returns.
    ///
    /// # Errors
    /// `NotFormatted`, `OtherDisk`, `NewerFormat`, those of reading, writing and `visit`. Damage of
    /// records is no error, but found.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        settings: Settings,
        from: Option<u32>,
        visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<Extents> {
        let folder = Folder::find(fs, dir)?.ok_or_else(|| Error::NotFormatted {
            path: dir.to_path_buf(),
        })?;
        folder.remove_unfinished()?;
        folder.restore_identity()?;
        let numbers = folder.numbers()?;
        let scanned = Scan::run(&folder, &numbers, from.unwrap_or(0), visit)?;
        let last_number = scanned.last_number;
        let recovered = recover(&folder, scanned)?;
        let mut segments = BTreeMap::new();
        let is_unread = |number: &&u32| recovered.kept.first().is_none_or(|k| k.number > **number);
        for &number in numbers.iter().take_while(is_unread) {
            let path = folder.segment(number);
            if !folder.fs.exists(&path) {
                continue;
            }
            let file = folder.open(&path)?;
            let bytes = u32::try_from(folder.len(&*file, &path)?).unwrap_or(u32::MAX);
            let segment = Segment {
                bytes,
                heads: 0,
                slots: BTreeMap::new(),
            };
            segments.insert(number, segment);
        }
        for read in recovered.kept {
            let records = u64::from(read.valid.saturating_sub(SEGMENT_HEADER));
            let segment = Segment {
                bytes: read.valid,
                heads: read.first + records,
                slots: read.slots,
            };
            segments.insert(read.number, segment);
        }
        let lens: Vec<(u32, u32)> = segments.iter().map(|(n, s)| (*n, s.bytes)).collect();
        let shared = Shared::new(folder, settings.segment_bytes, lens.into_iter());
        let written = recovered.written;
        shared.written.store(written, Ordering::Relaxed);
        Ok(Extents {
            shared: Arc::new(shared),
            settings,
            segments,
            current: None,
            next_number: last_number.saturating_add(1),
            end: recovered.end,
            synced: recovered.synced,
            stated: recovered.stated,
            last_stated: recovered.stated,
            taken: VecDeque::new(),
            pending: Vec::new(),
        })
    }

    /// The disk.
    pub fn disk(&self) -> DiskId {
        self.shared.folder.disk
    }

    /// Appends a record, in memory: the next batch writes it. The payload is the concatenation of
    /// `parts`. Where a new segment begins, it begins with the records that `heads` returns: one
    /// for each group, as of before this record.
    ///
    /// # Errors
    /// `Poisoned` after a batch has failed, or `DiskFull` where that was why; `Limit` where the
    /// payload is too long.
    pub fn append(
        &mut self,
        kind: Kind,
        group: GroupId,
        slot: u64,
        ballot: Ballot,
        parts: &[&[u8]],
        heads: &mut dyn FnMut() -> Vec<Head>,
    ) -> Result<Placed> {
        let record = Record {
            kind,
            group,
            slot,
            ballot,
            parts,
            data: &Bytes::default(),
            checksum: None,
        };
        self.append_record(&record, heads)
    }

    /// As [`Extents::append`]; long data are not copied.
    ///
    /// # Errors
    /// Those of [`Extents::append`].
    pub fn append_record(
        &mut self,
        record: &Record<'_>,
        heads: &mut dyn FnMut() -> Vec<Head>,
    ) -> Result<Placed> {
        self.shared.check()?;
        let Record {
            kind,
            group,
            slot,
            ballot,
            parts,
            data,
            checksum: known,
        } = *record;
        let len = length(parts, data)?;
        debug_assert!(known.is_none_or(|known| known == payload_checksum(parts, data)));
        let number = match self.current {
            Some(number) if self.has_room(number, len) => number,
            _ => self.begin(&heads())?,
        };
        // The slot of such a record has a meaning of its own.
        let slot = match kind {
            Kind::Sync => 0,
            _ => slot,
        };
        let header = RecordHeader {
            kind,
            group,
            slot,
            ballot,
            lsn: self.end,
            synced: self.synced,
            bytes: len,
            checksum: known.unwrap_or_else(|| payload_checksum(parts, data)),
        };
        self.put(number, header, parts, data)
    }

    fn has_room(&self, number: u32, payload: u32) -> bool {
        let segment = self.segments.get(&number);
        segment.is_some_and(|segment| {
            let is_begun = self.end == segment.heads;
            let after = u64::from(segment.bytes) + occupied(payload);
            is_begun || after <= u64::from(self.settings.segment_bytes)
        })
    }

    /// Begins a segment.
    fn begin(&mut self, heads: &[Head]) -> Result<u32> {
        let mut all = u64::from(SEGMENT_HEADER) + occupied(MOST_PAYLOAD);
        for head in heads {
            all += occupied(length(&[&head.payload], &[])?);
        }
        let limit = u64::from(u32::MAX);
        if all > limit {
            return Err(Error::Limit {
                what: "the bytes that a segment begins with",
                limit,
                value: all,
            });
        }
        let number = self.next_number;
        let header = SegmentHeader {
            disk: self.disk(),
            number,
            first: self.end,
            synced: self.synced,
        };
        self.shared
            .append(number, |pieces| pieces.push(&header.encode()));
        let segment = Segment {
            bytes: SEGMENT_HEADER,
            heads: self.end,
            slots: BTreeMap::new(),
        };
        self.segments.insert(number, segment);
        self.current = Some(number);
        self.next_number = number.saturating_add(1);
        for head in heads {
            let parts: &[&[u8]] = &[&head.payload];
            let header = RecordHeader {
                kind: Kind::Base,
                group: head.group,
                slot: head.slot,
                ballot: head.ballot,
                lsn: self.end,
                synced: self.synced,
                bytes: length(parts, &[])?,
                checksum: payload_checksum(parts, &[]),
            };
            self.put(number, header, parts, &Bytes::default())?;
        }
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.heads = self.end;
        }
        Ok(number)
    }

    /// Places a record.
    fn put(
        &mut self,
        number: u32,
        header: RecordHeader,
        parts: &[&[u8]],
        data: &Bytes,
    ) -> Result<Placed> {
        let Some(segment) = self.segments.get_mut(&number) else {
            return Err(Error::Gone { segment: number });
        };
        let place = Place {
            segment: number,
            offset: segment.bytes,
        };
        let bytes = occupied(header.bytes) as usize;
        let mut head = Vec::with_capacity(HEADER_BYTES);
        header.encode(self.shared.folder.disk, place, &mut head);
        let padding = bytes - HEADER_BYTES - header.bytes as usize;
        self.shared.append(number, |pieces| {
            pieces.push(&head);
            parts.iter().for_each(|part| pieces.push(part));
            pieces.push_shared(data);
            pieces.push(ZEROS.get(..padding).unwrap_or_default());
        });
        segment.bytes = segment.bytes.saturating_add(bytes as u32);
        self.end += bytes as u64;
        if header.kind == Kind::Entry {
            let slot = segment.slots.entry(header.group).or_default();
            *slot = header.slot.max(*slot);
        }
        self.last_stated = header.synced;
        if self.pending.last() != Some(&number) {
            self.pending.push(number);
        }
        Ok(Placed {
            place,
            payload: Place {
                offset: place.offset + HEADER_BYTES as u32,
                ..place
            },
            lsn_end: self.end,
        })
    }

    /// Everything that was appended since the last call; `None` where that is nothing.
    pub fn take_batch(&mut self) -> Option<Batch> {
        let pending = std::mem::take(&mut self.pending);
        let chunks = pending.into_iter();
        let chunks = chunks.filter_map(|n| Some((n, self.shared.take(n)?)));
        let chunks: Vec<_> = chunks.collect();
        if chunks.is_empty() {
            return None;
        }
        self.taken.push_back((self.end, self.last_stated));
        Some(Batch::new(self.shared.clone(), chunks, self.end))
    }

    /// The batch that returned this LSN is synced: later records say so.
    pub fn batch_done(&mut self, lsn_end: u64) {
        self.synced = self.synced.max(lsn_end);
        while let Some(&(end, stated)) = self.taken.front()
            && end <= lsn_end
        {
            self.stated = self.stated.max(stated);
            self.taken.pop_front();
        }
    }

    /// The LSN of the next record.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Everything before this LSN is synced.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// A reader of all segments, for any thread.
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.clone())
    }

    /// The number of the newest segment.
    pub fn newest(&self) -> Option<u32> {
        self.segments.last_key_value().map(|(number, _)| *number)
    }

    /// The segments that exist, rising.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let durable = self.last_durable();
        let infos = self.segments.iter().map(|(&number, segment)| SegmentInfo {
            number,
            bytes: u64::from(segment.bytes),
            slots: segment.slots.clone(),
            is_removable: durable.is_some_and(|durable| number < durable),
            pins: self.shared.pins(number),
        });
        infos.collect()
    }

    /// The last segment of which durable records say that what it begins with is synced. Were those
    /// before it removed without such a record, reading back would take the gap for the end.
    fn last_durable(&self) -> Option<u32> {
        let mut segments = self.segments.iter().rev();
        let durable = segments.find(|(_, segment)| segment.heads <= self.stated);
        durable.map(|(&number, _)| number)
    }

    /// Removes a segment. Its live data were moved, and the logs that it holds cut, as of durable
    /// states.
    ///
    /// # Errors
    /// Those of [`Extents::give_up`] and [`Reader::unlink`].
    pub fn remove(&mut self, segment: u32) -> Result<()> {
        self.give_up(segment)?;
        self.reader().unlink(&[segment])
    }

    /// Takes a segment out of use, as [`Extents::remove`]. Its file stays until it is unlinked.
    ///
    /// # Errors
    /// `InUse` where a power cut could leave nothing that says what the segment says
    /// ([`SegmentInfo::is_removable`]); `Gone` where there is no such segment; those of opening.
    pub fn give_up(&mut self, segment: u32) -> Result<()> {
        if !self.segments.contains_key(&segment) {
            return Err(Error::Gone { segment });
        }
        if self.last_durable().is_none_or(|durable| segment >= durable) {
            return Err(Error::InUse { segment });
        }
        let path = self.shared.folder.segment(segment);
        let file = self.shared.folder.open(&path)?;
        self.shared.remove(segment, file);
        self.segments.remove(&segment);
        Ok(())
    }

    /// Gives back the space that is reserved and not used yet, and that of former segments. No
    /// batch may be running.
    pub fn unreserve(&self) {
        self.shared.give_spares_back();
        // Where it stays, opening the folder again cuts it.
        drop(self.shared.cut_zeros());
        self.shared.unreserve();
    }

    /// Counts bytes that were written before the folder was opened again.
    pub fn count_written(&self, bytes: u64) {
        self.shared.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were written to segments since the folder was opened, by opening too.
    pub fn bytes_written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }
}

fn payload_checksum(parts: &[&[u8]], data: &[u8]) -> u64 {
    match (parts, data) {
        ([part], []) => checksum(part),
        ([], part) => checksum(part),
        _ => {
            let mut sum = Xxh3::new();
            parts.iter().for_each(|part| sum.update(part));
            sum.update(data);
            sum.digest()
        }
    }
}

fn length(parts: &[&[u8]], data: &[u8]) -> Result<u32> {
    let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>() + data.len() as u64;
    match u32::try_from(bytes) {
        Ok(len) if len <= MOST_PAYLOAD => Ok(len),
        _ => Err(Error::Limit {
            what: "the bytes of a record's payload",
            limit: u64::from(MOST_PAYLOAD),
            value: bytes,
        }),
    }
}
