//! The index types of a store: the built-in ones, and those of other crates that it was opened
//! with.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_model::definition::{ExternalKind, IndexKind, KINDS};

use super::cost::Figures;
use super::kind::IndexType;
use super::kinds;
use crate::error::{Error, Result};

/// Index types of other crates, each with its name, for
/// [`Options::index_types`](crate::Options::index_types). Cheap to clone.
#[derive(Clone, Default)]
pub struct IndexTypes(Arc<BTreeMap<ExternalKind, Arc<dyn IndexType>>>);

impl IndexTypes {
    /// No type of another crate.
    pub fn new() -> IndexTypes {
        IndexTypes::default()
    }

    /// Adds a type under its name. Definitions and files contain the name, so it must never change.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the name is taken, or is not 3 to 32 lower-case letters, digits and
    /// `-`, beginning with a letter, with a `-` inside.
    pub fn with(self, name: &str, index: impl IndexType + 'static) -> Result<IndexTypes> {
        let mut all = Arc::unwrap_or_clone(self.0);
        if all
            .insert(ExternalKind::new(name)?, Arc::new(index))
            .is_some()
        {
            return Err(Error::bad_input(format!(
                "two index types have the name `{name}`: names must differ"
            )));
        }
        Ok(IndexTypes(Arc::new(all)))
    }

    /// The type of a kind; `None` for [`IndexKind::None`], and for types of other crates that the
    /// store was opened without.
    pub(crate) fn index_of(&self, kind: IndexKind) -> Option<Arc<dyn IndexType>> {
        match kind {
            IndexKind::External(name) => self.0.get(&name).cloned(),
            kind => kinds::built_in(kind),
        }
    }

    /// Refuses a kind whose type the store was opened without.
    ///
    /// # Errors
    /// [`Error::BadInput`].
    pub(crate) fn check(&self, kind: IndexKind) -> Result<()> {
        if self.lacks(kind) {
            return Err(Error::bad_input(format!(
                "unknown index kind `{kind}`: it is not built in, and the store was opened without it; built in are {KINDS}"
            )));
        }
        Ok(())
    }

    /// True for a kind whose type the store was opened without.
    pub(crate) fn lacks(&self, kind: IndexKind) -> bool {
        kind.is_indexed() && self.index_of(kind).is_none()
    }

    /// The costs of a kind. Queries of an attribute without an index scan.
    pub(crate) fn figures(&self, kind: IndexKind) -> Figures {
        self.index_of(kind)
            .map_or(Figures::NO_INDEX, |index| index.figures())
    }

    /// True for index types that may be recommended.
    pub(crate) fn is_advised(&self, kind: IndexKind) -> bool {
        self.index_of(kind).is_some_and(|index| index.is_advised())
    }
}
