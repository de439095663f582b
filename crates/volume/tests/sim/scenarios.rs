//! Runs that are written by hand: what chance would show rarely.

use std::path::Path;

use esker_sim::memory::PowerCut;
use esker_sim::world::World as _;
use esker_volume::command::Command;
use esker_volume::ids::{GroupId, LayerId, NodeId};
use esker_volume::node::input::{Input, Work};
use esker_volume::system::SystemCommand;
use esker_volume::wire::{Change, Frame, Op};

use super::action::{At, By, Settings, What};
use super::clients::{Answered, Kind, value};
use super::node::DIR;
use super::traps::{Cue, Then};
use super::world::World;

/// Nothing fails on its own.
fn calm() -> World {
    World::new(calm_settings())
}

fn calm_settings() -> Settings {
    Settings {
        seed: 0,
        nodes: 3,
        spare: true,
        groups: 2,
        block_size: 1024,
        segment_bytes: 32 << 10,
        flush_bytes: 16 << 10,
        log_segments: 1,
        window: 8 << 20,
        message: 1 << 20,
        live_percent: 50,
        lost: 0,
        twice: 0,
        late: 0,
        delay: 1,
        sync: 1,
        session_loss: 2000,
        lease: true,
        wild: false,
    }
}

fn by(id: NodeId) -> By {
    By {
        node: (id.0 - 1) as u8,
        connection: 0,
        wait: 5000,
        direct: false,
    }
}

fn leader(world: &mut World, group: GroupId) -> NodeId {
    leader_by(world, NodeId(1), group)
}

/// The leader that a node knows.
fn leader_by(world: &mut World, id: NodeId, group: GroupId) -> NodeId {
    let core = world.node(id).core.as_ref().unwrap();
    let groups = core.status().groups;
    NodeId(groups.iter().find(|g| g.group == group.0).unwrap().leader)
}

/// A group comes to be led by a node.
fn lead(world: &mut World, group: GroupId, id: NodeId) {
    for _ in 0..100 {
        if leader(world, group) == id {
            return;
        }
        world.transfer(group.0 as u8, (id.0 - 1) as u8);
        world.run_for(100);
    }
    panic!("node {id} does not lead");
}

#[test]
fn a_member_is_added_again_where_it_leads() {
    let mut world = calm();
    world.join(false);
    world.converge();
    lead(&mut world, GroupId(1), NodeId(4));
    world.add(NodeId(4));
    world.converge();
    world.end();
}

#[test]
fn a_late_release_of_an_earlier_cut_lets_no_answer_go() {
    let mut world = calm();
    let volume = world.volumes[0].id;
    let tell = |world: &mut World, command: Command| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let groups = world.settings.groups;
        for group in (1..=groups).map(GroupId) {
            let work = Work::Command(group, bytes.clone());
            world.call(by(NodeId(1)), Kind::Other, (0, 0..0), |_| work);
        }
        world.run_for(300);
    };
    let (earlier, layer) = (LayerId(1000), LayerId(1001));
    tell(
        &mut world,
        Command::Cut {
            volume,
            layer: earlier,
        },
    );
    tell(
        &mut world,
        Command::Release {
            volume,
            layer: earlier,
        },
    );
    tell(&mut world, Command::Cut { volume, layer });
    let at = At {
        volume: 0,
        area: 0,
        from: 0,
        count: 2,
    };
    let write = world.ask_for(&What::Write(by(NodeId(2)), at)).unwrap();
    world.run_for(300);
    tell(
        &mut world,
        Command::Release {
            volume,
            layer: earlier,
        },
    );
    assert!(world.calls[write].is_pending());
    tell(&mut world, Command::Release { volume, layer });
    assert!(world.calls[write].is_done());
}

#[test]
fn a_leader_whose_map_is_damaged_steps_back() {
    let mut world = calm();
    let id = world.victim();
    lead(&mut world, GroupId(1), id);
    // Until the log begins behind the first entries: a new member needs an image.
    for round in 0..40 {
        let at = At {
            volume: 0,
            area: round % 3,
            from: 0,
            count: 6,
        };
        world.ask_for(&What::Write(by(NodeId(2)), at));
        world.run_for(100);
    }
    lead(&mut world, GroupId(1), id);
    let core = world.node(id).core.as_ref().unwrap();
    let groups = core.status().groups;
    assert!(groups.iter().all(|group| group.base.0 > 0), "{groups:?}");
    core.readers().0.flush().unwrap();
    let memory = world.node(id).memory.clone();
    for path in memory.paths() {
        let is_table = path.extension().is_some_and(|end| end == "tbl");
        if is_table && path.starts_with(Path::new(DIR).join("map")) {
            let mut bytes = memory.read(&path).unwrap();
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
            memory.write(&path, &bytes);
        }
    }
    world.is_rotten = true;
    world.node(id).may_fail = true;
    world.join(false);
    world.converge();
    world.end();
}

#[test]
fn a_block_that_others_do_not_know_to_be_chosen_is_healed() {
    let mut world = calm();
    let id = world.victim();
    (1..=world.settings.groups).for_each(|group| lead(&mut world, GroupId(group), id));
    let at = At {
        volume: 0,
        area: 0,
        from: 0,
        count: 2,
    };
    // Between two signs of life.
    world.run_for(30);
    let write = world.ask_for(&What::Write(by(id), at)).unwrap();
    while world.calls[write].is_pending() {
        world.run_for(1);
    }
    assert!(world.calls[write].is_done());
    // The others have accepted it, and hear that it is chosen with the next sign of life.
    world.rot_last();
    let read = world.ask_for(&What::Read(by(id), at)).unwrap();
    world.run_for(2000);
    let expected = Answered::Values(vec![value(write); 2]);
    assert_eq!(world.calls[read].answered, Some(expected));
    world.end();
}

#[test]
fn a_change_of_members_is_done_when_a_majority_has_it() {
    let mut world = calm();
    let (group, one, four) = (GroupId(1), NodeId(1), NodeId(4));
    lead(&mut world, group, one);
    world.node(four).is_used = true;
    world.start(four);
    world.run_for(500);
    for other in [NodeId(2), NodeId(3)] {
        world.net.link(one, other).blocked_until = world.now + 1000;
    }
    let change = Change::Add(four, "node4".to_string());
    for _ in 0..2 {
        let call = world.change(0, group, change.clone()).unwrap();
        world.run_for(100);
        assert!(world.calls[call].is_pending());
    }
    world.run_for(2000);
    world.add(four);
    world.converge();
    world.end();
}

#[test]
fn a_late_removal_does_not_undo_a_later_addition() {
    let mut world = calm();
    world.join(false);
    world.converge();
    let groups: Vec<GroupId> = (0..=world.settings.groups).map(GroupId).collect();
    let version = |world: &mut World, group| {
        let (map, _) = world.node(NodeId(1)).core.as_ref().unwrap().readers();
        map.members(group).unwrap().version()
    };
    let versions: Vec<u64> = groups.iter().map(|id| version(&mut world, *id)).collect();
    world.leave(NodeId(4));
    world.converge();
    // With the disk that it had.
    world.join(false);
    world.converge();
    for (group, since) in groups.iter().copied().zip(versions) {
        let to = leader(&mut world, group);
        let from = world.ids().into_iter().find(|id| *id != to).unwrap();
        let (change, since) = (Change::Remove(NodeId(4)), Some(since));
        let op = Op::Member { change, since };
        let id = u64::MAX;
        let frame = Frame::Ask { id, group, op }.encode().flat();
        world.input(to, Input::Frame(from, frame));
        world.run_for(500);
    }
    // All members are those that the operator wants.
    world.converge();
    world.end();
}

#[test]
fn an_image_that_was_installed_just_before_a_power_cut_is_no_damage() {
    let mut world = calm();
    let (group, victim) = (GroupId(1), world.victim());
    lead(&mut world, group, victim);
    let id = world.ids().into_iter().find(|id| *id != victim).unwrap();
    world.cut_off(id, 60_000, false);
    for round in 0..=255 {
        let at = At {
            volume: 0,
            area: round % 3,
            from: 0,
            count: 18,
        };
        world.ask_for(&What::Write(by(victim), at));
        world.run_for(50);
        if world.is_left_behind(group, id) {
            break;
        }
    }
    assert!(world.is_left_behind(group, id));
    let map = |world: &mut World| world.node(id).core.as_ref().unwrap().readers().0;
    let before = map(&mut world).applied(group);
    world.cut_off(id, 0, false);
    // What says in the log that there is an image is written with the next batch, which is slow.
    while map(&mut world).is_incomplete(group) || map(&mut world).applied(group) == before {
        world.node(id).slow = 3;
        world.run_for(1);
    }
    let applied = map(&mut world).applied(group);
    world.crash(id, PowerCut::Kept, 0, 50);
    // Starting looks for damage.
    world.run_for(60);
    assert!(map(&mut world).applied(group) >= applied);
    world.converge();
    world.end();
}

/// A write of whole blocks, of the volume that every run begins with.
fn write(world: &mut World, by: By, count: u8) -> usize {
    let at = At {
        volume: 0,
        area: 0,
        from: 0,
        count,
    };
    world.ask_for(&What::Write(by, at)).unwrap()
}

#[test]
fn what_could_not_be_appended_is_not_said_to_be_accepted() {
    let mut world = calm();
    let [one, two, three] = [1, 2, 3].map(NodeId);
    (0..=world.settings.groups).for_each(|group| lead(&mut world, GroupId(group), one));
    world.cut_off(three, 60_000, false);
    // After many small batches zeros are written ahead, and only their sync fails.
    world.node(two).ahead_fails = Some(30);
    for _ in 0..200 {
        if world.node(two).ahead_fails.is_none() {
            break;
        }
        let call = write(&mut world, by(one), 2);
        while world.calls[call].is_pending() {
            world.run_for(1);
        }
    }
    assert!(!world.node(two).has_failed() && world.node(two).ahead_fails.is_none());
    let call = write(&mut world, by(one), 2);
    world.run_for(20);
    // Only the first node has it.
    assert!(world.node(two).has_failed());
    assert!(world.calls[call].is_pending(), "{:?}", world.calls[call]);
    world.crash(one, PowerCut::Lost, 0, 3000);
    world.crash(two, PowerCut::Kept, 0, 50);
    world.cut_off(three, 0, false);
    world.run_for(2000);
    world.converge();
    world.end();
}

#[test]
fn a_node_hears_at_once_that_zeros_ahead_failed() {
    let mut world = calm();
    let id = NodeId(1);
    (0..=world.settings.groups).for_each(|group| lead(&mut world, GroupId(group), id));
    world.node(id).ahead_fails = Some(1);
    for _ in 0..200 {
        if world.node(id).ahead_fails.is_none() {
            break;
        }
        let call = write(&mut world, by(id), 2);
        while world.calls[call].is_pending() {
            world.run_for(1);
        }
    }
    assert!(world.node(id).ahead_fails.is_none());
    // Nothing is written meanwhile.
    world.run_for(5);
    assert!(world.node(id).has_failed());
    world.end();
}

#[test]
fn a_full_disk_is_known_as_such_whoever_meets_it_first() {
    let (one, two) = (NodeId(1), NodeId(2));
    for room in (0..8).map(|room| room * 1500) {
        // The disk's thread says late what failed: entries come before.
        let mut world = World::new(Settings {
            sync: 30,
            ..calm_settings()
        });
        (0..=world.settings.groups).for_each(|group| lead(&mut world, GroupId(group), one));
        let until = world.now + 60_000;
        let node = world.node(two);
        node.may_fail = true;
        node.full_until = until;
        node.faulty.set_capacity(node.faulty.used() + room);
        for _ in 0..1000 {
            if world.node(two).has_failed() {
                break;
            }
            write(&mut world, by(one), 2);
            world.run_for(1);
        }
        let epoch = world.node(two).epoch;
        let core = world.node(two).core.as_ref().unwrap();
        let failed = core.status().failed;
        assert!(core.is_full(), "room for {room}: {failed:?}");
        world.run_for(100);
        world.node(two).full_until = 0;
        world.node(two).faulty.set_capacity(u64::MAX);
        world.reopen(two);
        assert!(!world.node(two).has_failed());
        world.converge();
        assert_eq!(world.node(two).epoch, epoch);
        world.end();
    }
}

#[test]
fn a_volume_that_grows_while_its_snapshot_is_made_adds_nothing_to_it() {
    let mut world = calm();
    let (one, two) = (NodeId(1), NodeId(2));
    world.order_create(0);
    world.converge();
    let [size, larger] = world.sizes();
    assert_eq!(world.volumes[1].size, size);
    lead(&mut world, GroupId::SYSTEM, one);
    (1..=2).for_each(|group| lead(&mut world, GroupId(group), two));
    // The groups are cut late.
    (0..2).for_each(|_| world.lay_trap(0, Cue::Errand, 0, Then::Hold(1500)));
    world.take_snapshot(1);
    world.run_for(300);
    world.order_grow(1);
    world.run_for(300);
    let behind = |volume| At {
        volume,
        area: 2,
        from: 4,
        count: 2,
    };
    world.ask_for(&What::Write(by(two), behind(1))).unwrap();
    world.converge();
    assert_eq!(world.volumes[1].size, larger);
    world.ask_for(&What::Write(by(two), behind(1))).unwrap();
    world.make_clone(0);
    world.converge();
    assert_eq!(world.volumes[2].size, size);
    world.order_grow(2);
    world.converge();
    let read = world.ask_for(&What::Read(by(two), behind(2))).unwrap();
    world.run_for(1000);
    let zeros = Answered::Values(vec![0; 2]);
    assert_eq!(world.calls[read].answered, Some(zeros));
    world.end();
}

/// Whether writes to all groups, through a node, are done within so many milliseconds.
fn all_write(world: &mut World, id: NodeId, within: u64) -> bool {
    let calls = (0..3).map(|area| {
        let at = At {
            volume: 0,
            area,
            from: 0,
            count: 6,
        };
        world.ask_for(&What::Write(by(id), at)).unwrap()
    });
    let calls: Vec<usize> = calls.collect();
    world.run_for(within);
    calls.iter().all(|call| world.calls[*call].is_done())
}

/// Node 1 has failed while it sent an image to node 3, and no piece of one arrives any more. Node 2
/// has sent the log instead.
fn half_an_image() -> (World, GroupId) {
    // Node 1 keeps less of the log than the others.
    let mut world = World::new(Settings {
        seed: 2,
        ..calm_settings()
    });
    let (group, one, two, three) = (GroupId(1), NodeId(1), NodeId(2), NodeId(3));
    (0..=2).for_each(|group| lead(&mut world, GroupId(group), one));
    world.cut_off(three, 60_000, false);
    let mut left = 200;
    while !world.is_left_behind(group, three) {
        assert!(all_write(&mut world, one, 30) && left > 0);
        left -= 1;
    }
    let ends = [two, three].map(|id| world.log_of(id, group).unwrap());
    assert!(ends[0].0 <= ends[1].1, "node 2 has the log: {ends:?}");
    world.cut_off(three, 0, false);
    for _ in 0..1000 {
        if is_incomplete(&mut world, three, group) {
            break;
        }
        world.run_for(1);
    }
    assert!(is_incomplete(&mut world, three, group));
    (0..1000).for_each(|_| world.lay_trap(7, Cue::Image, 0, Then::Lose));
    world.crash(one, PowerCut::Kept, 0, 60_000);
    world.run_for(3000);
    assert_eq!(leader_by(&mut world, two, group), two);
    let ends = [two, three].map(|id| world.log_of(id, group).unwrap().1);
    assert_eq!(ends[0], ends[1], "node 3 has the log, too");
    assert!(is_incomplete(&mut world, three, group));
    (world, group)
}

fn is_incomplete(world: &mut World, id: NodeId, group: GroupId) -> bool {
    let core = world.node(id).core.as_ref().unwrap();
    core.readers().0.is_incomplete(group)
}

#[test]
fn a_replica_that_waits_for_an_image_is_not_made_leader() {
    let (mut world, group) = half_an_image();
    let (two, three) = (NodeId(2), NodeId(3));
    world.transfer(group.0 as u8, 2);
    world.run_for(200);
    assert!(all_write(&mut world, two, 3000));
    assert!(is_incomplete(&mut world, three, group));
    world.end();
}

#[test]
fn a_replica_that_waits_for_an_image_hands_over_what_it_was_elected_for() {
    let (mut world, group) = half_an_image();
    let (two, three) = (NodeId(2), NodeId(3));
    // Who is a candidate first is chance.
    let mut has_led = false;
    for _ in 0..20 {
        world.crash(two, PowerCut::Kept, 0, 1000);
        for _ in 0..3000 {
            world.run_for(1);
            has_led |= leader_by(&mut world, three, group) == three;
        }
        if has_led {
            break;
        }
    }
    assert!(has_led);
    assert!(all_write(&mut world, two, 3000));
    assert!(is_incomplete(&mut world, three, group));
    world.end();
}

#[test]
fn leaders_are_spread_to_nodes_that_can_lead() {
    let mut world = calm();
    let [full, busy, idle] = [1, 2, 3].map(NodeId);
    (0..=2).for_each(|group| lead(&mut world, GroupId(group), busy));
    let until = world.now + 60_000;
    let node = world.node(full);
    node.may_fail = true;
    node.full_until = until;
    node.faulty.set_capacity(node.faulty.used());
    for _ in 0..200 {
        if world.node(full).has_failed() {
            break;
        }
        write(&mut world, by(busy), 6);
        world.run_for(10);
    }
    world.run_for(1000);
    // It stays linked, and has all that was chosen of the system group.
    assert!(world.node(full).has_failed());
    let (name, size) = ("v".to_string(), world.volumes[0].size);
    let grow = SystemCommand::Grow { name, size };
    let mut slowest = 0;
    for _ in 0..150 {
        let (call, began) = (world.command(1, &grow).unwrap(), world.now);
        while world.calls[call].is_pending() {
            world.run_for(1);
        }
        slowest = slowest.max(world.now - began);
        world.run_for(50);
    }
    assert!(slowest < 300, "a command took {slowest} ms");
    let leaders = [0, 1, 2].map(|group| leader_by(&mut world, busy, GroupId(group)));
    let led = |id| leaders.iter().filter(|leader| **leader == id).count();
    assert_eq!((led(full), led(busy), led(idle)), (0, 2, 1), "{leaders:?}");
    world.end();
}

#[test]
fn a_node_that_did_not_take_over_is_not_asked_again_soon() {
    let mut world = calm();
    (0..=2).for_each(|group| lead(&mut world, GroupId(group), NodeId(2)));
    // Whatever the reason: here the request is lost.
    let many = 100;
    (0..many).for_each(|_| world.lay_trap(7, Cue::Lead, 0, Then::Lose));
    world.run_for(30_000);
    let asked = many - world.traps.len();
    assert!((1..=2).contains(&asked), "asked {asked} times");
    world.end();
}

/// A world in which node 3 is linked again after the log was cut behind what it has.
fn left_behind(settings: Settings) -> (World, GroupId) {
    let mut world = World::new(settings);
    let (group, one, three) = (GroupId(1), NodeId(1), NodeId(3));
    (0..=2).for_each(|group| lead(&mut world, GroupId(group), one));
    world.cut_off(three, 120_000, false);
    let mut left = 400;
    while !world.is_left_behind(group, three) {
        assert!(all_write(&mut world, one, 60) && left > 0);
        left -= 1;
    }
    world.cut_off(three, 0, false);
    (world, group)
}

/// Node 3 has as much of a group as its leader, or nearly so.
fn is_close(world: &mut World, group: GroupId) -> bool {
    let [one, three] = [NodeId(1), NodeId(3)].map(|id| world.log_of(id, group).unwrap().1);
    !is_incomplete(world, NodeId(3), group) && three.0 + 64 > one.0
}

/// That a replica has all of an image was said once, and for a minute it was sent nothing.
#[test]
fn that_an_image_is_installed_may_be_lost() {
    let (mut world, group) = left_behind(calm_settings());
    world.trap(NodeId(3), (Cue::Installed, group), 0, Then::Lose, None);
    world.run_for(1000);
    assert!(world.traps.is_empty(), "the message is lost");
    assert!(all_write(&mut world, NodeId(1), 500));
    world.run_for(2000);
    assert!(is_close(&mut world, group));
    let [one, three] = [NodeId(1), NodeId(3)].map(|id| world.log_of(id, group).unwrap().1);
    assert_eq!(one, three);
    world.end();
}

/// A leader whose disk hung went on to lead: nothing was acknowledged for as long.
#[test]
fn a_leader_whose_disk_hangs_hands_over() {
    let mut world = calm();
    (0..=2).for_each(|group| lead(&mut world, GroupId(group), NodeId(1)));
    assert!(all_write(&mut world, NodeId(2), 500));
    world.node(NodeId(1)).slow = 60_000;
    assert!(all_write(&mut world, NodeId(2), 6_000));
    world.end();
}

/// The members that would be left had no majority: the change could not even be taken back.
#[test]
fn a_member_stays_where_no_majority_would_be_left() {
    let mut world = World::new(Settings {
        nodes: 5,
        ..calm_settings()
    });
    (0..=2).for_each(|group| lead(&mut world, GroupId(group), NodeId(1)));
    for id in [4, 5].map(NodeId) {
        world.crash(id, PowerCut::Kept, 0, 60_000);
    }
    world.run_for(2000);
    world.leave(NodeId(2));
    world.run_for(2000);
    let (name, size) = ("v".to_string(), world.volumes[0].size);
    let call = world
        .command(1, &SystemCommand::Grow { name, size })
        .unwrap();
    world.run_for(3000);
    assert!(!world.calls[call].is_pending(), "{:?}", world.calls[call]);
    assert!(all_write(&mut world, NodeId(2), 1000));
    // Once the others are there again it goes.
    world.end();
}
