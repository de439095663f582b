//! The advice for a dataset and its attributes.

use std::fmt;

use esker_lsm::coding::Own;
use esker_model::definition::IndexKind;
use esker_model::schema::{Extraction, Path, infer};
use serde::{Deserialize, Serialize};

use super::sample::{self, Measurements, Reader};
use crate::bodies;
use crate::error::{Error, Result};
use crate::index::IndexTypes;
use crate::index::cost::{AttributeProfile, Workload};
use crate::query::{Scan, count_all};
use crate::store::{Handle, View};
use crate::telemetry::{QueryStats, UsageCounts};

/// A change is advised if it reduces the cost below this share: smaller gains are within the error
/// of the model.
const MAX_COST_SHARE: f64 = 0.9;

/// The assumed number of rows of a range query, if none was counted.
const ASSUMED_RANGE_ROWS: f64 = 100.0;

/// The number of records from which the type of an undeclared attribute is inferred.
const INFERRED_FROM: usize = 1000;

/// Up to this many stored records are counted exactly; for more, the sample gives an estimate.
const MAX_COUNTED: u64 = 100_000;

/// A mix of operations, as shares with any sum. It applies to each attribute separately: `lookups`
/// and `ranges` are the queries of that attribute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Puts, inserts and deletes.
    pub puts: f64,
    /// Gets by primary key.
    pub gets: f64,
    /// Queries for one value.
    pub lookups: f64,
    /// Queries for a range of values.
    pub ranges: f64,
    /// The limit (K) of queries; `None` if they want all matches.
    pub limit: Option<u64>,
}

/// Where the mix of operations comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MixSource {
    /// The caller gave it.
    Given,
    /// It was counted by this handle and by earlier handles that wrote.
    Counted,
    /// No read was counted, so it is [`Mix::default`].
    Assumed,
}

/// The expected cost of an index kind, in microseconds of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KindCost {
    /// The kind.
    pub kind: IndexKind,
    /// The additional cost of a put, compared with no index.
    #[serde(rename = "write_us")]
    pub write: f64,
    /// A query of the attribute, averaged over the workload.
    #[serde(rename = "query_us")]
    pub query: f64,
    /// An operation, averaged over the mix.
    #[serde(rename = "operation_us")]
    pub operation: f64,
    /// Bytes on disk, in per cent of the data's.
    #[serde(rename = "bytes_percent")]
    pub bytes: f64,
}

/// The change that the advice recommends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AdvisedChange {
    /// Nothing.
    Keep,
    /// Call [`Dataset::add_index`](crate::Dataset::add_index) with the advised kind.
    Add,
    /// Call [`Dataset::switch_index`](crate::Dataset::switch_index) with the advised kind.
    Switch,
    /// Call [`Dataset::drop_index`](crate::Dataset::drop_index).
    Drop,
}

/// The advice for an attribute, with reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttributeAdvice {
    /// The attribute.
    pub path: Path,
    /// The current kind of its index; `None` if it is not declared, but was queried.
    pub now: Option<IndexKind>,
    /// The counted queries of the attribute.
    #[serde(rename = "counted")]
    pub queries: QueryStats,
    /// The workload that the advice assumes.
    pub workload: Workload,
    /// About how many records have the attribute.
    pub records: u64,
    /// Time correlation: the share of blocks that a zone map (the least and the greatest value of a
    /// block) rules out for a value of another block; `None` if there are fewer than two blocks.
    pub pruned: Option<f64>,
    /// The number of different values, a lower estimate.
    pub distinct: u64,
    /// The share of records that have the most frequent value.
    pub top_share: f64,
    /// The expected cost of each kind: first the one in use, then the alternatives.
    pub costs: Vec<KindCost>,
    /// The kind that fits best; the one in use if no other is clearly better.
    #[serde(rename = "advised")]
    pub kind: IndexKind,
    /// The change to make.
    pub change: AdvisedChange,
    /// Why, in words.
    pub why: String,
}

/// The advice for a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Advice {
    /// Its name.
    pub dataset: String,
    /// About how many records it has.
    pub records: u64,
    /// Where the mix of operations comes from.
    #[serde(rename = "mix")]
    pub source: MixSource,
    /// The counted operations.
    #[serde(rename = "counted")]
    pub counts: UsageCounts,
    /// The attributes: declared ones first, then others that were queried.
    pub attributes: Vec<AttributeAdvice>,
}

impl Handle {
    /// See [`crate::Dataset::usage`].
    pub(crate) fn usage(&self) -> UsageCounts {
        self.state.usage.read()
    }

    /// See [`crate::Dataset::advise`].
    pub(crate) fn advise(&self, mix: Option<&Mix>) -> Result<Advice> {
        if let Some(mix) = mix {
            mix.check()?;
        }
        let view = self.snapshot();
        let counts = self.usage();
        let mut candidates = declared(&view);
        candidates.extend(queried_undeclared(&view, &counts)?);
        let readers: Vec<&Reader<'_>> = candidates.iter().map(|c| &c.reader).collect();
        let cost = view.snapshot.cost();
        let measured = sample::measure(&view.snapshot, &view.layout, &readers, &cost);
        self.store.group.count(&cost);
        let Measurements {
            mut records,
            profiles,
        } = measured?;
        // A small dataset can consist mostly of old versions.
        if view.record_count() <= MAX_COUNTED {
            records = count_all(&view, None)?.0;
        }
        let types = view.layout.index_types().clone();
        let assumed = Mix::default();
        // The counts show the mix of each attribute, unless it is given or assumed.
        let (source, mix) = match mix {
            Some(mix) => (MixSource::Given, Some(mix)),
            None if reads(&counts) > 0 => (MixSource::Counted, None),
            None => (MixSource::Assumed, Some(&assumed)),
        };
        debug_assert_eq!(
            candidates.len(),
            profiles.len(),
            "a profile for each attribute"
        );
        let advised = candidates
            .into_iter()
            .zip(&profiles)
            .map(|(candidate, profile)| {
                let Candidate { path, present, .. } = candidate;
                // An attribute that was never queried has no counts.
                let queries = counts.attributes.get(&path).copied().unwrap_or_default();
                let workload = match mix {
                    Some(mix) => mix.workload(&queries),
                    None => counted_workload(&counts, &queries),
                };
                advise(&types, path, present, queries, workload, profile)
            });
        Ok(Advice {
            dataset: self.name(),
            records,
            source,
            attributes: advised.collect(),
            counts,
        })
    }
}

/// An attribute that gets advice.
struct Candidate<'a> {
    path: Path,
    present: PresentIndex,
    /// Reads its values from sampled records.
    reader: Reader<'a>,
}

/// The declared attributes of a dataset.
fn declared(view: &View) -> Vec<Candidate<'_>> {
    let layout = &view.layout;
    let attributes = layout.attributes.iter().map(|attribute| Candidate {
        path: attribute.path.clone(),
        present: PresentIndex {
            kind: Some(attribute.kind),
            is_point: attribute.ty.has_place(),
            is_compound: attribute.ty.is_compound(),
            is_unique: attribute.unique,
            is_in_tables: layout.stored.in_all_records(attribute.id),
        },
        reader: Reader::Declared(attribute),
    });
    attributes.collect()
}

/// The attributes that were queried, but are not declared. Their types are inferred from the first
/// records.
fn queried_undeclared<'a>(view: &View, counts: &UsageCounts) -> Result<Vec<Candidate<'a>>> {
    let layout = &view.layout;
    let key = (layout.stored.key.clone(), layout.stored.key_type);
    // The order of the records finds them by the first field of the key. Only the others, where a
    // key has several fields, can need an index.
    let key_paths = layout.shape.key_paths();
    let needs_index =
        |path: &&Path| layout.stored.attribute(path).is_none() && key_paths.first() != Some(*path);
    let paths: Vec<&Path> = counts.attributes.keys().filter(needs_index).collect();
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let first = Scan::all(view.clone())?.take(INFERRED_FROM);
    let first = first.collect::<Result<Vec<_>>>()?;
    let bodies: Vec<&[u8]> = first.iter().map(|record| record.json()).collect();
    // No record has a path whose type cannot be inferred, so it needs no index.
    let typed = paths
        .into_iter()
        .filter_map(|path| Some((path, infer(&bodies, path)?)));
    let candidates = typed.map(|(path, ty)| {
        let attributes = vec![(path.clone(), ty)];
        Candidate {
            path: path.clone(),
            present: PresentIndex {
                kind: None,
                is_point: false,
                is_compound: false,
                is_unique: false,
                is_in_tables: !bodies::are_separate(layout),
            },
            reader: Reader::Undeclared(Extraction::new(key.clone(), attributes)),
        }
    });
    Ok(candidates.collect())
}

/// All counted reads.
fn reads(counts: &UsageCounts) -> u64 {
    let queries = counts.attributes.values().map(|a| a.lookups + a.ranges);
    counts.gets + queries.sum::<u64>()
}

/// The ratio of `part` to `whole`; 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The average number of rows of a range query.
fn range_rows(queries: &QueryStats) -> f64 {
    // Limits are counted for lookups and ranges together, so their common share applies to ranges.
    let unlimited =
        queries.ranges as f64 * (1.0 - share(queries.limited, queries.lookups + queries.ranges));
    if queries.range_rows == 0 || unlimited <= 0.0 {
        return ASSUMED_RANGE_ROWS;
    }
    queries.range_rows as f64 / unlimited
}

/// The workload of an attribute from the counts.
fn counted_workload(counts: &UsageCounts, queries: &QueryStats) -> Workload {
    let writes = counts.puts + counts.deletes;
    let all = writes + reads(counts);
    let all_queries = queries.lookups + queries.ranges;
    Workload {
        writes: share(writes, all),
        gets: share(counts.gets, all),
        lookups: share(queries.lookups, all),
        ranges: share(queries.ranges, all),
        limited: share(queries.limited, all_queries),
        limit: share(queries.limits, queries.limited),
        range_rows: range_rows(queries),
    }
}

impl Mix {
    /// Checks that the shares are valid.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a share is negative or not finite, or all are 0.
    fn check(&self) -> Result<()> {
        let shares = [self.puts, self.gets, self.lookups, self.ranges];
        let are_valid = shares.iter().all(|n| n.is_finite() && *n >= 0.0);
        if !are_valid || self.sum() <= 0.0 {
            return Err(Error::bad_input(
                "the shares of a mix of operations must be 0 or more, and at least one above 0",
            ));
        }
        Ok(())
    }

    /// The sum of the shares.
    fn sum(&self) -> f64 {
        self.puts + self.gets + self.lookups + self.ranges
    }

    /// The workload of an attribute that this mix gives. The counted queries say how long ranges
    /// are.
    fn workload(&self, queries: &QueryStats) -> Workload {
        let all = self.sum();
        Workload {
            writes: self.puts / all,
            gets: self.gets / all,
            lookups: self.lookups / all,
            ranges: self.ranges / all,
            limited: if self.limit.is_some() { 1.0 } else { 0.0 },
            limit: self.limit.map_or(0.0, |limit| limit as f64),
            range_rows: range_rows(queries),
        }
    }
}

/// The present state of an attribute.
struct PresentIndex {
    /// `None` if it is not declared.
    kind: Option<IndexKind>,
    is_point: bool,
    is_compound: bool,
    /// Each commit reads the index for the values of its records.
    is_unique: bool,
    /// Tables of the data have the attribute, so that it can have an embedded index.
    is_in_tables: bool,
}

/// An index type that is recommended, and why.
struct Recommendation {
    kind: IndexKind,
    why: String,
}

impl Recommendation {
    fn new(kind: IndexKind, why: impl Into<String>) -> Recommendation {
        let why = why.into();
        Recommendation { kind, why }
    }
}

/// The index type that fits best. The first of `costs` is in use.
fn recommend(
    types: &IndexTypes,
    present: &PresentIndex,
    workload: &Workload,
    profile: &AttributeProfile,
    costs: &[KindCost],
) -> Recommendation {
    let in_use = costs.own(0);
    let used = in_use.kind;
    let keep = |why: &str| Recommendation::new(used, why);
    if used.is_clustered() {
        return keep("the records are stored in the order of this field");
    }
    if present.is_unique {
        return keep("its values must be unique, and commits look them up in this index");
    }
    if workload.lookups + workload.ranges <= 0.0 {
        let why = "never queried: an index would make writes slower and no query faster";
        return Recommendation::new(IndexKind::None, why);
    }
    if profile.records < 1.0 {
        return keep("no record has it yet: nothing can be measured");
    }
    if present.is_point {
        return keep("points can only have indexes of kind spatial");
    }
    let with_reason = |kind| {
        // Without an index there is no type that knows a reason.
        let index = types.index_of(kind);
        let why = index.map_or_else(String::new, |index| index.why(workload, profile));
        Recommendation::new(kind, why)
    };
    let advised = costs.iter().filter(|cost| types.is_advised(cost.kind));
    let best = advised.min_by(|a, b| {
        let bytes = a.bytes.total_cmp(&b.bytes);
        a.operation.total_cmp(&b.operation).then(bytes)
    });
    match best {
        Some(best) if best.kind != used && best.operation < MAX_COST_SHARE * in_use.operation => {
            with_reason(best.kind)
        }
        Some(best) if best.kind != used && best.operation < in_use.operation => keep(&format!(
            "{} would be better by less than a tenth, which is within the error of the estimate",
            best.kind
        )),
        Some(best) if best.kind != used && !types.is_advised(used) => {
            keep("no index that could replace it costs less")
        }
        _ => with_reason(used),
    }
}

/// The advice for an attribute.
fn advise(
    types: &IndexTypes,
    path: Path,
    present: PresentIndex,
    queries: QueryStats,
    workload: Workload,
    profile: &AttributeProfile,
) -> AttributeAdvice {
    let cost_of = |kind: IndexKind| {
        let figures = types.figures(kind);
        let (write, query) = (figures.write, figures.query(&workload, profile));
        KindCost {
            kind,
            write,
            query,
            operation: workload.writes * write + (workload.lookups + workload.ranges) * query,
            bytes: figures.bytes,
        }
    };
    let none = IndexKind::None;
    let used = present.kind.unwrap_or(none);
    let in_use = cost_of(used);
    let fits = |kind: &IndexKind| {
        let has_order = kind.can_be_compound() || *kind == none;
        (present.is_in_tables || !kind.is_embedded()) && (!present.is_compound || has_order)
    };
    // Points have their own index types, which the cost model does not compare.
    let others = IndexKind::ALL
        .into_iter()
        .filter(|kind| types.is_advised(*kind) && *kind != used && !present.is_point && fits(kind));
    let costs: Vec<KindCost> = std::iter::once(in_use).chain(others.map(cost_of)).collect();
    let Recommendation { kind, why } = recommend(types, &present, &workload, profile, &costs);
    let change = if kind == used {
        AdvisedChange::Keep
    } else if kind == none {
        AdvisedChange::Drop
    } else if used == none {
        AdvisedChange::Add
    } else {
        AdvisedChange::Switch
    };
    AttributeAdvice {
        path,
        now: present.kind,
        queries,
        workload,
        records: profile.records as u64,
        pruned: profile.pruned,
        distinct: profile.distinct as u64,
        top_share: profile.top_share,
        costs,
        kind,
        change,
        why,
    }
}

impl Default for Mix {
    /// The assumed mix if nothing was counted.
    fn default() -> Mix {
        Mix {
            puts: 50.0,
            gets: 40.0,
            lookups: 10.0,
            ranges: 0.0,
            limit: Some(10),
        }
    }
}

impl AttributeAdvice {
    /// The costs of a kind, if it was compared.
    pub fn cost_of(&self, kind: IndexKind) -> Option<&KindCost> {
        self.costs.iter().find(|cost| cost.kind == kind)
    }
}

impl fmt::Display for MixSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MixSource::Given => "given",
            MixSource::Counted => "counted",
            MixSource::Assumed => "assumed",
        })
    }
}

impl fmt::Display for AdvisedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdvisedChange::Keep => "keep",
            AdvisedChange::Add => "add",
            AdvisedChange::Switch => "switch",
            AdvisedChange::Drop => "drop",
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
