//! The layers of a dataset, table by table, and the areas of the tables of a spatial index.

use std::collections::HashMap;
use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use esker::Key;
use esker::space::TableBox;
use esker::stats::{MemtableStats, TableStats, TreeStats};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::app::Shared;
use super::extract::{Params, Reads, Segments};
use crate::problem::Problem;

/// The trees of a dataset.
#[derive(Serialize, ToSchema)]
pub(super) struct Levels {
    /// The records first.
    trees: Vec<Tree>,
}

/// A tree: a store of sorted tables in levels.
#[derive(Serialize, ToSchema)]
pub(super) struct Tree {
    /// Its contents, in words.
    name: String,
    /// The bytes of its tables.
    bytes: u64,
    /// The error of a table that cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    /// What is in memory and in the log alone: `entries` and `bytes`.
    #[schema(value_type = Object)]
    memtable: MemtableStats,
    /// Its tables, those of the newest run first.
    tables: Vec<Table>,
}

/// A table.
#[derive(Serialize, ToSchema)]
pub(super) struct Table {
    /// `level`, `run` (0 is the newest of the tree), `number`, `bytes`, `entries`, `deletes`, the
    /// writes from `min_seq` to `max_seq`, and `first` and `last`, the bounds of its keys or values
    /// as text.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    stats: TableStats,
    /// How long ago its file was written; absent if the file system does not say, or if the table
    /// has just been replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_ago: Option<f64>,
}

impl Table {
    fn new(stats: TableStats, now: SystemTime) -> Table {
        let metadata = std::fs::metadata(&stats.file);
        let written = metadata.and_then(|metadata| metadata.modified()).ok();
        // A file of the future is new.
        let age = written.map(|written| now.duration_since(written).unwrap_or_default());
        Table {
            seconds_ago: age.map(|age| age.as_secs_f64()),
            stats,
        }
    }
}

fn trees(stats: Vec<TreeStats>, tables: Vec<TableStats>) -> Vec<Tree> {
    let now = SystemTime::now();
    let mut by_tree: HashMap<String, Vec<Table>> = HashMap::new();
    for table in tables {
        let of_tree = by_tree.entry(table.tree.clone()).or_default();
        of_tree.push(Table::new(table, now));
    }
    let trees = stats.into_iter().map(|tree| Tree {
        tables: by_tree.remove(&tree.name).unwrap_or_default(),
        name: tree.name,
        bytes: tree.bytes,
        damage: tree.damage,
        memtable: tree.memtable,
    });
    trees.collect()
}

/// The layers of a dataset as they are now: each table of each tree, with its level, size, age and
/// bounds.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/levels", tag = "state",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = Levels)
    ))]
pub(super) async fn levels(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
) -> Result<Json<Levels>, Problem> {
    let levels = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        let trees = trees(dataset.stats().trees, dataset.tables());
        Ok(Levels { trees })
    });
    Ok(Json(levels.await?))
}

/// Whose areas are asked for.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BoxParams {
    /// The field of a spatial index.
    field: String,
}

/// The areas of the tables of a spatial index.
#[derive(Serialize, ToSchema)]
pub(super) struct Boxes {
    /// `table` (its number), `level`, `run`, `entries`, `bytes`, and the sides `west`, `south`,
    /// `east` and `north`.
    #[schema(value_type = Vec<Object>)]
    boxes: Vec<TableBox>,
}

/// The boxes around the points of each table of a spatial index, if it has a tree of its own.
#[utoipa::path(get, path = "/v1/datasets/{dataset}/boxes", tag = "state",
    params(("dataset" = String, Path), BoxParams),
    responses(
        (status = 200, body = Boxes)
    ))]
pub(super) async fn boxes(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
    Params(BoxParams { field }): Params<BoxParams>,
) -> Result<Json<Boxes>, Problem> {
    let boxes = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        let boxes = dataset.snapshot().table_boxes(field.as_str())?;
        Ok(Boxes { boxes })
    });
    Ok(Json(boxes.await?))
}
