//! The arguments of commands about points in space.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use esker::Path;

use super::query::{LatestArgs, QueryArgs};
use super::values::limit;

pub(super) const WITHIN_HELP: &str = "\
PATH is the path of a GeoJSON point or of an array [LON, LAT], or LON_PATH,LAT_PATH. With an index of kind spatial on PATH
the command reads only records in and around the area; without one, all. EXPR is a condition as in `esker find`.

--latest-per first takes the newest record of each value, and then those of them in the area: the last position of each
vehicle, for the vehicles that are here. --cells counts the records in each cell of a grid, fullest first:
{\"row\":R,\"column\":C,\"count\":N,\"west\":LON,\"south\":LAT,\"degrees\":D}. Rows are counted from the south pole and columns from
the meridian of -180 degrees, both from 0; west and south are the south-west corner of the cell. A longitude of 180 and a
latitude of 90 degrees are in the last column and row. With --order distance each record has an additional field `distance`.

Examples:
  esker load db moves moves.ndjson.zst --key id --index lon,lat:spatial
  esker within db moves lon,lat --rect=2.2,48.7,2.6,49.0 'alt < 3000' --limit 10
  esker within db moves lon,lat --circle=2.35,48.85,20000 --order distance
  esker within db moves lon,lat --polygon paris.geojson --count
  esker within db moves lon,lat --rect=2.2,48.7,2.6,49.0 --latest-per icao24 --time time --as-of 1633608000 --max-age 60s
  esker within db moves lon,lat --rect=-5,42,8,51 --cells 0.25 --limit 20";

pub(super) const VIEW_HELP: &str = "\
Draws the box around the points of each table, level by level. The boxes are exact in the layouts mbr and stacked; in layout z
they come from a sample of about a thousandth of the points.

Example:
  esker view db places lon,lat > levels.svg";

pub(super) const NEAR_HELP: &str = "\
PATH is as in `esker within`. Distances are great-circle distances in metres; for points of the plane, in the unit of their
coordinates. Each record gets an additional last field `distance` (`_distance` if the record has a field of that name).
Records at the same distance are sorted by key.

Examples:
  esker near db places lon,lat 2.35,48.85 --k 10
  esker near db places lon,lat -0.13,51.51 --k 3 --max 5000 'population > 1000'";

/// The area of a query.
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct AreaArgs {
    /// Only within these degrees, borders included
    #[arg(long, value_name = "W,S,E,N", value_parser = numbers::<4>, allow_hyphen_values = true)]
    pub(crate) rect: Option<[f64; 4]>,
    /// Only within this distance of a point
    #[arg(long, value_name = "LON,LAT,METRES", value_parser = numbers::<3>, allow_hyphen_values = true)]
    pub(crate) circle: Option<[f64; 3]>,
    /// Only within the polygons of a GeoJSON file
    #[arg(long, value_name = "FILE")]
    pub(crate) polygon: Option<PathBuf>,
}

/// The order of the records of an area.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AreaOrder {
    /// The most recently written first
    Newest,
    /// The least recently written first
    Oldest,
    /// The nearest to the middle of the area first
    Distance,
    /// In no particular order: the fastest for many records
    Any,
}

#[derive(Args)]
pub(crate) struct WithinArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field of the points: a path, or LON_PATH,LAT_PATH
    pub(crate) path: Path,
    /// More conditions; all must hold
    #[arg(value_name = "EXPR")]
    pub(crate) conditions: Vec<String>,
    #[command(flatten)]
    pub(crate) area: AreaArgs,
    /// The order of the records
    #[arg(long, value_enum, default_value_t = AreaOrder::Newest)]
    pub(crate) order: AreaOrder,
    /// Continue after the page that ended with this token: with the same area, conditions and order
    /// (newest or oldest)
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["count", "cells", "latest_per"])]
    pub(crate) after: Option<esker::PageToken>,
    /// Print only their number
    #[arg(long, conflicts_with_all = ["cells", "format", "select", "keys_only"])]
    pub(crate) count: bool,
    /// Print the number of records in each cell of a grid, whose cells have sides of this many
    /// degrees
    #[arg(long, value_name = "DEGREES", conflicts_with_all = ["latest_per", "format", "select", "keys_only", "order"])]
    pub(crate) cells: Option<f64>,
    #[command(flatten)]
    pub(crate) latest: LatestArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

#[derive(Args)]
pub(crate) struct ViewArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field of the points [default: the only spatial index]
    pub(crate) path: Option<Path>,
}

#[derive(Args)]
pub(crate) struct NearArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field of the points: a path, or LON_PATH,LAT_PATH
    pub(crate) path: Path,
    /// Near this point
    #[arg(value_name = "LON,LAT", value_parser = numbers::<2>, allow_hyphen_values = true)]
    pub(crate) point: [f64; 2],
    /// Conditions; all must hold
    #[arg(value_name = "EXPR")]
    pub(crate) conditions: Vec<String>,
    /// Print this many records; the same as --limit
    #[arg(long, value_name = "N", value_parser = limit, required_unless_present = "limit")]
    pub(crate) k: Option<usize>,
    /// Only records at most this many metres away
    #[arg(long, value_name = "METRES")]
    pub(crate) max: Option<f64>,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

fn numbers<const N: usize>(text: &str) -> Result<[f64; N], String> {
    let each: Result<Vec<f64>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    let all = each.ok().and_then(|all| <[f64; N]>::try_from(all).ok());
    all.ok_or_else(|| format!("expected {N} numbers separated by commas"))
}
