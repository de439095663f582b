//! The shape of a dataset: all that a condition is compiled against.

use std::sync::Arc;

use super::Attribute;
use crate::definition::StoredDef;
use crate::error::{Error, Result};
use crate::schema::{KeyType, Path, Type, Value, key_paths};

/// The primary key and the attributes of a dataset, according to one definition.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The path of the primary key.
    pub key: Path,
    /// The type of the primary key.
    pub key_type: KeyType,
    /// The declared attributes, by their place in the definition.
    pub attributes: Vec<Arc<Attribute>>,
}

impl Shape {
    /// The shape that a definition describes.
    pub fn new(def: &StoredDef) -> Shape {
        let attributes = def.attributes.iter();
        Shape {
            key: def.key.clone(),
            key_type: def.key_type,
            attributes: attributes
                .map(|stored| Arc::new(Attribute::new(stored, def)))
                .collect(),
        }
    }

    /// The paths of the fields of the primary key: of most keys one.
    pub fn key_paths(&self) -> Vec<Path> {
        match self.key_type {
            // A definition with a path that cannot be split is refused.
            KeyType::Fields => key_paths(&self.key).unwrap_or_default(),
            KeyType::Int | KeyType::String => vec![self.key.clone()],
        }
    }

    /// The attribute at a place.
    #[inline]
    pub fn attribute(&self, at: usize) -> Option<&Attribute> {
        self.attributes.get(at).map(|attribute| &**attribute)
    }

    /// Reads a value for the field at `path` from text: of the declared type, otherwise a number if
    /// it is one, otherwise text.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it is not a value of the declared type.
    pub fn parse_value(&self, path: &Path, text: &str) -> Result<Value> {
        match self.declared(path) {
            Some(attribute) => Value::parse(attribute.ty, text)
                .map_err(|why| Error::bad_input(format!("{path}: {why}"))),
            None => Ok((text.parse().map(Value::Int))
                .or_else(|_| Value::parse(Type::Float, text))
                .unwrap_or_else(|_| Value::String(text.to_string()))),
        }
    }

    /// The declared type of the field at `path`, whose values are put in order; `None` without a
    /// declaration.
    ///
    /// # Errors
    /// [`Error::BadInput`] for points.
    pub(super) fn ordered_type(&self, path: &Path) -> Result<Option<Type>> {
        let declared = self.declared(path);
        match declared.map(|attribute| attribute.ty) {
            Some(ty) if ty.has_place() => {
                Err(Error::bad_input(format!("{path}: points are not ordered")))
            }
            ty => Ok(ty),
        }
    }

    /// The place of the attribute that is declared at `path`. The path of a compound index is no
    /// field.
    pub fn place_of(&self, path: &Path) -> Option<usize> {
        let is_at = |a: &Arc<Attribute>| a.path == *path && !a.ty.is_compound();
        self.attributes.iter().position(is_at)
    }

    /// The attribute that is declared at `path`.
    pub(super) fn declared(&self, path: &Path) -> Option<&Attribute> {
        self.attribute(self.place_of(path)?)
    }
}
