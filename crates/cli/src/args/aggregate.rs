//! The arguments of `aggregate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::EnumValueParser;
use esker::request::{Aggregate, FieldOrder, GroupBy};
use esker::{Error, Order};

use super::query::{ExplainForm, RowForm};
use super::values::{limit, width};

pub(super) const AGGREGATE_HELP: &str = "\
Prints one object a group: the fields that form it, and each AGG under its name as written. AGG is one of
  count                    the number of records
  distinct(F)              the number of different values of the field F
  approx_distinct(F)       the same, estimated (1.6 %), in 4 KiB of memory
  min(F), max(F)           the least and the greatest value
  sum(F)                   the sum of the numbers: whole numbers exactly, or an error if it exceeds 128 bits
  avg(F)                   the mean of the numbers
  p50(F), p95(F), p99(F)   percentiles: the least value that so many percent of the values do not exceed
An absent field, null, and an object are no values; each element of an array is one. Without a value, all but count and
distinct are null. EXPR is a condition as in `esker find`.

--by forms groups by the values of fields, or, with a PERIOD, by buckets of them, which are named by their begin. PERIOD is a
number in the field's unit, a length of time (1d, 12h30m; units: w, d, h, m, s, ms), month or year (UTC); a bucket begins at
START, or else at 0 or 1970. A record with an array is in the group of each of its different elements, once; records without
the field are in the group null. --order sorts by columns; equal groups, and all without --order, are in the order of the
fields that form them.

Examples:
  esker aggregate db flights count
  esker aggregate db flights 'count,avg(delay),p95(delay)' 'origin = ORD' --by dest --order count:desc --limit 10
  esker aggregate db events 'count,distinct(author)' --by time/1d
  esker aggregate db events count 'repo = git' --by time/604800@1577836800,dir";

/// Aggregates.
#[derive(Clone)]
pub(crate) struct Aggregates(pub(crate) Vec<Aggregate>);

/// Fields that form groups.
#[derive(Clone)]
pub(crate) struct GroupFields(pub(crate) Vec<GroupBy>);

#[derive(Args)]
pub(crate) struct AggregateArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// What to compute of each group
    #[arg(value_name = "AGG,...", value_parser = aggregates)]
    pub(crate) aggregates: Aggregates,
    /// Conditions; all must hold [default: all records]
    #[arg(value_name = "EXPR")]
    pub(crate) conditions: Vec<String>,
    /// The fields that form groups [default: one group of all records]
    #[arg(long, value_name = "FIELD[/PERIOD[@START]],...", value_parser = group_fields)]
    pub(crate) by: Option<GroupFields>,
    /// The order of the groups, by columns, as in count:desc,origin
    #[arg(long, value_name = "COLUMN[:asc|desc],...", value_parser = columns)]
    pub(crate) order: Option<Order>,
    /// Print at most this many groups
    #[arg(long, value_name = "K", value_parser = limit)]
    pub(crate) limit: Option<usize>,
    /// Read the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the plan and its cost on standard error, as `esker find` does
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = EnumValueParser::<ExplainForm>::new(), hide_possible_values = true)]
    pub(crate) explain: Option<ExplainForm>,
    /// How groups are printed [default: a table on a terminal, else ndjson]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) format: Option<RowForm>,
    /// With a table: the most columns of a line [default: those of the terminal]
    #[arg(long, value_name = "N", value_parser = width)]
    pub(crate) width: Option<usize>,
}

fn aggregates(text: &str) -> Result<Aggregates, Error> {
    Ok(Aggregates(Aggregate::parse_list(text)?))
}

fn group_fields(text: &str) -> Result<GroupFields, Error> {
    Ok(GroupFields(GroupBy::parse_list(text)?))
}

/// Reads an order by columns; here a word such as `key` is the name of a column.
fn columns(text: &str) -> Result<Order, Error> {
    Ok(Order::Fields(FieldOrder::parse_list(text)?))
}
