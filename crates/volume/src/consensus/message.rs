//! What the replicas of a group say to each other. The driver adds the commands of an `Accept`'s
//! entries.

use std::sync::Arc;

use esker_coding::{Reader, put_varint};

use crate::ids::{Ballot, Slot};
use crate::members::Members;

/// No group ever reaches these; arithmetic below them does not overflow.
const MOST_BALLOT: Ballot = Ballot(1 << 62);
const MOST_SLOT: Slot = Slot(1 << 62);

/// An entry of the log, without its command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Meta {
    /// Its place in the log.
    pub slot: Slot,
    /// The ballot that it was first proposed in. Slot and ballot together name one command.
    pub ballot: Ballot,
    /// Bytes of its command.
    pub bytes: u32,
    /// The members from this entry on, where its command changes them.
    pub members: Option<Arc<Members>>,
}

/// A message of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// A candidate asks for a promise.
    Prepare {
        /// The ballot that it wants to lead.
        ballot: Ballot,
        /// The ballot and slot of its last entry.
        last: (Ballot, Slot),
        /// It only asks whether it would be promised, before it disturbs anyone.
        trial: bool,
        /// The leader of the ballot before has asked it to lead.
        forced: bool,
    },
    /// The answer.
    Promise {
        /// The ballot that was asked for, or a higher one that the answering replica knows.
        ballot: Ballot,
        /// Of a trial.
        trial: bool,
        /// Whether it promises.
        granted: bool,
    },
    /// The leader's entries, or a sign of life.
    Accept {
        /// The leader's ballot.
        ballot: Ballot,
        /// The entry before the first one.
        previous: (Slot, Ballot),
        /// The entries, one behind the other.
        entries: Vec<Meta>,
        /// What is chosen.
        chosen: Slot,
        /// The last entry of the leader's log, which may be behind these.
        last: Slot,
        /// Rises with each round of signs of life.
        round: u64,
    },
    /// The follower has all entries up to a slot, durably.
    Accepted {
        /// The leader's ballot.
        ballot: Ballot,
        /// Up to where its log is the leader's.
        through: Slot,
        /// The round that it answers.
        round: u64,
        /// It has lost entries that it had accepted, and does not count until it has them again.
        damaged: bool,
    },
    /// The follower's log does not continue with these entries, or it knows a higher ballot.
    Refused {
        /// Its ballot.
        ballot: Ballot,
        /// A slot up to which its log may be the leader's.
        hint: Slot,
        /// The round that it answers.
        round: u64,
        /// As in [`Message::Accepted`]: what it has forgotten may be the promise to another.
        damaged: bool,
    },
    /// The leader asks the receiver to lead in its place.
    Lead {
        /// The leader's ballot.
        ballot: Ballot,
    },
}

impl Message {
    /// True where no ballot or slot is so large that only damage, or a hostile sender, explains it.
    pub(super) fn is_plausible(&self) -> bool {
        let (ballot, slots) = match self {
            Message::Prepare { ballot, last, .. } => (*ballot, [last.1, Slot(0)]),
            Message::Promise { ballot, .. } | Message::Lead { ballot } => (*ballot, [Slot(0); 2]),
            // The entries follow the previous one.
            Message::Accept {
                ballot,
                previous,
                chosen,
                last,
                ..
            } => (*ballot, [previous.0, (*chosen).max(*last)]),
            Message::Accepted {
                ballot, through, ..
            } => (*ballot, [*through, Slot(0)]),
            Message::Refused { ballot, hint, .. } => (*ballot, [*hint, Slot(0)]),
        };
        ballot < MOST_BALLOT && slots.iter().all(|slot| *slot < MOST_SLOT)
    }

    /// The ballot that it is about.
    pub fn ballot(&self) -> Ballot {
        match self {
            Message::Prepare { ballot, .. }
            | Message::Promise { ballot, .. }
            | Message::Accept { ballot, .. }
            | Message::Accepted { ballot, .. }
            | Message::Refused { ballot, .. }
            | Message::Lead { ballot } => *ballot,
        }
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Prepare {
                ballot,
                last,
                trial,
                forced,
            } => {
                out.push(0);
                put_varint(out, ballot.0);
                put_varint(out, last.0.0);
                put_varint(out, last.1.0);
                out.push(u8::from(*trial) | u8::from(*forced) << 1);
            }
            Message::Promise {
                ballot,
                trial,
                granted,
            } => {
                out.push(1);
                put_varint(out, ballot.0);
                out.push(u8::from(*trial) | u8::from(*granted) << 1);
            }
            Message::Accept {
                ballot,
                previous,
                entries,
                chosen,
                last,
                round,
            } => {
                out.push(2);
                put_varint(out, ballot.0);
                put_varint(out, previous.0.0);
                put_varint(out, previous.1.0);
                put_varint(out, chosen.0);
                put_varint(out, last.0);
                put_varint(out, *round);
                put_varint(out, entries.len() as u64);
                for meta in entries {
                    put_varint(out, meta.slot.0);
                    put_varint(out, meta.ballot.0);
                    put_varint(out, u64::from(meta.bytes));
                    out.push(u8::from(meta.members.is_some()));
                    if let Some(members) = &meta.members {
                        members.encode(out);
                    }
                }
            }
            Message::Accepted {
                ballot,
                through,
                round,
                damaged,
            } => {
                out.push(3);
                put_varint(out, ballot.0);
                put_varint(out, through.0);
                put_varint(out, *round);
                out.push(u8::from(*damaged));
            }
            Message::Refused {
                ballot,
                hint,
                round,
                damaged,
            } => {
                out.push(4);
                put_varint(out, ballot.0);
                put_varint(out, hint.0);
                put_varint(out, *round);
                out.push(u8::from(*damaged));
            }
            Message::Lead { ballot } => {
                out.push(5);
                put_varint(out, ballot.0);
            }
        }
    }

    /// Reads what `encode` wrote; `None` where the bytes are no message.
    pub fn decode(from: &mut Reader<'_>) -> Option<Message> {
        Some(match from.u8()? {
            0 => {
                let ballot = Ballot(from.varint()?);
                let last = (Ballot(from.varint()?), Slot(from.varint()?));
                let flags = from.u8()?;
                Message::Prepare {
                    ballot,
                    last,
                    trial: flags & 1 != 0,
                    forced: flags & 2 != 0,
                }
            }
            1 => {
                let (ballot, flags) = (Ballot(from.varint()?), from.u8()?);
                Message::Promise {
                    ballot,
                    trial: flags & 1 != 0,
                    granted: flags & 2 != 0,
                }
            }
            2 => Message::Accept {
                ballot: Ballot(from.varint()?),
                previous: (Slot(from.varint()?), Ballot(from.varint()?)),
                chosen: Slot(from.varint()?),
                last: Slot(from.varint()?),
                round: from.varint()?,
                entries: {
                    let mut entries = Vec::new();
                    for _ in 0..from.varint()? {
                        entries.push(Meta::decode(from)?);
                    }
                    entries
                },
            },
            3 => Message::Accepted {
                ballot: Ballot(from.varint()?),
                through: Slot(from.varint()?),
                round: from.varint()?,
                damaged: from.u8()? == 1,
            },
            4 => Message::Refused {
                ballot: Ballot(from.varint()?),
                hint: Slot(from.varint()?),
                round: from.varint()?,
                damaged: from.u8()? == 1,
            },
            5 => Message::Lead {
                ballot: Ballot(from.varint()?),
            },
            _ => return None,
        })
    }
}

impl Meta {
    fn decode(from: &mut Reader<'_>) -> Option<Meta> {
        Some(Meta {
            slot: Slot(from.varint()?),
            ballot: Ballot(from.varint()?),
            bytes: u32::try_from(from.varint()?).ok()?,
            members: match from.u8()? {
                0 => None,
                _ => Some(Arc::new(Members::decode(from)?)),
            },
        })
    }
}
