//! Matching, the last step of both searches: decides whether the interval, the place, the condition
//! and the threshold of a subscription admit a publication. Topics and expiry are checked where the
//! lists are read (`search/`).

use std::sync::Arc;

use esker::{Error, Expr, Path, Result};
use esker_model::condition::Filter;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::forms::body::NumberAt;
use crate::forms::element::{Threshold, Time, damaged};
use crate::forms::place::{Extent, Place, Region};

/// Matches publications with subscriptions, and caches the parsed conditions, polygons and paths,
/// by their texts: many subscriptions have the same texts, and each publication meets them again.
pub(crate) struct MatchCache {
    filters: Cache<Arc<str>, Arc<Filter>, TextWeight>,
    polygons: Cache<Arc<str>, Arc<Extent>, TextWeight>,
    numbers: Cache<Arc<str>, Arc<NumberAt>, TextWeight>,
    /// The maximum level of a cell.
    depth: u8,
}

/// About how many texts of each sort are in the cache if they have the length below. Of polygons
/// few, so that the cache has few shards, each of which can hold a large one.
const CONDITIONS: usize = 16 << 10;
const POLYGONS: usize = 512;
const PATHS: usize = 1 << 10;

/// The bytes of a long condition or path, and of a long polygon. Of shorter texts there are more in
/// the cache.
const LONG_TEXT: usize = 512;
const LONG_POLYGON: usize = 64 << 10;

/// Estimated bytes of what is parsed from a short text.
const PARSED_LEN: usize = 512;

/// The weight of an entry of the cache: about its bytes. What is parsed grows with its text.
#[derive(Clone)]
struct TextWeight;

impl<V> Weighter<Arc<str>, V> for TextWeight {
    fn weight(&self, text: &Arc<str>, _: &V) -> u64 {
        (PARSED_LEN + text.len()) as u64
    }
}

/// An empty cache for about `count` entries with texts of `len` bytes.
fn cache_of<V: Clone>(count: usize, len: usize) -> Cache<Arc<str>, V, TextWeight> {
    let weight = count * (PARSED_LEN + len);
    Cache::with_weighter(count, weight as u64, TextWeight)
}

/// The parts of a publication that decide a match, next to its topic.
#[derive(Clone, Copy)]
pub(crate) struct PublicationParts<'a> {
    pub(crate) time: Time,
    pub(crate) place: &'a Extent,
    pub(crate) body: &'a [u8],
}

/// The parts of a subscription that decide a match, next to its topics.
#[derive(Clone, Copy)]
pub(crate) struct SubscriptionParts<'a> {
    /// Its interval, both ends included.
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) place: &'a Place,
    pub(crate) condition: Option<&'a str>,
}

impl MatchCache {
    /// An empty cache, for a broker whose cells have at most `depth` levels.
    pub(crate) fn new(depth: u8) -> MatchCache {
        MatchCache {
            filters: cache_of(CONDITIONS, LONG_TEXT),
            polygons: cache_of(POLYGONS, LONG_POLYGON),
            numbers: cache_of(PATHS, LONG_TEXT),
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
    /// The threshold is checked by [`Threshold::is_exceeded`], once the previous number is known.
    ///
    /// # Errors
    /// [`Error::BadInput`] or [`Error::Condition`] if the stored place or condition is malformed.
    pub(crate) fn admits(
        &self,
        subscription: &SubscriptionParts<'_>,
        publication: &PublicationParts<'_>,
    ) -> Result<bool> {
        if publication.time < subscription.from || publication.time > subscription.to {
            return Ok(false);
        }
        if *subscription.place != Place::Anywhere
            && !publication.place.is_for(&*self.extent(subscription.place)?)
        {
            return Ok(false);
        }
        match subscription.condition {
            Some(condition) => Ok(self.filter(condition)?.matches_json(publication.body)),
            None => Ok(true),
        }
    }
}

impl Threshold {
    /// True if a number changed by more than the threshold. False if the publication has no number,
    /// or there is no previous one.
    pub(crate) fn is_exceeded(self, now: Option<f64>, previous: Option<f64>) -> bool {
        let (Some(now), Some(previous)) = (now, previous) else {
            return false;
        };
        let moved = (now - previous).abs();
        match self {
            Threshold::Absolute(by) => moved > by,
            Threshold::Percent(by) => moved * 100.0 > by * previous.abs(),
        }
    }
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
