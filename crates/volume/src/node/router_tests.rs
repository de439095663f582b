//! Requests of users, cut into parts: how many are under way, and in which sessions.

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

fn discard(router: &mut Router, ticket: u64, gib: u64) {
    let volume = VolumeId(1);
    let (size, block_size, placement) = (1 << 40, 4096, volume);
    let shape = Some(Shape {
        size,
        block_size,
        placement,
    });
    let work = Work::Discard {
        volume,
        offset: 0,
        length: gib << 30,
    };
    let manner = Manner {
        wait: 1000,
        direct: false,
    };
    router
        .begin(0, CONNECTION, ticket, work, manner, shape)
        .unwrap();
}

/// Sends what is due and answers it. Returns the tickets that are answered, and the parts under
/// way.
fn round(router: &mut Router, now: u64) -> (Vec<u64>, usize) {
    let mut followed = Vec::new();
    let due = router.due(now, &|_| Some(LEADER), &mut followed);
    for (id, _, to, op) in &due {
        assert_eq!(*to, LEADER);
        if let Op::Discard { by, .. } = op {
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
    (tickets.collect(), due.len())
}

#[test]
fn large_trims_at_the_same_time_wait_for_the_window_and_end() {
    let mut router = router();
    // Each of 1,024 parts: 4 MiB in one group.
    discard(&mut router, 1, 4);
    discard(&mut router, 2, 4);
    let mut ended = Vec::new();
    for now in 0..20 {
        let (tickets, under_way) = round(&mut router, now);
        assert!(under_way <= 512 + 8, "{under_way} parts");
        ended.extend(tickets);
    }
    assert_eq!(ended, [1, 2]);
    assert_eq!(router.outstanding(), 0);
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
