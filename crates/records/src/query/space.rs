//! Queries of points: the nearest records, the number of records by cell, and the latest record of
//! each value of a field.
//!
//! The search for the nearest records grows a circle until it has as many matching records as are
//! wanted: every record outside of a circle is farther away than all records in it. So the order is
//! exact, whatever the index, its maintenance strategy and the other conditions.

use std::ops::ControlFlow;

use esker_lsm::Account;
use esker_model::condition::{AreaExpr, field};
use esker_model::geometry::{Bounds, EARTH_RADIUS_M, Point, Space, distance};
use esker_model::query::{CellCount, CellCounts, Latest, LatestPer, Nearest, Neighbour, Setting};
use esker_model::range::Range;
use esker_model::region::Region;
use esker_model::schema::{Path, PointAt, decode_point};

use super::answer::RecentAnswer;
use super::explain::Explain;
use super::input::ViewQuery;
use super::run::{self, Costs, DrivingIndex, Run};
use crate::error::Result;
use crate::index::{self, Candidate, WalkEnd};
use esker_model::Record;

/// The density around a point is taken from the smallest cell with this many times the wanted
/// number of records.
const CELL_FACTOR: u64 = 4;

/// The first circle is expected to have this many times the wanted number of records.
const CIRCLE_FACTOR: f64 = 3.0;

/// The memory of a point in a circle beside its candidate: its distance, the allocation of the key,
/// and what a growing list has in reserve.
const POINT_BYTES: usize = 2 * size_of::<PointInCircle>();

/// Slightly more than half of the earth's circumference: no two points are farther apart.
const FARTHEST: f64 = 3.2 * EARTH_RADIUS_M;

/// A candidate with its distance from the centre of a circle.
struct PointInCircle {
    distance: f64,
    candidate: Candidate,
}

impl ViewQuery {
    /// The matching records after the offset (at most the limit), by the distance of their points
    /// at `path`, ties by key. Reads all matching records; records without a point are skipped.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the path has no points, the point is invalid,
    /// or the request has other settings; any read error.
    pub(crate) fn by_distance(
        self,
        path: &Path,
        from: (f64, f64),
    ) -> Result<(Vec<Neighbour>, Explain)> {
        let request = &self.request;
        request.check_settings("by_distance", &[Setting::Limit, Setting::Offset])?;
        let (offset, most) = (request.offset, request.most());
        let (mut near, explain) = self.first_by_distance(path, from, most)?;
        near.drain(..offset.min(near.len()));
        Ok((near, explain))
    }

    /// The matching records nearest to a point, at most `most`. Reads all matching records.
    fn first_by_distance(
        self,
        path: &Path,
        from: (f64, f64),
        most: Option<usize>,
    ) -> Result<(Vec<Neighbour>, Explain)> {
        let mut nearest = Nearest::new(&self.view.layout.shape, path, from, most)?;
        let explain = self.all().visit(&mut |record| {
            nearest.add(record);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((nearest.finish(), explain))
    }

    /// The `k` records nearest to a point, at most `max` away, in metres on a sphere, otherwise in
    /// units of the coordinates: nearest first, ties by key. `k` replaces the request's limit.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the path has no points, the point or the
    /// distance is invalid, or the request has settings other than a limit; any read error.
    pub(crate) fn nearest(
        mut self,
        path: &Path,
        (x, y): (f64, f64),
        k: usize,
        max: Option<f64>,
    ) -> Result<(Vec<Neighbour>, Explain)> {
        (self.request).check_settings("nearest", &[Setting::Limit])?;
        self.request = self.request.all();
        let space = self.view.layout.shape.space_of(path)?;
        let from = Point::new(space, x, y)?;
        let greatest = max.unwrap_or(match space {
            Space::Sphere => FARTHEST,
            Space::Plane => f64::MAX / 4.0,
        });
        let circle = |radius| field(path).within(AreaExpr::circle(x, y, radius));
        // Rejects an invalid largest distance even if `k` is 0.
        AreaExpr::circle(x, y, greatest).area(space)?;
        if k == 0 {
            return Ok(Default::default());
        }
        // Without an index each circle is a scan, so the first one is the whole space.
        let first = self.first_radius(path, space, from, k)?;
        let mut radius = first.unwrap_or(greatest);
        loop {
            // Otherwise the circle is the whole space.
            let is_bounded = radius < greatest || max.is_some();
            let (query, indexed) = if is_bounded {
                let query = self.clone().filter(circle(radius.min(greatest)));
                let indexed = query.clone().in_circle(path, space, from, k)?;
                (query, indexed)
            } else {
                (self.clone(), None)
            };
            let (found, explain) = match indexed {
                Some(found) => found,
                None => query.first_by_distance(path, (x, y), Some(k))?,
            };
            if found.len() >= k || radius >= greatest {
                return Ok((found, explain));
            }
            // By area, as many more as are missing, at least four times as many.
            let missing = k as f64 / (found.len() as f64).max(0.25);
            radius *= (missing * 1.5).sqrt().clamp(2.0, 16.0);
        }
    }

    /// The `k` nearest of the records that meet the conditions, a circle among them; `None` unless
    /// an index of the points with its own tree drives the query: its keys give the distances, so
    /// that only the nearest records are read. `None` also if the circle has more points than the
    /// query's memory holds.
    fn in_circle(
        mut self,
        path: &Path,
        space: Space,
        from: Point,
        k: usize,
    ) -> Result<Option<(Vec<Neighbour>, Explain)>> {
        self.request.limit = Some(k);
        let run = Run::new(self)?;
        let is_of_points = |driving: &DrivingIndex<'_>| {
            driving.attribute.path == *path && driving.attribute.kind.is_standalone()
        };
        let driving = run.context.driving_index().filter(is_of_points);
        let Some(DrivingIndex { attribute, range }) = driving else {
            return Ok(None);
        };
        let lookup = run.context.indexes();
        let loan = run.context.view.dataset.store.borrow(Account::Queries);
        let (mut points, mut bytes): (Vec<PointInCircle>, usize) = (Vec::new(), 0);
        let validity = &run.context.validity;
        // Values that are no points are in no circle.
        let mut add = |value: &[u8], key: &[u8], seq| {
            if let Some(point) = decode_point(space, value)
                && !validity.is_obsolete(seq)
            {
                let candidate = Candidate {
                    seq,
                    key: key.to_vec(),
                    record: None,
                };
                bytes += candidate.bytes() + POINT_BYTES;
                if bytes > loan.bytes() {
                    return Err(WalkEnd::Broken);
                }
                points.push(PointInCircle {
                    distance: distance(space, from, point),
                    candidate,
                });
            }
            Ok(())
        };
        match index::each_point(&lookup, attribute, range, &mut add) {
            Ok(()) => {}
            Err(WalkEnd::Broken) => return Ok(None),
            Err(WalkEnd::Failed(error)) => return Err(error),
        }
        points.sort_unstable_by(|a, b| {
            let by_key = || a.candidate.key.cmp(&b.candidate.key);
            a.distance.total_cmp(&b.distance).then_with(by_key)
        });
        let at = PointAt::new(path)?;
        let candidates = points.into_iter().map(|point| point.candidate);
        let mut answer = RecentAnswer::of_candidates(run, candidates.collect());
        let mut near = Vec::new();
        for record in answer.by_ref() {
            let record = record?;
            // As in `first_by_distance`, a record without a valid point has no distance.
            let Some(point) = at.find(space, record.json()) else {
                continue;
            };
            let distance = distance(space, from, point);
            near.push(Neighbour { record, distance });
        }
        Ok(Some((near, answer.explain())))
    }

    /// The radius of a circle that has a few more records than are wanted, by the index's metadata;
    /// `None` without an index.
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
            attribute.and_then(|attribute| Some((attribute, attribute.index()?)))
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
        // Estimates are no finer than blocks: the estimate of the smallest cell is their error.
        let (least, _) = estimate(Region::LEVELS)?;
        let wanted = CELL_FACTOR * (k as u64).max(least);
        // The smallest cell around the point with `wanted` records, by binary search over the
        // levels.
        let (mut low, mut high) = (0, Region::LEVELS);
        while low < high {
            let level = (low + high).div_ceil(2);
            if estimate(level)?.0 >= wanted {
                low = level;
            } else {
                high = level - 1;
            }
        }
        debug_assert_eq!(low, high, "the search has ended");
        let (expected, bounds) = estimate(low)?;
        let corner = |x, y| Point::new(space, x, y);
        let from = corner(bounds.min_x, bounds.min_y)?;
        let across = distance(space, from, corner(bounds.max_x, bounds.min_y)?);
        let up = distance(space, from, corner(bounds.min_x, bounds.max_y)?);
        // The radius at the density of this cell, with a margin. The estimate of a cell may be less
        // than its error.
        let share = CIRCLE_FACTOR * k as f64 / (expected.saturating_sub(least) as f64).max(1.0);
        let radius = (across * up * share / std::f64::consts::PI).sqrt();
        Ok(Some(radius).filter(|radius| *radius > 0.0 && radius.is_finite()))
    }

    /// The number of matching records in each cell of a grid with cells of `degrees` degrees:
    /// fullest first, then by row and column.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the path has no points, the size is invalid,
    /// or the request has settings beside its condition; any read error.
    pub(crate) fn cells(self, path: &Path, degrees: f64) -> Result<Vec<CellCount>> {
        self.request.check_settings("cells", &[])?;
        let mut cells = CellCounts::new(&self.view.layout.shape, path, degrees)?;
        self.all().visit(&mut |record| {
            cells.add(&record);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(cells.finish())
    }

    /// For each value at `path`, its newest record, if that satisfies the condition of the request;
    /// by primary key. `latest` says which records are considered, and which is the newest.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the path or the request does not fit; any
    /// read error.
    pub(crate) fn latest_per(
        mut self,
        path: &Path,
        latest: &Latest,
    ) -> Result<(Vec<Record>, Explain)> {
        let layout = self.view.layout.clone();
        let (mut per, request) = LatestPer::new(&layout.shape, self.request, path, latest)?;
        self.request = request;
        let explain = self.visit(&mut |record| {
            per.add(record);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((per.finish(), explain))
    }
}
