//! Changing the time to live: one edit of the definition. Existing records keep the expiry time
//! that they were written with.

use std::time::Duration;

use esker_lsm::TreeChange;

use crate::catalog::{Role, TreeConfig, expiry_tree};
use crate::error::Result;
use crate::store::Handle;

impl Handle {
    /// See [`crate::Dataset::set_ttl`].
    pub(crate) fn set_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        let _claim = self.state.claim()?;
        let layout = self.layout();
        let mut stored = layout.stored.clone();
        stored.expiry.ttl = ttl;
        stored.expiry.validate()?;
        if stored.expiry == layout.stored.expiry {
            return Ok(());
        }
        let tree = TreeConfig::new(Role::Expiry, &stored.settings).to_bytes();
        self.store.group.change_trees(&mut |_| {
            let is_new = layout.expiry.is_none();
            let created = is_new.then(|| (expiry_tree(&self.name()), tree.clone()));
            Ok(TreeChange {
                created: created.into_iter().collect(),
                configured: vec![(layout.data, stored.to_bytes())],
                ..TreeChange::default()
            })
        })?;
        Ok(())
    }
}
