//! What the records of a group mean when they are read back.

use super::*;

const GROUP: GroupId = GroupId(1);

fn read() -> Reading {
    Reading::new(BTreeMap::new())
}

fn lose(reading: &mut Reading, groups: Loss) {
    let (segment, offset) = (1, 0);
    let found = Found::Loss {
        segment,
        offset,
        groups,
    };
    reading.found(found).unwrap();
}

fn header(kind: Kind, slot: u64, ballot: u64) -> RecordHeader {
    RecordHeader {
        kind,
        group: GROUP,
        slot,
        ballot: Ballot(ballot),
        lsn: 0,
        synced: 0,
        bytes: 0,
        checksum: 0,
    }
}

fn entry(reading: &mut Reading, slot: u64) {
    let place = crate::place::Place {
        segment: 1,
        offset: 0,
    };
    let mut payload = Vec::new();
    Command::Nothing.encode(&mut payload);
    reading.entry(&header(Kind::Entry, slot, 1), place, &payload);
}

fn base(reading: &mut Reading, slot: u64, ballot: u64) {
    let mut payload = vec![ballot as u8, 0];
    Members::default().encode(&mut payload);
    reading.base(&header(Kind::Base, slot, ballot), &payload);
}

fn members(node: u32) -> Arc<Members> {
    Arc::new(Members::new([crate::members::Member {
        node: NodeId(node),
        disk: crate::ids::DiskId(node.into()),
        address: String::new(),
        role: crate::members::Role::Voter,
    }]))
}

/// What the group has, with members of node 1 at first, and of node 2 by its state, or not.
fn built(reading: &mut Reading, applied: u64, is_changed: bool) -> Group {
    built_of(reading, applied, is_changed, false)
}

/// As [`built`], of a state that is that of an image or not.
fn built_of(reading: &mut Reading, applied: u64, is_changed: bool, is_image: bool) -> Group {
    let built = Building {
        me: (NodeId(1), crate::ids::DiskId(1)),
        settings: &Settings::default(),
        id: GROUP,
        initial: members(1),
        members: is_changed.then(|| members(2)),
        is_image,
        now: 0,
    };
    let found = reading.groups.remove(&GROUP).unwrap();
    let ballot = found.log.ballot_at(Slot(applied)).unwrap_or(Ballot(1));
    let all_damaged = reading.all_damaged;
    built.recovered(found, (Slot(applied), ballot), all_damaged, false)
}

#[test]
fn members_are_those_of_the_state_where_the_log_that_changed_them_is_damaged() {
    let mut reading = read();
    base(&mut reading, 0, 0);
    // Slot 1 changed the members, and has rotted.
    entry(&mut reading, 2);
    let group = built(&mut reading, 2, true);
    assert_eq!(*group.consensus.members(), members(2));
    assert!(group.consensus.is_damaged());
}

#[test]
fn a_log_that_ends_before_an_image_is_whole() {
    for is_image in [true, false] {
        let mut reading = read();
        base(&mut reading, 0, 0);
        entry(&mut reading, 1);
        let group = built_of(&mut reading, 5, false, is_image);
        assert_eq!(group.consensus.is_damaged(), !is_image);
        assert_eq!((group.applied, group.log.last()), (Slot(5), Slot(5)));
        // What was lost behind it is lost nevertheless.
        let mut reading = read();
        base(&mut reading, 0, 0);
        entry(&mut reading, 2);
        let group = built_of(&mut reading, 5, false, is_image);
        assert!(group.consensus.is_damaged());
    }
}

#[test]
fn members_are_those_at_first_where_the_beginning_of_the_log_is_damaged() {
    let mut reading = read();
    entry(&mut reading, 1);
    let group = built(&mut reading, 0, false);
    assert_eq!(*group.consensus.members(), members(1));
    assert_eq!(group.log.last(), Slot(1));
}

#[test]
fn what_was_lost_is_known_until_a_segment_says_that_it_is_there_again() {
    let lost = Damage::Through(Slot(9));
    for (said, damage) in [(11, Some(lost)), (1, Some(Damage::Unknown)), (0, None)] {
        let mut reading = read();
        let mut payload = vec![1, 0];
        Members::default().encode(&mut payload);
        let whole = payload.clone();
        payload.push(said);
        reading.base(&header(Kind::Base, 8, 1), &payload);
        entry(&mut reading, 9);
        assert_eq!(built(&mut reading, 8, false).consensus.damage(), damage);
        // As it was written before.
        reading.base(&header(Kind::Base, 8, 1), &whole);
        assert_eq!(built(&mut reading, 8, false).consensus.damage(), None);
    }
}

#[test]
fn what_a_group_without_records_lost_is_not_known() {
    let formation = Formation {
        cluster: 1,
        groups: 1,
        members: members(1),
    };
    let me = Hello {
        node: NodeId(1),
        disk: DiskId(1),
        life: 1,
        cluster: 1,
        address: String::new(),
    };
    // Who tells of the formation may not have come as far as the state. One that is being replaced
    // by an image says nothing.
    for (is_incomplete, node) in [(false, 2), (true, 1)] {
        let used = Some(Former {
            position: (Slot(8), Ballot(1)),
            is_incomplete,
            members: Some(members(2)),
        });
        let group = joined(&me, &Settings::default(), GROUP, &formation, 0, used);
        assert_eq!(group.consensus.damage(), Some(Damage::Unknown));
        assert_eq!(*group.consensus.members(), members(node));
    }
}

fn end(reading: &mut Reading, slot: u64, ballot: u64) {
    let of = reading.group(GROUP);
    of.end_at((Slot(slot), Ballot(ballot)), members(3));
}

fn replacing(reading: &mut Reading, slot: u64) {
    let place = crate::place::Place {
        segment: 1,
        offset: 0,
    };
    reading.entry(&header(Kind::Entry, slot, 2), place, &[0]);
}

#[test]
fn entries_that_replace_some_of_a_segment_before_replace_those_behind_them() {
    // The segment that is read first begins behind slot 8, or what was replaced is read.
    for first in [8, 3] {
        let mut reading = read();
        base(&mut reading, first, 1);
        (first + 1..=9).for_each(|slot| entry(&mut reading, slot));
        end(&mut reading, 6, 1);
        assert_eq!(reading.group(GROUP).log.last(), Slot(6));
        for slot in 7..=9 {
            replacing(&mut reading, slot);
            assert_eq!(reading.group(GROUP).log.last(), Slot(slot));
        }
        let group = reading.group(GROUP);
        assert_eq!(group.log.base(), (Slot(first.min(6)), Ballot(1)));
        assert_eq!(group.log.ballot_at(Slot(7)), Some(Ballot(2)));
        assert!(group.metas.contains_key(&Slot(7)) && group.damaged_from.is_none());
        // The state lacks some of what was replaced.
        let group = built(&mut reading, 7, false);
        assert!(!group.consensus.is_damaged());
        assert_eq!(group.log.last(), Slot(9));
        let as_of = if first == 8 {
            members(3)
        } else {
            Arc::default()
        };
        let known = if as_of.is_empty() { members(1) } else { as_of };
        assert_eq!(*group.consensus.members(), known);
    }
}

/// A record of an entry whose payload has rotted.
fn rotten(reading: &mut Reading, slot: u64) {
    lose(reading, Loss::Record(header(Kind::Entry, slot, 1)));
}

#[test]
fn what_was_restored_behind_the_end_of_a_log_is_whole() {
    // The log is as long as it was again; a part of it is missing; its next segment says that it
    // is whole.
    for (restored, is_damaged) in [(7, false), (6, true), (9, false)] {
        for has_head in [false, true] {
            let mut reading = read();
            base(&mut reading, 0, 0);
            (1..=4).for_each(|slot| entry(&mut reading, slot));
            rotten(&mut reading, 5);
            (6..=7).for_each(|slot| entry(&mut reading, slot));
            end(&mut reading, 4, 1);
            (5..=restored).for_each(|slot| entry(&mut reading, slot));
            if has_head {
                base(&mut reading, restored, 1);
            }
            let group = built(&mut reading, 4, false);
            assert_eq!(group.consensus.is_damaged(), is_damaged, "{restored}");
            assert_eq!(group.log.last(), Slot(restored));
        }
    }
}

#[test]
fn what_was_restored_in_a_log_without_an_end_is_whole_from_the_next_segment_on() {
    let mut reading = read();
    base(&mut reading, 0, 0);
    rotten(&mut reading, 1);
    entry(&mut reading, 2);
    (1..=4).for_each(|slot| entry(&mut reading, slot));
    base(&mut reading, 4, 1);
    let group = built(&mut reading, 0, false);
    assert!(!group.consensus.is_damaged());
    assert_eq!(group.log.last(), Slot(4));
}

#[test]
fn a_rotten_entry_that_the_state_has_is_no_damage() {
    let mut reading = read();
    reading.applied.insert(GROUP, (Slot(3), Ballot(1)));
    base(&mut reading, 0, 0);
    entry(&mut reading, 1);
    rotten(&mut reading, 2);
    (3..=5).for_each(|slot| entry(&mut reading, slot));
    let group = built(&mut reading, 3, true);
    assert!(!group.consensus.is_damaged());
    assert_eq!((group.log.base().0, group.log.last()), (Slot(2), Slot(5)));
    // What changed the members may be what is gone.
    assert_eq!(*group.consensus.members(), members(2));
}

#[test]
fn an_image_voids_a_log_that_has_another_entry_there() {
    for is_image in [true, false] {
        let mut reading = read();
        base(&mut reading, 0, 0);
        (1..=7).for_each(|slot| entry(&mut reading, slot));
        let built = Building {
            me: (NodeId(1), crate::ids::DiskId(1)),
            settings: &Settings::default(),
            id: GROUP,
            initial: members(1),
            members: Some(members(2)),
            is_image,
            now: 0,
        };
        let found = reading.groups.remove(&GROUP).unwrap();
        let group = built.recovered(found, (Slot(6), Ballot(2)), false, false);
        assert_eq!(group.consensus.is_damaged(), !is_image);
        assert_eq!(group.log.base(), (Slot(6), Ballot(2)));
        assert_eq!(group.log.last(), Slot(6));
        assert_eq!(*group.consensus.members(), members(2));
    }
}

#[test]
fn members_that_entries_behind_the_state_brought_do_not_count_where_those_are_gone() {
    let mut reading = read();
    base(&mut reading, 0, 0);
    entry(&mut reading, 1);
    end(&mut reading, 9, 2);
    let group = built(&mut reading, 1, false);
    assert!(group.consensus.is_damaged());
    assert_eq!(*group.consensus.members(), members(1));
}

#[test]
fn entries_before_the_log_are_damage_where_nothing_says_that_it_ended() {
    let mut reading = read();
    base(&mut reading, 8, 1);
    replacing(&mut reading, 7);
    let group = built(&mut reading, 8, false);
    assert_eq!(group.consensus.damage(), Some(Damage::Through(Slot(8))));
}

#[test]
fn a_segment_that_begins_before_the_one_that_is_read_first_replaces_its_log() {
    let mut reading = read();
    base(&mut reading, 8, 1);
    entry(&mut reading, 9);
    // The log was replaced from slot 6 on in a segment that is gone.
    base(&mut reading, 6, 2);
    replacing(&mut reading, 7);
    let group = built(&mut reading, 6, false);
    assert!(!group.consensus.is_damaged());
    assert_eq!(group.log.last(), Slot(7));
}

#[test]
fn an_image_replaces_the_entries_that_it_contradicts() {
    let mut reading = read();
    base(&mut reading, 0, 0);
    (1..=10).for_each(|slot| entry(&mut reading, slot));
    base(&mut reading, 6, 1);
    assert_eq!(reading.group(GROUP).log.last(), Slot(10));
    base(&mut reading, 6, 2);
    let group = reading.group(GROUP);
    assert_eq!(group.log.base(), (Slot(6), Ballot(2)));
    assert_eq!(group.log.last(), Slot(6));
    assert!(group.metas.is_empty() && group.damaged_from.is_none());
}

#[test]
fn entries_behind_an_image_that_do_not_follow_on_are_damage() {
    let mut reading = read();
    base(&mut reading, 0, 0);
    (1..=4).for_each(|slot| entry(&mut reading, slot));
    // Slot 5 has rotted.
    (6..=10).for_each(|slot| entry(&mut reading, slot));
    base(&mut reading, 6, 1);
    let group = reading.group(GROUP);
    assert_eq!(group.damaged_from, Some(Slot(7)));
    assert_eq!(group.last_placed, Slot(10));
}

#[test]
fn a_segment_that_was_begun_in_part_is_not_where_reading_begins() {
    let memory = esker_sim::memory::Memory::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let dir = Path::new("/segments");
    Extents::format(fs.clone(), dir, DiskId(1)).unwrap();
    // A segment for each entry.
    let settings = crate::extents::Settings { segment_bytes: 256 };
    let mut all = Extents::open(fs.clone(), dir, settings, None, &mut |_| Ok(())).unwrap();
    let head = |group, slot| crate::extents::Head {
        group,
        slot,
        ballot: Ballot(1),
        payload: Vec::new(),
    };
    for slot in 1..=5 {
        let mut heads = || vec![head(NODE, 0), head(GROUP, slot - 1)];
        all.append(Kind::Entry, GROUP, slot, Ballot(1), &[&[0]], &mut heads)
            .unwrap();
        all.take_batch().unwrap().run().unwrap();
    }
    drop(all);
    let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "seg");
    let last = (memory.paths().into_iter()).rfind(is_segment).unwrap();
    let mut bytes = memory.read(&last).unwrap();
    // The power was cut behind the head of the node.
    bytes.truncate(crate::extents::FIRST_RECORD as usize + crate::extents::HEADER_BYTES);
    memory.write(&last, &bytes);
    let number = *crate::extents::numbers(fs.clone(), dir)
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(
        crate::extents::heads(fs.clone(), dir, number)
            .unwrap()
            .len(),
        1
    );
    // Nothing is state yet.
    let from = first_segment(&fs, dir, &BTreeMap::new(), 1).unwrap();
    assert!(from.is_none_or(|from| from.from == 1), "{from:?}");
}

#[test]
fn reading_does_not_begin_where_the_log_was_longer_than_the_state() {
    let fs: Arc<dyn Fs> = Arc::new(esker_sim::memory::Memory::new());
    let dir = Path::new("/node/segments");
    Extents::format(fs.clone(), dir, DiskId(1)).unwrap();
    let sizes = crate::extents::Settings { segment_bytes: 1 };
    let mut extents = Extents::open(fs.clone(), dir, sizes, None, &mut |_| Ok(())).unwrap();
    // By segment, the last slot before it: what was behind slot 100 was replaced in the second one.
    for slot in [90, 150, 120, 130, 138] {
        let head = crate::extents::Head {
            group: GROUP,
            slot,
            ballot: Ballot(1),
            payload: Vec::new(),
        };
        let mut heads = || vec![head.clone()];
        let (kind, ballot) = (Kind::Entry, Ballot(1));
        let appended = extents.append(kind, GROUP, slot + 1, ballot, &[], &mut heads);
        appended.unwrap();
        let end = extents.take_batch().unwrap().run().unwrap();
        extents.batch_done(end);
    }
    let first = |applied, more| {
        let applied = [(GROUP, (Slot(applied), Ballot(1)))].into();
        let begin = first_segment(&fs, dir, &applied, more).unwrap();
        begin.map(|begin| begin.from)
    };
    assert_eq!(first(138, 0), Some(4));
    assert_eq!(first(138, 1), Some(3));
    assert_eq!(first(138, 9), Some(3));
    assert_eq!(first(150, 9), Some(1));
    assert_eq!(first(100, 9), Some(1));
}

/// A segment that was begun when the disk knew of no cluster was taken to begin within the state.
#[test]
fn reading_does_not_begin_where_nothing_is_said_of_groups() {
    let fs: Arc<dyn Fs> = Arc::new(esker_sim::memory::Memory::new());
    let dir = Path::new("/node/segments");
    Extents::format(fs.clone(), dir, DiskId(1)).unwrap();
    let sizes = crate::extents::Settings { segment_bytes: 1 };
    let mut extents = Extents::open(fs.clone(), dir, sizes, None, &mut |_| Ok(())).unwrap();
    for slot in [Some(90), None, Some(95)] {
        let head = |group, slot| crate::extents::Head {
            group,
            slot,
            ballot: Ballot(1),
            payload: Vec::new(),
        };
        let of_group = slot.map(|slot| head(GROUP, slot));
        let mut heads = || {
            [Some(head(NODE, 0)), of_group.clone()]
                .into_iter()
                .flatten()
                .collect()
        };
        let (kind, ballot) = (Kind::Vote, Ballot(1));
        let appended = extents.append(kind, GROUP, 0, ballot, &[], &mut heads);
        appended.unwrap();
        let end = extents.take_batch().unwrap().run().unwrap();
        extents.batch_done(end);
    }
    let applied = [(GROUP, (Slot(50), Ballot(1)))].into();
    assert_eq!(first_segment(&fs, dir, &applied, 0).unwrap(), None);
}

/// What the group has whose state is being replaced by an image.
fn without_a_state(reading: &mut Reading) -> Group {
    let built = Building {
        me: (NodeId(1), crate::ids::DiskId(1)),
        settings: &Settings::default(),
        id: GROUP,
        initial: members(1),
        members: None,
        is_image: false,
        now: 0,
    };
    let found = reading.groups.remove(&GROUP).unwrap();
    let all_damaged = reading.all_damaged;
    built.recovered(found, Default::default(), all_damaged, true)
}

#[test]
fn without_a_state_a_log_does_not_begin_behind_what_was_lost() {
    let begun = || {
        let mut reading = read();
        base(&mut reading, 2, 1);
        (3..=5).for_each(|slot| entry(&mut reading, slot));
        reading
    };
    // A segment begins, or the log is said to end, behind an entry that was lost.
    let behind: [fn(&mut Reading); 2] =
        [|reading| base(reading, 7, 1), |reading| end(reading, 7, 1)];
    for behind in behind {
        let mut reading = begun();
        rotten(&mut reading, 6);
        entry(&mut reading, 7);
        behind(&mut reading);
        entry(&mut reading, 8);
        let group = without_a_state(&mut reading);
        assert!(group.consensus.is_damaged());
        assert_eq!(group.log.base(), (Slot(2), Ballot(1)));
        assert_eq!((group.applied, group.chosen), (Slot(2), Slot(2)));
    }
    // What was lost says nothing of itself.
    let mut reading = begun();
    reading.all_damaged = true;
    let group = without_a_state(&mut reading);
    assert_eq!(group.consensus.damage(), Some(Damage::Unknown));
    assert_eq!(group.log.base(), (Slot(0), Ballot(0)));
    // Nothing was.
    let mut reading = begun();
    entry(&mut reading, 6);
    base(&mut reading, 6, 1);
    let group = without_a_state(&mut reading);
    assert!(!group.consensus.is_damaged());
    assert_eq!((group.log.base().0, group.log.last()), (Slot(2), Slot(6)));
}

/// What said that a log ended, and the entry behind that, were lost: the entries before and behind
/// were taken for one log.
#[test]
fn entries_before_and_behind_an_unknown_loss_are_no_log() {
    let mut reading = read();
    base(&mut reading, 0, 0);
    (1..=6).for_each(|slot| entry(&mut reading, slot));
    lose(&mut reading, Loss::Unknown { bytes: 300 });
    (6..=7).for_each(|slot| replacing(&mut reading, slot));
    let group = built(&mut reading, 3, false);
    assert_eq!(group.consensus.damage(), Some(Damage::Unknown));
    assert_eq!((group.log.base().0, group.log.last()), (Slot(3), Slot(3)));
}

#[test]
fn without_a_state_nothing_is_known_where_it_is_not_known_what_was_lost() {
    let mut reading = read();
    reading.all_damaged = true;
    base(&mut reading, 7, 1);
    entry(&mut reading, 8);
    rotten(&mut reading, 9);
    entry(&mut reading, 10);
    base(&mut reading, 10, 1);
    let group = without_a_state(&mut reading);
    assert_eq!(group.consensus.damage(), Some(Damage::Unknown));
    assert_eq!(group.log.base(), (Slot(0), Ballot(0)));
    assert_eq!(group.chosen, Slot(0));
}

/// A segment that began amid the entries that mend said that nothing is missing: where those behind
/// were torn, they were forgotten.
#[test]
fn a_segment_says_what_was_lost_until_what_mends_it_is_there() {
    let mut reading = read();
    let mut payload = vec![1, 0];
    Members::default().encode(&mut payload);
    payload.push(12);
    reading.base(&header(Kind::Base, 4, 1), &payload);
    let mut group = built(&mut reading, 4, false);
    let lost = Some(Damage::Through(Slot(10)));
    assert_eq!(group.consensus.damage(), lost);
    let metas = (5..=10).map(|slot| Meta {
        slot: Slot(slot),
        ballot: Ballot(1),
        bytes: 1,
        members: None,
    });
    let message = consensus::Message::Accept {
        ballot: Ballot(1),
        previous: (Slot(4), Ballot(1)),
        entries: metas.collect(),
        chosen: Slot(10),
        last: Slot(10),
        round: 1,
    };
    let mut out = Vec::new();
    group.consensus.receive(1, NodeId(2), message, &mut out);
    assert_eq!(group.consensus.damage(), None);
    let said = |group: &Group| {
        let head = crate::node::heads::head(group, Slot(7));
        decode_head(&head).unwrap().damage
    };
    assert_eq!(said(&group), lost);
    let at = |of: &consensus::Output| out.iter().position(|output| output == of);
    let mended = at(&consensus::Output::Mended).unwrap();
    let appended = out
        .iter()
        .position(|output| matches!(output, consensus::Output::Append(_)));
    assert!(appended.unwrap() < mended);
    group.damage = None;
    assert_eq!(said(&group), None);
}
