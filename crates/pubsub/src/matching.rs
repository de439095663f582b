//! Matching, the last step of both searches: decides whether the interval, the place, the condition
//! and the threshold of a subscription admit a publication. Topics and expiry are checked where the
//! lists are read (`search/`).

use std::sync::Arc;

use esker::{Error, Expr, Path, Result};
use esker_model::condition::Filter;
use quick_cache::sync::Cache;

use crate::forms::element::{StoredChange, StoredSubscription, Time, damaged};
use crate::forms::place::{Extent, Place, Region};
use crate::lists::spans::NumberAt;

/// Matches publications with subscriptions, and caches the parsed conditions, polygons and paths,
/// by their texts: many subscriptions have the same texts, and each publication meets them again.
pub(crate) struct MatchCache {
    filters: Cache<Arc<str>, Arc<Filter>>,
    polygons: Cache<Arc<str>, Arc<Extent>>,
    numbers: Cache<Arc<str>, Arc<NumberAt>>,
    /// The maximum level of a cell.
    depth: u8,
}

/// The maximum number of conditions in the cache.
const MAX_CONDITIONS: usize = 16 << 10;
/// The maximum number of polygons in the cache.
const MAX_POLYGONS: usize = 4 << 10;
/// The maximum number of paths in the cache.
const MAX_PATHS: usize = 1 << 10;

/// The parts of a publication that decide a match, next to its topic.
#[derive(Clone, Copy)]
pub(crate) struct PublicationParts<'a> {
    pub(crate) time: Time,
    pub(crate) place: &'a Extent,
    pub(crate) body: &'a [u8],
}

impl MatchCache {
    /// An empty cache, for a broker whose cells have at most `depth` levels.
    pub(crate) fn new(depth: u8) -> MatchCache {
        MatchCache {
            filters: Cache::new(MAX_CONDITIONS),
            polygons: Cache::new(MAX_POLYGONS),
            numbers: Cache::new(MAX_PATHS),
            depth,
        }
    }

    /// The filter of a condition, parsed at most once while it is in the cache.
    ///
    /// # Errors
    /// [`Error::Condition`] if the text is not a valid condition.
    pub(crate) fn filter(&self, condition: &str) -> Result<Arc<Filter>> {
        if let Some(filter) = self.filters.get(condition) {
            return Ok(filter);
        }
        let expr: Expr = condition.parse().map_err(Error::Condition)?;
        let filter = Arc::new(Filter::new(&expr));
        self.filters.insert(condition.into(), filter.clone());
        Ok(filter)
    }

    /// Finds the number at a path in bodies. The path is parsed at most once while it is in the
    /// cache.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the path is malformed: it was checked before it was stored.
    pub(crate) fn number(&self, path: &str) -> Result<Arc<NumberAt>> {
        if let Some(number) = self.numbers.get(path) {
            return Ok(number);
        }
        let parsed = Path::parse(path).map_err(|_| damaged("a path is malformed"))?;
        let number = Arc::new(NumberAt::new(&parsed));
        self.numbers.insert(path.into(), number.clone());
        Ok(number)
    }

    /// The extent of a place. That of a polygon is computed at most once while it is in the cache.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the place is invalid.
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
    /// The threshold is checked by [`StoredChange::is_met`], once the previous number is known.
    ///
    /// # Errors
    /// [`Error::BadInput`] or [`Error::Condition`] if the stored place or condition is malformed.
    pub(crate) fn admits(
        &self,
        subscription: &StoredSubscription<'_>,
        parts: &PublicationParts<'_>,
    ) -> Result<bool> {
        if parts.time < subscription.from || parts.time > subscription.to {
            return Ok(false);
        }
        if subscription.place != Place::Anywhere
            && !parts.place.is_for(&*self.extent(&subscription.place)?)
        {
            return Ok(false);
        }
        Ok(subscription.condition.is_empty()
            || self
                .filter(subscription.condition)?
                .matches_json(parts.body))
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
