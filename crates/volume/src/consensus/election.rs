//! Ballots and promises. A candidate asks as a trial first, so that a replica that was cut off does
//! not end a leadership that works; and a replica that heard the leader lately answers no
//! candidate, which leases rely on.

use std::collections::BTreeSet;

use super::core::{Core, State};
use super::message::Message;
use super::types::{Candidacy, Output, Time};
use crate::ids::{Ballot, NodeId};

impl Core {
    /// True where this replica may be a candidate. One whose removal is not chosen may be: its log
    /// may be the only one that is far enough.
    pub(super) fn may_lead(&self) -> bool {
        let is_open = self.log.members_since() > self.chosen;
        let before = self.log.members_before().filter(|_| is_open);
        let was_voter = before.is_some_and(|members| self.is_voter_of(members));
        let may = was_voter || self.is_voter_of(self.log.members());
        may && self.damage.is_none() && !self.is_out
    }

    /// True where this replica is the only voter.
    fn is_alone(&self) -> bool {
        let members = self.log.members();
        members.majority() == 1 && self.is_voter_of(members)
    }

    /// The leader was not heard for long.
    pub(super) fn try_to_lead(&mut self, now: Time, out: &mut Vec<Output>) {
        self.put_off(now);
        if !self.may_lead() {
            return;
        }
        if self.leader.take().is_some() {
            out.push(Output::Leadership);
        }
        self.state = State::Trial(BTreeSet::from([self.node]));
        // A trial that gets no answer is repeated soon.
        self.deadline = now + self.settings.election / 2 + self.random(self.settings.spread);
        if self.is_alone() {
            return self.campaign(now, false, out);
        }
        let ballot = Ballot(self.ballot.0 + 1);
        self.ask(ballot, true, false, false, out);
    }

    /// Asks for promises of the next ballot.
    pub(super) fn campaign(&mut self, now: Time, forced: bool, out: &mut Vec<Output>) {
        self.put_off(now);
        self.deadline = now + self.settings.election / 2 + self.random(self.settings.spread);
        self.ballot = Ballot(self.ballot.0 + 1);
        self.vote = Some(self.node);
        self.leader = None;
        out.push(Output::Vote {
            ballot: self.ballot,
            vote: self.vote,
        });
        out.push(Output::Leadership);
        self.state = State::Candidate(BTreeSet::from([self.node]));
        if self.is_alone() {
            return self.lead(now, out);
        }
        self.ask(self.ballot, false, forced, true, out);
    }

    fn ask(
        &self,
        ballot: Ballot,
        trial: bool,
        forced: bool,
        after_sync: bool,
        out: &mut Vec<Output>,
    ) {
        let (slot, of) = self.log.last();
        for to in self.log.members().voters().filter(|to| *to != self.node) {
            let message = Message::Prepare {
                ballot,
                last: (of, slot),
                trial,
                forced,
            };
            out.push(Output::Send {
                to,
                message,
                after_sync,
            });
        }
    }

    /// A candidate asks. It may be no member that this replica knows: members change in the log,
    /// and the candidate's may be longer.
    pub(super) fn prepare(
        &mut self,
        now: Time,
        from: NodeId,
        asked: Candidacy,
        out: &mut Vec<Output>,
    ) {
        let Candidacy {
            ballot,
            last,
            trial,
            forced,
        } = asked;
        if self.damage.is_some() {
            return;
        }
        let is_leader = matches!(self.state, State::Leader(_));
        let has_heard = is_leader || now < self.heard + self.settings.election;
        if has_heard && !forced {
            return;
        }
        let (slot, of) = self.log.last();
        let is_far_enough = last >= (of, slot);
        if trial || ballot < self.ballot {
            let granted = trial && ballot > self.ballot && is_far_enough;
            let ballot = if granted { ballot } else { self.ballot };
            let message = Message::Promise {
                ballot,
                trial,
                granted,
            };
            return out.push(Output::Send {
                to: from,
                message,
                after_sync: false,
            });
        }
        if ballot > self.ballot {
            self.adopt(now, ballot, out);
        }
        let granted = is_far_enough && self.vote.is_none_or(|vote| vote == from);
        if granted && self.vote.is_none() {
            self.vote = Some(from);
            out.push(Output::Vote {
                ballot,
                vote: self.vote,
            });
            self.put_off(now);
        }
        let message = Message::Promise {
            ballot,
            trial,
            granted,
        };
        out.push(Output::Send {
            to: from,
            message,
            after_sync: true,
        });
    }

    /// An answer to this candidate.
    pub(super) fn promise(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        trial: bool,
        granted: bool,
        out: &mut Vec<Output>,
    ) {
        if !granted {
            if ballot > self.ballot {
                self.adopt(now, ballot, out);
            }
            return;
        }
        let next = Ballot(self.ballot.0 + 1);
        let (mine, members) = (self.ballot, self.log.members().clone());
        let votes = match &mut self.state {
            State::Trial(votes) if trial && ballot == next => votes,
            State::Candidate(votes) if !trial && ballot == mine => votes,
            _ => return,
        };
        votes.insert(from);
        let count = members.voters().filter(|node| votes.contains(node)).count();
        if count < members.majority() {
            return;
        }
        if trial {
            self.campaign(now, false, out)
        } else {
            self.lead(now, out)
        }
    }

    /// A leader's message: follows it. False where its ballot has ended.
    pub(super) fn follow(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        out: &mut Vec<Output>,
    ) -> bool {
        if ballot < self.ballot {
            // Rounds of another ballot say nothing of this one, which the same node may lead by
            // now.
            let (ballot, hint, round) = (self.ballot, self.log.last().0, 0);
            let message = Message::Refused {
                ballot,
                hint,
                round,
                damaged: self.damage.is_some(),
            };
            out.push(Output::Send {
                to: from,
                message,
                after_sync: false,
            });
            return false;
        }
        if ballot > self.ballot {
            self.adopt(now, ballot, out);
        }
        if matches!(self.state, State::Leader(_)) {
            debug_assert!(
                false,
                "two leaders of ballot {ballot}: {} and {from}",
                self.node
            );
            return false;
        }
        self.state = State::Follower;
        if self.leader != Some(from) {
            self.leader = Some(from);
            out.push(Output::Leadership);
        }
        self.heard = now;
        self.put_off(now);
        true
    }
}
