//! Requests of users, cut into parts: how many are under way, and in which sessions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::input::{ConnectionId, Manner, Work};
use super::router::{Followed, Router};
use crate::ids::{NodeId, VolumeId};
use crate::system::Shape;
use crate::wire::{Op, Refusal, Reply};

const CONNECTION: ConnectionId = ConnectionId(1);
const LEADER: NodeId = NodeId(2);

fn router() -> Router {
    let mut router = Router::new(NodeId(1), 1);
    router.set_groups(8);
    router.open(CONNECTION);
    router
}

const VOLUME: VolumeId = VolumeId(1);

fn discard(router: &mut Router, ticket: u64, gib: u64) {
    discard_range(router, ticket, 0, gib << 30);
}

fn discard_range(router: &mut Router, ticket: u64, offset: u64, length: u64) {
    let volume = VOLUME;
    let work = Work::Discard {
        volume,
        offset,
        length,
    };
    begin(router, ticket, work);
}

fn begin(router: &mut Router, ticket: u64, work: Work) {
    let (size, block_size, placement) = (1 << 40, 4096, VOLUME);
    let shape = Some(Shape {
        size,
        block_size,
        placement,
    });
    let manner = Manner {
        wait: 1000,
        direct: false,
    };
    router
        .begin(0, CONNECTION, ticket, work, manner, shape)
        .unwrap();
}

/// Sends what is due and answers it. Returns the tickets that are answered, and what was sent.
fn round(router: &mut Router, now: u64) -> (Vec<u64>, Vec<Op>) {
    let mut followed = Vec::new();
    let due = router.due(now, &|_| Some(LEADER), &mut followed);
    for (id, _, to, op) in &due {
        assert_eq!(*to, LEADER);
        if let Op::Discard { by, .. } | Op::Write { by, .. } = op {
            // No group's window of 1,024 numbers is passed.
            assert!(
                by.answered <= by.number && by.number < by.answered + 1024,
                "{by:?}"
            );
        }
        router.answered(now, *id, Ok(Reply::Done), &mut followed);
    }
    let tickets = followed.iter().filter_map(|followed| match followed {
        Followed::Answer(_, ticket, result) => {
            assert_eq!(*result, Ok(Reply::Done));
            Some(*ticket)
        }
        _ => None,
    });
    let sent = due.into_iter().map(|(.., op)| op).collect();
    (tickets.collect(), sent)
}

#[test]
fn many_writes_at_the_same_time_wait_for_the_window_and_end() {
    let mut router = router();
    for ticket in 0..1100 {
        let work = Work::Write {
            volume: VOLUME,
            offset: ticket << 20,
            data: Arc::new(vec![1; 4096]),
        };
        begin(&mut router, ticket, work);
    }
    let mut ended = Vec::new();
    for now in 0..4 {
        let (tickets, sent) = round(&mut router, now);
        assert!(sent.len() <= 512 + 8, "{} parts", sent.len());
        ended.extend(tickets);
    }
    assert_eq!(ended, Vec::from_iter(0..1100));
    assert_eq!(router.outstanding(), 0);
}

#[test]
fn a_discard_of_a_tebibyte_has_few_parts_at_a_time() {
    let mut router = router();
    discard(&mut router, 1, 1 << 10);
    let (mut now, mut ended, mut bytes) = (0, Vec::new(), 0);
    while ended.is_empty() {
        assert!(router.parts() <= 64 + 8, "{} parts", router.parts());
        let (tickets, sent) = round(&mut router, now);
        assert!(!sent.is_empty(), "nothing is sent, and it has not ended");
        for op in sent {
            if let Op::Discard { offset, length, .. } = op {
                // In their order, since they are answered in it.
                assert_eq!(offset, bytes);
                bytes += length;
            }
        }
        ended = tickets;
        // Together the parts take many times as long as one may wait.
        now += 10;
    }
    assert_eq!((ended, bytes), (vec![1], 1 << 40));
    assert_eq!((router.outstanding(), router.parts()), (0, 0));
}

#[test]
fn as_many_trims_as_a_connection_may_have_at_a_time_all_end() {
    let mut router = router();
    for ticket in 0..128 {
        discard(&mut router, ticket, 4);
    }
    let (mut now, mut ended) = (0, BTreeSet::new());
    while router.outstanding() > 0 {
        assert!(router.parts() <= 64 + 128 + 8, "{} parts", router.parts());
        let (tickets, sent) = round(&mut router, now);
        assert!(!sent.is_empty(), "nothing is sent, and they have not ended");
        ended.extend(tickets);
        now += 10;
    }
    assert_eq!(ended, BTreeSet::from_iter(0..128));
    assert_eq!(router.parts(), 0);
}

#[test]
fn trims_without_a_leader_all_fail_after_the_time_that_one_may_wait() {
    let mut router = router();
    for ticket in 0..128 {
        discard(&mut router, ticket, 4);
    }
    let mut followed = Vec::new();
    router.due(999, &|_| None, &mut followed);
    assert!(followed.is_empty());
    router.due(1000, &|_| None, &mut followed);
    let failed = followed.iter().filter_map(|followed| match followed {
        Followed::Answer(_, ticket, Err(Refusal::NoQuorum)) => Some(*ticket),
        _ => None,
    });
    assert_eq!(BTreeSet::from_iter(failed), BTreeSet::from_iter(0..128));
    assert_eq!(router.outstanding(), 0);
    // Only its session is being opened yet, in each group. What was never sent cannot happen, so
    // the session goes on, however often that comes again.
    assert_eq!(router.parts(), 8);
    for round in 1..100 {
        let now = round * 2000;
        discard(&mut router, 1000 + round, 4);
        router.due(now, &|_| None, &mut Vec::new());
        router.due(now + 1000, &|_| None, &mut Vec::new());
    }
    assert_eq!((router.outstanding(), router.parts()), (0, 8));
}

#[test]
fn a_discard_that_is_refused_goes_no_further() {
    let mut router = router();
    discard(&mut router, 1, 4);
    let mut followed = Vec::new();
    // The first parts open the session.
    for (id, _, _, op) in router.due(0, &|_| Some(LEADER), &mut followed) {
        assert!(matches!(op, Op::Open(_)));
        router.answered(0, id, Ok(Reply::Done), &mut followed);
    }
    let due = router.due(0, &|_| Some(LEADER), &mut followed);
    assert_eq!(due.len(), 64);
    for (at, (id, ..)) in due.into_iter().enumerate() {
        let result = if at == 3 {
            Err(Refusal::NoVolume)
        } else {
            Ok(Reply::Done)
        };
        router.answered(0, id, result, &mut followed);
    }
    // Three were answered before: what was asked for then is awaited.
    assert_eq!((followed.len(), router.parts()), (0, 3));
    let due = router.due(0, &|_| Some(LEADER), &mut followed);
    for (id, ..) in due {
        router.answered(0, id, Ok(Reply::Done), &mut followed);
    }
    let [Followed::Answer(CONNECTION, 1, Err(Refusal::NoVolume))] = followed.as_slice() else {
        panic!("{} things followed", followed.len());
    };
    assert_eq!((router.outstanding(), router.parts()), (0, 0));
}

#[test]
fn the_ends_of_a_discard_are_written_and_what_is_between_is_discarded() {
    let (block, range) = (4096, 4 << 20);
    let cases = [
        (0, block),
        (1, block - 2),
        (1, block),
        (block - 1, 2),
        (range - 1, 2),
        (100, 3 * range),
        (range - block, 2 * block + 1),
        (block, block + 1),
    ];
    for (offset, length) in cases {
        let mut router = router();
        discard_range(&mut router, 1, offset, length);
        let (mut at, mut ended) = (offset, Vec::new());
        for now in 0..4 {
            let (tickets, sent) = round(&mut router, now);
            ended.extend(tickets);
            for op in sent {
                match op {
                    Op::Discard { offset, length, .. } => {
                        assert_eq!((offset, offset % block, length % block), (at, 0, 0));
                        assert_eq!(offset / range, (offset + length - 1) / range);
                        at += length;
                    }
                    Op::Write { offset, data, .. } => {
                        assert_eq!(offset, at);
                        assert!(data.len() < block as usize && data.iter().all(|byte| *byte == 0));
                        at += data.len() as u64;
                        assert!(offset / block == (at - 1) / block);
                    }
                    _ => {}
                }
            }
        }
        assert_eq!((at, ended), (offset + length, vec![1]), "{offset} {length}");
    }
}

#[test]
fn a_write_without_an_answer_ends_its_session_and_not_the_connection() {
    let mut router = router();
    discard(&mut router, 1, 1);
    let mut followed = Vec::new();
    let open = router.due(0, &|_| Some(LEADER), &mut followed);
    let sessions: Vec<_> = open
        .iter()
        .filter_map(|(id, _, _, op)| match op {
            Op::Open(session) => Some((*id, *session)),
            _ => None,
        })
        .collect();
    let old = sessions[0].1;
    for (id, _) in sessions {
        router.answered(0, id, Ok(Reply::Done), &mut followed);
    }
    assert!(!router.due(1, &|_| Some(LEADER), &mut followed).is_empty());
    // Nothing is answered until the deadline.
    router.due(1000, &|_| None, &mut followed);
    let [Followed::Answer(CONNECTION, 1, Err(Refusal::NoQuorum))] = followed.as_slice() else {
        panic!("{} things followed", followed.len());
    };
    // The old session ends in every group, and the next write has another one.
    followed.clear();
    discard(&mut router, 2, 1);
    let due = router.due(1001, &|_| Some(LEADER), &mut followed);
    let closed = due.iter().filter(|(.., op)| *op == Op::Close(old)).count();
    let opened = due
        .iter()
        .filter(|(.., op)| matches!(op, Op::Open(new) if *new != old))
        .count();
    assert_eq!((closed, opened), (8, 8));
}

/// The answers that follow, and what was sent to which node.
type Round = (Vec<Result<Reply, Refusal>>, Vec<(u64, NodeId)>);

fn due(router: &mut Router, now: u64, leader: Option<NodeId>) -> Round {
    let mut followed = Vec::new();
    let due = router.due(now, &|_| leader, &mut followed);
    (
        answers(followed),
        due.into_iter().map(|(id, _, to, _)| (id, to)).collect(),
    )
}

fn answers(followed: Vec<Followed>) -> Vec<Result<Reply, Refusal>> {
    let answers = followed.into_iter().filter_map(|followed| match followed {
        Followed::Answer(_, _, result) => Some(result),
        _ => None,
    });
    answers.collect()
}

/// Begins a request that may not wait, at the leader's node or another.
fn hasty(work: Work, node: NodeId) -> Router {
    begun_at(work, node, true)
}

/// Begins a request whose time to wait is 0, and that goes to leaders of other nodes, or not.
fn begun_at(work: Work, node: NodeId, direct: bool) -> Router {
    let mut router = Router::new(node, 1);
    router.set_groups(1);
    router.open(CONNECTION);
    let shape = Shape {
        size: 1 << 30,
        block_size: 4096,
        placement: VOLUME,
    };
    let manner = Manner { wait: 0, direct };
    let begun = router.begin(7, CONNECTION, 1, work, manner, Some(shape));
    assert_eq!(begun, Ok(()));
    router
}

fn write() -> Work {
    Work::Write {
        volume: VOLUME,
        offset: 0,
        data: Arc::new(vec![1; 4096]),
    }
}

fn read() -> Work {
    Work::Read {
        source: crate::wire::Source::Volume(VOLUME),
        offset: 0,
        length: 4096,
    }
}

#[test]
fn a_request_that_may_not_wait_is_sent_and_answered() {
    // A write waits until its session is open.
    let works = [(read(), 1), (write(), 2)];
    let nodes = [(LEADER, true), (LEADER, false), (NodeId(1), false)];
    for ((work, sends), (node, direct)) in works.iter().flat_map(|work| nodes.map(|at| (work, at)))
    {
        let mut router = begun_at(work.clone(), node, direct);
        let mut now = 7;
        for nth in 1..=*sends {
            let (answered, sent) = due(&mut router, now, Some(LEADER));
            assert_eq!(answered, []);
            let [(id, LEADER)] = sent[..] else {
                panic!("{sent:?}")
            };
            // It takes a while.
            now += 300;
            assert_eq!(due(&mut router, now, Some(LEADER)), (vec![], vec![]));
            let mut followed = Vec::new();
            router.answered(now, id, Ok(Reply::Done), &mut followed);
            let answered = answers(followed);
            assert_eq!(answered.len(), usize::from(nth == *sends), "{answered:?}");
        }
        assert_eq!(router.outstanding(), 0);
    }
}

#[test]
fn a_request_that_may_not_wait_fails_at_once() {
    for work in [read, write] {
        // Another node leads, or none does.
        for leader in [Some(LEADER), None] {
            let mut router = hasty(work(), NodeId(1));
            let (answered, sent) = due(&mut router, 7, leader);
            assert_eq!(answered, [Err(Refusal::NotLeader(leader))]);
            assert_eq!(sent, []);
        }
        // The leader has no majority, so it does not answer; it is not asked again.
        let mut router = hasty(work(), LEADER);
        let mut asked = 0;
        let mut now = 7;
        let answered = loop {
            let (answered, sent) = due(&mut router, now, Some(LEADER));
            asked += sent.len();
            if !answered.is_empty() {
                break answered;
            }
            now += 500;
            assert!(now < 10_000, "it waits");
        };
        assert_eq!((answered, asked), (vec![Err(Refusal::NoQuorum)], 1));
    }
}

#[test]
fn a_request_is_not_asked_again_behind_its_deadline() {
    let mut router = router();
    begin(&mut router, 1, read());
    let (_, sent) = due(&mut router, 0, Some(LEADER));
    let mut followed = Vec::new();
    router.answered(990, sent[0].0, Err(Refusal::Busy), &mut followed);
    assert_eq!(due(&mut router, 995, Some(LEADER)), (vec![], vec![]));
    let refused = vec![Err(Refusal::NoQuorum)];
    assert_eq!(due(&mut router, 1000, Some(LEADER)), (refused, vec![]));
}
