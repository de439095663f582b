//! Where a table has the samples of its attributes' values: the locations are behind the
//! properties, where builds that know of no samples do not look.

use super::format::Handle;
use crate::coding::{Reader, put_varint};

/// The block of each slot that has a sample.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<(usize, Handle)>);

impl Samples {
    pub(super) fn push(&mut self, slot: usize, handle: Handle) {
        self.0.push((slot, handle));
    }

    /// The block of a slot's sample.
    pub(super) fn of(&self, slot: usize) -> Option<Handle> {
        let mut all = self.0.iter();
        all.find(|(of, _)| *of == slot).map(|(_, handle)| *handle)
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
