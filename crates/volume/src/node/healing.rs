//! Healing damaged blocks, step by step.

use super::core::Core;
use super::heal::{Asked, MOST_TRIES, Move, PATIENCE, PAUSE, ROUNDS, Wanted};
use super::input::{Action, ReadKind, ReadWork};
use super::running::{ReadFor, RunningRead};
use crate::extents::Kind;
use crate::ids::{Ballot, GroupId, LayerId, NodeId};
use crate::place::Place;
use crate::wire::{Frame, Refusal};

impl Core {
    /// Fetches a block that a read found damaged, or that scrub did.
    pub(super) fn heal(&mut self, ticket: u64, mut read: RunningRead, wanted: Wanted) {
        read.tries += 1;
        if read.tries > MOST_TRIES {
            return self.read_ended(ticket, read, Err(Refusal::Damaged));
        }
        self.fetch_anew(wanted, Some((ticket, read)));
    }

    pub(super) fn fetch_anew(&mut self, wanted: Wanted, read: Option<(u64, RunningRead)>) {
        let left = self.to_ask();
        self.healing.next += 1;
        let (id, since) = (self.healing.next, self.now);
        self.healing.asked.insert(
            id,
            Asked {
                wanted,
                left,
                since,
                rounds: 0,
                is_paused: false,
                read,
            },
        );
        self.ask_next(id);
    }

    fn to_ask(&self) -> Vec<NodeId> {
        let peers = self.peers.keys().copied();
        peers.filter(|node| self.is_member(*node)).collect()
    }

    fn ask_next(&mut self, id: u64) {
        let now = self.now;
        let Some(asked) = self.healing.asked.get_mut(&id) else {
            return;
        };
        asked.since = now;
        let Wanted {
            group,
            layer,
            block,
            checksum,
            ..
        } = asked.wanted;
        if let Some(node) = asked.left.pop() {
            let frame = Frame::Fetch {
                id,
                group,
                layer,
                block,
                checksum,
            };
            self.actions.push(Action::Send(node, frame.encode()));
            return;
        }
        asked.rounds += 1;
        asked.is_paused = true;
        if asked.rounds < ROUNDS {
            return;
        }
        self.healing.lost += 1;
        let read = self.healing.asked.remove(&id).and_then(|asked| asked.read);
        if let Some((ticket, read)) = read {
            self.read_ended(ticket, read, Err(Refusal::Damaged));
        }
    }

    /// Replicas that did not answer are passed over. When none has the block, all are asked again.
    pub(super) fn tick_healing(&mut self) {
        if self.healing.asked.is_empty() {
            return;
        }
        let (now, all) = (self.now, self.to_ask());
        let mut late = Vec::new();
        for (id, asked) in &mut self.healing.asked {
            let patience = if asked.is_paused { PAUSE } else { PATIENCE };
            if asked.since + patience >= now {
                continue;
            }
            if std::mem::take(&mut asked.is_paused) {
                asked.left.clone_from(&all);
            }
            late.push(*id);
        }
        late.into_iter().for_each(|id| self.ask_next(id));
    }

    /// Another replica's block is damaged.
    pub(super) fn fetch(
        &mut self,
        from: NodeId,
        id: u64,
        group: GroupId,
        layer: LayerId,
        block: u64,
        checksum: u64,
    ) {
        let ticket = self.ticket();
        let kind = ReadKind::Block {
            layer,
            block,
            checksum,
        };
        self.start_read(ticket, ReadFor::Fetch(from, id), ReadWork { group, kind });
    }

    /// A replica answered.
    pub(super) fn fetched(&mut self, id: u64, data: Option<Vec<u8>>) {
        let Some(asked) = self.healing.asked.get(&id) else {
            return;
        };
        let wanted = asked.wanted;
        match data.filter(|data| crate::command::checksum(data) == wanted.checksum) {
            Some(data) => self.healed(id, wanted, &data),
            None => self.ask_next(id),
        }
    }

    fn healed(&mut self, id: u64, wanted: Wanted, data: &[u8]) {
        let Some(asked) = self.healing.asked.remove(&id) else {
            return;
        };
        self.rewrite(wanted, data, true, asked.read);
    }

    /// Writes a block's data anew, in place of those at its place, which are damaged where this
    /// `heals` them. The map follows once they are durable, and then the read goes on.
    pub(super) fn rewrite(
        &mut self,
        wanted: Wanted,
        data: &[u8],
        heals: bool,
        read: Option<(u64, RunningRead)>,
    ) {
        let block = wanted.block.to_le_bytes();
        let layer = u64::from(wanted.layer.0);
        let placed = self.append(Kind::Moved, wanted.group, layer, Ballot(0), &[&block, data]);
        let Some(placed) = placed else {
            if let Some((ticket, read)) = read {
                self.read_ended(ticket, read, Err(Refusal::NotLeader(None)));
            }
            return;
        };
        let to = Place {
            segment: placed.payload.segment,
            offset: placed.payload.offset + block.len() as u32,
        };
        self.healing.moves.push_back(Move {
            end: placed.lsn_end,
            wanted,
            to,
            heals,
            read,
        });
    }

    /// Everything before `end` is durable: the map may refer to it.
    pub(super) fn moves_synced(&mut self, end: u64) {
        while let Some(next) = self.healing.moves.pop_front_if(|next| next.end <= end) {
            let Wanted {
                group,
                layer,
                block,
                place,
                ..
            } = next.wanted;
            match self.map.moved(group, layer, block, place, next.to) {
                Ok(moved) => self.healing.healed += u64::from(moved && next.heals),
                Err(error) => return self.fail(error),
            }
            if let Some((ticket, read)) = next.read {
                let again = read.work.clone();
                self.running.insert(ticket, read);
                self.actions.push(Action::Read(ticket, again));
            }
        }
    }
}
