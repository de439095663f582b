//! What the leader of a group has under way. Writes of whole blocks become commands at once. A part
//! of a block waits until the earlier writes of its blocks are applied, is merged with what is
//! there, and holds the later ones back.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::body::Body;
use crate::bytes::Bytes;
use crate::command::{Command, Request};
use crate::ids::{NodeId, SessionId, Slot, VolumeId};
use crate::wire::{Refusal, Reply};

/// Who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// A part of a request that entered at this node.
    Local(u64),
    /// A part of another node's, with the number that it chose.
    Remote(NodeId, u64),
}

/// Blocks of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) volume: VolumeId,
    pub(super) blocks: Range<u64>,
}

impl Span {
    fn meets(&self, other: &Span) -> bool {
        self.volume == other.volume
            && self.blocks.start < other.blocks.end
            && other.blocks.start < self.blocks.end
    }
}

/// A write or discard that is not a command yet.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) origin: Origin,
    pub(super) by: Request,
    pub(super) span: Span,
    /// Where the bytes go within the blocks of `span`, and the bytes; `None` for a discard.
    pub(super) data: Option<(usize, Arc<Vec<u8>>)>,
    pub(super) block_size: u32,
}

impl Pending {
    /// True where some block is written in part.
    pub(super) fn is_partial(&self) -> bool {
        let whole = (self.span.blocks.end - self.span.blocks.start) * u64::from(self.block_size);
        let written = self
            .data
            .as_ref()
            .map(|(start, data)| (*start, data.len() as u64));
        written.is_some_and(|(start, length)| start != 0 || length != whole)
    }

    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |(_, data)| data.len())
    }
}

/// A command that was proposed.
#[derive(Debug)]
struct Flight {
    span: Option<Span>,
    by: Option<Request>,
    origin: Option<Origin>,
    bytes: usize,
}

/// A command that was applied, and who waited for it.
pub(super) struct Landed {
    pub(super) origin: Option<Origin>,
    /// The request that it carried out.
    pub(super) by: Option<Request>,
}

/// An answer that waits until a cut of the volume is released.
#[derive(Debug)]
struct Held {
    volume: VolumeId,
    origin: Origin,
    key: Option<(SessionId, u64)>,
    result: Result<Reply, Refusal>,
}

/// The state of a leadership. A new one begins empty.
#[derive(Debug, Default)]
pub(super) struct Leader {
    /// Requests that are queued, merging, proposed or held.
    active: HashSet<(SessionId, u64)>,
    queued: VecDeque<Pending>,
    merging: BTreeMap<u64, Pending>,
    flight: BTreeMap<Slot, Flight>,
    held: Vec<Held>,
    bytes: usize,
}

impl Leader {
    /// Everything under way, given up since the leadership has ended; and whether it may have
    /// happened, or may still.
    pub(super) fn give_up(&mut self) -> Vec<(Origin, bool)> {
        let old = std::mem::take(self);
        let queued = old
            .queued
            .into_iter()
            .map(|pending| (pending.origin, false));
        let merging = old
            .merging
            .into_values()
            .map(|pending| (pending.origin, false));
        let flight = old.flight.into_values().filter_map(|flight| flight.origin);
        let held = old.held.into_iter().map(|held| held.origin);
        let proposed = flight.chain(held).map(|origin| (origin, true));
        queued.chain(merging).chain(proposed).collect()
    }

    /// Bytes under way.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a write; one that would bring the bytes under way above `most` is refused as busy.
    /// False where the same request is under way: its answer will come.
    pub(super) fn queue(&mut self, pending: Pending, most: usize) -> Result<bool, Refusal> {
        let key = (pending.by.session, pending.by.number);
        if self.active.contains(&key) {
            return Ok(false);
        }
        if self.bytes > 0 && self.bytes + pending.bytes() > most {
            return Err(Refusal::Busy);
        }
        self.active.insert(key);
        self.bytes += pending.bytes();
        self.queued.push_back(pending);
        Ok(true)
    }

    /// The next queued write that need not wait for another one.
    pub(super) fn runnable(&mut self) -> Option<Pending> {
        let at = (0..self.queued.len()).find(|at| self.may_run(*at))?;
        self.queued.remove(at)
    }

    fn may_run(&self, at: usize) -> bool {
        let Some(pending) = self.queued.get(at) else {
            return false;
        };
        let span = &pending.span;
        let is_behind = self
            .queued
            .iter()
            .take(at)
            .any(|other| other.span.meets(span))
            || self.merging.values().any(|other| other.span.meets(span));
        let flies = |flight: &Flight| flight.span.as_ref().is_some_and(|other| other.meets(span));
        let waits = pending.is_partial() && self.flight.values().any(flies);
        !(is_behind || waits)
    }

    /// Its blocks are being read, under this ticket.
    pub(super) fn merge(&mut self, ticket: u64, pending: Pending) {
        self.merging.insert(ticket, pending);
    }

    /// The blocks were read.
    pub(super) fn merged(&mut self, ticket: u64) -> Option<Pending> {
        self.merging.remove(&ticket)
    }

    /// A write has become the command at `slot`.
    pub(super) fn proposed(&mut self, slot: Slot, pending: &Pending) {
        let flight = Flight {
            span: Some(pending.span.clone()),
            by: Some(pending.by),
            origin: Some(pending.origin),
            bytes: pending.bytes(),
        };
        self.flight.insert(slot, flight);
    }

    /// Another command has become the one at `slot`.
    pub(super) fn proposed_other(&mut self, slot: Slot, origin: Option<Origin>) {
        let (span, by, bytes) = (None, None, 0);
        self.flight.insert(
            slot,
            Flight {
                span,
                by,
                origin,
                bytes,
            },
        );
    }

    /// A write will not become a command.
    pub(super) fn dropped(&mut self, pending: &Pending) {
        self.active.remove(&(pending.by.session, pending.by.number));
        self.bytes -= pending.bytes();
    }

    /// The command at `slot` is applied.
    pub(super) fn applied(&mut self, slot: Slot) -> Option<Landed> {
        let flight = self.flight.remove(&slot)?;
        if let Some(by) = flight.by {
            self.active.remove(&(by.session, by.number));
        }
        self.bytes -= flight.bytes;
        Some(Landed {
            origin: flight.origin,
            by: flight.by,
        })
    }

    /// Keeps the answer to a request until the volume's cut is released. The same request is under
    /// way until then: asked again, it is not proposed again.
    pub(super) fn hold(
        &mut self,
        volume: VolumeId,
        (origin, by): (Origin, Option<Request>),
        result: Result<Reply, Refusal>,
    ) {
        let key = by.map(|by| (by.session, by.number));
        self.active.extend(key);
        self.held.push(Held {
            volume,
            origin,
            key,
            result,
        });
    }

    /// The answers that a release lets go.
    pub(super) fn release(&mut self, volume: VolumeId) -> Vec<(Origin, Result<Reply, Refusal>)> {
        let (freed, kept) = self.held.drain(..).partition(|held| held.volume == volume);
        self.held = kept;
        let freed: Vec<Held> = freed;
        for key in freed.iter().filter_map(|held| held.key) {
            self.active.remove(&key);
        }
        freed
            .into_iter()
            .map(|held| (held.origin, held.result))
            .collect()
    }

    /// Commands and writes under way.
    pub(super) fn depth(&self) -> usize {
        self.queued.len() + self.merging.len() + self.flight.len()
    }
}

/// The command of a write whose blocks are complete, with its data; or of a discard.
pub(super) fn command(pending: &Pending, data: Bytes) -> Body {
    let blocks = crate::command::Blocks {
        volume: pending.span.volume,
        first: pending.span.blocks.start,
        count: (pending.span.blocks.end - pending.span.blocks.start) as u32,
    };
    let mut head = Vec::new();
    if pending.data.is_none() {
        Command::Discard {
            by: pending.by,
            blocks,
        }
        .encode(&mut head);
        return head.into();
    }
    let checksums = data
        .chunks(pending.block_size as usize)
        .map(crate::command::checksum);
    let checksums: Vec<u64> = checksums.collect();
    head.reserve(8 * checksums.len() + 64);
    Command::Write {
        by: pending.by,
        blocks,
        checksums,
    }
    .encode(&mut head);
    Body::of(head, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write that was applied behind a cut was written to the log again each time that it was
    /// asked again.
    #[test]
    fn a_request_whose_answer_is_held_is_under_way() {
        let mut leader = Leader::default();
        let session = SessionId {
            node: NodeId(1),
            life: 1,
            connection: 1,
        };
        let by = Request {
            session,
            number: 7,
            answered: 0,
        };
        let (volume, origin) = (VolumeId(1), Origin::Local(1));
        let pending = || Pending {
            origin,
            by,
            span: Span {
                volume,
                blocks: 0..1,
            },
            data: None,
            block_size: 4096,
        };
        leader.hold(volume, (origin, Some(by)), Ok(Reply::Done));
        assert_eq!(leader.queue(pending(), 1 << 20), Ok(false));
        assert!(leader.release(VolumeId(2)).is_empty());
        assert_eq!(leader.queue(pending(), 1 << 20), Ok(false));
        assert_eq!(leader.release(volume), [(origin, Ok(Reply::Done))]);
        assert_eq!(leader.queue(pending(), 1 << 20), Ok(true));
    }
}
