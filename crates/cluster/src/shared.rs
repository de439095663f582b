//! What all handles of a store share.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bound::Bound;
use crate::catalog::{Catalog, Catalogs, Edition, STATE};
use crate::cells::Cells;
use crate::clock::Checked;
use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::time::{Clocks, SystemClocks};
use crate::verdict::Found;
use crate::writer::Writers;

/// What a store is opened with.
#[derive(Clone)]
pub struct Options {
    /// The clocks.
    pub clocks: Arc<dyn Clocks>,
    /// True for a store that is only read. Reads still remove obsolete index entries.
    pub is_reader: bool,
    /// The entries of a bucket of an index after which it is split.
    pub split_at: u64,
    /// The candidates of an index from which on the other indexes of a condition are asked for
    /// them, too, before their records are read.
    pub intersect_from: usize,
    /// The index entries of no use that queries find before they are removed together; the last
    /// ones when the store is dropped.
    pub remove_from: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clocks: Arc::new(SystemClocks::default()),
            is_reader: false,
            split_at: 100_000,
            intersect_from: 32,
            remove_from: 64,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("is_reader", &self.is_reader)
            .finish_non_exhaustive()
    }
}

/// What all handles of a store share.
pub(crate) struct Shared {
    pub(crate) cells: Arc<dyn Cells>,
    pub(crate) options: Options,
    pub(crate) catalogs: Catalogs,
    pub(crate) clock: Arc<Checked>,
    pub(crate) writers: Writers,
    pub(crate) counts: Counts,
    /// What queries have found and not removed yet.
    pub(crate) useless: Found,
    /// Called at the end.
    pub(crate) at_end: fn(&Shared),
    /// Datasets of the last version of the catalog that was used.
    pub(crate) bound: Mutex<(Edition, HashMap<String, Arc<Bound>>)>,
}

impl Shared {
    pub(crate) fn clocks(&self) -> &dyn Clocks {
        &*self.options.clocks
    }

    /// This machine's time, which does not differ from the cluster's by more than the bound.
    pub(crate) fn checked_wall(&self) -> Result<u64> {
        self.clock.wall()
    }

    /// A dataset by a recent catalog.
    pub(crate) fn bound(&self, name: &str) -> Result<Arc<Bound>> {
        let catalog = self.catalogs.recent()?;
        self.bound_in(&catalog, name)
    }

    /// A dataset by the catalog as it is now.
    pub(crate) fn bound_now(&self, name: &str) -> Result<Arc<Bound>> {
        let catalog = self.catalogs.now()?;
        self.bound_in(&catalog, name)
    }

    fn bound_in(&self, catalog: &Arc<Catalog>, name: &str) -> Result<Arc<Bound>> {
        let mut known = self.bound.lock();
        if known.0 != catalog.edition() {
            *known = (catalog.edition(), HashMap::new());
        }
        if let Some(bound) = known.1.get(name) {
            return Ok(bound.clone());
        }
        let bound = Arc::new(Bound::new(catalog, name)?);
        known.1.insert(name.to_string(), bound.clone());
        Ok(bound)
    }

    /// Removes all rows of partitions that are changed by compare-and-set.
    pub(crate) fn clear(&self, partitions: &[Vec<u8>]) -> Result<()> {
        let table = STATE.into();
        for partition in partitions {
            for cell in self.cells.swapped(&table, partition)? {
                let value = Some(cell.value.as_slice());
                self.cells.swap(&table, partition, &cell.row, value, None)?;
            }
        }
        Ok(())
    }

    pub(crate) fn check_writes(&self) -> Result<()> {
        if self.options.is_reader {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        (self.at_end)(self);
        self.writers.end();
    }
}
