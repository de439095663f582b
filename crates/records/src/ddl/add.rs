//! Adds indexes. A compound index first declares its fields; if it is refused in the same call, the
//! declarations are undone.

use esker_lsm::TreeChange;
use esker_model::definition::{Index, check_type};
use esker_model::schema::{Path, Type, compound_paths};

use super::indexes::{IndexChange, OnProgress};
use crate::error::Result;
use crate::store::Handle;

impl Handle {
    /// See [`crate::Dataset::add_index`].
    pub(crate) fn add_index(
        &self,
        path: &Path,
        index: Index,
        progress: &mut OnProgress<'_>,
    ) -> Result<IndexChange> {
        self.store.index_types.check(index.kind())?;
        let _claim = self.state.claim()?;
        if index.explicit_type().is_some_and(Type::is_compound) {
            self.add_compound(path, index, progress)
        } else {
            self.add_under_claim(path, index, progress)
        }
    }

    /// Adds a compound index. The types of fields that are not declared are inferred from the
    /// records.
    fn add_compound(
        &self,
        path: &Path,
        index: Index,
        progress: &mut OnProgress<'_>,
    ) -> Result<IndexChange> {
        check_type(path, index.kind(), Type::Compound)?;
        let fields = compound_paths(path)?;
        let mut declared = Vec::new();
        let change = match self.declare(&fields, &mut declared, progress) {
            Ok(None) => self.add_under_claim(path, index, progress),
            Ok(Some(stopped)) => return Ok(stopped),
            Err(error) => Err(error),
        };
        // A change that failed for another reason can be resumed, and needs its fields.
        if change.is_err() && self.layout().building.is_none() {
            self.undeclare(&declared)?;
        }
        change
    }

    /// Declares those of `fields` that are not declared, and adds them to `declared`. Returns the
    /// change that the progress callback stopped, if it stopped one.
    fn declare(
        &self,
        fields: &[Path],
        declared: &mut Vec<Path>,
        progress: &mut OnProgress<'_>,
    ) -> Result<Option<IndexChange>> {
        // A declaration that is begun already comes first.
        let begun = self
            .layout()
            .building
            .as_ref()
            .map(|building| building.attribute.path.clone());
        let (first, others): (Vec<&Path>, Vec<&Path>) = fields
            .iter()
            .partition(|field| begun.as_ref() == Some(*field));
        for field in first.into_iter().chain(others) {
            let layout = self.layout();
            let begun = layout.building.as_ref();
            // `add_under_claim` resumes an unfinished change of another path, or refuses.
            let is_other = begun.is_some_and(|begun| begun.attribute.path != *field);
            if is_other || layout.stored.attribute(field).is_some() {
                continue;
            }
            let change = self.add_under_claim(field, Index::none(), progress)?;
            if !change.complete {
                return Ok(Some(change));
            }
            // A declaration that an earlier call began may be wanted without the index.
            if begun.is_none() {
                declared.push(field.clone());
            }
        }
        Ok(None)
    }

    /// Removes the declarations of `fields`, none of which has an index.
    fn undeclare(&self, fields: &[Path]) -> Result<()> {
        if fields.is_empty() {
            return Ok(());
        }
        let layout = self.layout();
        let mut stored = layout.stored.clone();
        (stored.attributes).retain(|attribute| !fields.contains(&attribute.def.path));
        self.store.group.change_trees(&mut |_| {
            Ok(TreeChange {
                configured: vec![(layout.data, stored.to_bytes())],
                ..TreeChange::default()
            })
        })?;
        Ok(())
    }
}
