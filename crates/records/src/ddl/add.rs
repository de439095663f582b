//! Adds indexes. A compound index first declares its fields; if it is refused in the same call, the
//! declarations are undone.

use esker_lsm::TreeChange;
use esker_model::definition::{Index, IndexKind, check_type};
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
        // A change that has begun can be resumed, and needs its fields.
        if change.is_err() && self.layout().building.is_none() {
            self.undeclare(&declared)?;
        }
        change
    }

    /// Declares the undeclared ones of `fields`, and adds to `declared` those whose declaration
    /// this call began and completed. Returns the unfinished declaration if the progress callback
    /// stopped one.
    fn declare(
        &self,
        fields: &[Path],
        declared: &mut Vec<Path>,
        progress: &mut OnProgress<'_>,
    ) -> Result<Option<IndexChange>> {
        // An unfinished declaration comes first, because it refuses the others.
        let unfinished = self
            .layout()
            .building
            .as_ref()
            .map(|building| building.attribute.path.clone());
        let (first, others): (Vec<&Path>, Vec<&Path>) = fields
            .iter()
            .partition(|field| unfinished.as_ref() == Some(*field));
        for field in first.into_iter().chain(others) {
            let layout = self.layout();
            let building = layout.building.as_ref();
            // The caller's `add_under_claim` resumes an unfinished change of another path, or
            // refuses.
            let is_other = building.is_some_and(|building| building.attribute.path != *field);
            if is_other || layout.stored.attribute(field).is_some() {
                continue;
            }
            let change = self.add_under_claim(field, Index::none(), progress)?;
            if !change.complete {
                return Ok(Some(change));
            }
            // The caller of an earlier call that began the declaration may want it without the
            // index.
            if building.is_none() {
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
        debug_assert!(
            (stored.attributes.iter())
                .filter(|attribute| fields.contains(&attribute.def.path))
                .all(|attribute| attribute.def.kind == IndexKind::None),
            "a field with an index is undeclared, and the tree of its index would stay"
        );
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
