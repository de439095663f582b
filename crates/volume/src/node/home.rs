//! The folder of a node, and what is read back from it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use esker_fs::Fs;

use super::group::Group;
use crate::extents::Extents;
use crate::ids::GroupId;
use crate::wire::Formation;

/// Where a node keeps what it has.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
}

impl Home {
    pub(super) fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }
}

/// What the segments say.
pub(super) struct ReadBack {
    pub(super) extents: Extents,
    pub(super) formation: Option<Formation>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    /// The last life that they name.
    pub(super) life: u64,
    /// They have records of groups that they know no cluster of.
    pub(super) was_used: bool,
}
