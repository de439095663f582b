//! Definitions: what a dataset's key is, which attributes it indexes, and how.

use std::fmt;
use std::str::FromStr;

use lsm::Seq;
use lsm::attributes::Summary;
use serde_json::{Value as Json, json};

use crate::error::{Error, Result};
use crate::schema::{KeyType, Path, Type};

/// The most attributes that a dataset may have.
pub(crate) const MAX_INDEXES: usize = 64;

/// How an attribute is indexed (LevelDB++ sections 3 and 4). All kinds give the same answers; they
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
    pub const ALL: [IndexKind; 7] = [
        IndexKind::None,
        IndexKind::Embedded,
        IndexKind::Fingerprint,
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
        matches!(self, IndexKind::Embedded | IndexKind::Fingerprint)
    }

    /// How tables summarise an attribute of a kind that is part of the data.
    pub(crate) fn summary(self) -> Summary {
        match self {
            IndexKind::Fingerprint => Summary::Fingerprints,
            _ => Summary::Filters,
        }
    }

    fn name(self) -> &'static str {
        match self {
            IndexKind::None => "none",
            IndexKind::Embedded => "embedded",
            IndexKind::Fingerprint => "fingerprint",
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
                "unknown index kind `{text}`: it is one of embedded, fingerprint, eager, lazy, composite, recent, none"
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
}

impl DatasetDef {
    /// A dataset without indexes.
    pub fn new(key: Path, key_type: KeyType) -> DatasetDef {
        DatasetDef {
            key,
            key_type,
            indexes: Vec::new(),
        }
    }

    /// The same with one more indexed attribute.
    pub fn index(mut self, path: Path, kind: IndexKind, ty: Type) -> DatasetDef {
        self.indexes.push(IndexDef { path, kind, ty });
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.indexes.len() > MAX_INDEXES {
            return Err(Error::bad_input(format!(
                "{} indexes, over the limit of {MAX_INDEXES}",
                self.indexes.len()
            )));
        }
        for (at, index) in self.indexes.iter().enumerate() {
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
}

/// A change of an index that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredChange {
    /// The attribute as it will be.
    pub(crate) attribute: StoredAttribute,
    /// Writes after this sequence number go to the new index, those up to it must be brought there.
    pub(crate) since: Seq,
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
}

impl StoredDef {
    pub(crate) fn new(def: &DatasetDef) -> StoredDef {
        let attributes: Vec<StoredAttribute> = (0..)
            .zip(&def.indexes)
            .map(|(id, def)| StoredAttribute {
                id,
                def: def.clone(),
                tree: 0,
            })
            .collect();
        let next_id = attributes.len() as u32;
        StoredDef {
            key: def.key.clone(),
            key_type: def.key_type,
            attributes,
            next_id,
            change: None,
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
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let attributes: Vec<Json> = self.attributes.iter().map(to_json).collect();
        let mut json = json!({
            "key": self.key.to_string(),
            "key_type": self.key_type.to_string(),
            "attributes": attributes,
            "next_id": self.next_id,
        });
        if let (Some(change), Json::Object(fields)) = (&self.change, &mut json) {
            let mut change_json = to_json(&change.attribute);
            if let Json::Object(fields) = &mut change_json {
                fields.insert("since".to_string(), json!(change.since));
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
            }),
            None => None,
        };
        Some(StoredDef {
            key: text(&json, "key")?.parse().ok()?,
            key_type: text(&json, "key_type")?.parse().ok()?,
            attributes: attributes.map(from_json).collect::<Option<_>>()?,
            next_id: number(&json, "next_id")?,
            change,
        })
    }
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
    json
}

fn from_json(json: &Json) -> Option<StoredAttribute> {
    Some(StoredAttribute {
        id: number(json, "id")?,
        def: IndexDef {
            path: text(json, "path")?.parse().ok()?,
            kind: text(json, "kind")?.parse().ok()?,
            ty: text(json, "type")?.parse().ok()?,
        },
        tree: match json.get("tree") {
            Some(_) => number(json, "tree")?,
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
