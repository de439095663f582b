//! The deleted-key strategy, AsterixDB's before validation: each index has a tree of the keys that were written since it began, which
//! queries probe. The baseline that the papers measure.

use esker_lsm::TreeId;

use super::{Dropped, Strategy};
use crate::catalog::{Attribute, Layout};

pub(super) struct DeletedKey;

impl Strategy for DeletedKey {
    fn keeps_written_keys(&self) -> bool {
        true
    }

    fn key_tree(&self, _layout: &Layout, attribute: &Attribute) -> Option<TreeId> {
        attribute.deleted
    }

    /// Records from before the index began have no entry in its tree.
    fn dropped_silently(&self) -> Dropped {
        Dropped::Unknown
    }
}
