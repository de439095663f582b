//! Watching a dataset: the changes of records that meet a condition and lie in an area.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::changes::{Listening, Wake};
use esker::{Change, Changes, Error, Expr, Path, PrimaryKey, Result};
use esker_coding::Own;
use esker_model::condition::Filter;
use esker_model::geometry::{Area, Point};
use esker_model::schema::{Scalar, Values};

use crate::forms::cell::SPACE;
use crate::forms::place::Region;

/// The changes of a dataset whose records meet a condition and lie in an area, in order.
///
/// Returns a put if the new record meets the condition and lies in the area. With old records
/// ([`Changes::with_old`]) it also returns a change if the old record did so: the record has left
/// the area, or was deleted. Without old records it skips deletions.
///
/// ```
/// use esker::{ChangesFrom, Database, DatasetDef, Options, Path};
/// use esker_pubsub::{Region, Watch};
///
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let cars = db.create_dataset::<u64>("cars", DatasetDef::key("id"))?;
/// let harbour = Region::Rect { west: 9.9, south: 53.5, east: 10.0, north: 53.6 };
/// let path = |text| Path::parse(text).unwrap();
/// let mut watch = Watch::new(cars.changes(ChangesFrom::Now)?)
///     .matching("speed > 30".parse()?)?
///     .within(&harbour, path("lon"), path("lat"))?;
///
/// cars.put_json(br#"{"id": 1, "lon": 9.95, "lat": 53.55, "speed": 50}"#)?;
/// cars.put_json(br#"{"id": 2, "lon": 8.0, "lat": 53.55, "speed": 50}"#)?;
/// assert_eq!(watch.next()?.map(|change| *change.key()), Some(1));
/// assert!(watch.next()?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct Watch<K = esker::Key> {
    changes: Changes<K>,
    filter: Option<Filter>,
    area: Option<WatchedArea>,
}

/// An area, and the paths of the coordinates of records.
struct WatchedArea {
    area: Area,
    /// Finds the longitude and the latitude, in this order.
    coordinates: Values,
}

impl WatchedArea {
    /// True if a record lies in the area; false if it has no valid coordinates.
    fn contains(&self, json: &[u8]) -> bool {
        let mut coordinates = [None; 2];
        self.coordinates
            .visit(json, &mut |path, value: Scalar<'_>| {
                let coordinate = coordinates.own_mut(path);
                *coordinate = coordinate.or(value.as_f64());
            });
        let [Some(longitude), Some(latitude)] = coordinates else {
            return false;
        };
        let point = Point::new(SPACE, longitude, latitude);
        point.is_ok_and(|point| self.area.contains(point))
    }
}

impl<K: PrimaryKey> Watch<K> {
    /// All changes of a feed.
    pub fn new(changes: Changes<K>) -> Watch<K> {
        Watch {
            changes,
            filter: None,
            area: None,
        }
    }

    /// Only the changes of records that meet the condition.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition is invalid.
    pub fn matching(mut self, condition: Expr) -> Result<Watch<K>> {
        condition.check().map_err(Error::BadInput)?;
        self.filter = Some(Filter::new(&condition));
        Ok(self)
    }

    /// Only the changes of records in the area. The paths are those of the records' coordinates, in
    /// degrees.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the area is invalid.
    pub fn within(mut self, region: &Region, longitude: Path, latitude: Path) -> Result<Watch<K>> {
        self.area = Some(WatchedArea {
            area: region.area()?,
            coordinates: Values::new(&[longitude, latitude]),
        });
        Ok(self)
    }

    /// The next change, or `None` if there is none yet.
    ///
    /// # Errors
    /// The errors of [`Changes::next`].
    #[allow(
        clippy::should_implement_trait,
        reason = "it can be called again after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Change<K>>> {
        while let Some(change) = self.changes.next()? {
            if self.matches(&change) {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// The next change; waits for it for at most `most`.
    ///
    /// # Errors
    /// The errors of [`Changes::wait`].
    pub fn wait(&mut self, most: Duration) -> Result<Option<Change<K>>> {
        if most.is_zero() {
            return self.next();
        }
        // `None` if the clock cannot express the time: waits forever.
        let until = Instant::now().checked_add(most);
        let mut left = most;
        while !left.is_zero() {
            match self.changes.wait(left)? {
                Some(change) if self.matches(&change) => return Ok(Some(change)),
                Some(_) => {}
                None => break,
            }
            left = until.map_or(most, |until| {
                until.saturating_duration_since(Instant::now())
            });
        }
        Ok(None)
    }

    /// Calls `wake` whenever there may be a change, until the returned value is dropped
    /// ([`Changes::listen`]).
    ///
    /// # Errors
    /// The errors of [`Changes::listen`].
    pub fn listen(&self, wake: Arc<Wake>) -> Result<Listening> {
        self.changes.listen(wake)
    }

    /// True if the store was closed or refuses writes. If [`Watch::next`] then returns `None`, no
    /// more changes come.
    pub fn is_ended(&self) -> bool {
        self.changes.is_ended()
    }

    /// The feed, for its position.
    pub fn changes(&self) -> &Changes<K> {
        &self.changes
    }

    /// True if the new or the old record of a change passes the filters.
    fn matches(&self, change: &Change<K>) -> bool {
        let both = [change.record(), change.old()];
        let mut records = both.into_iter().flatten();
        records.any(|record| self.admits(record.json()))
    }

    /// True if a record meets the condition and lies in the area.
    fn admits(&self, json: &[u8]) -> bool {
        let filter = self.filter.as_ref();
        let area = self.area.as_ref();
        filter.is_none_or(|filter| filter.matches_json(json))
            && area.is_none_or(|watched| watched.contains(json))
    }
}
