//! The deleted-key strategy, AsterixDB's before validation, as a baseline of the papers: each index
//! has a tree of the keys written since its creation, which queries probe.

use esker_lsm::TreeId;

use super::strategy::{MissingEntry, Strategy};
use crate::catalog::Layout;
use crate::index::Attribute;

/// The deleted-key strategy.
pub(super) struct DeletedKey;

impl Strategy for DeletedKey {
    fn keeps_written_keys(&self) -> bool {
        true
    }

    fn key_tree(&self, _layout: &Layout, attribute: &Attribute) -> Option<TreeId> {
        attribute.deleted
    }

    /// The tree of an index has no entries for records older than the index.
    fn missing_entry(&self) -> MissingEntry {
        MissingEntry::Unknown
    }
}
