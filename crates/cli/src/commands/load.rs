//! `load`: files into a dataset.

use std::collections::HashSet;
use std::path::Path as FilePath;

use esker::{
    Database, Dataset, DatasetDef, Durability, ErrorKind, IndexDef, IndexKind, KeyType, Merging,
    Path, Repair, Tokenizer, Type,
};

use super::{options, promise};
use crate::args::LoadArgs;
use crate::args::Strategy;
use crate::failure::{Failure, Outcome};
use crate::input::{Event, Feed, Source, prepare};
use crate::output::{note, thousands};
use crate::progress::Progress;
use crate::rejects::Rejects;
use crate::words::definition;

/// Records in a batch, and their bytes: whichever is reached first.
pub(crate) const BATCH_RECORDS: usize = 1000;
/// See `BATCH_RECORDS`.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
/// What types are inferred from.
const SAMPLE_RECORDS: usize = 1000;
const SAMPLE_BYTES: usize = 16 << 20;

/// `esker load DIR DATASET FILE...`
pub(crate) fn load(args: &LoadArgs, memory: usize) -> Result<Outcome, Failure> {
    // Whatever can be refused is refused before a store is made.
    esker::check_dataset_name(&args.dataset)?;
    let wanted = Wanted::parse(args)?;
    let sources = prepare(&args.files, args.format)?;
    let existing = existing(&args.dir, &args.dataset, memory)?;
    if let Some((_, Some(dataset))) = &existing {
        wanted.agree(&args.dataset, &dataset.def())?;
    } else if wanted.key.is_none() {
        return Err(Failure::Usage(format!(
            "dataset `{}` is new: say which field is its key, as in --key id",
            args.dataset
        )));
    }

    let names: Vec<String> = sources.iter().map(Source::name).collect();
    let rejects = sources
        .iter()
        .map(|source| Rejects::beside(source.path.as_deref()))
        .collect();
    let total = sources.iter().map(|source| source.size).sum();
    let mut feed = Feed::start(sources);

    let (db, dataset) = match existing {
        Some((db, Some(dataset))) => (db, dataset),
        missing => {
            let Some(def) = wanted.define(&mut feed, &names)? else {
                note("no records: nothing was made");
                return Ok(Outcome::Done);
            };
            let db = match missing {
                Some((db, _)) => db,
                None => Database::create_or_open(&args.dir, options(memory))?,
            };
            note(format_args!(
                "dataset `{}` is new: {}",
                args.dataset,
                definition(&def)
            ));
            let dataset = db.create_dataset(&args.dataset, def)?;
            (db, dataset)
        }
    };

    note(format_args!("durability: {}", promise(args.durability)));
    feed.set_string_columns(string_columns(&dataset.def()));
    let mut loading = Loading {
        durability: args.durability,
        strict: args.strict,
        names,
        rejects,
        progress: Progress::bytes(total),
        loaded: 0,
        rejected: 0,
    };
    let ended = loading.run(&dataset, &mut feed);
    // Also after a failure: what was loaded before stays.
    let synced = dataset.sync();
    loading.report()?;
    let trouble = ended?;
    synced?;
    db.close()?;
    match trouble {
        Some(reason) => Err(Failure::Usage(reason)),
        None if loading.loaded == 0 && loading.rejected > 0 => {
            Err(Failure::Usage("no line was a good record".to_string()))
        }
        None => Ok(Outcome::Done),
    }
}

/// The store, where there is one, and the dataset, where it has it.
fn existing(
    dir: &FilePath,
    name: &str,
    memory: usize,
) -> Result<Option<(Database, Option<Dataset>)>, Failure> {
    let db = match Database::open(dir, options(memory)) {
        Ok(db) => db,
        Err(error) if error.kind() == ErrorKind::NoStore => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match db.dataset(name) {
        Ok(dataset) => Ok(Some((db, Some(dataset)))),
        Err(error) if error.kind() == ErrorKind::UnknownDataset => Ok(Some((db, None))),
        Err(error) => Err(error.into()),
    }
}

/// The CSV columns that the dataset declares to be strings. A column is a field of the record itself, whatever its name
/// holds: it is meant by a path of that one name, not by one that reads like it.
fn string_columns(def: &DatasetDef) -> HashSet<String> {
    let key = (def.key_type == KeyType::String).then_some(&def.key);
    let indexes = def.indexes.iter().filter(|index| index.ty == Type::String);
    let paths = indexes.map(|index| &index.path).chain(key);
    paths
        .filter_map(|path| {
            let mut names = path.names();
            names.next().filter(|_| names.len() == 0)
        })
        .map(str::to_string)
        .collect()
}

/// A load under way.
struct Loading {
    durability: Durability,
    strict: bool,
    /// Of each source: its name, and the lines that were not taken.
    names: Vec<String>,
    rejects: Vec<Rejects>,
    progress: Progress,
    loaded: u64,
    rejected: u64,
}

impl Loading {
    /// Loads everything. A reason is returned where the load had to stop early; what came before it
    /// is committed.
    fn run(&mut self, dataset: &Dataset, feed: &mut Feed) -> Result<Option<String>, Failure> {
        let mut batch = dataset.batch();
        let mut stopped = None;
        while stopped.is_none() {
            let (source, line, reason, text) = match feed.next() {
                Some(Event::Record { source, line, text }) => match batch.put_json(text) {
                    Ok(()) => {
                        if batch.len() >= BATCH_RECORDS || batch.bytes() >= BATCH_BYTES {
                            let full = batch.len() as u64;
                            batch.durability(self.durability).commit()?;
                            self.loaded += full;
                            self.progress.update(feed.bytes_read(), self.loaded);
                        }
                        continue;
                    }
                    Err(error) => (source, line, error.to_string(), text),
                },
                Some(Event::Bad {
                    source,
                    line,
                    reason,
                    text,
                }) => (source, line, reason, text),
                Some(Event::Failed {
                    source,
                    line,
                    reason,
                }) => {
                    let name = self.name(source);
                    stopped = Some(format!(
                        "{name}: cannot be read after line {line}: {reason}"
                    ));
                    continue;
                }
                None => break,
            };
            if self.strict {
                stopped = Some(format!("{}, line {line}: {reason}", self.name(source)));
            }
            self.rejected += 1;
            if let Some(rejects) = self.rejects.get_mut(source) {
                rejects.add(line, &reason, text);
            }
        }
        let rest = batch.len() as u64;
        if rest > 0 {
            batch.durability(self.durability).commit()?;
            self.loaded += rest;
        }
        Ok(stopped)
    }

    fn name(&self, source: usize) -> &str {
        self.names.get(source).map_or("input", String::as_str)
    }

    /// Says what was done.
    fn report(&mut self) -> Result<(), Failure> {
        self.progress.clear();
        let (elapsed, seconds) = self.progress.elapsed();
        for rejects in std::mem::take(&mut self.rejects) {
            let count = rejects.count();
            let written = rejects
                .finish()
                .map_err(|error| Failure::Usage(format!("cannot write rejected lines: {error}")))?;
            if let Some(path) = written {
                let count = thousands(count);
                note(format_args!(
                    "bad lines: {count}, with reasons in {}",
                    path.display()
                ));
            }
        }
        note(format_args!(
            "{} records loaded, {} rejected, in {elapsed} ({} records/s)",
            thousands(self.loaded),
            thousands(self.rejected),
            thousands((self.loaded as f64 / seconds.max(1e-9)) as u64)
        ));
        Ok(())
    }
}

/// The definition that the command line gives; what it leaves open is `None`.
struct Wanted {
    key: Option<(Path, Option<KeyType>)>,
    indexes: Vec<WantedIndex>,
    maintenance: Option<Strategy>,
    repair: Option<Repair>,
    merging: Option<Merging>,
    versions: Option<u32>,
}

/// An attribute as the command line says it is to be indexed.
pub(crate) struct WantedIndex {
    pub(crate) path: Path,
    pub(crate) kind: IndexKind,
    pub(crate) ty: Option<Type>,
    pub(crate) tokenizer: Tokenizer,
}

impl Wanted {
    fn parse(args: &LoadArgs) -> Result<Self, Failure> {
        let key = args.key.as_deref().map(parse_key).transpose()?;
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
        Ok(Self {
            key,
            indexes,
            maintenance: args.maintenance,
            repair: args.repair,
            merging: args.merging,
            versions: args.versions,
        })
    }

    /// Refuses a definition that is not the dataset's. What is not said agrees with anything.
    fn agree(&self, name: &str, def: &DatasetDef) -> Result<(), Failure> {
        let key = self
            .key
            .as_ref()
            .is_none_or(|(path, ty)| *path == def.key && ty.is_none_or(|ty| ty == def.key_type));
        let indexes = self.indexes.is_empty()
            || self.indexes.len() == def.indexes.len()
                && self.indexes.iter().all(|wanted| {
                    def.indexes.iter().any(|index| {
                        index.path == wanted.path
                            && index.kind == wanted.kind
                            && index.tokenizer == wanted.tokenizer
                            && wanted.ty.is_none_or(|ty| ty == index.ty)
                    })
                });
        let upkeep = self
            .maintenance
            .is_none_or(|said| said == Strategy::of(def))
            && self.repair.is_none_or(|said| said == def.repair)
            && self.merging.is_none_or(|said| said == def.merging)
            && self.versions.is_none_or(|said| said == def.versions);
        if key && indexes && upkeep {
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
    /// `None` where there are no records to show any.
    fn define(self, feed: &mut Feed, names: &[String]) -> Result<Option<DatasetDef>, Failure> {
        let Some((key, key_type)) = self.key else {
            return Err(Failure::Usage("a new dataset needs --key".to_string()));
        };
        let open = key_type.is_none() || self.indexes.iter().any(|index| index.ty.is_none());
        let sample = match open {
            true => feed.sample(SAMPLE_RECORDS, SAMPLE_BYTES),
            false => Default::default(),
        };
        if open && sample.records.is_empty() {
            if let Some((source, reason)) = sample.failed {
                let name = names.get(source).map_or("input", String::as_str);
                return Err(Failure::Usage(format!("{name}: cannot be read: {reason}")));
            }
            if sample.others == 0 {
                return Ok(None);
            }
            return Err(Failure::Usage(format!(
                "none of the first {} lines is a JSON object; nothing was made",
                thousands(sample.others)
            )));
        }
        let key_type = match key_type.or_else(|| esker::infer_key_type(&sample.records, &key)) {
            Some(key_type) => key_type,
            None => {
                return Err(Failure::Usage(format!(
                    "none of the first {} records has the key `{key}`; nothing was made",
                    sample.records.len()
                )));
            }
        };
        let indexes = self.indexes.into_iter().map(|wanted| {
            let path = wanted.path;
            let ty = wanted
                .ty
                .or_else(|| esker::infer_type(&sample.records, &path))
                .unwrap_or_else(|| {
                    note(format_args!(
                        "note: no record shows `{path}` yet; it is taken for a string"
                    ));
                    Type::String
                });
            IndexDef {
                path,
                kind: wanted.kind,
                ty,
                tokenizer: wanted.tokenizer,
            }
        });
        let mut def = DatasetDef::new(key, key_type);
        def.indexes = indexes.collect();
        def.repair = self.repair.unwrap_or(def.repair);
        def.merging = self.merging.unwrap_or(def.merging);
        def.versions = self.versions.unwrap_or(def.versions);
        let def = match self.maintenance {
            Some(strategy) => strategy.apply(def),
            None => def,
        };
        def.validate()?;
        Ok(Some(def))
    }

    fn text(&self) -> String {
        let mut text = match &self.key {
            Some((path, Some(ty))) => format!("--key {path}:{ty}"),
            Some((path, None)) => format!("--key {path}"),
            None => String::new(),
        };
        for index in &self.indexes {
            text += &format!(" --index {}:{}", index.path, index.kind);
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
        ] {
            if let Some(said) = said {
                text += &format!(" --{name} {said}");
            }
        }
        text.trim_start().to_string()
    }
}

/// Reads `FIELD[:TYPE]`.
fn parse_key(text: &str) -> Result<(Path, Option<KeyType>), Failure> {
    let (path, ty) = match text.rsplit_once(':') {
        Some((path, ty)) => {
            let refuse = |_| format!("--key {text}: unknown key type `{ty}` (int or string)");
            (
                path,
                Some(ty.parse().map_err(refuse).map_err(Failure::Usage)?),
            )
        }
        None => (text, None),
    };
    Ok((parse_path(path)?, ty))
}

/// How an attribute is indexed where it is not said: of the kinds that find what is asked for
/// without reading much else, the one that is quickest to ask (docs/performance.md).
pub(crate) const USUAL: IndexKind = IndexKind::Lazy;

/// Reads `PATH[:KIND[:TYPE[:TOKENIZER]]]`; says what is wrong with it.
pub(crate) fn parse_index(text: &str) -> Result<WantedIndex, String> {
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
        format!(
            "unknown index kind `{kind}` (embedded, fingerprint, filter, lazy, composite, recent or eager)"
        )
    })?;
    let ty = last
        .parse()
        .map_err(|_| format!("unknown type `{last}` (int, float, string, bool or time)"))?;
    wanted(head, kind, Some(ty))
}

pub(crate) fn parse_path(text: &str) -> Result<Path, Failure> {
    Ok(text.parse::<Path>()?)
}
