//! A log whose content a test knows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_fs::Fs;
use esker_sim::memory::Memory;

use crate::error::Result;
use crate::extents::{Extents, Found, Head, Kind, Loss, RecordHeader, Settings};
use crate::ids::{Ballot, DiskId, GroupId};
use crate::place::Place;

pub(super) const DISK: DiskId = DiskId(0xd15c);

pub(super) fn dir() -> &'static Path {
    Path::new("/node/segments")
}

pub(super) fn segment(number: u32) -> PathBuf {
    dir().join(format!("{number:08}.seg"))
}

pub(super) fn settings(segment_bytes: u32) -> Settings {
    Settings { segment_bytes }
}

pub(super) fn formatted() -> Memory {
    let fs = Memory::new();
    fs.create_dir(Path::new("/node")).unwrap();
    Extents::format(Arc::new(fs.clone()), dir(), DISK).unwrap();
    fs
}

/// A record as it was written, or read.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) kind: Kind,
    pub(super) group: GroupId,
    pub(super) slot: u64,
    pub(super) ballot: Ballot,
    pub(super) payload: Vec<u8>,
    pub(super) place: Place,
    pub(super) lsn_end: u64,
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {}/{} in {}.{}..{} to {}",
            self.kind,
            self.group,
            self.slot,
            self.place.segment,
            self.place.offset,
            self.end(),
            self.lsn_end
        )
    }
}

impl Written {
    fn of(header: &RecordHeader, place: Place, payload: &[u8]) -> Written {
        Written {
            kind: header.kind,
            group: header.group,
            slot: header.slot,
            ballot: header.ballot,
            payload: payload.to_vec(),
            place,
            lsn_end: header.lsn + header.occupied(),
        }
    }

    /// Where it ends in its segment.
    pub(super) fn end(&self) -> u32 {
        self.place.offset + super::super::record::occupied(self.payload.len() as u32) as u32
    }
}

/// What opening found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) records: Vec<Written>,
    pub(super) losses: Vec<(u32, u32, Loss)>,
}

/// The ballot of all records of tests; recovery's own have 0.
const BALLOT: Ballot = Ballot(7);

/// Opens, and collects what is found, without the records of recovery.
pub(super) fn open(
    fs: Arc<dyn Fs>,
    settings: Settings,
    from: Option<u32>,
) -> Result<(Extents, Seen)> {
    let mut seen = Seen::default();
    let extents = Extents::open(fs, dir(), settings, from, &mut |found| {
        match found {
            Found::Record { header, .. } if header.ballot != BALLOT => {
                assert_eq!(header.kind, Kind::Sync);
            }
            Found::Record {
                header,
                place,
                payload,
            } => seen.records.push(Written::of(header, place, payload)),
            Found::Loss {
                segment,
                offset,
                groups,
            } => seen.losses.push((segment, offset, groups)),
        }
        Ok(())
    })?;
    Ok((extents, seen))
}

/// Appends a random record, and what begins its segment, to the log and to `all`.
pub(super) fn append(extents: &mut Extents, rng: &mut fastrand::Rng, all: &mut Vec<Written>) {
    let kind = match rng.u32(..10) {
        0 => Kind::Vote,
        1 => Kind::Moved,
        2 => Kind::Sync,
        3 => Kind::Members,
        _ => Kind::Entry,
    };
    let group = GroupId(rng.u16(..3));
    let len = match (kind, rng.u32(..8)) {
        (Kind::Sync, _) | (_, 0) => 0,
        (_, 1) => rng.usize(..5000),
        _ => rng.usize(..300),
    };
    let payload: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
    append_this(extents, kind, group, rng.u64(1..1000), &payload, all);
}

/// Appends a record, and what begins its segment, to the log and to `all`.
pub(super) fn append_this(
    extents: &mut Extents,
    kind: Kind,
    group: GroupId,
    slot: u64,
    payload: &[u8],
    all: &mut Vec<Written>,
) {
    let lsn = extents.end();
    let mut heads = Vec::new();
    let parts = payload.split_at(payload.len() / 3);
    let placed = extents
        .append(kind, group, slot, BALLOT, &[parts.0, parts.1], &mut || {
            heads = (0..3)
                .map(|group| Head {
                    group: GroupId(group),
                    slot: lsn,
                    ballot: BALLOT,
                    payload: vec![group as u8; 5 * usize::from(group)],
                })
                .collect();
            heads.clone()
        })
        .unwrap();
    let mut place = Place {
        segment: placed.place.segment,
        offset: 64,
    };
    let mut lsn_end = lsn;
    for head in heads {
        let occupied = super::super::record::occupied(head.payload.len() as u32);
        lsn_end += occupied;
        all.push(Written {
            kind: Kind::Base,
            group: head.group,
            slot: head.slot,
            ballot: head.ballot,
            payload: head.payload,
            place,
            lsn_end,
        });
        place.offset += occupied as u32;
    }
    all.push(Written {
        kind,
        group,
        slot: if kind == Kind::Sync { 0 } else { slot },
        ballot: BALLOT,
        payload: payload.to_vec(),
        place: placed.place,
        lsn_end: placed.lsn_end,
    });
}

/// Runs a batch with everything that was appended.
pub(super) fn sync(extents: &mut Extents) {
    if let Some(batch) = extents.take_batch() {
        let end = batch.run().unwrap();
        extents.batch_done(end);
    }
}
