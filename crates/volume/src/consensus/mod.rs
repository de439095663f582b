//! stub
#![allow(missing_docs, unused, clippy::all)]
use crate::ids::*;
use crate::members::Members;
use esker_coding::Reader;
use std::sync::Arc;
pub type Time = u64;
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Settings {
    pub heartbeat: Time,
    pub election: Time,
    pub spread: Time,
    pub drift_percent: u8,
    pub window_bytes: usize,
    pub message_bytes: usize,
    pub lease: bool,
}
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Meta {
    pub slot: Slot,
    pub ballot: Ballot,
    pub bytes: u32,
    pub members: Option<Arc<Members>>,
}
pub struct Start {
    pub node: NodeId,
    pub ballot: Ballot,
    pub vote: Option<NodeId>,
    pub base: (Slot, Ballot),
    pub log: Vec<Meta>,
    pub chosen: Slot,
    pub members: Arc<Members>,
    pub damaged_through: Option<Slot>,
    pub now: Time,
    pub seed: u64,
}
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    Prepare {
        ballot: Ballot,
        last: (Ballot, Slot),
        trial: bool,
        forced: bool,
    },
    Promise {
        ballot: Ballot,
        trial: bool,
        granted: bool,
    },
    Accept {
        ballot: Ballot,
        previous: (Slot, Ballot),
        entries: Vec<Meta>,
        chosen: Slot,
        round: u64,
    },
    Accepted {
        ballot: Ballot,
        through: Slot,
        round: u64,
        damaged: bool,
    },
    Refused {
        ballot: Ballot,
        hint: Slot,
        round: u64,
    },
    Lead {
        ballot: Ballot,
    },
}
impl Message {
    pub fn encode(&self, out: &mut Vec<u8>) {
        unimplemented!()
    }
    pub fn decode(from: &mut Reader<'_>) -> Option<Message> {
        unimplemented!()
    }
}
pub enum Output {
    Send {
        to: NodeId,
        message: Message,
        after_sync: bool,
    },
    Vote {
        ballot: Ballot,
        vote: Option<NodeId>,
    },
    Append(Vec<Meta>),
    Chosen(Slot),
    Read {
        ticket: u64,
        result: Result<Slot, Option<NodeId>>,
    },
    Leadership,
    NeedsImage(NodeId),
}
#[derive(Debug)]
pub enum ProposeError {
    NotLeader { leader: Option<NodeId> },
    Busy,
}
pub struct Core;
impl Core {
    pub fn new(settings: Settings, start: Start) -> Core {
        unimplemented!()
    }
    pub fn tick(&mut self, now: Time, out: &mut Vec<Output>) {}
    pub fn receive(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Output>) {}
    pub fn propose(
        &mut self,
        now: Time,
        bytes: u32,
        members: Option<Arc<Members>>,
        out: &mut Vec<Output>,
    ) -> Result<Slot, ProposeError> {
        unimplemented!()
    }
    pub fn appended_durably(
        &mut self,
        now: Time,
        through: Slot,
        ballot: Ballot,
        out: &mut Vec<Output>,
    ) {
    }
    pub fn read(&mut self, now: Time, ticket: u64, out: &mut Vec<Output>) {}
    pub fn cut(&mut self, base: Slot) {}
    pub fn image_installed(
        &mut self,
        now: Time,
        base: (Slot, Ballot),
        members: Arc<Members>,
        out: &mut Vec<Output>,
    ) {
    }
    pub fn image_sent(&mut self, node: NodeId, through: Slot) {}
    pub fn unreachable(&mut self, node: NodeId) {}
    pub fn reachable(&mut self, node: NodeId) {}
    pub fn transfer(&mut self, now: Time, to: NodeId, out: &mut Vec<Output>) {}
    pub fn step_back(&mut self, out: &mut Vec<Output>) {}
    pub fn leader(&self) -> Option<NodeId> {
        None
    }
    pub fn is_leader(&self) -> bool {
        false
    }
    pub fn ballot(&self) -> Ballot {
        unimplemented!()
    }
    pub fn vote(&self) -> Option<NodeId> {
        unimplemented!()
    }
    pub fn last(&self) -> (Slot, Ballot) {
        unimplemented!()
    }
    pub fn members(&self) -> &Arc<Members> {
        unimplemented!()
    }
    pub fn matched(&self, node: NodeId) -> Option<Slot> {
        None
    }
    pub fn is_damaged(&self) -> bool {
        false
    }
}
