//! Messages survive their encoding, and no bytes panic.

use std::sync::Arc;

use esker_coding::Reader;

use crate::consensus::{Message, Meta};
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::{Member, Members, Role};

#[test]
fn messages_are_read_as_they_were_written() {
    let address = "host:1".to_string();
    let (node, disk, role) = (NodeId(2), DiskId(77), Role::Learner);
    let members = Members::new([Member {
        node,
        disk,
        address,
        role,
    }]);
    let meta = |slot, members| Meta {
        slot: Slot(slot),
        ballot: Ballot(3),
        bytes: 9,
        members,
    };
    let (ballot, round, last) = (Ballot(1 << 40), 12, (Ballot(4), Slot(300)));
    let all = [
        Message::Prepare {
            ballot,
            last,
            trial: true,
            forced: false,
        },
        Message::Prepare {
            ballot,
            last,
            trial: false,
            forced: true,
        },
        Message::Promise {
            ballot,
            trial: false,
            granted: true,
        },
        Message::Accept {
            ballot,
            previous: (Slot(4), Ballot(2)),
            entries: vec![meta(5, None), meta(6, Some(Arc::new(members)))],
            chosen: Slot(3),
            last: Slot(7),
            round,
        },
        Message::Accepted {
            ballot,
            through: Slot(8),
            round,
            damaged: true,
        },
        Message::Refused {
            ballot,
            hint: Slot(0),
            round,
            damaged: true,
        },
        Message::Lead { ballot },
    ];
    let mut rng = fastrand::Rng::with_seed(5);
    for message in all {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(Message::decode(&mut Reader::new(&bytes)), Some(message));
        for _ in 0..2000 {
            let mut other = bytes.clone();
            let at = rng.usize(0..other.len());
            other[at] = rng.u8(..);
            other.truncate(rng.usize(0..=other.len()));
            let _ = Message::decode(&mut Reader::new(&other));
        }
    }
}
