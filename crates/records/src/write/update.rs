//! Writes that depend on the stored record: read, decide, and write if no other write came between;
//! otherwise read again. No lock is held between the read and the write.

use esker_model::{Key, Update};

use super::{DatasetWrites, commit};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Handle;
use esker_model::Record;

/// The possible return values of the closure of [`crate::Dataset::update`]: an [`Update`], JSON
/// that replaces the record, or a `Result` of either.
pub trait IntoUpdate {
    /// Converts the return value to an [`Update`].
    ///
    /// # Errors
    /// The closure's error: the update returns it and writes nothing.
    fn into_update(self) -> Result<Update>;
}

impl IntoUpdate for Update {
    fn into_update(self) -> Result<Update> {
        Ok(self)
    }
}

impl IntoUpdate for Vec<u8> {
    fn into_update(self) -> Result<Update> {
        Ok(Update::Put(self))
    }
}

impl IntoUpdate for String {
    fn into_update(self) -> Result<Update> {
        Ok(Update::Put(self.into_bytes()))
    }
}

impl<U: IntoUpdate> IntoUpdate for Result<U> {
    fn into_update(self) -> Result<Update> {
        self?.into_update()
    }
}

/// The number of attempts before an update fails.
const MAX_ATTEMPTS: usize = 100;

impl Handle {
    /// See [`crate::Dataset::update`].
    pub(crate) fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        let mut batch = DatasetWrites::new(self.clone());
        for _ in 0..MAX_ATTEMPTS {
            let old = self.find(key.clone(), None)?;
            match change(old.as_ref())? {
                Update::Put(json) => batch.put_at(key, &json)?,
                Update::Delete if old.is_some() => batch.delete(key)?,
                Update::Delete | Update::Keep => return Ok(old),
            }
            batch.expect(key, old.as_ref().map(Record::seq));
            match commit(std::slice::from_mut(&mut batch), self.store.durability) {
                Ok(_) => return Ok(old),
                Err(error) if error.conflict().is_some() => batch.clear(),
                // Another record has the value, perhaps because of a commit that has changed this
                // record, too. In that case the update is repeated from the current record.
                Err(error) if error.kind() == ErrorKind::NotUnique => {
                    let now = self.find(key.clone(), None)?;
                    if now.map(|now| now.seq()) == old.map(|old| old.seq()) {
                        return Err(error);
                    }
                    batch.clear();
                }
                Err(error) => return Err(error),
            }
        }
        let text = format!(
            "other writers changed the record of key {key} {MAX_ATTEMPTS} times in a row: try again"
        );
        Err(Error::overtaken(text))
    }
}
