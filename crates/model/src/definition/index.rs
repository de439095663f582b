//! A builder for the description of an index.

use super::{IndexKind, Layout};
use crate::schema::Type;
use crate::tokens::Tokenizer;

/// A description of an index: its kind, the type of the attribute, and its tokenizer.
///
/// ```
/// use esker_model::definition::{Index, IndexKind};
/// use esker_model::schema::Type;
///
/// let index = Index::recent().string();
/// assert_eq!(index, Index::new(IndexKind::Recent).of_type(Type::String));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    pub(super) kind: IndexKind,
    pub(super) ty: Option<Type>,
    pub(super) tokenizer: Tokenizer,
    pub(super) lenient: bool,
    pub(super) unique: bool,
}

impl Index {
    /// An index of this kind.
    pub fn new(kind: IndexKind) -> Index {
        Index {
            kind,
            ty: None,
            tokenizer: Tokenizer::Exact,
            lenient: false,
            unique: false,
        }
    }

    /// See [`IndexKind::Embedded`].
    pub fn embedded() -> Index {
        Index::new(IndexKind::Embedded)
    }

    /// See [`IndexKind::Fingerprint`].
    pub fn fingerprint() -> Index {
        Index::new(IndexKind::Fingerprint)
    }

    /// See [`IndexKind::Filter`].
    pub fn filter() -> Index {
        Index::new(IndexKind::Filter)
    }

    /// See [`IndexKind::Lazy`].
    pub fn lazy() -> Index {
        Index::new(IndexKind::Lazy)
    }

    /// See [`IndexKind::Composite`].
    pub fn composite() -> Index {
        Index::new(IndexKind::Composite)
    }

    /// See [`IndexKind::Recent`].
    pub fn recent() -> Index {
        Index::new(IndexKind::Recent)
    }

    /// An [`IndexKind::Spatial`] index for points on the sphere, in the default layout. Its path is
    /// that of a GeoJSON point or of an array of two numbers, or `LON_PATH,LAT_PATH`.
    pub fn spatial() -> Index {
        Index::new(IndexKind::Spatial(Layout::default())).of_type(Type::Point)
    }

    /// An [`IndexKind::SpaceTime`] index for points on the sphere at a time, in the default layout.
    /// Its path is `POINT@TIME`: the path of a point as for [`Index::spatial`], and that of a
    /// declared attribute with the time.
    pub fn space_time() -> Index {
        Index::new(IndexKind::SpaceTime(Layout::default())).of_type(Type::PointTime)
    }

    /// No index: the attribute is only declared, and records that do not fit its type are refused.
    pub fn none() -> Index {
        Index::new(IndexKind::None)
    }

    /// For an attribute of this type.
    pub fn of_type(self, ty: impl Into<Option<Type>>) -> Index {
        Index {
            ty: ty.into(),
            ..self
        }
    }

    /// For whole numbers.
    pub fn int(self) -> Index {
        self.of_type(Type::Int)
    }

    /// For floats.
    pub fn float(self) -> Index {
        self.of_type(Type::Float)
    }

    /// For text.
    pub fn string(self) -> Index {
        self.of_type(Type::String)
    }

    /// For truth values.
    pub fn bool(self) -> Index {
        self.of_type(Type::Bool)
    }

    /// For points in time; numbers are seconds since 1970. Other units have their own types:
    /// [`Type::TIMES`].
    pub fn time(self) -> Index {
        self.of_type(Type::Time)
    }

    /// For points of the plane.
    pub fn plane(self) -> Index {
        let ty = self.kind.type_for(Some(Type::PlanePoint));
        self.of_type(ty)
    }

    /// For the values of several fields together. Its path is that of the fields, with commas
    /// between them, as in `user,at`; each field is declared by itself ([`Index::none`], or with an
    /// index of its own). It answers conditions on the first field, on the first and the second,
    /// and so on; the last of these may be a range. For the kinds lazy, composite, recent and
    /// eager.
    pub fn compound(self) -> Index {
        self.of_type(Type::Compound)
    }

    /// Sets the tokenizer.
    pub fn tokenizer(self, tokenizer: Tokenizer) -> Index {
        Index { tokenizer, ..self }
    }

    /// Keeps records with a value of another type; queries find them as a scan would. Without this
    /// such records are refused.
    pub fn lenient(self) -> Index {
        Index {
            lenient: true,
            ..self
        }
    }

    /// As [`Index::lenient`] if `lenient` is true.
    pub fn lenient_if(self, lenient: bool) -> Index {
        Index { lenient, ..self }
    }

    /// True if [`Index::lenient`] is set.
    pub fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// No two current records may have the same value: a write that would give a record the value
    /// of another one is refused. For the kinds lazy, composite, recent and eager.
    ///
    /// Records without a value are not affected. Of arrays each element counts. A record that has
    /// expired no longer holds its values. In a [lenient](Index::lenient) index, values of other
    /// types are not compared.
    pub fn unique(self) -> Index {
        Index {
            unique: true,
            ..self
        }
    }

    /// As [`Index::unique`] if `unique` is true.
    pub fn unique_if(self, unique: bool) -> Index {
        Index { unique, ..self }
    }

    /// True if [`Index::unique`] is set.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Its kind.
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// The attribute's type, if it is given or follows from the kind.
    pub fn type_of(&self) -> Option<Type> {
        self.kind.type_for(self.ty)
    }

    /// The attribute's type, if the definition names it; otherwise an attribute that is declared
    /// already keeps its type.
    pub fn explicit_type(&self) -> Option<Type> {
        self.ty.and_then(|ty| self.kind.type_for(Some(ty)))
    }

    /// Its tokenizer.
    pub fn tokens(&self) -> Tokenizer {
        self.tokenizer
    }
}

impl From<IndexKind> for Index {
    fn from(kind: IndexKind) -> Index {
        Index::new(kind)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::definition::DatasetDef;
    use crate::schema::KeyType;

    #[test]
    fn a_type_follows_from_the_kinds_for_points() {
        for layout in Layout::ALL {
            let (points, timed) = (IndexKind::Spatial(layout), IndexKind::SpaceTime(layout));
            for (kind, ty) in [(points, Type::Point), (timed, Type::PointTime)] {
                let index = Index::new(kind);
                assert_eq!((index.type_of(), index.explicit_type()), (Some(ty), None));
                assert_eq!(index.of_type(ty).explicit_type(), Some(ty));
            }
            let def = DatasetDef::new("id", KeyType::Int).index("at", Index::new(points));
            def.validate().unwrap();
            let plane = Index::new(points).plane();
            assert_eq!(plane.type_of(), Some(Type::PlanePoint));
        }
        assert_eq!(Index::lazy().type_of(), None);
    }
}
