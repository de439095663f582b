//! `stat`: records, sizes, indexes, health and advice; internals on request. Of clusters see
//! [`stat_cluster`](super::stat_cluster).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path as FilePath;

use ::pubsub::Broker;
use esker::Request;
use esker::schema::IndexDef;
use esker::stats::{ConsumerStats, DatasetStats, StoreStats, TreeStats};
use esker_import::{Format, InterruptedImport, interrupted_imports};
use esker_store::{Dataset, Store};
use serde::Serialize;
use serde_json::Value as Json;

use super::fields::escaped;
use super::picture;
use super::said::json;
use crate::args::{StatArgs, Strategy};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, age, bold, bytes, columns, counted, thousands};
use crate::store::{dataset, is_served, open_folder_to_read, open_to_read};
use crate::words::definition;

/// Records are counted if the tables have at most this many entries; otherwise the entries are the
/// upper bound shown.
const COUNTED: u64 = 1_000_000;

/// `esker stat DIR [DATASET] [--verbose | --json]`
pub(crate) fn stat(args: &StatArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    if db.capabilities().summaries {
        return super::stat_cluster::stat(args, &*db);
    }
    let mut output = Output::new();
    if let Some(name) = &args.dataset {
        let consumers = db.stats()?.consumers;
        let of_dataset = of_dataset(&args.dir, &*dataset(&*db, name)?, &consumers)?;
        if args.json {
            output.line(json(&of_dataset))?
        } else {
            output.text(summary(name, &of_dataset))?;
            if args.verbose {
                output.text(internals(json(&of_dataset.internals)))?;
            }
        }
    } else {
        let of_store = of_store(&args.dir, &*db, memory)?;
        if args.json {
            output.line(json(&of_store))?
        } else {
            output.text(overview(&args.dir, &of_store))?;
            if args.verbose {
                output.text(internals(json(&of_store.internals)))?;
            }
        }
    }
    output.finish()?;
    Ok(Outcome::Done)
}

/// The report on a store.
#[derive(Serialize)]
struct OfStore {
    datasets: BTreeMap<String, OfDataset>,
    /// The size of its files, including the log.
    bytes: u64,
    /// Publish/subscribe, if the store has a broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pubsub: Option<OfPubsub>,
    #[serde(flatten)]
    internals: StoreStats,
}

/// The live part of publish/subscribe.
#[derive(Serialize)]
struct OfPubsub {
    topics: u64,
    publications: u64,
    subscriptions: u64,
}

/// The report on a dataset.
#[derive(Serialize)]
struct OfDataset {
    records: u64,
    /// False if `records` is an upper bound, because there were too many to count.
    records_counted: bool,
    /// By path of an index: how many records have a value there that is not indexed. Empty if
    /// records were not counted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unindexed: BTreeMap<String, u64>,
    bytes: u64,
    indexes: Vec<OfIndex>,
    maintenance: String,
    /// The arguments of `esker create` that create such a dataset.
    arguments: String,
    health: String,
    advice: String,
    consumers: Vec<ConsumerStats>,
    #[serde(flatten)]
    internals: DatasetStats,
}

#[derive(Serialize)]
struct OfIndex {
    path: String,
    kind: String,
    #[serde(rename = "type")]
    ty: String,
    /// `None` for an index without a tree.
    bytes: Option<u64>,
    state: String,
}

const DAMAGED: &str = "damaged";

fn of_store(dir: &FilePath, db: &dyn Store, memory: usize) -> Result<OfStore, Failure> {
    let mut datasets = BTreeMap::new();
    let mut internals = db.stats()?;
    for name in db.dataset_names()? {
        let of_dataset = of_dataset(dir, &*dataset(db, &name)?, &internals.consumers)?;
        datasets.insert(name, of_dataset);
    }
    // Each dataset has its own report.
    internals.datasets.clear();
    Ok(OfStore {
        datasets,
        bytes: db.bytes_on_disk()?.unwrap_or_else(|| size_of(dir)),
        pubsub: of_pubsub(dir, memory)?,
        internals,
    })
}

fn of_pubsub(dir: &FilePath, memory: usize) -> Result<Option<OfPubsub>, Failure> {
    if is_served(dir) {
        return Ok(None);
    }
    let db = open_folder_to_read(dir, memory)?;
    if !Broker::is_there(&db)? {
        return Ok(None);
    }
    let topics = Broker::open(&db)?.topics()?;
    Ok(Some(OfPubsub {
        topics: topics.iter().filter(|topic| topic.publications > 0).count() as u64,
        publications: topics.iter().map(|topic| topic.publications).sum(),
        subscriptions: topics.iter().map(|topic| topic.subscriptions).sum(),
    }))
}

/// The size of the files of a store, including the log.
fn size_of(dir: &FilePath) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.sum()
}

fn of_dataset(
    dir: &FilePath,
    dataset: &dyn Dataset,
    consumers: &[ConsumerStats],
) -> Result<OfDataset, Failure> {
    let stats = dataset.stats()?;
    let def = &stats.definition;
    let data = stats.trees.iter().find(|tree| tree.name == "data");
    let entries = data.map_or(0, entries);
    let is_counted = entries <= COUNTED && data.is_some_and(|tree| tree.damage.is_none());
    let records = if is_counted {
        dataset.count(&Request::default())?.0
    } else {
        entries
    };
    let has_indexes = def.indexes.iter().any(|index| index.kind.is_indexed());
    let unindexed = if is_counted && has_indexes {
        dataset.unindexed()?
    } else {
        BTreeMap::new()
    };
    let unindexed = unindexed
        .into_iter()
        .map(|(path, count)| (path.to_string(), count));
    let unfinished = stats.unfinished.as_ref();
    let mut indexes = Vec::new();
    for index in def.indexes.iter().filter(|index| index.kind.is_indexed()) {
        let label = format!("{} index of {}", index.kind, index.path);
        let tree = stats.trees.iter().find(|tree| tree.name == label);
        let damage = tree.or(data).and_then(|tree| tree.damage.as_ref());
        let change = unfinished.filter(|change| change.path == index.path);
        indexes.push(OfIndex {
            path: index.path.to_string(),
            kind: index.kind.to_string(),
            ty: type_of(index),
            bytes: tree.map(size),
            state: match (damage, change) {
                (Some(_), _) => DAMAGED.to_string(),
                (None, Some(change)) => format!("ready; {} being built", change.kind),
                (None, None) => "ready".to_string(),
            },
        });
    }
    if let Some(change) = unfinished
        && !(def.indexes.iter()).any(|index| index.path == change.path && index.kind.is_indexed())
    {
        indexes.push(OfIndex {
            path: change.path.to_string(),
            kind: change.kind.to_string(),
            ty: change.ty.to_string(),
            bytes: None,
            state: "being built".to_string(),
        });
    }
    let (health, advice) = health(dir, dataset, &stats, &indexes, records, is_counted)?;
    let own = |consumer: &&ConsumerStats| consumer.dataset == Some(dataset.name());
    Ok(OfDataset {
        records,
        records_counted: is_counted,
        unindexed: unindexed.collect(),
        bytes: stats.trees.iter().map(size).sum(),
        indexes,
        maintenance: match Strategy::of(def) {
            Strategy::Auto => format!("auto, now {}", def.maintenance),
            Strategy::Fixed(maintenance) => maintenance.to_string(),
        },
        arguments: definition(def),
        health,
        advice,
        consumers: consumers.iter().filter(own).cloned().collect(),
        internals: stats,
    })
}

/// The type of the values of an index, and what holds of them.
fn type_of(index: &IndexDef) -> String {
    let lenient = if index.lenient { ", lenient" } else { "" };
    let unique = if index.unique { ", unique" } else { "" };
    format!("{}{lenient}{unique}", index.ty)
}

/// The health of a dataset in a line, and what to do about it.
fn health(
    dir: &FilePath,
    dataset: &dyn Dataset,
    stats: &DatasetStats,
    indexes: &[OfIndex],
    records: u64,
    is_counted: bool,
) -> Result<(String, String), Failure> {
    let dir = shell_word(&dir.display().to_string());
    let name = shell_word(&dataset.name());
    let damage = |tree: &TreeStats| Some((tree.name.clone(), tree.damage.clone()?));
    if let Some((label, damage)) = stats.trees.iter().find_map(damage) {
        let health = format!("damaged: {label}: {damage}");
        let damaged = indexes.iter().find(|index| {
            index.state == DAMAGED && label.ends_with(&format!("index of {}", index.path))
        });
        let advice = match damaged {
            Some(index) => format!(
                "rebuild it: esker repair {dir} {name} --rebuild-index {}",
                index.path
            ),
            None if label == "obsolete writes" => {
                format!("rebuild it: esker repair {dir} {name}")
            }
            None => format!("`esker check {dir}` lists all damage; restore a backup"),
        };
        return Ok((health, advice));
    }
    if let Some(failure) = stats.failures.first() {
        let health = format!("a {} keeps failing: {}", failure.job, failure.error);
        let next = &failure.next_attempt;
        return Ok((health, format!("remove the cause; it is retried {next}")));
    }
    let health = "ok".to_string();
    if let Some(change) = &stats.unfinished {
        let advice = format!(
            "the change of `{}` to {} is unfinished: esker index resume {dir} {name}",
            change.path, change.kind
        );
        return Ok((health, advice));
    }
    if let Some(import) = interrupted_imports(dataset)?.first() {
        let advice = format!(
            "a load was interrupted after {}: to resume it, esker load {dir} {name} {}",
            counted(import.records, "record"),
            again(import)
        );
        return Ok((health, advice));
    }
    let data = stats.trees.iter().filter(|tree| tree.name == "data");
    let stored: u64 = data.map(entries).sum();
    if is_counted && stored > 10_000 && stored / 2 > records {
        let advice = format!(
            "{} of {} stored records are replaced or deleted: esker compact {dir} {name}",
            thousands(stored - records),
            thousands(stored)
        );
        return Ok((health, advice));
    }
    if indexes.is_empty() && records > 1000 {
        let advice = format!(
            "every query scans, because no field is indexed: esker index add {dir} {name} FIELD"
        );
        return Ok((health, advice));
    }
    let advice = if indexes.is_empty() {
        "nothing to do".to_string()
    } else {
        format!("nothing to do; to see whether the indexes fit: esker advise {dir} {name}")
    };
    Ok((health, advice))
}

/// A store for people: a line for the whole, and a paragraph for each dataset.
fn overview(dir: &FilePath, of: &OfStore) -> String {
    let number = counted(of.datasets.len() as u64, "dataset");
    let size = bytes(of.bytes);
    let mut text = format!("{}: {number}, {size} on disk\n", dir.display());
    if let Some(pubsub) = &of.pubsub {
        let _ = writeln!(
            text,
            "publish/subscribe: {} to {}, {}",
            counted(pubsub.publications, "publication"),
            counted(pubsub.topics, "topic"),
            counted(pubsub.subscriptions, "subscription")
        );
    }
    for (name, of_dataset) in &of.datasets {
        text.push('\n');
        text += &summary(name, of_dataset);
    }
    // A consumer of an earlier version belongs to no dataset until one uses it.
    for consumer in &of.internals.consumers {
        if consumer.dataset.is_none() {
            let _ = writeln!(
                text,
                "\nconsumer {} (of no dataset yet): {}",
                consumer.name,
                unread(consumer)
            );
        }
    }
    text
}

/// The backlog of a consumer.
fn unread(consumer: &ConsumerStats) -> String {
    match (consumer.lag_bytes, consumer.unread_seconds) {
        (0, _) => "has read everything".to_string(),
        (behind, None) => format!("at most {} of log unread", bytes(behind)),
        (behind, Some(seconds)) => format!(
            "at most {} of log unread, the oldest change {} old",
            bytes(behind),
            age(seconds)
        ),
    }
}

fn summary(name: &str, of: &OfDataset) -> String {
    let records = counted(of.records, "record");
    let least = if of.records_counted { "" } else { "at most " };
    let size = bytes(of.bytes);
    let mut summary = format!("{}: {least}{records}, {size}\n", bold(name));
    let mut rows = vec![["index", "kind", "type", "size", "state"].map(str::to_string)];
    for index in &of.indexes {
        let size = match index.bytes {
            Some(size) => bytes(size),
            None => "within the records".to_string(),
        };
        let cell = String::clone;
        let [path, kind, ty, state] = [&index.path, &index.kind, &index.ty, &index.state].map(cell);
        rows.push([path, kind, ty, size, state]);
    }
    if rows.len() > 1 {
        for line in columns(&rows).lines() {
            // Writing to a string cannot fail.
            let _ = writeln!(summary, "  {line}");
        }
    }
    for (path, count) in &of.unindexed {
        let records = match count {
            1 => "1 record has".to_string(),
            count => format!("{} records have", thousands(*count)),
        };
        let _ = writeln!(
            summary,
            "  not indexed: {records} an object or no valid position at `{path}`"
        );
    }
    for (name, text) in [
        ("maintenance", &of.maintenance),
        ("health", &of.health),
        ("advice", &of.advice),
    ] {
        let _ = writeln!(summary, "  {name}: {text}");
    }
    for consumer in &of.consumers {
        let _ = writeln!(
            summary,
            "  consumer {}: {}",
            consumer.name,
            unread(consumer)
        );
    }
    summary
}

/// All statistics, for readers who know the engine.
fn internals(stats: Json) -> String {
    format!("\n{}\n{}", bold("internals"), picture::table(&stats))
}

/// The number of entries of a tree, without tombstones in its tables.
fn entries(tree: &TreeStats) -> u64 {
    let levels = tree.levels.iter();
    let of_tables: u64 = levels
        .map(|level| level.entries.saturating_sub(level.deletes))
        .sum();
    of_tables + tree.memtable.entries
}

/// The size of a tree: its tables and its memtables.
fn size(tree: &TreeStats) -> u64 {
    tree.bytes + tree.memtable.bytes as u64
}

/// The files and options of an interrupted load, as a shell takes them.
fn again(import: &InterruptedImport) -> String {
    let mut words: Vec<String> = import.files.iter().map(|file| shell_word(file)).collect();
    let mut option = |name: &str, value: &str| {
        words.push(name.to_string());
        words.push(shell_word(value));
    };
    match (import.format, import.delimiter) {
        (Some(Format::Csv), Some(b'\t')) => option("--format", "tsv"),
        (Some(Format::Csv), Some(delimiter)) => {
            option("--delimiter", &char::from(delimiter).to_string());
        }
        (Some(Format::Csv), None) => option("--format", "csv"),
        (Some(_), _) => option("--format", "ndjson"),
        (None, _) => {}
    }
    if let Some(names) = &import.records_at {
        let path: Vec<String> = names.iter().map(|name| escaped(name)).collect();
        let path = path.join(".");
        option("--records", if path.is_empty() { "." } else { &path });
    }
    words.join(" ")
}

/// A word of a command line, in quotes where a shell would take it apart or change it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:,+=@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
