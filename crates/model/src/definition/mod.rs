//! Definitions of datasets: the key, the indexed attributes, and the kinds of their indexes.

mod external;
mod index;
mod kind;
mod stored;
mod strategy;
mod text;

pub use external::ExternalKind;
pub use index::Index;
pub use kind::{IndexKind, Layout};
pub use stored::{MaintenanceSettings, StoredAttribute, StoredChange, StoredDef};
pub use strategy::{Maintenance, Merging, Repair};
pub use text::{ExpiresText, IndexText, KINDS, KeyText};

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::geometry::Space;
use crate::schema::{
    IntoPath, KeyType, Path, Type, Wanted, coordinate_paths, key_paths, point_time_paths,
};
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
    /// Records with a value of another type at the path are kept, and found as a scan finds them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lenient: bool,
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
        }
    }

    /// The same, where `lenient` of an attribute that may have values of other types, too.
    pub fn lenient(self, lenient: bool) -> IndexDef {
        IndexDef { lenient, ..self }
    }

    /// Refuses a lenient index of points.
    pub fn check_lenient(&self) -> Result<()> {
        match self.lenient && self.ty.has_place() {
            false => Ok(()),
            true => Err(Error::bad_input(format!(
                "attribute `{}`: an index of points cannot be lenient",
                self.path
            ))),
        }
    }

    /// What is extracted of a record for it.
    pub fn wanted(&self) -> Wanted {
        Wanted::new(self.path.clone(), self.ty).lenient(self.lenient)
    }

    /// The same, with values that become several tokens of the index.
    pub fn tokenizer(self, tokenizer: Tokenizer) -> IndexDef {
        IndexDef { tokenizer, ..self }
    }
}

/// The definition of a dataset. Serialised, it needs a key and its type alone; it is checked when a dataset is made of it.
///
/// ```
/// # use model as esker;
/// use esker::definition::DatasetDef;
///
/// let text = r#"{"key": "id", "key_type": "int", "indexes": [{"path": "at", "kind": "embedded", "type": "time"}]}"#;
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
    /// When index entries of replaced records are found to be obsolete.
    #[serde(default)]
    pub maintenance: Maintenance,
    /// The strategy is chosen by measurements, `maintenance` being the current choice ([`DatasetDef::auto`]).
    #[serde(default)]
    pub auto: bool,
    /// When obsolete writes are recorded as such.
    #[serde(default)]
    pub repair: Repair,
    /// How the trees are compacted.
    #[serde(default)]
    pub merging: Merging,
    /// How many versions of a record are kept; more than one with deferred maintenance only.
    #[serde(default = "one")]
    pub versions: u32,
    /// When records expire.
    #[serde(default, flatten)]
    pub expiry: Expiry,
    /// The change feed has the records that changes replaced ([`DatasetDef::keep_old_records`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub old_records: bool,
    /// What is wrong with what it was made of: reported by [`DatasetDef::validate`].
    #[serde(skip)]
    mistake: Option<String>,
}

fn one() -> u32 {
    1
}

fn is_false(set: &bool) -> bool {
    !set
}

/// The path; where it is none, a stand-in and what is wrong with it.
fn path_or_mistake(path: impl IntoPath) -> (Path, Option<String>) {
    match path.into_path() {
        Ok(path) => (path, None),
        Err(error) => (Path::stand_in(), Some(error.to_string())),
    }
}

/// When records expire: the earlier one of the two counts, and a record for which neither says anything never does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Expiry {
    /// So long after they were written, to the millisecond.
    #[serde(
        default,
        rename = "ttl_ms",
        with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl: Option<Duration>,
    /// At the time at this path of the record; the earliest of several. Absent or null: never.
    #[serde(default, rename = "expires", skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// The type of that time, which says the unit of its numbers.
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
    /// True when records may expire.
    pub fn is_some(&self) -> bool {
        self.ttl.is_some() || self.path.is_some()
    }

    /// Refuses a time to live that is none, or that no clock reaches.
    pub fn validate(&self) -> Result<()> {
        if !self.ty.is_time() {
            return Err(Error::bad_input(format!(
                "records expire at a time, and {} is none: use time, time_s, time_ms, time_us or time_ns",
                self.ty
            )));
        }
        let millis = self.ttl.map(|ttl| ttl.as_millis());
        match millis.is_none_or(|millis| (1..=LONGEST_TTL).contains(&millis)) {
            true => Ok(()),
            false => Err(Error::bad_input(
                "a time to live is at least a millisecond and at most a million years".to_string(),
            )),
        }
    }
}

/// In milliseconds: some million years.
const LONGEST_TTL: u128 = 1_000_000 * 366 * 86_400_000;

impl DatasetDef {
    /// A dataset without indexes.
    pub fn new(key: impl IntoPath, key_type: KeyType) -> DatasetDef {
        let (key, mistake) = path_or_mistake(key);
        DatasetDef {
            key,
            mistake,
            key_type,
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

    /// A dataset without indexes whose records get the field `_id` as their key where they have none: a UUID of version 7, so that later
    /// records have greater keys.
    pub fn auto_key() -> DatasetDef {
        DatasetDef {
            auto_key: true,
            ..DatasetDef::new("_id", KeyType::String)
        }
    }

    /// The change feed has with each change the record that it replaced or deleted. Each write then looks up what it replaces, and
    /// logs it. This is decided when the dataset is created, and cannot be changed later.
    pub fn keep_old_records(self) -> DatasetDef {
        DatasetDef {
            old_records: true,
            ..self
        }
    }

    /// Records expire so long after they were written. Can be changed later; a change holds for records written afterwards.
    pub fn ttl(mut self, ttl: Duration) -> DatasetDef {
        self.expiry.ttl = Some(ttl);
        self
    }

    /// Records expire at the time that they have at `path`: text, or seconds since 1970; absent or null, never.
    pub fn expires_at(self, path: impl IntoPath) -> DatasetDef {
        self.expires_as(path, Type::Time)
    }

    /// Records expire at the time of type `ty` that they have at `path`: text, or a number in the unit of the type; absent or null,
    /// never.
    pub fn expires_as(mut self, path: impl IntoPath, ty: Type) -> DatasetDef {
        let (path, mistake) = path_or_mistake(path);
        self.expiry.path = Some(path);
        self.expiry.ty = ty;
        self.mistake = self.mistake.or(mistake);
        self
    }

    /// Sets another maintenance strategy.
    pub fn maintenance(self, maintenance: Maintenance) -> DatasetDef {
        DatasetDef {
            maintenance,
            auto: false,
            ..self
        }
    }

    /// Lets measurements choose the maintenance strategy: validation to begin with, then eager, validation or
    /// mutable-bitmap, whichever is expected to cost least (the dataset's statistics say why).
    pub fn auto(self) -> DatasetDef {
        DatasetDef {
            maintenance: Maintenance::Validation,
            auto: true,
            ..self
        }
    }

    /// Sets another time of repair.
    pub fn repair(self, repair: Repair) -> DatasetDef {
        DatasetDef { repair, ..self }
    }

    /// Sets another way of compacting.
    pub fn merging(self, merging: Merging) -> DatasetDef {
        DatasetDef { merging, ..self }
    }

    /// Sets the number of versions kept of each record.
    pub fn versions(self, versions: u32) -> DatasetDef {
        DatasetDef { versions, ..self }
    }

    /// The same with one more indexed attribute, of which the type must be said.
    pub fn index(mut self, path: impl IntoPath, index: Index) -> DatasetDef {
        let (path, mistake) = path_or_mistake(path);
        let untyped =
            || format!("the index of `{path}` has no type: say it, as in Index::lazy().string()");
        let ty = index.type_of();
        let mistake = mistake.or_else(|| ty.is_none().then(untyped));
        self.mistake = self.mistake.or(mistake);
        self.indexes.push(IndexDef {
            path,
            kind: index.kind,
            ty: ty.unwrap_or(Type::String),
            tokenizer: index.tokenizer,
            lenient: index.lenient,
        });
        self
    }

    /// Stores the records in the order of the points at `path`, so that an area is read from neighbouring blocks; keys still find
    /// their record, by one more read. The path is as for [`Index::spatial`], or `POINT@TIME` as for [`Index::space_time`]; of points of
    /// the plane it is declared before. This is decided when the dataset is created, and cannot be changed later.
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
            // What is wrong with one that has an index is said when it is validated.
            _ => self.indexes.push(IndexDef {
                ty: kind.type_for(None).unwrap_or(Type::Point),
                path,
                kind,
                tokenizer: Tokenizer::Exact,
                lenient: false,
            }),
        }
        self
    }

    /// Refuses inconsistent settings with [`Error::BadInput`], as creating a dataset does.
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
        if self.key_type == KeyType::Fields && key_paths(&self.key)?.len() < 2 {
            return Err(Error::bad_input(format!(
                "a key of several fields has commas between them: `{}` is one",
                self.key
            )));
        }
        if self.auto_key && self.key_type != KeyType::String {
            return Err(Error::bad_input(
                "a key that is made automatically is a string".to_string(),
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
                "{clustered} attributes to store the records by: a dataset is in the order of one"
            )));
        }
        if clustered > 0 && self.versions > 1 {
            return Err(Error::bad_input(format!(
                "{} versions of a record: a dataset in the order of place keeps one",
                self.versions
            )));
        }
        for (at, index) in self.indexes.iter().enumerate() {
            check_tokenizer(index.tokenizer, index.kind, index.ty)?;
            check_type(&index.path, index.kind, index.ty)?;
            index.check_lenient()?;
            let declared = |path: &Path| {
                let other = self.indexes.iter().find(|other| other.path == *path);
                other.map(|other| other.ty)
            };
            check_place_and_time(&index.path, index.ty, declared)?;
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

/// Refuses points without a spatial index, and spatial indexes of what is no point; and a point at paths that are none.
pub fn check_type(path: &Path, kind: IndexKind, ty: Type) -> Result<()> {
    let refused = |goes: &str| {
        Err(Error::bad_input(format!(
            "attribute `{path}`: an index of kind {kind} does not go with type {ty}: {goes}"
        )))
    };
    let is_timed = ty.timed_space().is_some();
    match (ty.has_place(), kind) {
        (true, IndexKind::SpaceTime(_)) if is_timed => point_time_paths(path)
            .and_then(|(point, _)| coordinate_paths(&point))
            .map(|_| ()),
        (true, IndexKind::None) if is_timed => point_time_paths(path).map(|_| ()),
        (true, IndexKind::None | IndexKind::Spatial(_)) if !is_timed => {
            coordinate_paths(path).map(|_| ())
        }
        (true, _) if is_timed => refused("points at a time have indexes of kind space-time"),
        (true, _) => refused("points have indexes of kind spatial"),
        (false, _) if kind.is_spatial() => refused("it is for types point and plane"),
        (false, _) => Ok(()),
    }
}

/// Refuses an attribute of place and time whose parts are declared otherwise, or whose time is not declared at all: what a
/// comparison with it means depends on its type.
pub fn check_place_and_time(
    path: &Path,
    ty: Type,
    declared: impl Fn(&Path) -> Option<Type>,
) -> Result<()> {
    let Some(space) = ty.timed_space() else {
        return Ok(());
    };
    let (point, time) = point_time_paths(path)?;
    match declared(&time) {
        Some(ty) if ty.is_time() || matches!(ty, Type::Int | Type::Float) => {}
        Some(other) => {
            return Err(Error::bad_input(format!(
                "attribute `{path}`: `{time}` is of type {other}, and no time: it is to be of type time, int or float"
            )));
        }
        None => {
            return Err(Error::bad_input(format!(
                "attribute `{path}`: declare its time first, as in {time}:none:time"
            )));
        }
    }
    match declared(&point).map(|ty| ty.space()) {
        Some(known) if known != Some(space) => Err(Error::bad_input(format!(
            "attribute `{path}` is of type {ty}, and `{point}` is declared otherwise"
        ))),
        None if space == Space::Plane => Err(Error::bad_input(format!(
            "attribute `{path}`: declare its point first, as in {point}:none:plane"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a tokenizer that does not fit the kind of index or the type.
pub fn check_tokenizer(tokenizer: Tokenizer, kind: IndexKind, ty: Type) -> Result<()> {
    let fits = match tokenizer {
        Tokenizer::Exact => return Ok(()),
        Tokenizer::Prefix => ty == Type::String,
        Tokenizer::Number => ty.is_time() || matches!(ty, Type::Int | Type::Float),
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
