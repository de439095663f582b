//! Numbers that name things: nodes, disks, groups, slots, ballots, volumes, sessions.

use std::fmt;

/// Defines a number with a meaning of its own.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number!(
    /// A node: a process that serves volumes. Chosen by the operator, at least 1.
    NodeId(u32)
);
number!(
    /// The identity of a node's disk, made when its folder is formatted. A node with another disk
    /// is another member.
    DiskId(u64)
);
number!(
    /// A Paxos group. 0 is the system group; the others share the blocks of volumes.
    GroupId(u16)
);
number!(
    /// A place in the log of a group. The first is 1; 0 precedes all.
    Slot(u64)
);
number!(
    /// The number of an attempt to lead a group. At most one node leads in each; 0 precedes all.
    Ballot(u64)
);
number!(
    /// A volume. Never used again, also after the volume is deleted.
    VolumeId(u32)
);
number!(
    /// A layer of a volume's blocks within one group. Never used again.
    LayerId(u32)
);

impl GroupId {
    /// The group of names, sizes, members and snapshots.
    pub const SYSTEM: GroupId = GroupId(0);
}

impl Slot {
    /// The next one.
    pub fn next(self) -> Slot {
        Slot(self.0.saturating_add(1))
    }

    /// The one before; that of 0 is 0.
    pub fn previous(self) -> Slot {
        Slot(self.0.saturating_sub(1))
    }
}

/// Whose commands these are: a connection of a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The node that the requests entered at.
    pub node: NodeId,
    /// That node's life: rises with each start.
    pub life: u64,
    /// The connection, within that life.
    pub connection: u64,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.life, self.connection)
    }
}
