//! Definitions: what a dataset's key is, which attributes it indexes, and how.

mod index;
mod kind;
mod stored;
mod strategy;

pub use index::Index;
pub use kind::IndexKind;
pub use stored::{MaintenanceSettings, StoredAttribute, StoredChange, StoredDef};
pub use strategy::{Maintenance, Merging, Repair};

use crate::error::{Error, Result};
use crate::schema::{IntoPath, KeyType, Path, Type};
use crate::tokens::Tokenizer;

/// The most attributes that a dataset may have.
pub const MAX_INDEXES: usize = 64;

/// One indexed attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDef {
    /// Where in the record it is.
    pub path: Path,
    /// How it is indexed.
    pub kind: IndexKind,
    /// What its values are.
    pub ty: Type,
    /// What the index holds of them.
    pub tokenizer: Tokenizer,
}

/// The definition of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetDef {
    /// Where in the record its primary key is.
    pub key: Path,
    /// Whether keys are integers or strings.
    pub key_type: KeyType,
    /// The indexed attributes, each path once.
    pub indexes: Vec<IndexDef>,
    /// When index entries of replaced records are found to be obsolete.
    pub maintenance: Maintenance,
    /// The strategy is chosen by what is measured, `maintenance` being the present choice
    /// ([`DatasetDef::auto`]).
    pub auto: bool,
    /// When what replaced records left behind is noted to be obsolete.
    pub repair: Repair,
    /// How the trees are merged.
    pub merging: Merging,
    /// How many versions of a record are kept; more than one with deferred maintenance only.
    pub versions: u32,
    /// What is wrong with what it was made of: reported by [`DatasetDef::validate`].
    mistake: Option<String>,
}

/// The path; where it is none, a stand-in and what is wrong with it.
fn path_or_mistake(path: impl IntoPath) -> (Path, Option<String>) {
    match path.into_path() {
        Ok(path) => (path, None),
        Err(error) => (Path::stand_in(), Some(error.to_string())),
    }
}

impl DatasetDef {
    /// A dataset without indexes.
    pub fn new(key: impl IntoPath, key_type: KeyType) -> DatasetDef {
        let (key, mistake) = path_or_mistake(key);
        DatasetDef {
            key,
            mistake,
            key_type,
            indexes: Vec::new(),
            maintenance: Maintenance::default(),
            auto: false,
            repair: Repair::default(),
            merging: Merging::default(),
            versions: 1,
        }
    }

    /// The same with another maintenance strategy.
    pub fn maintenance(self, maintenance: Maintenance) -> DatasetDef {
        DatasetDef {
            maintenance,
            auto: false,
            ..self
        }
    }

    /// The same with a maintenance strategy that follows what is measured: validation to begin with,
    /// then eager, validation or mutable-bitmap, whichever is expected to cost least
    /// (the dataset's statistics say why).
    pub fn auto(self) -> DatasetDef {
        DatasetDef {
            maintenance: Maintenance::Validation,
            auto: true,
            ..self
        }
    }

    /// The same with another time of repair.
    pub fn repair(self, repair: Repair) -> DatasetDef {
        DatasetDef { repair, ..self }
    }

    /// The same with another way of merging.
    pub fn merging(self, merging: Merging) -> DatasetDef {
        DatasetDef { merging, ..self }
    }

    /// The same with so many versions kept of each record.
    pub fn versions(self, versions: u32) -> DatasetDef {
        DatasetDef { versions, ..self }
    }

    /// The same with one more indexed attribute, of which the type must be said.
    pub fn index(mut self, path: impl IntoPath, index: Index) -> DatasetDef {
        let (path, mistake) = path_or_mistake(path);
        let untyped = || format!("attribute `{path}`: its type must be said");
        let mistake = mistake.or_else(|| index.ty.is_none().then(untyped));
        self.mistake = self.mistake.or(mistake);
        self.indexes.push(IndexDef {
            path,
            kind: index.kind,
            ty: index.ty.unwrap_or(Type::String),
            tokenizer: index.tokenizer,
        });
        self
    }

    /// Refuses what does not fit together: with [`Error::BadInput`], as the making of a dataset does.
    pub fn validate(&self) -> Result<()> {
        if let Some(mistake) = &self.mistake {
            return Err(Error::bad_input(mistake.clone()));
        }
        if self.indexes.len() > MAX_INDEXES {
            return Err(Error::bad_input(format!(
                "{} indexes, over the limit of {MAX_INDEXES}",
                self.indexes.len()
            )));
        }
        if self.versions == 0 || (self.versions > 1 && self.maintenance != Maintenance::Deferred) {
            return Err(Error::bad_input(format!(
                "{} versions of a record: at least 1, and more than 1 with deferred maintenance only",
                self.versions
            )));
        }
        if self.auto && !self.maintenance.uses_keys() {
            return Err(Error::bad_input(format!(
                "maintenance that is chosen automatically is never {}",
                self.maintenance
            )));
        }
        if self.repair == Repair::Staged && self.maintenance != Maintenance::Deferred {
            return Err(Error::bad_input(
                "staged repair goes with deferred maintenance only".to_string(),
            ));
        }
        for (at, index) in self.indexes.iter().enumerate() {
            check_tokenizer(index.tokenizer, index.kind, index.ty)?;
            if self
                .indexes
                .iter()
                .take(at)
                .any(|other| other.path == index.path)
            {
                return Err(Error::bad_input(format!(
                    "attribute `{}` is indexed twice",
                    index.path
                )));
            }
        }
        Ok(())
    }
}

/// Refuses a tokenizer that does not go with a kind of index or a type.
pub fn check_tokenizer(tokenizer: Tokenizer, kind: IndexKind, ty: Type) -> Result<()> {
    let fits = match tokenizer {
        Tokenizer::Exact => return Ok(()),
        Tokenizer::Prefix => ty == Type::String,
        Tokenizer::Number => matches!(ty, Type::Int | Type::Float | Type::Time),
    };
    if !fits {
        return Err(Error::bad_input(format!(
            "the tokenizer {tokenizer} does not go with type {ty}: prefix is for string, number for int, float and time"
        )));
    }
    if !kind.is_standalone() {
        return Err(Error::bad_input(format!(
            "the tokenizer {tokenizer} does not go with an index of kind {kind}: it is for lazy, composite, recent and eager"
        )));
    }
    Ok(())
}
