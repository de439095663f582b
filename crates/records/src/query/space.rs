//! Points: the nearest of them, how many in which cell, and the latest of each thing.
//!
//! The nearest are looked for in circles that grow until they hold enough: what is outside of a circle is farther than
//! all that is in it. So the order is exact, whatever the index, its maintenance strategy and the other conditions.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::ControlFlow;

use esker_model::condition::{AreaExpr, Operand, field};
use esker_model::geometry::{Bounds, EARTH_RADIUS_M, Point, Space, distance};
use esker_model::query::{Compiled, NoEstimates};
use esker_model::range::Range;
use esker_model::record::RecordRef;
use esker_model::region::Region;
use esker_model::schema::{Path, PointAt, Scalar, Type, Value, Values, decode_point};

use super::BulkOrder;
use super::answer::Answer;
use super::explain::Explain;
use super::input::Query;
use super::run::{self, Costs, Run};
use crate::error::{Error, Result};
use crate::index::{self, Candidate};
use esker_model::Record;

/// A record and its distance, ordered by distance and then by key.
pub(crate) struct Near {
    pub(crate) distance: f64,
    pub(crate) record: Record,
}

impl PartialEq for Near {
    fn eq(&self, other: &Near) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Near {}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Near) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Near {
    fn cmp(&self, other: &Near) -> Ordering {
        let by_key = || {
            let (mine, other) = (self.record.key(), other.record.key());
            mine.as_bytes().cmp(other.as_bytes())
        };
        self.distance.total_cmp(&other.distance).then_with(by_key)
    }
}

/// The number of records in a cell of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CellCount {
    /// Its row, counted from the south pole: latitude plus 90, divided by the cell's size, rounded down. The north pole belongs to the
    /// last row.
    pub row: i64,
    /// Its column, counted from the meridian of -180 degrees: longitude plus 180, divided by the cell's size, rounded down.
    pub column: i64,
    /// The number of records.
    pub count: u64,
}

/// The row or column of a coordinate, in cells of so many degrees from `-most` on. On the sphere `most` itself lies in the last of them,
/// not in one beyond the border.
fn cell_of(coordinate: f64, most: f64, degrees: f64, is_sphere: bool) -> i64 {
    let cell = ((coordinate + most) / degrees).floor() as i64;
    if !is_sphere {
        return cell;
    }
    // What a division rounds is no further cell.
    let cells = 2.0 * most / degrees;
    let whole = cells.round();
    let all = match (cells - whole).abs() < 1e-9 * cells {
        true => whole,
        false => cells.ceil(),
    };
    cell.min(all as i64 - 1).max(0)
}

/// The density around a point is that of a cell with so many times as many records as are wanted.
const SLACK: u64 = 4;
/// The first circle is to have so many times as many records as are wanted.
const MARGIN: f64 = 3.0;

/// Half of the earth's circumference, and a bit: no two points are farther from each other.
const FARTHEST: f64 = 3.2 * EARTH_RADIUS_M;

impl Query {
    /// The space of the points at `path`: as it is declared, or degrees.
    fn space(&self, path: &Path) -> Result<Space> {
        let attributes = &self.view.layout.attributes;
        match attributes.iter().find(|attribute| attribute.path == *path) {
            None => Ok(Space::Sphere),
            Some(attribute) => attribute.ty.space().ok_or_else(|| {
                let ty = attribute.ty;
                Error::bad_input(format!(
                    "field `{path}` is of type {ty}, which is not a point"
                ))
            }),
        }
    }

    /// The records at `path` by their distance from a point, nearest first, ties by key; at most `most`. Those without a
    /// point are not among them.
    pub(crate) fn by_distance(
        self,
        path: &Path,
        (x, y): (f64, f64),
        most: usize,
    ) -> Result<(Vec<Near>, Explain)> {
        let space = self.space(path)?;
        let from = Point::new(space, x, y)?;
        let at = PointAt::new(path)?;
        let mut best: BinaryHeap<Near> = BinaryHeap::new();
        let explain = self.visit(BulkOrder::Any, &mut |record| {
            if let Some(point) = at.find(space, record.json()) {
                let distance = distance(space, from, point);
                if best.len() < most || best.peek().is_some_and(|last| distance <= last.distance) {
                    best.push(Near { distance, record });
                    if best.len() > most {
                        best.pop();
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok((best.into_sorted_vec(), explain))
    }

    /// The `k` records nearest to a point, at most `max` away: nearest first, ties by key.
    pub(crate) fn nearest(
        self,
        path: &Path,
        (x, y): (f64, f64),
        k: usize,
        max: Option<f64>,
    ) -> Result<(Vec<Near>, Explain)> {
        let space = self.space(path)?;
        let from = Point::new(space, x, y)?;
        let last = max.unwrap_or(match space {
            Space::Sphere => FARTHEST,
            Space::Plane => f64::MAX / 4.0,
        });
        let circle = |radius| field(path).within(AreaExpr::circle(x, y, radius));
        // What is wrong with the largest distance is an error even if there is nothing to find.
        AreaExpr::circle(x, y, last).area(space)?;
        let mut radius = match k {
            0 => return Ok(Default::default()),
            _ => self.first_radius(path, space, from, k)?.unwrap_or(last),
        };
        loop {
            let query = match radius < last || max.is_some() {
                true => self.clone().filter(circle(radius.min(last))),
                // Everything.
                false => self.clone(),
            };
            let indexed = match radius < last || max.is_some() {
                true => query.clone().in_circle(path, space, from, k)?,
                false => None,
            };
            let (found, explain) = match indexed {
                Some(found) => found,
                None => query.by_distance(path, (x, y), k)?,
            };
            if found.len() >= k || radius >= last {
                return Ok((found, explain));
            }
            // By area, as many more as are missing, at least four times as many.
            let missing = k as f64 / (found.len() as f64).max(0.25);
            radius *= (missing * 1.5).sqrt().clamp(2.0, 16.0);
        }
    }

    /// The `k` nearest of the records that meet the conditions, a circle among them, where a tree of points drives the
    /// query: its keys have the distances, so that only the nearest records are read.
    fn in_circle(
        self,
        path: &Path,
        space: Space,
        from: Point,
        k: usize,
    ) -> Result<Option<(Vec<Near>, Explain)>> {
        let mut query = self;
        query.request.limit = Some(k);
        let run = Run::new(query)?;
        let driving = run.context.driving_index();
        let driving = driving
            .filter(|(attribute, _)| attribute.path == *path && attribute.kind.is_standalone());
        let Some((attribute, range)) = driving else {
            return Ok(None);
        };
        let lookup = run.context.indexes();
        let mut found: Vec<(f64, Candidate)> = Vec::new();
        let validity = &run.context.validity;
        index::each_point(&lookup, attribute, range, &mut |value, key, seq| {
            if let Some(point) = decode_point(space, value)
                && !validity.is_over(seq)
            {
                let candidate = Candidate {
                    seq,
                    key: key.to_vec(),
                    record: None,
                };
                found.push((distance(space, from, point), candidate));
            }
            Ok(())
        })?;
        found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
        let at = PointAt::new(path)?;
        let candidates = found.into_iter().map(|(_, candidate)| candidate);
        let mut answer = Answer::of_candidates(run, candidates.collect());
        let mut near = Vec::new();
        for record in answer.by_ref() {
            let record = record?;
            let Some(point) = at.find(space, record.json()) else {
                continue;
            };
            let distance = distance(space, from, point);
            near.push(Near { distance, record });
        }
        Ok(Some((near, answer.explain())))
    }

    /// The radius of a circle that has a few more records than are wanted, by the index's metadata; `None` without an
    /// index.
    fn first_radius(
        &self,
        path: &Path,
        space: Space,
        from: Point,
        k: usize,
    ) -> Result<Option<f64>> {
        let layout = &self.view.layout;
        let attribute = layout.attributes.iter().find(|a| a.path == *path);
        let Some((attribute, index)) =
            attribute.and_then(|attribute| Some((attribute, index::of(attribute.kind)?)))
        else {
            return Ok(None);
        };
        let costs = Costs::new(&self.view.snapshot);
        let lookup = run::index_lookup(&self.view, &costs);
        let estimate = |level: u32| -> Result<(u64, Bounds)> {
            let (cell, bounds) = Region::of_cell(space, from, level);
            let expected = index.estimate(&lookup, attribute, &Range::of_region(cell))?;
            Ok((expected, bounds))
        };
        // Estimates are no finer than blocks: what the smallest cell has is their error.
        let (least, _) = estimate(Region::LEVELS)?;
        let wanted = SLACK * (k as u64).max(least);
        // The smallest cell around the point that has so many, by binary search over the levels.
        let (mut low, mut high) = (0, Region::LEVELS);
        while low < high {
            let level = (low + high).div_ceil(2);
            match estimate(level)?.0 >= wanted {
                true => low = level,
                false => high = level - 1,
            }
        }
        let (expected, bounds) = estimate(low)?;
        let corner = |x, y| Point::new(space, x, y);
        let from = corner(bounds.min_x, bounds.min_y)?;
        let across = distance(space, from, corner(bounds.max_x, bounds.min_y)?);
        let up = distance(space, from, corner(bounds.min_x, bounds.max_y)?);
        // As dense as there, with some to spare.
        let share = MARGIN * k as f64 / (expected.saturating_sub(least) as f64).max(1.0);
        let radius = (across * up * share / std::f64::consts::PI).sqrt();
        Ok(Some(radius).filter(|radius| *radius > 0.0 && radius.is_finite()))
    }

    /// How many of the records lie in each cell of a grid with cells of so many degrees, fullest first, then by row and
    /// column.
    pub(crate) fn cells(self, path: &Path, degrees: f64) -> Result<Vec<CellCount>> {
        if !(degrees > 0.0 && degrees <= 360.0) {
            return Err(Error::bad_input(format!(
                "cells of {degrees} degrees: the size must be more than 0 and at most 360"
            )));
        }
        let space = self.space(path)?;
        let at = PointAt::new(path)?;
        let is_sphere = space == Space::Sphere;
        let mut counts: HashMap<(i64, i64), u64> = HashMap::new();
        self.visit(BulkOrder::Any, &mut |record| {
            if let Some(point) = at.find(space, record.json()) {
                let row = cell_of(point.y(), 90.0, degrees, is_sphere);
                let column = cell_of(point.x(), 180.0, degrees, is_sphere);
                *counts.entry((row, column)).or_default() += 1;
            }
            ControlFlow::Continue(())
        })?;
        let cell = |((row, column), count)| CellCount { row, column, count };
        let mut cells: Vec<CellCount> = counts.into_iter().map(cell).collect();
        cells.sort_unstable_by_key(|cell| (u64::MAX - cell.count, cell.row, cell.column));
        Ok(cells)
    }

    /// Of the records with a time in an interval the newest of each key at `key`; of those the ones that meet the query's
    /// conditions, by primary key.
    pub(crate) fn latest_per(self, key: &Path, asked: &AsOf) -> Result<(Vec<Record>, Explain)> {
        let layout = self.view.layout.clone();
        let mut query = self;
        let condition = query.request.condition.take();
        let conditions = Compiled::new(&layout.shape, condition, &mut NoEstimates)?;
        let mut paths = vec![key.clone()];
        if let Some(time) = &asked.time {
            paths.push(time.clone());
            let bound = |text: &String| Operand::text(text.clone());
            if let Some(to) = &asked.to {
                query = query.filter(field(time).le(bound(to)));
            }
            if let Some(from) = &asked.from {
                query = query.filter(field(time).ge(bound(from)));
            }
        }
        let declared = asked.time.as_ref().and_then(|time| {
            let mut attributes = layout.attributes.iter();
            attributes.find(|a| a.path == *time && a.ty.is_time())
        });
        let ty = declared.map_or(Type::Time, |attribute| attribute.ty);
        let values = Values::new(&paths);
        // By key: how new, and the record if it meets the conditions.
        let mut latest: HashMap<String, ((i128, esker_lsm::Seq), Option<Record>)> = HashMap::new();
        let limit = query.request.limit.take();
        let explain = query.visit(BulkOrder::Any, &mut |record| {
            let (mut of, mut time) = (None, i128::MIN);
            values.visit(record.json(), &mut |path, scalar| match path {
                0 => of = of.take().or_else(|| Some(format!("{scalar:?}"))),
                _ => time = time.max(micros(ty, scalar).unwrap_or(i128::MIN)),
            });
            let is_timed = asked.time.is_none() || time > i128::MIN;
            let Some(of) = of.filter(|_| is_timed) else {
                return ControlFlow::Continue(());
            };
            let rank = (time, record.seq());
            if latest.get(&of).is_none_or(|(known, _)| *known < rank) {
                let meets = RecordRef::parse(record.stored())
                    .is_some_and(|record| conditions.confirm(&record, &layout.shape, None));
                latest.insert(of, (rank, meets.then_some(record)));
            }
            ControlFlow::Continue(())
        })?;
        let found = latest.into_values().filter_map(|(_, record)| record);
        let by_key: BTreeMap<_, _> = found.map(|r| (r.key().as_bytes().to_vec(), r)).collect();
        let most = limit.unwrap_or(usize::MAX);
        Ok((by_key.into_values().take(most).collect(), explain))
    }
}

/// The time of records, for [`latest_per`](crate::Query::latest_per). Without a path it is the order of writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct AsOf {
    pub(crate) time: Option<Path>,
    /// From this time on, and up to this one, as texts that the field's type reads.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

/// A time of a type in microseconds: a number in its unit, or text.
fn micros(ty: Type, scalar: Scalar<'_>) -> Option<i128> {
    let per_second = match ty {
        Type::TimeMs => 1_000,
        Type::TimeUs => 1_000_000,
        Type::TimeNs => 1_000_000_000,
        _ => 1,
    };
    match scalar {
        Scalar::Int(v) => Some(v.checked_mul(1_000_000)?.div_euclid(per_second)),
        Scalar::Float(v) => Some((v * 1e6 / per_second as f64) as i128),
        Scalar::Str(text) => match Value::parse(ty, text).ok()? {
            Value::Time(micros) => Some(i128::from(micros)),
            _ => None,
        },
        Scalar::Bool(_) => None,
    }
}
