//! Requests to the leader of a group: writes are ordered and become commands, reads are allowed by
//! the protocol.

use std::sync::Arc;

use super::core::Core;
use super::group::PendingRead;
use super::input::ReadResult;
use super::leader::{Origin, Pending};
use super::running::{Bodies, ReadFor};
use crate::body::Body;
use crate::bytes::Bytes;
use crate::consensus::ProposeError;
use crate::ids::{GroupId, Slot, VolumeId};
use crate::wire::{Op, Refusal, Reply, Source};

/// Bytes of a volume.
pub(super) struct ByteRange {
    volume: VolumeId,
    offset: u64,
    length: u64,
}

impl Core {
    /// A request to the leader of a group.
    pub(super) fn ask(&mut self, id: GroupId, origin: Origin, op: Op) {
        if let Err(refusal) = self.try_ask(id, origin, op) {
            self.answer(origin, Err(refusal));
        }
    }

    pub(super) fn try_ask(&mut self, id: GroupId, origin: Origin, op: Op) -> Result<(), Refusal> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        if !group.leads || self.failed.is_some() {
            let leader = group
                .consensus
                .leader()
                .filter(|leader| *leader != self.me.node);
            return Err(Refusal::NotLeader(leader));
        }
        match op {
            Op::Read {
                source,
                offset,
                length,
                allocation,
            } => {
                let ticket = self.ticket();
                let read = PendingRead {
                    origin,
                    source,
                    offset,
                    length,
                    allocation,
                };
                self.asked.insert(ticket, read);
                // Reads that came together share a round.
                self.proposed.insert(id);
                self.step(id, &mut Bodies::new(), |core, now, out| {
                    core.read(now, ticket, out)
                });
            }
            Op::Write {
                by,
                volume,
                offset,
                data,
            } => {
                let range = ByteRange {
                    volume,
                    offset,
                    length: data.len() as u64,
                };
                let pending = self.pending(id, origin, by, range, Some(data))?;
                self.queue(id, pending)?;
            }
            Op::Discard {
                by,
                volume,
                offset,
                length,
            } => {
                let range = ByteRange {
                    volume,
                    offset,
                    length,
                };
                let pending = self.pending(id, origin, by, range, None)?;
                self.queue(id, pending)?;
            }
            Op::Open(session) => {
                let command = crate::command::Command::OpenSession(session);
                self.propose_command(id, Some(origin), &command)?;
            }
            Op::Close(session) => {
                let command = crate::command::Command::CloseSession(session);
                self.propose_command(id, Some(origin), &command)?;
            }
            Op::Order { by, command } => {
                let command = crate::command::Command::Order { by, command };
                self.propose_command(id, Some(origin), &command)?;
            }
            Op::Command(bytes) => match crate::command::Command::decode(&bytes) {
                Some((command, [])) => self.propose_command(id, Some(origin), &command)?,
                _ => return Err(Refusal::Failed("the command cannot be read".to_string())),
            },
            Op::Transfer(to) => {
                self.step(id, &mut Bodies::new(), |core, now, out| {
                    core.transfer(now, to, out)
                });
                self.answer(origin, Ok(Reply::Done));
            }
            Op::Member { change, since } => match since {
                Some(since) => self.change_members(id, origin, change, since)?,
                // Those that are not chosen may come to nothing, and another change have their
                // version.
                None if !group.consensus.has_chosen_members() => return Err(Refusal::Busy),
                None => {
                    let version = group.consensus.members().version();
                    self.answer(origin, Ok(Reply::Members(version)));
                }
            },
        }
        Ok(())
    }

    pub(super) fn pending(
        &mut self,
        id: GroupId,
        origin: Origin,
        by: crate::command::Request,
        range: ByteRange,
        data: Option<Arc<Vec<u8>>>,
    ) -> Result<Pending, Refusal> {
        let ByteRange {
            volume,
            offset,
            length,
        } = range;
        let block_size = self.map.block_size(id, volume).map_err(|_| Refusal::Busy)?;
        let block_size = block_size.ok_or(Refusal::NoVolume)?;
        let block = u64::from(block_size);
        let end = offset.checked_add(length).ok_or(Refusal::OutOfRange)?;
        let blocks = offset / block..end.div_ceil(block);
        if blocks.is_empty() || blocks.end - blocks.start > u64::from(crate::command::MOST_BLOCKS) {
            return Err(Refusal::OutOfRange);
        }
        let data = data.map(|data| ((offset % block) as usize, data));
        let span = super::leader::Span { volume, blocks };
        Ok(Pending {
            origin,
            by,
            span,
            data,
            block_size,
        })
    }

    pub(super) fn queue(&mut self, id: GroupId, pending: Pending) -> Result<(), Refusal> {
        let others = self.groups.values().filter(|group| group.id != id);
        let others: usize = others.map(|group| group.leader.bytes()).sum();
        let most = self.settings.shares().led.saturating_sub(others);
        let Some(group) = self.groups.get_mut(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        if group.leader.queue(pending, most)? {
            self.run_queue(id);
        }
        Ok(())
    }

    /// Makes commands of the writes that need not wait.
    pub(super) fn run_queue(&mut self, id: GroupId) {
        while let Some(pending) = self
            .groups
            .get_mut(&id)
            .and_then(|group| group.leader.runnable())
        {
            if pending.is_partial() {
                let ticket = self.ticket();
                let block = u64::from(pending.block_size);
                let blocks = &pending.span.blocks;
                let work = super::input::ReadWork {
                    group: id,
                    kind: super::input::ReadKind::Bytes {
                        source: Source::Volume(pending.span.volume),
                        offset: blocks.start * block,
                        length: ((blocks.end - blocks.start) * block) as u32,
                    },
                };
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.merge(ticket, pending);
                }
                self.start_read(ticket, ReadFor::Merge(id), work);
            } else {
                let data = pending.data.as_ref().map(|(_, data)| data.clone().into());
                self.propose_write(id, pending, data.unwrap_or_default());
            }
        }
    }

    pub(super) fn propose_write(&mut self, id: GroupId, pending: Pending, data: Bytes) {
        let body = super::leader::command(&pending, data);
        match self.propose(id, body, None) {
            Ok(slot) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.proposed(slot, &pending);
                }
            }
            Err(refusal) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.dropped(&pending);
                }
                self.answer(pending.origin, Err(refusal));
            }
        }
    }

    pub(super) fn propose_command(
        &mut self,
        id: GroupId,
        origin: Option<Origin>,
        command: &crate::command::Command,
    ) -> Result<(), Refusal> {
        let mut body = Vec::new();
        command.encode(&mut body);
        let members = match command {
            crate::command::Command::Members(members) => Some(members.clone()),
            _ => None,
        };
        let slot = self.propose(id, body.into(), members)?;
        if let Some(group) = self.groups.get_mut(&id) {
            group.leader.proposed_other(slot, origin);
        }
        Ok(())
    }

    pub(super) fn propose(
        &mut self,
        id: GroupId,
        body: Body,
        members: Option<Arc<crate::members::Members>>,
    ) -> Result<Slot, Refusal> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        let mut outputs = Vec::new();
        let proposed = group
            .consensus
            .propose(self.now, body.len() as u32, members, &mut outputs);
        let slot = match proposed {
            Ok(slot) => slot,
            Err(error) => return Err(refused(error)),
        };
        self.proposed.insert(id);
        let mut bodies = Bodies::from([(slot, body)]);
        for output in outputs {
            self.output(id, output, &mut bodies);
        }
        Ok(slot)
    }

    pub(super) fn merged(&mut self, id: GroupId, ticket: u64, result: Result<ReadResult, Refusal>) {
        // The leadership may have ended since; then the write was given up.
        let pending = self
            .groups
            .get_mut(&id)
            .and_then(|group| group.leader.merged(ticket));
        let Some(pending) = pending else { return };
        match (result, &pending.data) {
            (Ok(ReadResult::Bytes(mut bytes)), Some((start, data))) => {
                if let Some(part) = bytes.get_mut(*start..*start + data.len()) {
                    part.copy_from_slice(data);
                }
                self.propose_write(id, pending, bytes.into());
            }
            (result, _) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.dropped(&pending);
                }
                let refusal = result.err().unwrap_or(Refusal::Damaged);
                self.answer(pending.origin, Err(refusal));
            }
        }
        self.run_queue(id);
    }

    /// Leadership of the group, or what is known of it, has changed.
    pub(super) fn leadership(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let leads = group.consensus.is_leader() && self.failed.is_none();
        if leads && !group.leads {
            // Its first entry is the last one now: what was chosen before lies before it.
            group.ready_at = group.consensus.last().0;
        }
        if !leads || !group.leads {
            let given_up = group.leader.give_up();
            let reads = group.reads.drain(..).map(|(_, read)| (read.origin, false));
            let all: Vec<(Origin, bool)> = given_up.into_iter().chain(reads).collect();
            group.leads = leads && group.applied >= group.ready_at;
            let leader = group.consensus.leader();
            let leader = leader.filter(|leader| *leader != self.me.node);
            for (origin, may_happen) in all {
                let refusal = if may_happen {
                    Refusal::NoQuorum
                } else {
                    Refusal::NotLeader(leader)
                };
                self.answer(origin, Err(refusal));
            }
        }
    }
}

fn refused(error: ProposeError) -> Refusal {
    match error {
        ProposeError::NotLeader { leader } => Refusal::NotLeader(leader),
        ProposeError::Busy => Refusal::Busy,
        ProposeError::TooMany => {
            Refusal::Failed("more than one voter would change at a time".to_string())
        }
    }
}
