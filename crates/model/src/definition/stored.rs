//! The stored form of a definition: JSON, in the configuration of a dataset's data tree.

use std::time::Duration;

use esker_coding::Seq;
use serde::Serialize;
use serde_json::Value as Json;

use super::{DatasetDef, Expiry, IndexDef, IndexKind, Maintenance, Merging, Repair};
use crate::schema::{KeyType, Path, Type, Wanted, WantedField, compound_paths, point_time_paths};
use crate::tokens::Tokenizer;

/// A stored attribute, with the number that identifies it in records and synopses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAttribute {
    /// Its stable number; numbers are never reused.
    pub id: u32,
    /// Its definition.
    pub def: IndexDef,
    /// The number of its current (or last) index tree; each rebuild gets a new number.
    pub tree: u32,
    /// Writes after this one went to the index directly; the build added the earlier ones.
    pub since: Seq,
    /// True if numbers that no float represents exactly are distinguished, also in records stored
    /// before the declaration. False for attributes of floats that an earlier version declared:
    /// their indexes contain the nearest float.
    pub exact: bool,
}

/// An online build or rebuild of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChange {
    /// The attribute after the build.
    pub attribute: StoredAttribute,
    /// Writes after this sequence number go to the new index; the build adds the earlier ones.
    pub since: Seq,
    /// Tables up to this number were written before the build began.
    pub tables: u64,
    /// The build has collected the entries of all earlier records, and commits search them too for
    /// values that are to be unique.
    pub gathered: bool,
}

/// The decoded configuration of a dataset's data tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDef {
    /// The path of the primary key in the record.
    pub key: Path,
    /// Whether keys are integers, strings, or several fields.
    pub key_type: KeyType,
    /// Whether a record without a key gets one.
    pub auto_key: bool,
    /// The indexed attributes.
    pub attributes: Vec<StoredAttribute>,
    /// The number of the next new attribute; numbers are not reused.
    pub next_id: u32,
    /// The index being built.
    pub change: Option<StoredChange>,
    /// The maintenance settings.
    pub settings: MaintenanceSettings,
    /// When records that are written from now on expire.
    pub expiry: Expiry,
    /// Whether the log contains the records that changes replaced.
    pub old_records: bool,
}

/// The maintenance settings of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// When obsolete index entries are detected.
    pub maintenance: Maintenance,
    /// Whether measurements choose the strategy.
    pub auto: bool,
    /// When obsolete writes are recorded.
    pub repair: Repair,
    /// How the trees are compacted.
    pub merging: Merging,
    /// How many versions of a record are kept.
    pub versions: u32,
    /// If set, the primary-key index contains only the writes after this one; the earlier ones are
    /// still being added.
    pub keys_after: Option<Seq>,
    /// Later writes used this strategy; for earlier ones the repair watermark says whether their
    /// obsolete entries have been recorded.
    pub since: Seq,
}

impl StoredDef {
    /// The stored form of a new dataset's definition. The attribute by whose location the records
    /// are stored gets the last number, so that every record is stored with all attributes up to it
    /// ([`StoredDef::in_all_records`]).
    pub fn new(def: &DatasetDef) -> StoredDef {
        let last = def.indexes.len() as u32;
        let clustered = def
            .indexes
            .iter()
            .position(|index| index.kind.is_clustered());
        let id = |place: usize| match clustered {
            Some(clustered) if place == clustered => last - 1,
            Some(clustered) if place > clustered => place as u32 - 1,
            _ => place as u32,
        };
        let attributes: Vec<StoredAttribute> = (def.indexes.iter().enumerate())
            .map(|(place, def)| StoredAttribute {
                id: id(place),
                def: def.clone(),
                tree: 0,
                since: 0,
                exact: true,
            })
            .collect();
        let next_id = attributes.len() as u32;
        StoredDef {
            key: def.key.clone(),
            key_type: def.key_type,
            auto_key: def.auto_key,
            attributes,
            next_id,
            change: None,
            settings: MaintenanceSettings {
                maintenance: def.maintenance,
                auto: def.auto,
                repair: def.repair,
                merging: def.merging,
                versions: def.versions,
                keys_after: None,
                since: 0,
            },
            expiry: def.expiry.clone(),
            old_records: def.old_records,
        }
    }

    /// The attribute at `path`.
    pub fn attribute(&self, path: &Path) -> Option<&StoredAttribute> {
        self.attributes.iter().find(|a| a.def.path == *path)
    }

    /// The values to extract from a record for an attribute of this definition.
    pub fn wanted(&self, def: &IndexDef) -> Wanted {
        let wanted = def.wanted();
        if def.ty.is_compound() {
            // A definition with another path, or with a field that is not declared, is refused.
            let fields = compound_paths(&def.path).unwrap_or_default().into_iter();
            let declared = fields.filter_map(|path| {
                let known = self.attribute(&path)?;
                let (ty, lenient) = (known.def.ty, known.def.lenient);
                Some(WantedField { path, ty, lenient })
            });
            return wanted.of_fields(declared.collect());
        }
        let time = match def.ty.timed_space() {
            Some(_) => point_time_paths(&def.path).ok(),
            None => None,
        };
        // For a point at a time, the type of the time is declared separately.
        match time.and_then(|(_, time)| self.attribute(&time)) {
            Some(time) => wanted.at_time(time.def.ty, time.def.lenient),
            None => wanted,
        }
    }

    /// The attribute by whose location the records are stored, if any.
    pub fn clustered(&self) -> Option<&StoredAttribute> {
        self.attributes.iter().find(|a| a.def.kind.is_clustered())
    }

    /// True if the tree of keys has the attribute of this number for every record. In a dataset
    /// stored by location these are the attributes declared when the dataset was created; in any
    /// other dataset, all.
    pub fn in_all_records(&self, id: u32) -> bool {
        self.clustered().is_none_or(|clustered| id <= clustered.id)
    }

    /// The definition as it will be after the running build.
    pub fn changed(&self) -> StoredDef {
        let mut after = self.clone();
        if let Some(StoredChange { attribute, .. }) = after.change.take() {
            match after.attributes.iter_mut().find(|a| a.id == attribute.id) {
                Some(known) => *known = attribute,
                None => after.attributes.push(attribute),
            }
        }
        after
    }

    /// The definition as given by the user.
    pub fn def(&self) -> DatasetDef {
        let indexes = self
            .attributes
            .iter()
            .map(|attribute| attribute.def.clone())
            .collect();
        DatasetDef {
            mistake: None,
            is_key_type_open: false,
            key: self.key.clone(),
            key_type: self.key_type,
            auto_key: self.auto_key,
            indexes,
            maintenance: self.settings.maintenance,
            auto: self.settings.auto,
            repair: self.settings.repair,
            merging: self.settings.merging,
            versions: self.settings.versions,
            expiry: self.expiry.clone(),
            old_records: self.old_records,
        }
    }

    /// Encodes the stored JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        let settings = &self.settings;
        let json = DefJson {
            key: self.key.to_string(),
            key_type: self.key_type.to_string(),
            attributes: self.attributes.iter().map(AttributeJson::from).collect(),
            next_id: self.next_id,
            maintenance: settings.maintenance.to_string(),
            repair: settings.repair.to_string(),
            merging: settings.merging.to_string(),
            versions: settings.versions,
            since: settings.since,
            auto: settings.auto,
            keys_after: settings.keys_after,
            old_records: self.old_records,
            auto_key: self.auto_key,
            ttl: self
                .expiry
                .ttl
                .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            expires: self.expiry.path.as_ref().map(Path::to_string),
            expires_type: Some(self.expiry.ty)
                .filter(|ty| *ty != Type::Time)
                .map(|ty| ty.to_string()),
            change: self.change.as_ref().map(|change| AttributeJson {
                since: Some(change.since),
                tables: Some(change.tables),
                gathered: change.gathered,
                ..AttributeJson::from(&change.attribute)
            }),
        };
        // A struct of strings and numbers always serialises.
        serde_json::to_vec(&json).unwrap_or_default()
    }

    /// Decodes the output of [`StoredDef::to_bytes`], also of older builds; `None` if it is
    /// malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<StoredDef> {
        let json: Json = serde_json::from_slice(bytes).ok()?;
        let attributes = json.get("attributes")?.as_array()?.iter();
        let change = match json.get("change") {
            Some(change) => Some(StoredChange {
                attribute: from_json(change)?,
                since: change.get("since")?.as_u64()?,
                tables: change.get("tables")?.as_u64()?,
                gathered: is_true(change, "gathered"),
            }),
            None => None,
        };
        Some(StoredDef {
            key: text(&json, "key")?.parse().ok()?,
            key_type: text(&json, "key_type")?.parse().ok()?,
            auto_key: is_true(&json, "auto_key"),
            attributes: attributes.map(from_json).collect::<Option<_>>()?,
            next_id: number(&json, "next_id")?,
            change,
            settings: settings(&json)?,
            expiry: expiry(&json)?,
            old_records: is_true(&json, "old_records"),
        })
    }
}

impl StoredDef {
    /// The kinds of all indexes, also of one that is being built.
    pub fn kinds(&self) -> impl Iterator<Item = IndexKind> {
        let building = self.change.iter().map(|change| &change.attribute);
        self.attributes.iter().chain(building).map(|a| a.def.kind)
    }
}

/// The fields are missing if records do not expire.
fn expiry(json: &Json) -> Option<Expiry> {
    let expiry = Expiry {
        ttl: match json.get("ttl") {
            Some(millis) => Some(Duration::from_millis(millis.as_u64()?)),
            None => None,
        },
        path: match json.get("expires") {
            Some(_) => Some(text(json, "expires")?.parse().ok()?),
            None => None,
        },
        ty: match json.get("expires_type") {
            Some(_) => text(json, "expires_type")?.parse().ok()?,
            None => Type::Time,
        },
    };
    expiry.validate().ok().map(|()| expiry)
}

/// Definitions of older builds lack these fields.
fn settings(json: &Json) -> Option<MaintenanceSettings> {
    if json.get("maintenance").is_none() {
        return Some(MaintenanceSettings {
            maintenance: Maintenance::Deferred,
            auto: false,
            repair: Repair::None,
            merging: Merging::Leveled,
            versions: 1,
            keys_after: None,
            since: 0,
        });
    }
    Some(MaintenanceSettings {
        maintenance: text(json, "maintenance")?.parse().ok()?,
        auto: is_true(json, "auto"),
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

/// A stored definition. The order of its fields is the order on disk, regardless of `serde_json`'s
/// features.
#[derive(Serialize)]
struct DefJson {
    key: String,
    key_type: String,
    attributes: Vec<AttributeJson>,
    next_id: u32,
    maintenance: String,
    repair: String,
    merging: String,
    versions: u32,
    since: Seq,
    #[serde(skip_serializing_if = "is_false")]
    auto: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_after: Option<Seq>,
    #[serde(skip_serializing_if = "is_false")]
    old_records: bool,
    #[serde(skip_serializing_if = "is_false")]
    auto_key: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<AttributeJson>,
}

fn is_false(set: &bool) -> bool {
    !set
}

#[derive(Serialize)]
struct AttributeJson {
    id: u32,
    path: String,
    kind: String,
    #[serde(rename = "type")]
    ty: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Seq>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    lenient: bool,
    #[serde(skip_serializing_if = "is_false")]
    unique: bool,
    #[serde(skip_serializing_if = "is_false")]
    exact: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tables: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    gathered: bool,
}

impl From<&StoredAttribute> for AttributeJson {
    fn from(attribute: &StoredAttribute) -> AttributeJson {
        let def = &attribute.def;
        AttributeJson {
            id: attribute.id,
            path: def.path.to_string(),
            kind: def.kind.to_string(),
            ty: def.ty.to_string(),
            tree: Some(attribute.tree).filter(|tree| *tree > 0),
            since: Some(attribute.since).filter(|since| *since > 0),
            tokenizer: Some(def.tokenizer)
                .filter(|tokenizer| *tokenizer != Tokenizer::default())
                .map(|tokenizer| tokenizer.to_string()),
            lenient: def.lenient,
            unique: def.unique,
            exact: attribute.exact && def.ty == Type::Float,
            tables: None,
            gathered: false,
        }
    }
}

fn from_json(json: &Json) -> Option<StoredAttribute> {
    let ty: Type = text(json, "type")?.parse().ok()?;
    Some(StoredAttribute {
        id: number(json, "id")?,
        exact: ty != Type::Float || is_true(json, "exact"),
        def: IndexDef {
            path: text(json, "path")?.parse().ok()?,
            kind: text(json, "kind")?.parse().ok()?,
            ty,
            tokenizer: match json.get("tokenizer") {
                Some(_) => text(json, "tokenizer")?.parse().ok()?,
                None => Tokenizer::default(),
            },
            lenient: is_true(json, "lenient"),
            unique: is_true(json, "unique"),
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

fn is_true(json: &Json, field: &str) -> bool {
    json.get(field).is_some_and(|set| *set == Json::Bool(true))
}

fn text(json: &Json, field: &str) -> Option<String> {
    Some(json.get(field)?.as_str()?.to_string())
}

fn number(json: &Json, field: &str) -> Option<u32> {
    u32::try_from(json.get(field)?.as_u64()?).ok()
}
