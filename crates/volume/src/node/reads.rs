//! Reads of this node's disk: when they begin, and what follows from them.

use super::core::Core;
use super::group::{Group, PendingRead};
use super::input::{Action, ConnectionId, ReadFailure, ReadKind, ReadResult, ReadWork};
use super::running::{ReadFor, RunningRead};
use crate::ids::{GroupId, NodeId, Slot};
use crate::system::{RANGE, group_at};
use crate::wire::{Frame, Refusal, Reply, Source};

impl Core {
    pub(super) fn read_allowed(
        &mut self,
        id: GroupId,
        ticket: u64,
        result: Result<Slot, Option<NodeId>>,
    ) {
        let Some(read) = self.asked.remove(&ticket) else {
            return;
        };
        match result {
            Err(leader) => {
                let leader = leader.filter(|leader| *leader != self.me.node);
                self.answer(read.origin, Err(Refusal::NotLeader(leader)));
            }
            Ok(slot) => {
                let Some(group) = self.groups.get_mut(&id) else {
                    return;
                };
                if group.applied >= slot {
                    self.begin_read(id, read)
                } else {
                    group.reads.push_back((slot, read))
                }
            }
        }
    }

    pub(super) fn begin_read(&mut self, id: GroupId, read: PendingRead) {
        let PendingRead {
            origin,
            source,
            offset,
            length,
            allocation,
        } = read;
        let kind = if allocation {
            super::input::ReadKind::Allocation {
                source,
                offset,
                length,
            }
        } else {
            super::input::ReadKind::Bytes {
                source,
                offset,
                length,
            }
        };
        let ticket = self.ticket();
        let work = super::input::ReadWork { group: id, kind };
        self.start_read(ticket, ReadFor::Origin(origin), work);
    }

    pub(super) fn start_read(&mut self, ticket: u64, whom: ReadFor, work: super::input::ReadWork) {
        self.actions.push(Action::Read(ticket, work.clone()));
        self.running.insert(
            ticket,
            RunningRead {
                whom,
                work,
                tries: 0,
            },
        );
    }

    pub(super) fn read_done(&mut self, ticket: u64, result: Result<ReadResult, ReadFailure>) {
        let Some(read) = self.running.remove(&ticket) else {
            return;
        };
        if let Err(ReadFailure::Rot {
            layer,
            block,
            checksum,
            place,
        }) = &result
            && !matches!(read.whom, ReadFor::Fetch(..))
        {
            let wanted = super::heal::Wanted {
                group: read.work.group,
                layer: *layer,
                block: *block,
                checksum: *checksum,
                place: *place,
            };
            return self.heal(ticket, read, wanted);
        }
        if let Err(ReadFailure::Failed(error)) = &result
            && (error.is_damaged_map() || matches!(read.work.kind, ReadKind::Unlink { .. }))
        {
            // Tables are not healed: another replica leads, and an operator replaces this one.
            self.fail(error.clone());
            if matches!(read.whom, ReadFor::Origin(_) | ReadFor::Merge(_)) {
                return self.read_ended(ticket, read, Err(Refusal::NotLeader(None)));
            }
        }
        let result = match result {
            Ok(result) => Ok(result),
            Err(ReadFailure::NoVolume) => Err(Refusal::NoVolume),
            Err(ReadFailure::Rot { .. }) => Err(Refusal::Damaged),
            // It may succeed when it is asked again.
            Err(ReadFailure::Failed(error)) if error.may_pass() => Err(Refusal::Busy),
            Err(ReadFailure::Failed(error)) => Err(Refusal::Failed(error.to_string())),
        };
        self.read_ended(ticket, read, result);
    }

    pub(super) fn read_ended(
        &mut self,
        ticket: u64,
        read: RunningRead,
        result: Result<ReadResult, Refusal>,
    ) {
        let reply = |result| match result {
            ReadResult::Bytes(bytes) => Reply::Data(bytes),
            ReadResult::Runs(runs) => Reply::Runs(runs),
            _ => Reply::Done,
        };
        match read.whom {
            ReadFor::Origin(origin) => self.answer(origin, result.map(reply)),
            ReadFor::Local(connection, ticket, current) => {
                let age = current.map(|current| self.now.saturating_sub(current));
                let result = result.map(|result| match reply(result) {
                    Reply::Data(data) => Reply::Local { data, age },
                    other => other,
                });
                self.actions.push(Action::Answer {
                    connection,
                    ticket,
                    result,
                });
            }
            ReadFor::Fetch(node, id) => {
                let data = match result {
                    Ok(ReadResult::Bytes(bytes)) => Some(bytes),
                    _ => None,
                };
                self.actions
                    .push(Action::Send(node, Frame::Fetched { id, data }.encode()));
            }
            ReadFor::Merge(id) => self.merged(id, ticket, result),
            ReadFor::Upkeep => {
                self.upkeep_done(&read.work.kind, result.is_err());
                match (result, &read.work.kind) {
                    (Ok(ReadResult::Live(live, next)), ReadKind::Live { segment, .. }) => {
                        self.copy(*segment, live, next);
                    }
                    (
                        Ok(ReadResult::Scrubbed {
                            damaged,
                            checked,
                            last,
                        }),
                        _,
                    ) => {
                        self.scrubbed(damaged, checked, last);
                    }
                    (result, &ReadKind::Clear { image }) => {
                        let is_all = result
                            .ok()
                            .map(|result| matches!(result, ReadResult::Cleared { is_all: true }));
                        self.cleared(read.work.group, image, is_all);
                    }
                    // A task that failed is tried again; what fails for good is seen by writes,
                    // too.
                    (Ok(_) | Err(_), _) => {}
                }
            }
            ReadFor::Piece(node, number) => {
                let piece = match result {
                    Ok(ReadResult::Piece(bytes, after)) => Some((bytes, after)),
                    _ => None,
                };
                self.piece_read(node, read.work.group, number, piece);
            }
        }
    }

    /// Reads what this node has, of one group.
    pub(super) fn read_local(
        &mut self,
        connection: ConnectionId,
        ticket: u64,
        source: Source,
        range: (u64, u32),
    ) {
        match self.local_work(source, range) {
            Ok(work) => {
                let (number, group) = (self.ticket(), self.groups.get(&work.group));
                let current = group.and_then(Group::current);
                let whom = ReadFor::Local(connection, ticket, current);
                self.start_read(number, whom, work);
            }
            Err(refusal) => {
                let result = Err(refusal);
                self.actions.push(Action::Answer {
                    connection,
                    ticket,
                    result,
                });
            }
        }
    }

    fn local_work(
        &self,
        source: Source,
        (offset, length): (u64, u32),
    ) -> Result<ReadWork, Refusal> {
        let shape = self.map.system().shape(source).ok_or(Refusal::NoVolume)?;
        let end = offset
            .checked_add(u64::from(length))
            .filter(|end| *end <= shape.size && length > 0)
            .ok_or(Refusal::OutOfRange)?;
        if offset / RANGE != (end - 1) / RANGE {
            let text = "a local read lies within one range of 4 MiB";
            return Err(Refusal::Failed(text.to_string()));
        }
        let group = group_at(shape.placement, offset, self.group_count());
        let kind = ReadKind::Bytes {
            source,
            offset,
            length,
        };
        Ok(ReadWork { group, kind })
    }
}
