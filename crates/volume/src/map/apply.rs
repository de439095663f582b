//! Chosen commands.

use std::sync::Arc;

use super::core::{GroupState, Map, Plan, Writer};
use super::entries::{self, Extent};
use super::layers::Layers;
use super::outcome::{Applied, Outcome, Refusal};
use super::sessions::Session;
use super::store::Status;
use super::walk::{self, LayerCursor, Resolved};
use crate::command::{Blocks, Command, Request};
use crate::error::{Error, Result};
use crate::ids::{Ballot, GroupId, LayerId, Slot};
use crate::place::Place;
use crate::system::{SystemCommand, SystemError, SystemErrorKind, SystemOutcome};

/// Up to so many blocks are looked up one by one; more are read in a row.
const FEW_BLOCKS: u32 = 4;

/// A write or discard that may happen: the session behind it, the volume's head, and the layers
/// below that.
struct Admitted {
    session: Session,
    head: LayerId,
    below: Vec<LayerId>,
    block_size: u32,
    is_held: bool,
}

/// A write, and where its data is.
struct Write<'a> {
    slot: Slot,
    by: &'a Request,
    blocks: &'a Blocks,
    checksums: &'a [u64],
    data: Place,
}

impl Map {
    /// Applies a chosen command: in one batch, with the slot. The command's entry must be durable
    /// in the log. `data` is where the first block of a write begins; the others follow it.
    ///
    /// A command that is refused counts as applied. It may be applied again after a crash, with the
    /// same outcome.
    ///
    /// # Errors
    /// [`Error::NotNext`] where `slot` is not the one behind [`Map::applied`];
    /// [`Error::Incomplete`]; [`Error::BadPlace`]; what reading and writing the engine fails with.
    /// The command is not applied then.
    pub fn apply(
        &self,
        group: GroupId,
        slot: Slot,
        ballot: Ballot,
        command: &Command,
        data: Option<Place>,
    ) -> Result<Applied> {
        let mut writer = self.writer.lock();
        let state = writer.groups.entry(group).or_default();
        if state.status.is_incomplete {
            return Err(Error::Incomplete { group });
        }
        let applied = state.status.slot;
        if slot != applied.next() {
            return Err(Error::NotNext {
                group,
                slot,
                applied,
            });
        }
        let mut plan = Plan {
            status: Some(Status {
                slot,
                ballot,
                ..Status::default()
            }),
            ..Plan::default()
        };
        let applied = match command {
            Command::Write {
                by,
                blocks,
                checksums,
            } => {
                let data = data.ok_or(Error::BadPlace { group, slot })?;
                let write = Write {
                    slot,
                    by,
                    blocks,
                    checksums,
                    data,
                };
                self.write(&writer, group, &mut plan, &write)?
            }
            Command::Discard { by, blocks } => {
                self.discard(&writer, group, &mut plan, by, blocks)?
            }
            _ => control(&writer, group, slot, command, &mut plan),
        };
        self.commit(&mut writer, group, plan)?;
        Ok(applied)
    }

    fn write(
        &self,
        writer: &Writer,
        group: GroupId,
        plan: &mut Plan,
        write: &Write<'_>,
    ) -> Result<Applied> {
        let Write {
            slot,
            by,
            blocks,
            checksums,
            data,
        } = *write;
        let Some(state) = writer.groups.get(&group) else {
            return Err(Error::Incomplete { group });
        };
        let admitted = match admit(state, by, blocks) {
            Ok(admitted) if checksums.len() as u64 == u64::from(blocks.count) => admitted,
            Ok(_) => return Ok(refused(Refusal::Malformed)),
            Err(applied) => return Ok(applied),
        };
        let size = admitted.block_size;
        let end = u64::from(data.offset) + u64::from(size) * u64::from(blocks.count);
        if end > 1 << 32 {
            return Err(Error::BadPlace { group, slot });
        }
        self.replaced(group, admitted.head, blocks, size, plan)?;
        plan.count(data.segment, i64::from(size) * i64::from(blocks.count));
        let mut offset = data.offset;
        for (block, checksum) in blocks.range().zip(checksums) {
            let place = Place { offset, ..data };
            let checksum = *checksum;
            let (bytes, len) = entries::encode(Some(Extent { place, checksum }));
            let key = entries::key(group, admitted.head, block);
            let value = bytes.get(..len).unwrap_or_default();
            plan.batch.put(self.store.map, &key, value)?;
            offset = offset.wrapping_add(size);
        }
        plan.session = Some((by.session, admitted.session));
        Ok(Applied {
            held: admitted.is_held,
            ..Applied::of(Outcome::Done)
        })
    }

    /// Counts what a write makes garbage: what the same layer has of these blocks.
    fn replaced(
        &self,
        group: GroupId,
        head: LayerId,
        blocks: &Blocks,
        size: u32,
        plan: &mut Plan,
    ) -> Result<()> {
        let (store, snapshot) = (&*self.store, &self.store.engine.snapshot());
        if blocks.count <= FEW_BLOCKS {
            for block in blocks.range() {
                if let Some(Some(old)) = walk::get(store, snapshot, group, head, block)? {
                    plan.count(old.place.segment, -i64::from(size));
                }
            }
            return Ok(());
        }
        let range = blocks.range();
        let of = (group, head);
        let mut old = LayerCursor::new(store, snapshot, of, range.into(), 0)?;
        while let Some((_, value)) = old.entry() {
            if let Some(old) = value {
                plan.count(old.place.segment, -i64::from(size));
            }
            old.advance(store)?;
        }
        Ok(())
    }

    /// Costs time and memory in proportion to the blocks that have data, not to those that are
    /// named.
    fn discard(
        &self,
        writer: &Writer,
        group: GroupId,
        plan: &mut Plan,
        by: &Request,
        blocks: &Blocks,
    ) -> Result<Applied> {
        let Some(state) = writer.groups.get(&group) else {
            return Err(Error::Incomplete { group });
        };
        let admitted = match admit(state, by, blocks) {
            Ok(admitted) => admitted,
            Err(applied) => return Ok(applied),
        };
        let (store, snapshot) = (&*self.store, &self.store.engine.snapshot());
        let range = blocks.range().into();
        let head = admitted.head;
        let mut own = LayerCursor::new(store, snapshot, (group, head), range, 0)?;
        let mut lower = Resolved::new(store, snapshot, group, &admitted.below, range, 0)?;
        let mut below = lower.next(store)?;
        loop {
            let ours = own.entry();
            let next = ours.map(|(block, _)| block).into_iter();
            let Some(block) = next.chain(below.map(|(block, _)| block)).min() else {
                break;
            };
            let ours = ours.filter(|(at, _)| *at == block).map(|(_, value)| value);
            let has_below = below.is_some_and(|(at, _)| at == block);
            let key = entries::key(group, head, block);
            match (ours, has_below) {
                (Some(None), true) | (None, false) => {}
                (_, true) => plan.batch.put(store.map, &key, &[])?,
                (Some(_), false) => plan.batch.delete(store.map, &key)?,
            }
            if let Some(value) = ours {
                if let Some(old) = value {
                    plan.count(old.place.segment, -i64::from(admitted.block_size));
                }
                own.advance(store)?;
            }
            if has_below {
                below = lower.next(store)?;
            }
        }
        plan.session = Some((by.session, admitted.session));
        Ok(Applied {
            held: admitted.is_held,
            ..Applied::of(Outcome::Done)
        })
    }
}

fn refused(why: Refusal) -> Applied {
    Applied::of(Outcome::Refused(why))
}

/// Decides whether a write or discard may happen, from what commands can see alone.
fn admit(
    state: &GroupState,
    by: &Request,
    blocks: &Blocks,
) -> std::result::Result<Admitted, Applied> {
    let session = state.sessions.open.get(&by.session);
    let session = session.ok_or(refused(Refusal::NoSession))?;
    let volume = state.layers.volumes.get(&blocks.volume);
    let is_held = volume.is_some_and(|volume| !volume.held.is_empty());
    let slot = state.status.slot.next();
    let session = session.with(by, slot).map_err(|outcome| Applied {
        // The request may have happened behind the cut.
        held: is_held && outcome == Outcome::Repeated,
        ..Applied::of(outcome)
    })?;
    let volume = volume.ok_or(refused(Refusal::NoVolume))?;
    let end = blocks.first.checked_add(u64::from(blocks.count));
    if blocks.count == 0 || end.is_none() {
        return Err(refused(Refusal::Malformed));
    }
    let chain = state.layers.chain_of(blocks.volume).unwrap_or_default();
    Ok(Admitted {
        session,
        head: volume.head,
        below: chain.into_iter().skip(1).collect(),
        block_size: state.layers.block_size(volume.head),
        is_held,
    })
}

/// Commands that touch no block.
fn control(
    writer: &Writer,
    group: GroupId,
    slot: Slot,
    command: &Command,
    plan: &mut Plan,
) -> Applied {
    let Some(state) = writer.groups.get(&group) else {
        return refused(Refusal::Malformed);
    };
    match command {
        Command::Members(members) => {
            plan.members = Some(Some(members.clone()));
            Applied {
                members: Some(Arc::clone(members)),
                ..Applied::of(Outcome::Done)
            }
        }
        Command::OpenSession(id) if state.sessions.open.contains_key(id) => {
            Applied::of(Outcome::Done)
        }
        Command::OpenSession(id) => {
            plan.sessions = state.sessions.open(*id, slot);
            let opened = plan.sessions.as_ref().map(|change| &change.opened);
            if opened.is_some_and(|opened| opened.contains_key(id)) {
                Applied::of(Outcome::Done)
            } else {
                refused(Refusal::NoSession)
            }
        }
        Command::CloseSession(id) => {
            plan.sessions = Some(state.sessions.close(*id));
            Applied::of(Outcome::Done)
        }
        Command::CloseLives { node, before } => {
            plan.sessions = Some(state.sessions.end_lives(*node, *before));
            Applied::of(Outcome::Done)
        }
        Command::CreateVolume {
            volume,
            block_size,
            layer,
            origin,
        } => layers(state, plan, |layers| {
            layers.create(*volume, *block_size, *layer, *origin)?;
            Ok(false)
        }),
        Command::Cut { volume, layer } => layers(state, plan, |layers| {
            layers.cut(*volume, *layer)?;
            Ok(false)
        }),
        Command::Release { volume, layer } => {
            layers(state, plan, |layers| Ok(layers.release(*volume, *layer)))
        }
        Command::DropVolume(volume) => {
            layers(state, plan, |layers| Ok(layers.drop_volume(*volume)))
        }
        Command::DropLayer(layer) => layers(state, plan, |layers| {
            layers.drop_snapshot(*layer)?;
            Ok(false)
        }),
        Command::System(command) if group == GroupId::SYSTEM => system(writer, plan, command),
        Command::Order { by, command } if group == GroupId::SYSTEM => {
            order(writer, state, plan, by, command)
        }
        Command::System(_) | Command::Order { .. } => refused(Refusal::Malformed),
        // Writes and discards are applied elsewhere.
        Command::Nothing | Command::Write { .. } | Command::Discard { .. } => {
            Applied::of(Outcome::Done)
        }
    }
}

/// Changes layers; the change says whether a volume is not held any more.
fn layers(
    state: &GroupState,
    plan: &mut Plan,
    change: impl FnOnce(&mut Layers) -> std::result::Result<bool, Refusal>,
) -> Applied {
    let mut next = Layers::clone(&state.layers);
    match change(&mut next) {
        Ok(released) => {
            if next != *state.layers {
                plan.layers = Some(next);
            }
            Applied {
                released,
                ..Applied::of(Outcome::Done)
            }
        }
        Err(why) => refused(why),
    }
}

/// Carries a user's command out, once.
fn order(
    writer: &Writer,
    state: &GroupState,
    plan: &mut Plan,
    by: &Request,
    command: &[u8],
) -> Applied {
    let Some(session) = state.sessions.open.get(&by.session) else {
        return refused(Refusal::NoSession);
    };
    match session.with(by, state.status.slot.next()) {
        Ok(session) => {
            plan.session = Some((by.session, session));
            system(writer, plan, command)
        }
        Err(Outcome::Repeated) => repeated(writer, command),
        Err(outcome) => Applied::of(outcome),
    }
}

/// The answer to a command that was carried out before, and whose answer may have been lost.
fn repeated(writer: &Writer, command: &[u8]) -> Applied {
    let Some(command) = SystemCommand::decode(command) else {
        return refused(Refusal::Malformed);
    };
    let mut next = (*writer.system).clone();
    let outcome = match (next.apply(&command), &command) {
        // It is gone.
        (
            SystemOutcome::Error(error),
            SystemCommand::Delete(_) | SystemCommand::DeleteSnapshot { .. },
        ) if error.kind == SystemErrorKind::NotFound => SystemOutcome::Ok(None),
        (outcome, _) if next == *writer.system => outcome,
        // What it did was undone since, or what kept it from happening is gone.
        _ => SystemOutcome::Error(SystemError {
            kind: SystemErrorKind::Busy,
            text: "the command was carried out before, and its answer was lost".to_string(),
        }),
    };
    Applied::of(Outcome::System(outcome.encode()))
}

fn system(writer: &Writer, plan: &mut Plan, command: &[u8]) -> Applied {
    let Some(command) = SystemCommand::decode(command) else {
        return refused(Refusal::Malformed);
    };
    let mut next = (*writer.system).clone();
    let outcome: SystemOutcome = next.apply(&command);
    if next != *writer.system {
        plan.system = Some(next);
    }
    Applied::of(Outcome::System(outcome.encode()))
}
