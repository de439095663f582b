//! The trees of the map, and what is read from them at the start.
//!
//! | tree | key | value |
//! | --- | --- | --- |
//! | `map` | group, layer, block | extent (`entries.rs`) |
//! | `applied` | group, 0 | is it incomplete, slot, ballot |
//! | `applied` | group, 1 | members |
//! | `sessions` | group, 0 | which sessions were ever opened |
//! | `sessions` | group, 1, session | window |
//! | `layers` | group | layers and volumes |
//! | `usage` | segment | live bytes |
//! | `system` | | the state of the system group |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_coding::{Reader, put_varint};
use esker_fs::Fs;
use esker_lsm::{Cursor, Group, LogMode, Options, PlainTrees, Snapshot, TreeId};

use super::layers::Layers;
use super::sessions::{Seen, Session, Sessions};
use crate::error::{Error, Result};
use crate::ids::{Ballot, GroupId, NodeId, SessionId, Slot};
use crate::members::Members;
use crate::system::System;

/// The engine's store, and the numbers of its trees.
pub(super) struct Store {
    pub(super) engine: Group,
    pub(super) map: TreeId,
    pub(super) applied: TreeId,
    pub(super) sessions: TreeId,
    pub(super) layers: TreeId,
    pub(super) usage: TreeId,
    pub(super) system: TreeId,
    dir: PathBuf,
}

/// How far a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Status {
    pub(super) slot: Slot,
    pub(super) ballot: Ballot,
    /// An image is being installed, or that was interrupted.
    pub(super) is_incomplete: bool,
    /// It is that of an image, and nothing was applied since.
    pub(super) is_image: bool,
}

/// A group, as it is stored.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) status: Status,
    pub(super) members: Option<Arc<Members>>,
    pub(super) layers: Layers,
    pub(super) sessions: Sessions,
}

/// Everything but the map's entries.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) groups: BTreeMap<GroupId, Stored>,
    pub(super) usage: BTreeMap<u32, u64>,
    pub(super) system: System,
}

const STATUS: u8 = 0;
const MEMBERS: u8 = 1;
const SEEN: u8 = 0;
const SESSION: u8 = 1;

impl Store {
    pub(super) fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        memory: usize,
        background: bool,
    ) -> Result<Store> {
        let options = Options {
            fs,
            memory_budget: memory,
            log: LogMode::External,
            background,
            ..Options::default()
        };
        let engine = Group::open(dir, options, Arc::new(PlainTrees), true)?;
        let tree = |name: &str| match engine.tree(name) {
            Some(tree) => Ok(tree),
            None => {
                let created = engine.create_trees(&[(name.to_string(), Vec::new())])?;
                let created = created.first().copied();
                created.ok_or_else(|| Error::corruption(dir, 0, format!("no tree {name}")))
            }
        };
        Ok(Store {
            map: tree("map")?,
            applied: tree("applied")?,
            sessions: tree("sessions")?,
            layers: tree("layers")?,
            usage: tree("usage")?,
            system: tree("system")?,
            engine,
            dir: dir.to_path_buf(),
        })
    }

    /// The error of a key or value that is none.
    pub(super) fn damaged(&self, what: &str) -> Error {
        Error::corruption(&self.dir, 0, format!("{what} cannot be read"))
    }

    /// Reads everything but the map's entries.
    pub(super) fn load(&self) -> Result<Loaded> {
        let snapshot = &self.engine.snapshot();
        let mut loaded = Loaded::default();
        let groups = &mut loaded.groups;
        self.each(snapshot, self.applied, "applied", |key, value| {
            let (group, rest) = split_group(key)?;
            let group = groups.entry(group).or_default();
            match rest {
                [STATUS] => group.status = Status::decode(value)?,
                [MEMBERS] => {
                    let members = Members::decode(&mut Reader::new(value))?;
                    group.members = Some(Arc::new(members));
                }
                _ => return None,
            }
            Some(())
        })?;
        self.each(snapshot, self.layers, "layers", |key, value| {
            let (group, _) = split_group(key)?;
            groups.entry(group).or_default().layers = Layers::decode(&mut Reader::new(value))?;
            Some(())
        })?;
        let mut sessions: BTreeMap<GroupId, (BTreeMap<_, _>, Seen)> = BTreeMap::new();
        self.each(snapshot, self.sessions, "sessions", |key, value| {
            let (group, rest) = split_group(key)?;
            let (open, seen) = sessions.entry(group).or_default();
            let from = &mut Reader::new(value);
            match rest.split_first()? {
                (&SEEN, _) => *seen = Seen::decode(from)?,
                (&SESSION, id) => drop(open.insert(parse_session(id)?, Session::decode(from)?)),
                _ => return None,
            }
            Some(())
        })?;
        for (group, (open, seen)) in sessions {
            groups.entry(group).or_default().sessions = Sessions { open, seen };
        }
        let usage = &mut loaded.usage;
        self.each(snapshot, self.usage, "usage", |key, value| {
            let segment = u32::from_be_bytes(key.try_into().ok()?);
            usage.insert(segment, u64::from_le_bytes(value.try_into().ok()?));
            Some(())
        })?;
        let system = &mut loaded.system;
        self.each(snapshot, self.system, "system", |_, value| {
            *system = System::decode(&mut Reader::new(value))?;
            Some(())
        })?;
        Ok(loaded)
    }

    /// Visits a tree; `None` from the visitor is damage.
    fn each(
        &self,
        snapshot: &Snapshot,
        tree: TreeId,
        name: &str,
        mut visit: impl FnMut(&[u8], &[u8]) -> Option<()>,
    ) -> Result<()> {
        let mut cursor = snapshot.cursor(tree, 0);
        cursor.seek_first()?;
        while cursor.valid() {
            let visited = visit(cursor.key(), cursor.value());
            visited.ok_or_else(|| self.damaged(&format!("an entry of tree {name}")))?;
            cursor.next()?;
        }
        Ok(())
    }
}

impl Status {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.is_incomplete) | u8::from(self.is_image) << 1];
        put_varint(&mut out, self.slot.0);
        put_varint(&mut out, self.ballot.0);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Status> {
        let from = &mut Reader::new(bytes);
        let flags = from.u8()?;
        Some(Status {
            is_incomplete: flags & 1 != 0,
            is_image: flags & 2 != 0,
            slot: Slot(from.varint()?),
            ballot: Ballot(from.varint()?),
        })
    }
}

fn split_group(key: &[u8]) -> Option<(GroupId, &[u8])> {
    let (group, rest) = key.split_first_chunk()?;
    Some((GroupId(u16::from_be_bytes(*group)), rest))
}

fn parse_session(key: &[u8]) -> Option<SessionId> {
    let (node, rest) = key.split_first_chunk()?;
    let (life, rest) = rest.split_first_chunk()?;
    Some(SessionId {
        node: NodeId(u32::from_be_bytes(*node)),
        life: u64::from_be_bytes(*life),
        connection: u64::from_be_bytes(rest.try_into().ok()?),
    })
}

fn tagged(group: GroupId, tag: u8) -> Vec<u8> {
    let mut key = group.0.to_be_bytes().to_vec();
    key.push(tag);
    key
}

pub(super) fn status_key(group: GroupId) -> Vec<u8> {
    tagged(group, STATUS)
}

pub(super) fn members_key(group: GroupId) -> Vec<u8> {
    tagged(group, MEMBERS)
}

pub(super) fn seen_key(group: GroupId) -> Vec<u8> {
    tagged(group, SEEN)
}

pub(super) fn session_key(group: GroupId, id: SessionId) -> Vec<u8> {
    let mut key = tagged(group, SESSION);
    key.extend_from_slice(&id.node.0.to_be_bytes());
    key.extend_from_slice(&id.life.to_be_bytes());
    key.extend_from_slice(&id.connection.to_be_bytes());
    key
}

pub(super) fn layers_key(group: GroupId) -> [u8; 2] {
    group.0.to_be_bytes()
}

pub(super) const SYSTEM_KEY: &[u8] = b"system";
