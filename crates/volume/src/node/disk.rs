//! What goes to this node's disk, and what becomes durable.

use super::core::Core;
use super::input::Action;
use super::log::Entry;
use super::running::Bodies;
use crate::body::Body;
use crate::bytes::Bytes;
use crate::consensus::Output;
use crate::error::Error;
use crate::extents::{Kind, Placed, Record};
use crate::ids::{Ballot, GroupId, Slot};
use crate::wire::Refusal;

impl Core {
    /// Puts a record into the batch that is being collected. A new segment begins with what is
    /// needed to read from there.
    pub(super) fn append(
        &mut self,
        kind: Kind,
        group: GroupId,
        slot: u64,
        ballot: Ballot,
        payload: &[&[u8]],
    ) -> Option<Placed> {
        let record = Record {
            kind,
            group,
            slot,
            ballot,
            parts: payload,
            data: &Bytes::default(),
            checksum: None,
        };
        self.append_record(&record)
    }

    /// As [`Core::append`]; long data are not copied.
    pub(super) fn append_record(&mut self, record: &Record<'_>) -> Option<Placed> {
        if self.failed.is_some() {
            return None;
        }
        let (me, formation, groups) = (&self.me, self.formation.as_ref(), &self.groups);
        let mut heads = || super::heads::heads(me, formation, groups.values());
        match self.extents.append_record(record, &mut heads) {
            Ok(placed) => Some(placed),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// The disk learns that entries are void before it gets those that are in their place: where
    /// reading begins behind the segment that has the first ones, nothing else would tell.
    fn append_end(&mut self, id: GroupId, slot: Slot) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.log.end_at(slot.previous());
        let (last, ballot) = group.log.last_entry();
        if group.log.take_shortened() {
            let mut members = Vec::new();
            group.consensus.members_at(last).encode(&mut members);
            self.append(Kind::End, id, last.0, ballot, &[&members]);
        }
    }

    pub(super) fn append_entry(&mut self, id: GroupId, slot: Slot, ballot: Ballot, body: Body) {
        self.append_end(id, slot);
        let (head, data): (&[u8], _) = match body.pieces() {
            [all, rest] if rest.is_empty() => (&[], all),
            [head, data] => (head, data),
        };
        let record = Record {
            kind: Kind::Entry,
            group: id,
            slot: slot.0,
            ballot,
            parts: &[head],
            data,
            checksum: Some(body.checksum()),
        };
        let Some(placed) = self.append_record(&record) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let entry = Entry {
            ballot,
            record: placed.place,
            payload: placed.payload,
            end: placed.lsn_end,
            body: Some(body),
        };
        group.durable = group.durable.min(slot.previous());
        let is_next = group.log.put(slot, entry);
        debug_assert!(is_next, "entries are appended in the order of slots");
    }

    /// The command of an entry, from memory or from disk. `None` where the log has another entry,
    /// or the bytes of this one are lost.
    ///
    /// # Errors
    /// Those of reading that say nothing of the bytes, such as a lack of file descriptors.
    pub(super) fn body(
        &self,
        id: GroupId,
        slot: Slot,
        ballot: Ballot,
    ) -> Result<Option<Body>, Error> {
        let entry = self.groups.get(&id).and_then(|group| group.log.get(slot));
        let Some(entry) = entry.filter(|entry| entry.ballot == ballot) else {
            return Ok(None);
        };
        if let Some(body) = &entry.body {
            return Ok(Some(body.clone()));
        }
        match self.reader.read_record(entry.record) {
            Ok((header, payload)) => {
                let is_it = header.group == id && header.slot == slot.0;
                Ok(is_it.then(|| Body::known(payload.into(), header.checksum)))
            }
            Err(error) if error.is_damage() || matches!(error, Error::Gone { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn start_batch(&mut self) {
        if self.is_syncing || self.failed.is_some() {
            return;
        }
        if let Some(batch) = self.extents.take_batch() {
            self.is_syncing = true;
            self.syncing_since = self.now;
            self.actions.push(Action::Batch(batch));
        }
    }

    pub(super) fn batch_done(&mut self, result: Result<u64, Error>) {
        self.is_syncing = false;
        let end = match result {
            Ok(end) => end,
            Err(error) => return self.fail(error),
        };
        self.extents.batch_done(end);
        while let Some((_, to, packet)) = self.after_sync.pop_front_if(|(at, ..)| *at <= end) {
            self.actions.push(Action::Send(to, packet));
        }
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let durable = group.log.durable(end, group.durable);
            if durable > group.durable
                && let Some(ballot) = group.log.ballot_at(durable)
            {
                group.durable = durable;
                self.step(id, &mut Bodies::new(), |core, now, out| {
                    core.appended_durably(now, durable, ballot, out);
                });
                self.to_apply.insert(id);
            }
        }
        self.moves_synced(end);
        self.images_synced(end);
    }

    /// The disk failed: this replica steps back, for good; or it is full: until there is room.
    pub(super) fn fail(&mut self, error: Error) {
        if self.failed.is_some() {
            let is_for_good = matches!(
                error,
                Error::Io { .. } | Error::Corruption { .. } | Error::Poisoned { .. }
            );
            if self.is_full() && is_for_good {
                self.failed = Some(error);
            }
            return;
        }
        self.failed = Some(error);
        self.answer_late();
        self.after_sync.clear();
        // Another replica may answer what waits for blocks that cannot be written anew here.
        for (ticket, read) in self.healing.take_reads() {
            self.read_ended(ticket, read, Err(Refusal::NotLeader(None)));
        }
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let mut outputs = Vec::new();
            group.consensus.step_back(&mut outputs);
            for output in outputs {
                if !matches!(output, Output::Append(_) | Output::Vote { .. }) {
                    self.output(id, output, &mut Bodies::new());
                }
            }
        }
    }

    /// An entry of the log cannot be read any more. One that is state already is of no use but for
    /// replicas that are behind, who get an image then; any other is restored by the leader.
    pub(super) fn lose(&mut self, id: GroupId, slot: Slot) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        if slot <= group.applied {
            group.log.cut(slot);
            group.consensus.cut(slot);
            return;
        }
        group.log.end_at(slot.previous());
        group.durable = group.durable.min(slot.previous());
        self.step(id, &mut Bodies::new(), |core, now, out| {
            core.lost(now, slot, out)
        });
        // At the next start these bytes may be readable: the disk says what does not count, before
        // it gets a part of what is restored.
        if let Some(group) = self.groups.get_mut(&id) {
            group.damage = group.damage.max(group.consensus.damage());
            self.append_head(id);
        }
    }

    /// What was lost of a group is on disk again, with what was appended before. Until then
    /// segments begin with what is missing, also where the protocol has seen the entries.
    pub(super) fn mended(&mut self, id: GroupId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.damage = None;
            self.append_head(id);
        }
    }

    /// Writes where a group stands, as at the beginning of a segment.
    pub(super) fn append_head(&mut self, id: GroupId) {
        if let Some(group) = self.groups.get(&id) {
            let (last, ballot) = group.log.last_entry();
            let head = super::heads::head(group, last);
            self.append(Kind::Base, id, last.0, ballot, &[&head]);
        }
    }
}
