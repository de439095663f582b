//! `stat`: what is in a store, how it is indexed, whether it is well, and what to do; internals when asked for.

use std::fmt::Write;
use std::fs;
use std::path::Path as FilePath;

use esker::{Database, Dataset};
use serde_json::{Map, Value as Json, json};

use super::{dataset, open_to_read, picture};
use crate::args::{StatArgs, Strategy};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bold, bytes, columns, thousands};
use crate::words::definition;

/// Up to so many entries the records are counted; of more, the tables tell how many there are at most.
const COUNTED: u64 = 1_000_000;

/// `esker stat DIR [DATASET] [--verbose | --json]`
pub(crate) fn stat(args: &StatArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let mut output = Output::new();
    if let Some(name) = &args.dataset {
        let of_dataset = of_dataset(&args.dir, &dataset(&db, name)?)?;
        match args.json {
            true => output.line(of_dataset)?,
            false => {
                output.text(summary(name, &of_dataset))?;
                if args.verbose {
                    output.text(internals(&of_dataset))?;
                }
            }
        }
    } else {
        let stats = of_store(&args.dir, &db)?;
        match args.json {
            true => output.line(stats)?,
            false => {
                output.text(overview(&args.dir, &stats))?;
                if args.verbose {
                    output.text(internals(&stats))?;
                }
            }
        }
    }
    output.finish()?;
    Ok(Outcome::Done)
}

/// What the library knows of the store, with a summary of each dataset before it.
fn of_store(dir: &FilePath, db: &Database) -> Result<Json, Failure> {
    let mut stats = db.stats();
    if let Some(fields) = stats.as_object_mut() {
        let mut datasets = Map::new();
        for name in db.dataset_names() {
            datasets.insert(name.clone(), of_dataset(dir, &dataset(db, &name)?)?);
        }
        fields.insert("datasets".to_string(), Json::Object(datasets));
        fields.insert("bytes".to_string(), json!(size_of(dir)));
    }
    Ok(stats)
}

/// The bytes of the files of a store, its log included.
fn size_of(dir: &FilePath) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.sum()
}

/// What the library knows of a dataset, behind a summary.
fn of_dataset(dir: &FilePath, dataset: &Dataset) -> Result<Json, Failure> {
    let stats = dataset.stats();
    let def = dataset.def();
    let trees = list(&stats["trees"]);
    let data = trees.iter().find(|tree| tree["name"] == "data");
    let entries = data.map_or(0, entries);
    let is_counted = entries <= COUNTED && data.is_some_and(|tree| tree["damage"].is_null());
    let records = match is_counted {
        true => dataset.query().count()?,
        false => entries,
    };
    let unfinished = stats.get("unfinished");
    let mut indexes = Vec::new();
    for index in def.indexes.iter().filter(|index| index.kind.is_indexed()) {
        let path = index.path.to_string();
        let label = format!("{} index of {path}", index.kind);
        let tree = trees.iter().find(|tree| tree["name"] == label.as_str());
        let damage = tree.or(data).map_or(&Json::Null, |tree| &tree["damage"]);
        let change = unfinished.filter(|change| change["path"] == path.as_str());
        let state = match (damage.as_str(), change) {
            (Some(_), _) => "damaged".to_string(),
            (None, Some(change)) => format!("ready; {} being built", text(&change["kind"])),
            (None, None) => "ready".to_string(),
        };
        indexes.push(json!({
            "path": path,
            "kind": index.kind.to_string(),
            "type": index.ty.to_string(),
            // The others are a part of the records.
            "bytes": tree.map(size),
            "state": state,
        }));
    }
    if let Some(change) = unfinished
        && !indexes.iter().any(|index| index["path"] == change["path"])
    {
        indexes.push(json!({
            "path": change["path"], "kind": change["kind"], "type": change["type"], "bytes": null, "state": "being built",
        }));
    }
    let (health, advice) = health(dir, dataset.name(), &stats, &indexes, records, is_counted);
    let mut all = json!({
        "records": records,
        "records_counted": is_counted,
        "bytes": trees.iter().map(size).sum::<u64>(),
        "indexes": indexes,
        "maintenance": match Strategy::of(&def) {
            Strategy::Auto => format!("auto, now {}", def.maintenance),
            Strategy::Fixed(maintenance) => maintenance.to_string(),
        },
        "health": health,
        "advice": advice,
    });
    if let (Json::Object(all), Json::Object(rest)) = (&mut all, stats) {
        all.extend(rest);
        all.insert("definition".to_string(), json!(definition(&def)));
    }
    Ok(all)
}

/// The state of a dataset in a line, and what to do about it.
fn health(
    dir: &FilePath,
    name: &str,
    stats: &Json,
    indexes: &[Json],
    records: u64,
    is_counted: bool,
) -> (String, String) {
    let dir = dir.display();
    let trees = list(&stats["trees"]);
    if let Some(tree) = trees.iter().find(|tree| !tree["damage"].is_null()) {
        let label = text(&tree["name"]);
        let health = format!("damaged: {label}: {}", text(&tree["damage"]));
        let damaged = indexes.iter().find(|index| {
            index["state"] == "damaged"
                && label.ends_with(&format!("index of {}", text(&index["path"])))
        });
        let advice = match damaged {
            Some(index) => format!(
                "build it again: esker repair {dir} {name} --rebuild-index {}",
                text(&index["path"])
            ),
            None if label == "obsolete writes" => {
                format!("make it anew: esker repair {dir} {name}")
            }
            None => format!("`esker check {dir}` lists all damage; go back to a backup"),
        };
        return (health, advice);
    }
    if let Some(failure) = list(&stats["failures"]).first() {
        let (job, error) = (text(&failure["job"]), text(&failure["error"]));
        let health = format!("a {job} fails: {error}");
        let next = text(&failure["next_attempt"]);
        return (health, format!("mend the cause; it is tried again {next}"));
    }
    let health = "ok".to_string();
    if let Some(change) = stats.get("unfinished") {
        let (path, kind) = (text(&change["path"]), text(&change["kind"]));
        let advice = format!(
            "the change of `{path}` to {kind} is unfinished: esker index resume {dir} {name}"
        );
        return (health, advice);
    }
    let stored: u64 = trees
        .iter()
        .filter(|tree| tree["name"] == "data")
        .map(entries)
        .sum();
    if is_counted && stored > 10_000 && stored / 2 > records {
        let advice = format!(
            "{} of {} stored records are replaced or deleted: esker compact {dir} {name}",
            thousands(stored - records),
            thousands(stored)
        );
        return (health, advice);
    }
    if indexes.is_empty() && records > 1000 {
        let advice = format!(
            "every query scans, for no field is indexed: esker index add {dir} {name} FIELD"
        );
        return (health, advice);
    }
    (health, "nothing to do".to_string())
}

/// A store for people: a line for all, and a paragraph a dataset.
fn overview(dir: &FilePath, stats: &Json) -> String {
    let empty = Map::new();
    let datasets = stats["datasets"].as_object().unwrap_or(&empty);
    let number = match datasets.len() {
        1 => "1 dataset".to_string(),
        number => format!("{} datasets", thousands(number as u64)),
    };
    let size = bytes(stats["bytes"].as_u64().unwrap_or(0));
    let mut text = format!("{}: {number}, {size} on disk\n", dir.display());
    for (name, of_dataset) in datasets {
        text.push('\n');
        text += &summary(name, of_dataset);
    }
    text
}

fn summary(name: &str, stats: &Json) -> String {
    let records = thousands(stats["records"].as_u64().unwrap_or(0));
    let least = match stats["records_counted"].as_bool() {
        Some(false) => "at most ",
        _ => "",
    };
    let size = bytes(stats["bytes"].as_u64().unwrap_or(0));
    let mut summary = format!("{}: {least}{records} records, {size}\n", bold(name));
    let mut rows = vec![["index", "kind", "type", "size", "state"].map(str::to_string)];
    for index in list(&stats["indexes"]) {
        let size = match index["bytes"].as_u64() {
            Some(size) => bytes(size),
            None => "within the records".to_string(),
        };
        let [path, kind, ty, state] =
            ["path", "kind", "type", "state"].map(|name| text(&index[name]));
        rows.push([path, kind, ty, size, state]);
    }
    if rows.len() > 1 {
        for line in columns(&rows).lines() {
            // Writing to a string cannot fail.
            let _ = writeln!(summary, "  {line}");
        }
    }
    for name in ["maintenance", "health", "advice"] {
        let _ = writeln!(summary, "  {name}: {}", text(&stats[name]));
    }
    summary
}

/// All the rest, for those who know the engine.
fn internals(stats: &Json) -> String {
    let mut rest = stats.clone();
    if let Some(fields) = rest.as_object_mut() {
        for name in [
            "records",
            "records_counted",
            "indexes",
            "maintenance",
            "health",
            "advice",
        ] {
            fields.shift_remove(name);
        }
    }
    format!("\n{}\n{}", bold("internals"), picture::table(&rest))
}

/// The entries of a tree that are no deletions.
fn entries(tree: &Json) -> u64 {
    let levels = list(&tree["levels"]).iter();
    let of_level = |level: &Json| {
        let entries = level["entries"].as_u64().unwrap_or(0);
        entries.saturating_sub(level["deletes"].as_u64().unwrap_or(0))
    };
    levels.map(of_level).sum::<u64>() + tree["memtable"]["entries"].as_u64().unwrap_or(0)
}

/// The bytes of a tree: its tables, and what is still in memory and the log.
fn size(tree: &Json) -> u64 {
    tree["bytes"].as_u64().unwrap_or(0) + tree["memtable"]["bytes"].as_u64().unwrap_or(0)
}

fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}
