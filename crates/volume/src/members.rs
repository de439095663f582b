//! Who belongs to a group.

use esker_coding::{Reader, put_bytes, put_varint};

use crate::ids::{DiskId, NodeId};

/// What a member may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepts, votes, and counts for majorities.
    Voter,
    /// Is sent the log and does not count, until it has caught up.
    Learner,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The disk that it had when it became a member.
    pub disk: DiskId,
    /// Where it listens for other nodes and for clients: `HOST:PORT`.
    pub address: String,
    /// What it may do.
    pub role: Role,
}

/// The members of a group, by rising node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Members {
    all: Vec<Member>,
    /// How many changes led to them.
    version: u64,
}

impl Members {
    /// The members, in any order. Of two with the same node the later one counts.
    pub fn new(members: impl IntoIterator<Item = Member>) -> Members {
        let mut all = Members::default();
        members.into_iter().for_each(|member| all.put(member));
        all
    }

    /// Adds a member, or replaces the one with the same node.
    pub fn put(&mut self, member: Member) {
        match self.all.binary_search_by_key(&member.node, |m| m.node) {
            Ok(at) => self.all[at] = member,
            Err(at) => self.all.insert(at, member),
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, node: NodeId) {
        self.all.retain(|member| member.node != node);
    }

    /// The member that runs as `node`.
    pub fn get(&self, node: NodeId) -> Option<&Member> {
        let at = self.all.binary_search_by_key(&node, |m| m.node).ok()?;
        self.all.get(at)
    }

    /// All members, by rising node.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.all.iter()
    }

    /// Those that count for majorities.
    pub fn voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        let voters = self.all.iter().filter(|member| member.role == Role::Voter);
        voters.map(|member| member.node)
    }

    /// True where `node` counts for majorities.
    pub fn is_voter(&self, node: NodeId) -> bool {
        self.get(node)
            .is_some_and(|member| member.role == Role::Voter)
    }

    /// The least number of voters that is a majority; with no voters, 1.
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// How many changes led to them: a change is of one version, so it happens once.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// They are what another change led to.
    pub fn count_change(&mut self) {
        self.version += 1;
    }

    /// True where there is no member.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Appends their encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.all.len() as u64);
        for member in &self.all {
            put_varint(out, u64::from(member.node.0));
            out.extend_from_slice(&member.disk.0.to_le_bytes());
            put_bytes(out, member.address.as_bytes());
            out.push(u8::from(member.role == Role::Learner));
        }
        put_varint(out, self.version);
    }

    /// Reads what `encode` wrote; `None` where the bytes are no members.
    pub fn decode(from: &mut Reader<'_>) -> Option<Members> {
        let mut all = Members::default();
        for _ in 0..from.varint()? {
            all.put(Member {
                node: NodeId(u32::try_from(from.varint()?).ok()?),
                disk: DiskId(from.u64()?),
                address: String::from_utf8(from.bytes()?.to_vec()).ok()?,
                role: match from.u8()? {
                    0 => Role::Voter,
                    1 => Role::Learner,
                    _ => return None,
                },
            });
        }
        all.version = from.varint()?;
        Some(all)
    }
}
