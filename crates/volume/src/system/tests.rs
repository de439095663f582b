//! Commands of the system group, and a leader that does what they leave to do.

use std::collections::BTreeSet;

use esker_coding::Reader;

use super::{State, System, SystemCommand, SystemErrorKind, SystemOutcome, VolumeInfo};
use crate::command::Command;
use crate::ids::{DiskId, GroupId, NodeId};
use crate::members::{Member, Members, Role};

fn member(node: u32) -> Member {
    Member {
        node: NodeId(node),
        disk: DiskId(u64::from(node)),
        address: format!("host{node}:1"),
        role: Role::Voter,
    }
}

fn formatted(groups: u16) -> System {
    let mut system = System::default();
    let members = Members::new([member(1), member(2), member(3)]);
    let format = SystemCommand::Format { groups, members };
    assert_eq!(system.apply(&format), SystemOutcome::Ok(None));
    system
}

fn create(name: &str, size: u64) -> SystemCommand {
    SystemCommand::Create {
        name: name.into(),
        size,
        block_size: 4096,
    }
}

fn snapshot(volume: &str, snapshot: &str) -> SystemCommand {
    SystemCommand::Snapshot {
        volume: volume.into(),
        snapshot: snapshot.into(),
    }
}

fn clone(volume: &str, snapshot: &str, name: &str) -> SystemCommand {
    SystemCommand::Clone {
        volume: volume.into(),
        snapshot: snapshot.into(),
        name: name.into(),
    }
}

fn ok(system: &mut System, command: &SystemCommand) -> Option<VolumeInfo> {
    let command = SystemCommand::decode(&command.encode()).unwrap();
    let outcome = system.apply(&command);
    assert_eq!(
        SystemOutcome::decode(&outcome.encode()).as_ref(),
        Some(&outcome)
    );
    let mut bytes = Vec::new();
    system.encode(&mut bytes);
    assert_eq!(
        System::decode(&mut Reader::new(&bytes)).as_ref(),
        Some(&*system)
    );
    match outcome {
        SystemOutcome::Ok(info) => info,
        SystemOutcome::Error(error) => panic!("{command:?}: {error}"),
    }
}

fn kind(system: &mut System, command: &SystemCommand) -> SystemErrorKind {
    let before = system.clone();
    let outcome = system.apply(command);
    assert_eq!(
        *system, before,
        "{command:?} was refused, and did something"
    );
    assert_eq!(
        SystemOutcome::decode(&outcome.encode()).as_ref(),
        Some(&outcome)
    );
    match outcome {
        SystemOutcome::Error(error) => error.kind,
        other => panic!("{command:?}: {other:?}"),
    }
}

/// Does what is left to do, and returns the commands for group 1.
fn work(system: &mut System) -> Vec<Command> {
    let mut all = Vec::new();
    while let Some(task) = system.todo().into_iter().next() {
        let groups: Vec<GroupId> = task.commands.iter().map(|(group, _)| *group).collect();
        assert_eq!(groups, system.data_groups().collect::<Vec<_>>());
        all.push(task.commands[0].1.clone());
        ok(system, &task.then);
        // Late repetitions do nothing.
        let before = system.clone();
        ok(system, &task.then);
        assert_eq!(*system, before);
    }
    all
}

#[test]
fn commands_may_be_sent_again() {
    let mut system = formatted(3);
    let first = ok(&mut system, &create("a", 1 << 30)).unwrap();
    assert!(!first.is_ready);
    assert_eq!(ok(&mut system, &create("a", 1 << 30)).unwrap(), first);
    assert_eq!(
        kind(&mut system, &create("a", 1 << 20)),
        SystemErrorKind::Exists
    );
    assert!(matches!(
        work(&mut system)[..],
        [Command::CreateVolume { .. }]
    ));
    assert!(ok(&mut system, &create("a", 1 << 30)).unwrap().is_ready);
    let grow = |size| SystemCommand::Grow {
        name: "a".into(),
        size,
    };
    ok(&mut system, &grow(1 << 31));
    ok(&mut system, &grow(1 << 31));
    assert_eq!(kind(&mut system, &grow(1 << 30)), SystemErrorKind::Invalid);
    assert_eq!(
        kind(&mut system, &grow((1 << 31) + 1)),
        SystemErrorKind::Invalid
    );
    let rename = |from: &str, to: &str| SystemCommand::Rename {
        from: from.into(),
        to: to.into(),
    };
    // While a snapshot is being made, blocks behind its end would become part of it.
    ok(&mut system, &snapshot("a", "s"));
    assert_eq!(kind(&mut system, &grow(1 << 32)), SystemErrorKind::Busy);
    ok(&mut system, &grow(1 << 31));
    work(&mut system);
    ok(&mut system, &grow(1 << 32));
    let of_snapshot = ok(&mut system, &clone("a", "s", "c")).unwrap();
    assert_eq!(of_snapshot.size, 1 << 31);
    work(&mut system);
    ok(&mut system, &SystemCommand::Delete("c".into()));
    work(&mut system);
    ok(&mut system, &create("other", 4096));
    assert_eq!(
        kind(&mut system, &rename("a", "other")),
        SystemErrorKind::Exists
    );
    ok(&mut system, &rename("a", "b"));
    assert_eq!(ok(&mut system, &rename("a", "b")).unwrap().id, first.id);
    assert_eq!(
        kind(&mut system, &rename("c", "b")),
        SystemErrorKind::NotFound
    );
    ok(&mut system, &SystemCommand::Delete("b".into()));
    let again = kind(&mut system, &SystemCommand::Delete("b".into()));
    assert_eq!(again, SystemErrorKind::NotFound);
    let id = ok(&mut system, &create("b", 1 << 30)).unwrap().id;
    assert_ne!(id, first.id);
    work(&mut system);
    assert_eq!(system.volume(first.id), None);
    assert_eq!(system.volumes().count(), 2);
}

#[test]
fn names_and_sizes_are_checked() {
    let mut system = formatted(1);
    for name in ["", "a/b", "a b", "ä", &"x".repeat(256)] {
        assert_eq!(
            kind(&mut system, &create(name, 4096)),
            SystemErrorKind::Invalid,
            "{name}"
        );
    }
    ok(&mut system, &create(&"x".repeat(255), 4096));
    ok(&mut system, &create("A-z_0.9", 1 << 56));
    for size in [1, 4095, (1 << 56) + 4096] {
        assert_eq!(
            kind(&mut system, &create("a", size)),
            SystemErrorKind::Invalid,
            "{size}"
        );
    }
    for block_size in [0, 256, 513, 131_072] {
        let command = SystemCommand::Create {
            name: "a".into(),
            size: 0,
            block_size,
        };
        assert_eq!(
            kind(&mut system, &command),
            SystemErrorKind::Invalid,
            "{block_size}"
        );
    }
    assert_eq!(
        kind(&mut System::default(), &create("a", 4096)),
        SystemErrorKind::Busy
    );
}

#[test]
fn snapshots_are_cut_then_released_and_clones_share_their_places() {
    let mut system = formatted(2);
    ok(&mut system, &create("a", 1 << 30));
    assert_eq!(
        kind(&mut system, &snapshot("a", "s")),
        SystemErrorKind::Busy
    );
    work(&mut system);
    ok(&mut system, &snapshot("a", "s"));
    ok(&mut system, &snapshot("a", "s"));
    assert_eq!(
        kind(&mut system, &snapshot("a", "t")),
        SystemErrorKind::Busy
    );
    assert_eq!(
        kind(&mut system, &clone("a", "s", "c")),
        SystemErrorKind::NotFound
    );
    let done = work(&mut system);
    assert!(
        matches!(done[..], [Command::Cut { .. }, Command::Release { .. }]),
        "{done:?}"
    );
    ok(&mut system, &snapshot("a", "s"));
    ok(
        &mut system,
        &SystemCommand::Grow {
            name: "a".into(),
            size: 1 << 31,
        },
    );
    let cloned = ok(&mut system, &clone("a", "s", "c")).unwrap();
    assert_eq!(cloned.size, 1 << 30);
    ok(&mut system, &clone("a", "s", "c"));
    let delete = SystemCommand::DeleteSnapshot {
        volume: "a".into(),
        snapshot: "s".into(),
    };
    // Groups may not have the clone yet.
    assert_eq!(kind(&mut system, &delete), SystemErrorKind::Busy);
    let volume = SystemCommand::Delete("a".into());
    assert_eq!(kind(&mut system, &volume), SystemErrorKind::Busy);
    work(&mut system);
    let (a, c) = (system.named("a").unwrap(), system.named("c").unwrap());
    assert!(
        (0..100_000)
            .step_by(333)
            .all(|b| system.group_of(a, b) == system.group_of(c, b))
    );
    ok(&mut system, &delete);
    assert_eq!(kind(&mut system, &delete), SystemErrorKind::NotFound);
    assert!(matches!(work(&mut system)[..], [Command::DropLayer(_)]));
    ok(&mut system, &snapshot("a", "u"));
    ok(&mut system, &volume);
    assert!(matches!(work(&mut system)[..], [Command::DropVolume(_)]));
    assert_eq!(
        system
            .volumes()
            .map(|v| (&*v.name, v.state))
            .collect::<Vec<_>>(),
        [("c", State::Ready)]
    );
}

#[test]
fn blocks_are_spread_over_all_groups_by_ranges() {
    let mut system = formatted(5);
    ok(&mut system, &create("a", 1 << 40));
    let volume = system.named("a").unwrap();
    let per_range = (4 << 20) / 4096;
    let group = |range: u64| system.group_of(volume, range * per_range);
    for range in 0..50 {
        let last = range * per_range + per_range - 1;
        assert_eq!(group(range), system.group_of(volume, last));
        let five: BTreeSet<GroupId> = (range..range + 5).map(group).collect();
        assert_eq!(five, system.data_groups().collect());
    }
}

#[test]
fn members_change_one_at_a_time() {
    let mut system = formatted(1);
    let add = SystemCommand::AddMember(member(4));
    ok(&mut system, &add);
    ok(&mut system, &add);
    let change = system.change().unwrap();
    let remove = SystemCommand::RemoveMember(NodeId(1));
    assert_eq!(kind(&mut system, &remove), SystemErrorKind::Busy);
    ok(&mut system, &SystemCommand::MembersDone(change + 1));
    assert_eq!(system.change(), Some(change));
    ok(&mut system, &SystemCommand::MembersDone(change));
    ok(&mut system, &remove);
    assert_eq!(
        system.wanted().voters().collect::<Vec<_>>(),
        [2, 3, 4].map(NodeId)
    );
    let change = system.change().unwrap();
    ok(&mut system, &SystemCommand::MembersDone(change));
    assert_eq!(kind(&mut system, &remove), SystemErrorKind::NotFound);
    // Formatting happens once.
    let members = Members::new([member(9)]);
    ok(&mut system, &SystemCommand::Format { groups: 9, members });
    assert_eq!((system.groups(), system.wanted().iter().count()), (1, 3));
}

#[test]
fn damaged_bytes_are_refused() {
    let mut system = formatted(2);
    ok(&mut system, &create("a", 1 << 30));
    work(&mut system);
    ok(&mut system, &snapshot("a", "s"));
    let mut bytes = Vec::new();
    system.encode(&mut bytes);
    for cut in 0..bytes.len() {
        assert_eq!(System::decode(&mut Reader::new(&bytes[..cut])), None);
    }
    let commands = [create("a", 4096).encode(), clone("a", "b", "c").encode()];
    for bytes in commands {
        for cut in 0..bytes.len() {
            assert_eq!(SystemCommand::decode(&bytes[..cut]), None);
            assert_eq!(
                SystemOutcome::decode(&bytes[..cut]),
                SystemOutcome::decode(&bytes[..cut])
            );
        }
    }
}
