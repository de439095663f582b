//! The definition of a dataset as the command line gives it.

use std::time::Duration;

use esker::schema::{ExpiresText, IndexText, KeyText, Maintenance, Merging, Repair};
use esker::{DatasetDef, IndexKind, KeyType, Path, Type};
use esker_import::Feed;

use super::inference::FirstRecords;
use crate::args::{DefinitionArgs, Strategy, Ttl};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::words::definition;

/// The size of the sample that types are inferred from.
const SAMPLE_RECORDS: usize = 1000;
const SAMPLE_BYTES: usize = 16 << 20;

/// The definition given on the command line; `None` for parts that are left out.
pub(super) struct Wanted {
    pub(super) key: Option<(Path, Option<KeyType>)>,
    /// Records without a key get a generated one.
    auto_key: bool,
    indexes: Vec<IndexText>,
    maintenance: Option<Strategy>,
    repair: Option<Repair>,
    merging: Option<Merging>,
    versions: Option<u32>,
    ttl: Option<Duration>,
    expires: Option<ExpiresText>,
    old_records: bool,
}

/// The definition that the first records of a load lead to.
pub(super) enum Defined {
    As(Box<DatasetDef>),
    /// The input has no records.
    Empty,
    /// None of the lines in the sample is a record.
    None {
        others: u64,
    },
}

impl Wanted {
    /// True if records without a key get a generated one.
    pub(super) fn has_auto_key(&self) -> bool {
        self.auto_key
    }

    pub(super) fn parse(args: &DefinitionArgs) -> Result<Self, Failure> {
        let key = args.key.as_deref().map(|text| {
            let refuse = |what| Failure::Usage(format!("--key {text}: {what}"));
            let key = text.parse::<KeyText>().map_err(refuse)?;
            Ok::<_, Failure>(key)
        });
        let key = key.transpose()?;
        let auto_key = key.as_ref().is_some_and(|key| key.is_auto);
        let key = key.map(|key| (key.path, key.ty));
        let mut indexes: Vec<IndexText> = Vec::new();
        for text in &args.indexes {
            let refuse = |what| Failure::Usage(format!("--index {text}: {what}"));
            let index = text.parse::<IndexText>().map_err(refuse)?;
            if indexes.iter().any(|other| other.path == index.path) {
                return Err(Failure::Usage(format!(
                    "--index names `{}` twice",
                    index.path
                )));
            }
            indexes.push(index);
        }
        if let Some(text) = &args.cluster {
            let refuse = |what| Failure::Usage(format!("--cluster {text}: {what}"));
            let clustered = IndexText::cluster(text).map_err(refuse)?;
            match indexes
                .iter_mut()
                .find(|other| other.path == clustered.path)
            {
                // Declared by `--index PATH:none`.
                Some(known) if known.kind == IndexKind::None => {
                    known.kind = clustered.kind;
                    known.ty = clustered.ty.or(known.ty);
                }
                Some(_) => {
                    let what = "--cluster indexes this field already: leave its --index out";
                    return Err(refuse(what.to_string()));
                }
                None => indexes.push(clustered),
            }
        }
        IndexText::declare_parts(&mut indexes);
        Ok(Self {
            key,
            auto_key,
            indexes,
            maintenance: args.maintenance,
            repair: args.repair,
            merging: args.merging,
            versions: args.versions,
            ttl: args.ttl,
            expires: args.expires.clone(),
            old_records: args.old_records,
        })
    }

    /// Refuses to load if the given parts differ from the dataset's definition. Parts left out
    /// agree with any.
    pub(super) fn agree(&self, name: &str, def: &DatasetDef) -> Result<(), Failure> {
        let key =
            self.key.as_ref().is_none_or(|(path, ty)| {
                *path == def.key && ty.is_none_or(|ty| ty == def.key_type)
            }) && (!self.auto_key || def.auto_key);
        let indexes = self.indexes.is_empty()
            || self.indexes.len() == def.indexes.len()
                && (self.indexes.iter())
                    .all(|wanted| def.indexes.iter().any(|index| wanted.agrees(index)));
        let strategy = self
            .maintenance
            .is_none_or(|said| said == Strategy::of(def))
            && self.repair.is_none_or(|said| said == def.repair)
            && self.merging.is_none_or(|said| said == def.merging)
            && self.versions.is_none_or(|said| said == def.versions)
            && (self.ttl.is_none() || self.ttl == def.expiry.ttl)
            && self.expires.as_ref().is_none_or(|said| {
                def.expiry.path.as_ref() == Some(&said.path)
                    && (said.ty).is_none_or(|ty| def.expiry.ty.is_allowed_by(ty))
            })
            && (!self.old_records || def.old_records);
        if key && indexes && strategy {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "dataset `{name}` exists with another definition\n  existing: {}\n  given: {}\n\
             To load into it as it is, leave --key, --index and the like out.",
            definition(def),
            self.text()
        )))
    }

    /// The definition of a new dataset; missing types are inferred from the first records.
    pub(super) fn define(self, feed: &mut Feed, interrupt: &Interrupt) -> Result<Defined, Failure> {
        let Some((key, key_type)) = self.key.clone() else {
            return Err(Failure::Usage("a new dataset needs --key".to_string()));
        };
        let expires = (self.expires.as_ref()).filter(|expires| is_open_time(expires.ty));
        let open =
            key_type.is_none() || expires.is_some() || self.indexes.iter().any(IndexText::is_open);
        let sample = if open {
            let enough = |records: &[Vec<u8>]| {
                !records.is_empty()
                    && (key_type.is_some()
                        || esker::schema::infer_key_type(records, &key).is_some())
                    && self.indexes.iter().all(|index| {
                        index.known_type().is_some()
                            || esker::schema::infer_type(records, &index.path).is_some()
                    })
            };
            let is_stopped = || interrupt.signal().is_some();
            feed.sample(SAMPLE_RECORDS, SAMPLE_BYTES, enough, is_stopped)
        } else {
            Default::default()
        };
        if open && sample.records.is_empty() {
            if let Some((source, reason)) = sample.failed {
                let name = feed.name(source);
                return Err(Failure::Usage(format!("{name}: cannot be read: {reason}")));
            }
            return Ok(match sample.others {
                0 => Defined::Empty,
                others => Defined::None { others },
            });
        }
        let first = FirstRecords::new(&sample.records, feed.is_table());
        let key_type = match key_type {
            Some(said) => said,
            None => first.key_type(&key)?,
        };
        let types = self.indexes.iter().map(|wanted| first.index_type(wanted));
        let types = types.collect();
        let expires = match expires {
            Some(expires) => esker::schema::infer_time_type(&sample.records, &expires.path),
            None => self
                .expires
                .as_ref()
                .and_then(|e| e.ty)
                .unwrap_or(Type::Time),
        };
        let def = self.definition(&key, key_type, types, expires)?;
        Ok(Defined::As(Box::new(def)))
    }

    /// The definition of a new dataset without records; all types must be given.
    pub(super) fn define_empty(&self) -> Result<DatasetDef, Failure> {
        let (key, key_type) = match &self.key {
            Some((key, Some(key_type))) => (key, *key_type),
            Some((key, None)) => {
                return Err(Failure::Usage(format!(
                    "--key {key}: give its type, as in --key {key}:int or --key {key}:string; there are no records to infer it from"
                )));
            }
            None => {
                return Err(Failure::Usage(
                    "give the field that is the key, as in --key id:int".to_string(),
                ));
            }
        };
        let types = self.indexes.iter().map(|index| {
            index.known_type().ok_or_else(|| {
                let (path, kind) = (&index.path, index.kind);
                Failure::Usage(format!(
                    "--index {path}: give its type, as in --index {path}:{kind}:string; there are no records to infer it from"
                ))
            })
        });
        let types = types.collect::<Result<_, _>>()?;
        let expires = self.expires.as_ref().and_then(|expires| expires.ty);
        self.definition(key, key_type, types, expires.unwrap_or(Type::Time))
    }

    fn definition(
        &self,
        key: &Path,
        key_type: KeyType,
        types: Vec<Type>,
        expires: Type,
    ) -> Result<DatasetDef, Failure> {
        let mut def = DatasetDef::new(key, key_type);
        def.auto_key = self.auto_key;
        let indexes = self.indexes.iter().zip(types);
        def.indexes = indexes.map(|(wanted, ty)| wanted.to_def(ty)).collect();
        def.repair = self.repair.unwrap_or(def.repair);
        def.merging = self.merging.unwrap_or(def.merging);
        def.versions = self.versions.unwrap_or(def.versions);
        def.expiry.ttl = self.ttl;
        if let Some(said) = &self.expires {
            def = def.expires_as(&said.path, expires);
        }
        def.old_records = self.old_records;
        let is_clustered = def.indexes.iter().any(|index| index.kind.is_clustered());
        let def = match self.maintenance {
            Some(strategy) => strategy.apply(def),
            // With validation, a query of an area finds the current records without reading each of
            // them.
            None if is_clustered => def.maintenance(Maintenance::Validation),
            None => def,
        };
        def.validate()?;
        Ok(def)
    }

    fn text(&self) -> String {
        let mut text = match &self.key {
            _ if self.auto_key => "--key auto".to_string(),
            Some((path, Some(KeyType::Fields))) => format!("--key {path}"),
            Some((path, Some(ty))) => format!("--key {path}:{ty}"),
            Some((path, None)) => format!("--key {path}"),
            None => String::new(),
        };
        for index in &self.indexes {
            match (index.kind.is_clustered(), index.ty) {
                (true, Some(ty)) => text += &format!(" --cluster {}:{ty}", index.path),
                (true, None) => text += &format!(" --cluster {}", index.path),
                (false, _) => text += &format!(" --index {index}"),
            }
        }
        for (name, said) in [
            ("maintenance", self.maintenance.map(|said| said.to_string())),
            ("repair", self.repair.map(|said| said.to_string())),
            ("merging", self.merging.map(|said| said.to_string())),
            ("versions", self.versions.map(|said| said.to_string())),
            ("ttl", self.ttl.map(|said| Ttl(Some(said)).to_string())),
            ("expires", self.expires.as_ref().map(ExpiresText::to_string)),
        ] {
            if let Some(said) = said {
                text += &format!(" --{name} {said}");
            }
        }
        if self.old_records {
            text += " --old-records";
        }
        text.trim_start().to_string()
    }
}

/// True if the unit of a time field is inferred from the records.
fn is_open_time(ty: Option<Type>) -> bool {
    ty.is_none_or(|ty| ty == Type::Time)
}

pub(crate) fn parse_path(text: &str) -> Result<Path, Failure> {
    Ok(text.parse::<Path>()?)
}
