//! The links between nodes: one in each direction. A link loses frames, delays them, and delivers
//! them in order, mostly.

use std::collections::BTreeMap;

use esker_volume::ids::NodeId;

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
