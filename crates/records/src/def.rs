//! Definitions: what a dataset's key is, which attributes it indexes, and how.

use std::fmt;
use std::str::FromStr;

use lsm::Seq;
use serde_json::{Value as Json, json};

use crate::error::{Error, Result};
use crate::schema::{KeyType, Path, Type};
use crate::tokens::Tokenizer;

/// The most attributes that a dataset may have.
pub(crate) const MAX_INDEXES: usize = 64;

/// How an attribute is indexed (LevelDB++ sections 3 and 4, Luo & Carey section 3). All kinds give the same answers; they
/// differ in what writes and queries cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexKind {
    /// Not indexed: the attribute is typed and extracted, queries scan.
    None,
    /// Nothing is written beside the data: tables carry zone maps and value filters of their blocks.
    /// Cheapest to write; best when the attribute grows with time.
    Embedded,
    /// As embedded, but each table carries one map from fingerprints of values to blocks in place of
    /// a filter per block, so that a lookup asks once a table. Nearly as cheap to write;
    /// lookups of a value come close to those of the kinds with a tree of their own.
    Fingerprint,
    /// Nothing but the least and the greatest value of each component (Luo & Carey section 3). Costs
    /// nothing to write; for ranges of an attribute that grows with time, read as a scan reads. How
    /// many components a query can pass over depends on the [`Maintenance`].
    Filter,
    /// A posting list per value, read and written back at each write. Writes slow down as lists
    /// grow; here because the papers measure it.
    Eager,
    /// A posting list per value, appended to blindly and merged later. Best for the newest few.
    Lazy,
    /// A tree of (value, primary key). Best when all matches are wanted.
    Composite,
    /// A tree of (value, descending sequence number, primary key): the newest records of a value lie
    /// together. Good for the newest few and for all.
    Recent,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [IndexKind; 8] = [
        IndexKind::None,
        IndexKind::Embedded,
        IndexKind::Fingerprint,
        IndexKind::Filter,
        IndexKind::Eager,
        IndexKind::Lazy,
        IndexKind::Composite,
        IndexKind::Recent,
    ];

    /// True for kinds that keep a tree of their own.
    pub fn is_standalone(self) -> bool {
        matches!(
            self,
            IndexKind::Eager | IndexKind::Lazy | IndexKind::Composite | IndexKind::Recent
        )
    }

    /// True for kinds that are part of the data: tables and memtables carry them.
    pub(crate) fn is_embedded(self) -> bool {
        matches!(
            self,
            IndexKind::Embedded | IndexKind::Fingerprint | IndexKind::Filter
        )
    }

    fn name(self) -> &'static str {
        match self {
            IndexKind::None => "none",
            IndexKind::Embedded => "embedded",
            IndexKind::Fingerprint => "fingerprint",
            IndexKind::Filter => "filter",
            IndexKind::Eager => "eager",
            IndexKind::Lazy => "lazy",
            IndexKind::Composite => "composite",
            IndexKind::Recent => "recent",
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexKind {
    type Err = Error;
    fn from_str(text: &str) -> Result<IndexKind> {
        IndexKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            Error::bad_input(format!(
                "unknown index kind `{text}`: it is one of embedded, fingerprint, filter, eager, lazy, composite, recent, none"
            ))
        })
    }
}

/// When an index entry of a replaced record is found to be over (Luo & Carey sections 3.1, 4 and 5;
/// DELI section IV). All give the same answers; they differ in what writes and queries cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Maintenance {
    /// At the write: it reads the old record and takes its entries back. Indexes are always exact.
    Eager,
    /// At the query: it asks the primary-key index for a newer write, or fetches and looks.
    Validation,
    /// At the write, by the primary-key index alone: the bit of the old record's write is set.
    MutableBitmap,
    /// At the query, which fetches and looks, and notes what it found.
    #[default]
    Deferred,
    /// At the query: it asks a tree of written keys that each index has. The baseline that the papers measure.
    DeletedKey,
}

impl Maintenance {
    /// All strategies.
    pub const ALL: [Maintenance; 5] = [
        Maintenance::Eager,
        Maintenance::Validation,
        Maintenance::MutableBitmap,
        Maintenance::Deferred,
        Maintenance::DeletedKey,
    ];

    /// True for strategies that know of each write, when it is done, what it replaced.
    pub(crate) fn looks_at_writes(self) -> bool {
        matches!(self, Maintenance::Eager | Maintenance::MutableBitmap)
    }

    /// True for strategies that use the primary-key index.
    pub(crate) fn uses_keys(self) -> bool {
        matches!(
            self,
            Maintenance::Eager | Maintenance::Validation | Maintenance::MutableBitmap
        )
    }

    fn name(self) -> &'static str {
        match self {
            Maintenance::Eager => "eager",
            Maintenance::Validation => "validation",
            Maintenance::MutableBitmap => "mutable-bitmap",
            Maintenance::Deferred => "deferred",
            Maintenance::DeletedKey => "deleted-key",
        }
    }
}

impl fmt::Display for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Maintenance {
    type Err = Error;
    fn from_str(text: &str) -> Result<Maintenance> {
        Maintenance::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| {
            Error::bad_input(format!(
                "unknown maintenance `{text}`: it is one of eager, validation, mutable-bitmap, deferred, deleted-key"
            ))
        })
    }
}

/// When it is noted which writes are over, whose index entries merges can leave out and queries pass over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Repair {
    /// As merges go: what a merge of the primary-key index or, without one, of the data leaves out is noted
    /// in the same step (merge repair, Luo & Carey section 4.4; streaming repair, DELI section V).
    #[default]
    Merge,
    /// When it is asked for, by going through the records: until then merges keep replaced versions
    /// (staged repair, DELI section V; for deferred maintenance).
    Staged,
    /// When it is asked for, by going through the indexes ([`crate::Dataset::repair`]).
    None,
}

impl Repair {
    const ALL: [Repair; 3] = [Repair::Merge, Repair::Staged, Repair::None];

    fn name(self) -> &'static str {
        match self {
            Repair::Merge => "merge",
            Repair::Staged => "staged",
            Repair::None => "none",
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Repair {
    type Err = Error;
    fn from_str(text: &str) -> Result<Repair> {
        Repair::ALL
            .into_iter()
            .find(|r| r.name() == text)
            .ok_or_else(|| {
                Error::bad_input(format!(
                    "unknown repair `{text}`: it is one of merge, staged, none"
                ))
            })
    }
}

/// How the trees of a dataset are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Merging {
    /// Tiers above one leveled run: each tree for itself. Updates write half as much as with levels, and a read asks a few runs
    /// more where there were updates.
    #[default]
    LazyLeveled,
    /// LevelDB's levels: each tree for itself. Fewest runs to read.
    Leveled,
    /// AsterixDB's tiers, ratio 1.2: each tree for itself. Writes less.
    Tiered,
    /// Tiers, and all trees of the dataset merge the same components together (Luo & Carey section 4.4).
    Correlated,
}

impl Merging {
    const ALL: [Merging; 4] = [
        Merging::LazyLeveled,
        Merging::Leveled,
        Merging::Tiered,
        Merging::Correlated,
    ];

    fn name(self) -> &'static str {
        match self {
            Merging::LazyLeveled => "lazy-leveled",
            Merging::Leveled => "leveled",
            Merging::Tiered => "tiered",
            Merging::Correlated => "correlated",
        }
    }
}

impl fmt::Display for Merging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Merging {
    type Err = Error;
    fn from_str(text: &str) -> Result<Merging> {
        Merging::ALL
            .into_iter()
            .find(|m| m.name() == text)
            .ok_or_else(|| {
                Error::bad_input(format!(
                    "unknown merging `{text}`: it is one of lazy-leveled, leveled, tiered, correlated"
                ))
            })
    }
}

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
    /// When index entries of replaced records are found to be over.
    pub maintenance: Maintenance,
    /// The strategy is chosen by what is measured, `maintenance` being the present choice
    /// ([`DatasetDef::auto`]).
    pub auto: bool,
    /// When what replaced records left behind is noted to be over.
    pub repair: Repair,
    /// How the trees are merged.
    pub merging: Merging,
    /// How many versions of a record are kept; more than one with deferred maintenance only.
    pub versions: u32,
}

impl DatasetDef {
    /// A dataset without indexes.
    pub fn new(key: Path, key_type: KeyType) -> DatasetDef {
        DatasetDef {
            key,
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
    /// ([`crate::Dataset::stats`] tells why).
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

    /// The same with one more indexed attribute.
    pub fn index(self, path: Path, kind: IndexKind, ty: Type) -> DatasetDef {
        self.tokenized(path, kind, ty, Tokenizer::Exact)
    }

    /// The same with one more indexed attribute, of whose values the index holds tokens.
    pub fn tokenized(
        mut self,
        path: Path,
        kind: IndexKind,
        ty: Type,
        tokenizer: Tokenizer,
    ) -> DatasetDef {
        self.indexes.push(IndexDef {
            path,
            kind,
            ty,
            tokenizer,
        });
        self
    }

    /// Refuses what does not fit together: with [`crate::ErrorKind::BadInput`], as the making of a dataset does.
    pub fn validate(&self) -> Result<()> {
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
            index.tokenizer.check(index.kind, index.ty)?;
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

impl fmt::Display for DatasetDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--key {}:{}", self.key, self.key_type)?;
        for index in &self.indexes {
            write!(f, " --index {}:{}:{}", index.path, index.kind, index.ty)?;
            if index.tokenizer != Tokenizer::default() {
                write!(f, ":{}", index.tokenizer)?;
            }
        }
        if self.auto {
            write!(f, " --maintenance auto")?;
        } else if self.maintenance != Maintenance::default() {
            write!(f, " --maintenance {}", self.maintenance)?;
        }
        if self.repair != Repair::default() {
            write!(f, " --repair {}", self.repair)?;
        }
        if self.merging != Merging::default() {
            write!(f, " --merging {}", self.merging)?;
        }
        if self.versions != 1 {
            write!(f, " --versions {}", self.versions)?;
        }
        Ok(())
    }
}

/// An attribute as it is stored: with the number that records and synopses know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredAttribute {
    pub(crate) id: u32,
    pub(crate) def: IndexDef,
    /// Which of its index trees, one after the other, is in use (or was the last).
    pub(crate) tree: u32,
    /// Later writes were done with this index; earlier ones were brought to it.
    pub(crate) since: Seq,
}

/// A change of an index that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredChange {
    /// The attribute as it will be.
    pub(crate) attribute: StoredAttribute,
    /// Writes after this sequence number go to the new index, those up to it must be brought there.
    pub(crate) since: Seq,
    /// Tables up to this number were written before the change began.
    pub(crate) tables: u64,
}

/// What the configuration bytes of a dataset's data tree say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredDef {
    pub(crate) key: Path,
    pub(crate) key_type: KeyType,
    pub(crate) attributes: Vec<StoredAttribute>,
    /// The number that the next new attribute gets; numbers are not used twice.
    pub(crate) next_id: u32,
    /// The index that is being built.
    pub(crate) change: Option<StoredChange>,
    pub(crate) upkeep: Upkeep,
}

/// How a dataset is kept in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upkeep {
    pub(crate) maintenance: Maintenance,
    /// Whether the strategy is chosen by what is measured.
    pub(crate) auto: bool,
    pub(crate) repair: Repair,
    pub(crate) merging: Merging,
    pub(crate) versions: u32,
    /// The primary-key index has the writes after this one only: the others are still to be brought to it.
    pub(crate) keys_after: Option<Seq>,
    /// Later writes were done by this strategy; of earlier ones the bitmap's mark tells whether what they
    /// left behind has been repaired.
    pub(crate) since: Seq,
}

impl StoredDef {
    pub(crate) fn new(def: &DatasetDef) -> StoredDef {
        let attributes: Vec<StoredAttribute> = (0..)
            .zip(&def.indexes)
            .map(|(id, def)| StoredAttribute {
                id,
                def: def.clone(),
                tree: 0,
                since: 0,
            })
            .collect();
        let next_id = attributes.len() as u32;
        StoredDef {
            key: def.key.clone(),
            key_type: def.key_type,
            attributes,
            next_id,
            change: None,
            upkeep: Upkeep {
                maintenance: def.maintenance,
                auto: def.auto,
                repair: def.repair,
                merging: def.merging,
                versions: def.versions,
                keys_after: None,
                since: 0,
            },
        }
    }

    /// The attribute at `path`.
    pub(crate) fn attribute(&self, path: &Path) -> Option<&StoredAttribute> {
        self.attributes.iter().find(|a| a.def.path == *path)
    }

    /// The definition once the change is complete.
    pub(crate) fn changed(&self) -> StoredDef {
        let mut after = self.clone();
        if let Some(StoredChange { attribute, .. }) = after.change.take() {
            match after.attributes.iter_mut().find(|a| a.id == attribute.id) {
                Some(known) => *known = attribute,
                None => after.attributes.push(attribute),
            }
        }
        after
    }

    pub(crate) fn def(&self) -> DatasetDef {
        let indexes = self
            .attributes
            .iter()
            .map(|attribute| attribute.def.clone())
            .collect();
        DatasetDef {
            key: self.key.clone(),
            key_type: self.key_type,
            indexes,
            maintenance: self.upkeep.maintenance,
            auto: self.upkeep.auto,
            repair: self.upkeep.repair,
            merging: self.upkeep.merging,
            versions: self.upkeep.versions,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let attributes: Vec<Json> = self.attributes.iter().map(to_json).collect();
        let mut json = json!({
            "key": self.key.to_string(),
            "key_type": self.key_type.to_string(),
            "attributes": attributes,
            "next_id": self.next_id,
            "maintenance": self.upkeep.maintenance.to_string(),
            "repair": self.upkeep.repair.to_string(),
            "merging": self.upkeep.merging.to_string(),
            "versions": self.upkeep.versions,
            "since": self.upkeep.since,
        });
        if let Json::Object(fields) = &mut json {
            if self.upkeep.auto {
                fields.insert("auto".to_string(), json!(true));
            }
            if let Some(seq) = self.upkeep.keys_after {
                fields.insert("keys_after".to_string(), json!(seq));
            }
        }
        if let (Some(change), Json::Object(fields)) = (&self.change, &mut json) {
            let mut change_json = to_json(&change.attribute);
            if let Json::Object(fields) = &mut change_json {
                fields.insert("since".to_string(), json!(change.since));
                fields.insert("tables".to_string(), json!(change.tables));
            }
            fields.insert("change".to_string(), change_json);
        }
        json.to_string().into_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<StoredDef> {
        let json: Json = serde_json::from_slice(bytes).ok()?;
        let attributes = json.get("attributes")?.as_array()?.iter();
        let change = match json.get("change") {
            Some(change) => Some(StoredChange {
                attribute: from_json(change)?,
                since: change.get("since")?.as_u64()?,
                tables: change.get("tables")?.as_u64()?,
            }),
            None => None,
        };
        Some(StoredDef {
            key: text(&json, "key")?.parse().ok()?,
            key_type: text(&json, "key_type")?.parse().ok()?,
            attributes: attributes.map(from_json).collect::<Option<_>>()?,
            next_id: number(&json, "next_id")?,
            change,
            upkeep: upkeep(&json)?,
        })
    }
}

/// Definitions of before there was a choice have no such fields.
fn upkeep(json: &Json) -> Option<Upkeep> {
    if json.get("maintenance").is_none() {
        return Some(Upkeep {
            maintenance: Maintenance::Deferred,
            auto: false,
            repair: Repair::None,
            merging: Merging::Leveled,
            versions: 1,
            keys_after: None,
            since: 0,
        });
    }
    Some(Upkeep {
        maintenance: text(json, "maintenance")?.parse().ok()?,
        auto: json.get("auto").is_some_and(|auto| *auto == json!(true)),
        keys_after: match json.get("keys_after") {
            Some(seq) => Some(seq.as_u64()?),
            None => None,
        },
        repair: text(json, "repair")?.parse().ok()?,
        merging: text(json, "merging")?.parse().ok()?,
        versions: number(json, "versions").filter(|versions| *versions > 0)?,
        since: json.get("since")?.as_u64()?,
    })
}

fn to_json(attribute: &StoredAttribute) -> Json {
    let mut json = json!({
        "id": attribute.id,
        "path": attribute.def.path.to_string(),
        "kind": attribute.def.kind.to_string(),
        "type": attribute.def.ty.to_string(),
    });
    if let (1.., Json::Object(fields)) = (attribute.tree, &mut json) {
        fields.insert("tree".to_string(), json!(attribute.tree));
    }
    if let (1.., Json::Object(fields)) = (attribute.since, &mut json) {
        fields.insert("since".to_string(), json!(attribute.since));
    }
    let tokenizer = attribute.def.tokenizer;
    if let (true, Json::Object(fields)) = (tokenizer != Tokenizer::default(), &mut json) {
        fields.insert("tokenizer".to_string(), json!(tokenizer.to_string()));
    }
    json
}

fn from_json(json: &Json) -> Option<StoredAttribute> {
    Some(StoredAttribute {
        id: number(json, "id")?,
        def: IndexDef {
            path: text(json, "path")?.parse().ok()?,
            kind: text(json, "kind")?.parse().ok()?,
            ty: text(json, "type")?.parse().ok()?,
            tokenizer: match json.get("tokenizer") {
                Some(_) => text(json, "tokenizer")?.parse().ok()?,
                None => Tokenizer::default(),
            },
        },
        tree: match json.get("tree") {
            Some(_) => number(json, "tree")?,
            None => 0,
        },
        since: match json.get("since") {
            Some(since) => since.as_u64()?,
            None => 0,
        },
    })
}

fn text(json: &Json, field: &str) -> Option<String> {
    Some(json.get(field)?.as_str()?.to_string())
}

fn number(json: &Json, field: &str) -> Option<u32> {
    u32::try_from(json.get(field)?.as_u64()?).ok()
}
