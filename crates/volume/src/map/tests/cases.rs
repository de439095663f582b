//! Single cases.

use std::path::Path;
use std::sync::Arc;

use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

use crate::command::{Blocks, Command, Request};
use crate::error::Error;
use crate::ids::{Ballot, DiskId, GroupId, LayerId, NodeId, SessionId, Slot, VolumeId};
use crate::map::{Applied, Map, Outcome, Refusal, Run};
use crate::members::{Member, Members, Role};
use crate::place::Place;
use crate::system::{SystemCommand, SystemOutcome};

const GROUP: GroupId = GroupId(1);
const VOLUME: VolumeId = VolumeId(1);
const SESSION: SessionId = SessionId {
    node: NodeId(1),
    life: 1,
    connection: 1,
};

fn open(memory: &Memory) -> Map {
    Map::open_with(Arc::new(memory.clone()), Path::new("/map"), 1 << 20, false).unwrap()
}

/// Applies a command in the next slot.
fn apply(map: &Map, command: &Command, offset: u32) -> Applied {
    let slot = map.applied(GROUP).next();
    let place = Place { segment: 1, offset };
    map.apply(GROUP, slot, Ballot(1), command, Some(place))
        .unwrap()
}

/// Request `number`, of one after the other.
fn by(number: u64) -> Request {
    Request {
        session: SESSION,
        number,
        answered: number,
    }
}

fn write(number: u64, first: u64, checksums: &[u64]) -> Command {
    Command::Write {
        by: by(number),
        blocks: Blocks {
            volume: VOLUME,
            first,
            count: checksums.len() as u32,
        },
        checksums: checksums.to_vec(),
    }
}

/// A map with a volume and a session.
fn ready(memory: &Memory) -> Map {
    let map = open(memory);
    let create = Command::CreateVolume {
        volume: VOLUME,
        block_size: 4096,
        layer: LayerId(1),
        origin: None,
    };
    apply(&map, &create, 0);
    apply(&map, &Command::OpenSession(SESSION), 0);
    map
}

/// Figure 6.6 of the paper, with blocks of 4 KiB: write 4 KiB at 5, 12 KiB at 7, 6 KiB at 1 (which
/// are blocks 1 and 2: the part of a block was merged before), delete 8, write 4 KiB at 1, and at
/// 15.
#[test]
fn the_example_of_the_paper() {
    let map = ready(&Memory::new());
    const K: u32 = 4096;
    let delete = Command::Discard {
        by: by(4),
        blocks: Blocks {
            volume: VOLUME,
            first: 8,
            count: 1,
        },
    };
    // The log has the data back to back.
    let commands = [
        (write(1, 5, &[50]), 0),
        (write(2, 7, &[70, 80, 90]), K),
        (write(3, 1, &[10, 20]), 4 * K),
        (delete, 6 * K),
        (write(5, 1, &[11]), 6 * K),
        (write(6, 15, &[150]), 7 * K),
    ];
    for (command, offset) in &commands {
        assert_eq!(apply(&map, command, *offset).outcome, Outcome::Done);
    }
    let found = map.lookup(GROUP, VOLUME, 0, 16).unwrap();
    let found = (0..).zip(found).filter_map(|(block, extent)| {
        extent.map(|extent| (block, extent.place.offset / K, extent.checksum))
    });
    let expected = [
        (1, 6, 11),
        (2, 5, 20),
        (5, 0, 50),
        (7, 1, 70),
        (9, 3, 90),
        (15, 7, 150),
    ];
    assert_eq!(found.collect::<Vec<(u64, u32, u64)>>(), expected);
    // Eight blocks were written. The old block 1 and the deleted 8 are garbage.
    assert_eq!(map.usage(), [(1, 6 * 4096)].into());
    let runs = map.allocated(GROUP, VOLUME, (0, 16), 99).unwrap();
    let run = |(blocks, is_data)| Run { blocks, is_data };
    let expected = [1, 2, 2, 1, 1, 1, 1, 1, 5, 1]
        .into_iter()
        .zip([false, true].into_iter().cycle());
    assert_eq!(runs, expected.map(run).collect::<Vec<Run>>());
}

#[test]
fn slots_are_applied_in_order() {
    let map = ready(&Memory::new());
    let nothing = |slot| map.apply(GROUP, Slot(slot), Ballot(1), &Command::Nothing, None);
    for slot in [0, 2, 4] {
        assert!(
            matches!(nothing(slot), Err(Error::NotNext { .. })),
            "{slot}"
        );
    }
    assert_eq!(nothing(3).unwrap().outcome, Outcome::Done);
    let without = map.apply(GROUP, Slot(4), Ballot(1), &write(1, 0, &[1]), None);
    assert!(matches!(without, Err(Error::BadPlace { .. })));
    let place = Place {
        segment: 1,
        offset: u32::MAX - 4094,
    };
    let past = map.apply(GROUP, Slot(4), Ballot(1), &write(1, 0, &[1]), Some(place));
    assert!(matches!(past, Err(Error::BadPlace { .. })));
    assert_eq!(map.applied(GROUP), Slot(3));
}

#[test]
fn what_is_answered_or_unknown_is_refused() {
    let map = ready(&Memory::new());
    apply(&map, &write(5, 0, &[1]), 0);
    let late = apply(&map, &write(4, 0, &[2]), 0);
    assert_eq!(late.outcome, Outcome::Refused(Refusal::Answered));
    assert_eq!(
        apply(&map, &write(5, 0, &[1]), 0).outcome,
        Outcome::Repeated
    );
    let mut short = write(6, 0, &[1, 2]);
    if let Command::Write { checksums, .. } = &mut short {
        checksums.pop();
    }
    assert_eq!(
        apply(&map, &short, 0).outcome,
        Outcome::Refused(Refusal::Malformed)
    );
    let lives = Command::CloseLives {
        node: NodeId(1),
        before: 2,
    };
    apply(&map, &lives, 0);
    let closed = Outcome::Refused(Refusal::NoSession);
    assert_eq!(apply(&map, &write(7, 0, &[1]), 0).outcome, closed);
    assert_eq!(
        apply(&map, &Command::OpenSession(SESSION), 0).outcome,
        closed
    );
    assert_eq!(
        map.lookup(GROUP, VOLUME, 0, 1).unwrap()[0]
            .unwrap()
            .checksum,
        1
    );
}

#[test]
fn a_segment_is_free_only_after_a_flush() {
    let memory = Memory::new();
    let map = ready(&memory);
    apply(&map, &write(1, 0, &[1]), 0);
    map.flush().unwrap();
    let (from, to) = (
        Place {
            segment: 1,
            offset: 0,
        },
        Place {
            segment: 2,
            offset: 0,
        },
    );
    assert!(map.moved(GROUP, LayerId(1), 0, from, to).unwrap());
    assert_eq!(map.usage(), [(2, 4096)].into());
    assert!(!map.is_free(1) && !map.is_free(2) && map.is_free(3));
    assert_eq!(map.free_segments(), [0; 0]);
    // A crash forgets the move.
    let lost = open(&memory.power_cut(1, PowerCut::Lost));
    assert_eq!(
        lost.lookup(GROUP, VOLUME, 0, 1).unwrap()[0].unwrap().place,
        from
    );
    map.flush().unwrap();
    assert_eq!((map.free_segments(), map.is_free(1)), (vec![1], true));
    map.forget_segment(1);
    assert_eq!(map.free_segments(), [0; 0]);
    let kept = open(&memory.power_cut(1, PowerCut::Lost));
    assert_eq!(
        kept.lookup(GROUP, VOLUME, 0, 1).unwrap()[0].unwrap().place,
        to
    );
    assert!(kept.is_free(1) && !kept.is_free(2));
}

#[test]
fn a_write_that_fails_changes_nothing() {
    let memory = Memory::new();
    let faulty = Faulty::new(Arc::new(memory.clone()));
    let map = Map::open_with(Arc::new(faulty.clone()), Path::new("/map"), 1, false).unwrap();
    let create = Command::CreateVolume {
        volume: VOLUME,
        block_size: 512,
        layer: LayerId(1),
        origin: None,
    };
    apply(&map, &create, 0);
    apply(&map, &Command::OpenSession(SESSION), 0);
    let (mut number, mut failed) = (0, 0);
    faulty.fail_from(faulty.calls() + 1);
    // Memtables fill up, and cannot be flushed.
    while failed < 3 && number < 20_000 {
        number += 1;
        let (slot, usage, hash) = (map.applied(GROUP), map.usage(), map.state_hash(GROUP));
        let command = write(number, number % 97, &[number; 16]);
        let place = Place {
            segment: number as u32,
            offset: 0,
        };
        if map
            .apply(GROUP, slot.next(), Ballot(1), &command, Some(place))
            .is_err()
        {
            failed += 1;
            assert_eq!((map.applied(GROUP), map.usage()), (slot, usage));
            assert_eq!(map.state_hash(GROUP).ok(), hash.ok());
        }
    }
    assert!(failed > 0);
}

#[test]
fn an_order_happens_once() {
    let map = open(&Memory::new());
    let format = SystemCommand::Format {
        groups: 4,
        members: Members::new([Member {
            node: NodeId(1),
            disk: DiskId(7),
            address: "127.0.0.1:1".into(),
            role: Role::Voter,
        }]),
    };
    let session = SessionId {
        node: NodeId(1),
        life: 1,
        connection: 1,
    };
    let mut slot = 0;
    let mut apply = |command: Command| {
        slot += 1;
        let applied = map.apply(GroupId::SYSTEM, Slot(slot), Ballot(1), &command, None);
        match applied.unwrap().outcome {
            Outcome::System(bytes) => Ok(SystemOutcome::decode(&bytes).unwrap()),
            other => Err(other),
        }
    };
    let order = |number, answered, command: &SystemCommand| Command::Order {
        by: Request {
            session,
            number,
            answered,
        },
        command: command.encode(),
    };
    apply(Command::System(format.encode())).unwrap();
    let create = SystemCommand::Create {
        name: "disk".into(),
        size: 1 << 30,
        block_size: 4096,
    };
    let delete = SystemCommand::Delete("disk".into());
    let unknown = apply(order(1, 1, &create));
    assert_eq!(unknown, Err(Outcome::Refused(Refusal::NoSession)));
    assert_eq!(apply(Command::OpenSession(session)), Err(Outcome::Done));
    let created = apply(order(1, 1, &create)).unwrap();
    assert!(matches!(created, SystemOutcome::Ok(Some(_))));
    assert_eq!(apply(order(1, 1, &create)), Ok(created));
    let deleted = apply(order(2, 1, &delete)).unwrap();
    assert!(matches!(deleted, SystemOutcome::Ok(Some(_))));
    // Its answer was lost.
    assert_eq!(apply(order(2, 1, &delete)), Ok(SystemOutcome::Ok(None)));
    // What comes late does nothing.
    let late = apply(order(1, 1, &create)).unwrap();
    assert!(matches!(late, SystemOutcome::Error(_)));
    assert!(map.system().named("disk").is_none());
    let created = apply(order(3, 3, &create)).unwrap();
    assert!(matches!(created, SystemOutcome::Ok(Some(_))));
    let late = apply(order(2, 1, &delete));
    assert_eq!(late, Err(Outcome::Refused(Refusal::Answered)));
    assert!(map.system().named("disk").is_some());
}

#[test]
fn members_and_the_system_groups_state_are_kept() {
    let memory = Memory::new();
    let map = open(&memory);
    let member = Member {
        node: NodeId(1),
        disk: DiskId(7),
        address: "127.0.0.1:1".into(),
        role: Role::Voter,
    };
    let members = Arc::new(Members::new([member]));
    let applied = apply(&map, &Command::Members(members.clone()), 0);
    assert_eq!(applied.members, Some(members.clone()));
    let system = |map: &Map, slot, command: &SystemCommand| {
        let command = Command::System(command.encode());
        let applied = map.apply(GroupId::SYSTEM, Slot(slot), Ballot(1), &command, None);
        match applied.unwrap().outcome {
            Outcome::System(bytes) => SystemOutcome::decode(&bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let format = SystemCommand::Format {
        groups: 4,
        members: (*members).clone(),
    };
    assert_eq!(system(&map, 1, &format), SystemOutcome::Ok(None));
    let create = SystemCommand::Create {
        name: "disk".into(),
        size: 1 << 30,
        block_size: 4096,
    };
    assert!(matches!(
        system(&map, 2, &create),
        SystemOutcome::Ok(Some(_))
    ));
    let elsewhere = apply(&map, &Command::System(create.encode()), 0);
    assert_eq!(elsewhere.outcome, Outcome::Refused(Refusal::Malformed));
    map.flush().unwrap();
    let again = open(&memory.power_cut(3, PowerCut::Lost));
    assert_eq!(again.system(), map.system());
    assert_eq!(again.system().todo().len(), 1);
    assert_eq!(again.members(GROUP), Some(members));
    assert_eq!(
        again.durable(),
        [(GroupId::SYSTEM, Slot(2)), (GROUP, Slot(2))]
    );
    assert_eq!(
        again.state_hash(GroupId::SYSTEM).unwrap(),
        map.state_hash(GroupId::SYSTEM).unwrap()
    );
    // An image has it, too.
    let other = open(&Memory::new());
    let image = map.image(GroupId::SYSTEM).unwrap();
    other.begin_install(GroupId::SYSTEM, image.meta()).unwrap();
    while !other.clear_former(GroupId::SYSTEM, 10).unwrap() {}
    other
        .finish_install(GroupId::SYSTEM, Slot(2), Ballot(1))
        .unwrap();
    assert_eq!(other.system(), map.system());
    let twice = other.finish_install(GroupId::SYSTEM, Slot(2), Ballot(1));
    assert!(matches!(twice, Err(Error::NotInstalling { .. })));
}

/// A replica without a state may get that of another one that is further behind.
#[test]
fn an_image_of_before_members_changed_has_those_at_first() {
    let behind = open(&Memory::new());
    apply(&behind, &Command::Nothing, 0);
    let memory = Memory::new();
    let map = open(&memory);
    apply(&map, &Command::Nothing, 0);
    let members = Arc::new(Members::new([Member {
        node: NodeId(1),
        disk: DiskId(1),
        address: "a".into(),
        role: Role::Voter,
    }]));
    let changed = apply(&map, &Command::Members(members.clone()), 0);
    assert_eq!(changed.outcome, Outcome::Done);
    assert_eq!(map.members(GROUP), Some(members));
    let meta = map.image(GROUP).unwrap().meta().clone();
    map.begin_install(GROUP, &meta).unwrap();
    // It ended, and another one begins.
    let meta = behind.image(GROUP).unwrap().meta().clone();
    map.begin_install(GROUP, &meta).unwrap();
    while !map.clear_former(GROUP, 10).unwrap() {}
    map.finish_install(GROUP, meta.slot, meta.ballot).unwrap();
    let again = open(&memory.power_cut(3, PowerCut::Lost));
    for map in [&map, &again] {
        assert_eq!(map.members(GROUP), None);
        let hash = map.state_hash(GROUP).unwrap();
        assert_eq!(hash, behind.state_hash(GROUP).unwrap());
    }
}

#[test]
fn a_map_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Map>();
    shared::<crate::map::Image>();
}
