//! Estimates from the samples of a table: how many of an attribute's values meet a condition.

use super::reader::Table;
use crate::cost::Cost;
use crate::error::Result;
use crate::synopsis::{Sampled, count_sample};

impl Table {
    /// Counts the entries of a slot's sample that have a value for which `meets` is true. `None`
    /// when the table has none: it was written by an earlier version, or has deletes only. Values
    /// are cut to 64 bytes, and of an entry there are 16 at most.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the block.
    ///
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Corruption`]: crate::Error::Corruption
    pub fn sampled(
        &self,
        slot: usize,
        cost: &Cost,
        meets: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Sampled>> {
        let Some(handle) = self.samples().of(slot) else {
            return Ok(None);
        };
        let bytes = self.block(handle, true, cost)?;
        let counted = count_sample(&bytes, meets);
        counted.map(Some).ok_or_else(|| self.malformed(handle))
    }
}
