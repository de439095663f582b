//! Opening a node's folder: what its records and its map say of the groups.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_coding::Reader as Bytes;
use esker_fs::Fs;

use super::core::{Core, Opened};
use super::group::Group;
use super::heads::{NODE, decode_head};
use super::home::{Home, ReadBack};
use super::leader::Leader;
use super::log::{Entry, Log};
use super::settings::Settings;
use crate::command::Command;
use crate::consensus::{self, Damage, Meta, Start, Time};
use crate::error::Result;
use crate::extents::{Extents, Found, Kind, Loss, RecordHeader};
use crate::ids::{Ballot, DiskId, GroupId, NodeId, Slot};
use crate::map::Map;
use crate::members::Members;
use crate::wire::{Formation, Hello};

/// What the records say of a group.
struct Recovered {
    ballot: Ballot,
    vote: Option<NodeId>,
    members: Arc<Members>,
    log: Log,
    metas: BTreeMap<Slot, Meta>,
    /// The last slot that was placed, whether or not it is still readable.
    last_placed: Slot,
    damaged_from: Option<Slot>,
    /// Entries were lost, and the log begins behind them: where it began before. What it begins
    /// with now was accepted, and may not have been chosen.
    cut_off: Option<(Slot, Ballot)>,
    /// The log ended before entries that were lost: what was accepted up to this slot is there
    /// again once the log is that long.
    lost_through: Option<Slot>,
    /// What changed the members may have been lost; the state has it.
    lacks_members: bool,
    /// What had been lost before the last segment was begun.
    damage: Option<Damage>,
}

impl Recovered {
    fn new(base: (Slot, Ballot), members: Arc<Members>) -> Recovered {
        Recovered {
            ballot: Ballot(0),
            vote: None,
            members,
            log: Log::new(base),
            metas: BTreeMap::new(),
            last_placed: base.0,
            damaged_from: None,
            cut_off: None,
            lost_through: None,
            lacks_members: false,
            damage: None,
        }
    }

    fn vote(&mut self, ballot: Ballot, vote: Option<NodeId>) {
        if ballot > self.ballot {
            (self.ballot, self.vote) = (ballot, vote);
        } else if ballot == self.ballot && vote.is_some() {
            self.vote = vote;
        }
    }

    /// The log ends at this entry; what was behind it is void, and replaced by what follows.
    fn end_at(&mut self, (slot, ballot): (Slot, Ballot), members: Arc<Members>) {
        if self.damaged_from.take_if(|from| *from > slot).is_some() {
            self.lost_through = self.lost_through.max(Some(self.last_placed));
        }
        if self.log.ballot_at(slot) == Some(ballot) {
            self.log.end_at(slot);
            drop(self.metas.split_off(&slot.next()));
        } else {
            // Reading began behind it, or what was before it is lost.
            if self.damaged_from.is_some() {
                self.cut_off.get_or_insert(self.log.base());
            }
            self.begin_behind((slot, ballot));
            self.members = members;
            self.lacks_members = false;
        }
    }

    fn begin_behind(&mut self, base: (Slot, Ballot)) {
        self.log = Log::new(base);
        self.metas.clear();
    }
}

/// What was read back.
struct Reading {
    applied: BTreeMap<GroupId, (Slot, Ballot)>,
    groups: BTreeMap<GroupId, Recovered>,
    formation: Option<Formation>,
    life: u64,
    /// What was lost of the groups is not known.
    all_damaged: bool,
    /// The last segment with such a loss.
    unknown_in: Option<u32>,
}

/// Opens the node's folder, and formats it where there is none.
pub fn open(
    fs: Arc<dyn Fs>,
    dir: &Path,
    node: NodeId,
    settings: Settings,
    now: Time,
) -> Result<Core> {
    let home = Home {
        fs: fs.clone(),
        dir: dir.to_path_buf(),
    };
    let segments = home.segments();
    fs.create_dir(dir)
        .map_err(|error| crate::error::Error::io(dir, "create", error))?;
    let disk = match Extents::is_formatted(fs.clone(), &segments)? {
        Some(disk) => disk,
        None => {
            let disk = DiskId(fs.unique());
            Extents::format(fs.clone(), &segments, disk)?;
            disk
        }
    };
    let map = Arc::new(Map::open_with(
        fs,
        &dir.join("map"),
        settings.map_bytes,
        settings.background,
    )?);
    let back = read_back(&home, &map, (node, disk), &settings, now)?;
    let me = Hello {
        node,
        disk,
        life: (back.life + 1).max(settings.first_life),
        cluster: back
            .formation
            .as_ref()
            .map_or(0, |formation| formation.cluster),
        address: settings.peers.get(&node).cloned().unwrap_or_default(),
    };
    let mut core = Core::new(Opened {
        home,
        me,
        settings,
        now,
        map,
        back,
    });
    core.begin_life();
    Ok(core)
}

/// Reads the segments back, and makes the groups of what they and the map say.
pub(super) fn read_back(
    home: &Home,
    map: &Map,
    me: (NodeId, DiskId),
    settings: &Settings,
    now: Time,
) -> Result<ReadBack> {
    let segments = home.segments();
    let applied: BTreeMap<GroupId, (Slot, Ballot)> = map.positions();
    let begin = first_segment(&home.fs, &segments, &applied, settings.log_segments)?;
    let sizes = crate::extents::Settings {
        segment_bytes: settings.segment_bytes,
    };
    let read_from = |from| {
        let mut reading = Reading::new(applied.clone());
        let visit = &mut |found: Found<'_>| reading.found(found);
        let extents = Extents::open(home.fs.clone(), &segments, sizes, from, visit)?;
        Ok::<_, crate::error::Error>((extents, reading))
    };
    let (mut extents, mut reading) = read_from(begin.map(|begin| begin.from))?;
    if let Some(begin) = begin
        && reading.all_damaged
        && reading.unknown_in < Some(begin.first)
    {
        // What was lost lies before what the state lacks, and that says where all groups stand.
        (extents, reading) = read_from(Some(begin.first))?;
    }
    let formation = reading.formation.take();
    let mut groups = BTreeMap::new();
    if let Some(formation) = &formation {
        let settings = &Settings {
            groups: formation.groups,
            ..settings.clone()
        };
        for id in ids(formation.groups) {
            let recovered = reading.groups.remove(&id);
            let position = reading.applied.get(&id).copied().unwrap_or_default();
            let all_damaged = reading.all_damaged;
            let incomplete = map.is_incomplete(id);
            let built = Building {
                me,
                settings,
                id,
                initial: formation.members.clone(),
                members: map.members(id),
                is_image: map.is_image(id),
                now,
            };
            let group = match recovered {
                Some(recovered) => built.recovered(recovered, position, all_damaged, incomplete),
                // Where nothing is damaged, nothing was written of it.
                None if !all_damaged && position.0 == Slot(0) => {
                    let found = Recovered::new(position, built.initial.clone());
                    built.recovered(found, position, false, incomplete)
                }
                None => built.lost(position, incomplete),
            };
            groups.insert(id, group);
        }
    }
    Ok(ReadBack {
        extents,
        formation,
        groups,
        life: reading.life,
        was_used: !reading.groups.is_empty() || reading.all_damaged,
    })
}

/// The groups of a cluster, the system group first.
pub(super) fn ids(groups: u16) -> impl Iterator<Item = GroupId> {
    (0..=groups).map(GroupId)
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begin {
    /// The segment to read from.
    from: u32,
    /// Behind the beginning of this one lies everything that the map lacks.
    first: u32,
}

/// The segment to read from: one behind whose beginning lies everything that the map lacks, and
/// some before it.
fn first_segment(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    applied: &BTreeMap<GroupId, (Slot, Ballot)>,
    more: u32,
) -> Result<Option<Begin>> {
    let numbers = crate::extents::numbers(fs.clone(), dir)?;
    // Where its beginning is damaged, an earlier one is taken.
    let begins_within_state = |number: u32| {
        let heads = crate::extents::heads(fs.clone(), dir, number).unwrap_or_default();
        let reaches = |head: &RecordHeader| {
            let have = applied.get(&head.group).map_or(Slot(0), |(slot, _)| *slot);
            head.group == NODE || Slot(head.slot) <= have
        };
        // A segment that was begun without a cluster says nothing of groups.
        heads.iter().any(|head| head.group != NODE) && heads.iter().all(reaches)
    };
    // The last one may not be durable, and have its beginning in part: it is void then, and what it
    // should have said lies in those before.
    let mut earlier = numbers.iter().rev().skip(1).copied();
    let Some(first) = earlier.find(|number| begins_within_state(*number)) else {
        return Ok(None);
    };
    // Segments before it, while none is missing, and none begins behind the state: the log may have
    // been longer then, and its end was replaced.
    let mut from = first;
    for number in earlier.take(more as usize) {
        if number + 1 != from || !begins_within_state(number) {
            break;
        }
        from = number;
    }
    Ok(Some(Begin { from, first }))
}

impl Reading {
    fn new(applied: BTreeMap<GroupId, (Slot, Ballot)>) -> Reading {
        Reading {
            applied,
            groups: BTreeMap::new(),
            formation: None,
            life: 0,
            all_damaged: false,
            unknown_in: None,
        }
    }

    fn found(&mut self, found: Found<'_>) -> Result<()> {
        match found {
            Found::Record {
                header,
                place,
                payload,
            } => match header.kind {
                Kind::Base if header.group == NODE => self.node(payload),
                Kind::Base => self.base(header, payload),
                Kind::Vote => {
                    let vote = payload.try_into().map_or(0, u32::from_le_bytes);
                    let vote = (vote != 0).then_some(NodeId(vote));
                    self.group(header.group).vote(header.ballot, vote);
                }
                Kind::Members => {
                    let formation = Formation::decode(&mut Bytes::new(payload));
                    if self.formation.is_none() {
                        self.formation = formation;
                    }
                }
                Kind::Entry => self.entry(header, place, payload),
                Kind::End => {
                    if let Some(members) = Members::decode(&mut Bytes::new(payload)) {
                        let at = (Slot(header.slot), header.ballot);
                        self.group(header.group).end_at(at, Arc::new(members));
                    }
                }
                Kind::Moved | Kind::Sync => {}
            },
            Found::Loss {
                groups, segment, ..
            } => {
                if self.loss(&groups) {
                    self.all_damaged = true;
                    self.unknown_in = Some(segment);
                }
            }
        }
        Ok(())
    }

    fn group(&mut self, id: GroupId) -> &mut Recovered {
        let members = self
            .formation
            .as_ref()
            .map(|formation| formation.members.clone());
        self.groups
            .entry(id)
            .or_insert_with(|| Recovered::new((Slot(0), Ballot(0)), members.unwrap_or_default()))
    }

    fn node(&mut self, payload: &[u8]) {
        let from = &mut Bytes::new(payload);
        self.life = self.life.max(from.varint().unwrap_or(0));
        if let Some(formation) = Formation::decode(from) {
            self.formation = Some(formation);
        }
    }

    fn base(&mut self, header: &RecordHeader, payload: &[u8]) {
        let Some(head) = decode_head(payload) else {
            return;
        };
        let (id, slot) = (header.group, Slot(header.slot));
        let known = self.groups.contains_key(&id);
        let group = self.group(id);
        let is_other = group.log.ballot_at(slot) != Some(header.ballot);
        let was_lost = group.damaged_from.is_some_and(|from| from <= slot);
        if was_lost && !is_other && head.damage.is_none() {
            // The log was whole up to here: what had been lost was restored.
            group.damaged_from = None;
        }
        if !known || is_other {
            // An image was installed, also in place of entries that were never chosen, or this is
            // where reading begins.
            let old = std::mem::replace(group, Recovered::new((slot, header.ballot), head.members));
            (group.ballot, group.vote) = (old.ballot, old.vote);
            if was_lost {
                // Not even an image: then the state says so, unless another one replaces it.
                group.cut_off = old.cut_off.or(Some(old.log.base()));
            }
            if old.damaged_from.is_some() && old.last_placed > slot {
                // Entries behind an image stay accepted, and were lost with those before.
                group.damaged_from = Some(slot.next());
                group.last_placed = old.last_placed;
            }
        }
        group.last_placed = group.last_placed.max(slot);
        group.vote(head.ballot, head.vote);
        group.damage = head.damage;
    }

    fn entry(&mut self, header: &RecordHeader, record: crate::place::Place, payload: &[u8]) {
        let slot = Slot(header.slot);
        let group = self.group(header.group);
        group.last_placed = group.last_placed.max(slot);
        group.vote(header.ballot, None);
        let members = match Command::decode(payload) {
            Some((Command::Members(members), _)) => Some(members),
            _ => None,
        };
        let place = crate::place::Place {
            segment: record.segment,
            offset: record.offset + crate::extents::HEADER_BYTES as u32,
        };
        let entry = Entry {
            ballot: header.ballot,
            record,
            payload: place,
            end: 0,
            body: None,
        };
        if group.log.put(slot, entry) {
            let (ballot, bytes) = (header.ballot, header.bytes);
            drop(group.metas.split_off(&slot));
            group.metas.insert(
                slot,
                Meta {
                    slot,
                    ballot,
                    bytes,
                    members,
                },
            );
        } else {
            // The slots before it were lost, or what says that the log had ended before it.
            let from = group.log.last().next().min(slot);
            let known = group.damaged_from.get_or_insert(from);
            *known = from.min(*known);
        }
    }

    /// True where it is not known what was lost of the groups.
    fn loss(&mut self, loss: &Loss) -> bool {
        match loss {
            Loss::Record(header) if header.kind == Kind::Entry => {
                let (id, slot) = (header.group, Slot(header.slot));
                let have = self.applied.get(&id).map_or(Slot(0), |(slot, _)| *slot);
                let group = self.group(id);
                group.last_placed = group.last_placed.max(slot);
                if slot > have {
                    let from = group.damaged_from.get_or_insert(slot);
                    *from = slot.min(*from);
                } else if slot > group.log.last() {
                    // The state has it: the log goes on behind it.
                    group.begin_behind((slot, header.ballot));
                    group.lacks_members = true;
                }
            }
            // A copy: its block is healed when it is read. A segment without records: nothing.
            Loss::Record(header) if matches!(header.kind, Kind::Moved | Kind::Sync) => {}
            Loss::Header => {}
            Loss::Record(_) | Loss::Unknown { .. } => return true,
        }
        false
    }
}

/// What a group is made of.
struct Building<'b> {
    me: (NodeId, DiskId),
    settings: &'b Settings,
    id: GroupId,
    /// The members at first.
    initial: Arc<Members>,
    /// Those of the state, where it has changed them.
    members: Option<Arc<Members>>,
    /// The state is that of an image: what says so in the log may not have been written.
    is_image: bool,
    now: Time,
}

impl Building<'_> {
    fn recovered(
        &self,
        mut found: Recovered,
        (applied, applied_ballot): (Slot, Ballot),
        all_damaged: bool,
        is_incomplete: bool,
    ) -> Group {
        let mut damage = found.damage;
        if let Some(from) = found.damaged_from {
            // What is behind the damage is not known to follow from what is before.
            damage = damage.max(Some(Damage::Through(found.last_placed)));
            let keep = from.previous();
            found.metas.retain(|slot, _| *slot <= keep);
            found.log.end_at(keep);
        }
        let unknown = all_damaged.then_some((applied, applied_ballot));
        let cut_off = unknown.or(found.cut_off);
        let (applied, applied_ballot) = match cut_off {
            _ if !is_incomplete => (applied, applied_ballot),
            // Without a state, the log is whole nevertheless: an image will join it.
            None => found.log.base(),
            Some(base) => {
                damage = damage.max(Some(Damage::Through(found.last_placed)));
                found.begin_behind(base);
                found.lacks_members = true;
                base
            }
        };
        if let Some(lost) = found.lost_through.filter(|lost| *lost > found.log.last()) {
            damage = damage.max(Some(Damage::Through(lost)));
        }
        // The log ends before the state, or has another entry where that ends.
        let is_elsewhere = found.log.last() < applied
            || (found.log.ballot_at(applied)).is_some_and(|ballot| ballot != applied_ballot);
        // An image joins no log, and everything up to it was chosen: what another log has behind
        // it was not.
        let is_joined = is_elsewhere && self.is_image;
        if all_damaged || is_elsewhere && !is_joined {
            // The log may have ended anywhere.
            damage = Some(Damage::Unknown);
        }
        if all_damaged || found.log.base().0 > applied || is_elsewhere {
            // The log begins behind the state, or ends before it: what joins them was damaged.
            // Where it is not known what was lost, entries that follow each other may be of two
            // logs.
            if !is_joined {
                damage = damage.max(Some(Damage::Through(found.last_placed)));
            }
            found.begin_behind((applied, applied_ballot));
            // Those that were found may have been changed by what is gone.
            found.lacks_members = true;
        }
        if found.lacks_members {
            found.members = self.members.as_ref().unwrap_or(&self.initial).clone();
        }
        if found.members.is_empty() {
            // The records of how the cluster was formed, and of the log's beginning, were damaged.
            found.members = self.initial.clone();
        }
        if found.last_placed > found.log.last() {
            found.log.note_void_entries();
        }
        let base = found.log.base();
        let start = Start {
            node: self.me.0,
            disk: self.me.1,
            ballot: found.ballot,
            vote: found.vote,
            base,
            log: found
                .metas
                .into_values()
                .filter(|meta| meta.slot > base.0)
                .collect(),
            chosen: applied,
            members: found.members,
            damage,
            now: self.now,
            seed: self.settings.seed ^ u64::from(self.id.0) << 32,
        };
        self.group(start, found.log, applied, is_incomplete)
    }

    /// A group of which no record was found: its records were damaged.
    fn lost(&self, (applied, ballot): (Slot, Ballot), is_incomplete: bool) -> Group {
        let start = Start {
            node: self.me.0,
            disk: self.me.1,
            ballot,
            vote: None,
            base: (applied, ballot),
            log: Vec::new(),
            chosen: applied,
            members: self.members.clone().unwrap_or_else(|| self.initial.clone()),
            damage: Some(Damage::Unknown),
            now: self.now,
            seed: self.settings.seed ^ u64::from(self.id.0) << 32,
        };
        let mut log = Log::new((applied, ballot));
        log.note_void_entries();
        self.group(start, log, applied, is_incomplete)
    }

    fn group(&self, start: Start, log: Log, applied: Slot, is_incomplete: bool) -> Group {
        let durable = log.last();
        let damage = start.damage;
        // All leaders together send a follower no more than it may have in memory.
        let shares = self.settings.shares();
        let window = shares.writing / self.settings.group_count(None);
        let mut settings = self.settings.consensus.clone();
        settings.window_bytes = settings.window_bytes.min(window);
        let consensus = consensus::Core::new(settings, start);
        Group {
            id: self.id,
            consensus,
            log,
            applied,
            chosen: applied,
            durable,
            leader: Leader::default(),
            leads: false,
            ready_at: Slot(0),
            reads: std::collections::VecDeque::new(),
            is_incomplete,
            damage,
            was_current: None,
            told: None,
        }
    }
}

/// The state of a group on a disk that was used before.
pub(super) struct Former {
    pub(super) position: (Slot, Ballot),
    pub(super) is_incomplete: bool,
    /// The members as of its position, where it has changed them.
    pub(super) members: Option<Arc<Members>>,
}

/// A group of a cluster that was just formed, or that a disk hears of again which was used before:
/// then it has a state.
pub(super) fn joined(
    me: &Hello,
    settings: &Settings,
    id: GroupId,
    formation: &Formation,
    now: Time,
    used: Option<Former>,
) -> Group {
    let found = Recovered::new((Slot(0), Ballot(0)), formation.members.clone());
    let settings = &Settings {
        groups: formation.groups,
        ..settings.clone()
    };
    let mut built = Building {
        me: (me.node, me.disk),
        settings,
        id,
        initial: formation.members.clone(),
        members: None,
        is_image: false,
        now,
    };
    let Some(former) = used else {
        return built.recovered(found, Default::default(), false, false);
    };
    // The formation may be older than the state, and is of the system group.
    built.members = former.members.filter(|_| !former.is_incomplete);
    built.lost(former.position, former.is_incomplete)
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
