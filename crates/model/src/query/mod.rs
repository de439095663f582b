//! Queries, without an engine: what a query asks ([`Request`]), the dataset that it asks about
//! ([`Shape`]), its condition compiled for that dataset ([`Compiled`]), and the index that answers
//! it ([`Plan`]).
//!
//! A store compiles a request against the shape of a dataset, chooses a plan by its own estimates
//! ([`Estimate`]), reads candidates by it, and confirms each record that it read
//! ([`Compiled::confirm`]). The answer is then the same on every store.
//!
//! Answers in an order of fields or keys are sorted by the [`Ranking`] of their records, of which
//! [`First`] keeps the first. An [`Aggregation`] is compiled into a [`Grouping`]; [`Groups`] takes
//! the records, and gives entries that a store sorts where it likes, and [`Totals`] makes a
//! [`Group`] of the sorted entries of each group.
//!
//! ```
//! use esker_model::definition::{DatasetDef, Index, StoredDef};
//! use esker_model::query::{Compiled, Driver, NoEstimates, Plan, Shape};
//! use esker_model::record::{self, RecordRef};
//! use esker_model::schema::KeyType;
//!
//! let def = DatasetDef::new("id", KeyType::Int).index("n", Index::recent().int());
//! let shape = Shape::new(&StoredDef::new(&def));
//! let condition = "n >= 5 and name = ann".parse()?;
//! let compiled = Compiled::new(&shape, Some(condition), &mut NoEstimates)?;
//! let plan = Plan::choose(&shape, &compiled, &mut NoEstimates)?;
//! assert_eq!(plan.driver, Driver::Index(0));
//!
//! let mut stored = Vec::new();
//! let body = br#"{"id": 1, "n": 7, "name": "ann"}"#;
//! record::encode(&mut stored, 0, std::iter::empty(), body);
//! let record = RecordRef::parse(&stored).unwrap();
//! assert!(compiled.confirm(&record, &shape, None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aggregate;
mod attribute;
mod bucket;
mod compiled;
mod compound;
mod constraint;
#[cfg(test)]
mod constraint_tests;
mod driver;
mod estimate;
mod first;
mod group;
mod group_state;
mod grouping;
#[cfg(test)]
mod grouping_tests;
mod groups;
mod key_spans;
mod latest;
#[cfg(test)]
mod latest_tests;
mod list;
mod lists;
mod order;
mod place_time;
mod plan;
mod planner;
#[cfg(test)]
mod planner_tests;
mod points;
#[cfg(test)]
mod points_tests;
mod rank;
mod recency;
mod request;
mod shape;
mod sum;
mod token;
mod totals;
mod validation;
mod value_totals;

pub use aggregate::{Aggregate, Aggregation, GroupBy};
pub use attribute::{Attribute, BackfillExtractor};
pub use compiled::Compiled;
pub use compound::FieldWalk;
pub use constraint::Constraint;
pub use driver::Driver;
pub use estimate::{Estimate, Expected, NoEstimates};
pub use first::First;
pub use group::Group;
pub use grouping::Grouping;
pub use groups::Groups;
pub use key_spans::{KeySpans, Span};
pub use latest::{Latest, LatestPer};
pub use lists::{Combined, Lists};
pub use order::{Direction, FieldOrder, Order};
pub use plan::{Plan, Weighed};
pub use points::{CellCount, CellCounts, Nearest, Neighbour};
pub use rank::Ranking;
pub use recency::Recency;
pub use request::{Request, Setting};
pub use shape::Shape;
pub use token::{PageToken, ValueToken};
pub use totals::Totals;
pub use validation::Validation;
pub use value_totals::ValueTotals;
