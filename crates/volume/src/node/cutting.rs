//! The parts of one group each that a request of a user is cut into.

use std::sync::Arc;

use super::input::Work;
use super::layout::pieces;
use crate::command::Request;
use crate::ids::{GroupId, NodeId, SessionId, VolumeId};
use crate::system::{RANGE, Shape};
use crate::wire::{Op, Refusal, Source};

/// The longest part of a read or write, in bytes.
const PART_BYTES: u64 = 512 << 10;

/// A request of no session yet.
const BY: Request = Request {
    session: SessionId {
        node: NodeId(0),
        life: 0,
        connection: 0,
    },
    number: 0,
    answered: 0,
};

/// A part of a request.
pub(super) struct Piece {
    pub(super) group: GroupId,
    /// Its offset within what is read.
    pub(super) at: u64,
    /// What is asked for. A write has no session and number yet.
    pub(super) op: Op,
}

/// The parts of a request.
pub(super) enum Pieces {
    All(Vec<Piece>),
    /// There may be many: they are made one by one.
    Discard(Rest),
}

/// What is left of a discard. Whole blocks are discarded; zeros are written over the parts of
/// blocks at both ends.
pub(super) struct Rest {
    volume: VolumeId,
    shape: Shape,
    groups: u16,
    at: u64,
    end: u64,
}

impl Rest {
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }
}

impl Iterator for Rest {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (block, placement) = (u64::from(self.shape.block_size), self.shape.placement);
        let last = self.end / block * block;
        let is_whole = self.at.is_multiple_of(block) && self.at < last;
        // A piece ends with the bytes of one group at the latest.
        let (unit, most, end) = if is_whole {
            (RANGE, u64::MAX, last)
        } else {
            (block, PART_BYTES, self.end)
        };
        let upto = end.min((self.at / unit + 1) * unit);
        let length = upto.saturating_sub(self.at);
        let all = pieces(placement, self.at, length, most, self.groups);
        let (group, offset, length) = all.into_iter().next()?;
        self.at = offset + length;
        let (by, volume) = (BY, self.volume);
        let op = if is_whole {
            Op::Discard {
                by,
                volume,
                offset,
                length,
            }
        } else {
            Op::Write {
                by,
                volume,
                offset,
                data: Arc::new(vec![0; length as usize]),
            }
        };
        Some(Piece { group, at: 0, op })
    }
}

/// Cuts a request. `shape` is the volume's, or the snapshot's.
pub(super) fn cut(work: Work, shape: Option<Shape>, groups: u16) -> Result<Pieces, Refusal> {
    let within = |offset: u64, length: u64| {
        let shape = shape.ok_or(Refusal::NoVolume)?;
        let end = offset.checked_add(length).filter(|end| *end <= shape.size);
        end.map(|_| shape).ok_or(Refusal::OutOfRange)
    };
    let one = |group, op| vec![Piece { group, at: 0, op }];
    Ok(Pieces::All(match work {
        Work::Read {
            source,
            offset,
            length,
        }
        | Work::ReadLocal {
            source,
            offset,
            length,
        } => {
            let shape = within(offset, u64::from(length))?;
            reads(source, &shape, (offset, length), false, groups)
        }
        Work::Allocation {
            source,
            offset,
            length,
        } => {
            let shape = within(offset, u64::from(length))?;
            reads(source, &shape, (offset, length), true, groups)
        }
        Work::Write {
            volume,
            offset,
            data,
        } => {
            let placement = within(offset, data.len() as u64)?.placement;
            let all = pieces(placement, offset, data.len() as u64, PART_BYTES, groups);
            writes(volume, offset, &data, all)
        }
        Work::Discard {
            volume,
            offset,
            length,
        } => {
            let shape = within(offset, length)?;
            return Ok(Pieces::Discard(Rest {
                volume,
                shape,
                groups,
                at: offset,
                end: offset + length,
            }));
        }
        Work::System(command) => one(GroupId::SYSTEM, Op::Order { by: BY, command }),
        Work::Command(group, command) => one(group, Op::Command(command)),
        Work::Transfer(group, to) => one(group, Op::Transfer(to)),
        Work::Member(group, change) => one(group, Op::change(change)),
    }))
}

fn writes(
    volume: VolumeId,
    offset: u64,
    data: &Arc<Vec<u8>>,
    all: Vec<(GroupId, u64, u64)>,
) -> Vec<Piece> {
    let is_one = all.len() == 1;
    let part = |(group, from, length): (GroupId, u64, u64)| {
        let start = (from - offset) as usize;
        let bytes = data.get(start..start + length as usize).unwrap_or_default();
        let data = if is_one {
            data.clone()
        } else {
            Arc::new(bytes.to_vec())
        };
        let op = Op::Write {
            by: BY,
            volume,
            offset: from,
            data,
        };
        let at = from - offset;
        Piece { group, at, op }
    };
    all.into_iter().map(part).collect()
}

fn reads(
    source: Source,
    shape: &Shape,
    (offset, length): (u64, u32),
    allocation: bool,
    groups: u16,
) -> Vec<Piece> {
    let all = pieces(
        shape.placement,
        offset,
        u64::from(length),
        PART_BYTES,
        groups,
    );
    let part = |(group, from, length): (GroupId, u64, u64)| {
        let length = length as u32;
        let op = Op::Read {
            source,
            offset: from,
            length,
            allocation,
        };
        let at = from - offset;
        Piece { group, at, op }
    };
    all.into_iter().map(part).collect()
}
