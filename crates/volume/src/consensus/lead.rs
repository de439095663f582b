//! How a leader sends entries, what is chosen, and how it hands over.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::core::{Core, State};
use super::message::{Message, Meta};
use super::progress::{Leading, Progress, Transfer};
use super::rounds::Rounds;
use super::types::{NOTHING_BYTES, Output, ProposeError, Time};
use crate::ids::{Ballot, NodeId, Slot};
use crate::members::Members;

impl Core {
    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.state {
            State::Leader(leading) => Some(leading),
            _ => None,
        }
    }

    /// A majority has promised.
    pub(super) fn lead(&mut self, now: Time, out: &mut Vec<Output>) {
        let slot = self.log.last().0.next();
        let others = self
            .log
            .members()
            .iter()
            .filter(|member| member.node != self.node);
        let members = others
            .map(|member| (member.node, Progress::new(slot, now)))
            .collect();
        self.state = State::Leader(Box::new(Leading {
            members,
            first: slot,
            reads: Rounds::default(),
            next_heartbeat: now,
            transfer: None,
            is_giving_up: false,
        }));
        self.leader = Some(self.node);
        // What was chosen before becomes known as such with the first entry of this ballot.
        self.append(
            Meta {
                slot,
                ballot: self.ballot,
                bytes: NOTHING_BYTES,
                members: None,
            },
            out,
        );
        out.push(Output::Leadership);
        self.tick_leader(now, out);
    }

    fn append(&mut self, meta: Meta, out: &mut Vec<Output>) {
        let is_next = self.log.push(meta.clone());
        debug_assert!(is_next, "a leader's entries follow each other");
        out.push(Output::Append(vec![meta]));
    }

    /// Proposes a command of so many bytes, or a change of members. The caller has the command; the
    /// output names its slot. It is sent by [`Core::send_proposed`], together with those proposed
    /// until then.
    ///
    /// # Errors
    /// Where this replica does not lead, or the change has to wait.
    pub fn propose(
        &mut self,
        now: Time,
        bytes: u32,
        members: Option<Arc<Members>>,
        out: &mut Vec<Output>,
    ) -> Result<Slot, ProposeError> {
        let leader = self.leader;
        let (first, is_transferring) = match &self.state {
            State::Leader(leading) => (leading.first, leading.transfer.is_some()),
            _ => return Err(ProposeError::NotLeader { leader }),
        };
        if is_transferring {
            return Err(ProposeError::Busy);
        }
        if let Some(new) = &members {
            if self.chosen < first || self.log.members_since() > self.chosen {
                return Err(ProposeError::Busy);
            }
            if !differ_by_one(self.log.members(), new) {
                return Err(ProposeError::TooMany);
            }
        }
        let slot = self.log.last().0.next();
        let changes = members.is_some();
        let before = self.log.members().clone();
        self.append(
            Meta {
                slot,
                ballot: self.ballot,
                bytes,
                members,
            },
            out,
        );
        if changes {
            self.members_changed(now, &before);
        }
        Ok(slot)
    }

    /// Members have come or gone, or have other disks.
    fn members_changed(&mut self, now: Time, before: &Members) {
        let (members, node, next) = (self.log.members().clone(), self.node, self.log.last().0);
        let Some(leading) = self.leading() else {
            return;
        };
        leading
            .members
            .retain(|node, _| members.get(*node).is_some());
        for member in members.iter().filter(|member| member.node != node) {
            let is_same = before
                .get(member.node)
                .is_some_and(|old| old.disk == member.disk);
            if !is_same || !leading.members.contains_key(&member.node) {
                leading
                    .members
                    .insert(member.node, Progress::new(next, now));
            }
        }
    }

    /// Signs of life, and whether a majority still answers.
    pub(super) fn tick_leader(&mut self, now: Time, out: &mut Vec<Output>) {
        let patience = self.settings.election;
        let heartbeat = self.settings.heartbeat;
        let mut heard = BTreeMap::from([(self.node, u64::MAX)]);
        let Some(leading) = self.leading() else {
            return;
        };
        heard.extend(
            leading
                .members
                .iter()
                .map(|(node, progress)| (*node, progress.heard)),
        );
        if leading
            .transfer
            .is_some_and(|transfer| transfer.until <= now)
        {
            leading.transfer = None;
        }
        let is_due = leading.next_heartbeat <= now;
        if is_due {
            leading.next_heartbeat = now + heartbeat;
        }
        if self
            .majority_of(&heard)
            .is_none_or(|heard| heard.saturating_add(patience) <= now)
        {
            return self.step_down(now, out);
        }
        if self.wants_next_ballot(now) {
            self.step_down(now, out);
            return self.campaign(now, true, out);
        }
        if is_due {
            self.begin_round(now, out);
        }
    }

    /// True where a member that was asked to lead did not come to. No lease holds in this ballot
    /// any more, since the request may arrive at any time. In the next one it is void: a majority
    /// that has promised that ballot to this replica promises it to no other, and only a request
    /// of its own leader makes it promise a later one while it hears that.
    fn wants_next_ballot(&self, now: Time) -> bool {
        let State::Leader(leading) = &self.state else {
            return false;
        };
        if !leading.is_giving_up || leading.transfer.is_some() || !self.settings.lease {
            return false;
        }
        // Damaged replicas promise nothing, and are restored by the leader that there is.
        let mut heard = BTreeMap::from([(self.node, u64::MAX)]);
        let whole = leading.members.iter().filter(|(_, p)| !p.is_damaged);
        heard.extend(whole.map(|(node, progress)| (*node, progress.heard)));
        let patience = self.settings.election;
        let heard = self.majority_of(&heard);
        self.may_lead() && heard.is_some_and(|heard| heard.saturating_add(patience) > now)
    }

    /// A sign of life to every member.
    pub(super) fn begin_round(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(leading) = self.leading() else {
            return;
        };
        leading.reads.begin(now);
        let nodes: Vec<NodeId> = leading.members.keys().copied().collect();
        for node in nodes {
            self.send_entries(node, out);
            self.send_sign(node, out);
        }
        self.settle_reads(now, out);
    }

    /// Sends what was proposed, and begins the round that reads wait for.
    pub fn send_proposed(&mut self, now: Time, out: &mut Vec<Output>) {
        self.send_all(out);
        self.begin_reads(now, out);
    }

    fn send_all(&mut self, out: &mut Vec<Output>) {
        let Some(leading) = self.leading() else {
            return;
        };
        let nodes: Vec<NodeId> = leading.members.keys().copied().collect();
        nodes
            .into_iter()
            .for_each(|node| self.send_entries(node, out));
        // With one voter, or others that are ahead of this disk, something may be chosen already.
        self.choose(out);
    }

    /// A message without entries, behind all that was sent: who lacks something refuses it.
    fn send_sign(&mut self, to: NodeId, out: &mut Vec<Output>) {
        let (ballot, chosen, last) = (self.ballot, self.chosen, self.log.last().0);
        let State::Leader(leading) = &mut self.state else {
            return;
        };
        let round = leading.reads.round();
        let Some(progress) = leading.members.get_mut(&to) else {
            return;
        };
        let before = progress.next.previous();
        let previous = match self.log.ballot_at(before) {
            Some(of) if !progress.needs_image => (before, of),
            _ => {
                // The log was cut behind what it was sent, which may be lost.
                if !progress.needs_image {
                    progress.needs_image = true;
                    progress.forget_under_way();
                    out.push(Output::NeedsImage(to));
                }
                (Slot(0), Ballot(0))
            }
        };
        let message = Message::Accept {
            ballot,
            previous,
            entries: Vec::new(),
            chosen,
            last,
            round,
        };
        out.push(Output::Send {
            to,
            message,
            after_sync: false,
        });
    }

    /// Sends what the window allows.
    fn send_entries(&mut self, to: NodeId, out: &mut Vec<Output>) {
        let (ballot, chosen, last) = (self.ballot, self.chosen, self.log.last().0);
        let (window, most) = (self.settings.window_bytes, self.settings.message_bytes);
        loop {
            let State::Leader(leading) = &mut self.state else {
                return;
            };
            let round = leading.reads.round();
            let Some(progress) = leading.members.get_mut(&to) else {
                return;
            };
            let is_full = progress.under_way_bytes >= window
                || (progress.is_probing && !progress.under_way.is_empty());
            if progress.needs_image || progress.next > last {
                return;
            }
            let before = progress.next.previous();
            // Also where a message is under way: it may be lost, and signs of life say nothing of
            // what was cut.
            let Some(of) = self.log.ballot_at(before) else {
                progress.needs_image = true;
                return out.push(Output::NeedsImage(to));
            };
            if is_full {
                return;
            }
            let (mut entries, mut bytes) = (Vec::new(), 0);
            while let Some(meta) = self.log.get(progress.next) {
                let more = meta.bytes as usize;
                if !entries.is_empty() && bytes + more > most {
                    break;
                }
                bytes += more;
                entries.push(meta.clone());
                progress.next = progress.next.next();
            }
            progress
                .under_way
                .push_back((progress.next.previous(), bytes));
            progress.under_way_bytes += bytes;
            let previous = (before, of);
            let message = Message::Accept {
                ballot,
                previous,
                entries,
                chosen,
                last,
                round,
            };
            out.push(Output::Send {
                to,
                message,
                after_sync: false,
            });
        }
    }

    /// A follower has entries.
    pub(super) fn accepted(
        &mut self,
        now: Time,
        from: NodeId,
        through: Slot,
        round: u64,
        damaged: bool,
        out: &mut Vec<Output>,
    ) {
        let last = self.log.last().0;
        let Some(leading) = self.leading() else {
            return;
        };
        let Some(progress) = leading.members.get_mut(&from) else {
            return;
        };
        progress.heard = now;
        progress.round = progress.round.max(round);
        progress.is_damaged = damaged;
        if through > last {
            debug_assert!(
                false,
                "node {from} has slot {through}, the leader only {last}"
            );
            return;
        }
        progress.has(through);
        let is_transfer = leading.transfer.is_some_and(|transfer| transfer.to == from);
        self.choose(out);
        self.send_entries(from, out);
        if damaged && through == last && self.chosen == last {
            // It may have lost entries of a former leader behind the end of this log. Once it has
            // accepted as many of this one, what it lost cannot have been chosen.
            let (slot, ballot, bytes) = (last.next(), self.ballot, NOTHING_BYTES);
            self.append(
                Meta {
                    slot,
                    ballot,
                    bytes,
                    members: None,
                },
                out,
            );
            self.send_all(out);
        }
        if is_transfer {
            self.hand_over(out);
        }
        self.settle_reads(now, out);
    }

    /// A follower's log does not continue with what was sent.
    pub(super) fn refused(
        &mut self,
        now: Time,
        from: NodeId,
        hint: Slot,
        round: u64,
        damaged: bool,
        out: &mut Vec<Output>,
    ) {
        let last = self.log.last().0;
        let Some(leading) = self.leading() else {
            return;
        };
        let Some(progress) = leading.members.get_mut(&from) else {
            return;
        };
        progress.heard = now;
        if round < progress.round && hint < progress.matched {
            // It was sent before the follower had what it has accepted since.
            return;
        }
        progress.round = progress.round.max(round);
        progress.is_damaged = damaged;
        // It may have lost what it had.
        progress.matched = progress.matched.min(hint);
        progress.next = hint.min(last).next();
        progress.is_probing = true;
        progress.forget_under_way();
        self.send_entries(from, out);
        self.settle_reads(now, out);
    }

    /// Finds what a majority has.
    fn choose(&mut self, out: &mut Vec<Output>) {
        let (node, durable) = (self.node, self.durable);
        let State::Leader(leading) = &self.state else {
            return;
        };
        let mut matched = BTreeMap::from([(node, durable.0)]);
        let counted = leading
            .members
            .iter()
            .filter(|(_, progress)| !progress.is_damaged);
        matched.extend(counted.map(|(node, progress)| (*node, progress.matched.0)));
        let Some(slot) = self.majority_of(&matched).map(Slot) else {
            return;
        };
        // Entries of earlier ballots are chosen with one of this ballot behind them, never by count
        // alone.
        if slot <= self.chosen || self.log.ballot_at(slot) != Some(self.ballot) {
            return;
        }
        self.chosen = slot;
        out.push(Output::Chosen(slot));
        let is_member = self.log.members().get(node).is_some();
        if !is_member && self.log.members_since() <= slot {
            // It was removed, and everyone else will learn so from the next leader.
            self.step_down(self.heard, out);
        }
    }

    /// The own log is durable up to this entry. Ignored where that was replaced.
    pub fn appended_durably(
        &mut self,
        now: Time,
        through: Slot,
        ballot: Ballot,
        out: &mut Vec<Output>,
    ) {
        if self.log.ballot_at(through) == Some(ballot) && through > self.durable {
            self.durable = through;
            self.choose(out);
            self.settle_reads(now, out);
        }
    }

    /// The follower has an image as of `through`.
    pub fn image_sent(&mut self, node: NodeId, through: Slot) {
        let last = self.log.last().0;
        let Some(leading) = self.leading() else {
            return;
        };
        if let Some(progress) = leading.members.get_mut(&node) {
            progress.needs_image = false;
            progress.is_probing = true;
            // It may have gone on while the image was sent.
            progress.next = through.max(progress.matched).min(last).next();
            progress.forget_under_way();
            // It is given a sign at the next tick: what it answers says how far it is.
            leading.next_heartbeat = 0;
        }
    }

    /// The image that the follower needs will not come: it is asked for again.
    pub fn image_failed(&mut self, node: NodeId) {
        if let Some(leading) = self.leading()
            && let Some(progress) = leading.members.get_mut(&node)
        {
            progress.needs_image = false;
        }
    }

    /// The link to a member broke: what was under way is lost.
    pub fn unreachable(&mut self, node: NodeId) {
        // What it has is asked from the log's beginning on: an image may not be needed.
        let first = self.log.base().0.next();
        if let Some(leading) = self.leading()
            && let Some(progress) = leading.members.get_mut(&node)
        {
            progress.is_probing = true;
            progress.next = progress.next.min(progress.matched.next().max(first));
            progress.forget_under_way();
        }
    }

    /// A link to a member is up: it is given a sign at the next tick.
    pub fn reachable(&mut self, node: NodeId) {
        self.unreachable(node);
        if let Some(leading) = self.leading() {
            leading.next_heartbeat = 0;
        }
    }

    /// At the leader, true for a member that has answered lately.
    pub fn is_heard(&self, now: Time, node: NodeId) -> bool {
        let State::Leader(leading) = &self.state else {
            return false;
        };
        let heard = leading.members.get(&node).map(|progress| progress.heard);
        heard.is_some_and(|heard| now < heard + self.settings.election)
    }

    /// At the leader, up to where a voter has the log that may lead, as far as is known: it has
    /// answered lately, is not damaged, and waits for no image from here.
    pub fn heir(&self, now: Time, node: NodeId) -> Option<Slot> {
        let State::Leader(leading) = &self.state else {
            return None;
        };
        let progress = leading.members.get(&node)?;
        let is_heard = now < progress.heard + self.settings.election;
        let may_lead = is_heard && !progress.is_damaged && !progress.needs_image;
        (may_lead && self.log.members().is_voter(node)).then_some(progress.matched)
    }

    /// Hands leadership over to a voter, as soon as it has the whole log.
    pub fn transfer(&mut self, now: Time, to: NodeId, out: &mut Vec<Output>) {
        let until = now + self.settings.election;
        let is_voter = to != self.node && self.log.members().is_voter(to);
        let Some(leading) = self.leading().filter(|_| is_voter) else {
            return;
        };
        leading.transfer.get_or_insert(Transfer {
            to,
            until,
            is_asked: false,
        });
        self.hand_over(out);
    }

    fn hand_over(&mut self, out: &mut Vec<Output>) {
        let (last, ballot) = (self.log.last().0, self.ballot);
        let Some(leading) = self.leading() else {
            return;
        };
        let Some(transfer) = leading.transfer.filter(|transfer| !transfer.is_asked) else {
            return;
        };
        let to = transfer.to;
        if leading.matched(to) == Some(last) {
            // No lease holds from here on, also after the transfer was given up: the message may
            // arrive at any time.
            leading.is_giving_up = true;
            leading.transfer = Some(Transfer {
                is_asked: true,
                ..transfer
            });
            out.push(Output::Send {
                to,
                message: Message::Lead { ballot },
                after_sync: false,
            });
        }
    }
}

/// True where at most one voter came or went.
fn differ_by_one(old: &Members, new: &Members) -> bool {
    let is_in = |members: &Members, node: NodeId, disk| {
        members.is_voter(node) && members.get(node).is_some_and(|member| member.disk == disk)
    };
    let voters = |of: &Members, other: &Members| {
        let voters = of.iter().filter(|member| of.is_voter(member.node));
        voters
            .filter(|member| !is_in(other, member.node, member.disk))
            .count()
    };
    new.voters().count() > 0 && voters(old, new) + voters(new, old) <= 1
}
