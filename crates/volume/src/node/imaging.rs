//! Sending and installing images, step by step.

use super::core::Core;
use super::images::{
    ANY, ASK_AGAIN, FORGET, Incoming, MOST_ENTRIES, Outgoing, Piece, RECORD_BYTES, STALLED,
    UNWANTED,
};
use super::input::{Action, ReadKind, ReadWork};
use super::log::Log;
use super::running::ReadFor;
use crate::bytes::Bytes;
use crate::extents::{Kind, Record};
use crate::ids::{Ballot, GroupId, LayerId, NodeId};
use crate::map::{Extent, ImageEntry, ImageMeta};
use crate::place::Place;
use crate::wire::Frame;
use esker_coding::Reader;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks that follow each other and have data.
struct Run {
    layer: LayerId,
    first: u64,
    block_size: usize,
    data: Bytes,
}

/// Tells the sender of an image that it is not wanted.
fn unwanted(to: NodeId, group: GroupId, image: u64) -> Action {
    let piece = UNWANTED;
    let frame = Frame::ImageNext {
        group,
        image,
        piece,
    };
    Action::Send(to, frame.encode())
}

impl Core {
    /// Begins and goes on with images that wait for their turn.
    pub(super) fn tick_images(&mut self) {
        for (group, node) in std::mem::take(&mut self.images.wanted) {
            self.begin_image(group, node);
        }
        let now = self.now;
        self.give_up_images();
        // Of the first piece the replica knows nothing, and behind the last one it says once that
        // it has all: it does not ask again.
        for out in self.images.outgoing.values_mut() {
            let is_due = !out.is_reading && out.wants.is_none() && out.sent + ASK_AGAIN < now;
            if let Some((piece, is_last, _)) = out.last.as_ref().filter(|_| is_due)
                && (*piece == 0 || *is_last)
            {
                out.wants = Some(*piece);
            }
        }
        let due = self.images.outgoing.iter();
        let due = due.filter(|(_, out)| out.wants.is_some() && out.not_before <= now);
        let due: Vec<(NodeId, GroupId)> = due.map(|(key, _)| *key).collect();
        for (node, group) in due {
            self.next_piece(node, group);
        }
        let mut again = Vec::new();
        for (group, incoming) in &mut self.images.incoming {
            if incoming.is_asked && incoming.asked + ASK_AGAIN < now {
                incoming.asked = now;
                let (image, piece) = (incoming.number, incoming.next);
                again.push((
                    incoming.from,
                    Frame::ImageNext {
                        group: *group,
                        image,
                        piece,
                    },
                ));
            }
        }
        for (node, frame) in again {
            self.actions.push(Action::Send(node, frame.encode()));
        }
        self.ask_for_images();
    }

    /// A state that is incomplete, and that no image is coming for, stays so until another replica
    /// is asked: the log may be all here, so that no leader sees what is missing; and this replica
    /// may lead, since its log may be the only one that is far enough.
    fn ask_for_images(&mut self) {
        let now = self.now;
        if now < self.images.missed + ASK_AGAIN {
            return;
        }
        self.images.missed = now;
        let mut asked = Vec::new();
        for (id, group) in self.groups.iter().filter(|(_, group)| group.is_incomplete) {
            let incoming = self.images.incoming.get(id);
            if incoming.is_some_and(|image| image.came + STALLED > now) {
                continue;
            }
            let leader = group.consensus.leader();
            match leader.filter(|leader| *leader != self.me.node) {
                Some(leader) => asked.push((leader, *id)),
                None => asked.extend(self.peers.keys().map(|node| (*node, *id))),
            }
        }
        for (node, group) in asked {
            let (image, piece) = (ANY, 0);
            let frame = Frame::ImageNext {
                group,
                image,
                piece,
            };
            self.actions.push(Action::Send(node, frame.encode()));
        }
    }

    /// Images that were not asked for lately, or not by this life of the node, will not be.
    fn give_up_images(&mut self) {
        let (now, peers) = (self.now, &self.peers);
        let mut gone = Vec::new();
        self.images.outgoing.retain(|(node, group), out| {
            let life = peers.get(node).map(|hello| hello.life);
            let is_same = life.is_none() || out.life.is_none() || life == out.life;
            let stays = is_same && out.asked + FORGET > now;
            if !stays {
                gone.push((*node, *group));
            }
            stays
        });
        for (node, group) in gone {
            self.image_failed(node, group);
        }
    }

    fn begin_image(&mut self, group: GroupId, node: NodeId) {
        if self.images.outgoing.contains_key(&(node, group)) || self.failed.is_some() {
            return;
        }
        let image = match self.map.image(group) {
            Ok(image) => Arc::new(image),
            // This replica waits for an image itself.
            Err(crate::error::Error::Incomplete { .. }) => return self.image_failed(node, group),
            Err(error) => return self.fail(error),
        };
        self.images.next += 1;
        let number = self.me.life << 32 | self.images.next;
        let at = (image.meta().slot, image.meta().ballot);
        let mut meta = Vec::new();
        image.meta().encode(&mut meta);
        let meta = Bytes::from(meta);
        let outgoing = Outgoing {
            number,
            life: self.peers.get(&node).map(|hello| hello.life),
            image,
            piece: 0,
            after: None,
            last: Some((0, false, meta.clone())),
            is_reading: false,
            asked: self.now,
            sent: self.now,
            not_before: self.now,
            wants: None,
        };
        self.images.outgoing.insert((node, group), outgoing);
        let (image, piece, last, bytes) = (number, 0, false, meta);
        let frame = Frame::Image {
            group,
            image,
            piece,
            at,
            last,
            bytes,
        };
        self.actions.push(Action::Send(node, frame.encode()));
    }

    /// The image ended before its end: the protocol asks for another one when it needs it.
    fn image_failed(&mut self, node: NodeId, group: GroupId) {
        self.images.outgoing.remove(&(node, group));
        if let Some(group) = self.groups.get_mut(&group) {
            group.consensus.image_failed(node);
        }
    }

    /// A replica wants a piece.
    pub(super) fn image_next(&mut self, node: NodeId, group: GroupId, image: u64, piece: u64) {
        let now = self.now;
        if image == ANY {
            let has_state = self
                .groups
                .get(&group)
                .is_some_and(|group| !group.is_incomplete);
            if has_state {
                self.images.wanted(group, node);
            }
            return;
        }
        let Some(out) = self.images.outgoing.get_mut(&(node, group)) else {
            return;
        };
        if out.number != image {
            return;
        }
        out.asked = now;
        let is_done = piece == UNWANTED;
        if is_done
            || piece == out.piece + 1 && out.last.as_ref().is_some_and(|(_, is_last, _)| *is_last)
        {
            // All of it is installed.
            let through = out.image.meta().slot;
            self.images.outgoing.remove(&(node, group));
            self.images.joining.insert((node, group), (through, now));
            if let Some(group) = self.groups.get_mut(&group) {
                group.consensus.image_sent(node, through);
            }
            return;
        }
        out.wants = Some(piece);
        if out.not_before <= now {
            self.next_piece(node, group);
        }
    }

    fn next_piece(&mut self, node: NodeId, group: GroupId) {
        let Some(out) = self.images.outgoing.get_mut(&(node, group)) else {
            return;
        };
        let Some(piece) = out.wants else { return };
        if out.is_reading {
            return;
        }
        let at = (out.image.meta().slot, out.image.meta().ballot);
        match &out.last {
            Some((number, last, bytes)) if *number == piece => {
                out.wants = None;
                out.sent = self.now;
                let (image, last, bytes) = (out.number, *last, bytes.clone());
                let frame = Frame::Image {
                    group,
                    image,
                    piece,
                    at,
                    last,
                    bytes,
                };
                self.actions.push(Action::Send(node, frame.encode()));
            }
            _ if piece == out.piece + 1 => {
                out.is_reading = true;
                let (image, after) = (out.image.clone(), out.after.clone());
                let kind = ReadKind::Piece { image, after };
                let number = out.number;
                let ticket = self.ticket();
                self.start_read(
                    ticket,
                    ReadFor::Piece(node, number),
                    ReadWork { group, kind },
                );
            }
            // A piece from before: its answer crossed the question.
            _ => out.wants = None,
        }
    }

    /// A piece was read.
    pub(super) fn piece_read(
        &mut self,
        node: NodeId,
        group: GroupId,
        number: u64,
        piece: Option<(Vec<u8>, Option<Vec<u8>>)>,
    ) {
        let now = self.now;
        let rate = self.settings.background_bytes.max(1);
        let Some(out) = self.images.outgoing.get_mut(&(node, group)) else {
            return self.image_failed(node, group);
        };
        // It may be of an image that was given up while it was read.
        if out.number != number {
            return;
        }
        out.is_reading = false;
        let Some((bytes, after)) = piece else {
            return self.image_failed(node, group);
        };
        out.piece += 1;
        let bytes = Bytes::from(bytes);
        let begin = self.images.not_before.max(now);
        self.images.not_before = begin + bytes.len() as u64 * 1000 / rate;
        out.not_before = self.images.not_before;
        out.last = Some((out.piece, after.is_none(), bytes));
        out.after = after;
        out.wants = Some(out.piece);
        self.next_piece(node, group);
    }

    /// A piece has come.
    pub(super) fn image_piece(&mut self, from: NodeId, group: GroupId, piece: &Piece<'_>) {
        if self.failed.is_some() || !self.groups.contains_key(&group) {
            return;
        }
        if piece.number == 0 {
            return self.first_piece(from, group, piece);
        }
        let Some(incoming) = self.images.incoming.get(&group) else {
            return self.decline(from, group, piece);
        };
        let is_next = incoming.number == piece.image && incoming.next == piece.number;
        if !is_next || incoming.from != from {
            return;
        }
        let meta = incoming.meta.clone();
        let Some(entries) = self.write_piece(group, &meta, piece.bytes) else {
            return;
        };
        let (end, now) = (self.extents.end(), self.now);
        let Some(incoming) = self.images.incoming.get_mut(&group) else {
            return;
        };
        incoming.next += 1;
        incoming.came = now;
        incoming.is_asked = false;
        incoming.waiting.push_back((end, entries, piece.is_last));
        if end <= self.extents.synced() {
            self.images_synced(end);
        } else {
            self.ask_for_pieces();
        }
    }

    fn first_piece(&mut self, from: NodeId, group: GroupId, piece: &Piece<'_>) {
        let (number, at) = (piece.image, piece.at);
        let known = self.images.incoming.get(&group);
        let is_known = known.is_some_and(|known| known.number == number);
        let state = self.groups.get(&group);
        // What is older than the state is of no use.
        let is_old = state.is_some_and(|g| !g.is_incomplete && g.applied >= at.0);
        let Some(meta) = ImageMeta::decode(&mut Reader::new(piece.bytes)) else {
            return;
        };
        // Nor is what ends before the log begins.
        let is_short = state.is_some_and(|group| at.0 < group.log.base().0);
        let leads = state.is_some_and(|group| !group.is_incomplete && group.consensus.is_leader());
        if is_known || is_short || leads {
            return;
        }
        if is_old {
            return self.decline(from, group, piece);
        }
        // One is under way from elsewhere. This sender offers its own again while it may be wanted.
        let is_alive = |known: &&Incoming| known.from != from && known.came + STALLED > self.now;
        if known.is_some_and(|known| is_alive(&known)) {
            return;
        }
        let former = known.map(|known| (known.from, known.number));
        match self.map.begin_install(group, &meta) {
            Ok(()) => {}
            // The state has passed it meanwhile.
            Err(crate::error::Error::OldImage { .. }) => return,
            Err(error) => return self.fail(error),
        }
        if let Some(state) = self.groups.get_mut(&group) {
            state.is_incomplete = true;
        }
        let (next, asked, came, waiting) = (1, self.now, self.now, VecDeque::new());
        let (is_asked, is_clearing) = (false, true);
        let incoming = Incoming {
            from,
            number,
            at,
            meta,
            next,
            asked,
            is_asked,
            is_clearing,
            came,
            waiting,
        };
        self.images.incoming.insert(group, incoming);
        if let Some((former, image)) = former {
            self.actions.push(unwanted(former, group, image));
        }
        self.clear(group, number);
    }

    /// Removes what is left of the former state, on a thread that reads.
    fn clear(&mut self, group: GroupId, image: u64) {
        let (ticket, kind) = (self.ticket(), ReadKind::Clear { image });
        self.start_read(ticket, ReadFor::Upkeep, ReadWork { group, kind });
    }

    /// Some of the former state was removed, or all of it; or that failed: another image is asked
    /// for then.
    pub(super) fn cleared(&mut self, group: GroupId, image: u64, is_all: Option<bool>) {
        let now = self.now;
        let incoming = self.images.incoming.get_mut(&group);
        let Some(incoming) = incoming.filter(|incoming| incoming.number == image) else {
            return;
        };
        incoming.came = now;
        match is_all {
            Some(true) => {
                incoming.is_clearing = false;
                self.ask_for_pieces();
            }
            Some(false) => self.clear(group, image),
            None => drop(self.images.incoming.remove(&group)),
        }
    }

    /// An image is of no use, or is installed: where the state is as new, its sender hears so.
    fn decline(&mut self, from: NodeId, group: GroupId, piece: &Piece<'_>) {
        let state = self.groups.get(&group);
        if state.is_some_and(|g| !g.is_incomplete && g.applied >= piece.at.0) {
            self.actions.push(unwanted(from, group, piece.image));
        }
    }

    /// Writes the data of a piece, and returns its entries with the places that they have here.
    /// `None` where it is damaged.
    fn write_piece(
        &mut self,
        group: GroupId,
        meta: &ImageMeta,
        bytes: &Bytes,
    ) -> Option<Vec<ImageEntry>> {
        let from = &mut Reader::new(bytes);
        let mut entries = Vec::new();
        while !from.is_empty() {
            let layer = LayerId(u32::try_from(from.varint()?).ok()?);
            let (first, count) = (from.varint()?, from.varint()?);
            let end = first.checked_add(count)?;
            // A run of holes is short however many they are.
            if count > (MOST_ENTRIES as u64).saturating_sub(entries.len() as u64) {
                return None;
            }
            if from.u8()? == 0 {
                entries.extend((first..end).map(|block| ImageEntry {
                    layer,
                    block,
                    extent: None,
                }));
                continue;
            }
            let size = meta.block_size(layer).filter(|size| *size > 0)? as usize;
            let length = usize::try_from(count).ok()?.checked_mul(size)?;
            let start = bytes.len() - from.rest().len();
            from.take(length)?;
            let (mut block, most) = (first, size.max(RECORD_BYTES / size * size));
            for at in (0..length).step_by(most) {
                let part = start + at..start + length.min(at + most);
                let run = Run {
                    layer,
                    first: block,
                    block_size: size,
                    data: bytes.part(part)?,
                };
                self.write_run(group, &run, &mut entries)?;
                block += (run.data.len() / size) as u64;
            }
        }
        Some(entries)
    }

    /// Writes the data of blocks that follow each other as one record.
    fn write_run(
        &mut self,
        group: GroupId,
        run: &Run,
        entries: &mut Vec<ImageEntry>,
    ) -> Option<()> {
        let Run {
            layer,
            first,
            block_size: size,
            ref data,
        } = *run;
        let number = first.to_le_bytes();
        let others = (data.len() / size).saturating_sub(1) as u64;
        let placed = self.append_record(&Record {
            kind: Kind::Moved,
            group,
            slot: u64::from(layer.0) | others << 32,
            ballot: Ballot(0),
            parts: &[&number],
            data,
            checksum: None,
        })?;
        let mut place = Place {
            segment: placed.payload.segment,
            offset: placed.payload.offset + number.len() as u32,
        };
        for (block, data) in (first..).zip(data.chunks_exact(size)) {
            let checksum = crate::command::checksum(data);
            entries.push(ImageEntry {
                layer,
                block,
                extent: Some(Extent { place, checksum }),
            });
            place.offset = place.offset.saturating_add(size as u32);
        }
        Some(())
    }

    /// Everything before `end` is durable: pieces are installed.
    pub(super) fn images_synced(&mut self, end: u64) {
        let groups: Vec<GroupId> = self.images.incoming.keys().copied().collect();
        for group in groups {
            while let Some((_, entries, last)) = self
                .images
                .incoming
                .get_mut(&group)
                .and_then(|image| image.waiting.pop_front_if(|(at, ..)| *at <= end))
            {
                if let Err(error) = self.map.install_chunk(group, &entries) {
                    return self.fail(error);
                }
                if last {
                    self.finish_image(group);
                    break;
                }
            }
        }
        // There is room again for what was held back.
        self.ask_for_pieces();
    }

    /// Asks for the next pieces, as far as there is memory for them.
    fn ask_for_pieces(&mut self) {
        let most = self.settings.shares().images;
        for group in self.images.to_ask(most) {
            let now = self.now;
            let Some(incoming) = self.images.incoming.get_mut(&group) else {
                continue;
            };
            (incoming.asked, incoming.is_asked) = (now, true);
            let (from, image, piece) = (incoming.from, incoming.number, incoming.next);
            let frame = Frame::ImageNext {
                group,
                image,
                piece,
            };
            self.actions.push(Action::Send(from, frame.encode()));
        }
    }

    fn finish_image(&mut self, id: GroupId) {
        let Some(incoming) = self.images.incoming.remove(&id) else {
            return;
        };
        let (slot, ballot) = incoming.at;
        // The log begins behind the image from here on: this flushes, so the state is durable.
        if let Err(error) = self.map.finish_install(id, slot, ballot) {
            return self.fail(error);
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        // What was accepted behind it counts at the leader: it stays.
        let is_kept = group.log.ballot_at(slot) == Some(ballot);
        if is_kept {
            group.log.cut(slot);
            group.durable = group.durable.max(slot);
        } else {
            group.log = Log::new(incoming.at);
            group.durable = slot;
        }
        group.applied = slot;
        group.chosen = group.chosen.max(slot);
        group.is_incomplete = false;
        group.ready_at = group.ready_at.max(slot);
        let initial = self
            .formation
            .as_ref()
            .map(|formation| formation.members.clone());
        let members = incoming
            .meta
            .members
            .clone()
            .or(initial)
            .unwrap_or_default();
        self.step(id, &mut Default::default(), |core, now, out| {
            core.image_installed(now, incoming.at, members, out);
        });
        if let Some(group) = self.groups.get_mut(&id) {
            // A leader may answer from now on, where its own entries are applied.
            group.leads = group.consensus.is_leader() && group.applied >= group.ready_at;
        }
        // A log that is kept is read from where it begins on disk: none of it is void.
        if let Some(group) = self.groups.get(&id).filter(|_| !is_kept) {
            let head = super::heads::head(group, slot);
            self.append(Kind::Base, id, slot.0, ballot, &[&head]);
        }
        self.errands.system_changed();
        if id == GroupId::SYSTEM {
            self.members_changed();
        }
        let frame = Frame::ImageNext {
            group: id,
            image: incoming.number,
            piece: incoming.next,
        };
        self.actions
            .push(Action::Send(incoming.from, frame.encode()));
    }
}
