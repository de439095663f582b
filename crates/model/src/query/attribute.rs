//! An attribute of a dataset, as one definition declares it, and its values in records.

use std::convert::Infallible;

use crate::definition::{IndexKind, StoredAttribute, StoredDef};
use crate::record::RecordRef;
use crate::schema::{
    Extracted, Extraction, KeyType, Path, RecordError, Type, compound_is_whole, compound_paths,
    stand_in,
};
use crate::tokens::Tokenizer;

/// An attribute of a dataset, according to one definition.
#[derive(Debug)]
pub struct Attribute {
    /// Its number in stored records.
    pub id: u32,
    /// Its path in the record.
    pub path: Path,
    /// The type of its values.
    pub ty: Type,
    /// The kind of its index.
    pub kind: IndexKind,
    /// How its values become tokens of the index.
    pub tokenizer: Tokenizer,
    /// True if records with values of other types are kept.
    pub lenient: bool,
    /// True if no two current records may have the same value.
    pub unique: bool,
    /// True if a float stands for all numbers that are rounded to it.
    pub rounds: bool,
    /// The fields of a compound index, in their order; empty for other attributes.
    pub fields: Vec<Path>,
    late: BackfillExtractor,
}

impl Attribute {
    /// The attribute `stored` of the definition `def`.
    pub fn new(stored: &StoredAttribute, def: &StoredDef) -> Attribute {
        let index = &stored.def;
        Attribute {
            id: stored.id,
            path: index.path.clone(),
            ty: index.ty,
            kind: index.kind,
            tokenizer: index.tokenizer,
            lenient: index.lenient,
            unique: index.unique,
            rounds: !stored.exact,
            // A definition with a path that cannot be split is refused.
            fields: Some(&index.path)
                .filter(|_| index.ty.is_compound())
                .and_then(|path| compound_paths(path).ok())
                .unwrap_or_default(),
            late: BackfillExtractor::new(&(def.key.clone(), def.key_type), stored, def),
        }
    }

    /// True if `test` holds for a value of the attribute in the record. Values come ascending, up
    /// to the first for which it holds.
    #[inline]
    pub fn any_value(&self, record: &RecordRef<'_>, mut test: impl FnMut(&[u8]) -> bool) -> bool {
        if self.id < record.known() {
            return record
                .attributes()
                .any(|(id, value)| id == self.id && test(value));
        }
        self.late.any_value(record.body(), &mut test)
    }

    /// True if records may share the value although the index is unique: it stands for values that
    /// the index does not tell apart, or some field of a compound value has none.
    pub fn may_be_shared(&self, value: &[u8]) -> bool {
        if self.ty.is_compound() {
            !compound_is_whole(value)
        } else {
            stand_in(self.ty) == Some(value)
        }
    }

    /// True if the record has something at the path that is not indexed.
    pub fn is_unindexed(&self, record: &RecordRef<'_>) -> bool {
        if self.id < record.known() {
            return record.unindexed().any(|id| id == self.id);
        }
        let mut out = Extracted::default();
        let extracted = self.late.extraction.extract(record.body(), &mut out);
        extracted.is_ok() && out.unindexed().next().is_some()
    }

    /// Passes the tokens that the index has of a record to `show`.
    pub fn each_token(&self, record: &RecordRef<'_>, show: &mut dyn FnMut(&[u8])) {
        let mut values = Vec::new();
        self.any_value(record, |value| {
            match self.tokenizer {
                Tokenizer::Prefix => values.push(value.to_vec()),
                Tokenizer::Exact | Tokenizer::Number => show(value),
            }
            false
        });
        let values = values.iter().map(Vec::as_slice);
        let Ok(()) = self.tokenizer.each(values, |token| {
            show(token);
            Ok::<_, Infallible>(())
        });
    }

    /// The values of the attribute in a record; `out` is a buffer.
    ///
    /// # Errors
    /// If the record was stored before the attribute was declared, and does not fit it.
    pub fn values_of(
        &self,
        record: &RecordRef<'_>,
        out: &mut Extracted,
    ) -> Result<Vec<Vec<u8>>, RecordError> {
        if self.id < record.known() {
            let mine = record.attributes().filter(|(id, _)| *id == self.id);
            return Ok(mine.map(|(_, value)| value.to_vec()).collect());
        }
        self.late.extraction.extract(record.body(), out)?;
        Ok(out.values(0).map(<[u8]>::to_vec).collect())
    }
}

/// Reads one attribute out of the JSON of records that were stored before it was declared.
#[derive(Debug)]
pub struct BackfillExtractor {
    /// The number of the attribute.
    pub id: u32,
    extraction: Extraction,
}

impl BackfillExtractor {
    /// For the attribute `stored` of the definition `def`, whose primary key is `key`.
    pub fn new(
        key: &(Path, KeyType),
        stored: &StoredAttribute,
        def: &StoredDef,
    ) -> BackfillExtractor {
        let wanted = def.wanted(&stored.def).rounding(!stored.exact);
        BackfillExtractor {
            id: stored.id,
            extraction: Extraction::of(key.clone(), vec![wanted]),
        }
    }

    /// True if `test` holds for a value of the attribute in the JSON. A record that does not fit
    /// the attribute has none: it was replaced or deleted before the attribute was declared, so
    /// that no snapshot with the attribute shows it.
    #[cold]
    pub fn any_value(&self, body: &[u8], test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut out = Extracted::default();
        self.extraction.extract(body, &mut out).is_ok() && out.values(0).any(test)
    }
}
