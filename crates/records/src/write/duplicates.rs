//! The search for two current records with the same value, through the whole of an index.

use super::unique::{Holder, Holders};
use crate::catalog::UniqueIndex;
use crate::error::{Error, Result};
use esker_lsm::Seq;

/// The most entries of one value that are compared with the records together.
const TOGETHER: usize = 4096;

/// Receives the entries of an index, those of a value together, and stops at the first duplicate.
pub(crate) struct Duplicates<'a> {
    holders: Holders<'a>,
    index: UniqueIndex<'a>,
    /// A value, and keys that the index has for it.
    value: Vec<u8>,
    found: Vec<Holder>,
    duplicate: Option<Error>,
}

impl<'a> Duplicates<'a> {
    pub(crate) fn new(holders: Holders<'a>, index: UniqueIndex<'a>) -> Duplicates<'a> {
        Duplicates {
            holders,
            index,
            value: Vec::new(),
            found: Vec::new(),
            duplicate: None,
        }
    }

    /// Adds an entry of the index.
    ///
    /// # Errors
    /// Any read error. An error also ends the search when it has found a duplicate, which
    /// [`Duplicates::finish`] returns.
    pub(crate) fn add(&mut self, value: &[u8], key: &[u8], seq: Seq) -> Result<()> {
        if self.index.attribute.may_be_shared(value) {
            return Ok(());
        }
        if value != self.value || self.found.len() >= TOGETHER {
            self.compare()?;
        }
        if value != self.value {
            self.begin(value);
        }
        let (of, key) = (0, key.to_vec());
        self.found.push(Holder { of, key, seq });
        Ok(())
    }

    /// Adds all entries that the index, and what was collected for it, has of a value.
    ///
    /// # Errors
    /// As [`Duplicates::add`].
    pub(crate) fn add_all_of(&mut self, value: &[u8]) -> Result<()> {
        // The entries of a value follow each other.
        if value == self.value || self.index.attribute.may_be_shared(value) {
            return Ok(());
        }
        self.begin(value);
        (self.holders).search(&self.index, value, 0, &mut self.found)?;
        self.compare()
    }

    fn begin(&mut self, value: &[u8]) {
        self.found.clear();
        self.value.clear();
        self.value.extend_from_slice(value);
    }

    /// Keeps the keys whose records are current; an error if there are two.
    fn compare(&mut self) -> Result<()> {
        let attribute = self.index.attribute;
        if self.found.len() < 2 {
            return Ok(());
        }
        self.holders.retain_current(&mut self.found)?;
        self.found.dedup_by(|b, a| a.key == b.key);
        let [holder, later, ..] = self.found.as_slice() else {
            return Ok(());
        };
        let error = (self.holders).refusal(attribute, &self.value, &later.key, &holder.key);
        self.duplicate = Some(error.clone());
        Err(error)
    }

    /// Ends a pass through the index, which had this result. Returns the duplicate, if there is
    /// one.
    pub(crate) fn finish(&mut self, result: Result<()>) -> Result<Option<Error>> {
        let result = result.and_then(|()| self.compare());
        self.begin(&[]);
        match self.duplicate.take() {
            Some(error) => Ok(Some(error)),
            None => result.map(|()| None),
        }
    }
}
