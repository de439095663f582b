//! The definition of an indexed attribute.

use serde::{Deserialize, Serialize};

use super::IndexKind;
use crate::error::{Error, Result};
use crate::schema::{Path, Type, Wanted};
use crate::tokens::Tokenizer;

/// The maximum number of attributes of a dataset.
pub const MAX_INDEXES: usize = 64;

/// One indexed attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IndexDef {
    /// Its path in the record.
    pub path: Path,
    /// The kind of its index.
    pub kind: IndexKind,
    /// The type of its values.
    #[serde(rename = "type")]
    pub ty: Type,
    /// How its values become tokens of the index.
    #[serde(default)]
    pub tokenizer: Tokenizer,
    /// Records with a value of another type at the path are kept; queries find them as a scan
    /// would.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lenient: bool,
    /// No two current records may have the same value.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unique: bool,
}

impl IndexDef {
    /// An attribute whose values are indexed as they are.
    pub fn new(path: Path, kind: IndexKind, ty: Type) -> IndexDef {
        IndexDef {
            path,
            kind,
            ty,
            tokenizer: Tokenizer::default(),
            lenient: false,
            unique: false,
        }
    }

    /// Sets whether the attribute may have values of other types.
    pub fn lenient(self, lenient: bool) -> IndexDef {
        IndexDef { lenient, ..self }
    }

    /// Sets whether values must be unique.
    pub fn unique(self, unique: bool) -> IndexDef {
        IndexDef { unique, ..self }
    }

    /// Rejects a lenient index of points or of several fields.
    pub fn check_lenient(&self) -> Result<()> {
        if self.lenient && self.ty.is_compound() {
            return Err(Error::bad_input(format!(
                "attribute `{}`: each field of a compound index is declared by itself: declare the field that may have values of other types as lenient, as in code?:none",
                self.path
            )));
        }
        if self.lenient && self.ty.has_place() {
            Err(Error::bad_input(format!(
                "attribute `{}`: an index of points cannot be lenient",
                self.path
            )))
        } else {
            Ok(())
        }
    }

    /// Rejects unique values in an index that a commit cannot search for one value: kinds without a
    /// tree of their own, and tokens in place of values.
    pub fn check_unique(&self) -> Result<()> {
        if !self.unique {
            return Ok(());
        }
        if !self.kind.can_be_unique() {
            return Err(Error::bad_input(format!(
                "attribute `{}`: an index of kind {} cannot be unique: use lazy, composite, recent or eager",
                self.path, self.kind
            )));
        }
        if self.tokenizer != Tokenizer::Exact {
            return Err(Error::bad_input(format!(
                "attribute `{}`: an index with the tokenizer {} cannot be unique: leave the tokenizer out",
                self.path, self.tokenizer
            )));
        }
        Ok(())
    }

    /// The values to extract from a record for it.
    pub fn wanted(&self) -> Wanted {
        Wanted::new(self.path.clone(), self.ty).lenient(self.lenient)
    }

    /// Sets the tokenizer.
    pub fn tokenizer(self, tokenizer: Tokenizer) -> IndexDef {
        IndexDef { tokenizer, ..self }
    }
}

pub(super) fn is_false(set: &bool) -> bool {
    !set
}
