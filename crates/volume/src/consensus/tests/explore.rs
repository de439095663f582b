//! Every order of events within bounds: three nodes, two commands, one change of members, elections
//! at any moment, messages that are delivered in any order or never, a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stateright::{Checker, Model, Property};

use crate::consensus::{Core, Message, Meta, Output, Settings, Start};
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::{Member, Members, Role};

/// What is explored, and its bounds.
#[derive(Clone)]
struct Bounds {
    elections: u8,
    commands: u8,
    changes: u8,
    restarts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cores: Vec<Core>,
    network: BTreeSet<(NodeId, NodeId, Packed)>,
    chosen: BTreeMap<Slot, Ballot>,
    leaders: BTreeMap<Ballot, NodeId>,
    elections: u8,
    commands: u8,
    changes: u8,
    restarts: u8,
    wrong: Option<String>,
}

/// A message, encoded so that it has an order.
type Packed = Vec<u8>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Event {
    Deliver(NodeId, NodeId, Packed),
    Elect(NodeId),
    Propose(NodeId),
    Remove(NodeId, NodeId),
    Restart(NodeId),
}

fn members(nodes: &[u32]) -> Arc<Members> {
    let member = |node: &u32| Member {
        node: NodeId(*node),
        disk: DiskId(u64::from(*node)),
        address: String::new(),
        role: Role::Voter,
    };
    Arc::new(Members::new(nodes.iter().map(member)))
}

/// Time stands still: elections are events.
fn settings() -> Settings {
    let (heartbeat, election, spread) = (1_000_000, 1, 0);
    Settings {
        heartbeat,
        election,
        spread,
        lease: false,
        ..Settings::default()
    }
}

fn start(node: NodeId, ballot: Ballot, vote: Option<NodeId>, log: Vec<Meta>) -> Core {
    let start = Start {
        node,
        disk: DiskId(u64::from(node.0)),
        ballot,
        vote,
        base: (Slot(0), Ballot(0)),
        log,
        chosen: Slot(0),
        members: members(&[1, 2, 3]),
        damage: None,
        now: 0,
        seed: 0,
    };
    Core::new(settings(), start)
}

impl State {
    fn act(&mut self, id: NodeId, act: impl FnOnce(&mut Core, &mut Vec<Output>)) {
        let at = id.0 as usize - 1;
        let mut out = Vec::new();
        act(&mut self.cores[at], &mut out);
        let mut next = out;
        while !next.is_empty() {
            for output in std::mem::take(&mut next) {
                match output {
                    // Signs of life carry nothing that entries do not.
                    Output::Send {
                        message: Message::Accept { entries, .. },
                        ..
                    } if entries.is_empty() => {}
                    Output::Send { to, message, .. } => {
                        let mut packed = Vec::new();
                        message.encode(&mut packed);
                        self.network.insert((id, to, packed));
                    }
                    // The disk is as fast as memory here; the other test has slow ones.
                    Output::Append(metas) => {
                        let last = metas.last().map(|meta| (meta.slot, meta.ballot));
                        if let Some((slot, ballot)) = last {
                            self.cores[at].appended_durably(0, slot, ballot, &mut next);
                        }
                    }
                    Output::Chosen(slot) => self.chosen(at, slot),
                    _ => {}
                }
            }
        }
        let core = &self.cores[at];
        if core.is_leader() && *self.leaders.entry(core.ballot()).or_insert(id) != id {
            self.wrong = Some(format!("two leaders of ballot {}", core.ballot()));
        }
    }

    fn chosen(&mut self, at: usize, through: Slot) {
        let mut slot = Slot(1);
        while slot <= through {
            if let Some(meta) = self.cores[at].meta(slot) {
                let known = *self.chosen.entry(slot).or_insert(meta.ballot);
                if known != meta.ballot {
                    self.wrong = Some(format!("slot {slot}: {known} and {}", meta.ballot));
                }
            }
            slot = slot.next();
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let cores = (1..=3).map(|node| start(NodeId(node), Ballot(0), None, Vec::new()));
        vec![State {
            cores: cores.collect(),
            network: BTreeSet::new(),
            chosen: BTreeMap::new(),
            leaders: BTreeMap::new(),
            elections: 0,
            commands: 0,
            changes: 0,
            restarts: 0,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        let deliver = |(from, to, packed): &(NodeId, NodeId, Packed)| {
            Event::Deliver(*from, *to, packed.clone())
        };
        events.extend(state.network.iter().map(deliver));
        for core in &state.cores {
            let id = NodeId(events_id(core));
            // Without a change of members nodes differ by their numbers only: in the usual tier one
            // of them stands first.
            let are_alike = self.changes == 0;
            let may_be_first = !are_alike || esker_sim::is_nightly() || id == NodeId(1);
            let may_stand = state.elections > 0 || may_be_first;
            if state.elections < self.elections && !core.is_leader() && may_stand {
                events.push(Event::Elect(id));
            }
            if core.is_leader() && state.commands < self.commands {
                events.push(Event::Propose(id));
            }
            if core.is_leader() && state.changes < self.changes {
                events.push(Event::Remove(id, NodeId(3)));
            }
            if state.restarts < self.restarts && core.last().0 > Slot(0) {
                events.push(Event::Restart(id));
            }
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut state = state.clone();
        match event {
            Event::Deliver(from, to, packed) => {
                let message = Message::decode(&mut esker_coding::Reader::new(&packed))?;
                state.network.remove(&(from, to, packed));
                state.act(to, |core, out| core.receive(0, from, message, out));
            }
            Event::Elect(id) => {
                state.elections += 1;
                state.act(id, |core, out| core.stand_now(out));
            }
            Event::Propose(id) => {
                state.commands += 1;
                state.act(id, |core, out| {
                    drop(core.propose(0, 7, None, out));
                    core.send_proposed(0, out);
                });
            }
            Event::Remove(id, node) => {
                let mut new = Members::clone(state.cores[id.0 as usize - 1].members());
                new.remove(node);
                let mut begun = false;
                state.act(id, |core, out| {
                    begun = core.propose(0, 7, Some(Arc::new(new)), out).is_ok();
                    core.send_proposed(0, out);
                });
                if !begun {
                    return None;
                }
                state.changes += 1;
            }
            Event::Restart(id) => {
                state.restarts += 1;
                let core = &mut state.cores[id.0 as usize - 1];
                let log = (1..=core.last().0.0).filter_map(|slot| core.meta(Slot(slot)).cloned());
                *core = start(id, core.ballot(), core.vote(), log.collect());
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("replicas agree", |_, state: &State| state.wrong.is_none()),
            Property::sometimes(
                "commands are chosen after a second election",
                |_, state: &State| state.leaders.len() > 1 && state.chosen.len() > 2,
            ),
            Property::sometimes(
                "the change of members is chosen",
                |model: &Bounds, state: &State| {
                    model.changes == 0
                        || state.cores.iter().any(|core| {
                            core.members().voters().count() == 2 && core.chosen() >= Slot(2)
                        })
                },
            ),
        ]
    }
}

fn events_id(core: &Core) -> u32 {
    core.node_id().0
}

fn explore(bounds: Bounds) {
    let checker = bounds.checker().threads(2).spawn_bfs().join();
    let found = checker.discoveries();
    if let Some(path) = found.get("replicas agree") {
        panic!(
            "{:?}\n{:#?}",
            path.last_state().wrong,
            path.clone().into_actions()
        );
    }
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn in_any_order_replicas_agree() {
    explore(Bounds {
        elections: 2,
        commands: 1,
        changes: 0,
        restarts: 0,
    });
}

#[test]
fn in_any_order_replicas_agree_while_members_change() {
    // The first entries of two leaders are the values.
    explore(Bounds {
        elections: 2,
        commands: 0,
        changes: 1,
        restarts: 0,
    });
}
