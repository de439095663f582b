//! Single situations: late images, hand-overs that get lost, numbers at their ends.

use std::sync::Arc;

use crate::consensus::{Core, Message, Meta, Output, Role, Settings, Start};
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::{Member, Members};

pub(super) const ELECTION: u64 = 500;

pub(super) fn members() -> Arc<Members> {
    let member = |node| Member {
        node: NodeId(node),
        disk: DiskId(u64::from(node)),
        address: String::new(),
        role: crate::members::Role::Voter,
    };
    Arc::new(Members::new((1..=3).map(member)))
}

pub(super) fn metas(slots: std::ops::RangeInclusive<u64>, ballot: u64) -> Vec<Meta> {
    let meta = |slot| Meta {
        slot: Slot(slot),
        ballot: Ballot(ballot),
        bytes: 1,
        members: None,
    };
    slots.map(meta).collect()
}

/// What node 1 of three starts with: ballot 1, ten entries of that ballot of which four are chosen.
pub(super) fn start() -> Start {
    Start {
        node: NodeId(1),
        disk: DiskId(1),
        ballot: Ballot(1),
        vote: None,
        base: (Slot(0), Ballot(0)),
        log: metas(1..=10, 1),
        chosen: Slot(4),
        members: members(),
        damage: None,
        now: 0,
        seed: 1,
    }
}

pub(super) fn core(start: Start) -> Core {
    let settings = Settings {
        election: ELECTION,
        ..Settings::default()
    };
    Core::new(settings, start)
}

pub(super) fn replica() -> Core {
    core(start())
}

/// When `elected` was elected.
pub(super) const NOW: u64 = 10 * ELECTION;

/// `replica` as the leader of ballot 2, before anyone answered. Its first entry has slot 11.
pub(super) fn elected() -> Core {
    let (mut core, mut out) = (replica(), Vec::new());
    core.tick(NOW, &mut out);
    for trial in [true, false] {
        let (ballot, granted) = (Ballot(2), true);
        let promise = Message::Promise {
            ballot,
            trial,
            granted,
        };
        core.receive(NOW, NodeId(2), promise, &mut out);
    }
    assert_eq!((core.role(), core.last().0), (Role::Leader, Slot(11)));
    core
}

/// `elected`, after nodes 2 and 3 have accepted its log.
fn leader() -> Core {
    let (mut core, mut out) = (elected(), Vec::new());
    core.appended_durably(NOW, Slot(11), Ballot(2), &mut out);
    for node in [2, 3] {
        accepted(&mut core, NOW, node);
    }
    assert_eq!(core.chosen(), Slot(11));
    core
}

fn accepted(core: &mut Core, now: u64, node: u32) -> Vec<Output> {
    let (ballot, through) = (core.ballot(), core.last().0);
    let message = Message::Accepted {
        ballot,
        through,
        round: 1,
        damaged: false,
    };
    let mut out = Vec::new();
    core.receive(now, NodeId(node), message, &mut out);
    out
}

fn asks_to_lead(out: &[Output]) -> usize {
    let lead = |output: &&Output| {
        matches!(
            output,
            Output::Send {
                message: Message::Lead { .. },
                ..
            }
        )
    };
    out.iter().filter(lead).count()
}

#[test]
fn an_image_leaves_what_was_accepted_behind_it() {
    let (mut core, mut out) = (replica(), Vec::new());
    core.image_installed(0, (Slot(6), Ballot(1)), members(), &mut out);
    assert_eq!(core.base(), (Slot(6), Ballot(1)));
    assert_eq!(core.last(), (Slot(10), Ballot(1)));
    assert_eq!(core.chosen(), Slot(6));
    assert_eq!(out, [Output::Chosen(Slot(6))]);
}

#[test]
fn an_image_from_behind_what_is_chosen_takes_nothing_back() {
    let (mut core, mut out) = (replica(), Vec::new());
    core.image_installed(0, (Slot(3), Ballot(1)), members(), &mut out);
    assert_eq!((core.chosen(), core.last().0), (Slot(4), Slot(10)));
    assert_eq!(out, [Output::Chosen(Slot(4))]);
}

#[test]
fn an_image_of_another_log_replaces_this_one() {
    let (mut core, mut out) = (replica(), Vec::new());
    core.image_installed(0, (Slot(6), Ballot(2)), members(), &mut out);
    assert_eq!(core.last(), (Slot(6), Ballot(2)));
    core.image_installed(0, (Slot(20), Ballot(2)), members(), &mut out);
    assert_eq!(core.last(), (Slot(20), Ballot(2)));
    assert_eq!(core.chosen(), Slot(20));
}

#[test]
fn an_image_of_a_later_leader_ends_leadership() {
    let (mut core, mut out) = (elected(), Vec::new());
    core.image_installed(NOW, (Slot(20), Ballot(3)), members(), &mut out);
    assert_eq!((core.role(), core.last().0), (Role::Follower, Slot(20)));
    assert_eq!(out, [Output::Leadership, Output::Chosen(Slot(20))]);
}

#[test]
fn leadership_is_handed_over_again_where_the_first_request_was_lost() {
    let (mut core, mut now) = (leader(), NOW);
    for ballot in 3..6 {
        let mut out = Vec::new();
        core.transfer(now, NodeId(2), &mut out);
        assert_eq!(asks_to_lead(&out), 1);
        // Another answer is no reason to ask twice.
        assert_eq!(asks_to_lead(&accepted(&mut core, now, 2)), 0);
        now += ELECTION;
        accepted(&mut core, now, 2);
        accepted(&mut core, now, 3);
        core.tick(now, &mut out);
        // It leads again, in the next ballot.
        let (ballot, trial, granted) = (Ballot(ballot), false, true);
        let promise = Message::Promise {
            ballot,
            trial,
            granted,
        };
        core.receive(now, NodeId(3), promise, &mut out);
        assert_eq!((core.role(), core.ballot()), (Role::Leader, ballot));
        accepted(&mut core, now, 2);
    }
}

#[test]
fn a_late_refusal_does_not_take_back_what_is_known() {
    let (mut core, mut out, now) = (leader(), Vec::new(), NOW);
    core.cut(Slot(8));
    let refused = Message::Refused {
        ballot: core.ballot(),
        hint: Slot(2),
        round: 0,
        damaged: false,
    };
    core.receive(now, NodeId(3), refused, &mut out);
    assert_eq!(core.matched(NodeId(3)), Some(Slot(11)));
    assert!(!out.contains(&Output::NeedsImage(NodeId(3))));
}

#[test]
fn a_follower_that_went_on_during_its_image_is_not_sent_the_same_again() {
    let (mut core, mut out, now) = (leader(), Vec::new(), NOW);
    core.image_sent(NodeId(3), Slot(6));
    let slot = core.propose(now, 1, None, &mut out).unwrap();
    core.send_proposed(NOW, &mut out);
    let is_sent = |output: &Output| match output {
        Output::Send {
            to: NodeId(3),
            message: Message::Accept { entries, .. },
            ..
        } => entries.iter().map(|meta| meta.slot).eq([slot]),
        _ => false,
    };
    assert!(out.iter().any(is_sent), "{out:?}");
}

#[test]
fn numbers_at_their_ends_do_no_harm() {
    let (most, least) = (u64::MAX, 0);
    let entries = vec![Meta {
        slot: Slot(most),
        ballot: Ballot(2),
        bytes: u32::MAX,
        members: None,
    }];
    for ballot in [Ballot(3), Ballot(most - 1), Ballot(most)] {
        for number in [most, most - 1, least] {
            for entries in [Vec::new(), entries.clone()] {
                let (mut core, mut out) = (replica(), Vec::new());
                let message = Message::Accept {
                    ballot,
                    previous: (Slot(number), Ballot(1)),
                    entries,
                    chosen: Slot(most),
                    last: Slot(most),
                    round: most,
                };
                core.receive(0, NodeId(2), message, &mut out);
                core.tick(100 * ELECTION, &mut out);
                let promise = Message::Promise {
                    ballot: Ballot(most),
                    trial: false,
                    granted: false,
                };
                core.receive(100 * ELECTION, NodeId(2), promise, &mut out);
                core.tick(200 * ELECTION, &mut out);
                assert_ne!(core.role(), Role::Leader);
            }
        }
        let (mut core, mut out) = (leader(), Vec::new());
        let ballot = core.ballot();
        for round in [most, least] {
            let refused = Message::Refused {
                ballot,
                hint: Slot(most),
                round,
                damaged: false,
            };
            core.receive(10 * ELECTION, NodeId(3), refused, &mut out);
        }
    }
}
