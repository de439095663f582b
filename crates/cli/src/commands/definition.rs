//! The definition of a dataset as the command line gives it.

use std::time::Duration;

use esker::{
    DatasetDef, IndexDef, IndexKind, KeyType, Layout, Maintenance, Merging, Path, Repair,
    Tokenizer, Type,
};
use import::Feed;
use serde_json::Value as Json;

use super::fields::{has_points, known_paths};
use crate::args::{DefinitionArgs, KINDS, Strategy, Ttl};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::nearest::meant;
use crate::output::{counted, note, thousands};
use crate::words::definition;

/// What types are inferred from.
const SAMPLE_RECORDS: usize = 1000;
const SAMPLE_BYTES: usize = 16 << 20;

/// The definition that the command line gives; what it leaves open is `None`.
pub(super) struct Wanted {
    pub(super) key: Option<(Path, Option<KeyType>)>,
    /// Records without a key get one.
    auto_key: bool,
    indexes: Vec<WantedIndex>,
    maintenance: Option<Strategy>,
    repair: Option<Repair>,
    merging: Option<Merging>,
    versions: Option<u32>,
    ttl: Option<Duration>,
    expires: Option<Path>,
    old_records: bool,
}

/// What the first records of a load make of a definition.
pub(super) enum Defined {
    As(Box<DatasetDef>),
    /// There is nothing to load.
    Empty,
    /// So many lines were looked at, and none is a record.
    None {
        others: u64,
    },
}

/// An attribute as the command line says it is to be indexed.
pub(crate) struct WantedIndex {
    pub(crate) path: Path,
    pub(crate) kind: IndexKind,
    pub(crate) ty: Option<Type>,
    pub(crate) tokenizer: Tokenizer,
}

impl WantedIndex {
    /// The type that is said, or that follows from the kind.
    fn known_type(&self) -> Option<Type> {
        self.kind.type_for(self.ty)
    }
}

impl Wanted {
    pub(super) fn parse(args: &DefinitionArgs) -> Result<Self, Failure> {
        let auto_key = args.key.as_deref() == Some("auto");
        let key = match args.key.as_deref() {
            Some("auto") => {
                let made = DatasetDef::auto_key();
                Some((made.key, Some(made.key_type)))
            }
            said => said.map(parse_key).transpose()?,
        };
        let mut indexes: Vec<WantedIndex> = Vec::new();
        for text in &args.indexes {
            let refuse = |what| Failure::Usage(format!("--index {text}: {what}"));
            let index = parse_index(text).map_err(refuse)?;
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
            let clustered = parse_cluster(text).map_err(refuse)?;
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
                    let what = "this order is an index of the field; leave its --index out";
                    return Err(refuse(what.to_string()));
                }
                None => indexes.push(clustered),
            }
        }
        declare_times(&mut indexes);
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

    /// Refuses a definition that is not the dataset's. What is not said agrees with anything.
    pub(super) fn agree(&self, name: &str, def: &DatasetDef) -> Result<(), Failure> {
        let key =
            self.key.as_ref().is_none_or(|(path, ty)| {
                *path == def.key && ty.is_none_or(|ty| ty == def.key_type)
            }) && (!self.auto_key || def.auto_key);
        let indexes = self.indexes.is_empty()
            || self.indexes.len() == def.indexes.len()
                && self.indexes.iter().all(|wanted| {
                    def.indexes.iter().any(|index| {
                        index.path == wanted.path
                            && index.kind == wanted.kind
                            && index.tokenizer == wanted.tokenizer
                            && (wanted.ty.is_none()
                                || wanted.kind.type_for(wanted.ty) == Some(index.ty))
                    })
                });
        let strategy = self
            .maintenance
            .is_none_or(|said| said == Strategy::of(def))
            && self.repair.is_none_or(|said| said == def.repair)
            && self.merging.is_none_or(|said| said == def.merging)
            && self.versions.is_none_or(|said| said == def.versions)
            && (self.ttl.is_none() || self.ttl == def.expiry.ttl)
            && (self.expires.is_none() || self.expires == def.expiry.path)
            && (!self.old_records || def.old_records);
        if key && indexes && strategy {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "dataset `{name}` exists with another definition\n  it is: {}\n  asked: {}\n\
             Leave --key, --index and the like out to load into it as it is.",
            definition(def),
            self.text()
        )))
    }

    /// The definition of a new dataset: types that were not given are what the first records show.
    pub(super) fn define(self, feed: &mut Feed, interrupt: &Interrupt) -> Result<Defined, Failure> {
        let Some((key, key_type)) = self.key.clone() else {
            return Err(Failure::Usage("a new dataset needs --key".to_string()));
        };
        let open = key_type.is_none()
            || self
                .indexes
                .iter()
                .any(|index| index.known_type().is_none());
        let sample = match open {
            true => {
                let enough = |records: &[Vec<u8>]| {
                    !records.is_empty()
                        && (key_type.is_some() || esker::infer_key_type(records, &key).is_some())
                        && self.indexes.iter().all(|index| {
                            index.known_type().is_some()
                                || esker::infer_type(records, &index.path).is_some()
                        })
                };
                let is_stopped = || interrupt.signal().is_some();
                feed.sample(SAMPLE_RECORDS, SAMPLE_BYTES, enough, is_stopped)
            }
            false => Default::default(),
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
        let records = &sample.records;
        let found = match key_type {
            Some(said) => Some((said, 0)),
            None => esker::infer_key_type_counted(records, &key),
        };
        let key_type = match found {
            Some((key_type, others)) => {
                say_dissent(records, &key, key_type.as_type(), others, feed.is_table());
                key_type
            }
            None => {
                let known = known_paths(sample.records.iter().map(Vec::as_slice));
                let meant = meant(&key.to_string(), known.iter().map(String::as_str));
                let arrays = arrays_of_objects(&sample.records);
                let records = match arrays.first() {
                    Some(name) => format!(
                        "\nThe records may be the objects of the array at `{name}`: --records {name} reads them"
                    ),
                    None => String::new(),
                };
                let none = match sample.records.len() {
                    1 => "the first record has no such field".to_string(),
                    more => format!(
                        "none of the first {} records has such a field",
                        thousands(more as u64)
                    ),
                };
                return Err(Failure::Usage(format!(
                    "--key {key}: {none}{meant}{} nothing was made{records}",
                    if meant.is_empty() { ";" } else { "" },
                )));
            }
        };
        let known = known_paths(sample.records.iter().map(Vec::as_slice));
        let indexes = self.indexes.iter().map(|wanted| {
            let ty = wanted.known_type();
            let ty = ty.or_else(|| {
                let (ty, others) = esker::infer_type_counted(records, &wanted.path)?;
                say_dissent(records, &wanted.path, ty, others, feed.is_table());
                Some(ty)
            });
            if wanted.known_type().is_none() && has_points(&sample.records, &wanted.path) {
                let path = &wanted.path;
                note(format_args!(
                    "note: `{path}` reads like [longitude, latitude], and this is an index of the numbers; --index {path}:spatial is one of the points"
                ));
            }
            ty.unwrap_or_else(|| {
                let path = wanted.path.to_string();
                let meant = meant(&path, known.iter().map(String::as_str));
                let none = match sample.records.len() {
                    1 => "the first record has no".to_string(),
                    more => format!("none of the first {} records has", thousands(more as u64)),
                };
                note(format_args!(
                    "note: {none} `{path}`{meant} Its values are taken for strings",
                    meant = if meant.is_empty() { "." } else { &meant },
                ));
                Type::String
            })
        });
        let types = indexes.collect();
        let def = self.definition(&key, key_type, types)?;
        Ok(Defined::As(Box::new(def)))
    }

    /// The definition of a new dataset without records: it says all types.
    pub(super) fn define_empty(&self) -> Result<DatasetDef, Failure> {
        let (key, key_type) = match &self.key {
            Some((key, Some(key_type))) => (key, *key_type),
            Some((key, None)) => {
                return Err(Failure::Usage(format!(
                    "--key {key}: say its type, as in --key {key}:int or --key {key}:string: there are no records that show it"
                )));
            }
            None => {
                return Err(Failure::Usage(
                    "say which field is the key, as in --key id:int".to_string(),
                ));
            }
        };
        let types = self.indexes.iter().map(|index| {
            index.known_type().ok_or_else(|| {
                let (path, kind) = (&index.path, index.kind);
                Failure::Usage(format!(
                    "--index {path}: say its type, as in --index {path}:{kind}:string: there are no records that show it"
                ))
            })
        });
        let types = types.collect::<Result<_, _>>()?;
        self.definition(key, key_type, types)
    }

    fn definition(
        &self,
        key: &Path,
        key_type: KeyType,
        types: Vec<Type>,
    ) -> Result<DatasetDef, Failure> {
        let mut def = DatasetDef::new(key, key_type);
        def.auto_key = self.auto_key;
        let indexes = self.indexes.iter().zip(types);
        let indexes = indexes.map(|(wanted, ty)| {
            IndexDef::new(wanted.path.clone(), wanted.kind, ty).tokenizer(wanted.tokenizer)
        });
        def.indexes = indexes.collect();
        def.repair = self.repair.unwrap_or(def.repair);
        def.merging = self.merging.unwrap_or(def.merging);
        def.versions = self.versions.unwrap_or(def.versions);
        def.expiry.ttl = self.ttl;
        def.expiry.path = self.expires.clone();
        def.old_records = self.old_records;
        let is_clustered = def.indexes.iter().any(|index| index.kind.is_clustered());
        let def = match self.maintenance {
            Some(strategy) => strategy.apply(def),
            // It tells which records of an area are current without a look at each.
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
            if index.kind.is_clustered() {
                text += &format!(" --cluster {}", index.path);
            } else {
                text += &format!(" --index {}:{}", index.path, index.kind);
            }
            if let Some(ty) = index.ty {
                text += &format!(":{ty}");
            }
            if index.tokenizer != Tokenizer::default() {
                text += &format!(":{}", index.tokenizer);
            }
        }
        for (name, said) in [
            ("maintenance", self.maintenance.map(|said| said.to_string())),
            ("repair", self.repair.map(|said| said.to_string())),
            ("merging", self.merging.map(|said| said.to_string())),
            ("versions", self.versions.map(|said| said.to_string())),
            ("ttl", self.ttl.map(|said| Ttl(Some(said)).to_string())),
            ("expires", self.expires.as_ref().map(Path::to_string)),
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

/// Where the first record has arrays of objects.
fn arrays_of_objects(records: &[Vec<u8>]) -> Vec<String> {
    fn look(json: &Json, path: &str, found: &mut Vec<String>) {
        let Json::Object(members) = json else {
            return;
        };
        for (name, value) in members {
            let Ok(name) = name.parse::<Path>() else {
                continue;
            };
            let path = match path {
                "" => name.to_string(),
                path => format!("{path}.{name}"),
            };
            match value.get(0) {
                Some(Json::Object(_)) => found.push(path),
                _ => look(value, &path, found),
            }
        }
    }
    let first = records.first().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    if let Ok(first) = serde_json::from_slice(first) {
        look(&first, "", &mut found);
    }
    found
}

/// Says how many of the first records have a value of another type than the one that was inferred.
fn say_dissent(records: &[Vec<u8>], path: &Path, ty: Type, others: usize, is_table: bool) {
    // Cells of a column of strings are strings.
    if is_table && ty == Type::String {
        return;
    }
    let others = others as u64;
    if others > 0 {
        let (have, are) = match others {
            1 => ("has", "is"),
            _ => ("have", "are"),
        };
        note(format_args!(
            "note: most of the first {} have a value of type {ty} at `{path}`; {} {have} one of another type and {are} rejected",
            counted(records.len() as u64, "record"),
            thousands(others),
        ));
    }
}

/// The types of fields.
const TYPES: [&str; 5] = ["int", "float", "string", "bool", "time"];

/// Reads `FIELD[:TYPE]`.
fn parse_key(text: &str) -> Result<(Path, Option<KeyType>), Failure> {
    let (path, ty) = match text.rsplit_once(':') {
        Some((path, ty)) => {
            let refuse = |_| {
                let meant = meant(ty, ["int", "string"]);
                format!("--key {text}: unknown key type `{ty}`{meant} (int or string)")
            };
            (
                path,
                Some(ty.parse().map_err(refuse).map_err(Failure::Usage)?),
            )
        }
        None => (text, None),
    };
    if has_commas(path) {
        return match ty {
            None | Some(KeyType::Fields) => Ok((parse_path(path)?, Some(KeyType::Fields))),
            Some(_) => Err(Failure::Usage(format!(
                "--key {text}: the fields of a key of several are whole numbers or texts, whichever they hold: leave :{} out",
                ty.map_or(String::new(), |ty| ty.to_string())
            ))),
        };
    }
    Ok((parse_path(path)?, ty))
}

/// True where there are commas that no backslash precedes.
fn has_commas(text: &str) -> bool {
    let mut is_escaped = false;
    text.chars().any(|c| {
        let is_comma = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_comma
    })
}

/// How an attribute is indexed where it is not said: of the kinds that find what is asked for
/// without reading much else, the one that is quickest to ask (docs/performance.md).
pub(crate) const USUAL: IndexKind = IndexKind::Lazy;

/// Reads `PATH[:KIND[:TYPE[:TOKENIZER]]]`; says what is wrong with it.
pub(crate) fn parse_index(text: &str) -> Result<WantedIndex, String> {
    if let Some(wanted) = parse_spatial(text) {
        return wanted;
    }
    let wanted = |path: &str, kind, ty| -> Result<WantedIndex, String> {
        Ok(WantedIndex {
            path: path.parse::<Path>().map_err(|error| error.to_string())?,
            kind,
            ty,
            tokenizer: Tokenizer::default(),
        })
    };
    let Some((head, last)) = text.rsplit_once(':') else {
        return wanted(text, USUAL, None);
    };
    if let Ok(kind) = last.parse() {
        return wanted(head, kind, None);
    }
    // A tokenizer comes behind a type: a name with a colon in it is not mistaken for one.
    if let Ok(tokenizer) = last.parse()
        && let Some((_, ty)) = head.rsplit_once(':')
        && ty.parse::<Type>().is_ok()
    {
        return Ok(WantedIndex {
            tokenizer,
            ..parse_index(head)?
        });
    }
    let (head, kind) = head.rsplit_once(':').unwrap_or((head, last));
    let kind = kind.parse().map_err(|_| {
        let meant = meant(kind, KINDS.split(", ").chain(["eager"]));
        format!("unknown index kind `{kind}`{meant} (kinds: {KINDS})")
    })?;
    let ty = last.parse().map_err(|_| {
        let meant = meant(last, TYPES);
        format!("unknown type `{last}`{meant} (int, float, string, bool or time)")
    })?;
    wanted(head, kind, Some(ty))
}

/// Reads `PATH:spatial[:LAYOUT][:plane]` and `POINT@TIME:space-time[:LAYOUT][:plane]`; `None` for an index that is none of
/// points.
fn parse_spatial(text: &str) -> Option<Result<WantedIndex, String>> {
    const NAMES: [&str; 2] = ["spatial", "space-time"];
    let found = |name: &'static str| Some((name, text.rfind(&format!(":{name}"))?));
    let (name, at) = NAMES
        .into_iter()
        .filter_map(found)
        .max_by_key(|(_, at)| *at)?;
    let (path, said) = (text.get(..at)?, text.get(at + 1 + name.len()..)?);
    let mut said = match said.strip_prefix(':') {
        None if said.is_empty() => Vec::new(),
        None => return None,
        Some(said) => said.split(':').collect(),
    };
    let ty = said.last().and_then(|last| last.parse::<Type>().ok());
    if ty.is_some() {
        said.pop();
    }
    let kind = |text: &str| text.parse::<IndexKind>();
    let kind = match said.as_slice() {
        [] => kind(name).map_err(|error| error.to_string()),
        [layout] => kind(&format!("{name}:{layout}")).map_err(|_| {
            let layouts = Layout::ALL.map(|layout| match name {
                "spatial" => IndexKind::Spatial(layout).to_string(),
                _ => IndexKind::SpaceTime(layout).to_string(),
            });
            let layouts = layouts.join(", ");
            format!("unknown layout or type `{layout}` (such an index is one of {layouts}, with `:plane` after it for points of the plane)")
        }),
        _ => Err(format!("such an index is PATH:{name}[:LAYOUT][:plane]")),
    };
    Some(kind.and_then(|kind| {
        Ok(WantedIndex {
            path: path.parse::<Path>().map_err(|error| error.to_string())?,
            kind,
            ty,
            tokenizer: Tokenizer::default(),
        })
    }))
}

/// Reads `PATH[:plane]` or `POINT@TIME[:plane]`: what the records are stored by.
fn parse_cluster(text: &str) -> Result<WantedIndex, String> {
    let ty = text
        .rsplit_once(':')
        .and_then(|(path, ty)| Some((path, ty.parse::<Type>().ok()?)));
    let (path, ty) = match ty {
        Some((path, ty)) => (path, Some(ty)),
        None => (text, None),
    };
    let path = path.parse::<Path>().map_err(|error| error.to_string())?;
    let kind = match esker::point_time_paths(&path) {
        Ok(_) => IndexKind::SpaceTime(Layout::Clustered),
        Err(_) => IndexKind::Spatial(Layout::Clustered),
    };
    Ok(WantedIndex {
        path,
        kind,
        ty,
        tokenizer: Tokenizer::default(),
    })
}

/// The times of indexes over place and time that are not declared: they are, as times.
fn declare_times(indexes: &mut Vec<WantedIndex>) {
    let timed = indexes
        .iter()
        .filter(|index| matches!(index.kind, IndexKind::SpaceTime(_)));
    let times = timed.filter_map(|index| Some(esker::point_time_paths(&index.path).ok()?.1));
    for path in times.collect::<Vec<Path>>() {
        if indexes.iter().all(|index| index.path != path) {
            indexes.push(WantedIndex {
                path,
                kind: IndexKind::None,
                ty: Some(Type::Time),
                tokenizer: Tokenizer::default(),
            });
        }
    }
}

pub(crate) fn parse_path(text: &str) -> Result<Path, Failure> {
    Ok(text.parse::<Path>()?)
}
