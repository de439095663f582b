//! The definition of a dataset as a JSON document, for programs: its parts in the texts that the
//! command line takes.

use serde::{Deserialize, Serialize};

use super::{DatasetDef, ExpiresText, IndexKind, IndexText, KeyText, Maintenance};
use crate::error::{Error, Result};
use crate::schema::{KeyType, Type};
use crate::units::{duration_text, parse_duration};

/// A definition of which each part is optional but the key.
///
/// ```
/// use esker_model::definition::DefinitionDocument;
///
/// let text = r#"{"key": "id:int", "indexes": ["user.name:recent:string"], "ttl": "7d"}"#;
/// let document: DefinitionDocument = serde_json::from_str(text)?;
/// let def = document.to_def()?;
/// assert_eq!(def.indexes.len(), 1);
/// assert_eq!(DefinitionDocument::of(&def).to_def()?, def);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionDocument {
    /// The primary key: `FIELD:TYPE`, several fields with commas between them, or `auto`.
    pub key: String,
    /// The indexes, as [`IndexText`] reads them, each with its type; without any by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<String>,
    /// The points by which records are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The maintenance strategy, or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<String>,
    /// When obsolete index entries are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
    /// The compaction policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merging: Option<String>,
    /// The versions that are kept of each record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<u32>,
    /// The time to live of records: `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// The field with the time at which a record expires: `PATH[:TYPE]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// True if changes are kept with the records that they replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old_records: bool,
}

/// The error for a part of a document.
fn refused(part: &str, text: &str, why: impl std::fmt::Display) -> Error {
    Error::BadInput(format!("{part} `{text}`: {why}"))
}

/// The error for a part that needs a type.
fn untyped(part: &str, text: &str, example: &str) -> Error {
    refused(part, text, format_args!("give its type, as in {example}"))
}

impl DefinitionDocument {
    /// The document of a definition. Parts that have their defaults are left out.
    pub fn of(def: &DatasetDef) -> DefinitionDocument {
        let key = KeyText {
            path: def.key.clone(),
            ty: Some(def.key_type),
            is_auto: def.auto_key,
        };
        let usual = DatasetDef::new(def.key.clone(), def.key_type);
        let is_clustered = |index: &&super::IndexDef| index.kind.is_clustered();
        let clustered = def.indexes.iter().find(is_clustered);
        let indexes = def.indexes.iter().filter(|index| !is_clustered(index));
        let strategy = def.maintenance.to_string();
        let expiry = &def.expiry;
        DefinitionDocument {
            key: key.to_string(),
            indexes: indexes
                .map(|index| IndexText::of(index).to_string())
                .collect(),
            cluster: clustered.map(|index| match index.ty {
                Type::PlanePoint | Type::PlanePointTime => format!("{}:plane", index.path),
                _ => index.path.to_string(),
            }),
            maintenance: match (def.auto, is_usual_maintenance(def)) {
                (true, _) => Some("auto".to_string()),
                (false, true) => None,
                (false, false) => Some(strategy),
            },
            repair: (def.repair != usual.repair).then(|| def.repair.to_string()),
            merging: (def.merging != usual.merging).then(|| def.merging.to_string()),
            versions: (def.versions != usual.versions).then_some(def.versions),
            ttl: expiry.ttl.map(duration_text),
            expires: expiry.path.as_ref().map(|path| {
                let (path, ty) = (path.clone(), Some(expiry.ty));
                ExpiresText { path, ty }.to_string()
            }),
            old_records: def.old_records,
        }
    }

    /// The definition.
    ///
    /// # Errors
    /// [`Error::BadInput`] names the part that is not valid, or has no type.
    pub fn to_def(&self) -> Result<DatasetDef> {
        let key: KeyText =
            (self.key.parse()).map_err(|why: String| refused("key", &self.key, why))?;
        let key_type = key
            .ty
            .ok_or_else(|| untyped("key", &self.key, "id:int or id:string"))?;
        let mut def = DatasetDef::new(key.path, key_type);
        def.auto_key = key.is_auto;
        for index in self.index_texts()? {
            let ty = index.known_type().ok_or_else(|| {
                let text = index.to_string();
                untyped(
                    "index",
                    &text,
                    &format!("{}:{}:string", index.path, index.kind),
                )
            })?;
            def.indexes.push(index.to_def(ty));
        }
        fn part<T: std::str::FromStr<Err: std::fmt::Display>>(
            name: &str,
            text: Option<&String>,
        ) -> Result<Option<T>> {
            let read = |text: &String| text.parse().map_err(|why| refused(name, text, why));
            text.map(read).transpose()
        }
        match self.maintenance.as_deref() {
            Some("auto") => def = def.auto(),
            Some(_) => {
                let strategy = part::<Maintenance>("maintenance", self.maintenance.as_ref())?;
                def.maintenance = strategy.unwrap_or(def.maintenance);
            }
            None => def.maintenance = usual_maintenance(&def),
        }
        def.repair = part("repair", self.repair.as_ref())?.unwrap_or(def.repair);
        def.merging = part("merging", self.merging.as_ref())?.unwrap_or(def.merging);
        def.versions = self.versions.unwrap_or(def.versions);
        if let Some(text) = &self.ttl {
            def.expiry.ttl = Some(parse_duration(text).map_err(|why| refused("ttl", text, why))?);
        }
        if let Some(expires) = part::<ExpiresText>("expires", self.expires.as_ref())? {
            def = def.expires_as(&expires.path, expires.ty.unwrap_or(Type::Time));
        }
        def.old_records = self.old_records;
        def.validate()?;
        Ok(def)
    }

    fn index_texts(&self) -> Result<Vec<IndexText>> {
        let mut indexes: Vec<IndexText> = Vec::new();
        for text in &self.indexes {
            let index: IndexText = text
                .parse()
                .map_err(|why: String| refused("index", text, why))?;
            if indexes.iter().any(|other| other.path == index.path) {
                return Err(refused("index", text, "this field has an index already"));
            }
            indexes.push(index);
        }
        if let Some(text) = &self.cluster {
            let clustered =
                IndexText::cluster(text).map_err(|why| refused("cluster", text, why))?;
            match indexes
                .iter_mut()
                .find(|other| other.path == clustered.path)
            {
                Some(known) if known.kind == IndexKind::None => {
                    known.kind = clustered.kind;
                    known.ty = clustered.ty.or(known.ty);
                }
                Some(_) => {
                    return Err(refused("cluster", text, "this field has an index already"));
                }
                None => indexes.push(clustered),
            }
        }
        IndexText::declare_parts(&mut indexes);
        Ok(indexes)
    }
}

/// The strategy of a definition that names none. With validation, a query of an area finds the
/// current records without reading each of them.
fn usual_maintenance(def: &DatasetDef) -> Maintenance {
    let is_clustered = def.indexes.iter().any(|index| index.kind.is_clustered());
    match is_clustered.then_some(Maintenance::Validation) {
        Some(strategy) => strategy,
        None => DatasetDef::new(def.key.clone(), KeyType::Int).maintenance,
    }
}

fn is_usual_maintenance(def: &DatasetDef) -> bool {
    def.maintenance == usual_maintenance(def)
}
