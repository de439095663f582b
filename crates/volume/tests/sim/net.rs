//! The links between nodes: one in each direction. A link loses frames, delays them, and delivers
//! them in order, mostly.

use std::collections::BTreeMap;

use esker_volume::ids::NodeId;
use esker_volume::node::input::Input;

use super::traps::Fate;
use super::world::{ANY, Event, World};

/// A link, from the first node to the second.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The second node has heard the first one's hello, and nothing of an end.
    pub(crate) is_known: bool,
    /// Frames arrive.
    pub(crate) is_up: bool,
    /// Rises with each connection: frames of earlier ones are lost.
    pub(crate) epoch: u64,
    pub(crate) blocked_until: u64,
    /// When the last frame arrives.
    pub(crate) last: u64,
}

/// All links.
#[derive(Debug, Default)]
pub(crate) struct Net {
    links: BTreeMap<(NodeId, NodeId), Link>,
}

impl Net {
    pub(crate) fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        self.links.entry((from, to)).or_default()
    }

    /// Breaks the links from and to a node.
    pub(crate) fn crash(&mut self, node: NodeId) {
        for ((from, to), link) in &mut self.links {
            if *from == node || *to == node {
                link.is_up = false;
                link.epoch += 1;
            }
            if *to == node {
                link.is_known = false;
            }
        }
    }
}

impl World {
    pub(crate) fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>) {
        if to.0 == 0 || to.0 as usize > self.nodes.len() || to == from {
            return;
        }
        self.watch_leaders(from, &bytes);
        self.check_said(from, to, &bytes);
        let (now, settings) = (self.now, self.settings);
        let roll = |random: &mut fastrand::Rng, chance| random.u32(..1000) < chance;
        let is_lost = !self.is_healed && roll(&mut self.random, settings.lost);
        let is_late = !self.is_healed && roll(&mut self.random, settings.late);
        let is_twice = !self.is_healed && roll(&mut self.random, settings.twice);
        let delay = self.random.u64(..=settings.delay);
        let link = self.net.link(from, to);
        if !link.is_up || link.blocked_until > now || is_lost {
            return;
        }
        let fate = self.plot_sees(from, to, &bytes);
        let fate = fate.unwrap_or_else(|| self.watch(from, &bytes));
        if matches!(fate, Fate::Lost) {
            return;
        }
        let link = self.net.link(from, to);
        let epoch = link.epoch;
        let mut at = (now + delay).max(link.last);
        if let Fate::Kept(millis) = fate {
            return self.after(millis, Event::Frame(from, to, ANY, bytes));
        }
        match fate {
            Fate::Held(millis) => at += millis,
            _ if is_late => at += self.random.u64(..3000),
            _ => link.last = at,
        }
        if is_twice {
            let again = at + self.random.u64(..3000);
            self.at(again, Event::Frame(from, to, epoch, bytes.clone()));
        }
        self.at(at, Event::Frame(from, to, epoch, bytes));
    }

    /// Links that are down come up.
    pub(crate) fn dial(&mut self) {
        let now = self.now;
        for from in self.ids() {
            for to in self.ids() {
                let is_paused =
                    self.node(from).paused_until > now || self.node(to).paused_until > now;
                let is_blocked = self.net.link(from, to).blocked_until > now;
                if from != to && !is_paused && !is_blocked {
                    self.connect(from, to);
                }
            }
        }
        let next = self.random.u64(20..120);
        self.after(next, Event::Dial);
    }

    /// Brings a link up.
    pub(crate) fn connect(&mut self, from: NodeId, to: NodeId) {
        let now = self.now;
        let hello = self.node(from).core.as_ref().map(|core| core.hello());
        let is_up = self.node(to).core.is_some();
        let Some(hello) = hello.filter(|_| is_up) else {
            return;
        };
        let link = self.net.link(from, to);
        link.blocked_until = 0;
        if link.is_up {
            return;
        }
        (link.is_up, link.is_known) = (true, true);
        link.epoch += 1;
        link.last = now;
        self.say(|| format!("link from node {from} to {to}"));
        self.input(to, Input::Connected(hello));
    }

    /// Breaks a link.
    pub(crate) fn break_link(&mut self, from: NodeId, to: NodeId) {
        let link = self.net.link(from, to);
        if link.is_up {
            link.is_up = false;
            link.epoch += 1;
            let epoch = link.epoch;
            let after = self.random.u64(..200);
            self.after(after, Event::Ended(from, to, epoch));
        }
    }

    /// No frames go from a node, nor to it.
    pub(crate) fn cut_off(&mut self, id: NodeId, millis: u64, breaks: bool) {
        let until = self.now + millis;
        for other in self.ids() {
            for (from, to) in [(id, other), (other, id)] {
                self.net.link(from, to).blocked_until = until;
                if breaks {
                    self.break_link(from, to);
                }
            }
        }
    }
}
