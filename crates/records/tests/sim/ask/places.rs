//! Questions about places and times, beside the oracle of [`crate::space`].

use esker::experimental::LookupOptions;
use esker::maintain::Validation;
use esker::{Expr, Result, field};

use super::Asker;
use crate::common::path;
use crate::common::tree::Tree;
use crate::model::{K, Row};
use crate::runner::count;
use crate::space::{self, Area, POINT, TIME, TIMED};

/// An area, and a time from and to.
#[derive(Debug)]
pub(super) struct Place {
    area: Option<Area>,
    window: Option<(i64, i64)>,
}

impl Place {
    pub(super) fn condition(&self) -> Option<Expr> {
        let area = self.area.as_ref().map(Area::condition);
        let window = self.window;
        let window = window.map(|(from, to)| field(TIME).ge(from) & field(TIME).le(to));
        match (area, window) {
            (Some(area), Some(window)) => Some(area & window),
            (area, window) => area.or(window),
        }
    }

    /// Whether a record is there then; none where the rounding of coordinates decides.
    fn has(&self, row: &Row) -> Option<bool> {
        if let Some((from, to)) = self.window
            && !row.times.iter().any(|time| (from..=to).contains(time))
        {
            return Some(false);
        }
        match (&self.area, row.point) {
            (None, _) => Some(true),
            (Some(_), None) => Some(false),
            (Some(area), Some(point)) => area.has(point),
        }
    }
}

/// More than the rounding error of a distance, in metres.
const ERROR: f64 = 1.0;

impl Asker<'_> {
    /// Points have an index, alone or with their times.
    pub(super) fn has_places(&self) -> bool {
        let mut indexes = self.view.def.indexes.iter();
        indexes.any(|index| index.path == path(POINT) || index.path == path(TIMED))
    }

    /// An area, where points have an index, or chance wants one; not one where a record may be in
    /// or out.
    pub(super) fn place(&mut self) -> Place {
        let nowhere = Place {
            area: None,
            window: None,
        };
        if !self.has_places() || self.rng.usize(0..3) == 0 {
            return nowhere;
        }
        let area = self.rng.usize(0..8) > 0;
        let place = Place {
            area: area.then(|| Area::random(self.rng)),
            window: (self.rng.usize(0..3) == 0).then(|| space::window(self.rng)),
        };
        let mut keys = self.records.keys.keys();
        let is_clear = keys.all(|key| self.is_at(&place, key).is_some());
        count(match (is_clear, place.window.is_some()) {
            (true, false) => "area: asked",
            (true, true) => "area: asked, at a time",
            (false, _) => "area: unclear",
        });
        if is_clear { place } else { nowhere }
    }

    pub(super) fn is_at(&self, place: &Place, key: &K) -> Option<bool> {
        let row = self.records.current(key);
        row.map_or(Some(false), |(_, row)| place.has(row))
    }

    /// The nearest records: as far as distances can be told apart they are these, in order; of one
    /// point, the first keys.
    pub(super) fn nearest(&mut self) -> Result<()> {
        let from = space::point(self.rng.u64(..));
        let most = [1, 1, 2, 5, 20, 1000][self.rng.usize(0..6)];
        let max = match self.rng.usize(0..3) {
            0 => Some(space::radius(self.rng)),
            _ => None,
        };
        let wanted = match self.rng.usize(0..3) {
            0 => Tree::All(self.wanted(), Vec::new()),
            _ => Tree::All(Vec::new(), Vec::new()),
        };
        let place = match self.rng.usize(0..3) {
            0 => self.place(),
            _ => Place {
                area: None,
                window: None,
            },
        };
        let meeting = self.records.meeting(&wanted).into_iter();
        let meeting = meeting.filter(|(key, ..)| self.is_at(&place, key) == Some(true));
        let mut right: Vec<(&K, &str, space::Tenths, f64)> = Vec::new();
        for (key, _, body) in meeting {
            if let Some(point) = self.records.current(key).and_then(|(_, row)| row.point) {
                right.push((key, body, point, space::distance(from, point)));
            }
        }
        if let Some(max) = max {
            if right.iter().any(|(.., away)| (away - max).abs() < ERROR) {
                return Ok(());
            }
            right.retain(|(.., away)| *away < max);
        }
        let validations = [Validation::Auto, Validation::Direct, Validation::Timestamp];
        let mut query = self.snapshot.query();
        for condition in [wanted.expr(), place.condition()].into_iter().flatten() {
            query = query.filter(condition);
        }
        let query = query.validation(validations[self.rng.usize(0..3)]);
        let query = query.lookup(LookupOptions {
            batch_bytes: [0, 1000, 16 << 20][self.rng.usize(0..3)],
            stateful: self.rng.bool(),
            hints: self.rng.bool(),
        });
        let from = (space::degrees(from.0), space::degrees(from.1));
        let (found, plan) = query.nearest_explained(path(POINT), from, most, max)?;
        let what = || format!("{most} nearest to {from:?}, {max:?}: {wanted:?} {place:?}\n{plan}");
        assert_eq!(found.len(), most.min(right.len()), "{}", what());
        let mut last = (0.0, None);
        for near in &found {
            let key = near.record.key().to_string();
            let at = right
                .iter()
                .position(|(other, ..)| other.to_string() == key);
            let at = at.unwrap_or_else(|| panic!("{key} is among the {}", what()));
            let (key, body, point, away) = right.remove(at);
            assert_eq!(near.record.json(), body.as_bytes(), "{}", what());
            assert!((near.distance - away).abs() < ERROR, "{}", what());
            let in_order = last.0 < near.distance || last.0 == near.distance && last.1 < Some(key);
            assert!(in_order, "{key} is behind {last:?} of the {}", what());
            last = (near.distance, Some(key));
            let sooner = right
                .iter()
                .find(|(other, _, place, _)| *place == point && *other < key);
            assert!(
                sooner.is_none(),
                "{sooner:?} is before {key} of the {}",
                what()
            );
        }
        for (key, .., away) in right {
            assert!(away > last.0 - ERROR, "{key} is nearer, of the {}", what());
        }
        count(match found.len() {
            0 => "nearest: none",
            _ => "nearest",
        });
        Ok(())
    }
}
