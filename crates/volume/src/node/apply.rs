//! Chosen commands become state, in the order of slots, and requests are answered.

use super::core::Core;
use super::leader::Landed;
use crate::command::Command;
use crate::ids::{GroupId, Slot, VolumeId};
use crate::map::{Applied, Outcome, Refusal as MapRefusal};
use crate::place::Place;
use crate::wire::{Refusal, Reply};

impl Core {
    /// Applies what is chosen and durable.
    pub(super) fn apply(&mut self, id: GroupId) {
        let before = self.groups.get(&id).map(|group| group.applied);
        loop {
            let Some(group) = self.groups.get(&id) else {
                return;
            };
            let slot = group.applied.next();
            if slot > group.applicable() || self.failed.is_some() {
                break;
            }
            if !self.apply_one(id, slot) {
                break;
            }
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        if Some(group.applied) == before {
            return;
        }
        group.note_current();
        let applied = group.applied;
        let most = self.settings.log_bytes / self.settings.group_count(self.formation.as_ref());
        group.log.shrink(most, applied.min(group.durable));
        group.leads = group.consensus.is_leader() && applied >= group.ready_at;
        if id == GroupId::SYSTEM {
            self.answer_late();
        }
        while let Some((_, read)) = self
            .groups
            .get_mut(&id)
            .and_then(|group| group.reads.pop_front_if(|(slot, _)| *slot <= applied))
        {
            self.begin_read(id, read);
        }
        self.run_queue(id);
    }

    /// Applies the command at `slot`. False where it cannot be read or applied.
    fn apply_one(&mut self, id: GroupId, slot: Slot) -> bool {
        let Some(entry) = self.groups.get(&id).and_then(|group| group.log.get(slot)) else {
            return false;
        };
        let (ballot, payload) = (entry.ballot, entry.payload);
        let body = match self.body(id, slot, ballot) {
            Ok(Some(body)) => body,
            Ok(None) => {
                self.lose(id, slot);
                return false;
            }
            Err(error) => {
                self.fail(error);
                return false;
            }
        };
        // Where it cannot be read every replica does the same: nothing.
        let (command, data) = body.decode().unwrap_or((Command::Nothing, 0));
        let place = (data > 0).then(|| Place {
            segment: payload.segment,
            offset: payload.offset + (body.len() - data) as u32,
        });
        let applied = match self.map.apply(id, slot, ballot, &command, place) {
            Ok(applied) => applied,
            Err(error) => {
                self.fail(error);
                return false;
            }
        };
        // A command that was sent again counts once.
        if applied.outcome == Outcome::Done {
            self.user_bytes += data as u64;
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.applied = slot;
        }
        self.landed(id, slot, &command, applied);
        true
    }

    fn landed(&mut self, id: GroupId, slot: Slot, command: &Command, applied: Applied) {
        if let Command::Members(_) = command {
            self.members_changed();
        }
        if let Command::System(_) | Command::Order { .. } = command {
            self.errands.system_changed();
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let landed = group.leader.applied(slot);
        let freed = match command {
            // A release that comes again may be of a cut before the one that holds them.
            Command::Release { volume, .. } | Command::DropVolume(volume) if applied.released => {
                group.leader.release(*volume)
            }
            _ => Vec::new(),
        };
        if let Some(Landed {
            origin: Some(origin),
            by,
        }) = landed
        {
            let result = result(applied.outcome, slot);
            match written(command).filter(|_| applied.held && result.is_ok()) {
                Some(volume) => group.leader.hold(volume, (origin, by), result),
                None => self.answer(origin, result),
            }
        }
        for (origin, result) in freed {
            self.answer(origin, result);
        }
    }
}

/// The volume that a command writes to.
fn written(command: &Command) -> Option<VolumeId> {
    match command {
        Command::Write { blocks, .. } | Command::Discard { blocks, .. } => Some(blocks.volume),
        _ => None,
    }
}

fn result(outcome: Outcome, slot: Slot) -> Result<Reply, Refusal> {
    match outcome {
        Outcome::Done | Outcome::Repeated => Ok(Reply::Done),
        Outcome::System(answer) => Ok(Reply::System(answer, slot)),
        Outcome::Refused(refusal) => Err(match refusal {
            MapRefusal::NoSession => Refusal::NoSession,
            MapRefusal::NoVolume | MapRefusal::NoLayer => Refusal::NoVolume,
            // The number may be sent again: the window moves with what is answered.
            MapRefusal::WindowFull => Refusal::Busy,
            MapRefusal::Answered => Refusal::Failed("the request was answered before".to_string()),
            MapRefusal::Malformed => {
                Refusal::Failed("the command does not fit the group's state".to_string())
            }
        }),
    }
}
