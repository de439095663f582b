//! Notes of a dataset: values by name, such as the progress of an import.

use std::collections::BTreeMap;

use crate::catalog::{DatasetState, STATE};
use crate::cells::Swapped;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::write::Operation;

/// How often a note is set again after others have changed it.
const TRIES: usize = 20;

impl Dataset {
    /// The notes.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let rows = self
            .shared
            .cells
            .swapped(&STATE.into(), &self.notes_at()?)?;
        let notes = rows.into_iter().filter_map(|cell| {
            let name = String::from_utf8(cell.row).ok()?;
            // The first bytes make each value another.
            let (_, value) = cell.value.split_first_chunk::<8>()?;
            Some((name, value.to_vec()))
        });
        Ok(notes.collect())
    }

    /// Sets a note; `None` deletes it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::BadInput`] for a name that is empty or longer than 1 KiB.
    pub fn note(&self, name: &str, value: Option<&[u8]>) -> Result<()> {
        if name.is_empty() || name.len() > 1024 {
            let text = format!(
                "the name of a note has {} bytes: 1 to 1024 are allowed",
                name.len()
            );
            return Err(Error::BadInput(text));
        }
        let (table, partition) = (STATE.into(), self.notes_at()?);
        let operation = Operation::begin(&self.shared, &*self.bound()?)?;
        for _ in 0..TRIES {
            let rows = self.shared.cells.swapped(&table, &partition)?;
            let before = rows.into_iter().find(|cell| cell.row == name.as_bytes());
            let before = before.map(|cell| cell.value);
            let at = operation.stamp(0)?.to_be_bytes();
            let to = value.map(|value| [&at[..], value].concat());
            if before.is_none() && to.is_none() {
                return Ok(());
            }
            let (before, to) = (before.as_deref(), to.as_deref());
            let cells = &self.shared.cells;
            let swapped = cells.swap(&table, &partition, name.as_bytes(), before, to)?;
            if swapped == Swapped::Done {
                return Ok(());
            }
        }
        Err(Error::Busy(format!(
            "others keep changing the note `{name}`"
        )))
    }

    fn notes_at(&self) -> Result<Vec<u8>> {
        Ok(partition(&self.bound()?.state))
    }
}

/// The partition of the notes of a dataset.
pub(crate) fn partition(state: &DatasetState) -> Vec<u8> {
    format!("notes {}", state.data()).into_bytes()
}
