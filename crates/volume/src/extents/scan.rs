//! Reading back: which records are there, what was lost, where the log ends.
//!
//! LSNs say what should be where. Damage at an LSN that was synced (a later record says so) is a
//! loss; other damage is the end of what an interrupted write left.

use std::collections::BTreeMap;

use super::folder::{Folder, SEGMENT_HEADER};
use super::record::{ALIGNMENT, Kind, RecordHeader};
use super::window::{Unit, Window};
use crate::error::{Error, Result};
use crate::ids::GroupId;
use crate::place::Place;

/// What reading back finds, in order.
#[derive(Debug)]
pub enum Found<'a> {
    /// A record.
    Record {
        /// Its header.
        header: &'a RecordHeader,
        /// Where it begins.
        place: Place,
        /// Its payload.
        payload: &'a [u8],
    },
    /// Something that was durable is damaged or missing.
    Loss {
        /// The segment.
        segment: u32,
        /// Where the damage begins in it.
        offset: u32,
        /// Whose it was.
        groups: Loss,
    },
}

/// What was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The header of the segment. No record is in it, so no group lost anything.
    Header,
    /// The payload of this record.
    Record(RecordHeader),
    /// Records whose headers are unreadable: any group may have lost entries, votes or members
    /// there.
    Unknown {
        /// Bytes that are lost.
        bytes: u64,
    },
}

/// A segment that was read.
pub(super) struct Read {
    pub(super) number: u32,
    /// The LSN of the first record.
    pub(super) first: u64,
    /// Where the records end in the file.
    pub(super) valid: u32,
    /// Bytes of the file.
    pub(super) len: u32,
    /// The LSN of the last record that says something of a group.
    pub(super) last: Option<u64>,
    /// True while only records that begin a segment were seen.
    only_heads: bool,
    /// The largest slot of each group's entries.
    pub(super) slots: BTreeMap<GroupId, u64>,
}

impl Read {
    fn new(number: u32, first: u64, len: u32) -> Read {
        Read {
            number,
            first,
            valid: SEGMENT_HEADER,
            len,
            last: None,
            only_heads: true,
            slots: BTreeMap::new(),
        }
    }

    fn note(&mut self, header: &RecordHeader) {
        match header.kind {
            Kind::Sync => return,
            Kind::Base => {}
            _ => self.only_heads = false,
        }
        self.last = Some(header.lsn);
        if header.kind == Kind::Entry {
            let slot = self.slots.entry(header.group).or_default();
            *slot = header.slot.max(*slot);
        }
    }

    /// Where the record with this LSN begins.
    pub(super) fn offset(&self, lsn: u64) -> Option<u32> {
        let behind = u32::try_from(lsn.checked_sub(self.first)?).ok()?;
        behind.checked_add(SEGMENT_HEADER)
    }
}

/// The outcome of reading back.
pub(super) struct Scanned {
    /// Segments that were read, in order.
    pub(super) kept: Vec<Read>,
    /// Segments that are behind the end.
    pub(super) void: Vec<u32>,
    /// The LSN of the end.
    pub(super) end: u64,
    /// The largest LSN of which a record says that everything before it is synced.
    pub(super) synced: u64,
    /// The largest number that a segment had, as far as is known.
    pub(super) last_number: u32,
}

/// Reads segments back.
pub(super) struct Scan<'a, 'v> {
    folder: &'a Folder,
    /// The segments to read, rising.
    numbers: &'a [u32],
    /// True when no segment before these exists.
    is_all: bool,
    /// The first segment that `visit` is called for.
    visit_from: u32,
    visit: &'v mut dyn FnMut(Found<'_>) -> Result<()>,
    synced: u64,
    /// True when `synced` counts all records there are.
    is_settled: bool,
    /// The LSN at which the next segment should begin.
    expected: Option<u64>,
    /// True when the loss of what precedes the next segment was reported.
    is_loss_open: bool,
    /// Segments after the current one up to this number were cut in an earlier life.
    void_to: u32,
    is_cut: bool,
    kept: Vec<Read>,
    void: Vec<u32>,
}

impl<'a, 'v> Scan<'a, 'v> {
    /// Reads the segments `all` from `from` on.
    pub(super) fn run(
        folder: &'a Folder,
        all: &'a [u32],
        from: u32,
        visit: &'v mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<Scanned> {
        let start = start(folder, all, from)?;
        let mut scan = Scan {
            folder,
            numbers: all.get(start..).unwrap_or_default(),
            is_all: start == 0,
            visit_from: from,
            visit,
            synced: 0,
            is_settled: false,
            expected: None,
            is_loss_open: false,
            void_to: 0,
            is_cut: false,
            kept: Vec::new(),
            void: Vec::new(),
        };
        for (at, &number) in scan.numbers.iter().enumerate() {
            if scan.is_cut || number <= scan.void_to {
                scan.void.push(number);
            } else if !scan.segment(at, number)? {
                scan.is_cut = true;
                scan.void.push(number);
            }
        }
        let mut end = scan.expected.unwrap_or(0).max(scan.synced);
        // A segment that was only begun says nothing new, and may not have what all groups need.
        while let Some(last) = scan.kept.last()
            && last.only_heads
            && last.first >= scan.synced
        {
            end = last.first;
            scan.void.push(last.number);
            scan.kept.pop();
        }
        scan.void.sort_unstable();
        let last_number = all.last().copied().unwrap_or(0).max(scan.void_to);
        Ok(Scanned {
            kept: scan.kept,
            void: scan.void,
            end,
            synced: scan.synced,
            last_number,
        })
    }

    /// Reads a segment; false where it is behind the end.
    fn segment(&mut self, at: usize, number: u32) -> Result<bool> {
        let mut window = Window::open(self.folder, number)?;
        let header = self.folder.header(number)?;
        let first = match header {
            Some(header) => {
                self.synced = self.synced.max(header.synced);
                Some(header.first)
            }
            None => window.next_header(SEGMENT_HEADER)?.and_then(|found| {
                let behind = u64::from(found.0 - SEGMENT_HEADER);
                found.1.lsn.checked_sub(behind)
            }),
        };
        let Some(first) = first else {
            return self.unreadable(at, number, window.len);
        };
        if !self.follows(at, number, first)? {
            return Ok(false);
        }
        if header.is_none() {
            if !self.is_synced(at, 0, first)? {
                return Ok(false);
            }
            self.lose(number, 0, Loss::Header)?;
        }
        self.is_loss_open = false;
        let read = Read::new(number, first, window.len);
        self.records(at, &mut window, read)?;
        Ok(true)
    }

    /// A segment without a single header.
    fn unreadable(&mut self, at: usize, number: u32, len: u32) -> Result<bool> {
        let end = self.expected.unwrap_or(0);
        if !self.is_synced(at, 0, end)? {
            return Ok(false);
        }
        let bytes = u64::from(len);
        self.lose(number, 0, Loss::Unknown { bytes })?;
        self.is_loss_open = true;
        let mut read = Read::new(number, end, len);
        read.valid = len;
        self.kept.push(read);
        Ok(true)
    }

    /// Compares where a segment begins with where the one before ended; false where it is behind
    /// the end.
    fn follows(&mut self, at: usize, number: u32, first: u64) -> Result<bool> {
        match self.expected {
            Some(end) if first < end => {
                let what = format!("begins at LSN {first}, and the one before ends at {end}");
                let path = self.folder.segment(number);
                return Err(Error::corruption(&path, 0, what));
            }
            Some(end) if first > end => {
                if !self.is_synced(at, 0, end)? {
                    return Ok(false);
                }
                let before = self.kept.last().map(|read| (read.number, read.len));
                // Segments whose numbers are missing were removed.
                if let Some((before, len)) = before
                    && !self.is_loss_open
                    && before + 1 == number
                {
                    let bytes = first - end;
                    self.lose(before, len, Loss::Unknown { bytes })?;
                }
            }
            None if self.is_all && first > 0 => {}
            _ => return Ok(true),
        }
        let is_synced = self.is_synced(at, 0, first - 1)?;
        if !is_synced {
            self.expected = Some(self.synced);
        }
        Ok(is_synced)
    }

    /// Reads the records of a segment, up to the end of the segment or of all.
    fn records(&mut self, at: usize, window: &mut Window<'_>, mut read: Read) -> Result<()> {
        let (number, first) = (read.number, read.first);
        let mut offset = u64::from(SEGMENT_HEADER);
        while let Some(here) = u32::try_from(offset).ok().filter(|here| *here < window.len) {
            let lsn = first + (offset - u64::from(SEGMENT_HEADER));
            match window.unit(here)? {
                Unit::Record(header, payload) if header.lsn == lsn => {
                    self.synced = self.synced.max(header.synced);
                    read.note(&header);
                    if header.kind == Kind::Sync {
                        self.void_to = self
                            .void_to
                            .max(u32::try_from(header.slot).unwrap_or(u32::MAX));
                    }
                    if number >= self.visit_from {
                        let place = Place {
                            segment: number,
                            offset: here,
                        };
                        (self.visit)(Found::Record {
                            header: &header,
                            place,
                            payload,
                        })?;
                    }
                    offset += header.occupied();
                    continue;
                }
                Unit::Damaged(header) if header.lsn == lsn && self.is_synced(at, here, lsn)? => {
                    read.note(&header);
                    self.lose(number, here, Loss::Record(header))?;
                    offset += header.occupied();
                    continue;
                }
                _ if self.is_synced(at, here, lsn)? => {
                    let next = window.next_header(here.saturating_add(ALIGNMENT as u32))?;
                    let Some((next, header)) = next else {
                        let bytes = u64::from(window.len - here);
                        self.lose(number, here, Loss::Unknown { bytes })?;
                        self.is_loss_open = true;
                        self.keep(read, u64::from(window.len), lsn);
                        return Ok(());
                    };
                    // Behind what was synced may be damage too: it ends the log.
                    let is_all = self.is_synced(at, next, header.lsn.saturating_sub(1))?;
                    let bytes = if is_all {
                        u64::from(next - here)
                    } else {
                        self.synced.saturating_sub(lsn)
                    };
                    self.lose(number, here, Loss::Unknown { bytes })?;
                    offset += bytes;
                    if is_all {
                        continue;
                    }
                }
                _ => {}
            }
            window.check_read(here)?;
            self.is_cut = true;
            break;
        }
        self.keep(read, offset, first + (offset - u64::from(SEGMENT_HEADER)));
        Ok(())
    }

    fn keep(&mut self, mut read: Read, valid: u64, end: u64) {
        read.valid = u32::try_from(valid).unwrap_or(u32::MAX);
        self.kept.push(read);
        self.expected = Some(end);
    }

    fn lose(&mut self, segment: u32, offset: u32, groups: Loss) -> Result<()> {
        if segment < self.visit_from {
            return Ok(());
        }
        (self.visit)(Found::Loss {
            segment,
            offset,
            groups,
        })
    }

    /// True when a record says that what begins at this LSN was synced. Looks ahead for such a
    /// record, from `offset` of the segment `at` on, as far as necessary.
    ///
    /// # Errors
    /// Those of reading, also of sectors that the disk cannot read: they may have what says so, or
    /// may be what was synced last, which nothing says.
    fn is_synced(&mut self, at: usize, offset: u32, lsn: u64) -> Result<bool> {
        if self.synced > lsn || self.is_settled {
            return Ok(self.synced > lsn);
        }
        let (mut offset, mut unreadable) = (offset.max(SEGMENT_HEADER), None);
        for &number in self.numbers.get(at..).unwrap_or_default() {
            if let Some(header) = self.folder.header(number)? {
                self.synced = self.synced.max(header.synced);
            }
            let mut window = Window::open(self.folder, number)?;
            let from = offset;
            while let Some((found, header)) = window.next_header(offset)? {
                self.synced = self.synced.max(header.synced);
                if self.synced > lsn {
                    return Ok(true);
                }
                let next = u64::from(found) + header.occupied();
                offset = u32::try_from(next).unwrap_or(u32::MAX);
            }
            unreadable = window.check_read(from).err().or(unreadable);
            offset = SEGMENT_HEADER;
        }
        if let Some(error) = unreadable {
            return Err(error);
        }
        self.is_settled = true;
        Ok(self.synced > lsn)
    }
}

/// Where to begin reading so that everything is read that may not be synced: an index of `all`.
fn start(folder: &Folder, all: &[u32], from: u32) -> Result<usize> {
    let asked = all.partition_point(|&number| number < from);
    let mut synced = None;
    for (at, &number) in all.iter().enumerate().rev() {
        if let Some(header) = folder.header(number)? {
            let synced = *synced.get_or_insert(header.synced);
            // One that was cut in an earlier life, and whose removal did not happen, begins there
            // or later.
            if header.first < synced {
                return Ok(at.min(asked));
            }
        }
    }
    Ok(0)
}
