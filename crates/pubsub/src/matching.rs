//! Matching: decides whether the interval, the place, the condition and the threshold of a
//! subscription admit a publication.

use std::sync::Arc;

use esker::{Error, Expr, Path, Result};
use esker_model::condition::Filter;
use quick_cache::sync::Cache;

use crate::element::{StoredChange, StoredSubscription, Time, damaged};
use crate::place::{Extent, Place, Region};
use crate::spans::NumberAt;

/// Caches of compiled conditions, polygons and paths. Many subscriptions share theirs, and
/// publications meet them again and again.
pub(crate) struct Compiled {
    filters: Cache<Arc<str>, Arc<Filter>>,
    polygons: Cache<Arc<str>, Arc<Extent>>,
    numbers: Cache<Arc<str>, Arc<NumberAt>>,
    depth: u8,
}

/// The most conditions in the cache.
const CONDITIONS: usize = 16 << 10;
/// The most polygons in the cache.
const POLYGONS: usize = 4 << 10;
/// The most paths of numbers in the cache.
const PATHS: usize = 1 << 10;

/// The parts of a publication that decide a match.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) time: Time,
    pub(crate) place: &'a Extent,
    pub(crate) body: &'a [u8],
}

impl Compiled {
    pub(crate) fn new(depth: u8) -> Compiled {
        Compiled {
            filters: Cache::new(CONDITIONS),
            polygons: Cache::new(POLYGONS),
            numbers: Cache::new(PATHS),
            depth,
        }
    }

    /// # Errors
    /// If the text is not a valid condition.
    pub(crate) fn filter(&self, condition: &str) -> Result<Arc<Filter>> {
        if let Some(filter) = self.filters.get(condition) {
            return Ok(filter);
        }
        let expr: Expr = condition.parse().map_err(Error::Condition)?;
        let filter = Arc::new(Filter::new(&expr));
        self.filters.insert(condition.into(), filter.clone());
        Ok(filter)
    }

    /// # Errors
    /// If the path, which was checked before it was stored, is damaged.
    pub(crate) fn number(&self, path: &str) -> Result<Arc<NumberAt>> {
        if let Some(number) = self.numbers.get(path) {
            return Ok(number);
        }
        let parsed = Path::parse(path).map_err(|_| damaged("a path is malformed"))?;
        let number = Arc::new(NumberAt::new(&parsed));
        self.numbers.insert(path.into(), number.clone());
        Ok(number)
    }

    /// # Errors
    /// If the place is invalid.
    pub(crate) fn extent(&self, place: &Place) -> Result<Arc<Extent>> {
        let Place::Region(Region::Polygon(text)) = place else {
            return Ok(Arc::new(place.extent(self.depth)?));
        };
        if let Some(extent) = self.polygons.get(text) {
            return Ok(extent);
        }
        let extent = Arc::new(place.extent(self.depth)?);
        self.polygons.insert(text.clone(), extent.clone());
        Ok(extent)
    }

    /// True if the interval, the place and the condition of a subscription admit a publication.
    /// Topics, expiry and thresholds are checked elsewhere.
    ///
    /// # Errors
    /// If stored data is damaged.
    pub(crate) fn admits(
        &self,
        subscription: &StoredSubscription<'_>,
        subject: &Subject<'_>,
    ) -> Result<bool> {
        if subject.time < subscription.from || subject.time > subscription.to {
            return Ok(false);
        }
        if subscription.place != Place::Anywhere
            && !subject.place.is_for(&*self.extent(&subscription.place)?)
        {
            return Ok(false);
        }
        Ok(subscription.condition.is_empty()
            || self
                .filter(subscription.condition)?
                .matches_json(subject.body))
    }
}

impl StoredChange {
    /// True if the number changed by more than the threshold. False without a previous number.
    pub(crate) fn is_met(&self, now: Option<f64>, previous: Option<f64>) -> bool {
        let (Some(now), Some(previous)) = (now, previous) else {
            return false;
        };
        let moved = (now - previous).abs();
        if self.is_relative {
            moved * 100.0 > self.threshold * previous.abs()
        } else {
            moved > self.threshold
        }
    }
}
