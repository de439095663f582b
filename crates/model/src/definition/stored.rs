//! The stored form of a definition: JSON, the configuration of a dataset's data tree.

use coding::Seq;
use serde_json::{Value as Json, json};

use super::{DatasetDef, IndexDef, Maintenance, Merging, Repair};
use crate::schema::{KeyType, Path};
use crate::tokens::Tokenizer;

/// An attribute as it is stored: with the number that records and synopses know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAttribute {
    /// Its stable number; numbers are not used twice.
    pub id: u32,
    /// What it is.
    pub def: IndexDef,
    /// Which of its index trees, one after the other, is in use (or was the last).
    pub tree: u32,
    /// Later writes were done with this index; earlier ones were brought to it.
    pub since: Seq,
}

/// A change of an index that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChange {
    /// The attribute as it will be.
    pub attribute: StoredAttribute,
    /// Writes after this sequence number go to the new index, those up to it must be brought there.
    pub since: Seq,
    /// Tables up to this number were written before the change began.
    pub tables: u64,
}

/// What the configuration bytes of a dataset's data tree say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDef {
    /// Where in the record its primary key is.
    pub key: Path,
    /// Whether keys are integers or strings.
    pub key_type: KeyType,
    /// The indexed attributes.
    pub attributes: Vec<StoredAttribute>,
    /// The number that the next new attribute gets; numbers are not used twice.
    pub next_id: u32,
    /// The index that is being built.
    pub change: Option<StoredChange>,
    /// How the dataset is maintained.
    pub upkeep: MaintenanceSettings,
}

/// How a dataset is kept in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// When obsolete index entries are found.
    pub maintenance: Maintenance,
    /// Whether the strategy is chosen by what is measured.
    pub auto: bool,
    /// When they are noted.
    pub repair: Repair,
    /// How the trees are compacted.
    pub merging: Merging,
    /// How many versions of a record are kept.
    pub versions: u32,
    /// The primary-key index has the writes after this one only: the others are still to be brought to it.
    pub keys_after: Option<Seq>,
    /// Later writes were done by this strategy; of earlier ones the bitmap's mark tells whether what they
    /// left behind has been repaired.
    pub since: Seq,
}

impl StoredDef {
    /// Of a dataset that is made now.
    pub fn new(def: &DatasetDef) -> StoredDef {
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
            upkeep: MaintenanceSettings {
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
    pub fn attribute(&self, path: &Path) -> Option<&StoredAttribute> {
        self.attributes.iter().find(|a| a.def.path == *path)
    }

    /// The definition once the change is complete.
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

    /// The definition as people gave it.
    pub fn def(&self) -> DatasetDef {
        let indexes = self
            .attributes
            .iter()
            .map(|attribute| attribute.def.clone())
            .collect();
        DatasetDef {
            mistake: None,
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

    /// The JSON that is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
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

    /// Reads what [`StoredDef::to_bytes`] made, or an older build; `None` when it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<StoredDef> {
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

/// Definitions created before there was a choice have no such fields.
fn upkeep(json: &Json) -> Option<MaintenanceSettings> {
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
