//! Where a table has the samples of its attributes' values, and what is counted in them. The locations are behind the
//! properties, where builds that know of no samples do not look.

use super::format::Handle;
use super::reader::Table;
use crate::coding::{Reader, put_varint};
use crate::cost::Cost;
use crate::error::Result;
use crate::synopsis::{Sampled, count_sample};

/// The block of each slot that has a sample.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<(usize, Handle)>);

impl Samples {
    pub(super) fn push(&mut self, slot: usize, handle: Handle) {
        self.0.push((slot, handle));
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.0.iter().map(|(_, handle)| *handle)
    }

    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<(usize, Handle)>()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for (slot, handle) in &self.0 {
            put_varint(out, *slot as u64);
            handle.put(out);
        }
    }

    /// Reads what is left of the properties; `None` when it is malformed.
    pub(super) fn decode(reader: &mut Reader<'_>, slots: usize) -> Option<Samples> {
        let mut samples = Samples::default();
        while !reader.is_empty() {
            let slot = usize::try_from(reader.varint()?).ok()?;
            let last = samples.0.last().map(|(last, _)| *last);
            if slot >= slots || last.is_some_and(|last| last >= slot) {
                return None;
            }
            samples.push(slot, Handle::read(reader)?);
        }
        samples.0.shrink_to_fit();
        Some(samples)
    }
}

impl Table {
    /// Counts the entries of a slot's sample that have a value for which `meets` is true. `None` when the table has none: it was
    /// written by an earlier version, or has deletes only. Values are cut to 64 bytes, and of an entry there are 16 at most.
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
        let mut all = self.samples().0.iter();
        let Some((_, handle)) = all.find(|(of, _)| *of == slot) else {
            return Ok(None);
        };
        let bytes = self.block(*handle, true, cost)?;
        let counted = count_sample(&bytes, meets);
        counted.map(Some).ok_or_else(|| self.malformed(*handle))
    }
}
