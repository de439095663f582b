//! `stat` of a cluster: indexes and repairs. What records and files take, the cluster's own tools
//! tell.

use std::path::Path as FilePath;
use std::time::{SystemTime, UNIX_EPOCH};

use esker_store::{Dataset, Store, Summary};
use serde::Serialize;

use super::said::json;
use crate::args::StatArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, age, bold, columns, counted};
use crate::store::dataset;

/// The report on a dataset.
#[derive(Debug, Serialize)]
struct OfDataset {
    dataset: String,
    key: String,
    /// Versions of a record that are kept.
    versions: u32,
    indexes: Vec<OfIndex>,
    /// What was obsolete so many seconds ago is removed; `None` before the first repair.
    repaired_seconds: Option<u64>,
    advice: String,
}

#[derive(Debug, Serialize)]
struct OfIndex {
    path: String,
    #[serde(rename = "type")]
    ty: String,
    buckets: u64,
    partitions: u64,
    state: String,
}

/// After so many seconds a repair is due.
const REPAIR_DUE: u64 = 2 * 86_400;

pub(super) fn stat(args: &StatArgs, db: &dyn Store) -> Result<Outcome, Failure> {
    let names = match &args.dataset {
        Some(name) => vec![name.clone()],
        None => db.dataset_names()?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let mut all = Vec::new();
    for name in names {
        let dataset = dataset(db, &name)?;
        all.push(of_dataset(&args.dir, &*dataset, &dataset.summary()?, now));
    }
    let mut output = Output::new();
    match (args.json, all.as_slice(), &args.dataset) {
        (true, [one], Some(_)) => output.line(json(one))?,
        (true, all, _) => output.line(json(&all))?,
        (false, all, None) => {
            let number = counted(all.len() as u64, "dataset");
            output.line(format_args!("{}: {number}", args.dir.display()))?;
            for of in all {
                output.text(format_args!("\n{}", text(of)))?;
            }
        }
        (false, all, Some(_)) => {
            for of in all {
                output.text(text(of))?;
            }
        }
    }
    output.finish()?;
    Ok(Outcome::Done)
}

fn of_dataset(dir: &FilePath, dataset: &dyn Dataset, summary: &Summary, now: u64) -> OfDataset {
    let (dir, name, def) = (dir.display(), dataset.name(), dataset.def());
    let mut indexes = Vec::new();
    for index in &summary.indexes {
        let known = def.indexes.iter().find(|known| known.path == index.path);
        indexes.push(OfIndex {
            path: index.path.to_string(),
            ty: known.map_or_else(String::new, |known| known.ty.to_string()),
            buckets: index.buckets,
            partitions: index.partitions,
            state: if index.is_ready {
                "ready"
            } else {
                "being built"
            }
            .to_string(),
        });
    }
    let repaired_seconds = summary
        .repaired
        .map(|millis| now.saturating_sub(millis / 1000));
    let unfinished = summary.indexes.iter().find(|index| !index.is_ready);
    let advice = match (unfinished, repaired_seconds) {
        (Some(index), _) => format!(
            "the index of `{}` is unfinished: esker index resume {dir} {name}",
            index.path
        ),
        (None, None) => format!("nothing was repaired yet; daily: esker repair {dir} {name}"),
        (None, Some(seconds)) if seconds > REPAIR_DUE => {
            format!("a repair is due: esker repair {dir} {name}")
        }
        (None, Some(_)) => "nothing to do".to_string(),
    };
    OfDataset {
        dataset: name,
        key: format!("{}:{}", def.key, def.key_type),
        versions: def.versions,
        indexes,
        repaired_seconds,
        advice,
    }
}

fn text(of: &OfDataset) -> String {
    let versions = counted(u64::from(of.versions), "version");
    let mut text = format!(
        "{}: --key {}, keeps {versions} of a record\n",
        bold(&of.dataset),
        of.key
    );
    let mut rows = vec![["index", "type", "buckets", "partitions", "state"].map(str::to_string)];
    for index in &of.indexes {
        rows.push([
            index.path.clone(),
            index.ty.clone(),
            index.buckets.to_string(),
            index.partitions.to_string(),
            index.state.clone(),
        ]);
    }
    if rows.len() > 1 {
        for line in columns(&rows).lines() {
            text += &format!("  {line}\n");
        }
    }
    let repaired = match of.repaired_seconds {
        Some(seconds) => format!("all that was obsolete {} ago", age(seconds)),
        None => "nothing yet".to_string(),
    };
    text + &format!("  repaired: {repaired}\n  advice: {}\n", of.advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_has_a_paragraph() {
        let of = OfDataset {
            dataset: "orders".to_string(),
            key: "id:int".to_string(),
            versions: 1,
            indexes: vec![OfIndex {
                path: "customer".to_string(),
                ty: "string".to_string(),
                buckets: 2,
                partitions: 5,
                state: "ready".to_string(),
            }],
            repaired_seconds: Some(4 * 3600),
            advice: "nothing to do".to_string(),
        };
        let text = text(&of);
        for part in [
            "orders",
            "--key id:int, keeps 1 version of a record",
            "customer",
            "partitions",
            "repaired: all that was obsolete 4 h ago",
            "advice: nothing to do",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            json(&of)
                .to_string()
                .contains(r#""repaired_seconds":14400"#)
        );
    }
}
