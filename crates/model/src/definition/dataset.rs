//! The definition of a dataset.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::attribute::is_false;
use super::{
    Index, IndexDef, IndexKind, Layout, MAX_INDEXES, Maintenance, Merging, Repair, check_fields,
    check_place_and_time, check_tokenizer, check_type,
};
use crate::PrimaryKey;
use crate::error::{Error, Result};
use crate::schema::{IntoPath, KeyType, Path, Type, key_paths, point_time_paths};
use crate::tokens::Tokenizer;

/// Checks the name of a new dataset: 1 to 64 letters, digits, `-`, `_` and `.`, but not `.` and
/// `..`, which addresses cannot hold.
///
/// # Errors
/// [`Error::BadInput`] for any other name.
pub fn check_dataset_name(name: &str) -> Result<()> {
    check_name("dataset", name)
}

/// As [`check_dataset_name`], for the name of something else, `what`.
///
/// # Errors
/// [`Error::BadInput`].
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let why = match name {
        "." | ".." => "an address cannot hold it, choose another",
        _ if name.is_empty() || name.len() > 64 || !name.chars().all(fits) => {
            "1 to 64 letters, digits, `-`, `_` and `.` are allowed"
        }
        _ => return Ok(()),
    };
    Err(Error::bad_input(format!("{what} name `{name}`: {why}")))
}

/// The definition of a dataset. Its serialised form needs only a key and its type. It is checked
/// when a dataset is created from it.
///
/// ```
/// # use esker_model as esker;
/// use esker::definition::DatasetDef;
///
/// let text = r#"{"key": "id", "key_type": "int",
///     "indexes": [{"path": "at", "kind": "embedded", "type": "time"}]}"#;
/// let def: DatasetDef = serde_json::from_str(text)?;
/// assert_eq!(def.indexes[0].path.to_string(), "at");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DatasetDef {
    /// The path of the primary key in the record.
    pub key: Path,
    /// Whether keys are integers, strings, or several fields.
    pub key_type: KeyType,
    /// A record without a key gets one ([`DatasetDef::auto_key`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_key: bool,
    /// The indexed attributes, each path once.
    #[serde(default)]
    pub indexes: Vec<IndexDef>,
    /// When outdated index entries are detected: at write time or at query time.
    #[serde(default)]
    pub maintenance: Maintenance,
    /// Measurements choose the strategy; `maintenance` is the current choice
    /// ([`DatasetDef::auto`]).
    #[serde(default)]
    pub auto: bool,
    /// When the store records which writes are obsolete (replaced or deleted since).
    #[serde(default)]
    pub repair: Repair,
    /// How the trees are compacted.
    #[serde(default)]
    pub merging: Merging,
    /// How many versions of a record to keep; more than one only with deferred maintenance.
    #[serde(default = "one")]
    pub versions: u32,
    /// When records expire.
    #[serde(default, flatten)]
    pub expiry: Expiry,
    /// Whether the change feed contains the records that changes replaced
    /// ([`DatasetDef::keep_old_records`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub old_records: bool,
    /// `key_type` is not said yet ([`DatasetDef::key`]).
    #[serde(skip)]
    pub(super) is_key_type_open: bool,
    /// The first error of the builder methods, reported by [`DatasetDef::validate`].
    #[serde(skip)]
    pub(super) mistake: Option<String>,
}

fn one() -> u32 {
    1
}

/// The path; if it is invalid, a placeholder and the error.
fn path_or_mistake(path: impl IntoPath) -> (Path, Option<String>) {
    match path.into_path() {
        Ok(path) => (path, None),
        Err(error) => (Path::stand_in(), Some(error.to_string())),
    }
}

/// When records expire: at the earlier of the two times. A record with neither time never expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Expiry {
    /// The time from a record's write to its expiry, in whole milliseconds.
    #[serde(
        default,
        rename = "ttl_ms",
        with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl: Option<Duration>,
    /// The path of the record's own expiry time; of several times the earliest counts. Absent or
    /// null: never.
    #[serde(default, rename = "expires", skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// The type of the time at `path`, which defines the unit of its numbers.
    #[serde(
        default = "time",
        rename = "expires_type",
        skip_serializing_if = "is_plain_time"
    )]
    pub ty: Type,
}

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry {
            ttl: None,
            path: None,
            ty: time(),
        }
    }
}

fn time() -> Type {
    Type::Time
}

fn is_plain_time(ty: &Type) -> bool {
    *ty == Type::Time
}

/// A time to live, serialised in milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        ttl: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let millis = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        millis.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

impl Expiry {
    /// True if records may expire.
    pub fn is_some(&self) -> bool {
        self.ttl.is_some() || self.path.is_some()
    }

    /// Rejects a time to live that is shorter than a millisecond or longer than a million years,
    /// and a type that is not a time.
    pub fn validate(&self) -> Result<()> {
        if !self.ty.is_time() {
            return Err(Error::bad_input(format!(
                "records expire at a time, but {} is not a type of times: use time, time_s, time_ms, time_us or time_ns",
                self.ty
            )));
        }
        let millis = self.ttl.map(|ttl| ttl.as_millis());
        if millis.is_none_or(|millis| (1..=LONGEST_TTL).contains(&millis)) {
            Ok(())
        } else {
            Err(Error::bad_input(
                "a time to live must be at least a millisecond and at most a million years"
                    .to_string(),
            ))
        }
    }
}

fn key_type_missing() -> Error {
    Error::bad_input(
        "the definition does not say the type of the key: name it (`DatasetDef::new`), or create the dataset for keys of a type".to_string(),
    )
}

/// The longest time to live in milliseconds: a million years.
const LONGEST_TTL: u128 = 1_000_000 * 366 * 86_400_000;

impl DatasetDef {
    /// A dataset without indexes whose records have their primary key at `key`. The program's type
    /// of keys says the type, where the dataset is created (`create_dataset::<u64>`).
    pub fn key(key: impl IntoPath) -> DatasetDef {
        DatasetDef {
            is_key_type_open: true,
            ..DatasetDef::new(key, KeyType::String)
        }
    }

    /// The definition for keys of the program's type `K`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if neither says the type of the key.
    pub fn with_keys<K: PrimaryKey>(mut self) -> Result<DatasetDef> {
        if self.is_key_type_open {
            self.key_type = K::KEY_TYPE.ok_or_else(key_type_missing)?;
            self.is_key_type_open = false;
        }
        Ok(self)
    }

    /// A dataset without indexes, with keys of a type.
    pub fn new(key: impl IntoPath, key_type: KeyType) -> DatasetDef {
        let (key, mistake) = path_or_mistake(key);
        DatasetDef {
            key,
            mistake,
            key_type,
            is_key_type_open: false,
            auto_key: false,
            indexes: Vec::new(),
            maintenance: Maintenance::default(),
            auto: false,
            repair: Repair::default(),
            merging: Merging::default(),
            versions: 1,
            expiry: Expiry::default(),
            old_records: false,
        }
    }

    /// A dataset without indexes that adds the key `_id` to records without one: a UUID of version
    /// 7, so that later records have greater keys.
    pub fn auto_key() -> DatasetDef {
        DatasetDef {
            auto_key: true,
            ..DatasetDef::new("_id", KeyType::String)
        }
    }

    /// Makes the change feed return with each change the record that it replaced or deleted. Each
    /// write then also reads and logs the old record. This cannot be changed after the dataset is
    /// created.
    pub fn keep_old_records(self) -> DatasetDef {
        DatasetDef {
            old_records: true,
            ..self
        }
    }

    /// Sets how long after its write a record expires. Can be changed later; a change applies to
    /// records written afterwards.
    pub fn ttl(mut self, ttl: Duration) -> DatasetDef {
        self.expiry.ttl = Some(ttl);
        self
    }

    /// Records expire at the time in their field `path`: text, or seconds since 1970. Absent or
    /// null: never.
    pub fn expires_at(self, path: impl IntoPath) -> DatasetDef {
        self.expires_as(path, Type::Time)
    }

    /// Records expire at the time of type `ty` in their field `path`: text, or a number in the unit
    /// of the type. Absent or null: never.
    pub fn expires_as(mut self, path: impl IntoPath, ty: Type) -> DatasetDef {
        let (path, mistake) = path_or_mistake(path);
        self.expiry.path = Some(path);
        self.expiry.ty = ty;
        self.mistake = self.mistake.or(mistake);
        self
    }

    /// Sets the maintenance strategy.
    pub fn maintenance(self, maintenance: Maintenance) -> DatasetDef {
        DatasetDef {
            maintenance,
            auto: false,
            ..self
        }
    }

    /// Lets measurements choose the maintenance strategy: first validation, then whichever of
    /// eager, validation and mutable-bitmap is expected to cost least (the dataset's statistics say
    /// why).
    pub fn auto(self) -> DatasetDef {
        DatasetDef {
            maintenance: Maintenance::Validation,
            auto: true,
            ..self
        }
    }

    /// Sets when obsolete writes are recorded.
    pub fn repair(self, repair: Repair) -> DatasetDef {
        DatasetDef { repair, ..self }
    }

    /// Sets the compaction policy.
    pub fn merging(self, merging: Merging) -> DatasetDef {
        DatasetDef { merging, ..self }
    }

    /// Sets how many versions of each record to keep.
    pub fn versions(self, versions: u32) -> DatasetDef {
        DatasetDef { versions, ..self }
    }

    /// Adds an indexed attribute; `index` must give its type.
    pub fn index(mut self, path: impl IntoPath, index: Index) -> DatasetDef {
        let (path, mistake) = path_or_mistake(path);
        let untyped =
            || format!("the index of `{path}` has no type: give one, as in Index::lazy().string()");
        let ty = index.type_of();
        let mistake = mistake.or_else(|| ty.is_none().then(untyped));
        self.mistake = self.mistake.or(mistake);
        self.indexes.push(IndexDef {
            path,
            kind: index.kind,
            ty: ty.unwrap_or(Type::String),
            tokenizer: index.tokenizer,
            lenient: index.lenient,
            unique: index.unique,
        });
        self
    }

    /// Stores the records in the order of the points at `path`, so that a query for an area reads
    /// neighbouring blocks; a lookup by key needs one more read. The path is as for
    /// [`Index::spatial`], or `POINT@TIME` as for [`Index::space_time`]; points of the plane must
    /// be declared first. This cannot be changed after the dataset is created.
    pub fn cluster(mut self, path: impl IntoPath) -> DatasetDef {
        let (path, mistake) = path_or_mistake(path);
        self.mistake = self.mistake.or(mistake);
        let kind = match point_time_paths(&path) {
            Ok(_) => IndexKind::SpaceTime(Layout::Clustered),
            Err(_) => IndexKind::Spatial(Layout::Clustered),
        };
        let declared = self.indexes.iter_mut().find(|known| known.path == path);
        match declared {
            Some(known) if known.kind == IndexKind::None => known.kind = kind,
            // `validate` rejects an attribute that is already indexed.
            _ => self.indexes.push(IndexDef {
                ty: kind.type_for(None).unwrap_or(Type::Point),
                path,
                kind,
                tokenizer: Tokenizer::Exact,
                lenient: false,
                unique: false,
            }),
        }
        self
    }

    /// Rejects inconsistent settings with [`Error::BadInput`], as creating a dataset does.
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
                "{} versions of a record: the number must be at least 1, and more than 1 needs deferred maintenance",
                self.versions
            )));
        }
        if self.is_key_type_open {
            return Err(key_type_missing());
        }
        if self.auto && !self.maintenance.uses_keys() {
            return Err(Error::bad_input(format!(
                "automatic maintenance never chooses {}",
                self.maintenance
            )));
        }
        if self.repair == Repair::Staged && self.maintenance != Maintenance::Deferred {
            return Err(Error::bad_input(
                "staged repair needs deferred maintenance".to_string(),
            ));
        }
        if self.key_type == KeyType::Fields && key_paths(&self.key)?.len() < 2 {
            return Err(Error::bad_input(format!(
                "a composite key is several fields separated by commas, but `{}` is one field",
                self.key
            )));
        }
        if self.auto_key && self.key_type != KeyType::String {
            return Err(Error::bad_input(
                "an automatic key must be of type string".to_string(),
            ));
        }
        self.expiry.validate()?;
        let clustered = self
            .indexes
            .iter()
            .filter(|index| index.kind.is_clustered());
        let clustered = clustered.count();
        if clustered > 1 {
            return Err(Error::bad_input(format!(
                "{clustered} fields to store the records by: a dataset is stored in the order of one field"
            )));
        }
        if clustered > 0 && self.versions > 1 {
            return Err(Error::bad_input(format!(
                "{} versions of a record: a dataset stored by location keeps one",
                self.versions
            )));
        }
        for (at, index) in self.indexes.iter().enumerate() {
            check_tokenizer(index.tokenizer, index.kind, index.ty)?;
            check_type(&index.path, index.kind, index.ty)?;
            index.check_lenient()?;
            index.check_unique()?;
            let declared = |path: &Path| {
                let other = self.indexes.iter().find(|other| other.path == *path);
                other.map(|other| other.ty)
            };
            check_place_and_time(&index.path, index.ty, declared)?;
            check_fields(&index.path, index.ty, declared)?;
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
