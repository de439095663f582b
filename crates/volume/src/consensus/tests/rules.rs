//! The rules that agreement and leases rest on, each by itself.

use std::sync::Arc;

use super::edges::{ELECTION, NOW, core, elected, members, metas, replica, start};
use crate::consensus::{Core, Damage, Message, Output, ProposeError, Role, Start};
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::{Member, Members};

fn receive(core: &mut Core, now: u64, from: u32, message: Message) -> Vec<Output> {
    let mut out = Vec::new();
    core.receive(now, NodeId(from), message, &mut out);
    out
}

fn accepted(core: &mut Core, now: u64, from: u32, through: u64, damaged: bool) -> Vec<Output> {
    let (ballot, through) = (core.ballot(), Slot(through));
    let message = Message::Accepted {
        ballot,
        through,
        round: 1,
        damaged,
    };
    receive(core, now, from, message)
}

fn prepare(ballot: u64, last: (u64, u64), forced: bool) -> Message {
    Message::Prepare {
        ballot: Ballot(ballot),
        last: (Ballot(last.0), Slot(last.1)),
        trial: false,
        forced,
    }
}

/// The promise among the outputs: whether it is granted.
fn promised(out: &[Output]) -> Option<bool> {
    out.iter().find_map(|output| match output {
        Output::Send {
            message: Message::Promise { granted, .. },
            ..
        } => Some(*granted),
        _ => None,
    })
}

fn read(core: &mut Core, now: u64) -> Option<Result<Slot, Option<NodeId>>> {
    let mut out = Vec::new();
    core.read(now, 1, &mut out);
    core.send_proposed(now, &mut out);
    read_in(&out)
}

fn read_in(out: &[Output]) -> Option<Result<Slot, Option<NodeId>>> {
    out.iter().find_map(|output| match output {
        Output::Read { result, .. } => Some(*result),
        _ => None,
    })
}

/// `elected`, with its own log durable.
fn durable() -> Core {
    let mut core = elected();
    core.appended_durably(NOW, Slot(11), Ballot(2), &mut Vec::new());
    core
}

#[test]
fn entries_of_earlier_ballots_are_chosen_with_one_of_this_ballot_behind_them() {
    let mut core = durable();
    accepted(&mut core, NOW, 2, 10, false);
    assert_eq!(core.chosen(), Slot(4));
    accepted(&mut core, NOW, 2, 11, false);
    assert_eq!(core.chosen(), Slot(11));
}

#[test]
fn a_leaders_own_entry_counts_when_it_is_durable() {
    let mut core = elected();
    accepted(&mut core, NOW, 2, 11, false);
    assert_eq!(core.chosen(), Slot(4));
    core.appended_durably(NOW, Slot(11), Ballot(2), &mut Vec::new());
    assert_eq!(core.chosen(), Slot(11));
}

#[test]
fn a_promise_leaves_once_its_vote_is_durable_and_is_given_once() {
    let mut core = replica();
    let out = receive(&mut core, NOW, 3, prepare(2, (1, 10), false));
    let vote = Output::Vote {
        ballot: Ballot(2),
        vote: Some(NodeId(3)),
    };
    let is_promise = |output: &Output| {
        let Output::Send {
            message,
            after_sync,
            ..
        } = output
        else {
            return false;
        };
        matches!(message, Message::Promise { granted: true, .. }) && *after_sync
    };
    let (vote, promise) = (
        out.iter().position(|output| *output == vote),
        out.iter().position(is_promise),
    );
    assert!(vote.is_some() && vote < promise, "{out:?}");
    let out = receive(&mut core, NOW, 2, prepare(2, (1, 10), false));
    assert_eq!(promised(&out), Some(false));
}

#[test]
fn a_candidate_whose_log_is_behind_gets_no_promise() {
    for (last, is_granted) in [
        ((1, 9), false),
        ((0, 20), false),
        ((1, 10), true),
        ((2, 1), true),
    ] {
        let out = receive(&mut replica(), NOW, 3, prepare(3, last, false));
        assert_eq!(promised(&out), Some(is_granted), "{last:?}");
    }
}

#[test]
fn a_replica_that_heard_a_leader_or_has_just_started_promises_nothing() {
    let began = 3 * ELECTION;
    let mut core = core(Start {
        now: began,
        ..start()
    });
    let early = began + ELECTION - 1;
    let out = receive(&mut core, early, 3, prepare(2, (1, 10), false));
    assert_eq!(out, []);
    let sign = Message::Accept {
        ballot: Ballot(1),
        previous: (Slot(10), Ballot(1)),
        entries: Vec::new(),
        chosen: Slot(4),
        last: Slot(10),
        round: 1,
    };
    receive(&mut core, NOW, 2, sign);
    let last = NOW + ELECTION - 1;
    let out = receive(&mut core, last, 3, prepare(2, (1, 10), false));
    assert_eq!(out, []);
    let forced = receive(&mut core.clone(), last, 3, prepare(2, (1, 10), true));
    assert_eq!(promised(&forced), Some(true));
    let out = receive(&mut core, last + 1, 3, prepare(2, (1, 10), false));
    assert_eq!(promised(&out), Some(true));
}

#[test]
fn a_leader_that_hears_no_majority_steps_down_and_refuses_its_reads() {
    let mut core = durable();
    assert_eq!(read(&mut core, NOW), None);
    let mut out = Vec::new();
    core.tick(NOW + ELECTION - 1, &mut out);
    assert_eq!(core.role(), Role::Leader);
    core.tick(NOW + ELECTION, &mut out);
    assert_eq!(core.role(), Role::Follower);
    assert_eq!(read_in(&out), Some(Err(None)));
}

#[test]
fn a_lease_begins_when_its_round_was_sent_and_ends_before_a_vote() {
    let mut core = durable();
    accepted(&mut core, NOW + 300, 2, 11, false);
    // Nine tenths, less a millisecond, for clocks that run apart.
    let end = NOW + ELECTION * 9 / 10 - 1;
    assert_eq!(read(&mut core, end - 1), Some(Ok(Slot(11))));
    assert_eq!(read(&mut core, end), None);
}

#[test]
fn no_lease_holds_once_another_was_asked_to_lead() {
    let mut core = durable();
    accepted(&mut core, NOW, 2, 11, false);
    assert_eq!(read(&mut core, NOW), Some(Ok(Slot(11))));
    core.transfer(NOW, NodeId(2), &mut Vec::new());
    assert_eq!(read(&mut core, NOW), None);
}

/// A leader that has asked node 2 to lead, as of when it gives that up. Node 3 has answered since,
/// and node 2 has not.
fn declined(damaged: bool) -> (Core, u64) {
    let mut core = durable();
    accepted(&mut core, NOW, 2, 11, false);
    core.transfer(NOW, NodeId(2), &mut Vec::new());
    let end = NOW + ELECTION;
    accepted(&mut core, end - 1, 3, 11, damaged);
    core.tick(end - 1, &mut Vec::new());
    assert_eq!((core.role(), core.ballot()), (Role::Leader, Ballot(2)));
    (core, end)
}

#[test]
fn a_lease_holds_again_in_the_next_ballot_where_nobody_took_over() {
    let (mut core, now) = declined(false);
    core.read(now, 1, &mut Vec::new());
    let mut out = Vec::new();
    core.tick(now, &mut out);
    assert_eq!((core.role(), core.ballot()), (Role::Candidate, Ballot(3)));
    assert_eq!(read_in(&out), Some(Err(None)));
    let asked = out.iter().filter(|output| match output {
        Output::Send { message, .. } => *message == prepare(3, (2, 11), true),
        _ => false,
    });
    assert_eq!(asked.count(), 2);
    let promise = Message::Promise {
        ballot: Ballot(3),
        trial: false,
        granted: true,
    };
    receive(&mut core, now, 3, promise);
    core.appended_durably(now, Slot(12), Ballot(3), &mut Vec::new());
    assert_eq!(core.role(), Role::Leader);
    accepted(&mut core, now, 3, 12, false);
    assert_eq!(read(&mut core, now), Some(Ok(Slot(12))));
    // The request comes late: who was to lead stands for the ballot that others have promised.
    assert_eq!(
        promised(&receive(&mut core, now, 2, prepare(3, (2, 11), true))),
        Some(false)
    );
    assert_eq!(core.role(), Role::Leader);
}

#[test]
fn a_leader_does_not_stand_again_where_it_would_not_be_elected() {
    let (mut core, now) = declined(true);
    core.tick(now, &mut Vec::new());
    assert_eq!((core.role(), core.ballot()), (Role::Leader, Ballot(2)));
    // Once node 3 is restored, it is.
    accepted(&mut core, now, 3, 11, false);
    core.tick(now, &mut Vec::new());
    assert_eq!((core.role(), core.ballot()), (Role::Candidate, Ballot(3)));
}

#[test]
fn a_read_waits_for_an_entry_of_the_ballot() {
    let mut core = durable();
    let out = accepted(&mut core, NOW, 2, 10, false);
    assert_eq!(read_in(&out), None);
    assert_eq!(read(&mut core, NOW), None);
}

#[test]
fn a_damaged_replica_takes_part_when_it_has_all_that_is_chosen() {
    let mut core = core(Start {
        damage: Some(Damage::Through(Slot(12))),
        ..start()
    });
    let accept = |slot: u64| Message::Accept {
        ballot: Ballot(1),
        previous: (Slot(slot - 1), Ballot(1)),
        entries: metas(slot..=slot, 1),
        chosen: Slot(13),
        last: Slot(13),
        round: 1,
    };
    for (slot, is_damaged) in [(11, true), (12, true), (13, false)] {
        let out = receive(&mut core, NOW, 3, prepare(2, (1, 20), false));
        assert_eq!(out, []);
        core.tick(NOW, &mut Vec::new());
        let answer = receive(&mut core, NOW, 2, accept(slot));
        let damaged = answer.iter().find_map(|output| match output {
            Output::Send {
                message: Message::Accepted { damaged, .. },
                ..
            } => Some(*damaged),
            _ => None,
        });
        assert_eq!(
            (damaged, core.is_damaged()),
            (Some(is_damaged), is_damaged),
            "slot {slot}"
        );
    }
}

#[test]
fn a_replica_that_does_not_know_what_it_lost_waits_for_what_is_chosen_behind_all_of_it() {
    let mut core = core(Start {
        damage: Some(Damage::Unknown),
        ..start()
    });
    let accept = |ballot: u64, slot: u64, chosen: u64, last: u64| Message::Accept {
        ballot: Ballot(ballot),
        previous: (Slot(slot - 1), Ballot(if slot == 11 { 1 } else { ballot })),
        entries: metas(slot..=slot, ballot),
        chosen: Slot(chosen),
        last: Slot(last),
        round: 1,
    };
    // The leader has 12: it may have been accepted here. 13 is not known to be chosen at first.
    for (ballot, slot, chosen, last, is_damaged) in [
        (1, 11, 10, 12, true),
        (1, 12, 12, 12, true),
        (1, 13, 12, 13, true),
        // Another leader may have had more.
        (2, 14, 13, 15, true),
        (2, 15, 15, 16, true),
        (2, 16, 15, 17, true),
        (2, 17, 16, 17, false),
    ] {
        let message = match slot {
            14 => Message::Accept {
                ballot: Ballot(2),
                previous: (Slot(13), Ballot(1)),
                entries: metas(14..=14, 2),
                chosen: Slot(chosen),
                last: Slot(last),
                round: 1,
            },
            _ => accept(ballot, slot, chosen, last),
        };
        receive(&mut core, NOW, 2, message);
        assert_eq!(core.is_damaged(), is_damaged, "slot {slot}");
    }
}

#[test]
fn rounds_of_an_earlier_ballot_do_not_count_for_the_next_leadership_of_the_same_node() {
    let (mut core, mut out) = (replica(), Vec::new());
    core.receive(NOW, NodeId(2), sign(3, 1), &mut out);
    let out = receive(&mut core, NOW, 2, sign(2, 69));
    let refused = out.iter().find_map(|output| match output {
        Output::Send {
            message: Message::Refused { ballot, round, .. },
            ..
        } => Some((*ballot, *round)),
        _ => None,
    });
    assert_eq!(refused, Some((Ballot(3), 0)));
}

fn sign(ballot: u64, round: u64) -> Message {
    Message::Accept {
        ballot: Ballot(ballot),
        previous: (Slot(10), Ballot(1)),
        entries: Vec::new(),
        chosen: Slot(4),
        last: Slot(10),
        round,
    }
}

#[test]
fn a_damaged_replica_does_not_count() {
    let mut core = durable();
    accepted(&mut core, NOW, 2, 11, true);
    assert_eq!(core.chosen(), Slot(4));
    accepted(&mut core, NOW, 2, 11, false);
    assert_eq!(core.chosen(), Slot(11));
}

#[test]
fn a_damaged_replica_does_not_count_for_reads_by_its_refusal() {
    let mut core = durable();
    accepted(&mut core, NOW, 2, 11, false);
    let later = NOW + 10 * ELECTION;
    assert_eq!(read(&mut core, later), None, "the lease has ended");
    let refused = |round, damaged| Message::Refused {
        ballot: Ballot(2),
        hint: Slot(10),
        round,
        damaged,
    };
    // It may have promised another leader what it has forgotten.
    let out = receive(&mut core, later, 2, refused(1_000, true));
    assert_eq!(read_in(&out), None);
    let out = receive(&mut core, later, 2, refused(1_000, false));
    assert_eq!(read_in(&out), Some(Ok(Slot(11))));
}

#[test]
fn members_change_one_at_a_time_and_behind_an_entry_of_the_ballot() {
    let with = |added: &[u32], removed: &[u32]| {
        let mut all = Members::clone(&members());
        removed.iter().for_each(|node| all.remove(NodeId(*node)));
        added.iter().for_each(|node| {
            all.put(Member {
                node: NodeId(*node),
                disk: DiskId(9),
                address: String::new(),
                role: crate::members::Role::Voter,
            });
        });
        Arc::new(all)
    };
    let mut core = durable();
    let out = &mut Vec::new();
    let busy = Err(ProposeError::Busy);
    assert_eq!(core.propose(NOW, 1, Some(with(&[4], &[])), out), busy);
    accepted(&mut core, NOW, 2, 11, false);
    // The last one has another disk under the name of a member.
    for two in [with(&[4, 5], &[]), with(&[4], &[3]), with(&[3], &[])] {
        let refused = core.propose(NOW, 1, Some(two), out);
        assert_eq!(refused, Err(ProposeError::TooMany));
    }
    let begun = core.propose(NOW, 1, Some(with(&[4], &[])), out);
    assert_eq!(begun, Ok(Slot(12)));
    let second = core.propose(NOW, 1, Some(with(&[4, 5], &[])), out);
    assert_eq!(second, busy);
}

#[test]
fn a_replica_that_has_stepped_back_knows_the_leader_and_answers_nothing() {
    let accept = |ballot| Message::Accept {
        ballot: Ballot(ballot),
        previous: (Slot(11), Ballot(2)),
        entries: Vec::new(),
        chosen: Slot(11),
        last: Slot(11),
        round: 1,
    };
    let mut core = durable();
    core.step_back(&mut Vec::new());
    assert_eq!(core.leader(), None);
    let out = receive(&mut core, NOW, 2, accept(5));
    assert_eq!(core.leader(), Some(NodeId(2)));
    assert!(matches!(out[..], [Output::Leadership]), "{out:?}");
    // Of an earlier ballot, and again.
    assert!(receive(&mut core, NOW, 3, accept(3)).is_empty());
    assert!(receive(&mut core, NOW, 2, accept(5)).is_empty());
    assert_eq!(core.leader(), Some(NodeId(2)));
    assert!(receive(&mut core, NOW, 3, prepare(9, (5, 11), true)).is_empty());
    let out = receive(&mut core, NOW, 3, accept(9));
    assert_eq!(core.leader(), Some(NodeId(3)));
    assert!(matches!(out[..], [Output::Leadership]), "{out:?}");
}
