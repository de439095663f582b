//! The cluster at rest: faults end, and then replicas agree, requests end, and members are those that
//! the operator wants.

use std::collections::{BTreeMap, BTreeSet};

use esker_sim::memory::PowerCut;
use esker_volume::ids::{GroupId, NodeId, Slot};

use super::world::World;

impl World {
    /// Replicas at the same position have the same state. A state is read where another replica is,
    /// or was, at its position, and, unless `is_last`, once at each position: reading is costly.
    pub(crate) fn compare(&mut self, is_last: bool) {
        let mut found = Vec::new();
        for group in (0..=self.settings.groups).map(GroupId) {
            let maps = self.nodes.iter().filter_map(|node| {
                let (map, _) = node.core.as_ref()?.readers();
                let (slot, life) = (map.applied(group), (node.id, node.epoch, group));
                let is_known = !is_last && self.compared.get(&life) == Some(&slot);
                let is_whole = !map.is_incomplete(group);
                is_whole.then_some((node.id, slot, map, life, is_known))
            });
            let maps: Vec<_> = maps.collect();
            for (id, slot, map, life, is_known) in &maps {
                let is_rotten = self.is_rotten && *id == self.victim();
                let is_there = maps.iter().any(|other| other.0 != *id && other.1 == *slot);
                let has_other = is_there || self.hashes.contains_key(&(group, *slot));
                if *is_known || !has_other {
                    continue;
                }
                self.compared.insert(*life, *slot);
                match map.state_hash(group) {
                    Ok(hash) => found.push((group, *slot, hash, *id)),
                    Err(error) => {
                        let read_error = self.nodes[id.0 as usize - 1].read_error;
                        let may_fail = !self.is_healed && read_error != 0;
                        assert!(is_rotten || may_fail, "node {id}: {error}");
                    }
                }
            }
        }
        self.check_disks();
        for (group, slot, hash, node) in found {
            let (other, by) = *self.hashes.entry((group, slot)).or_insert((hash, node));
            assert_eq!(
                hash, other,
                "nodes {node} and {by} differ in group {group} at slot {slot}"
            );
        }
    }

    pub(crate) fn heal(&mut self) {
        self.is_healed = true;
        self.say(|| "all is healed".to_string());
        let now = self.now;
        for from in self.ids() {
            for to in self.ids() {
                self.net.link(from, to).blocked_until = 0;
            }
            let node = self.node(from);
            node.set_speed(now, 1000);
            node.paused_until = 0;
            node.full_until = 0;
            node.unreadable_until = 0;
            node.ahead_fails = None;
            node.faulty.clear();
            if !node.is_used {
                continue;
            }
            // Half of those whose disk was full see that there is room.
            if self.random.bool() {
                self.reopen(from);
            }
            if self.node(from).has_failed() || self.node(from).hears > 0 {
                self.crash(from, PowerCut::Lost, 0, 1);
            } else if self.node(from).core.is_none() {
                self.start(from);
            }
        }
    }

    /// What keeps the cluster from being at rest.
    fn unrest(&mut self) -> Option<String> {
        if let Some(changing) = &self.changing {
            return Some(format!("{changing:?}"));
        }
        if self.is_rotten {
            return Some("the victim's map is damaged".to_string());
        }
        if let Some(order) = self.open_order() {
            return Some(order);
        }
        for node in self.nodes.iter().filter(|n| self.members.contains(&n.id)) {
            let system = node.core.as_ref().map(|core| core.readers().0.system());
            if let Some(task) = system.and_then(|system| system.todo().first().cloned()) {
                return Some(format!("{task:?} is left"));
            }
        }
        if let Some(name) = self.unfinished() {
            return Some(name);
        }
        if let Some(call) = self.calls.iter().find(|call| call.is_pending()) {
            return Some(format!("{call:?} is not answered"));
        }
        let mut positions: BTreeMap<GroupId, BTreeSet<Slot>> = BTreeMap::new();
        let mut leaders: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for node in self.nodes.iter().filter(|n| self.members.contains(&n.id)) {
            let Some(core) = &node.core else {
                return Some(format!("node {} is down", node.id));
            };
            let status = core.status();
            assert_eq!(status.failed, "", "node {} fails without a fault", node.id);
            let mut others = self.members.iter().filter(|other| **other != node.id);
            if let Some(other) = others.find(|other| !node.peers.contains(other)) {
                return Some(format!("node {} does not link to node {other}", node.id));
            }
            let (map, _) = core.readers();
            if status.groups.len() != usize::from(self.settings.groups) + 1 {
                return Some(format!("node {} does not have all groups", node.id));
            }
            for group in status.groups {
                let id = GroupId(group.group);
                if group.damaged || map.is_incomplete(id) {
                    return Some(format!("node {} is damaged in group {id}", node.id));
                }
                if group.last != map.applied(id) {
                    return Some(format!(
                        "node {} has applied {} of {} in group {id}",
                        node.id,
                        map.applied(id),
                        group.last
                    ));
                }
                positions.entry(id).or_default().insert(map.applied(id));
                leaders.entry(group.group).or_default().insert(group.leader);
            }
        }
        for (group, leaders) in leaders {
            if leaders.len() != 1 || leaders.contains(&0) {
                return Some(format!("group {group} has the leaders {leaders:?}"));
            }
        }
        if positions.len() != usize::from(self.settings.groups) + 1 {
            return Some("not all groups are there".to_string());
        }
        let behind = positions.iter().find(|(_, slots)| slots.len() != 1);
        let behind = behind.map(|(group, slots)| format!("group {group} is at {slots:?}"));
        behind.or_else(|| self.check_members())
    }

    /// Of each group of a node: its log's base and end, and whether it is damaged.
    pub(crate) fn logs(&mut self, id: NodeId) -> String {
        let Some(core) = &self.node(id).core else {
            return String::new();
        };
        let groups = core.status().groups.into_iter();
        let of = groups.map(|group| {
            let damaged = if group.damaged { " damaged" } else { "" };
            format!("{}..{}{damaged}", group.base, group.last)
        });
        of.collect::<Vec<_>>().join(", ")
    }

    /// A disk on which nothing rots has what it had.
    pub(crate) fn check_logs(&self, id: NodeId, logs: &str) {
        let may_be_damaged = id == self.victim();
        assert!(
            may_be_damaged || !logs.contains("damaged"),
            "node {id} has lost a part of its logs {logs}"
        );
    }

    /// Notes how the nodes are.
    fn say_state(&mut self) {
        for id in self.ids() {
            let status = self.node(id).core.as_ref().map(|core| core.status());
            if self.frames {
                eprintln!("node {id}: {status:?} {:?}", self.changing);
            }
            self.say(|| format!("node {id}: {status:?}"));
        }
    }

    /// Waits until the cluster is at rest.
    pub(crate) fn converge(&mut self) {
        let until = self.now + 120_000;
        while let Some(unrest) = self.unrest() {
            if self.now >= until {
                self.say_state();
                panic!("no rest: {unrest}");
            }
            self.run_for(100);
        }
        self.compare(true);
    }
}
